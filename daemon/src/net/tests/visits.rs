//! The visit that sets a link up, looks at it and opens an exchange there; what the exchange hears after that.

use std::net::Ipv4Addr;

use leasehold_core::effect::{ExchangeId, Outcome};
use leasehold_core::identity::Lan;
use leasehold_core::link::{Hears, LinkCause, LinkView, Place, Target};
use leasehold_core::wire::Mac;
use tokio::time::timeout;

use super::super::Visit;
use super::frames::{Answer, arp};
use super::lab::{DEADLINE, Lab, Netns, OF_ASKER, PLAIN, in_lab, ip, make_bridge, named};

/// The Ethernet address of no link.
const OTHER: Mac = Mac([0x02, 0, 0, 0, 0, 0x0c]);
/// The address that `arp` asks for.
const ASKED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);

impl Lab {
    /// Makes such a visit.
    async fn prepare(
        &mut self,
        target: Target,
    ) -> (Result<LinkView, LinkCause>, Option<ExchangeId>) {
        let Target::Named(at) = target else {
            panic!("{target} has no name")
        };
        self.visit(Place::InNetns(at), 0).await
    }

    /// Makes such a visit to a place in this VLAN.
    async fn visit(
        &mut self,
        place: Place,
        vlan: u16,
    ) -> (Result<LinkView, LinkCause>, Option<ExchangeId>) {
        let op = self.op();
        let lan = Lan::Link {
            parent: place.ifname().into(),
            vlan,
        };
        self.net.prepare(
            op,
            ExchangeId(op.0),
            Visit {
                place,
                lan,
                chaddr: None,
            },
        );
        match self.done(op).await {
            Outcome::Prepared { result, exchange } => (result, exchange),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn one_visit_sets_a_link_up_and_opens_its_sockets() {
    in_lab(async |mut lab: Lab| {
        let (netns, _, outside) = lab.pair().await;
        netns.ip("link set eth0 down");
        let sender = lab.open(outside, PLAIN).await.unwrap();
        let (view, exchange) = lab.prepare(netns.eth0()).await;
        assert!(view.is_ok_and(|view| view.up && view.was_down));
        let exchange = exchange.expect("the other end is up");
        lab.send(sender, Answer::PLAIN.frame());
        assert_eq!(lab.frame(exchange).await.0, Answer::PLAIN.frame());
        lab.sent(exchange, arp()).await.unwrap();
        lab.net.close(None, exchange);
    });
}

#[test]
fn without_carrier_or_a_link_no_sockets_are_opened() {
    in_lab(async |mut lab: Lab| {
        let netns = Netns::with_veth("host0");
        let (view, exchange) = lab.prepare(netns.eth0()).await;
        assert!(view.is_ok_and(|view| view.up && !view.carrier) && exchange.is_none());
        let nowhere = named(netns.path(), "eth7");
        let (view, exchange) = lab.prepare(nowhere).await;
        assert_eq!(
            (view.unwrap_err(), exchange),
            (LinkCause::NoLink("eth7".to_owned()), None)
        );
    });
}

#[test]
fn a_visit_opens_sockets_on_a_host_link_but_changes_none() {
    in_lab(async |mut lab: Lab| {
        let place = |ifname: &str| Place::Parent {
            ifname: ifname.to_owned(),
            mac: OTHER,
        };
        make_bridge();
        let (view, exchange) = lab.visit(place("br0"), 0).await;
        assert!(view.is_ok_and(|view| view.bridge && !view.up) && exchange.is_none());
        ip("link set br0 up");
        let (_netns, inside, _) = lab.pair().await;
        let wire = lab.open(inside, OF_ASKER).await.unwrap();
        for vlan in [0, 7] {
            let (view, exchange) = lab.visit(place("host0"), vlan).await;
            assert!(view.is_ok_and(|view| view.carrier));
            lab.sent(exchange.expect("it has carrier"), arp())
                .await
                .unwrap();
            let (bytes, meta) = lab.frame(wire).await;
            assert_eq!((bytes, meta.vlan), (arp(), vlan));
        }
        Netns::here().ip("link set host0 master br0");
        let with_carrier = async {
            loop {
                let (view, exchange) = lab.visit(place("br0"), 0).await;
                assert_eq!(exchange, None);
                if view.is_ok_and(|view| view.carrier) {
                    break;
                }
            }
        };
        timeout(DEADLINE, with_carrier)
            .await
            .expect("its port has carrier");
    });
}

#[test]
fn an_open_exchange_hears_nothing_else_from_then_on() {
    in_lab(async |mut lab: Lab| {
        let (_netns, inside, outside) = lab.pair().await;
        let sender = lab.open(outside, PLAIN).await.unwrap();
        let exchange = lab.open(inside, PLAIN).await.unwrap();
        lab.sent(sender, arp()).await.unwrap();
        lab.net.hear(exchange, Hears::About(ASKED));
        // Frames sent after it leave when that is done.
        lab.sent(exchange, Answer::PLAIN.frame()).await.unwrap();
        lab.sent(sender, Answer::PLAIN.frame()).await.unwrap();
        lab.send(sender, arp());
        // What one socket gets keeps its order: neither the first question nor the answer to DHCP came before.
        assert_eq!(lab.frame(exchange).await.0, arp());
    });
}
