//! How the RELEASE of a lease whose link is gone reaches its server, and what is reported if it may not have.

use super::rig::*;

/// A container on a LAN whose namespace has died.
fn dead(mut rig: Rig, vlan: u16) -> Rig {
    let mut add = rig.call("a", 1, "a");
    add.lan = lan_on("br0", vlan);
    rig.request(Call::Add(add));
    rig.opened.clear();
    rig.dies(1);
    rig
}

/// Whether the exchanges opened on the host's link use their own ports, with their VLANs.
fn ports(rig: &Rig) -> Vec<(u16, bool)> {
    let on_host = |link: &Link| match link {
        Link::Parent { vlan, port, .. } => Some((*vlan, *port)),
        Link::InNetns { .. } => None,
    };
    rig.opened.iter().filter_map(on_host).collect()
}

#[test]
fn a_release_for_a_bridges_mac_leaves_from_the_bridge() {
    // Frames to that address leave by no port.
    for (grace, by_port) in [(None, false), (Some(0), true)] {
        let mut rig = Rig::new(8);
        (rig.bridge, rig.mac) = (true, Some(Mac([2, 0, 0, 0, 0, 99])));
        rig.profile = Profile {
            on_parent: true,
            grace,
            ..Profile::default()
        };
        rig.lease = 4000;
        let mut rig = dead(rig, 7);
        rig.run_until(1010.0);
        assert_eq!(
            (ports(&rig), rig.sends(7)),
            (vec![(7, by_port)], 1),
            "by an Ethernet address of its own: {by_port}"
        );
    }
}

#[test]
fn a_release_leaves_from_the_parent_without_a_macvlan() {
    for answered in [true, false] {
        let mut rig = Rig::new(8);
        rig.no_port = Some(LinkCause::refused(
            "make a macvlan",
            "Device or resource busy",
        ));
        if !answered {
            rig.stations.clear();
        }
        let mut rig = dead(rig, 0);
        rig.run_until(1001.0);
        assert_eq!(ports(&rig), [(0, true), (0, false)]);
        assert_eq!(rig.sends(7), 1);
        let [cause] = rig.causes(EventKind::Released)[..] else {
            panic!("{:?}", rig.store.events)
        };
        assert_eq!(cause == "its link is gone", answered, "{cause}");
    }
}

#[test]
fn a_release_without_an_arp_answer_may_not_have_arrived() {
    for bridge in [true, false] {
        let mut rig = Rig::new(8);
        rig.bridge = bridge;
        rig.stations.clear();
        let mut rig = dead(rig, 0);
        rig.run_until(1001.0);
        assert_eq!(rig.sends(7), 1);
        let [cause] = rig.causes(EventKind::Released)[..] else {
            panic!("{:?}", rig.store.events)
        };
        assert!(
            cause.starts_with("its link is gone; ") && cause.ends_with("may not have arrived"),
            "{cause}"
        );
    }
}

#[test]
fn a_release_leaves_its_mac_to_a_successor() {
    let rig = dead(Rig::new(8), 0);
    let [
        Link::Parent {
            mac, port: true, ..
        },
    ] = rig.opened[..]
    else {
        panic!("{:?}", rig.opened)
    };
    // A macvlan of that address would keep its interface from coming up.
    assert!(mac != Mac([2, 0, 0, 0, 1, 1]) && rig.sends(7) == 1);
}

#[test]
fn a_release_does_not_wait_for_ever_for_a_mac() {
    let mut rig = Rig::new(8);
    rig.no_port = Some(LinkCause::MacTaken(Mac([2, 0, 0, 0, 1, 1])));
    let mut rig = dead(rig, 0);
    rig.run_until(1004.9);
    assert_eq!(rig.sends(7), 0);
    rig.run_until(1010.0);
    assert_eq!((ports(&rig).last(), rig.sends(7)), (Some(&(0, false)), 1));
    assert!(rig.opened.len() < 15, "{} tries", rig.opened.len());
}

