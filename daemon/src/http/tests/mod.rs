//! Tests of the front doors: the maps as tables, the server with real sockets, the spool with real files.

mod add;
mod any;
mod cni;
mod control;
mod docker;
mod network;
mod openapi;
mod server;
mod spool;

use std::num::NonZeroU16;
use std::time::Duration;

use leasehold_api::cni::{Env, Error, Request};
use leasehold_core::effect::{Add, Answer, Call, Row};
use leasehold_core::grant::policy::Policy;
use leasehold_core::identity::Lan;
use leasehold_core::link::Link;
use leasehold_core::source::Source;
use leasehold_core::source::{Lease, lease::LeaseRoute, lease::LeaseTimes};
use leasehold_core::time::Instant;
use leasehold_core::wire::Mac;

use super::Site;
use super::cni::Asked;

const CONFIG: &str = r#"{"cniVersion": "1.0.0", "name": "lan", "type": "macvlan", "master": "eth0",
                         "ipam": {"type": "dhcp"}}"#;

/// A complete request.
fn request(verb: &str) -> Request {
    Request {
        env: Env {
            command: Some(verb.into()),
            container_id: Some("abc".into()),
            netns: Some("/run/netns/abc".into()),
            ifname: Some("net1".into()),
            args: Some("K8S_POD_NAME=web".into()),
            path: Some("/opt/cni/bin".into()),
            netns_override: None,
        },
        config: CONFIG.into(),
    }
}

/// Returns a lease as the core shows it.
pub(super) fn row() -> Row {
    let lan = Lan::Link {
        parent: "eth0".into(),
        vlan: 0,
    };
    control::row(lan, Link::parent(2, Mac([2, 0, 0, 0, 0, 9])))
}

fn with_config(verb: &str, config: &str) -> Request {
    Request {
        config: config.into(),
        ..request(verb)
    }
}

fn parse(request: &Request) -> Result<Asked, Error> {
    Asked::parse(request, &Site::default())
}

fn add(request: &Request) -> Add {
    add_on(request, &Site::default())
}

fn add_on(request: &Request, site: &Site) -> Add {
    match Asked::parse(request, site).unwrap().call {
        Call::Add(add) => *add,
        other => panic!("{other:?}"),
    }
}

/// The answer of a core that has [`lease`] for whoever asks.
fn leased(call: &Call) -> Answer {
    let policy = if let Call::Add(add) = call {
        add.profile.policy.clone()
    } else {
        Policy::default()
    };
    Answer::leased(&lease(), &policy)
}

/// Reads a table: a case a line, its columns apart by arrows.
pub(crate) fn rows<const N: usize>(table: &str) -> impl Iterator<Item = [&str; N]> {
    let lines = table.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| {
        let columns: Vec<_> = line.split("=>").map(str::trim).collect();
        columns.try_into().expect("each row has all columns")
    })
}

/// A lease with everything that a server can give.
fn lease() -> Lease {
    Lease {
        address: "192.0.2.10/24".parse().unwrap(),
        source: Source::Server,
        server: "192.0.2.1".parse().unwrap(),
        server_mac: Mac([2, 0, 0, 0, 0, 1]),
        start: Instant::from_boot(Duration::from_secs(5)),
        times: Some(LeaseTimes {
            t1: Duration::from_secs(1800),
            t2: Duration::from_secs(3150),
            end: Duration::from_secs(3600),
        }),
        gateway: Some("198.51.100.1".parse().unwrap()),
        routes: vec![
            LeaseRoute {
                destination: "0.0.0.0/0".parse().unwrap(),
                via: Some("198.51.100.1".parse().unwrap()),
            },
            LeaseRoute {
                destination: "198.51.100.1/32".parse().unwrap(),
                via: None,
            },
        ],
        dns: vec!["192.0.2.53".parse().unwrap()],
        domain: Some("example.net".into()),
        search: vec!["example.net".into(), "example.org".into()],
        mtu: NonZeroU16::new(1400),
    }
}
