//! A Docker binding, which moves from the LAN's link onto its interface when that is found, and back when the interface goes.

mod identity;

use super::rig::*;

/// The Ethernet address of the interface to find.
const OWN: Mac = Mac([2, 0, 0, 0, 5, 5]);
const OTHER_MAC: Mac = Mac([2, 0, 0, 0, 6, 6]);

fn endpoint(mac: Mac) -> Attachment {
    Attachment::Docker {
        pool: "lan".into(),
        endpoint: mac.to_string().into(),
    }
}

impl Rig {
    /// Asks for a lease for an endpoint with this Ethernet address.
    fn add_endpoint(&mut self, mac: Mac, id: &str) -> u64 {
        let mut add = self.docker_call(endpoint(mac), id);
        add.place = Place::Parent {
            ifname: "br0".into(),
            mac,
        };
        self.request(Call::Add(add))
    }

    fn release_endpoint(&mut self, mac: Mac) {
        let del = self.request(Call::Del {
            attachment: endpoint(mac),
            grace: None,
        });
        assert_eq!(self.answers[&del], Answer::Deleted);
    }

    /// Puts an interface with that address into a namespace; the kernel reports an unknown namespace by a number.
    fn put_inside(&mut self, netns: u64, mac: Mac) {
        self.inside.insert(mac, netns);
        self.interface_appears(netns as i32, mac);
    }

    /// It goes from there.
    fn take_out(&mut self, netns: u64, mac: Mac) {
        self.inside.remove(&mac);
        self.interface.carry([]);
        self.kernel(KernelMessage::LinkGone((Cookie(netns), 2)));
    }

    fn link(&mut self) -> Link {
        let rows = self.rows();
        assert_eq!(rows.len(), 1, "{rows:?}");
        rows[0].link.clone().expect("it has one")
    }
}

fn inside(netns: u64) -> Link {
    Link::InNetns {
        path: format!("/ns/{netns}").into(),
        cookie: Cookie(netns),
        ifindex: 2,
        mac: OWN,
    }
}

/// A lease for an endpoint whose interface is not there.
fn leased() -> Rig {
    let mut rig = Rig::new(8);
    rig.profile.policy.suppress_default_route = true;
    let add = rig.add_endpoint(OWN, "a");
    rig.assert_leased(add);
    rig
}

/// The same, found in the first namespace with its address.
fn moved_in() -> Rig {
    let mut rig = leased();
    rig.put_inside(1, OWN);
    rig.configure(A);
    rig
}

#[test]
fn a_lease_inside_is_renewed_by_unicast() {
    let mut rig = moved_in();
    let t1 = rig.t1();
    rig.run_until(1020.0);
    (rig.opened, rig.sent) = Default::default();
    rig.server = Server::Silent;
    rig.run_until(t1 + 0.1);
    let found = (rig.sent[0], rig.opened[0].clone());
    assert_eq!(found, ((3, FIRST), inside(1)));
    assert_eq!(rig.open.values().next().unwrap().hold_port, Some(FIRST));
}

#[test]
fn a_port_with_the_interfaces_mac_is_gone_at_the_answer() {
    for bridge in [true, false] {
        let mut rig = Rig::new(8);
        rig.bridge = bridge;
        rig.add_endpoint(OWN, "a");
        rig.run_until(1000.1);
        // Others are listened for where that takes no port.
        assert_eq!(rig.open.is_empty(), bridge);
        rig.opened.clear();
        rig.put_inside(1, OWN);
        rig.configure(A);
        rig.run_until(1001.0);
        assert_eq!(rig.opened, [inside(1)], "and from inside");
        rig.run_until(1020.0);
        assert!(rig.open.is_empty());
    }
}

