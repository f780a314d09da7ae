//! Addresses of local ranges for containers that no server answers.

use super::rig::*;
use crate::range::{RangeConfig, Sets};
use crate::source::Source;
use crate::tenure::Grantor;

const DISCOVER: u8 = 1;
const REQUEST: u8 = 3;

/// Returns a fallback to the addresses from .200 to `last`, after 20 s of silence, whose first search begins `offset` after .200.
fn to(last: u8, offset: u128) -> Fallback {
    let said = RangeConfig {
        subnet: "192.0.2.0/24".parse().unwrap(),
        start: Some("192.0.2.200".parse().unwrap()),
        end: Some(Ipv4Addr::new(192, 0, 2, last).into()),
        gateway: None,
    };
    Fallback::new(
        Sets::new(&[vec![said]]).unwrap(),
        Duration::from_secs(20),
        offset,
    )
    .unwrap()
}

fn silent() -> Rig {
    let mut rig = Rig::new(8);
    (rig.server, rig.fallback) = (Server::Silent, Some(to(203, 1)));
    rig
}

/// Returns a rig in which `a` has the first address.
pub(super) fn fallen_back() -> Rig {
    let mut rig = silent();
    let add = rig.add("a", 1, "a");
    rig.run_until(1028.0);
    assert_eq!(rig.given(add), "192.0.2.201/24");
    rig
}

impl Rig {
    fn given(&self, add: u64) -> String {
        match self.answers.get(&add) {
            Some(Answer::Leased { tenures }) => tenures[0].net().to_string(),
            other => panic!("{other:?}"),
        }
    }

    fn count_of_probes(&self, address: &str) -> usize {
        self.count((ANY, address.parse().unwrap()))
    }

    fn at(&self) -> f64 {
        self.at.as_secs_f64()
    }

    /// Nothing but DISCOVERs have been sent.
    fn assert_only_discovers(&self) {
        let kinds = self.kinds();
        assert!(kinds.iter().all(|kind| *kind == DISCOVER), "{kinds:?}");
    }
}

#[test]
fn twenty_silent_seconds_lead_to_a_fallback() {
    let mut rig = silent();
    let add = rig.add("a", 1, "a");
    rig.run_until(1019.9);
    assert_eq!(rig.count_of_probes("192.0.2.201"), 0);
    rig.run_until(1023.9);
    // Strict probes take 4 s at least.
    assert!(!rig.answers.contains_key(&add));
    rig.run_until(1028.0);
    assert_eq!(rig.given(add), "192.0.2.201/24");
    assert!(rig.count_of_probes("192.0.2.201") >= 3);
    let Some(Answer::Leased { tenures }) = rig.answers.get(&add) else {
        panic!()
    };
    assert_eq!((tenures[0].by, tenures[0].times), (Grantor::Range, None));
    assert_eq!(
        tenures[0].addresses[0].gateway,
        Some("192.0.2.1".parse().unwrap())
    );
    assert_eq!(rig.only_record().lease.source, Source::Range);
    let event = rig.store.events.last().unwrap();
    assert_eq!(event.kind, EventKind::Acquired);
    assert!(
        event.cause.contains("no server answered for 20 s"),
        "{}",
        event.cause
    );
    rig.assert_only_discovers();
}

#[test]
fn a_server_that_leaves_after_its_offer_is_silent() {
    let mut rig = silent();
    rig.server = Server::OffersOnly;
    let add = rig.add("a", 1, "a");
    rig.run_until(1001.0);
    assert!(rig.sent.iter().any(|(kind, _)| *kind == REQUEST));
    rig.server = Server::Silent;
    rig.run_until(1029.9);
    assert!(
        rig.count_of_probes("192.0.2.201") > 0,
        "{:?} {:?}",
        rig.sent,
        rig.answers.get(&add)
    );
    assert_eq!(rig.given(add), "192.0.2.201/24");
}

