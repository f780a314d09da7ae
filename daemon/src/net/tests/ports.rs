//! Exchanges over a bridge or a parent of macvlans, each through its own port; and in a link's VLAN.

use std::process::Command;

use leasehold_core::effect::{ExchangeId, Outcome};
use leasehold_core::link::{Link, LinkCause, Step};
use leasehold_core::wire::Mac;

use super::super::NetReport;
use super::frames::{Answer, ArpFrame, arp, arp_for};
use super::lab::{DEADLINE, Lab, Netns, OF_ASKER, PLAIN, host, in_lab, index_of, ip, make_bridge};

const OTHER: Mac = Mac([0x02, 0, 0, 0, 0, 0x0c]);

/// The Ethernet address of a macvlan beside ours.
const BESIDE: Mac = Mac([0x02, 0, 0, 0, 0, 0x0d]);

fn port_of(ifindex: u32) -> Link {
    port_as(ifindex, OTHER)
}

/// Returns a port with this Ethernet address.
fn port_as(ifindex: u32, mac: Mac) -> Link {
    Link::Parent {
        ifindex,
        mac,
        vlan: 0,
        port: true,
    }
}

/// Listens on the bridge itself, as a server on the same host does.
async fn on_bridge(lab: &mut Lab, bridge: u32) -> ExchangeId {
    let mac = lab.inspect(host("br0")).await.unwrap().mac;
    lab.open(Link::parent(bridge, mac), OF_ASKER).await.unwrap()
}

/// Makes a bridge with a wire in it. Returns the namespace at the wire's other end, the bridge, and the listeners on the bridge
/// itself and at that end.
async fn wired_bridge(lab: &mut Lab) -> (Netns, u32, ExchangeId, ExchangeId) {
    let bridge = make_bridge();
    ip("link set br0 up");
    let (netns, wire, _) = lab.pair().await;
    ip("link set host0 master br0");
    let server = on_bridge(lab, bridge).await;
    let wire = lab.open(wire, OF_ASKER).await.unwrap();
    (netns, bridge, server, wire)
}

/// Returns an ARP answer to this Ethernet address alone.
fn answer_to(mac: Mac) -> Vec<u8> {
    let mut answer = ArpFrame {
        operation: 2,
        target_mac: mac,
        ..ArpFrame::QUESTION
    }
    .frame();
    answer[..6].copy_from_slice(&mac.0);
    answer
}

/// Waits until a link is gone.
async fn gone(lab: &mut Lab, ifname: &str) {
    let look = async {
        // Each look turns the loop.
        while !matches!(lab.inspect(host(ifname)).await, Err(LinkCause::NoLink(_))) {}
    };
    tokio::time::timeout(DEADLINE, look)
        .await
        .expect("it goes by itself");
}

#[test]
fn a_port_reaches_its_bridge_and_the_other_ports() {
    in_lab(async |mut lab: Lab| {
        let (_netns, bridge, server, wire) = wired_bridge(&mut lab).await;
        let exchange = lab.open(port_of(bridge), PLAIN).await.unwrap();
        lab.send(exchange, arp());
        for hearer in [server, wire] {
            assert_eq!(lab.frame(hearer).await.0, arp());
        }
        let answer = answer_to(OTHER);
        lab.send(wire, answer.clone());
        let (bytes, meta) = lab.frame(exchange).await;
        assert_eq!((bytes, meta.other_host, meta.vlan), (answer, false, 0));
    });
}

/// Checks that who hears beside a link hears by its port, and not what leaves by the link itself.
async fn only_the_port_reaches(lab: &mut Lab, link: u32, hearer: ExchangeId, wire: ExchangeId) {
    let direct = lab.open(Link::parent(link, OTHER), PLAIN).await.unwrap();
    lab.send(direct, arp());
    assert_eq!(lab.frame(wire).await.0, arp());
    let by_port = lab.open(port_of(link), PLAIN).await.unwrap();
    let second = arp_for([192, 0, 2, 99]);
    lab.send(by_port, second.clone());
    assert_eq!(
        lab.frame(hearer).await.0,
        second,
        "the first never came: this is what the port is for"
    );
}

