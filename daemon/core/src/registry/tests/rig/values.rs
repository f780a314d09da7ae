//! Values that the tests begin with.

use super::*;

/// What the server gives first.
pub(in crate::registry::tests) const FIRST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 50);
/// The same with its mask.
pub(in crate::registry::tests) const A: &str = "192.0.2.50/24";
/// What the server gives where a test has it give another.
pub(in crate::registry::tests) const OTHER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);
/// The same with its mask.
pub(in crate::registry::tests) const B: &str = "192.0.2.77/24";
/// A station that is no container.
pub(in crate::registry::tests) const NEIGHBOUR: Mac = Mac([2, 0, 0, 0, 9, 9]);
/// The Ethernet address that interfaces have alike, as on ipvlan.
pub(in crate::registry::tests) const SHARED: Mac = Mac([2, 0, 0, 0, 7, 7]);

#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::registry::tests) enum Disk {
    Good,
    Full,
    Slow,
}

impl Disk {
    /// Returns whether a transaction is made durable, if not at once.
    pub(super) fn takes(self) -> bool {
        match self {
            Self::Good | Self::Slow => true,
            Self::Full => false,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::registry::tests) enum Server {
    Up,
    Silent,
    Naks,
    /// Refuses what it is asked for, and offers nothing.
    NaksOnly,
    OffersOnly,
    /// Answers DISCOVER with an ACK.
    Commits,
    /// Answers only messages with the broadcast flag.
    AnswersFlag,
    /// Is silent to a REQUEST for a lease that it does not know, unless it has offered that (RFC 2131 §4.3.2).
    Discreet,
}

/// Returns the tests' name for an attachment.
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
            lan: lan_on("br0", 0),
            client_id: ClientId::new(b"\0id".to_vec()).unwrap(),
            chaddr: Mac([2, 0, 0, 0, 1, 1]),
        },
        profile: Profile::default(),
        link: Link::InNetns {
            path: "/ns/1".into(),
            cookie: Cookie(1),
            ifindex: 2,
            mac: Mac([2, 0, 0, 0, 1, 1]),
        },
        lease: Lease {
            server: SERVER,
            server_mac: SERVER_MAC,
            times: Some(LeaseTimes {
                t1: seconds(20000),
                t2: seconds(30000),
                end: seconds(40000),
            }),
            ..Lease::unknown(
                A.parse().unwrap(),
                Instant::from_boot(Duration::from_secs_f64(at)),
            )
        },
        state: RecordState::Bound,
        boot: BootId(boot.into()),
        since: WallTime::from_epoch(Duration::from_secs_f64(at) + Duration::from_secs(1 << 30)),
        kept: None,
        former: None,
        taken_off: false,
        unconfirmed: false,
        elsewhere: false,
        told: None,
    }
}
