use std::time::Duration;

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A range as `subnet`, or `subnet start end`, with `gateway` behind that.
fn said(text: &str) -> Said {
    let mut words = text.split(' ');
    let subnet = words
        .next()
        .and_then(|subnet| subnet.parse().ok())
        .expect("a subnet");
    let mut address = || words.next().filter(|word| *word != "-").map(ip);
    Said {
        subnet,
        start: address(),
        end: address(),
        gateway: address(),
    }
}

/// Sets of ranges: `;` between sets, `,` between ranges.
fn sets(text: &str) -> Result<Sets, BadRange> {
    let set = |set: &str| {
        set.split(',')
            .filter(|range| !range.is_empty())
            .map(said)
            .collect::<Vec<_>>()
    };
    Sets::new(&text.split(';').map(set).collect::<Vec<_>>())
}

fn allocator(text: &str) -> Allocator {
    Allocator::new(sets(text).expect("good ranges"), 0)
}

fn holder(n: u64) -> Arc<Attachment> {
    Arc::new(Attachment::cni("lan", format!("c{n}"), "eth0"))
}

fn at(seconds: u64) -> WallTime {
    WallTime::from_epoch(Duration::from_secs(seconds))
}

/// What holder `n` gets at `n` seconds, or why it gets nothing.
fn add(allocator: &mut Allocator, n: u64, asked: &[&str]) -> String {
    let asked: Vec<_> = asked.iter().map(|address| ip(address)).collect();
    match allocator.allocate(&holder(n), &asked, &|_| None, at(n)) {
        Ok(given) => given
            .iter()
            .map(|given| given.address.to_string())
            .collect::<Vec<_>>()
            .join(" "),
        Err(why) => why.to_string(),
    }
}

/// Gives all addresses of an attachment back, and returns them.
fn release(allocator: &mut Allocator, by: &Attachment) -> Vec<IpAddr> {
    let addresses: Vec<_> = allocator.taken.of(by).collect();
    addresses
        .iter()
        .for_each(|address| allocator.vacate(*address, by));
    addresses
}

#[test]
fn addresses_go_round_through_all_ranges_past_the_gateways() {
    let mut allocator =
        allocator("10.0.0.0/24 10.0.0.1 10.0.0.3,10.0.9.0/24 10.0.9.7 10.0.9.8 10.0.9.8");
    for (n, address) in [(1, "10.0.0.2/24"), (2, "10.0.0.3/24"), (3, "10.0.9.7/24")] {
        assert_eq!(add(&mut allocator, n, &[]), address);
    }
    assert_eq!(
        add(&mut allocator, 4, &[]),
        "3 of 3 addresses of range set 0 are taken, 10.0.0.2 the longest, by lan/c1/eth0"
    );
    assert_eq!(release(&mut allocator, &holder(2)), [ip("10.0.0.3")]);
    assert_eq!(release(&mut allocator, &holder(1)), [ip("10.0.0.2")]);
    assert_eq!(add(&mut allocator, 5, &[]), "10.0.0.2/24");
    release(&mut allocator, &holder(5));
    assert_eq!(
        add(&mut allocator, 6, &[]),
        "10.0.0.3/24",
        "the one after the last, though one before is free"
    );
}

#[test]
fn an_attachment_gets_one_address_of_each_set() {
    let mut allocator = allocator("10.0.0.0/29;fd00::/64;10.1.0.0/29");
    assert_eq!(
        add(&mut allocator, 1, &[]),
        "10.0.0.2/29 fd00::2/64 10.1.0.2/29"
    );
    assert_eq!(
        add(&mut allocator, 1, &[]),
        "lan/c1/eth0 has 10.0.0.2 already"
    );
    assert_eq!(
        add(&mut allocator, 2, &["10.1.0.5"]),
        "10.0.0.3/29 fd00::3/64 10.1.0.5/29"
    );
    assert_eq!(
        add(&mut allocator, 3, &[]),
        "10.0.0.4/29 fd00::4/64 10.1.0.6/29"
    );
    let of_second: Vec<_> = allocator.taken.of(&holder(2)).collect();
    assert_eq!(of_second, [ip("10.0.0.3"), ip("10.1.0.5"), ip("fd00::3")]);
}

