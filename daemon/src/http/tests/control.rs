use std::time::Duration;

use leasehold_api::control::Bindings;
use leasehold_core::effect::{BindingState, Row};
use leasehold_core::grant::policy::Policy;
use leasehold_core::identity::{Attachment, ClientId, Identity, Lan};
use leasehold_core::link::{Cookie, Link};
use leasehold_core::pool::PoolRecord;
use leasehold_core::source::StateName;
use leasehold_core::time::WallTime;
use leasehold_core::wire::Mac;

use super::super::control::bindings;
use super::lease;

/// Returns a lease of a container on a LAN.
pub(in super::super) fn row(lan: Lan, link: Link) -> Row {
    Row {
        attachment: Attachment::cni("lan", "abc", "net1"),
        identity: Some(Identity {
            lan,
            client_id: ClientId::new(b"\0abc".to_vec()).unwrap(),
            chaddr: Mac([2, 0, 0, 0, 0, 9]),
        }),
        state: BindingState::Client(StateName::Bound),
        hostname: Some("web-0".to_owned()),
        lost: false,
        in_vain: None,
        age: Duration::ZERO,
        told: None,
        tenure: Some(lease().tenure(&Policy::default())),
        extended: Some(Duration::ZERO),
        rebound: Some(Duration::from_millis(1999)),
        ends: None,
        kept: None,
        pathless: false,
        held_up: None,
        link: Some(link),
    }
}

#[test]
fn the_list_is_written_as_the_golden_file_says() {
    let mac = Mac([2, 0, 0, 0, 0, 9]);
    let netns = Link::InNetns {
        path: "/run/netns/abc".into(),
        cookie: Cookie(7),
        ifindex: 3,
        mac,
    };
    let released = Row {
        state: BindingState::Kept,
        kept: Some(Duration::from_secs(59)),
        tenure: None,
        extended: None,
        rebound: None,
        ..row(Lan::Network("lan".into()), Link::parent(2, mac))
    };
    let adopted_not = (
        Attachment::cni("lan", "old", "net1"),
        "no DHCP offer".to_owned(),
    );
    let pool = PoolRecord {
        id: "192.168.1.0/24;;parent=eth0".parse().unwrap(),
        lan: None,
        gateway: Some("192.168.1.1".parse().unwrap()),
        reserved: ["192.168.1.1", "192.168.1.5"]
            .map(|text| text.parse().unwrap())
            .into(),
        automatic: false,
        since: WallTime::from_epoch(Duration::ZERO),
    };
    let list = bindings(
        &[
            row(
                Lan::Link {
                    parent: "eth0".into(),
                    vlan: 5,
                },
                netns,
            ),
            released,
        ],
        &[pool],
        &[adopted_not],
        vec!["lh0123".to_owned()],
        [("server identifier missing".to_owned(), 3)].into(),
    );
    let golden = include_str!("golden/bindings.json");
    assert_eq!(
        serde_json::to_string_pretty(&list).unwrap(),
        golden.trim_end()
    );
    assert_eq!(serde_json::from_str::<Bindings>(golden).unwrap(), list);
}