#[test]
fn dockers_default_route_follows_only_the_router() {
    let router = |last: u8| vec![3, 4, 192, 0, 2, last];
    let mut rig = Rig::new(8);
    rig.profile.policy.suppress_default_route = true;
    rig.profile.policy.follow_router = true;
    rig.options = router(1);
    rig.add_endpoint(OWN, "a");
    rig.put_inside(1, OWN);
    rig.configure(A);
    rig.run_until(rig.t1() + 40.0);
    assert!(rig.steps.is_empty(), "{:?}", rig.steps);
    rig.options = router(9);
    rig.run_until(rig.t1() + 40.0);
    let [from, to] = [1, 9].map(|last| Ipv4Addr::new(192, 0, 2, last).into());
    assert_eq!(rig.steps, [Step::ReplaceDefault { from, to }]);
    rig.run_until(rig.t1() + 40.0);
    let found = (rig.steps.len(), rig.only_record().former.clone());
    assert_eq!(found, (1, None));
}

#[test]
fn a_lease_whose_interface_went_for_good_is_released() {
    for released in [true, false] {
        let mut rig = moved_in();
        rig.lease = 10_000;
        rig.run_until(rig.t1() + 1.0);
        let left = rig.at.as_secs_f64();
        rig.take_out(1, OWN);
        if released {
            rig.release_endpoint(OWN);
        } else {
            rig.run_until(left + 59.0);
            assert_eq!((rig.rows().len(), rig.sends(7)), (1, 0));
        }
        rig.run_until(left + 62.0);
        assert_eq!(rig.ends(), [1, 0, 0]);
        assert_eq!(rig.told(EventKind::OrphanFound), usize::from(!released));
        assert_eq!(rig.opened.last().and_then(|link| link.in_netns()), None);
    }
}

#[test]
fn a_search_finds_an_interface_that_came_unheard() {
    for how in ["later", "lost messages", "a restart"] {
        let mut rig = leased();
        rig.inside.insert(OWN, 1);
        rig.run_until(1001.0);
        match how {
            "later" => _ = rig.run_until(1010.1),
            "a restart" => rig.restart(),
            _ => rig.input(Input::Kernel(KernelMessage::Missed)),
        }
        let found = (rig.link(), rig.seeks.clone());
        assert_eq!(found, (inside(1), vec![None]), "{how}");
    }
}

#[test]
fn a_search_that_saw_nothing_is_repeated_soon() {
    let mut rig = leased();
    rig.lease = 10_000;
    rig.inside.insert(OWN, 1);
    rig.hold_seeks = true;
    rig.run_until(1010.1);
    let (op, _) = rig.held_seeks.pop_front().expect("the first look");
    let unseen = LinkCause::NoDirectory("/run/docker/netns".into());
    rig.end(op, Outcome::Sought(Err(unseen)));
    rig.hold_seeks = false;
    rig.run_until(1310.2);
    assert_eq!((rig.link(), rig.seeks.len()), (inside(1), 2));
}

#[test]
fn news_during_a_search_have_it_repeated() {
    let mut rig = leased();
    rig.hold_seeks = true;
    rig.put_inside(7, OTHER_MAC);
    rig.interface_appears(1, OWN);
    rig.inside.insert(OWN, 1);
    for second in [1, 2] {
        rig.interface_appears(1, OWN);
        rig.interface_appears(second, OWN);
        let (op, _) = rig.held_seeks.pop_front().unwrap();
        rig.end(op, Outcome::Sought(Err(LinkCause::TimedOut)));
        let found = (rig.held_seeks.len(), rig.seeks.last().copied().unwrap());
        assert_eq!(found, (1, None));
    }
    rig.end_seek();
    assert_eq!((rig.link(), rig.held_seeks.len()), (inside(1), 0));
}

#[test]
fn a_missing_interface_is_given_up_after_a_whole_search() {
    let mut rig = leased();
    rig.lease = 10_000;
    rig.sees_part = true;
    rig.run_until(1999.0);
    // It may be where nobody looks.
    assert_eq!((rig.rows().len(), rig.sends(7)), (1, 0));
    assert!(rig.seeks.len() < 8, "{:?}", rig.seeks);
    rig.sees_part = false;
    rig.run_until(2400.0);
    assert_eq!(
        (
            rig.rows().len(),
            rig.sends(7),
            rig.told(EventKind::OrphanFound)
        ),
        (0, 1, 1)
    );
    assert!(rig.reg.poll_timeout().is_none());
}

