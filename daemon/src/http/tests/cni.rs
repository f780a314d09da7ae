use std::path::Path;
use std::time::Duration;

use leasehold_api::cni::{Code, Error, Version};
use leasehold_core::effect::{Answer, Call, Failure, StoreCause};
use leasehold_core::identity::{Attachment, Lan};
use leasehold_core::link::{LinkCause, Place};
use leasehold_core::wire::Mac;

use super::super::cni::Asked;
use super::{CONFIG, add, leased, parse, request, rows, with_config};

fn asked(verb: &str, config: &str) -> Result<Asked, Error> {
    parse(&with_config(verb, config))
}

/// Returns the code with which this is refused.
fn code(verb: &str, config: &str) -> Code {
    asked(verb, config).unwrap_err().code
}

fn attachment() -> Attachment {
    Attachment::cni("lan", "abc", "net1")
}

#[test]
fn an_add_is_passed_on_whole() {
    let add = add(&request("ADD"));
    assert_eq!(add.attachment, attachment());
    assert_eq!(add.place.netns(), Some(Path::new("/run/netns/abc")));
    assert_eq!(
        add.lan,
        Lan::Link {
            parent: "eth0".into(),
            vlan: 0
        }
    );
    assert_eq!(
        add.client_id.resolve(Mac::default()).as_bytes(),
        b"\0abc/lan/net1"
    );
    assert_eq!(add.timeout, Duration::from_secs(30));
}

#[test]
fn the_hosts_namespace_is_allowed_in_libcnis_words() {
    for (said, allowed) in [
        (None, false),
        (Some("1"), true),
        (Some("TRUE"), true),
        (Some("yes"), false),
    ] {
        let mut request = request("ADD");
        request.env.netns_override = said.map(str::to_owned);
        let Place::InNetns(at) = add(&request).place else {
            panic!("not in a namespace")
        };
        assert_eq!(
            (at.ifname.as_str(), at.host_too),
            ("net1", allowed),
            "{said:?}"
        );
    }
}

#[test]
fn the_lan_is_the_parent_link_or_else_the_network() {
    let link = |parent: &str, vlan| Lan::Link {
        parent: parent.into(),
        vlan,
    };
    let network = || Lan::Network("lan".into());
    let table = [
        (
            r#""type": "vlan", "master": "eth0", "vlanId": 5"#,
            link("eth0", 5),
        ),
        (
            r#""type": "bridge", "bridge": "br0", "vlan": 100"#,
            link("br0", 100),
        ),
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
    assert_eq!(
        parse(&request).unwrap().call,
        Call::Del {
            attachment: attachment(),
            grace: None
        }
    );
}

#[test]
fn a_check_expects_the_addresses_of_its_interface() {
    let config = r#"{"cniVersion": "1.0.0", "name": "lan", "prevResult": {
        "interfaces": [{"name": "net1", "sandbox": "/run/netns/abc"}, {"name": "veth7"}],
        "ips": [{"address": "192.0.2.10/24", "interface": 0}, {"address": "10.0.0.1/24", "interface": 1},
                {"address": "fd00::1/64", "interface": 0}]}}"#;
    let expected = ["192.0.2.10/24", "fd00::1/64"]
        .map(|address| address.parse().unwrap())
        .to_vec();
    assert_eq!(
        asked("CHECK", config).unwrap().call,
        Call::Check {
            attachment: attachment(),
            expected
        }
    );
    assert_eq!(
        parse(&request("CHECK")).unwrap().call,
        Call::Check {
            attachment: attachment(),
            expected: Vec::new()
        }
    );
}

#[test]
fn an_unreadable_prev_result_matters_to_check_alone() {
    let config =
        r#"{"cniVersion": "1.0.0", "name": "lan", "prevResult": {"ips": [{"address": "here"}]}}"#;
    assert_eq!(code("CHECK", config), Code::Decode);
    assert!(asked("DEL", config).is_ok());
    assert!(asked("ADD", config).is_ok());
}

