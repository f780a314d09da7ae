//! Our own links in the host's namespace.

use leasehold_core::effect::Outcome;
use leasehold_core::identity::DoorId;
use leasehold_core::link::own::{LinkKind, LinkOwner, MacvlanMode, OwnLink};
use leasehold_core::link::{KernelMessage, LinkCause, Target};
use leasehold_core::wire::Mac;

use super::lab::{Lab, Netns, STORE, in_lab, in_lab_beside, ip, make_bridge};
use crate::net::NetReport;

const OWN: Mac = Mac([0x02, 0, 0, 0, 0, 0x1b]);
const ID: &str = "4f00aa00bb00cc00";
const NAME: &str = "lh4f00aa00bb00";

fn endpoint() -> LinkOwner {
    LinkOwner::Endpoint(DoorId::try_from(ID.to_owned()).unwrap())
}

fn vlan() -> OwnLink {
    let owner = LinkOwner::Vlan {
        on: "host0".to_owned(),
        vlan: 10,
    };
    OwnLink {
        owner,
        kind: LinkKind::Vlan(10),
        on: "host0".to_owned(),
        mac: None,
        mtu: None,
    }
}

fn link(kind: LinkKind, on: &str) -> OwnLink {
    OwnLink {
        owner: endpoint(),
        kind,
        on: on.to_owned(),
        mac: Some(OWN),
        mtu: Some(1400),
    }
}

fn macvlan() -> OwnLink {
    link(LinkKind::Macvlan(MacvlanMode::Bridge), "host0")
}

/// Returns whether the kernel can make links of this kind.
fn has(kind: &str) -> bool {
    let made = Netns::new().run(|| {
        let ip = |arguments: &str| {
            std::process::Command::new("ip")
                .args(arguments.split(' '))
                .status()
                .unwrap()
                .success()
        };
        ip("link add a type veth peer name b") && ip(&format!("link add link a name c type {kind}"))
    });
    if !made {
        eprintln!("skipped in part: this kernel makes no link of kind {kind}");
    }
    made
}

impl Lab {
    async fn make(&mut self, link: OwnLink) -> Result<(), LinkCause> {
        let op = self.op();
        self.net.make(op, link);
        match self.done(op).await {
            Outcome::Made(result) => result,
            other => panic!("{other:?}"),
        }
    }

    async fn unmake(&mut self, owner: LinkOwner) -> Result<(), LinkCause> {
        let op = self.op();
        self.net.unmake(op, owner);
        match self.done(op).await {
            Outcome::Unmade(result) => result,
            other => panic!("{other:?}"),
        }
    }

    async fn own_links(&mut self) -> Vec<LinkOwner> {
        let op = self.op();
        self.net.list_own(op);
        match self.done(op).await {
            Outcome::OwnLinks(result) => result.unwrap().owners,
            other => panic!("{other:?}"),
        }
    }

    async fn index(&mut self, ifname: &str) -> Option<u32> {
        self.inspect(Target::Host {
            ifname: ifname.to_owned(),
        })
        .await
        .ok()
        .map(|view| view.ifindex)
    }
}

/// Gives the endpoint's link an alias.
fn name(alias: &str) {
    Netns::here().run(|| {
        let named = std::process::Command::new("ip")
            .args(["link", "set", NAME, "alias", alias])
            .status();
        assert!(named.unwrap().success());
    });
}

fn links() -> usize {
    ip("-brief link").lines().count()
}

#[test]
fn our_own_links_change_in_the_order_of_requests() {
    in_lab(async |mut lab: Lab| {
        let (_wire, _, _) = lab.pair().await;
        for round in 0..30 {
            let [make, unmake, list] = [lab.op(), lab.op(), lab.op()];
            lab.net.make(make, macvlan());
            lab.net.unmake(unmake, endpoint());
            lab.net.list_own(list);
            let listed = lab.done(list).await;
            let none = matches!(&listed, Outcome::OwnLinks(Ok(own)) if own.owners.is_empty());
            assert!(none, "round {round}: {listed:?}");
        }
    });
}