#[test]
fn a_release_does_not_wait_for_the_mac_of_a_live_link() {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "a");
    rig.opened.clear();
    rig.no_port = Some(LinkCause::MacTaken(Mac([2, 0, 0, 0, 1, 1])));
    rig.unsent
        .push_back(LinkCause::refused("send", "No buffer space available"));
    let del = rig.del("a");
    let found = (rig.answers.get(&del), rig.sends(7));
    assert_eq!(found, (Some(&Answer::Deleted), 1));
    assert_eq!(ports(&rig), [(0, true), (0, false)]);
}

#[test]
fn a_dying_interface_is_no_conflict_for_others() {
    for (later, declines) in [(1000.02, 0), (1059.9, 0), (1060.1, 1)] {
        let mut rig = Rig::new(8);
        rig.add("a", 1, "one");
        let del = rig.del("a");
        assert_eq!((&rig.answers[&del], rig.sends(7)), (&Answer::Deleted, 1));
        rig.run_until(later);
        // The main plugin deletes the link after the DEL of its address.
        rig.stations.insert(FIRST, Mac([2, 0, 0, 0, 1, 1]));
        rig.add("b", 2, "other");
        rig.run_until(later + 1.1);
        assert_eq!(rig.sends(4), declines, "at {later}");
        assert_eq!(rig.state("b"), "BOUND");
    }
}

#[test]
fn an_interface_counts_as_dying_from_its_release_on() {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "one");
    rig.stations.insert(FIRST, Mac([2, 0, 0, 0, 1, 1]));
    rig.disk = Disk::Slow;
    let del = rig.del("a");
    let (op, changes) = rig.slow.pop_front().expect("what the DEL waits for");
    rig.written(op, changes);
    let found = (&rig.answers[&del], rig.sends(7), rig.store.records().len());
    assert_eq!(found, (&Answer::Deleted, 1, 1));
    rig.disk = Disk::Good;
    rig.add("b", 2, "other");
    rig.run_until(1002.0);
    assert_eq!(rig.sends(4), 0, "{:?}", rig.sent);
}

#[test]
fn what_a_release_waits_for_is_shown_until_it_leaves() {
    let no_link = LinkCause::NoLink("br0".to_owned());
    for (lan, blind, what) in [
        (
            "br0",
            Some(no_link),
            "host link br0 is missing: make it, or give it that name again",
        ),
        (
            "br0",
            None,
            "host link br0 has no carrier: plug it in, or set it up",
        ),
        (
            "",
            None,
            "its network names no host link that could be its LAN",
        ),
    ] {
        let mut rig = Rig::new(8);
        rig.lease = 4000;
        let mut add = rig.call("a", 1, "a");
        if lan.is_empty() {
            add.lan = Lan::Network("lan".into());
        }
        rig.request(Call::Add(add));
        assert_eq!(rig.rows()[0].held_up, None);
        (rig.interface.carrier, rig.blind) = (blind.is_some(), blind);
        rig.dies(1);
        rig.run_until(1050.0);
        assert_eq!(
            rig.rows()[0].held_up,
            Some((Duration::from_secs(50), what.to_owned()))
        );
        (rig.interface.carrier, rig.blind) = (true, None);
        rig.run_until(1200.0);
        assert_eq!(
            (rig.sends(7), rig.rows().len()),
            if lan.is_empty() { (0, 1) } else { (1, 0) }
        );
    }
}

#[test]
fn a_containers_own_dying_link_is_no_station() {
    for goes in [true, false] {
        let mut rig = Rig::new(8);
        rig.lease = 4000;
        rig.profile.grace = Some(0);
        rig.add("a", 1, "a");
        let address = FIRST;
        rig.stations.insert(address, Mac([2, 0, 0, 0, 1, 1]));
        rig.dies(1);
        rig.run_until(1002.0);
        assert_eq!((rig.sends(7), rig.rows().len()), (0, 1), "goes: {goes}");
        if goes {
            rig.stations.remove(&address);
        }
        rig.run_until(1020.0);
        // The remaining link is another host's, which has the same Ethernet address.
        let found = (rig.sends(7), rig.rows().len());
        assert_eq!(found, (usize::from(goes), 0), "goes: {goes}");
    }
}