#[test]
fn a_bad_environment_is_named() {
    let [long_id, long_link, long_path] = ["x".repeat(256), "x".repeat(16), "/x".repeat(4000)];
    let table = [
        ("CNI_COMMAND", "ADD", &["add", "VERSION"][..]),
        (
            "CNI_CONTAINERID",
            "DEL",
            &["", "-abc", "a/b", "a\n", &long_id],
        ),
        ("CNI_IFNAME", "DEL", &[]),
        (
            "CNI_IFNAME",
            "ADD",
            &["..", "a/b", "a:b", "a b", &long_link],
        ),
        ("CNI_NETNS", "CHECK", &[]),
        ("CNI_NETNS", "ADD", &["run/netns/x", "/run/\0", &long_path]),
    ];
    for (variable, verb, values) in table {
        for value in values
            .iter()
            .map(|value| Some((*value).to_owned()))
            .chain([None])
        {
            let mut request = request(verb);
            let said = match variable {
                "CNI_COMMAND" => &mut request.env.command,
                "CNI_CONTAINERID" => &mut request.env.container_id,
                "CNI_IFNAME" => &mut request.env.ifname,
                _ => &mut request.env.netns,
            };
            *said = value;
            let error = parse(&request).unwrap_err();
            assert_eq!(error.code, Code::InvalidEnvironment, "{error:?}");
            assert!(error.msg.starts_with(&format!("{variable}: ")), "{error:?}");
        }
    }
}

#[test]
fn a_bad_configuration_has_the_code_of_its_fault() {
    let table = r#"
        => Decode
        [] => Decode
        {"name": 7} => Decode
        {"cniVersion": "0.3.2", "name": "lan"} => IncompatibleVersion
        {"cniVersion": "2.0.0", "name": "lan"} => IncompatibleVersion
        {"cniVersion": "1.0.0"} => InvalidConfig
        {"cniVersion": "1.0.0", "name": "a/b"} => InvalidConfig
        {"cniVersion": "1.0.0", "name": "."} => InvalidConfig
    "#;
    for [config, code] in rows(table) {
        for verb in ["ADD", "DEL", "CHECK"] {
            let error = asked(verb, config).unwrap_err();
            assert_eq!(format!("{:?}", error.code), code, "{verb} {config}");
        }
    }
}

#[test]
fn each_verb_begins_with_a_version() {
    use Version::*;
    let keys = r#""name": "lan", "cni.dev/valid-attachments": []"#;
    for (verb, since) in [
        ("ADD", V0_1_0),
        ("DEL", V0_1_0),
        ("CHECK", V0_4_0),
        ("GC", V1_1_0),
        ("STATUS", V1_1_0),
    ] {
        for version in Version::ALL {
            let config = format!(r#"{{"cniVersion": "{version}", {keys}}}"#);
            let result = asked(verb, &config);
            if version < since {
                let error = result.unwrap_err();
                assert_eq!(
                    (error.code, error.cni_version),
                    (Code::IncompatibleVersion, version),
                    "{error:?}"
                );
                assert!(
                    error
                        .msg
                        .starts_with(&format!("cniVersion {version} has no {verb}")),
                    "{error:?}"
                );
            } else {
                assert!(result.is_ok(), "{verb} {version}: {result:?}");
            }
        }
    }
    let unsaid = format!("{{{keys}}}");
    assert!(asked("ADD", &unsaid).is_ok());
    assert_eq!(code("CHECK", &unsaid), Code::IncompatibleVersion);
}

#[test]
fn gc_names_what_is_to_be_kept() {
    let config = r#"{"cniVersion": "1.1.0", "name": "lan", "ipam": {"priority": "x"},
        "cni.dev/valid-attachments": [{"containerID": "a", "ifname": "eth0"}],
        "cni.dev/attachments": [{"containerID": "b", "ifname": "net1"}]}"#;
    let mut request = with_config("GC", config);
    (
        request.env.container_id,
        request.env.ifname,
        request.env.netns,
    ) = (None, None, None);
    let asked = parse(&request).unwrap();
    let keep = vec![
        ("a".to_owned(), "eth0".to_owned()),
        ("b".to_owned(), "net1".to_owned()),
    ];
    assert_eq!(
        asked.call,
        Call::Collect {
            network: "lan".into(),
            keep
        }
    );
    assert_eq!(asked.form.answer(&Answer::Collected), Ok(String::new()));
    let error = asked
        .form
        .answer(&Answer::Failed(Failure::NotCollected(vec![
            "lan/c/eth0: store full".into(),
        ])))
        .unwrap_err();
    assert_eq!(
        (error.code, error.details.as_str()),
        (Code::TryAgainLater, "GC of lan")
    );
}

#[test]
fn a_gc_that_names_nothing_collects_nothing() {
    let table = r#"
        {"cniVersion": "1.1.0", "name": "lan"} => cni.dev/valid-attachments: missing
        {"cniVersion": "1.1.0", "cni.dev/valid-attachments": []} => the network's name: missing
        {"cniVersion": "1.1.0", "name": "lan", "cni.dev/valid-attachments": [{"ifname": "eth0"}]} => cni.dev/valid-attachments[0].containerID: missing
    "#;
    for [config, fault] in rows(table) {
        let error = asked("GC", config).unwrap_err();
        assert_eq!(
            (error.code, error.msg.as_str()),
            (Code::InvalidConfig, fault)
        );
    }
}