#[test]
fn a_macvlan_is_made_complete_but_down_and_is_deleted() {
    in_lab(async |mut lab: Lab| {
        let (_wire, _, _) = lab.pair().await;
        let before = links();
        for (mode, word) in [
            (MacvlanMode::Bridge, "bridge"),
            (MacvlanMode::Private, "private"),
            (MacvlanMode::Vepa, "vepa"),
            (MacvlanMode::Passthru, "passthru"),
        ] {
            let wanted = link(LinkKind::Macvlan(mode), "host0");
            lab.make(wanted.clone()).await.unwrap();
            let shown = ip(&format!("-details link show {NAME}"));
            let own_mac = mode == MacvlanMode::Passthru || shown.contains(&OWN.to_string());
            assert!(
                shown.contains(&format!("macvlan mode {word}"))
                    && own_mac
                    && shown.contains("mtu 1400"),
                "{shown}"
            );
            assert!(
                shown.contains(&format!("alias leasehold {STORE} endpoint {ID}")),
                "{shown}"
            );
            assert!(!shown.contains(",UP"), "{shown}");
            let made = lab.index(NAME).await;
            assert_eq!(lab.make(wanted).await, Ok(()), "a second time");
            assert_eq!(lab.index(NAME).await, made, "it is the same link");
            assert_eq!(lab.own_links().await, [endpoint()]);
            lab.unmake(endpoint()).await.unwrap();
            assert_eq!((lab.index(NAME).await, links()), (None, before));
            // There is none any more.
            assert_eq!(lab.unmake(endpoint()).await, Ok(()));
        }
    });
}

#[test]
fn a_port_leaves_its_bridge_as_it_is() {
    in_lab(async |mut lab: Lab| {
        let bridge = make_bridge();
        ip("link set br0 address 02:00:00:00:00:99 up");
        // Nobody has given the bridge an MTU: it takes on the smallest of its ports.
        lab.make(OwnLink {
            mtu: Some(1200),
            ..link(LinkKind::Port, "br0")
        })
        .await
        .unwrap();
        let (shown, bridge_shown) = (ip(&format!("link show {NAME}")), ip("link show br0"));
        assert!(
            shown.contains("mtu 1200") && bridge_shown.contains("mtu 1500"),
            "{shown} {bridge_shown}"
        );
        lab.unmake(endpoint()).await.unwrap();
        ip("link set br0 mtu 1300");
        let (before, shown_before) = (links(), ip("-brief link show br0"));
        lab.make(link(LinkKind::Port, "br0")).await.unwrap();
        // It can carry no more than the bridge.
        let shown = ip(&format!("-details link show {NAME}"));
        assert!(
            shown.contains("veth")
                && shown.contains("mtu 1300")
                && shown.contains(&OWN.to_string()),
            "{shown}"
        );
        let ports = ip("-details link show master br0");
        assert!(
            ports.contains(&format!("endpoint {ID} port")) && ports.contains("addrgenmode none"),
            "{ports}"
        );
        assert!(
            ports.contains(",UP")
                && ports.contains("fe:6c:68:00:00:1b")
                && ports.contains("mtu 1300"),
            "{ports}"
        );
        let (address, mtu) = ("02:00:00:00:00:99", "mtu 1300");
        let after = ip("link show br0");
        assert!(
            after.contains(address) && after.contains(mtu),
            "{shown_before} {after}"
        );
        assert_eq!(lab.own_links().await, [endpoint()], "once for both ends");
        let made = lab.index(NAME).await;
        lab.make(link(LinkKind::Port, "br0")).await.unwrap();
        assert_eq!(lab.index(NAME).await, made);
        lab.unmake(endpoint()).await.unwrap();
        assert_eq!(links(), before);
        assert_eq!(lab.index("br0").await, Some(bridge));
    });
}

#[test]
fn a_vlan_link_is_made_or_one_of_others_is_used() {
    if !has("vlan id 10") {
        return;
    }
    in_lab(async |mut lab: Lab| {
        let (_wire, _, _) = lab.pair().await;
        lab.make(vlan()).await.unwrap();
        let shown = ip("-details link show host0.10");
        assert!(
            shown.contains("vlan protocol 802.1Q id 10") && shown.contains(",UP"),
            "{shown}"
        );
        assert!(shown.contains("addrgenmode none"), "{shown}");
        assert_eq!(lab.own_links().await, [vlan().owner]);
        // Links on it would go with it.
        let made = lab.index("host0.10").await;
        ip("link set host0.10 mtu 1400");
        lab.make(vlan()).await.unwrap();
        assert_eq!(lab.index("host0.10").await, made);
        lab.unmake(vlan().owner).await.unwrap();
        assert_eq!(lab.index("host0.10").await, None);

        ip("link add link host0 name host0.10 type vlan id 10");
        assert_eq!(lab.make(vlan()).await, Err(LinkCause::Down));
        ip("link set host0.10 up");
        lab.make(vlan()).await.unwrap();
        lab.unmake(vlan().owner).await.unwrap();
        assert!(lab.index("host0.10").await.is_some());
        assert_eq!(lab.own_links().await, []);
        ip("link del host0.10");
        ip("link add link host0 name host0.10 type vlan id 11");
        let error = lab.make(vlan()).await.unwrap_err().to_string();
        assert!(
            error.contains("host0.10") && error.contains("not leasehold's"),
            "{error}"
        );
    });
}