#[test]
fn on_the_bridge_itself_nothing_reaches_who_listens_there() {
    in_lab(async |mut lab: Lab| {
        let (_netns, bridge, server, wire) = wired_bridge(&mut lab).await;
        only_the_port_reaches(&mut lab, bridge, server, wire).await;
    });
}

#[test]
fn a_frame_to_the_bridges_own_mac_leaves_by_no_port() {
    in_lab(async |mut lab: Lab| {
        let (_netns, bridge, server, wire) = wired_bridge(&mut lab).await;
        let own = lab.inspect(host("br0")).await.unwrap().mac;
        let by_port = lab.open(port_as(bridge, own), PLAIN).await.unwrap();
        let answer = answer_to(own);
        lab.send(wire, answer.clone());
        assert_eq!(lab.frame(server).await.0, answer, "the bridge hears it");
        // This shows that the port does not forward.
        let mut last = answer.clone();
        last[..6].copy_from_slice(&[0xff; 6]);
        lab.send(wire, last.clone());
        assert_eq!(lab.frame(by_port).await.0, last);
    });
}

#[test]
fn a_port_goes_with_its_exchange_and_changes_no_bridge() {
    in_lab(async |mut lab: Lab| {
        let bridge = make_bridge();
        let (_netns, _, _) = lab.pair().await;
        ip("link set host0 mtu 9000 master br0");
        ip("link set br0 up");
        let before = lab.look(host("br0")).await.unwrap();
        assert_eq!(before.mtu, 9000);
        let exchange = lab.open(port_of(bridge), PLAIN).await.unwrap();
        assert_eq!(lab.look(host("br0")).await.unwrap(), before);
        let port = ip("-d link show lh-0");
        assert!(
            port.contains("alias leasehold") && port.contains("master br0"),
            "{port}"
        );
        assert_eq!(ip("addr show lh-0").matches("inet").count(), 0);
        lab.net.close(None, exchange);
        gone(&mut lab, "lh-0").await;
        assert_eq!(lab.look(host("br0")).await.unwrap(), before);
    });
}

#[test]
fn a_port_that_cannot_be_made_leaves_nothing_behind() {
    in_lab(async |mut lab: Lab| {
        let bridge = make_bridge();
        assert_eq!(lab.open(port_of(bridge), PLAIN).await, Err(LinkCause::Down));
        let no_link = LinkCause::NoLink("with index 4711".to_owned());
        assert_eq!(lab.open(port_of(4711), PLAIN).await, Err(no_link));
        let (netns, _, _) = lab.pair().await;
        let host0 = lab.inspect(host("host0")).await.unwrap().ifindex;
        // None can be made on a bridge's port.
        ip("link set host0 master br0");
        let refused = lab.open(port_of(host0), PLAIN).await;
        assert!(
            matches!(
                refused,
                Err(LinkCause::Refused {
                    doing: "make a macvlan",
                    ..
                })
            ),
            "{refused:?}"
        );
        // The threads came back.
        for _ in 0..8 {
            assert!(
                lab.inspect(host("host0")).await.is_ok() && lab.inspect(netns.eth0()).await.is_ok()
            );
        }
    });
}

#[test]
fn an_exchange_opens_once_its_bridge_port_forwards() {
    in_lab(async |mut lab: Lab| {
        let bridge = make_bridge();
        // Two seconds to listen, two to learn: the least that the kernel takes.
        ip("link set br0 type bridge stp_state 1 forward_delay 200");
        ip("link set br0 up");
        let server = on_bridge(&mut lab, bridge).await;
        let exchange = lab.open(port_of(bridge), PLAIN).await.unwrap();
        let port = ip("-d link show lh-0");
        assert!(port.contains("state forwarding"), "{port}");
        lab.send(exchange, arp());
        assert_eq!(lab.frame(server).await.0, arp());
    });
}

#[test]
fn a_port_that_is_closed_before_it_forwards_goes_too() {
    in_lab(async |mut lab: Lab| {
        let bridge = make_bridge();
        ip("link set br0 type bridge stp_state 1 forward_delay 3000");
        ip("link set br0 up");
        let op = lab.op();
        let exchange = ExchangeId(op.0);
        lab.net.open(op, exchange, port_of(bridge), PLAIN);
        let there = async { while lab.inspect(host("lh-0")).await.is_err() {} };
        tokio::time::timeout(DEADLINE, there).await.unwrap();
        lab.net.close(None, exchange);
        let outcome = lab.done(op).await;
        assert!(matches!(outcome, Outcome::Opened(Err(_))), "{outcome:?}");
        gone(&mut lab, "lh-0").await;
    });
}

