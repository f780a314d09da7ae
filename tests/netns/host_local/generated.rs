//! Configurations and sequences of calls, generated from seeds, with both plugins.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastrand::Rng;

use super::*;

const SEEDS: u64 = 80;
const CALLS: usize = 30;

/// A subnet of a configuration: its addresses, from the network's to the last.
#[derive(Clone, Debug)]
struct Subnet {
    first: IpAddr,
    prefix: u8,
    size: u32,
}

impl Subnet {
    /// Returns the `index`th subnet of a family. No two overlap.
    fn new(index: u8, is_v4: bool, rng: &mut Rng) -> Self {
        let bits = rng.u8(2..=4);
        let (first, length) = if is_v4 {
            (IpAddr::V4(Ipv4Addr::new(10, 0, 0, index * 16)), 32)
        } else {
            (
                IpAddr::V6(Ipv6Addr::new(
                    0xfd00,
                    0,
                    0,
                    u16::from(index % 2),
                    0,
                    0,
                    0,
                    u16::from(index) * 16,
                )),
                128,
            )
        };
        Self {
            first,
            prefix: length - bits,
            size: 1 << bits,
        }
    }

    fn address(&self, n: u32) -> IpAddr {
        match self.first {
            IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits() + n).into(),
            IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits() + u128::from(n)).into(),
        }
    }

    /// Returns a range of the subnet without the network's and the broadcast address.
    fn range(&self, rng: &mut Rng) -> Value {
        let mut range = json!({"subnet": format!("{}/{}", self.first, self.prefix)});
        let start = rng.u32(1..self.size - 1);
        if rng.bool() {
            range["rangeStart"] = json!(self.address(start));
        }
        if rng.bool() {
            range["rangeEnd"] = json!(self.address(rng.u32(start..self.size - 1)));
        }
        match rng.u8(0..4) {
            0 => range["gateway"] = json!(self.address(rng.u32(1..self.size))),
            1 => {
                range["gateway"] = json!(if self.first.is_ipv4() {
                    "10.9.9.9"
                } else {
                    "fd99::9"
                })
            }
            _ => {}
        }
        range
    }
}

/// A configuration, and the subnets of each of its sets.
struct Generated {
    config: Value,
    subnets: Vec<Vec<Subnet>>,
}

fn generated(rng: &mut Rng) -> Generated {
    let mut index = 0;
    let (mut sets, mut subnets) = (Vec::new(), Vec::new());
    for _ in 0..rng.u8(1..=3) {
        let is_v4 = rng.bool();
        let of_set: Vec<_> = (0..rng.u8(1..=3))
            .map(|_| {
                index += 1;
                Subnet::new(index, is_v4, rng)
            })
            .collect();
        sets.push(
            of_set
                .iter()
                .map(|subnet| subnet.range(rng))
                .collect::<Vec<_>>(),
        );
        subnets.push(of_set);
    }
    let mut families: Vec<_> = subnets.iter().map(|set| set[0].first.is_ipv4()).collect();
    families.sort_unstable();
    families.dedup();
    let versions = if families.len() == subnets.len() {
        &["0.1.0", "0.2.0", "0.3.1", "1.0.0"][..]
    } else {
        &["0.3.0", "0.4.0", "1.0.0"]
    };
    let mut config = config(json!({}));
    config["cniVersion"] = json!(versions[rng.usize(..versions.len())]);
    if rng.u8(0..4) == 0 {
        config["runtimeConfig"] = json!({"ipRanges": [sets.remove(0)]});
    }
    if sets.first().is_some_and(|set| set.len() == 1) && rng.bool() {
        config["ipam"] = sets.remove(0).remove(0);
        config["ipam"]["type"] = json!("host-local");
    }
    config["ipam"]["ranges"] = json!(sets);
    Generated { config, subnets }
}