#[test]
fn an_ipvlan_has_its_parents_ethernet_address() {
    if !has("ipvlan mode l2") {
        return;
    }
    in_lab(async |mut lab: Lab| {
        let (_wire, _, _) = lab.pair().await;
        lab.make(OwnLink {
            mac: None,
            ..link(LinkKind::Ipvlan, "host0")
        })
        .await
        .unwrap();
        let shown = ip(&format!("-details link show {NAME}"));
        assert!(
            shown.contains("ipvlan  mode l2") && shown.contains(&super::lab::PEER.to_string()),
            "{shown}"
        );
    });
}

#[test]
fn a_link_kind_that_the_kernel_lacks_is_named() {
    in_lab(async |mut lab: Lab| {
        let (_wire, _, _) = lab.pair().await;
        let before = links();
        let unmade = [
            (has("vlan id 10"), vlan(), "8021q"),
            (
                has("ipvlan mode l2"),
                OwnLink {
                    mac: None,
                    ..link(LinkKind::Ipvlan, "host0")
                },
                "ipvlan",
            ),
        ];
        for (_, link, module) in unmade.into_iter().filter(|(has, ..)| !has) {
            let error = lab.make(link).await.unwrap_err().to_string();
            assert!(error.contains(&format!("modprobe {module}")), "{error}");
        }
        let error = lab
            .make(link(LinkKind::Macvlan(MacvlanMode::Bridge), "none"))
            .await
            .unwrap_err();
        assert_eq!(error, LinkCause::NoLink("none".to_owned()));
        // There is no bridge, so the veth that was made for it is deleted again.
        let error = lab
            .make(link(LinkKind::Port, "host0"))
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("port of the bridge"), "{error}");
        assert_eq!(links(), before);
    });
}

#[test]
fn a_parent_that_takes_no_link_is_named_with_the_cause() {
    in_lab(async |mut lab: Lab| {
        let (_wire, _, _) = lab.pair().await;
        make_bridge();
        let alone = link(LinkKind::Macvlan(MacvlanMode::Passthru), "host0");
        lab.make(alone).await.unwrap();
        let owner = LinkOwner::Endpoint(DoorId::try_from("5f00aa00bb00".to_owned()).unwrap());
        let other = OwnLink {
            owner,
            mac: Some(Mac([2, 0, 0, 0, 0, 0x1c])),
            ..macvlan()
        };
        let error = lab.make(other.clone()).await.unwrap_err().to_string();
        assert!(
            error.contains("host0 to itself (-o macvlan_mode=passthru)"),
            "{error}"
        );
        lab.unmake(endpoint()).await.unwrap();
        ip("link set host0 master br0");
        let error = lab.make(other).await.unwrap_err().to_string();
        assert!(
            error.contains("host0 is a port of bridge br0: create the network with -o bridge=br0"),
            "{error}"
        );
    });
}