/// Makes a parent of macvlans with a wire behind it and a macvlan on it. Returns the namespaces of both, the parent, and the
/// listeners at the wire's other end and on the macvlan.
async fn wired_parent(lab: &mut Lab) -> ([Netns; 2], u32, [ExchangeId; 2]) {
    let (netns, wire, _) = lab.pair().await;
    let parent = lab.inspect(host("host0")).await.unwrap().ifindex;
    let beside = Netns::new();
    beside.macvlan(BESIDE);
    let sibling = lab.raised(beside.eth0()).await;
    let sibling = lab.open(beside.link(&sibling), OF_ASKER).await.unwrap();
    let wire = lab.open(wire, OF_ASKER).await.unwrap();
    ([netns, beside], parent, [wire, sibling])
}

#[test]
fn a_macvlan_reaches_its_siblings_and_the_wire() {
    in_lab(async |mut lab: Lab| {
        let (_netns, parent, hearers) = wired_parent(&mut lab).await;
        let exchange = lab.open(port_of(parent), PLAIN).await.unwrap();
        lab.send(exchange, arp());
        for hearer in hearers {
            assert_eq!(lab.frame(hearer).await.0, arp());
            let answer = answer_to(OTHER);
            lab.send(hearer, answer.clone());
            let (bytes, meta) = lab.frame(exchange).await;
            assert_eq!((bytes, meta.other_host, meta.vlan), (answer, false, 0));
        }
    });
}

#[test]
fn on_the_parent_itself_nothing_reaches_its_macvlans() {
    in_lab(async |mut lab: Lab| {
        let (_netns, parent, [wire, sibling]) = wired_parent(&mut lab).await;
        only_the_port_reaches(&mut lab, parent, sibling, wire).await;
    });
}

#[test]
fn a_macvlan_needs_a_free_mac_and_goes_with_its_exchange() {
    in_lab(async |mut lab: Lab| {
        let (_netns, parent, _) = wired_parent(&mut lab).await;
        let links = ip("link");
        let taken = lab.open(port_as(parent, BESIDE), PLAIN).await;
        assert_eq!(taken, Err(LinkCause::MacTaken(BESIDE)));
        let exchange = lab.open(port_of(parent), PLAIN).await.unwrap();
        // Nothing is to be seen of it in the host's namespace.
        assert_eq!(ip("link"), links);
        assert_eq!(
            lab.open(port_of(parent), PLAIN).await,
            Err(LinkCause::MacTaken(OTHER))
        );
        lab.net.close(None, exchange);
        let free = async { while lab.open(port_of(parent), PLAIN).await.is_err() {} };
        tokio::time::timeout(DEADLINE, free)
            .await
            .expect("it goes by itself");
    });
}

#[test]
fn a_macvlans_mac_is_free_once_its_end_is_reported() {
    in_lab(async |mut lab: Lab| {
        let (_netns, parent, [wire, _]) = wired_parent(&mut lab).await;
        for _ in 0..5 {
            let exchange = lab.open(port_of(parent), PLAIN).await.unwrap();
            let op = lab.op();
            // Frames that were to be sent leave first.
            lab.send(exchange, arp());
            lab.net.close(Some(op), exchange);
            assert_eq!(lab.done(op).await, Outcome::Closed);
            assert_eq!(lab.frame(wire).await.0, arp());
            let docker = Netns::new();
            docker.macvlan(OTHER);
            lab.apply(docker.eth0(), &[Step::Up])
                .await
                .1
                .expect("no other has its address");
            docker.ip("link del eth0");
        }
    });
}

