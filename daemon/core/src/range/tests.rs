use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn fallback(subnet: &str) -> Fallback {
    let said = RangeConfig {
        subnet: subnet.parse().expect("a subnet"),
        start: None,
        end: None,
        gateway: None,
    };
    let sets = Sets::new(&[vec![said]]).expect("a good range");
    Fallback::new(sets, Duration::from_secs(20), 0).expect("one set of IPv4")
}

fn holder(n: u64) -> Arc<Attachment> {
    Arc::new(Attachment::cni("lan", format!("c{n}"), "eth0"))
}

#[test]
fn a_fallback_passes_over_what_the_plugin_gave_without_it() {
    let mut fallback = fallback("10.0.0.0/29");
    fallback.pass_over([ip("10.0.0.2"), ip("10.0.0.4"), ip("10.9.9.9")].into());
    let next = |last| fallback.allocator(last).peek().expect("an address");
    assert_eq!(next(None).address.addr(), ip("10.0.0.3"));
    assert_eq!(next(Some(ip("10.0.0.3"))).address.addr(), ip("10.0.0.5"));
    assert!(!fallback.allocator(None).is_free(ip("10.0.0.2")));
}

#[test]
fn a_full_fallback_says_how_many_addresses_it_has() {
    let mut allocator = fallback("10.0.0.0/29").allocator(None);
    for n in [5, 3, 4, 6] {
        allocator.occupy(ip(&format!("10.0.0.{n}")), holder(n));
    }
    let found = allocator.peek().map(|given| given.address.addr());
    assert_eq!(found, Ok(ip("10.0.0.2")));
    allocator.occupy(ip("10.0.0.2"), holder(9));
    allocator.occupy(ip("10.9.9.9"), holder(0));
    assert_eq!(allocator.peek(), Err(NoAddress(5)));
}

#[test]
fn a_range_lists_its_addresses_in_use() {
    let mut allocator = fallback("10.0.0.0/29").allocator(None);
    allocator.occupy(ip("10.0.0.3"), holder(3));
    allocator.occupy(ip("10.9.9.9"), holder(9));
    let usage: Vec<_> = allocator.usage().collect();
    assert_eq!((usage.len(), usage[0].size), (1, 5));
    assert_eq!(usage[0].taken, [(ip("10.0.0.3"), holder(3))]);
}
