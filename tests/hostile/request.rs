//! Requests of a runtime, as the shim passes them on, and calls of dockerd's.

use std::net::Ipv4Addr;
use std::num::NonZeroU16;
use std::path::Path;
use std::time::Duration;

use ipnet::Ipv4Net;
use leasehold_api::cni::{Env, Error, Request};
use leasehold_api::docker::{RELEASE_POOL, REQUEST_ADDRESS};
use leasehold_api::{DEFAULT_SOCKET, MAX_ADD_TIMEOUT, spool, to_json};
use leasehold_core::effect::{Add, Answer, Call, EndpointAddress, NetworkCall, PoolCall};
use leasehold_core::grant::policy::Policy;
use leasehold_core::identity::DoorId;
use leasehold_core::link::own::{LONGEST_NAME, MacvlanMode};
use leasehold_core::network::{Mode, NetworkRecord, Wiring};
use leasehold_core::pool::PoolId;
use leasehold_core::source::Source;
use leasehold_core::source::{ClientProfile, Lease, Sender};
use leasehold_core::time::{Instant, WallTime};
use leasehold_core::wire::Mac;
use netns_fixtures::model::{self, Judge, Packet, Violation, code};
use serde_json::Value;

use self::http::add::Site;
use self::http::client_id::MachineId;
use self::http::cni::Asked;
use self::http::docker;

/// The daemon's conversions from CNI and Docker to the core, which are pure. They belong to the program, not to a library, so
/// they are built in here.
#[path = "../../daemon/src/http"]
mod http {
    pub(super) mod add;
    mod args;
    pub(super) mod client_id;
    pub(super) mod cni;
    pub(super) mod docker;
    mod fallback;
    mod named;
    mod names;
    mod refusal;
    mod result;
}

const MAC: Mac = Mac([2, 0, 0, 0, 0, 7]);

/// Reads a request and takes it as far as the core: the bytes as the body of `POST /cni`, and as the network
/// configuration of each verb; and as a call of dockerd's.
///
/// The core's input is within its bounds, and a client can express it; the answer is JSON, and so is the error, which
/// stays short.
///
/// # Panics
/// If any of this does not hold.
pub fn request(bytes: &[u8]) {
    from_dockerd(bytes);
    if let Ok(request) = serde_json::from_slice::<Request>(bytes) {
        answer(&request);
    }
    let Ok(config) = std::str::from_utf8(bytes) else {
        return;
    };
    for verb in ["ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION"] {
        let said = |text: &str| Some(text.to_owned());
        let env = Env {
            command: said(verb),
            container_id: said("abc"),
            netns: said("/run/netns/abc"),
            ifname: said("net1"),
            args: said("IgnoreUnknown=1;K8S_POD_NAME=web-0;K8S_POD_NAMESPACE=default"),
            path: said("/opt/cni/bin"),
            netns_override: None,
        };
        answer(&Request {
            env,
            config: config.to_owned(),
        });
    }
}

fn answer(request: &Request) {
    let file = spool::path(Path::new(DEFAULT_SOCKET), request);
    assert_eq!(
        file.parent(),
        Path::new(DEFAULT_SOCKET).parent(),
        "spooled beside the socket"
    );
    let name = file.file_name().expect("a name");
    assert!(spool::is_call(Path::new(DEFAULT_SOCKET), name));
    let site = Site {
        machine_id: MachineId::parse(&"5".repeat(32)),
        ..Site::default()
    };
    let asked = match Asked::parse(request, &site) {
        Ok(asked) => asked,
        Err(error) => return is_short(&error),
    };
    match &asked.call {
        Call::Add(add) => {
            assert!(add.timeout <= MAX_ADD_TIMEOUT && !add.timeout.is_zero());
            assert!(add.place.netns().is_some_and(Path::is_absolute));
            assert!(
                add.chaddr.is_none_or(|mac| mac.0[0] & 1 == 0),
                "{:?}",
                add.chaddr
            );
            can_be_said(add);
        }
        Call::Del { attachment, .. } => {
            let kept = spool::del(request).expect("a DEL that is served can be kept");
            assert!(
                to_json(&kept).len() < 1024
                    && spool::path(Path::new(DEFAULT_SOCKET), &kept) == file
            );
            let call = Call::Del {
                attachment: attachment.clone(),
                grace: None,
            };
            assert_eq!(Asked::parse(&kept, &site).map(|kept| kept.call), Ok(call));
        }
        Call::Check { .. } | Call::Collect { .. } | Call::Status { .. } | Call::List => {}
        other @ (Call::Order(_)
        | Call::Ready
        | Call::Show(_)
        | Call::Pool(_)
        | Call::Ranges
        | Call::Network(_)) => {
            panic!("CNI has no such call: {other:?}")
        }
    }
    let text = asked
        .form
        .answer(&Answer::leased(&lease(), &Policy::default()))
        .expect("a lease is a success");
    assert!(
        serde_json::from_str::<Value>(&text).is_ok_and(|json| json["cniVersion"].is_string()),
        "{text}"
    );
    assert_eq!(asked.form.answer(&Answer::Deleted), Ok(String::new()));
    is_short(&asked.form.unanswered());
}