#[test]
fn a_repeated_request_saves_a_lease_without_an_interface() {
    let mut rig = moved_in();
    rig.lease = 10_000;
    rig.run_until(rig.t1() + 1.0);
    let left = rig.at.as_secs_f64();
    rig.take_out(1, OWN);
    rig.run_until(left + 59.0);
    let again = rig.add_endpoint(OWN, "a");
    rig.assert_leased(again);
    rig.run_until(left + 65.0);
    assert_eq!(
        (
            rig.rows().len(),
            rig.sends(7),
            rig.told(EventKind::OrphanFound)
        ),
        (1, 0, 0)
    );
    // It is not kept for ever either if none comes.
    rig.run_until(left + 700.0);
    assert_eq!((rig.rows().len(), rig.sends(7)), (0, 1));
}

#[test]
fn an_interface_that_moved_unheard_keeps_its_lease() {
    for how in ["lost messages", "a restart", "a look that fails at first"] {
        let mut rig = moved_in();
        rig.lease = 10_000;
        rig.run_until(rig.t1() + 1.0);
        let moved = rig.at.as_secs_f64();
        rig.live.remove(&1);
        rig.missing = |_| LinkCause::NoLink("eth0".into());
        rig.inside.insert(OWN, 2);
        rig.sees_part = how.starts_with("a look");
        match how {
            "a restart" => rig.restart(),
            "lost messages" => rig.input(Input::Kernel(KernelMessage::Missed)),
            _ => {
                rig.inside.clear();
                rig.kernel(KernelMessage::Missed);
                rig.run_until(moved + 70.0);
                // It may be where nobody looks.
                assert_eq!((rig.rows().len(), rig.link().in_netns()), (1, None));
                rig.inside.insert(OWN, 2);
                rig.run_until(moved + 400.0);
            }
        }
        assert_eq!((rig.link(), rig.sends(7)), (inside(2), 0), "{how}");
    }
}

#[test]
fn an_address_that_comes_during_a_search_is_seen() {
    let mut rig = leased();
    rig.hold_seeks = true;
    rig.put_inside(1, OWN);
    // Told before what was found there earlier.
    rig.configure(A);
    let (op, outcome) = rig.held_seeks.pop_front().unwrap();
    let Outcome::Sought(Ok(mut sightings)) = outcome else {
        panic!()
    };
    sightings
        .found
        .iter_mut()
        .for_each(|sighting| sighting.view.addresses.clear());
    rig.end(op, Outcome::Sought(Ok(sightings)));
    rig.server = Server::Silent;
    rig.run_until(rig.t1() + 0.1);
    assert_eq!(rig.sent.last(), Some(&(3, FIRST)));
    rig.take_off(A);
    assert_eq!(rig.told(EventKind::AddressRemoved), 1);
}

#[test]
fn of_two_lans_each_endpoint_finds_its_own_interface() {
    let mut rig = leased();
    let mut add = rig.docker_call(
        Attachment::Docker {
            pool: "other".into(),
            endpoint: OWN.to_string().into(),
        },
        "b",
    );
    add.place = Place::Parent {
        ifname: "br1".into(),
        mac: OWN,
    };
    add.lan = lan_on("br1", 0);
    let add = rig.request(Call::Add(add));
    rig.assert_leased(add);
    rig.hold_seeks = true;
    rig.interface_appears(1, OWN);
    rig.inside.insert(OWN, 1);
    rig.interface_appears(1, OWN);
    let (op, _) = rig.held_seeks.pop_front().unwrap();
    rig.end(op, Outcome::Sought(Err(LinkCause::TimedOut)));
    let Some((op, Outcome::Sought(Ok(mut all)))) = rig.held_seeks.pop_front() else {
        panic!()
    };
    all.found
        .retain(|sighting| sighting.sought.lan.parent() == Some("br1"));
    rig.end(op, Outcome::Sought(Ok(all)));
    let places: Vec<_> = rig
        .rows()
        .iter()
        .map(|row| {
            (
                row.identity.clone().unwrap().lan,
                row.link.as_ref().and_then(Link::in_netns).is_some(),
            )
        })
        .collect();
    let br = |parent: &str| lan_on(parent, 0);
    assert_eq!(places, [(br("br0"), false), (br("br1"), true)]);
}