#[test]
fn a_port_blocked_for_fifteen_seconds_needs_no_fallback() {
    for seed in 0..20 {
        let mut rig = silent();
        rig.reg = Core::new(Config::default(), seed);
        rig.start("b", vec![], vec![]);
        let add = rig.add("a", 1, "a");
        rig.run_until(1015.5);
        rig.server = Server::Up;
        rig.run_until(1028.0);
        assert_eq!(rig.given(add), "192.0.2.50/24", "seed {seed}");
        assert_eq!(rig.count_of_probes("192.0.2.201"), 0);
    }
}

#[test]
fn an_add_that_insists_on_an_address_gets_no_other() {
    let mut rig = silent();
    let mut call = rig.call("a", 1, "a");
    call.wanted = Some(crate::source::Wanted {
        address: "192.0.2.9".parse().unwrap(),
        preferred: false,
    });
    let add = rig.request(Call::Add(call));
    rig.run_until(1031.0);
    assert_fails!(rig, add, Failure::NoOffer { .. });
}

#[test]
fn a_fallback_passes_over_an_address_in_use() {
    let mut rig = silent();
    let add = rig.add("a", 1, "a");
    rig.run_until(1021.0);
    rig.claim(NEIGHBOUR, "192.0.2.201".parse().unwrap());
    rig.run_until(1030.0);
    assert_eq!(rig.given(add), "192.0.2.202/24");
    rig.assert_only_discovers();
    assert!(rig.told(EventKind::Conflict) > 0);
}

#[test]
fn a_macvlan_probes_the_next_address_too() {
    let mut rig = silent();
    rig.beside = true;
    let used = "192.0.2.201".parse().unwrap();
    rig.stations.insert(used, NEIGHBOUR);
    let add = rig.endpoint(1);
    rig.run_until(1030.0);
    assert_eq!(rig.given(add), "192.0.2.202/24");
}

#[test]
fn fallback_addresses_differ_until_none_is_left() {
    let mut rig = silent();
    let adds: Vec<_> = (1..=5)
        .map(|n| rig.add(&format!("c{n}"), n, &format!("c{n}")))
        .collect();
    rig.run_until(1031.0);
    let mut given: Vec<_> = adds[..4].iter().map(|add| rig.given(*add)).collect();
    given.sort();
    assert_eq!(
        given,
        [
            "192.0.2.200/24",
            "192.0.2.201/24",
            "192.0.2.202/24",
            "192.0.2.203/24"
        ]
    );
    let Answer::Failed(Failure::NoAddress(none)) = &rig.answers[&adds[4]] else {
        panic!("{:?}", rig.answers)
    };
    assert!(none.to_string().starts_with("all 4 addresses"), "{none}");
}

#[test]
fn a_del_gives_it_back_without_a_word_and_another_gets_it() {
    let mut rig = fallen_back();
    let del = rig.del("a");
    assert_eq!(rig.answers[&del], Answer::Deleted);
    assert!(rig.store.records().is_empty() && rig.rows().is_empty());
    assert_eq!(rig.store.events.last().unwrap().kind, EventKind::Released);
    rig.assert_only_discovers();
    // The next search begins after it, and comes around.
    let adds: Vec<_> = (2..=5)
        .map(|n| rig.add(&format!("c{n}"), n, &format!("c{n}")))
        .collect();
    rig.run_until(rig.at() + 30.0);
    assert_eq!(
        adds.iter()
            .filter(|add| rig.given(**add) == "192.0.2.201/24")
            .count(),
        1
    );
}

#[test]
fn carrier_that_was_away_does_not_make_it_doubtful() {
    let mut rig = fallen_back();
    rig.interface.carrier = false;
    rig.tell_carrier(false);
    rig.run_until(rig.at() + 60.0);
    rig.interface.carrier = true;
    rig.tell_carrier(true);
    rig.run_until(rig.at() + 20.0);
    assert_eq!((rig.state("a"), rig.sends(REQUEST)), ("BOUND", 0));
}

#[test]
fn an_add_that_a_server_serves_says_it_is_back() {
    let mut rig = fallen_back();
    rig.server = Server::Up;
    let next = rig.add("b", 2, "b");
    assert_eq!(rig.given(next), "192.0.2.50/24");
    let is_back = |event: &&Event| event.kind == EventKind::ServerBack;
    assert_eq!(rig.store.events.iter().filter(is_back).count(), 1);
    let before = rig.sends(DISCOVER);
    rig.run_until(rig.at() + 60.0);
    assert_eq!(rig.sends(DISCOVER), before, "it keeps what it has");
}

