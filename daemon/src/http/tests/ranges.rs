use std::path::Path;

use leasehold_api::cni::{Code, Version};
use leasehold_core::effect::{Answer, Call, Failure, RangeAdd, RangeAnswer, RangeCall};
use leasehold_core::identity::{AddressHolder, Attachment, Lan};
use leasehold_core::range::{Given, NoAddress};
use serde_json::{Value, json};

use super::{parse, with_config};
use crate::http::Asked;

fn config(version: &str, ipam: Value) -> String {
    let mut ipam = ipam;
    ipam["type"] = "host-local".into();
    json!({"cniVersion": version, "name": "pods", "type": "bridge", "ipam": ipam}).to_string()
}

fn asked(verb: &str, config: &str) -> Asked {
    parse(&with_config(verb, config)).unwrap()
}

fn add(config: &str) -> RangeAdd {
    match asked("ADD", config).call {
        Call::Ranges(RangeCall::Add(add)) => *add,
        other => panic!("{other:?}"),
    }
}

fn given() -> Answer {
    let of = |address: &str, gateway: &str| Given {
        address: address.parse().unwrap(),
        gateway: gateway.parse().unwrap(),
    };
    Answer::Ranges(RangeAnswer::Given(vec![
        of("10.0.0.2/24", "10.0.0.1"),
        of("fd00::2/64", "fd00::1"),
    ]))
}

#[test]
fn the_type_says_where_addresses_come_from() {
    let add = add(&config(
        "1.0.0",
        json!({"subnet": "10.0.0.0/24", "timeout": 5}),
    ));
    assert_eq!(add.attachment, Attachment::cni("pods", "abc", "net1"));
    assert_eq!(add.netns, Path::new("/run/netns/abc"));
    assert_eq!(
        add.lan,
        Lan::Link {
            parent: "cni0".into(),
            vlan: 0
        }
    );
    assert_eq!(add.directory, Path::new("/var/lib/cni/networks/pods"));
    assert_eq!((add.returns_as, add.timeout.as_secs()), (None, 5));
    assert!(
        add.sets
            .ranges()
            .any(|(_, range)| range.contains([10, 0, 0, 9].into()))
    );
}

#[test]
fn a_pod_is_known_by_its_name() {
    let of = |kind: &str| {
        parse(&with_config(
            "ADD",
            &config("1.0.0", json!({"subnet": "10.0.0.0/24", "clientId": kind})),
        ))
    };
    let mut request = with_config(
        "ADD",
        &config("1.0.0", json!({"subnet": "10.0.0.0/24", "clientId": "pod"})),
    );
    request.env.args = Some("K8S_POD_NAMESPACE=default;K8S_POD_NAME=db-0".into());
    let Call::Ranges(RangeCall::Add(add)) = parse(&request).unwrap().call else {
        panic!("no ADD")
    };
    assert_eq!(add.returns_as.unwrap().as_bytes(), b"\0default/db-0/net1");
    let Call::Ranges(RangeCall::Add(add)) = of("container").unwrap().call else {
        panic!("no ADD")
    };
    assert_eq!(add.returns_as, None);
    for nobody in ["mac", "none"] {
        let error = of(nobody).unwrap_err();
        assert!(error.msg.contains(&format!("{nobody} needs an interface")));
        assert_eq!(error.code, Code::InvalidConfig);
    }
}