#[test]
fn an_address_that_was_asked_for_and_cannot_be_given_gives_everything_back() {
    let mut allocator = allocator("10.0.0.0/24;10.1.0.0/24");
    assert_eq!(
        add(&mut allocator, 1, &["10.1.0.9"]),
        "10.0.0.2/24 10.1.0.9/24"
    );
    for (asked, why) in [
        (&["10.1.0.9"][..], "10.1.0.9 is taken by lan/c1/eth0"),
        (&["10.1.0.1"][..], "10.1.0.1 is a gateway"),
        (&["10.1.0.255"][..], "no range set has 10.1.0.255 to give"),
        (
            &["10.1.0.7", "10.1.0.8"][..],
            "no range set has 10.1.0.8 to give",
        ),
    ] {
        assert_eq!(add(&mut allocator, 2, asked), why);
        assert_eq!(allocator.taken().count(), 2, "{asked:?}");
    }
    assert_eq!(
        add(&mut allocator, 2, &[]),
        "10.0.0.7/24 10.1.0.8/24",
        "the search goes on after what was given back"
    );
    assert_eq!(
        add(&mut allocator, 2, &["10.0.0.99"]),
        "lan/c2/eth0 has 10.1.0.8 already"
    );
    assert_eq!(
        add(&mut allocator, 2, &["10.0.0.99", "10.1.0.99"]),
        "10.0.0.99/24 10.1.0.99/24",
        "two of one set"
    );
}

#[test]
fn what_is_taken_stays_taken_when_the_ranges_change() {
    let mut allocator = allocator("10.0.0.0/29");
    assert_eq!(add(&mut allocator, 1, &[]), "10.0.0.2/29");
    assert_eq!(add(&mut allocator, 2, &[]), "10.0.0.3/29");
    allocator.set_ranges(sets("10.0.1.0/29,10.0.0.0/29 10.0.0.3").expect("good ranges"));
    assert_eq!(
        add(&mut allocator, 1, &[]),
        "10.0.0.4/29",
        "after the last one; what it has is in no range now"
    );
    assert_eq!(
        release(&mut allocator, &holder(1)),
        [ip("10.0.0.2"), ip("10.0.0.4")]
    );
    let usage: Vec<_> = allocator
        .usage()
        .map(|usage| (usage.set, usage.size, usage.taken.len()))
        .collect();
    assert_eq!(
        usage,
        [(0, 5, 0), (0, 4, 1)],
        "the gateway of the other range does not lie in it"
    );
    assert!(!allocator.occupy(
        ip("10.0.0.3"),
        Holding {
            by: holder(9),
            since: at(9)
        }
    ));
    assert!(
        allocator.occupy(
            ip("10.0.0.2"),
            Holding {
                by: holder(9),
                since: at(9)
            }
        ),
        "it was not in a range"
    );
    allocator.set_ranges(sets("10.0.0.0/29 10.0.0.2 10.0.0.4 10.0.0.4").expect("good ranges"));
    let why = "2 of 2 addresses of range set 0 are taken, 10.0.0.3 the longest, by lan/c2/eth0";
    assert_eq!(add(&mut allocator, 3, &[]), why);
}

#[test]
fn what_somebody_gives_back_without_having_it_stays_free_once() {
    let mut allocator = allocator("10.0.0.0/29");
    allocator.vacate(ip("10.0.0.3"), &holder(9));
    allocator.occupy(
        ip("10.0.0.3"),
        Holding {
            by: holder(8),
            since: at(8),
        },
    );
    assert_eq!(add(&mut allocator, 1, &[]), "10.0.0.2/29");
    assert_eq!(
        add(&mut allocator, 2, &[]),
        "10.0.0.4/29",
        "the one between is taken"
    );
}

#[test]
fn a_fallback_passes_over_what_the_plugin_gave_without_it() {
    let sets = sets("10.0.0.0/29").expect("good ranges");
    let mut fallback = Fallback::new(sets, Duration::from_secs(20), 0).expect("one set of IPv4");
    fallback.pass_over([ip("10.0.0.2"), ip("10.0.0.4"), ip("10.9.9.9")].into());
    let next = |last| fallback.allocator(last).peek().expect("an address");
    assert_eq!(next(None).address.addr(), ip("10.0.0.3"));
    assert_eq!(next(Some(ip("10.0.0.3"))).address.addr(), ip("10.0.0.5"));
    assert!(!fallback.allocator(None).is_free(ip("10.0.0.2")));
}