#[test]
fn an_adopted_fallback_address_asks_no_server() {
    let mut rig = silent();
    rig.interface.carry(["192.0.2.202/24".parse().unwrap()]);
    let adoptee = Adoptee {
        add: rig.call("a", 1, "a"),
        address: "192.0.2.202/24".parse().unwrap(),
        mac: None,
    };
    rig.reg = Core::new(Config::default(), 8);
    rig.start("b", vec![], vec![adoptee]);
    rig.run_until(1005.0);
    assert_eq!((rig.state("a"), rig.sent.len()), ("BOUND", 0));
    assert_eq!(rig.only_record().lease.source, Source::Range);
    assert_eq!(rig.store.events.last().unwrap().kind, EventKind::Adopted);
}

#[test]
fn a_pod_has_its_fallback_address_again_after_a_reboot() {
    for reboots in [false, true] {
        let mut rig = silent();
        rig.profile.grace = Some(60);
        // The search begins at .201, after a reboot too.
        let adds = [rig.add("z", 1, "z"), rig.add("a", 2, "pod")];
        rig.run_until(1028.0);
        let given = adds.map(|add| rig.given(add));
        assert!(
            given.contains(&"192.0.2.201/24".to_owned())
                && given.contains(&"192.0.2.202/24".to_owned()),
            "{given:?}"
        );
        if reboots {
            let records = rig.store.records();
            rig.reg = Core::new(Config::default(), 9);
            rig.start("next", records, vec![]);
        } else {
            rig.del("z");
            rig.del("a");
        }
        rig.run_until(1030.0);
        assert!(rig.rows().is_empty(), "{:?}", rig.rows());
        let again = rig.add("b", 3, "pod");
        rig.run_until(1060.0);
        assert_eq!(rig.given(again), given[1], "reboots: {reboots}");
        assert_eq!(rig.wished, None, "no server knows of it");
        rig.assert_only_discovers();
    }
}

#[test]
fn a_pod_whose_address_is_taken_gets_the_next_one() {
    let mut rig = silent();
    rig.profile.grace = Some(60);
    rig.add("a", 1, "pod");
    rig.run_until(1028.0);
    rig.del("a");
    let fallback = rig.fallback.as_mut().unwrap();
    fallback.pass_over(["192.0.2.201".parse().unwrap()].into());
    let again = rig.add("b", 3, "pod");
    rig.run_until(1060.0);
    assert_eq!(rig.given(again), "192.0.2.202/24");
}

#[test]
fn fallback_ranges_are_listed_with_their_taken_addresses() {
    let mut rig = fallen_back();
    let id = rig.request(Call::Ranges);
    let Answer::Ranges(rows) = &rig.answers[&id] else {
        panic!()
    };
    let told: Vec<_> = rows
        .iter()
        .map(|row| {
            let taken: Vec<_> = row
                .usage
                .taken
                .iter()
                .map(|(address, taken)| format!("{address} {taken}"))
                .collect();
            (row.network.as_str(), row.usage.size, taken)
        })
        .collect();
    let a = "192.0.2.201 ".to_owned() + &attachment("a").to_string();
    assert_eq!(told, [(attachment("a").network(), 4, vec![a])]);
}

#[test]
fn adds_without_a_permit_fall_back_with_the_others() {
    let mut rig = Rig::new(2);
    (rig.server, rig.fallback) = (Server::Silent, Some(to(250, 0)));
    rig.live = (1..40).collect();
    let adds: Vec<_> = (1..=30)
        .map(|n| rig.add(&format!("c{n}"), n, &format!("c{n}")))
        .collect();
    for second in 1000..=1029 {
        rig.run_until(f64::from(second) + 0.9);
    }
    let given: std::collections::BTreeSet<_> = adds.iter().map(|add| rig.given(*add)).collect();
    assert_eq!(given.len(), 30);
    let asked = rig.chaddrs.len();
    assert!(
        asked < 20,
        "the others have asked for those that wait: {asked}"
    );
    rig.assert_only_discovers();
}