#[test]
fn a_link_of_ours_that_differs_is_made_again() {
    in_lab(async |mut lab: Lab| {
        let (_wire, _, _) = lab.pair().await;
        make_bridge();
        let before = links();
        lab.make(macvlan()).await.unwrap();
        for other in [
            OwnLink {
                mac: Some(Mac([2, 0, 0, 0, 0, 0x1c])),
                ..macvlan()
            },
            OwnLink {
                mtu: Some(1300),
                ..macvlan()
            },
            link(LinkKind::Macvlan(MacvlanMode::Private), "host0"),
            link(LinkKind::Port, "br0"),
            macvlan(),
        ] {
            let made = lab.index(NAME).await;
            lab.make(other.clone()).await.unwrap();
            let anew = lab.index(NAME).await;
            assert_ne!(anew, made, "{other:?}");
            lab.make(other).await.unwrap();
            assert_eq!(lab.index(NAME).await, anew);
        }
        // A daemon was killed before it had named it.
        lab.unmake(endpoint()).await.unwrap();
        ip(&format!(
            "link add link host0 name {NAME} type macvlan mode bridge"
        ));
        let [half_made] = &lab.own_links().await[..] else {
            panic!("one link")
        };
        lab.unmake(half_made.clone()).await.unwrap();
        assert_eq!(links(), before);
        ip(&format!(
            "link add link host0 name {NAME} type macvlan mode bridge"
        ));
        let made = lab.index(NAME).await;
        lab.make(macvlan()).await.unwrap();
        assert_ne!(lab.index(NAME).await, made);
        lab.unmake(endpoint()).await.unwrap();
        assert_eq!(links(), before);

        // A container gave its link another alias.
        lab.make(macvlan()).await.unwrap();
        name("uplink");
        lab.unmake(endpoint()).await.unwrap();
        assert_eq!(links(), before);
        // Somebody renamed it in the host's namespace.
        lab.make(macvlan()).await.unwrap();
        ip(&format!("link set {NAME} name renamed"));
        lab.unmake(endpoint()).await.unwrap();
        assert_eq!(links(), before);

        ip(&format!(
            "link add link host0 name {NAME} type macvlan mode bridge"
        ));
        for (alias, state) in [
            (
                "leasehold 0000000000000000 endpoint 4f00aa00bb00cc00",
                "down",
            ),
            ("uplink", "up"),
        ] {
            name(alias);
            ip(&format!("link set {NAME} {state}"));
            let error = lab.make(macvlan()).await.unwrap_err().to_string();
            assert!(
                error.contains(NAME) && error.contains("not leasehold's"),
                "{error}"
            );
            assert_eq!(lab.unmake(endpoint()).await, Ok(()));
            assert!(lab.index(NAME).await.is_some(), "{alias}");
            assert_eq!(lab.own_links().await, []);
        }
    });
}

#[test]
fn links_of_ours_are_reported_when_they_come_and_go() {
    let directory = tempfile::tempdir().unwrap();
    in_lab_beside(Some(directory.path().to_owned()), async |mut lab: Lab| {
        let (_wire, _, _) = lab.pair().await;
        let netns = Netns::new();
        let told = |there| KernelMessage::OwnLink {
            owner: endpoint(),
            there,
        };
        // The kernel does not report that a link that is down has got an alias. Whoever asked hears that it is made.
        lab.make(macvlan()).await.unwrap();
        ip(&format!("link set {NAME} netns {netns}"));
        lab.kernel(told(false)).await;
        let host = Netns::here();
        netns.ip(&format!("link set {NAME} netns {host}"));
        lab.kernel(told(true)).await;
        lab.unmake(endpoint()).await.unwrap();
        lab.kernel(told(false)).await;
        make_bridge();
        lab.left_over();
        lab.make(link(LinkKind::Port, "br0")).await.unwrap();
        lab.unmake(endpoint()).await.unwrap();
        lab.kernel(told(false)).await;
        let port = |event: &NetReport| matches!(event, NetReport::Kernel(news) if matches!(news.event, KernelMessage::OwnLink { there: false, .. }));
        // The bridge's end is not the endpoint's.
        assert!(!lab.left_over().iter().any(port));
    });
}

#[test]
fn links_of_ours_are_not_reported_without_docker() {
    in_lab(async |mut lab: Lab| {
        let (_wire, _, _) = lab.pair().await;
        lab.make(macvlan()).await.unwrap();
        lab.unmake(endpoint()).await.unwrap();
        // Later reports of the kernel come later.
        let _ = lab.pair_after().await;
        let own = |event: &NetReport| matches!(event, NetReport::Kernel(news) if matches!(news.event, KernelMessage::OwnLink { .. }));
        assert!(!lab.left_over().iter().any(own));
    });
}

impl Lab {
    /// Makes something that the kernel reports, and waits for the report.
    async fn pair_after(&mut self) -> Netns {
        let netns = Netns::with_veth("host1");
        let view = self.inspect(netns.eth0()).await.unwrap();
        netns.ip("address add 192.0.2.9/24 dev eth0");
        let address = "192.0.2.9".parse().unwrap();
        self.kernel(KernelMessage::AddressAdded(
            (view.cookie, view.ifindex),
            address,
        ))
        .await;
        netns
    }
}