#[test]
fn status_looks_at_the_link_that_has_to_be_there() {
    let table = r#"
        "type": "macvlan", "master": "eth0" => eth0
        "type": "vlan", "master": "eth0", "vlanId": 5 => eth0
        "type": "macvlan", "master": "eth0", "linkInContainer": true =>
        "type": "bridge", "bridge": "br0" =>
        "type": "bridge" =>
        "type": "ptp" =>
    "#;
    for [keys, parent] in rows(table) {
        let mut request = with_config("STATUS", &format!(r#"{{"cniVersion": "1.1.0", {keys}}}"#));
        (
            request.env.container_id,
            request.env.ifname,
            request.env.netns,
        ) = (None, None, None);
        let parent = Some(parent.to_owned()).filter(|parent| !parent.is_empty());
        assert_eq!(
            parse(&request).unwrap().call,
            Call::Status { parent },
            "{keys}"
        );
    }
}

#[test]
fn status_says_what_keeps_an_add_from_being_served() {
    let asked = asked("STATUS", r#"{"cniVersion": "1.1.0", "name": "lan"}"#).unwrap();
    assert_eq!(asked.form.answer(&Answer::Ready), Ok(String::new()));
    let error = asked
        .form
        .answer(&Answer::Failed(Failure::NotReady("store full".into())))
        .unwrap_err();
    assert_eq!(
        (error.code, error.msg.as_str(), error.details.as_str()),
        (Code::NotAvailable, "store full", "STATUS")
    );
    assert_eq!(asked.form.unanswered().code, Code::NotAvailable);
    assert_eq!(
        parse(&request("ADD")).unwrap().form.unanswered().code,
        Code::TryAgainLater
    );
    let config = r#"{"cniVersion": "1.1.0", "ipam": {"timeout": "x"}}"#;
    assert_eq!(code("STATUS", config), Code::InvalidConfig);
}

#[test]
fn a_del_succeeds_whatever_made_its_add_fail() {
    let config = r#"{"name": "lan", "ipam": {"timeout": "x", "clientId": "pod"}, "args": [], "runtimeConfig": {"mac": 1}}"#;
    assert_eq!(code("ADD", config), Code::InvalidConfig);
    assert_eq!(
        asked("DEL", config).unwrap().call,
        Call::Del {
            attachment: attachment(),
            grace: None
        }
    );
}

#[test]
fn a_del_says_how_long_a_returning_identity_is_awaited() {
    let mac = r#", "runtimeConfig": {"mac": "02:00:00:00:00:ab"}"#;
    let table = [
        (r#"{"clientId": "pod"}"#, "", Some(60)),
        (r#"{"clientId": "text:{pod}", "grace": 0}"#, "", Some(0)),
        (r#"{"clientId": "mac", "grace": 7}"#, mac, Some(7)),
        (r#"{"clientId": "mac", "grace": 7}"#, "", None),
        (r#"{"grace": 7}"#, mac, None),
        (
            r#"{"provide": [{"option": "61", "value": "printer"}]}"#,
            "",
            Some(60),
        ),
    ];
    for (ipam, also, said) in table {
        let config = format!(r#"{{"cniVersion": "1.1.0", "name": "lan", "ipam": {ipam}{also}}}"#);
        let Call::Del { grace, .. } = asked("DEL", &config).unwrap().call else {
            panic!("a DEL")
        };
        assert_eq!(grace, said, "{config}");
    }
}

#[test]
fn an_error_speaks_the_version_of_its_configuration() {
    let config = CONFIG.replace("1.0.0", "0.4.0");
    let mut request = with_config("ADD", &config);
    request.env.ifname = None;
    assert_eq!(parse(&request).unwrap_err().cni_version.as_str(), "0.4.0");
    let unread = with_config("ADD", "{");
    assert_eq!(parse(&unread).unwrap_err().cni_version.as_str(), "1.1.0");
}

/// Main plugins before CNI 1.1.0 refuse a router outside the subnet: the daemon adds these routes itself.
#[test]
fn a_result_lacks_routes_that_main_plugins_refuse() {
    let asked = parse(&request("ADD")).unwrap();
    let result: serde_json::Value =
        serde_json::from_str(&asked.form.answer(&leased(&asked.call)).unwrap()).unwrap();
    assert_eq!(
        result,
        serde_json::json!({
            "cniVersion": "1.0.0",
            "ips": [{"address": "192.0.2.10/24", "gateway": "198.51.100.1"}],
            "dns": {"nameservers": ["192.0.2.53"], "domain": "example.net", "search": ["example.net", "example.org"]},
        })
    );
}

#[test]
fn the_configuration_has_its_say_in_routes() {
    let result = |version: &str, ipam: &str| -> serde_json::Value {
        let config = format!(r#"{{"cniVersion": "{version}", "name": "lan", "ipam": {ipam}}}"#);
        let asked = asked("ADD", &config).unwrap();
        serde_json::from_str(&asked.form.answer(&leased(&asked.call)).unwrap()).unwrap()
    };
    let ipam = r#"{"priority": 10, "routes": [{"dst": "10.0.0.0/8"}, {"dst": "10.9.0.0/16", "gw": "192.0.2.9",
                   "priority": 5, "mtu": 9000}]}"#;
    assert_eq!(
        result("1.1.0", ipam)["routes"],
        serde_json::json!([
            {"dst": "198.51.100.1/32", "gw": "0.0.0.0", "mtu": 1400, "priority": 10, "scope": 253},
            {"dst": "0.0.0.0/0", "gw": "198.51.100.1", "mtu": 1400, "priority": 10},
            {"dst": "10.0.0.0/8", "gw": "198.51.100.1", "priority": 10},
            {"dst": "10.9.0.0/16", "gw": "192.0.2.9", "mtu": 9000, "priority": 5},
        ])
    );
    let suppressed = result(
        "0.2.0",
        r#"{"suppressDefaultRoute": true, "routes": [{"dst": "10.0.0.0/8"}]}"#,
    );
    assert_eq!(
        suppressed["ip4"],
        serde_json::json!({"ip": "192.0.2.10/24"})
    );
}

#[test]
fn del_and_check_succeed_without_a_word() {
    assert_eq!(
        parse(&request("DEL"))
            .unwrap()
            .form
            .answer(&Answer::Deleted),
        Ok(String::new())
    );
    assert_eq!(
        parse(&request("CHECK"))
            .unwrap()
            .form
            .answer(&Answer::Checked),
        Ok(String::new())
    );
}

#[test]
fn every_kind_of_failure_has_its_code() {
    let link = |cause| Failure::Link {
        target: "net1 in /run/netns/abc".into(),
        cause,
    };
    let net = "192.0.2.10/24".parse().unwrap();
    let table = [
        (link(LinkCause::NoNetns("/run/netns/abc".into())), 4),
        (link(LinkCause::NoLink("net1".into())), 4),
        (link(LinkCause::NotEthernet("net1".into())), 7),
        (link(LinkCause::Down), 11),
        (link(LinkCause::refused("bind", "EPERM")), 5),
        (Failure::Store(StoreCause::Full), 11),
        (Failure::NotReady("store full".into()), 50),
        (Failure::Unknown(attachment()), 3),
        (
            Failure::NotOnLink {
                attachment: attachment(),
                address: net,
                ifname: "net1".into(),
            },
            100,
        ),
    ];
    let asked = parse(&request("ADD")).unwrap();
    for (failure, code) in table {
        let error = asked
            .form
            .answer(&Answer::Failed(failure.clone()))
            .unwrap_err();
        assert_eq!(u32::from(error.code), code, "{failure:?}");
        assert!(error.msg.contains(&failure.to_string()), "{error:?}");
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
    let table = r#"
        ADD => {"name": "lan", "ipam": {"broadcast": "LONG"}}
        ADD => {"name": "lan", "ipam": {"clientId": "LONG"}}
        ADD => {"name": "lan", "ipam": {"hostname": "{LONG}"}}
        ADD => {"name": "lan", "ipam": {"servers": {"LONG": 1}}}
        ADD => {"name": "lan", "runtimeConfig": {"mac": "LONG"}}
        ADD => {"name": "lan", "runtimeConfig": {"ips": ["LONG"]}}
        ADD => {"cniVersion": "LONG"}
        CHECK => {"cniVersion": "1.0.0", "name": "lan", "prevResult": {"ips": "LONG"}}
    "#;
    let configs =
        rows(table).map(|[verb, config]| with_config(verb, &config.replace("LONG", &long)));
    for request in [command, netns].into_iter().chain(configs) {
        let error = parse(&request).unwrap_err();
        assert!(error.msg.len() < 400, "{} bytes", error.msg.len());
    }
}
