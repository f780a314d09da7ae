use std::collections::BTreeMap;

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A range as `subnet`, or `subnet start end`, with `gateway` behind that.
fn said(text: &str) -> RangeConfig {
    let mut words = text.split(' ');
    let subnet = words
        .next()
        .and_then(|subnet| subnet.parse().ok())
        .expect("a subnet");
    let mut address = || words.next().filter(|word| *word != "-").map(ip);
    RangeConfig {
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

#[test]
fn what_is_left_out_is_completed() {
    let table = [
        ("10.0.0.0/24", "10.0.0.1", "10.0.0.254", "10.0.0.1"),
        ("10.0.0.0/30", "10.0.0.1", "10.0.0.2", "10.0.0.1"),
        ("10.0.0.0/24 10.0.0.7", "10.0.0.7", "10.0.0.254", "10.0.0.1"),
        ("10.0.0.0/24 - 10.0.0.9", "10.0.0.1", "10.0.0.9", "10.0.0.1"),
        (
            "10.0.0.0/24 - - 10.9.9.9",
            "10.0.0.1",
            "10.0.0.254",
            "10.9.9.9",
        ),
        (
            "10.0.0.0/24 10.0.0.0 10.0.0.255",
            "10.0.0.1",
            "10.0.0.254",
            "10.0.0.1",
        ),
        ("0.0.0.0/0", "0.0.0.1", "255.255.255.254", "0.0.0.1"),
        (
            "fd00::/64",
            "fd00::1",
            "fd00::ffff:ffff:ffff:ffff",
            "fd00::1",
        ),
        ("fd00::/126", "fd00::1", "fd00::3", "fd00::1"),
        (
            "::/0",
            "::1",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "::1",
        ),
    ];
    for (text, first, last, gateway) in table {
        let sets = sets(text).expect(text);
        let (_, range) = sets.ranges().next().expect("a range");
        assert_eq!(
            (range.first, range.last, range.gateway),
            (ip(first), ip(last), ip(gateway)),
            "{text}"
        );
    }
}

#[test]
fn what_cannot_be_used_is_named() {
    let table = [
        ("", "empty range set 0"),
        ("10.0.0.0/24;", "empty range set 1"),
        (
            "10.0.0.0/31",
            "subnet 10.0.0.0/31 is too small to allocate from: it has no room for a gateway and a container",
        ),
        (
            "fd00::1/128",
            "subnet fd00::1/128 is too small to allocate from: it has no room for a gateway and a container",
        ),
        (
            "10.0.0.5/24",
            "subnet 10.0.0.5/24 has host bits set: did you mean 10.0.0.0/24?",
        ),
        (
            "10.0.0.0/24 10.0.1.1",
            "10.0.1.1 is not in network 10.0.0.0/24",
        ),
        (
            "10.0.0.0/24 - fd00::1",
            "fd00::1 is not in network 10.0.0.0/24",
        ),
        (
            "10.0.0.0/24 - - fd00::1",
            "gateway fd00::1 is not of the family of subnet 10.0.0.0/24",
        ),
        (
            "10.0.0.0/24 10.0.0.9 10.0.0.8",
            "no address for a container from 10.0.0.9 to 10.0.0.8 in subnet 10.0.0.0/24",
        ),
        (
            "10.0.0.0/24 10.0.0.255",
            "no address for a container from 10.0.0.255 to 10.0.0.254 in subnet 10.0.0.0/24",
        ),
        (
            "10.0.0.0/24,fd00::/64",
            "mixed address families in range set 0",
        ),
        (
            "10.0.0.0/24,10.0.0.0/25",
            "range sets 0 and 0 overlap: both have 10.0.0.1 to 10.0.0.126",
        ),
        (
            "10.0.0.0/24 10.0.0.100;fd00::/64;10.0.0.0/24 - 10.0.0.109",
            "range sets 0 and 2 overlap: both have 10.0.0.100 to 10.0.0.109",
        ),
    ];
    for (text, why) in table {
        assert_eq!(
            sets(text).map_err(|bad| bad.to_string()),
            Err(why.to_owned()),
            "{text}"
        );
    }
    assert_eq!(Sets::new(&[]), Err(BadRange::NoSets));
}

/// A network and who has what of it.
struct Network {
    allocator: Allocator,
    taken: BTreeMap<IpAddr, u64>,
}

impl Network {
    fn new(text: &str, offset: u128) -> Self {
        Self {
            allocator: Allocator::new(sets(text).expect("good ranges"), offset),
            taken: BTreeMap::new(),
        }
    }

    /// Returns what holder `n` gets, or why it gets nothing.
    fn add(&mut self, n: u64, asked: &[&str]) -> String {
        let asked: Vec<_> = asked.iter().map(|address| ip(address)).collect();
        let own: Vec<_> = self.of(n);
        match self.allocator.allocate(&own, &asked, &|_| false) {
            Ok(given) => {
                for given in &given {
                    self.taken.insert(given.address.addr(), n);
                }
                let given = given.iter().map(|given| given.address.to_string());
                given.collect::<Vec<_>>().join(" ")
            }
            Err(why) => why.to_string(),
        }
    }

    fn of(&self, n: u64) -> Vec<IpAddr> {
        let of = self.taken.iter().filter(|(_, by)| **by == n);
        of.map(|(address, _)| *address).collect()
    }

    fn del(&mut self, n: u64) {
        for address in self.of(n) {
            self.taken.remove(&address);
            self.allocator.give_back(address);
        }
    }
}

#[test]
fn addresses_go_round_all_ranges_but_the_gateways() {
    let mut network = Network::new(
        "10.0.0.0/24 10.0.0.1 10.0.0.3,10.0.9.0/24 10.0.9.7 10.0.9.8 10.0.9.8",
        0,
    );
    for (n, address) in [(1, "10.0.0.2/24"), (2, "10.0.0.3/24"), (3, "10.0.9.7/24")] {
        assert_eq!(network.add(n, &[]), address);
    }
    assert_eq!(
        network.add(4, &[]),
        "all addresses of range set 0 are taken"
    );
    network.del(2);
    network.del(1);
    assert_eq!(network.add(5, &[]), "10.0.0.2/24");
    network.del(5);
    assert_eq!(
        network.add(6, &[]),
        "10.0.0.3/24",
        "the one after the last, though one before is free"
    );
}

#[test]
fn each_set_gives_one_address() {
    let mut network = Network::new("10.0.0.0/29;fd00::/64;10.1.0.0/29", 0);
    assert_eq!(network.add(1, &[]), "10.0.0.2/29 fd00::2/64 10.1.0.2/29");
    assert_eq!(network.add(1, &[]), "the caller has 10.0.0.2 already");
    assert_eq!(
        network.add(2, &["10.1.0.5"]),
        "10.0.0.3/29 fd00::3/64 10.1.0.5/29"
    );
    assert_eq!(network.add(3, &[]), "10.0.0.4/29 fd00::4/64 10.1.0.6/29");
}

#[test]
fn a_refused_request_leaves_no_address_taken() {
    let mut network = Network::new("10.0.0.0/24;10.1.0.0/24", 0);
    assert_eq!(network.add(1, &["10.1.0.9"]), "10.0.0.2/24 10.1.0.9/24");
    for (asked, why) in [
        (&["10.1.0.9"][..], "10.1.0.9 is taken"),
        (&["10.1.0.1"][..], "10.1.0.1 is a gateway"),
        (&["10.1.0.255"][..], "no range set has 10.1.0.255 to give"),
        (
            &["10.1.0.7", "10.1.0.8"][..],
            "no range set has 10.1.0.8 to give",
        ),
    ] {
        assert_eq!(network.add(2, asked), why);
        assert!(network.allocator.is_free(ip("10.0.0.3")), "{asked:?}");
    }
    assert_eq!(
        network.add(2, &[]),
        "10.0.0.7/24 10.1.0.8/24",
        "the search goes on after what was given back"
    );
    assert_eq!(
        network.add(2, &["10.0.0.99"]),
        "the caller has 10.1.0.8 already"
    );
    assert_eq!(
        network.add(2, &["10.0.0.99", "10.1.0.99"]),
        "10.0.0.99/24 10.1.0.99/24",
        "two of one set"
    );
}

#[test]
fn the_first_search_begins_where_it_is_told() {
    let begin = |text, offset| {
        let mut network = Network::new(text, offset);
        (network.add(1, &[]), network.add(2, &[]))
    };
    let pair = |first: &str, second: &str| (first.to_owned(), second.to_owned());
    assert_eq!(
        begin("10.0.0.0/24", 0),
        pair("10.0.0.2/24", "10.0.0.3/24"),
        "the first is the gateway"
    );
    assert_eq!(
        begin("10.0.0.0/24", 99),
        pair("10.0.0.100/24", "10.0.0.101/24")
    );
    assert_eq!(
        begin("10.0.0.0/24", 253 + 2 * 254),
        pair("10.0.0.254/24", "10.0.0.2/24")
    );
    assert_eq!(
        begin("10.0.0.0/30,10.0.1.0/30", 3),
        pair("10.0.1.2/30", "10.0.0.2/30")
    );
    let last = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/0".to_owned();
    assert_eq!(begin("::/0", u128::MAX - 1), (last, "::2/0".to_owned()));
}

#[test]
fn what_others_have_is_passed_over() {
    let mut allocator = Allocator::new(sets("10.0.0.0/29").expect("good ranges"), 0);
    let is_taken = |address| [ip("10.0.0.2"), ip("10.0.0.4")].contains(&address);
    let given = allocator.allocate(&[], &[], &is_taken).expect("an address");
    assert_eq!(given[0].address.to_string(), "10.0.0.3/29");
    assert_eq!(
        allocator.allocate(&[], &[ip("10.0.0.4")], &is_taken),
        Err(NotGiven::Taken(ip("10.0.0.4")))
    );
}

#[test]
fn a_gateway_is_no_address_for_a_container_in_any_range() {
    let text = "10.0.0.0/24 10.0.0.7 10.0.0.8,10.1.0.0/24 - - 10.0.0.7;10.2.0.0/24 - - 10.0.0.8";
    let mut network = Network::new(text, 0);
    assert_eq!(network.add(1, &["10.0.0.8"]), "10.0.0.8 is a gateway");
    assert_eq!(network.add(1, &[]), "10.1.0.1/24 10.2.0.1/24");
    network.allocator.give_back(ip("10.0.0.8"));
    assert!(!network.allocator.is_free(ip("10.0.0.8")));
    let mut none = Network::new("10.0.0.0/24 10.0.0.1 10.0.0.1", 0);
    assert_eq!(none.add(1, &[]), "all addresses of range set 0 are taken");
}

#[test]
fn an_address_that_is_given_back_twice_is_free_once() {
    let mut network = Network::new("10.0.0.0/29", 0);
    network.allocator.give_back(ip("10.0.0.3"));
    network.allocator.take(ip("10.0.0.3"));
    assert_eq!(network.add(1, &[]), "10.0.0.2/29");
    assert_eq!(
        network.add(2, &[]),
        "10.0.0.4/29",
        "the one between is taken"
    );
}
