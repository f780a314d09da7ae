//! Interfaces that are looked for in the namespaces of an engine.

use std::fs::{self, File};
use std::os::unix::fs::symlink;

use leasehold_core::effect::Outcome;
use leasehold_core::identity::Lan;
use leasehold_core::link::{KernelMessage, LinkCause, Sightings, Sought};
use leasehold_core::wire::Mac;
use tempfile::TempDir;

use super::lab::{Lab, Netns, in_lab_beside, ip, make_bridge};
use crate::net::NetReport;

const OWN: Mac = Mac([0x02, 0, 0, 0, 0, 0x1a]);

fn sought(parent: &str, vlan: u16) -> Sought {
    Sought {
        mac: OWN,
        lan: Lan::Link {
            parent: parent.into(),
            vlan,
        },
    }
}

impl Lab {
    async fn seek(&mut self, sought: Sought, number: Option<i32>) -> Result<Sightings, LinkCause> {
        let op = self.op();
        self.net.seek(op, vec![sought], number);
        match self.done(op).await {
            Outcome::Sought(result) => result,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until the kernel reports a link with the Ethernet address that is looked for.
    async fn appeared(&mut self) -> i32 {
        let number = |event: &NetReport| match event {
            NetReport::Kernel(news) => match news.event {
                KernelMessage::Appeared { number, mac: OWN } => Some(number),
                _ => None,
            },
            _ => None,
        };
        self.event(number).await
    }
}

/// Puts a file of a namespace where the engine keeps them.
fn keep(directory: &TempDir, name: &str, netns: &Netns) {
    symlink(netns.path(), directory.path().join(name)).unwrap();
}

/// Moves a link from here into a namespace, as Docker does.
fn move_into(netns: &Netns, link: &str) {
    ip(&format!("link set {link} netns {netns}"));
}

#[test]
fn a_macvlan_is_found_in_the_namespace_it_moves_to() {
    let directory = tempfile::tempdir().unwrap();
    in_lab_beside(
        Some(directory.path().to_owned()),
        async move |mut lab: Lab| {
            let (_wire, _, _) = lab.pair().await;
            let (other, netns) = (Netns::new(), Netns::new());
            keep(&directory, "other", &other);
            keep(&directory, "own", &netns);
            keep(&directory, "default", &Netns::here());
            assert_eq!(
                lab.seek(sought("host0", 0), None).await,
                Ok(Sightings {
                    seen: 2,
                    whole: true,
                    ..Sightings::default()
                })
            );

            // As Docker does: the Ethernet address is set inside.
            ip("link add link host0 name mv0 type macvlan mode bridge");
            move_into(&netns, "mv0");
            netns.ip(&format!("link set mv0 name eth7 address {OWN}"));
            let number = lab.appeared().await;
            for asked in [Some(number), None] {
                let found = lab.seek(sought("host0", 0), asked).await.unwrap();
                let [sighting] = &found.found[..] else {
                    panic!("{found:?}")
                };
                assert_eq!(sighting.netns, directory.path().join("own"));
                assert_eq!(
                    (
                        sighting.view.ifname.as_str(),
                        sighting.view.mac,
                        sighting.view.macvlan
                    ),
                    ("eth7", OWN, true)
                );
                assert_eq!(
                    (found.seen, found.whole),
                    if asked.is_some() {
                        (1, false)
                    } else {
                        (2, true)
                    }
                );
            }
            make_bridge();
            let elsewhere = Sightings {
                seen: 2,
                whole: true,
                ..Sightings::default()
            };
            // Of another LAN.
            assert_eq!(
                lab.seek(sought("br0", 0), None).await,
                Ok(elsewhere.clone()),
            );
            let unseen = Some(LinkCause::NoLink("none".to_owned()));
            let unclear = Sightings {
                whole: false,
                unseen,
                ..elsewhere
            };
            // Its LAN's link may have another name by now.
            assert_eq!(lab.seek(sought("none", 0), None).await, Ok(unclear));
            assert_eq!(
                lab.seek(sought("host0", 0), Some(number + 100))
                    .await
                    .unwrap()
                    .seen,
                0
            );

            netns.ip("address add 192.0.2.7/24 dev eth7");
            let found = lab.seek(sought("host0", 0), None).await.unwrap();
            let (cookie, ifindex) = found.found[0].view.at();
            let address = "192.0.2.7".parse().unwrap();
            lab.kernel(KernelMessage::AddressAdded((cookie, ifindex), address))
                .await;
        },
    );
}

#[test]
fn a_veth_is_on_the_lan_of_its_other_ends_bridge() {
    let directory = tempfile::tempdir().unwrap();
    in_lab_beside(
        Some(directory.path().to_owned()),
        async move |mut lab: Lab| {
            make_bridge();
            let netns = Netns::new();
            keep(&directory, "own", &netns);
            ip(&format!(
                "link add host1 type veth peer name in1 address {OWN}"
            ));
            move_into(&netns, "in1");
            lab.appeared().await;
            assert_eq!(lab.seek(sought("br0", 0), None).await.unwrap().found, []);
            ip("link set host1 master br0");
            let found = lab.seek(sought("br0", 0), None).await.unwrap().found;
            assert_eq!(
                found
                    .iter()
                    .map(|sighting| sighting.view.ifname.as_str())
                    .collect::<Vec<_>>(),
                ["in1"]
            );
            ip("link property add dev br0 altname lan-bridge");
            for (name, vlan, is_there) in [("lan-bridge", 0, true), ("br0", 7, false)] {
                let found = lab.seek(sought(name, vlan), None).await.unwrap().found;
                assert_eq!(found.len() == 1, is_there, "{name} {vlan}");
            }
        },
    );
}

#[test]
fn a_search_names_only_namespaces_that_may_have_the_link() {
    let directory = tempfile::tempdir().unwrap();
    in_lab_beside(
        Some(directory.path().to_owned()),
        async move |mut lab: Lab| {
            let (own, hidden) = (Netns::new(), Netns::new());
            File::create(directory.path().join("bare")).unwrap();
            symlink("/nowhere", directory.path().join("gone")).unwrap();
            make_bridge();
            ip(&format!(
                "link add host1 type veth peer name in1 address {OWN}"
            ));
            ip("link set host1 master br0");
            // It is here, and here has a number too.
            Netns::here().get_number(77);
            assert_eq!(
                lab.seek(sought("br0", 0), None).await,
                Ok(Sightings {
                    whole: true,
                    ..Sightings::default()
                })
            );

            // The bare file may be this one's, mounted where only the engine sees it.
            move_into(&hidden, "in1");
            lab.appeared().await;
            let unseen = Some(LinkCause::NotMounted(directory.path().join("bare")));
            assert_eq!(
                lab.seek(sought("br0", 0), None).await,
                Ok(Sightings {
                    unseen,
                    ..Sightings::default()
                })
            );
            hidden.ip(&format!("link set in1 netns {own}"));
            keep(&directory, "own", &own);
            ip("link add mv0 link br0 type macvlan mode bridge");
            move_into(&own, "mv0");
            let found = lab.seek(sought("br0", 0), None).await.unwrap();
            assert_eq!((found.found.len(), found.seen, found.whole), (1, 1, true));
            fs::remove_file(directory.path().join("bare")).unwrap();
            assert!(lab.seek(sought("br0", 0), None).await.unwrap().whole);

            // Nothing is left out, and the kernel knows better.
            fs::remove_file(directory.path().join("own")).unwrap();
            let empty = lab.seek(sought("br0", 0), None).await.unwrap();
            assert!(!empty.whole && empty.unseen.is_some(), "{empty:?}");

            let path = directory.path().to_owned();
            directory.close().unwrap();
            assert_eq!(
                lab.seek(sought("br0", 0), None).await,
                Err(LinkCause::NoDirectory(path))
            );
        },
    );
}