/// Takes dockerd's calls as far as the core: the bytes as the body of each, by either socket; and as a PoolID, an address,
/// and an option's value.
fn from_dockerd(bytes: &[u8]) {
    let methods = [
        "RequestPool",
        "ReleasePool",
        "RequestAddress",
        "ReleaseAddress",
    ];
    let methods = methods.map(|name| format!("/IpamDriver.{name}"));
    let mut bodies = vec![bytes.to_vec()];
    if let Ok(text) = std::str::from_utf8(bytes) {
        let text = to_json(&text);
        let pool = r#""192.168.1.0/24;;parent=eth0""#;
        let options = ["parent", "client-id", "hostname", "servers-allow"];
        let options: Vec<_> = options
            .map(|key| format!(r#"{{"parent":"eth0","{key}":{text}}}"#))
            .into();
        bodies.extend(
            options
                .iter()
                .map(|options| format!(r#"{{"Options":{options}}}"#).into_bytes()),
        );
        let mac = r#"{"com.docker.network.endpoint.macaddress":"02:00:00:00:00:07"}"#;
        bodies.push(
            format!(r#"{{"PoolID":{text},"Address":"192.168.1.7","Options":{mac}}}"#).into_bytes(),
        );
        bodies
            .push(format!(r#"{{"PoolID":{pool},"Address":{text},"Options":{mac}}}"#).into_bytes());
        let name = format!(r#"{{"com.docker.network.endpoint.name":{text}}}"#);
        bodies.push(format!(r#"{{"PoolID":{pool},"Options":{name}}}"#).into_bytes());
    }
    bodies.extend(network_bodies(bytes));
    let network_methods = NETWORK_METHODS.map(|name| format!("/NetworkDriver.{name}"));
    let methods = methods.into_iter().chain(network_methods);
    for method in methods {
        for (body, ipvlan) in bodies.iter().flat_map(|body| [(body, false), (body, true)]) {
            let site = Site {
                machine_id: MachineId::parse(&"5".repeat(32)),
                ..Site::default()
            };
            let host = docker::Host {
                site,
                ipvlan,
                link: &|name| (name == "eth0").then_some(MAC),
                links_in: &|_| vec!["eth0".to_owned()],
                number: 7,
            };
            docker_call(docker::Asked::parse(&method, body, &host), &method, &host);
        }
    }
}

/// The network driver's calls that have a meaning.
const NETWORK_METHODS: [&str; 5] = [
    "CreateNetwork",
    "DeleteNetwork",
    "CreateEndpoint",
    "DeleteEndpoint",
    "Join",
];

/// Returns the bytes as an option's value, an address, a chosen Ethernet address and a name.
fn network_bodies(bytes: &[u8]) -> Vec<Vec<u8>> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Vec::new();
    };
    let text = to_json(&text);
    let ids = r#""NetworkID":"4f00","EndpointID":"e9d0""#;
    let generic = |key: &str| {
        format!(r#"{{"com.docker.network.generic":{{"parent":"eth0","{key}":{text}}}}}"#)
    };
    let keys = [
        "parent",
        "mode",
        "bridge",
        "vlan",
        "mtu",
        "gateway",
        "macvlan_mode",
        "client-id",
    ];
    let mut bodies: Vec<_> = keys
        .map(|key| format!(r#"{{{ids},"Options":{}}}"#, generic(key)))
        .into();
    bodies.push(format!(r#"{{"NetworkID":{text},"EndpointID":{text}}}"#));
    bodies.push(format!(
        r#"{{{ids},"IPv4Data":[{{"Pool":{text},"Gateway":{text}}}],"Options":{}}}"#,
        generic("mode")
    ));
    bodies.push(format!(r#"{{{ids},"Interface":{{"Address":{text}}}}}"#));
    bodies.push(format!(r#"{{{ids},"Interface":{{"MacAddress":{text}}}}}"#));
    bodies.push(format!(
        r#"{{{ids},"Options":{{"com.docker.network.endpoint.macaddress":{text}}}}}"#
    ));
    bodies.push(format!(
        r#"{{{ids},"Options":{{"com.docker.network.endpoint.ifname":{text}}}}}"#
    ));
    bodies.into_iter().map(String::into_bytes).collect()
}

/// A network of our driver, as the core answers.
fn found(mode: Mode) -> NetworkRecord {
    NetworkRecord {
        id: DoorId::try_from("4f00".to_owned()).expect("an id"),
        definition: "parent=eth0,client-id=text:a".to_owned(),
        wiring: Wiring {
            mode,
            on: "eth0".to_owned(),
            vlan: 0,
            mtu: None,
        },
        gateway: None,
        pool: Ipv4Net::default(),
        leases: true,
        since: WallTime::from_epoch(Duration::ZERO),
    }
}

fn docker_call(asked: Result<docker::Asked, docker::Refused>, path: &str, host: &docker::Host<'_>) {
    let ipvlan = host.ipvlan;
    let (call, form) = match asked {
        Ok(docker::Asked::Core { call, form }) => (call, form),
        Ok(docker::Asked::Known(text)) => {
            assert!(
                serde_json::from_str::<Value>(&text).is_ok_and(|json| json.is_object()),
                "{text}"
            );
            return;
        }
        Err(docker::Refused::Unknown) => panic!("{path} is libnetwork's"),
        Err(docker::Refused::Undecodable(why) | docker::Refused::Said(why)) => {
            assert!(why.len() < 4096, "{} bytes: {why}", why.len());
            return;
        }
    };
    if let Some(then) = &form.then {
        for mode in [
            Mode::Macvlan(MacvlanMode::Bridge),
            Mode::Bridge,
            Mode::Ipvlan,
        ] {
            docker_call(docker::Asked::about(then, &found(mode), host), path, host);
        }
    }
    match &call {
        Call::Pool(PoolCall::Request(pool)) => {
            assert!(pool.timeout <= Duration::from_secs(20) && !pool.timeout.is_zero());
            let id = PoolId::new(
                &pool.definition,
                pool.subnet.unwrap_or_default(),
                pool.range,
            );
            assert_eq!(
                id.to_string().parse(),
                Ok(id.clone()),
                "a PoolID is read as it was spelled"
            );
            let body = format!(r#"{{"PoolID":{}}}"#, to_json(&id.to_string()));
            let again = docker::Asked::parse(RELEASE_POOL, body.as_bytes(), host);
            assert!(
                matches!(again, Ok(docker::Asked::Core { call: Call::Pool(PoolCall::Release { id: read }), .. }) if read == id)
            );
        }
        Call::Add(add) => {
            assert!(add.timeout <= Duration::from_secs(20) && !add.timeout.is_zero());
            let prefix = add.limits.as_ref().map(|limits| limits.subnet.prefix_len());
            assert!(add.profile.policy.prefix == prefix.filter(|prefix| *prefix != 0));
            can_be_said(add);
        }
        Call::Network(NetworkCall::Create(record)) => {
            let NetworkRecord { wiring, .. } = &**record;
            let names = [
                wiring.on.clone(),
                wiring
                    .vlan()
                    .map_or(String::new(), |vlan| vlan.owner.ifname()),
            ];
            assert!(
                names.iter().all(|name| name.len() <= LONGEST_NAME),
                "{names:?}"
            );
        }
        Call::Network(NetworkCall::CreateEndpoint(request)) => {
            assert_eq!(request.mac.0[0] & 1, 0, "no group's");
            if let EndpointAddress::Leased(add) = &request.address {
                can_be_said(add);
            }
        }
        Call::Network(
            NetworkCall::Delete(_)
            | NetworkCall::Find(_)
            | NetworkCall::Started
            | NetworkCall::DeleteEndpoint(_)
            | NetworkCall::Join { .. },
        ) => {}
        Call::Pool(
            PoolCall::Release { .. } | PoolCall::Reserve { .. } | PoolCall::ReleaseAddress { .. },
        ) => {}
        other => panic!("Docker does not ask for {other:?}"),
    }
    assert!(
        form.warning
            .as_ref()
            .is_none_or(|warning| ipvlan && warning.len() < 4096)
    );
    let docker::Refused::Said(why) = form.unanswered() else {
        panic!("it was read")
    };
    assert!(why.len() < 4096, "{why}");
    if matches!(call, Call::Network(_)) {
        return;
    }
    let text = form
        .answer(&Answer::Reserved(Ipv4Addr::new(192, 168, 1, 7)))
        .expect("an address is a success");
    if path == REQUEST_ADDRESS {
        assert!(
            serde_json::from_str::<Value>(&text).is_ok_and(|json| json["Address"].is_string()),
            "{text}"
        );
    }
}

/// Everything that a configuration makes a client say is there, in the form of RFC 2131 table 5.
fn can_be_said(add: &Add) {
    let client_id = add.client_id.resolve(MAC);
    let sender = Sender::new(MAC, &client_id, add.profile.client.clone());
    let frame = sender.discover(1, 0, add.wanted.map(|wanted| wanted.address));
    let mut found = Judge::default().client_frame(Duration::ZERO, &frame);
    // Rapid commit (80, RFC 4039) has no value.
    found.retain(|violation| !matches!(violation, Violation::Length(80, 0)));
    assert!(found.is_empty(), "{found:?} of {:?}", add.profile);
    let Ok(model::Frame {
        packet: Packet::Udp { payload, .. },
        ..
    }) = model::decode(&frame)
    else {
        panic!("no UDP")
    };
    let message = model::Message::decode(payload).expect("the judge has read it");
    let has = |code| message.option(code).is_some();
    assert_eq!(message.option(code::CLIENT_ID), Some(client_id.as_bytes()));
    for (code, value) in &add.profile.client.provide {
        assert_eq!(
            message.option(*code),
            Some(value.as_slice()),
            "option {code}"
        );
    }
    let ClientProfile {
        hostname,
        fqdn,
        vendor_class,
        user_class,
        rapid_commit,
        ..
    } = &*add.profile.client;
    let said = [
        hostname.is_some(),
        vendor_class.is_some(),
        user_class.is_some(),
        fqdn.is_some(),
        *rapid_commit,
    ];
    assert_eq!([12, 60, 77, 81, 80].map(has), said, "{:?}", add.profile);
}

/// An error quotes its subject, but not a megabyte of it.
fn is_short(error: &Error) {
    let json = to_json(error);
    assert!(json.len() < 4096, "{} bytes", json.len());
    let read: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(read["msg"], *error.msg);
}

fn lease() -> Lease {
    Lease {
        address: "192.0.2.10/24".parse().expect("an address"),
        source: Source::Server,
        server: Ipv4Addr::new(192, 0, 2, 1),
        server_mac: Mac([2, 0, 0, 0, 0, 1]),
        start: Instant::from_boot(Duration::from_secs(5)),
        times: None,
        gateway: Some(Ipv4Addr::new(192, 0, 2, 1)),
        routes: Vec::new(),
        dns: vec![Ipv4Addr::new(192, 0, 2, 53)],
        domain: Some("example.net".to_owned()),
        search: Vec::new(),
        mtu: NonZeroU16::new(1400),
    }
}
