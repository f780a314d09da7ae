//! Values that the tests begin with.

use super::*;

/// Returns what the tests call an attachment by.
pub(in crate::registry::tests) fn container(attachment: &Attachment) -> String {
    attachment.container().expect("CNI's").to_owned()
}

pub(in crate::registry::tests) fn attachment(who: &str) -> Attachment {
    Attachment::cni("lan", who, "eth0")
}

pub(in crate::registry::tests) fn record(who: &str, boot: &str, at: f64) -> Record {
    let seconds = Duration::from_secs;
    Record {
        attachment: attachment(who),
        identity: Identity {
            lan: Lan::Link { parent: "br0".into(), vlan: 0 },
            client_id: ClientId::new(b"\0id".to_vec()).unwrap(),
            chaddr: Mac([2, 0, 0, 0, 1, 1]),
        },
        profile: Profile::default(),
        link: Link::InNetns { path: "/ns/1".into(), cookie: Cookie(1), ifindex: 2, mac: Mac([2, 0, 0, 0, 1, 1]) },
        lease: Lease {
            server: SERVER,
            server_mac: SERVER_MAC,
            times: Some(Times { t1: seconds(20000), t2: seconds(30000), end: seconds(40000) }),
            ..Lease::unknown("192.0.2.50/24".parse().unwrap(), Instant::from_boot(Duration::from_secs_f64(at)))
        },
        state: RecordState::Bound,
        boot: BootId(boot.into()),
        since: WallTime::from_epoch(Duration::from_secs_f64(at) + Duration::from_secs(1 << 30)),
        kept: None,
        former: None,
        taken_off: false,
        told: None,
    }
}