/// Asks for an address of some sets, at most one of each, or of none, in one of three ways.
fn ask(call: &mut Call, subnets: &[Vec<Subnet>], rng: &mut Rng) {
    let mut wanted = Vec::new();
    for set in subnets.iter().filter(|_| rng.bool()).collect::<Vec<_>>() {
        let subnet = &set[rng.usize(..set.len())];
        wanted.push(subnet.address(rng.u32(..subnet.size)));
    }
    if rng.u8(0..8) == 0 {
        wanted.push(Ipv4Addr::new(192, 0, 2, 1).into());
    }
    let with_prefix: Vec<_> = wanted
        .iter()
        .map(|address| format!("{address}/28"))
        .collect();
    match (rng.u8(0..3), &wanted[..]) {
        (0, [one]) => call.args = format!("IP={one}"),
        (1, _) => call.config["args"] = json!({"cni": {"ips": wanted}}),
        (_, _) => call.config["runtimeConfig"]["ips"] = json!(with_prefix),
    }
}

/// Returns a configuration that host-local refuses for one reason.
fn broken(rng: &mut Rng) -> Value {
    let bad = [
        json!({"subnet": "10.1.0.5/24"}),
        json!({"subnet": "fd02::/127"}),
        json!({"subnet": "10.1.0.0/24", "rangeStart": "10.8.8.8"}),
        json!({"subnet": "10.1.0.0/24", "rangeEnd": "fd08::8"}),
        json!({"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.9", "rangeEnd": "10.1.0.8"}),
        json!({"gateway": "10.0.0.1"}),
    ];
    config(json!({"ranges": [[{"subnet": "10.2.0.0/24"}], [bad[rng.usize(..bad.len())]]]}))
}

#[test]
fn any_sequence_of_calls_ends_as_with_host_local() {
    let Some(ground) = Ground::new() else { return };
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    for seed in 0..SEEDS {
        let mut rng = Rng::with_seed(seed);
        let (both, mut network) = (ground.both(), generated(&mut rng));
        for _ in 0..CALLS {
            let verb = [
                "ADD", "ADD", "ADD", "ADD", "ADD", "DEL", "DEL", "CHECK", "anew", "broken",
            ][rng.usize(..10)];
            match verb {
                "anew" if rng.u8(0..4) == 0 => network = generated(&mut rng),
                "broken" => drop(both.call(&Call::add(&broken(&mut rng), "c0"))),
                _ => {}
            }
            if matches!(verb, "anew" | "broken") {
                continue;
            }
            let mut call = Call::new(verb, &network.config, &format!("c{}", rng.u8(0..12)));
            call.ifname = if rng.u8(0..8) == 0 { "net1" } else { "eth0" };
            // A CHECK is not in each version.
            if verb == "CHECK" {
                call.config["cniVersion"] = json!("0.4.0");
            }
            if verb == "ADD" && rng.u8(0..3) == 0 {
                ask(&mut call, &network.subnets, &mut rng);
            }
            let mut check = Call {
                verb: "CHECK",
                ..call.clone()
            };
            check.config["cniVersion"] = json!("0.4.0");
            let held = both.ours(&check).is_ok();
            let outcome = if verb == "ADD" && held {
                // If this fails, host-local gives everything back: see `an_add_that_fails_gives_back_what_it_took_and_no_more`.
                let (theirs, ours) = (both.theirs(&call), both.ours(&call));
                assert_eq!(ours, theirs, "seed {seed}: {call:?}");
                if ours.is_err() {
                    let _ = both.call(&Call {
                        verb: "DEL",
                        ..call.clone()
                    });
                }
                ours
            } else {
                both.call(&call)
            };
            let word = outcome.map_or_else(|why| format!("{why:?}"), |_| "success".to_owned());
            *outcomes.entry(format!("{verb} {word}")).or_default() += 1;
        }
    }
    for outcome in [
        "ADD success",
        "ADD Full",
        "ADD Taken",
        "ADD Gateway",
        "ADD NotInSets",
        "ADD Duplicate",
        "CHECK NotHeld",
    ] {
        assert!(
            outcomes.get(outcome).is_some_and(|count| *count > 10),
            "{outcome} is rare: {outcomes:?}"
        );
    }
    println!("{outcomes:?}");
}