#[test]
fn the_end_of_an_exchange_is_told_however_far_it_came() {
    in_lab(async |mut lab: Lab| {
        let bridge = make_bridge();
        ip("link set br0 type bridge stp_state 1 forward_delay 3000");
        ip("link set br0 up");
        // While it opens; after it was refused; and after its link went.
        let (opens, end) = (lab.op(), lab.op());
        lab.net
            .open(opens, ExchangeId(opens.0), port_of(bridge), PLAIN);
        let there = async { while lab.inspect(host("lh-0")).await.is_err() {} };
        tokio::time::timeout(DEADLINE, there).await.unwrap();
        lab.net.close(Some(end), ExchangeId(opens.0));
        assert_eq!(lab.done(end).await, Outcome::Closed);
        assert!(lab.inspect(host("lh-0")).await.is_err());
        let (refused, end) = (lab.op(), lab.op());
        lab.net
            .open(refused, ExchangeId(refused.0), port_of(4711), PLAIN);
        assert!(matches!(lab.done(refused).await, Outcome::Opened(Err(_))));
        lab.net.close(Some(end), ExchangeId(refused.0));
        assert_eq!(lab.done(end).await, Outcome::Closed);
        let (netns, _, _) = lab.pair().await;
        let host0 = lab.inspect(host("host0")).await.unwrap().ifindex;
        let exchange = lab.open(port_of(host0), PLAIN).await.unwrap();
        drop(netns);
        ip("link del host0");
        lab.event(|event| {
            matches!(event, NetReport::Broken { exchange: broken, .. } if *broken == exchange)
                .then_some(())
        })
        .await;
        let end = lab.op();
        lab.net.close(Some(end), exchange);
        assert_eq!(lab.done(end).await, Outcome::Closed);
    });
}

#[test]
fn an_exchange_in_a_vlan_sends_and_hears_only_its_tag() {
    in_lab(async |mut lab: Lab| {
        let (_netns, inside, outside) = lab.pair().await;
        let ifindex = index_of(&outside);
        let in_vlan = Link::Parent {
            ifindex,
            mac: OTHER,
            vlan: 7,
            port: false,
        };
        let exchange = lab.open(in_vlan, PLAIN).await.unwrap();
        let wire = lab.open(inside, OF_ASKER).await.unwrap();
        lab.send(exchange, arp());
        let (bytes, meta) = lab.frame(wire).await;
        assert_eq!((bytes, meta.vlan), (arp(), 7));

        let answer = Answer::but(|it| {
            it.chaddr = OTHER;
            it.to = OTHER;
        });
        for (vlan, expected) in [(7_u8, Some(0)), (8, None), (0, None)] {
            let mut tagged = answer.clone();
            if vlan > 0 {
                tagged.splice(12..12, [0x81, 0x00, 0x60, vlan]);
            }
            lab.send(wire, tagged);
            let (bytes, meta) = lab.frame(exchange).await;
            assert_eq!(bytes, answer);
            // The core takes what is in no other VLAN.
            assert_eq!((meta.vlan == 0).then_some(0), expected);
        }
    });
}

#[test]
fn a_port_is_in_its_vlan_of_a_filtering_bridge() {
    in_lab(async |mut lab: Lab| {
        let bridge = make_bridge();
        let filtering = Command::new("ip")
            .args("link set br0 type bridge vlan_filtering 1".split(' '))
            .output()
            .unwrap();
        if !filtering.status.success() {
            eprintln!("skipped: this kernel has no CONFIG_BRIDGE_VLAN_FILTERING");
            return;
        }
        ip("link set br0 up");
        let (_netns, wire, _) = lab.pair().await;
        ip("link set host0 master br0");
        for change in [
            "vlan add vid 7 pvid untagged dev host0",
            "vlan del vid 1 dev host0",
        ] {
            assert!(
                Command::new("bridge")
                    .args(change.split(' '))
                    .status()
                    .unwrap()
                    .success(),
                "{change}"
            );
        }
        let wire = lab.open(wire, OF_ASKER).await.unwrap();
        let untagged = lab.open(port_of(bridge), PLAIN).await.unwrap();
        lab.send(untagged, arp());
        let in_vlan = Link::Parent {
            ifindex: bridge,
            mac: OTHER,
            vlan: 7,
            port: true,
        };
        let in_vlan = lab.open(in_vlan, PLAIN).await.unwrap();
        let second = arp_for([192, 0, 2, 99]);
        lab.send(in_vlan, second.clone());
        // The first is in another VLAN.
        assert_eq!(lab.frame(wire).await.0, second);
    });
}
