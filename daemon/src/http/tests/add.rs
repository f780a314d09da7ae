//! Each key of the configuration, and what it becomes in the ADD.

use std::net::Ipv4Addr;
use std::time::Duration;

use leasehold_api::cni::{Code, Error, Request};
use leasehold_core::effect::{Add, Call};
use leasehold_core::grant::Route;
use leasehold_core::grant::policy::{Detection, OnChange, OnExpiry, Policy};
use leasehold_core::profile::Profile;
use leasehold_core::source::{ClientProfile, Wanted};
use leasehold_core::wire::Mac;
use leasehold_core::wire::option::{OPTIONS, REQUEST_LIST};

use super::super::Site;
use super::{add, add_on, parse, rows, with_config};

const POD: &str = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;OTHER;=;K8S_POD_UID=7";

fn asking(ipam: &str, args: &str) -> Request {
    let config = format!(
        r#"{{"cniVersion": "1.1.0", "name": "lan", "type": "macvlan", "master": "eth0", "ipam": {ipam}}}"#
    );
    let mut request = with_config("ADD", &config);
    request.env.args = Some(args.into());
    request
}

fn profile(ipam: &str, args: &str) -> Profile {
    add(&asking(ipam, args)).profile
}

/// Returns the default profile, but for this change of what the client sends.
fn client(change: impl FnOnce(&mut ClientProfile)) -> Profile {
    let mut client = ClientProfile::default();
    change(&mut client);
    Profile {
        client: client.into(),
        ..Profile::default()
    }
}

fn client_id(ipam: &str, args: &str) -> Vec<u8> {
    add(&asking(ipam, args))
        .client_id
        .resolve(Mac([2, 0, 0, 0, 0, 9]))
        .as_bytes()
        .to_vec()
}

fn refusal(request: &Request) -> Error {
    parse(request)
        .map(|asked| format!("{asked:?}"))
        .unwrap_err()
}

#[test]
fn a_network_that_says_nothing_gets_the_default_profile() {
    assert_eq!(profile("{}", ""), Profile::default());
    assert_eq!(profile("null", ""), Profile::default());
    assert_eq!(client_id("{}", ""), b"\0abc/lan/net1");
}

#[test]
fn each_key_of_ours_has_its_place_in_the_profile() {
    let text = |text: &str| Some(text.to_owned());
    let with = |change: &dyn Fn(&mut Policy)| {
        let mut policy = Policy::default();
        change(&mut policy);
        Profile {
            policy,
            ..Profile::default()
        }
    };
    let all_the_clients = Profile {
        release: false,
        ..client(|client| {
            client.vendor_class = text("a");
            client.user_class = text("b");
            client.broadcast = true;
            client.rapid_commit = true;
            client.servers.allow = vec![Ipv4Addr::new(10, 0, 0, 1)];
            client.servers.deny = vec![Ipv4Addr::new(10, 0, 0, 2)];
        })
    };
    let table = [
        (
            r#"{"hostname": "{ifname}.{pod}-{container}"}"#,
            client(|client| client.hostname = text("net1.web-0-abc")),
        ),
        (
            r#"{"hostname": "fixed"}"#,
            client(|client| client.hostname = text("fixed")),
        ),
        (r#"{"hostname": ""}"#, Profile::default()),
        (
            r#"{"hostname": null}"#,
            client(|client| client.hostname = text("web-0")),
        ),
        (
            r#"{"fqdn": "{pod}.{namespace}.example.net"}"#,
            client(|client| client.fqdn = text("web-0.shop.example.net")),
        ),
        (
            r#"{"fqdn": "a.b.", "hostname": "c"}"#,
            client(|client| client.fqdn = text("a.b.")),
        ),
        (
            r#"{"hostname": "", "vendorClass": "a", "userClass": "b", "broadcast": true, "rapidCommit": true,
                "servers": {"allow": ["10.0.0.1"], "deny": ["10.0.0.2"]}, "release": false}"#,
            all_the_clients,
        ),
        (
            r#"{"hostname": "", "conflictDetection": "strict"}"#,
            with(&|policy| policy.detection = Detection::Strict),
        ),
        (
            r#"{"hostname": "", "conflictDetection": "off"}"#,
            with(&|policy| policy.detection = Detection::Off),
        ),
        (
            r#"{"hostname": "", "onChange": "keep", "onExpiry": "keep", "priority": 7, "suppressDefaultRoute": true,
                "routes": [{"dst": "10.0.0.0/8", "gw": "10.0.0.9", "mtu": 1400, "priority": 3}]}"#,
            with(&|policy| {
                let gateway = "10.0.0.9".parse().ok();
                policy.on_change = OnChange::Keep;
                policy.on_expiry = OnExpiry::Keep;
                policy.metric = Some(7);
                policy.suppress_default_route = true;
                policy.routes = vec![Route {
                    metric: Some(3),
                    mtu: Some(1400),
                    ..Route::new("10.0.0.0/8".parse().unwrap(), gateway)
                }];
            }),
        ),
    ];
    for (ipam, expected) in table {
        assert_eq!(profile(ipam, POD), expected, "{ipam}");
    }
}

