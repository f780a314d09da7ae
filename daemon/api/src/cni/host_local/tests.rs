use serde_json::json;

use super::super::{Config, Route};
use super::*;
use crate::tests::rows;

fn parse(config: Value) -> Result<HostLocal, String> {
    let config = Config::parse(&config.to_string()).expect("a configuration");
    config
        .host_local(Version::V1_0_0)
        .map_err(|bad| bad.to_string())
}

fn range(subnet: &str) -> RangeConfig {
    RangeConfig {
        subnet: subnet.parse().expect("a subnet"),
        start: None,
        end: None,
        gateway: None,
    }
}

#[test]
fn every_key_is_read() {
    let read = parse(json!({"ipam": {
        "type": "host-local", "dataDir": "/run/x", "resolvConf": "/etc/resolv.conf",
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.1.2.3/8", "gw": "10.0.0.9", "comment": 1}],
        "ranges": [[{"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.5", "rangeEnd": "::ffff:10.0.0.9",
                     "gateway": "10.0.0.254", "comment": 1}, {"subnet": "10.0.1.7/24", "gateway": ""}],
                   [{"subnet": "fd00::/64"}], null],
        "timeout": 5, "clientId": "pod", "conflictDetection": "strict",
    }}));
    let address = |text: &str| Some(text.parse().expect("an address"));
    let route = |dst: &str| Route {
        dst: dst.parse().expect("a subnet"),
        ..Route::default()
    };
    let first = RangeConfig {
        start: address("10.0.0.5"),
        end: address("10.0.0.9"),
        gateway: address("10.0.0.254"),
        ..range("10.0.0.0/24")
    };
    let expected = HostLocal {
        sets: vec![
            vec![first, range("10.0.1.7/24")],
            vec![range("fd00::/64")],
            Vec::new(),
        ],
        routes: vec![
            route("0.0.0.0/0"),
            Route {
                via: address("10.0.0.9"),
                ..route("10.1.2.3/8")
            },
        ],
        resolv_conf: Some("/etc/resolv.conf".to_owned()),
        data_dir: Some("/run/x".to_owned()),
        timeout: Some(5.0),
    };
    assert_eq!(read, Ok(expected));
}

#[test]
fn sets_of_the_runtime_come_before_those_of_the_network() {
    let read = parse(json!({
        "ipam": {"ranges": [[{"subnet": "10.3.0.0/24"}]], "subnet": "10.2.0.0/24", "rangeStart": "10.2.0.9"},
        "runtimeConfig": {"ipRanges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "10.1.0.0/24"}]], "mac": 1},
    }));
    let older = RangeConfig {
        start: Some([10, 2, 0, 9].into()),
        ..range("10.2.0.0/24")
    };
    let expected = [
        range("10.0.0.0/24"),
        range("10.1.0.0/24"),
        older,
        range("10.3.0.0/24"),
    ];
    assert_eq!(
        read.expect("ranges").sets,
        expected.map(|range| vec![range])
    );
}

#[test]
fn the_keys_beside_a_missing_subnet_are_ignored() {
    let read =
        parse(json!({"ipam": {"gateway": "10.0.0.1", "ranges": [[{"subnet": "10.0.0.0/24"}]]}}));
    assert_eq!(read.expect("ranges").sets, [[range("10.0.0.0/24")]]);
    assert_eq!(
        parse(json!({"ipam": {"rangeStart": "10.0.0.1"}})),
        Ok(HostLocal::default())
    );
}

#[test]
fn before_0_3_0_there_is_one_set_of_a_family() {
    let of = |subnets: &[&str], version| {
        let sets: Vec<_> = subnets
            .iter()
            .map(|subnet| json!([{"subnet": subnet}]))
            .collect();
        let config =
            Config::parse(&json!({"ipam": {"ranges": sets}}).to_string()).expect("a configuration");
        config
            .host_local(version)
            .map(|read| read.sets.len())
            .map_err(|bad| bad.to_string())
    };
    let both = ["10.0.0.0/24", "fd00::/64"];
    let (two_v4, two_v6) = (["10.0.0.0/24", "10.0.1.0/24"], ["fd00::/64", "fd01::/64"]);
    let refused = |version| {
        Err(format!(
            "ipam.ranges: more than one set of a family: results of cniVersion {version} have one address of each"
        ))
    };
    for version in [Version::V0_1_0, Version::V0_2_0] {
        assert_eq!(of(&both, version), Ok(2));
        assert_eq!(of(&two_v4, version), refused(version));
        assert_eq!(of(&two_v6, version), refused(version));
    }
    assert_eq!(of(&two_v4, Version::V0_3_0), Ok(2));
}

#[test]
fn what_is_refused_is_named() {
    let table = r#"
        [] => ipam: it must be an object, not a list
        {"subnet": ""} => ipam.subnet: "" is not a subnet, such as 10.0.0.0/8
        {"subnet": "10.0.0.0"} => ipam.subnet: "10.0.0.0" is not a subnet, such as 10.0.0.0/8
        {"subnet": "::ffff:10.0.0.0/120"} => ipam.subnet: "::ffff:10.0.0.0/120" is not a subnet, such as 10.0.0.0/8
        {"subnet": "10.0.0.0/8", "rangeEnd": "ten"} => ipam.rangeEnd: "ten" is not an IP address
        {"ranges": {}} => ipam.ranges: it must be a list, not an object
        {"ranges": [{}]} => ipam.ranges[0]: it must be a list, not an object
        {"ranges": [[], [[]]]} => ipam.ranges[1][0]: it must be an object, not a list
        {"ranges": [[{}]]} => ipam.ranges[0][0].subnet: missing
        {"routes": [{}]} => ipam.routes[0].dst: missing
        {"dataDir": 1} => ipam.dataDir: it must be a string, not a number
    "#;
    for [ipam, fault] in rows(table) {
        let ipam: Value = serde_json::from_str(ipam).unwrap();
        assert_eq!(
            parse(json!({"ipam": ipam})),
            Err(fault.to_owned()),
            "{ipam}"
        );
    }
    let many = json!({"ipam": {"ranges": [vec![json!({}); 257]]}});
    let fault = "ipam.ranges[0]: more than 256 entries";
    assert_eq!(parse(many), Err(fault.to_owned()));
    let runtime = json!({"ipam": {}, "runtimeConfig": {"ipRanges": [[{"subnet": 1}]]}});
    let fault = "runtimeConfig.ipRanges[0][0].subnet: it must be a string, not a number";
    assert_eq!(parse(runtime), Err(fault.to_owned()));
}
