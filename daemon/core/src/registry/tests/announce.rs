//! An address that the daemon puts on is announced, with or without conflict detection.

use super::rig::*;

/// What the interface gets as its Ethernet address later.
const TUNED: Mac = Mac([2, 0, 0, 0, 7, 7]);

/// The lease is about to be renewed with another address.
fn changing(detection: Detection) -> Rig {
    let mut rig = Rig::new(8);
    rig.profile.policy.detection = detection;
    rig.lease = 4000;
    rig.bind_slowly();
    rig.run_until(rig.t1() - 0.5);
    rig.give = OTHER;
    rig.asked.clear();
    rig
}

impl Rig {
    /// The kernel reports the address that was put on; returns how often it is announced, and probed for, in ten seconds.
    fn appeared(&mut self) -> (usize, usize) {
        assert_eq!(self.on_link(), [B]);
        let appeared = KernelMessage::AddressAdded((Cookie(1), 2), OTHER.into());
        self.input(Input::Kernel(appeared));
        self.run_for(15.0);
        assert!(self.open.is_empty(), "{:?}", self.open);
        let count = |arp| self.asked.iter().filter(|asked| **asked == arp).count();
        (count((OTHER, OTHER)), count((Ipv4Addr::UNSPECIFIED, OTHER)))
    }
}

#[test]
fn a_changed_address_is_announced_twice() {
    for (detection, probes) in [(Detection::Optimistic, 3), (Detection::Off, 0)] {
        let mut rig = changing(detection);
        rig.run_for(1.0);
        assert_eq!(rig.appeared(), (2, probes), "{detection:?}");
    }
}

#[test]
fn a_changed_address_is_announced_once_it_is_put_on() {
    for detection in [Detection::Optimistic, Detection::Off, Detection::Strict] {
        let mut rig = changing(detection);
        rig.disk = Disk::Full;
        rig.run_until(3060.0);
        assert_eq!(rig.on_link(), [A]);
        rig.asked.clear();
        rig.disk = Disk::Good;
        while rig.on_link() == [A] {
            rig.run_for(0.1);
        }
        assert_eq!(rig.appeared(), (2, 0), "{detection:?}");
    }
}

/// A lease of more than an hour, as it is some seconds after its ADD.
fn bound(profile: Profile, after: f64) -> Rig {
    let mut rig = Rig::new(8);
    rig.profile = profile;
    rig.lease = 4000;
    rig.bind();
    rig.run_until(1000.0 + after);
    rig
}

/// The interface gets another Ethernet address as the plugin `tuning` gives it: down, the address, up. What breaks the sockets
/// that are open.
fn tune(rig: &mut Rig, mac: Mac) {
    let (cookie, ifindex) = (Cookie(1), 2);
    let told = |mac, up| {
        [
            KernelMessage::Ethernet((cookie, ifindex), mac),
            KernelMessage::Carrier((cookie, ifindex), up),
        ]
    };
    let before = Mac([2, 0, 0, 0, 1, 1]);
    for event in [told(before, false), told(mac, false)].concat() {
        rig.input(Input::Kernel(event));
    }
    for exchange in rig.open.keys().copied().collect::<Vec<_>>() {
        rig.breaks(exchange, LinkCause::Down);
    }
    rig.mac = Some(mac);
    told(mac, true)
        .into_iter()
        .for_each(|event| rig.input(Input::Kernel(event)));
}

#[test]
fn a_later_mac_announces_the_address() {
    // Before the window has sockets of its own, while it has, and after it.
    for after in [0.005, 0.5, 60.0] {
        for detection in [Detection::Optimistic, Detection::Off] {
            let mut rig = bound(
                Profile::from(Policy {
                    detection,
                    ..Policy::default()
                }),
                after,
            );
            rig.asked.clear();
            rig.asked_from.clear();
            tune(&mut rig, TUNED);
            rig.run_until(1100.0);
            let announced = rig
                .asked
                .iter()
                .filter(|asked| **asked == (FIRST, FIRST))
                .count();
            assert_eq!(announced, 2, "{after} {detection:?}");
            assert!(
                rig.asked_from.iter().all(|mac| *mac == TUNED),
                "{after}: {:?}",
                rig.asked_from
            );
            assert!(rig.open.is_empty() && rig.store.events.len() == 1);
        }
    }
}

#[test]
fn a_mac_found_by_a_look_is_announced() {
    let mut rig = bound(Profile::default(), 100.0);
    rig.mac = Some(TUNED);
    rig.asked.clear();
    rig.kernel(KernelMessage::Missed);
    rig.run_until(1200.0);
    assert_eq!(rig.asked, [(FIRST, FIRST); 2]);
}

#[test]
fn a_look_from_before_a_mac_change_does_not_count() {
    let mut rig = bound(Profile::default(), 100.0);
    rig.hold_looks = true;
    rig.kernel(KernelMessage::Missed);
    rig.mac = Some(TUNED);
    rig.kernel(KernelMessage::Ethernet((Cookie(1), 2), TUNED));
    rig.hold_looks = false;
    rig.end_look();
    rig.asked_from.clear();
    rig.run_until(3001.0);
    assert_eq!(rig.asked_from.last(), Some(&TUNED), "at T1");
}

#[test]
fn an_address_taken_off_before_a_mac_change_is_not_told() {
    for after in [0.5, 3.0, 100.0] {
        let mut rig = bound(Profile::default(), after);
        rig.asked.clear();
        // As KubeVirt does it, faster than the daemon looks.
        rig.hold_looks = true;
        rig.take_off(A);
        tune(&mut rig, TUNED);
        rig.look_up();
        rig.run_until(1200.0);
        rig.asked.retain(|(sender, _)| !sender.is_unspecified());
        // It is the virtual machine's, under the one of before.
        assert_eq!(rig.asked, []);
    }
}

#[test]
fn ipvlan_arp_comes_from_the_mac_of_its_parent() {
    let mut rig = bound(
        Profile {
            on_parent: true,
            ..Profile::default()
        },
        100.0,
    );
    rig.asked_from.clear();
    tune(&mut rig, TUNED);
    rig.run_until(1200.0);
    assert_eq!(rig.asked_from, [TUNED; 2], "announced over the parent");
    rig.run_until(3001.0);
    // At T1, over the container's own link, and the probe after it.
    assert_eq!(rig.asked_from[2..], [TUNED; 2]);
}

#[test]
fn probes_go_on_after_a_mac_change() {
    let mut rig = bound(Profile::default(), 0.1);
    tune(&mut rig, TUNED);
    rig.run_until(1010.0);
    let probes = rig
        .asked
        .iter()
        .filter(|asked| **asked == (Ipv4Addr::UNSPECIFIED, FIRST))
        .count();
    assert_eq!((probes, rig.open.len()), (3, 0));

    let mut rig = bound(Profile::default(), 0.1);
    for _ in 0..2 {
        let exchange = *rig.open.keys().next().expect("the window is open");
        rig.breaks(exchange, LinkCause::Down);
        rig.run_for(1.1);
    }
    // A link that does not stay up is left alone.
    assert!(rig.open.is_empty());
}