#[test]
fn the_pods_name_is_the_host_name_where_it_can_be() {
    assert_eq!(profile("{}", POD).client.hostname.as_deref(), Some("web-0"));
    for args in [
        "",
        "K8S_POD_NAME=",
        "K8S_POD_NAME=a b",
        "K8S_POD_NAME=a/b",
        "k8s_pod_name=a",
    ] {
        assert_eq!(profile("{}", args).client.hostname, None, "{args}");
    }
    assert_eq!(
        profile(r#"{"provide": [{"option": "81", "value": "x"}]}"#, POD)
            .client
            .hostname,
        None
    );
}

#[test]
fn client_identifiers_follow_the_configuration() {
    let table = r#"
        "clientId": "container" => \x00abc/lan/net1
        "clientId": "mac" => \x01\x02\x00\x00\x00\x00\t
        "clientId": "pod" => \x00shop/web-0/net1
        "clientId": "hex:ff:00" => \xff\x00
        "clientId": "text:printer" => \x00printer
        "clientId": "text:{container}" => \x00abc
        "clientId": "text:prod-a/{namespace}/{pod}/{ifname}" => \x00prod-a/shop/web-0/net1
        "provide": [{"option": "dhcp-client-identifier", "value": "printer"}] => printer
        "provide": [{"option": "61", "value": "x", "fromArg": "K8S_POD_NAME"}] => web-0
    "#;
    for [key, bytes] in rows(table) {
        let ipam = format!("{{{key}}}");
        let sent = client_id(&ipam, POD).escape_ascii().to_string();
        assert_eq!(sent, bytes, "{ipam}");
        assert!(profile(&ipam, POD).client.provide.is_empty(), "{ipam}");
    }
}

#[test]
fn a_network_may_have_its_clients_send_no_option_61() {
    let none = r#"{"clientId": "none"}"#;
    assert!(profile(none, POD).client.without_client_id);
    assert_eq!(client_id(none, POD), [1, 2, 0, 0, 0, 0, 9]);
    assert!(
        !profile(r#"{"clientId": "mac"}"#, POD)
            .client
            .without_client_id
    );
    let refused = |config: &str| refusal(&with_config("ADD", config)).msg;
    let ipvlan = refused(
        r#"{"cniVersion": "1.1.0", "name": "lan", "type": "ipvlan", "master": "eth0", "ipam": {"clientId": "none"}}"#,
    );
    assert!(
        ipvlan.starts_with("ipam.clientId: none does not work with ipvlan"),
        "{ipvlan}"
    );
    let empty = refused(
        r#"{"cniVersion": "1.1.0", "name": "lan", "type": "macvlan", "ipam": {"provide": [{"option": "61", "value": ""}]}}"#,
    );
    assert!(
        empty.starts_with("ipam.provide: option 61 has no value"),
        "{empty}"
    );
}

#[test]
fn leases_are_kept_for_identities_that_can_return() {
    let mac = r#", "runtimeConfig": {"mac": "02:00:00:00:00:ab"}"#;
    let table = [
        (r#"{"clientId": "container", "grace": 5}"#, "", None),
        ("{}", mac, None),
        (r#"{"clientId": "mac"}"#, "", None),
        (r#"{"clientId": "mac"}"#, mac, Some(60)),
        (r#"{"clientId": "none"}"#, "", None),
        (r#"{"clientId": "none"}"#, mac, Some(60)),
        (r#"{"clientId": "pod"}"#, "", Some(60)),
        (r#"{"clientId": "text:printer", "grace": 5}"#, "", Some(5)),
        (r#"{"clientId": "hex:ff:00", "grace": 0}"#, "", Some(0)),
        (
            r#"{"provide": [{"option": "61", "value": "printer"}]}"#,
            "",
            Some(60),
        ),
    ];
    for (ipam, also, grace) in table {
        let config = format!(
            r#"{{"cniVersion": "1.1.0", "name": "lan", "type": "macvlan", "master": "eth0", "ipam": {ipam}{also}}}"#
        );
        let mut request = with_config("ADD", &config);
        request.env.args = Some(POD.into());
        assert_eq!(add(&request).profile.grace, grace, "{ipam}{also}");
    }
}

#[test]
fn what_is_provided_is_sent_once_with_its_own_bytes() {
    let provide =
        |entries: &str| profile(&format!(r#"{{"provide": [{entries}]}}"#), "A=arg;EMPTY=");
    let provided = |entries: &[(u8, &[u8])]| {
        let entries = entries
            .iter()
            .map(|(option, value)| (*option, value.to_vec()));
        let entries = entries.collect();
        client(|client| client.provide = entries)
    };
    let table: [(&str, Profile); 9] = [
        (
            r#"{"option": "host-name", "value": "x"}"#,
            client(|client| client.hostname = Some("x".into())),
        ),
        (
            r#"{"option": "60", "value": "x"}"#,
            client(|client| client.vendor_class = Some("x".into())),
        ),
        // It need not have the form of RFC 3004: whoever sets the value decides.
        (
            r#"{"option": "user-class", "value": "x"}"#,
            provided(&[(77, b"x")]),
        ),
        (
            r#"{"option": "43", "value": "x", "fromArg": "A"}"#,
            provided(&[(43, b"arg")]),
        ),
        (
            r#"{"option": "43", "value": "x", "fromArg": "B"}"#,
            provided(&[(43, b"x")]),
        ),
        (
            r#"{"option": "43", "value": "x", "fromArg": "EMPTY"}"#,
            Profile::default(),
        ),
        (
            r#"{"option": "43", "fromArg": "B"}, {"option": "44"}"#,
            Profile::default(),
        ),
        (
            r#"{"option": "43", "value": "x"}, {"option": "43", "value": "y"}"#,
            provided(&[(43, b"y")]),
        ),
        (
            r#"{"option": "classless-static-routes", "value": "\u0000"}, {"option": "33", "value": "z"}"#,
            provided(&[(33, b"z"), (121, &[0])]),
        ),
    ];
    for (entries, expected) in table {
        assert_eq!(provide(entries), expected, "{entries}");
    }
}

#[test]
fn requested_options_join_or_replace_the_default_list() {
    let request = |entries: &str| {
        profile(&format!(r#"{{"request": [{entries}]}}"#), "")
            .client
            .request
            .clone()
    };
    let with = |more: &[u8]| Some([REQUEST_LIST, more].concat());
    assert_eq!(request(""), None);
    assert_eq!(request("{}"), None);
    assert_eq!(
        request(r#"{"option": "43"}, {"option": "routers"}, {"option": "43"}"#),
        with(&[43])
    );
    assert_eq!(request(r#"{"skipDefault": true}"#), Some(vec![]));
    assert_eq!(
        request(r#"{"skipDefault": true, "option": "1"}, {"option": "43"}"#),
        Some(vec![1, 43])
    );
    let is_said = |code: &u8| [1, 3, 12, 33, 60, 61, 77, 121].contains(code);
    for (code, name, _) in OPTIONS.iter().filter(|(code, ..)| is_said(code)) {
        let skipped = r#"{"skipDefault": true}, "#;
        let named = request(&format!(r#"{skipped}{{"option": "{name}"}}"#));
        assert_eq!(named, Some(vec![*code]), "{name}");
    }
    // RFC 3442: 121 before 3 and 33.
    let routes = r#"{"skipDefault": true}, {"option": "1"}, {"option": "3"}, {"option": "6"}, {"option": "121"}"#;
    assert_eq!(request(routes), Some(vec![1, 121, 3, 6]));
}

#[test]
fn broadcast_is_for_ipvlan_unless_it_is_said_otherwise() {
    let broadcast = |plugin: &str, said: &str, site: bool| {
        let config =
            format!(r#"{{"name": "lan", "type": "{plugin}", "ipam": {{"broadcast": {said}}}}}"#);
        let site = Site {
            broadcast: site,
            ..Site::default()
        };
        let add = add_on(&with_config("ADD", &config), &site);
        assert_eq!(add.profile.on_parent, plugin == "ipvlan");
        add.profile.client.broadcast
    };
    let table = [
        ("macvlan", r#""auto""#, false, false),
        ("macvlan", "null", false, false),
        ("ipvlan", r#""auto""#, false, true),
        ("ipvlan", "null", false, true),
        ("ipvlan", "false", true, false),
        ("macvlan", "true", false, true),
        ("macvlan", "null", true, true),
        ("macvlan", "false", true, false),
    ];
    for (plugin, said, site, expected) in table {
        assert_eq!(
            broadcast(plugin, said, site),
            expected,
            "{plugin} {said} {site}"
        );
    }
}

#[test]
fn a_time_out_that_is_not_said_is_the_daemons() {
    let timeout = |ipam: &str| {
        let site = Site {
            add_timeout: Duration::from_secs(7),
            ..Site::default()
        };
        add_on(&asking(ipam, ""), &site).timeout.as_secs()
    };
    let table = [
        ("{}", 7),
        (r#"{"timeout": 0}"#, 7),
        (r#"{"timeout": -3}"#, 7),
        (r#"{"timeout": 90}"#, 90),
        (r#"{"timeout": 1e300}"#, 600),
    ];
    for (ipam, seconds) in table {
        assert_eq!(timeout(ipam), seconds, "{ipam}");
    }
}

fn said(more: &str, args: &str) -> Result<Add, Error> {
    let mut request = with_config("ADD", &format!(r#"{{"name": "lan"{more}}}"#));
    request.env.args = Some(args.into());
    match parse(&request)?.call {
        Call::Add(add) => Ok(*add),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_address_is_asked_for_in_three_ways() {
    let config = r#", "args": {"cni": {"ips": ["10.0.0.2"]}}"#;
    let runtime = r#", "runtimeConfig": {"ips": ["fd00::1/64", "10.0.0.3/24", "10.0.0.4"]}"#;
    let table = [
        ("", "", None),
        ("", "IP=", None),
        ("", "ip=10.0.0.1", None),
        ("", "IP=10.0.0.1", Some(1)),
        ("", "IP=10.0.0.9;IP=10.0.0.1", Some(1)),
        ("", "IP=fd00::1,10.0.0.1/8", Some(1)),
        ("", "IP=fd00::1", None),
        (config, "IP=10.0.0.1", Some(2)),
        (&format!("{config}{runtime}"), "IP=10.0.0.1", Some(3)),
        (
            r#", "args": {"labels": 1}, "runtimeConfig": {"ips": null}"#,
            "IP=10.0.0.1",
            Some(1),
        ),
    ];
    for (more, args, last) in table {
        let expected = last.map(|last| Wanted {
            address: Ipv4Addr::new(10, 0, 0, last),
            preferred: false,
        });
        assert_eq!(said(more, args).unwrap().wanted, expected, "{more} {args}");
    }
    let preferred = said(r#", "ipam": {"ipPreferred": true}"#, "IP=10.0.0.1")
        .unwrap()
        .wanted;
    assert_eq!(
        preferred,
        Some(Wanted {
            address: Ipv4Addr::new(10, 0, 0, 1),
            preferred: true
        })
    );
}

#[test]
fn the_runtimes_hardware_address_is_the_clients() {
    let mac = Some(Mac([2, 0, 0, 0, 0, 0xab]));
    for (said_mac, chaddr) in [
        ("02:00:00:00:00:ab", mac),
        ("02-00-00-00-00-AB", mac),
        ("", None),
    ] {
        let more = format!(r#", "runtimeConfig": {{"mac": "{said_mac}"}}"#);
        assert_eq!(said(&more, "").unwrap().chaddr, chaddr, "{said_mac}");
    }
    let asks = |more: &str| said(more, "").unwrap().profile.client.broadcast;
    let mac = r#", "runtimeConfig": {"mac": "02:00:00:00:00:ab"}"#;
    // An answer to that address alone may not reach the interface.
    assert!(asks(mac));
    assert!(!asks(&format!(r#"{mac}, "ipam": {{"broadcast": false}}"#)));
    assert!(!asks(""));
}

#[test]
fn what_is_wrong_with_one_container_is_said() {
    let table = r#"
        => IP=here => 4 => CNI_ARGS: IP="here" is not a host address
        => IP=10.0.0.1,224.0.0.1 => 4 => CNI_ARGS: IP="224.0.0.1" is not a host address
        , "args": {"cni": {"ips": ["x"]}} =>  => 7 => args.cni.ips: "x" is not a host address
        , "runtimeConfig": {"ips": ["0.0.0.0"]} =>  => 7 => runtimeConfig.ips: "0.0.0.0" is not a host address
        , "runtimeConfig": {"ips": [7]} =>  => 7 => runtimeConfig.ips[0]: it must be a string, not a number
        , "runtimeConfig": {"mac": "02:00"} =>  => 7 => runtimeConfig.mac: "02:00" is not an Ethernet address
        , "runtimeConfig": {"mac": "01:00:00:00:00:00"} =>  => 7 => runtimeConfig.mac:
        , "runtimeConfig": {"mac": "00:00:00:00:00:00"} =>  => 7 => runtimeConfig.mac:
    "#;
    for [more, args, code, msg] in rows(table) {
        let error = said(more, args).unwrap_err();
        assert_eq!(u32::from(error.code).to_string(), code, "{error:?}");
        assert!(error.msg.starts_with(msg), "{error:?}");
    }
}

#[test]
fn what_is_wrong_with_the_network_is_said_by_its_key() {
    let refused = |ipam: &str, msg: &str| {
        let error = refusal(&asking(ipam, ""));
        assert_eq!(error.code, Code::InvalidConfig, "{error:?}");
        assert!(error.msg.starts_with(msg), "{error:?}");
    };
    let table = r#"
        {"timeout": "30"} => ipam.timeout: it must be a number, not a string
        {"clientId": "duid"} => ipam.clientId: duid needs the host's /etc/machine-id
        {"clientId": "hex:01"} => ipam.clientId: a client identifier has at least 2 bytes, this one has 1
        {"clientId": "text:"} => ipam.clientId: a client identifier has at least 2 bytes, this one has 1
        {"clientId": "text:a/{pot}"} => ipam.clientId: {pot} is not {pod}, {namespace}, {container} or {ifname}
        {"clientId": "text:a/{pod"} => ipam.clientId: a { without its }
        {"clientId": "mac", "provide": [{"option": "61", "value": "xy"}]} => ipam.clientId: ipam.provide sets option 61 too
        {"hostname": "a", "provide": [{"option": "12", "value": "x"}]} => ipam.hostname: ipam.provide sets option 12 too
        {"fqdn": "a.b", "provide": [{"option": "81", "value": "x"}]} => ipam.fqdn: ipam.provide sets option 81 too
        {"vendorClass": "a", "provide": [{"option": "60", "value": "x"}]} => ipam.vendorClass: ipam.provide sets option 60
        {"userClass": "a", "provide": [{"option": "77", "value": "x"}]} => ipam.userClass: ipam.provide sets option 77 too
        {"provide": [{"option": "53", "value": "x"}]} => ipam.provide: only the client itself may send option 53
        {"provide": [{"option": "80", "value": "x"}]} => ipam.provide: only the client itself may send option 80
        {"provide": [{"option": "61", "value": "x"}]} => ipam.provide: option 61: a client identifier has at least 2 bytes
        {"hostname": "{pod}"} => ipam.hostname: {pod} needs K8S_POD_NAME in CNI_ARGS
        {"fqdn": "{host}.example.net"} => ipam.fqdn: {host} is not {pod}, {namespace}, {container} or {ifname}
        {"hostname": "{container"} => ipam.hostname: a { without its }
        {"hostname": "a b"} => ipam.hostname: "a b" is not a valid host name
        {"fqdn": "a..b"} => ipam.fqdn: "a..b" is not a valid host name
    "#;
    for [ipam, msg] in rows(table) {
        refused(ipam, msg);
    }
    let long = |key: &str, length| format!(r#"{{"{key}": "{}"}}"#, "x".repeat(length));
    let text = format!(r#"{{"clientId": "text:{}"}}"#, "x".repeat(513));
    refused(&text, "ipam.clientId: longer than 512 bytes");
    let hex = format!(r#"{{"clientId": "hex:{}"}}"#, "01".repeat(256));
    let msg = "ipam.clientId: a client identifier has at most 255 bytes, this one has 256";
    refused(&hex, msg);
    let vendor_class = long("vendorClass", 256);
    refused(&vendor_class, "ipam.vendorClass: longer than 255 bytes");
    let user_class = long("userClass", 255);
    refused(&user_class, "ipam.userClass: longer than 254 bytes");
    let much = format!(
        r#"{{"provide": [{{"option": "43", "value": "{0}"}}, {{"option": "125", "value": "{0}"}}]}}"#,
        "x".repeat(250)
    );
    let msg = "ipam: the options to send are 504 bytes long, but a message has room for 441";
    refused(&much, msg);
    let value = "x".repeat(256);
    let error = refusal(&asking(
        r#"{"provide": [{"option": "43", "fromArg": "A"}]}"#,
        &format!("A={value}"),
    ));
    assert_eq!(
        (error.code, error.msg.as_str()),
        (
            Code::InvalidEnvironment,
            "CNI_ARGS: A is longer than the 255 bytes of option 43"
        )
    );
}

#[test]
fn a_client_identifier_needs_the_names_it_is_made_of() {
    let table = r#"
        pod => K8S_POD_NAME=web-0 => ipam.clientId: pod needs K8S_POD_NAMESPACE in CNI_ARGS
        pod => K8S_POD_NAMESPACE=shop;K8S_POD_NAME= => ipam.clientId: pod needs K8S_POD_NAME in CNI_ARGS
        pod => K8S_POD_NAMESPACE=a/b;K8S_POD_NAME=c => CNI_ARGS: K8S_POD_NAMESPACE is not a valid Kubernetes name
        text:a/{pod} => => ipam.clientId: {pod} needs K8S_POD_NAME in CNI_ARGS
        text:a/{pod} => K8S_POD_NAME=a/b => CNI_ARGS: K8S_POD_NAME is not a valid Kubernetes name
    "#;
    for [kind, args, msg] in rows(table) {
        let error = refusal(&asking(&format!(r#"{{"clientId": "{kind}"}}"#), args));
        assert!(error.msg.starts_with(msg), "{error:?}");
    }
}

#[test]
fn what_is_said_fits_a_message() {
    use leasehold_core::identity::ClientId;
    use leasehold_core::source::Sender;
    let value = "x".repeat(200);
    let ipam = format!(
        r#"{{"hostname": "", "rapidCommit": true, "vendorClass": "{0}", "provide": [{{"option": "43", "value": "{1}"}}]}}"#,
        "v".repeat(441 - 2 - 2 - 2 - 200),
        value
    );
    let profile = profile(&ipam, "");
    let id = ClientId::new(vec![7; 255]).unwrap();
    let frame = Sender::new(Mac::default(), &id, profile.client).discover(1, 0, None);
    let holds = |part: &[u8]| frame.windows(part.len()).any(|window| window == part);
    assert!(holds(value.as_bytes()) && holds("v".repeat(235).as_bytes()) && holds(&[80, 0]));
}

#[test]
fn a_fallback_needs_one_range_set_and_time_to_probe() {
    let of = |said: &str| asking(&format!(r#"{{"timeout": 30, "fallback": {said}}}"#), "");
    let range =
        r#"{"subnet": "192.0.2.0/24", "rangeStart": "192.0.2.200", "rangeEnd": "192.0.2.203"}"#;
    let good = of(&format!(r#"{{"ranges": [[{range}]]}}"#));
    let Call::Add(add) = parse(&good).unwrap().call else {
        panic!()
    };
    let fallback = add.fallback.expect("a fallback");
    assert_eq!(fallback.after, Duration::from_secs(20));
    let (inside, outside) = (
        Ipv4Addr::new(192, 0, 2, 201).into(),
        Ipv4Addr::new(192, 0, 2, 9).into(),
    );
    assert_eq!(
        (
            fallback.take_over(inside).is_some(),
            fallback.take_over(outside)
        ),
        (true, None)
    );
    let table = r#"
        {"ranges": []} => ipam.fallback.ranges: no IP ranges specified
        {"ranges": [[RANGE], [{"subnet": "198.51.100.0/24"}]]} => ipam.fallback.ranges: one set of IPv4
        {"ranges": [[{"subnet": "fd00::/64"}]]} => ipam.fallback.ranges: one set of IPv4
        {"ranges": [[RANGE]], "after": 0} => ipam.fallback.after: an ADD may take 30 s
        {"ranges": [[RANGE]], "after": 23} => the last 10 of them for probes: 1 to 20 s
    "#;
    for [said, words] in rows(table) {
        let error = refusal(&of(&said.replace("RANGE", range)));
        assert_eq!(error.code, Code::InvalidConfig);
        assert!(error.msg.contains(words), "{said}: {error:?}");
    }
}
