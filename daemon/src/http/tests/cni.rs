use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_api::cni::{Code, Request};
use leasehold_core::effect::{Answer, Call, Failure, StoreCause};
use leasehold_core::identity::{Attachment, ClientId, Door, Lan};
use leasehold_core::link::LinkCause;
use leasehold_core::wire::Mac;

use super::super::cni::{Asked, Defaults};
use super::{CONFIG, lease, request};

fn attachment() -> Attachment {
    Attachment { door: Door::Cni, network: "lan".into(), container: "abc".into(), ifname: "net1".into() }
}

fn with_config(verb: &str, config: &str) -> Request {
    Request { config: config.into(), ..request(verb) }
}

fn add(request: &Request) -> leasehold_core::effect::Add {
    match Asked::parse(request).unwrap().call {
        Call::Add(add) => *add,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_add_is_passed_on_whole() {
    let add = add(&request("ADD"));
    assert_eq!(add.attachment, attachment());
    assert_eq!(add.netns, PathBuf::from("/run/netns/abc"));
    assert_eq!(add.lan, Lan::Link { parent: "eth0".into(), vlan: 0 });
    assert_eq!(add.client_id.resolve(Mac::default()).as_bytes(), b"\0abc/lan/net1");
    assert_eq!(add.timeout, Duration::from_secs(30));
}

#[test]
fn the_configuration_says_how_long_an_add_may_take() {
    let config = r#"{"cniVersion": "1.0.0", "name": "lan", "ipam": {"timeout": 90}}"#;
    assert_eq!(add(&with_config("ADD", config)).timeout, Duration::from_secs(90));
}

#[test]
fn the_daemon_says_it_where_the_configuration_does_not() {
    let defaults = Defaults { timeout: Duration::from_secs(208), broadcast: true };
    let with = |timeout: &str| {
        let config = format!(r#"{{"cniVersion": "1.0.0", "name": "lan", "ipam": {{"timeout": {timeout}}}}}"#);
        match Asked::parse_with(&with_config("ADD", &config), &defaults).unwrap().call {
            Call::Add(add) => (add.timeout.as_secs(), add.profile.broadcast),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!([with("null"), with("0"), with("90")], [(208, true), (208, true), (90, true)]);
}

#[test]
fn the_hosts_namespace_is_allowed_in_libcnis_words() {
    for (said, allowed) in [(None, false), (Some("1"), true), (Some("TRUE"), true), (Some("yes"), false)] {
        let mut request = request("ADD");
        request.env.netns_override = said.map(str::to_owned);
        assert_eq!(add(&request).host_netns, allowed, "{said:?}");
    }
}

#[test]
fn the_client_identifier_is_the_incumbents_cut_to_one_option() {
    let mut request = request("ADD");
    request.env.container_id = Some("c".repeat(255));
    let id = add(&request).client_id.resolve(Mac::default());
    assert_eq!(id.as_bytes().len(), 255);
    assert_eq!(id.as_bytes()[0], 0);
    assert!(id.as_bytes()[1..].iter().all(|b| *b == b'c'));
}

#[test]
fn the_lan_is_the_parent_link_or_else_the_network() {
    let link = |parent: &str, vlan| Lan::Link { parent: parent.into(), vlan };
    let network = || Lan::Network("lan".into());
    let table = [
        (r#""type": "vlan", "master": "eth0", "vlanId": 5"#, link("eth0", 5)),
        (r#""type": "bridge", "bridge": "br0", "vlan": 100"#, link("br0", 100)),
        (r#""parent": "bond0""#, link("bond0", 0)),
        (r#""master": "../eth0""#, network()),
        (r#""master": "eth 0""#, network()),
        (r#""master": "eth0\u0000""#, network()),
        (r#""type": "ptp""#, network()),
    ];
    for (keys, lan) in table {
        let config = format!(r#"{{"cniVersion": "0.4.0", "name": "lan", {keys}}}"#);
        assert_eq!(add(&with_config("ADD", &config)).lan, lan, "{keys}");
    }
}

#[test]
fn a_del_needs_no_namespace() {
    let mut request = request("DEL");
    request.env.netns = None;
    assert_eq!(Asked::parse(&request).unwrap().call, Call::Del { attachment: attachment() });
}

#[test]
fn a_check_expects_the_addresses_of_its_interface() {
    let config = r#"{"cniVersion": "1.0.0", "name": "lan", "prevResult": {
        "interfaces": [{"name": "net1", "sandbox": "/run/netns/abc"}, {"name": "veth7"}],
        "ips": [{"address": "192.0.2.10/24", "interface": 0}, {"address": "10.0.0.1/24", "interface": 1},
                {"address": "fd00::1/64", "interface": 0}]}}"#;
    let expected = vec!["192.0.2.10/24".parse().unwrap()];
    assert_eq!(
        Asked::parse(&with_config("CHECK", config)).unwrap().call,
        Call::Check { attachment: attachment(), expected }
    );
    assert_eq!(
        Asked::parse(&request("CHECK")).unwrap().call,
        Call::Check { attachment: attachment(), expected: Vec::new() }
    );
}

#[test]
fn an_unreadable_prev_result_matters_to_check_alone() {
    let config = r#"{"cniVersion": "1.0.0", "name": "lan", "prevResult": {"ips": [{"address": "here"}]}}"#;
    assert_eq!(Asked::parse(&with_config("CHECK", config)).unwrap_err().code, Code::Decode);
    assert!(Asked::parse(&with_config("DEL", config)).is_ok());
    assert!(Asked::parse(&with_config("ADD", config)).is_ok());
}

#[test]
fn a_bad_environment_is_named() {
    type Change = fn(&mut Request);
    let table: [(&str, &str, Change); 20] = [
        ("CNI_COMMAND", "ADD", |r| r.env.command = None),
        ("CNI_COMMAND", "ADD", |r| r.env.command = Some("add".into())),
        ("CNI_COMMAND", "GC", |_| {}),
        ("CNI_CONTAINERID", "ADD", |r| r.env.container_id = None),
        ("CNI_CONTAINERID", "DEL", |r| r.env.container_id = Some(String::new())),
        ("CNI_CONTAINERID", "DEL", |r| r.env.container_id = Some("-abc".into())),
        ("CNI_CONTAINERID", "DEL", |r| r.env.container_id = Some("a/b".into())),
        ("CNI_CONTAINERID", "DEL", |r| r.env.container_id = Some("a\n".into())),
        ("CNI_CONTAINERID", "DEL", |r| r.env.container_id = Some("x".repeat(256))),
        ("CNI_IFNAME", "DEL", |r| r.env.ifname = None),
        ("CNI_IFNAME", "ADD", |r| r.env.ifname = Some("..".into())),
        ("CNI_IFNAME", "ADD", |r| r.env.ifname = Some("a/b".into())),
        ("CNI_IFNAME", "ADD", |r| r.env.ifname = Some("a:b".into())),
        ("CNI_IFNAME", "ADD", |r| r.env.ifname = Some("a b".into())),
        ("CNI_IFNAME", "ADD", |r| r.env.ifname = Some("x".repeat(16))),
        ("CNI_NETNS", "ADD", |r| r.env.netns = None),
        ("CNI_NETNS", "CHECK", |r| r.env.netns = None),
        ("CNI_NETNS", "ADD", |r| r.env.netns = Some("run/netns/x".into())),
        ("CNI_NETNS", "ADD", |r| r.env.netns = Some("/run/\0".into())),
        ("CNI_NETNS", "ADD", |r| r.env.netns = Some("/x".repeat(4000))),
    ];
    for (variable, verb, change) in table {
        let mut request = request(verb);
        change(&mut request);
        let error = Asked::parse(&request).unwrap_err();
        assert_eq!(error.code, Code::InvalidEnvironment, "{error:?}");
        assert!(error.msg.starts_with(&format!("{variable}: ")), "{error:?}");
    }
}

#[test]
fn a_bad_configuration_has_the_code_of_its_fault() {
    let table = [
        ("", Code::Decode),
        ("[]", Code::Decode),
        (r#"{"name": 7}"#, Code::Decode),
        (r#"{"name": "lan"}"#, Code::IncompatibleVersion),
        (r#"{"cniVersion": "0.3.1", "name": "lan"}"#, Code::IncompatibleVersion),
        (r#"{"cniVersion": "2.0.0", "name": "lan"}"#, Code::IncompatibleVersion),
        (r#"{"cniVersion": "1.0.0"}"#, Code::InvalidConfig),
        (r#"{"cniVersion": "1.0.0", "name": "a/b"}"#, Code::InvalidConfig),
        (r#"{"cniVersion": "1.0.0", "name": "."}"#, Code::InvalidConfig),
    ];
    for (config, code) in table {
        for verb in ["ADD", "DEL", "CHECK"] {
            assert_eq!(Asked::parse(&with_config(verb, config)).unwrap_err().code, code, "{verb} {config}");
        }
    }
}

#[test]
fn an_error_speaks_the_version_of_its_configuration() {
    let config = CONFIG.replace("1.0.0", "0.4.0");
    let mut request = with_config("ADD", &config);
    request.env.ifname = None;
    assert_eq!(Asked::parse(&request).unwrap_err().cni_version.as_str(), "0.4.0");
    let unread = with_config("ADD", "{");
    assert_eq!(Asked::parse(&unread).unwrap_err().cni_version.as_str(), "1.1.0");
}

#[test]
fn a_lease_becomes_a_result_with_on_link_routes_first() {
    let asked = Asked::parse(&request("ADD")).unwrap();
    let result: serde_json::Value =
        serde_json::from_str(&asked.answer(&Answer::Leased(Box::new(lease()))).unwrap()).unwrap();
    assert_eq!(
        result,
        serde_json::json!({
            "cniVersion": "1.0.0",
            "ips": [{"address": "192.0.2.10/24", "gateway": "198.51.100.1"}],
            "routes": [{"dst": "198.51.100.1/32", "gw": "0.0.0.0"}, {"dst": "0.0.0.0/0", "gw": "198.51.100.1"}],
            "dns": {"nameservers": ["192.0.2.53"], "domain": "example.net", "search": ["example.net", "example.org"]},
        })
    );
}

#[test]
fn del_and_check_succeed_without_a_word() {
    assert_eq!(Asked::parse(&request("DEL")).unwrap().answer(&Answer::Deleted), Ok(String::new()));
    assert_eq!(Asked::parse(&request("CHECK")).unwrap().answer(&Answer::Checked), Ok(String::new()));
}

#[test]
fn every_failure_has_its_code() {
    let a = Ipv4Addr::new(192, 0, 2, 1);
    let lan = || Lan::Network("lan".into());
    let second = Duration::from_secs(1);
    let link = |cause| Failure::Link { target: "net1 in /run/netns/abc".into(), cause };
    let p = || PathBuf::from("/run/netns/abc");
    let net = "192.0.2.10/24".parse().unwrap();
    let table = [
        (link(LinkCause::NoNetns(p())), 4),
        (link(LinkCause::NotANetns(p())), 4),
        (link(LinkCause::HostNetns(p())), 4),
        (link(LinkCause::NetnsChanged(p())), 4),
        (link(LinkCause::NoLink("net1".into())), 4),
        (link(LinkCause::NotEthernet("net1".into())), 7),
        (link(LinkCause::Down), 11),
        (link(LinkCause::Refused { doing: "bind", reason: "EPERM".into() }), 5),
        (link(LinkCause::TimedOut), 11),
        (Failure::NoCarrier { ifname: "net1".into(), waited: second }, 11),
        (Failure::NoOffer { lan: lan(), sent: 3, waited: second, answers: 0, refused: 0, last_refusal: None }, 11),
        (Failure::NoAck { server: a, address: a, sent: 2, waited: second }, 11),
        (Failure::Nak { server: a, address: a, message: None }, 11),
        (Failure::TimedOut { waiting_for: "the store", waited: second }, 11),
        (Failure::Store(StoreCause::Full), 11),
        (Failure::Held { lan: lan(), client_id: ClientId::new(vec![0, 1]).unwrap(), holder: attachment() }, 11),
        (Failure::Cancelled(attachment()), 11),
        (Failure::Attached { attachment: attachment(), netns: p() }, 11),
        (Failure::Unknown(attachment()), 3),
        (Failure::Differs { attachment: attachment(), held: net, expected: "192.0.2.11/24".into() }, 100),
        (Failure::NotOnLink { attachment: attachment(), address: net, ifname: "net1".into() }, 100),
    ];
    let asked = Asked::parse(&request("ADD")).unwrap();
    for (failure, code) in table {
        let error = asked.answer(&Answer::Failed(failure.clone())).unwrap_err();
        assert_eq!(u32::from(error.code), code, "{failure:?}");
        assert!(error.msg.ends_with(&failure.to_string()), "{error:?}");
        assert_eq!(error.details, "ADD of lan/abc/net1");
        if error.code == Code::InvalidEnvironment {
            assert!(error.msg.starts_with("CNI_"), "{error:?}");
        }
    }
}

#[test]
fn an_error_does_not_repeat_a_megabyte_from_outside() {
    let long = "x".repeat(1 << 19);
    let mut command = request("ADD");
    command.env.command = Some(long.clone());
    let mut netns = request("ADD");
    netns.env.netns = Some(long.clone());
    let requests = [
        command,
        netns,
        with_config("ADD", &format!(r#"{{"ipam": {{"timeout": "{long}"}}}}"#)),
        with_config("ADD", &format!(r#"{{"cniVersion": "{long}"}}"#)),
        with_config(
            "CHECK",
            &format!(r#"{{"cniVersion": "1.0.0", "name": "lan", "prevResult": {{"ips": "{long}"}}}}"#),
        ),
    ];
    for request in requests {
        let error = Asked::parse(&request).unwrap_err();
        assert!(error.msg.len() < 400, "{} bytes", error.msg.len());
    }
}