#[test]
fn a_result_has_what_the_configuration_says_besides() {
    let ipam = json!({
        "ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "fd00::/64"}]],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "fd01::/64", "gw": "fd00::9", "mtu": 1400}],
    });
    let render = |version: &str| {
        let mut request = with_config("ADD", &config(version, ipam.clone()));
        request.resolv_conf = Some("nameserver 192.0.2.53\noptions ndots:2\n".into());
        let text = parse(&request).unwrap().form.answer(&given()).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let dns = json!({"nameservers": ["192.0.2.53"], "options": ["ndots:2"]});
    let ips = json!([
        {"address": "10.0.0.2/24", "gateway": "10.0.0.1"},
        {"address": "fd00::2/64", "gateway": "fd00::1"},
    ]);
    assert_eq!(
        render("1.1.0"),
        json!({
            "cniVersion": "1.1.0", "ips": ips, "dns": dns,
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "fd01::/64", "gw": "fd00::9", "mtu": 1400}],
        })
    );
    assert_eq!(
        render("1.0.0")["routes"],
        json!([{"dst": "0.0.0.0/0"}, {"dst": "fd01::/64", "gw": "fd00::9"}])
    );
    assert_eq!(
        render("0.2.0"),
        json!({
            "cniVersion": "0.2.0", "dns": dns,
            "ip4": {"ip": "10.0.0.2/24", "gateway": "10.0.0.1", "routes": [{"dst": "0.0.0.0/0"}]},
            "ip6": {"ip": "fd00::2/64", "gateway": "fd00::1", "routes": [{"dst": "fd01::/64", "gw": "fd00::9"}]},
        })
    );
}

#[test]
fn other_verbs_know_the_directory_and_refuse_what_host_local_refuses() {
    let good = config(
        "1.1.0",
        json!({"subnet": "10.0.0.0/24", "dataDir": "/run/x"}),
    );
    let bad = config(
        "1.1.0",
        json!({"subnet": "10.0.0.0/32", "dataDir": "/run/x"}),
    );
    let collect = good.replacen('{', r#"{"cni.dev/valid-attachments": [], "#, 1);
    for (verb, config) in [
        ("ADD", &good),
        ("DEL", &good),
        ("DEL", &bad),
        ("CHECK", &good),
        ("GC", &collect),
    ] {
        let (network, directory) = asked(verb, config).data_dir.expect(verb);
        assert_eq!(
            (network.as_str(), directory.as_path()),
            ("pods", Path::new("/run/x/pods")),
            "{verb}"
        );
    }
    for verb in ["ADD", "CHECK", "STATUS"] {
        let error = parse(&with_config(verb, &bad)).unwrap_err();
        assert_eq!(error.code, Code::InvalidConfig, "{verb}");
        assert!(
            error.msg.contains("too small to allocate from"),
            "{error:?}"
        );
    }
    assert_eq!(asked("STATUS", &good).call, Call::Status { parent: None });
}

#[test]
fn failures_are_in_host_locals_words() {
    let form = asked(
        "ADD",
        &config(Version::NEWEST.as_str(), json!({"subnet": "10.0.0.0/24"})),
    )
    .form;
    let by = std::sync::Arc::new(Attachment::cni("pods", "x", "eth0"));
    let address = [10, 0, 0, 9].into();
    let full = NoAddress::Full {
        set: 0,
        size: 253,
        taken: 253,
        oldest: None,
    };
    let table = [
        (
            full,
            11,
            "no IP addresses available in range set: 253 of 253 addresses of range set 0 are taken",
        ),
        (
            NoAddress::Duplicate {
                address,
                by: by.clone(),
            },
            11,
            "duplicate allocation is not allowed: pods/x/eth0 has 10.0.0.9",
        ),
        (
            NoAddress::Taken {
                address,
                by: AddressHolder::Attachment(by),
            },
            11,
            "requested IP address is not available in range set: 10.0.0.9 is taken by",
        ),
        (
            NoAddress::Gateway(address),
            7,
            "requested ip is subnet's gateway: 10.0.0.9",
        ),
        (
            NoAddress::NotInSets(address),
            7,
            "failed to allocate all requested IPs: no range set has 10.0.0.9",
        ),
    ];
    for (none, code, text) in table {
        let error = form
            .answer(&Answer::Failed(Failure::NoAddress { none, running: 7 }))
            .unwrap_err();
        assert_eq!(u32::from(error.code), code, "{error:?}");
        assert!(error.msg.starts_with(text), "{error:?}");
    }
}
