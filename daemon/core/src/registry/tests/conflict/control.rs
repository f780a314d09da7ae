//! A station that claims the leased address is asked for one that nobody can have before its claim has any effect.

use super::*;

const PROXY: Mac = Mac([2, 0, 0, 0, 8, 8]);

impl Rig {
    /// Returns the addresses that nobody can have and that were asked for, apart from the subnet here, which is such a net
    /// itself.
    fn controls(&self) -> Vec<Ipv4Addr> {
        let nets = [[203, 0, 113], [198, 51, 100]];
        let is_one = |(sender, target): &&(Ipv4Addr, Ipv4Addr)| {
            *sender == ANY && nets.iter().any(|net| target.octets().starts_with(net))
        };
        self.asked
            .iter()
            .filter(is_one)
            .map(|(_, target)| *target)
            .collect()
    }
}

#[test]
fn a_known_proxy_holds_up_nobody_else() {
    let mut rig = rig(Detection::Optimistic);
    rig.stations.insert(ANY, PROXY);
    rig.add("a", 1, "a");
    rig.run_until(1001.0);
    let asked = rig.controls().len();
    rig.give = SECOND;
    rig.run_until(1600.999);
    let add = rig.add("b", 2, "b");
    // Answered at once.
    assert_eq!((rig.leased(add), rig.controls().len()), (SECOND, asked));
    // And told once.
    assert_eq!(rig.causes(EventKind::DetectionOff).len(), 1);
    rig.give = Ipv4Addr::new(192, 0, 2, 52);
    rig.run_until(1601.0);
    let add = rig.add("c", 3, "c");
    // After ten minutes it is asked again.
    assert!(!rig.answers.contains_key(&add));
    rig.run_until(1602.0);
    let found = (rig.leased(add), rig.controls().len());
    assert_eq!(found, (rig.give, asked + 3));
}

#[test]
fn an_add_out_of_time_names_who_claims_its_address() {
    let mut rig = rig(Detection::Optimistic);
    rig.stations.insert(FIRST, NEIGHBOUR);
    let mut call = rig.call("a", 1, "a");
    call.timeout = Duration::from_millis(900);
    let add = rig.request(Call::Add(call));
    rig.run_until(1010.0);
    assert_eq!(
        rig.answers[&add],
        Answer::Failed(Failure::Conflict {
            address: FIRST,
            by: NEIGHBOUR
        })
    );
    // A RELEASE would say that it is free.
    assert_eq!(rig.kinds(), [1, 3, 4]);
    rig.assert_nothing_is_left();
}

#[test]
fn a_lease_waits_for_the_control_after_its_mtu_is_set() {
    for proxy in [true, false] {
        let mut rig = rig(Detection::Strict);
        rig.options = vec![26, 2, 5, 120];
        rig.hold_looks = true;
        let add = rig.add("a", 1, "a");
        while rig.looks.is_empty() {
            rig.wake();
        }
        rig.hold_looks = false;
        rig.end_look();
        rig.hold_looks = true;
        while rig.looks.is_empty() {
            rig.wake();
        }
        let began = rig.seconds();
        if proxy {
            rig.stations.insert(ANY, PROXY);
        }
        rig.claim(PROXY, FIRST);
        rig.look_up();
        rig.run_until(began + 0.999);
        assert!(!rig.answers.contains_key(&add));
        rig.run_until(began + 1.0);
        let found = (rig.answers.contains_key(&add), rig.kinds().contains(&4));
        assert_eq!(found, (proxy, !proxy));
    }
}

#[test]
fn where_the_control_cannot_be_asked_for_the_claim_stands() {
    let mut rig = rig(Detection::Optimistic);
    rig.add("a", 1, "a");
    rig.appears(FIRST);
    rig.run_until(1000.5);
    rig.claim(NEIGHBOUR, FIRST);
    let exchange = *rig.open.keys().next().expect("its sockets");
    rig.breaks(exchange, LinkCause::Down);
    assert_eq!(rig.state("a"), "INIT");
    assert!(rig.events().contains(&EventKind::Declined));
}

#[test]
fn an_add_goes_on_without_sockets_beside_known_proxies() {
    let mut rig = rig(Detection::Strict);
    rig.disk = Disk::Slow;
    let add = rig.add("a", 1, "a");
    while rig.slow.is_empty() {
        rig.wake();
    }
    rig.stations.insert(ANY, PROXY);
    rig.claim(PROXY, FIRST);
    rig.disk_recovers();
    let began = rig.seconds();
    for exchange in rig.open.keys().copied().collect::<Vec<_>>() {
        rig.breaks(
            exchange,
            LinkCause::refused("open a packet socket", "no buffers"),
        );
    }
    rig.run_until(began + 1.0);
    rig.assert_leased(add);
}
