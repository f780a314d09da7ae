//! A binding that lives on the LAN's link in the host's namespace, on behalf of an Ethernet address.

use super::rig::*;

/// The Ethernet address of the missing interface.
pub(super) const OWN: Mac = Mac([2, 0, 0, 0, 5, 5]);
/// An MTU, and a route onto the link (RFC 3442).
const OPTIONS: [u8; 14] = [26, 2, 0x05, 0x78, 121, 8, 24, 198, 51, 100, 0, 0, 0, 0];

/// The host's namespace, as the rig has it.
const HOST: Cookie = Cookie(99);

impl Rig {
    /// Asks for a lease on the host's link.
    pub(super) fn add_on_host(&mut self, who: &str, id: &str, vlan: u16) -> u64 {
        let mut add = self.call(who, 1, id);
        add.place = Place::Parent {
            ifname: "br0".into(),
            mac: OWN,
        };
        add.lan = lan_on("br0", vlan);
        self.request(Call::Add(add))
    }
}

/// A rig whose links must not be changed.
fn untouchable() -> Rig {
    let mut rig = Rig::new(8);
    rig.options = OPTIONS.to_vec();
    rig.profile.policy.late_routes = true;
    rig.faults.push_back((0, LinkCause::TimedOut));
    rig
}

/// Whether nothing was changed on any link of such a rig.
fn is_untouched(rig: &Rig) -> bool {
    rig.faults.len() == 1 && rig.steps.is_empty()
}

/// A lease on the host's link.
fn held() -> Rig {
    let mut rig = untouchable();
    let add = rig.add_on_host("a", "a", 0);
    rig.assert_leased(add);
    rig
}

#[test]
fn only_a_bridge_may_be_without_carrier() {
    for bridge in [true, false] {
        let mut rig = untouchable();
        (rig.bridge, rig.interface.carrier) = (bridge, false);
        let add = rig.add_on_host("a", "a", 0);
        assert_eq!(rig.answers.contains_key(&add), bridge);
        rig.run_until(1005.5);
        assert_eq!(rig.answers.contains_key(&add), bridge);
        rig.interface.carrier = true;
        // The kernel's reports about a link of the host are not passed on.
        rig.run_until(1007.0);
        assert!(matches!(rig.answers[&add], Answer::Leased { .. }) && is_untouched(&rig));
        let wakes = rig.run_until(1040.0);
        assert!(wakes < 20, "{wakes}: nothing is looked at any more");
    }
}

#[test]
fn a_lease_goes_on_where_the_hosts_link_was_made_anew() {
    let mut rig = held();
    let t1 = rig.t1();
    rig.kernel(KernelMessage::LinkGone((HOST, 2)));
    rig.kernel(KernelMessage::Missed);
    rig.server = Server::Silent;
    rig.run_until(t1 + 0.1);
    let exchange = *rig.open.keys().next().expect("it asks");
    rig.blind = Some(LinkCause::NoLink("br0".to_owned()));
    rig.breaks(exchange, LinkCause::NoLink("with index 2".to_owned()));
    rig.run_until(t1 + 5.0);
    // That is nobody's end.
    assert_eq!((rig.rows().len(), rig.sends(7)), (1, 0));
    (rig.blind, rig.server, rig.bridge) = (None, Server::Up, true);
    rig.run_until(t1 + 60.0);
    assert_eq!((rig.state("a"), rig.sends(7)), ("BOUND", 0));
    assert_eq!(
        rig.opened.last(),
        Some(&Link::Parent {
            ifindex: 2,
            mac: OWN,
            vlan: 0,
            port: true
        })
    );
    assert_eq!(rig.rows()[0].link.as_ref(), rig.opened.last());
}

#[test]
fn the_loss_of_the_hosts_link_ends_no_lease() {
    let mut rig = untouchable();
    rig.lease = 8;
    rig.add_on_host("a", "a", 0);
    rig.server = Server::Silent;
    rig.run_until(rig.t1() + 0.1);
    let [guard, renewal] = rig.open.keys().copied().collect::<Vec<_>>()[..] else {
        panic!("{:?}", rig.open)
    };
    for exchange in [renewal, guard] {
        rig.breaks(exchange, LinkCause::NoLink("with index 2".to_owned()));
    }
    assert_eq!((rig.state("a"), rig.sends(7)), ("RENEWING", 0));
}

#[test]
fn a_restart_goes_on_with_a_lease_on_the_hosts_link() {
    let mut rig = held();
    let t1 = rig.t1();
    rig.run_until(1020.0);
    rig.sent.clear();
    rig.restart();
    assert_eq!(rig.state("a"), "BOUND");
    rig.run_until(t1 - 0.1);
    assert!(rig.sent.is_empty(), "invariant 7");
    rig.server = Server::Silent;
    rig.run_until(t1 + 0.1);
    assert_eq!(rig.sent, [(3, Ipv4Addr::UNSPECIFIED)]);
    let found = rig.open.values().next().and_then(|want| want.hold_port);
    assert_eq!(found, None);
    assert!(is_untouched(&rig));
}

#[test]
fn a_look_takes_no_identity_held_on_the_hosts_link() {
    let mut rig = held();
    rig.faults.clear();
    rig.blind = Some(LinkCause::NoLink("br0".to_owned()));
    let other = rig.add("b", 1, "a");
    let Failure::Held { holder, .. } = rig.failure(other) else {
        panic!("{:?}", rig.answers[&other])
    };
    assert_eq!(*holder, attachment("a"));
    assert_eq!(rig.state("a"), "BOUND");
}

#[test]
fn a_binding_on_the_hosts_link_gives_way_to_its_interface() {
    let mut rig = held();
    rig.faults.clear();
    let inside = rig.add("a", 1, "a");
    rig.assert_leased(inside);
    rig.run_until(1049.0);
    let rows = rig.rows();
    let found = (rows.len(), rows[0].link.as_ref().and_then(Link::in_netns));
    assert_eq!(found, (1, Some((Cookie(1), 2))));
    // Its lease is taken over.
    assert_eq!((rig.sends(1), rig.sends(7)), (1, 0));
}

#[test]
fn a_check_of_a_lease_on_the_hosts_link_looks_at_nothing() {
    let mut rig = held();
    rig.blind = Some(LinkCause::TimedOut);
    let check = rig.check(&[]);
    assert_eq!(rig.answers[&check], Answer::Checked);
    let differs = rig.check(&["192.0.2.9/24"]);
    assert_fails!(rig, differs, Failure::Differs { .. });
}

#[test]
fn a_lease_on_the_hosts_link_goes_back_by_a_port() {
    for (bridge, mac) in [(true, OWN), (false, Mac([OWN.0[0] ^ 0x40, 0, 0, 0, 5, 5]))] {
        let mut rig = held();
        rig.bridge = bridge;
        let del = rig.del("a");
        assert_eq!(rig.answers[&del], Answer::Deleted);
        rig.run_until(1010.0);
        assert_eq!(
            rig.opened.last(),
            Some(&Link::Parent {
                ifindex: 2,
                mac,
                vlan: 0,
                port: true
            })
        );
        assert_eq!(rig.ends(), [1, 0, 0]);
        assert!(is_untouched(&rig));
    }
}
