use serde_json::json;

use super::*;
use crate::tests::rows;

fn parse(ipam: Value) -> Ipam {
    Ipam::parse(&ipam).unwrap_or_else(|bad| panic!("{bad}"))
}

#[test]
fn nothing_said_is_the_default() {
    for nothing in [
        json!(null),
        json!({}),
        json!({"type": "dhcp"}),
        json!({"routes": null, "fqdn": "", "priority": 0}),
    ] {
        assert_eq!(parse(nothing), Ipam::default());
    }
}

#[test]
fn every_key_is_read() {
    let ipam = parse(json!({
        "type": "dhcp", "daemonSocketPath": "/run/x.sock", "priority": 10,
        "request": [{"skipDefault": true}, {"option": "routers"}, {"option": "43"}],
        "provide": [{"option": "host-name", "value": "web", "fromArg": "K8S_POD_NAME"}],
        "clientId": "text:web-1", "hostname": "{pod}", "fqdn": "{pod}.example.net",
        "vendorClass": "printer", "userClass": "lab", "broadcast": true, "rapidCommit": true, "timeout": 4.5,
        "routes": [{"dst": "10.1.2.3/8", "gw": "192.0.2.9", "mtu": 1400, "advmss": 1360, "priority": 5, "table": 7,
                    "scope": 253}],
        "suppressDefaultRoute": true, "servers": {"allow": ["192.0.2.1"], "deny": ["192.0.2.2"]},
        "release": false, "grace": 5, "ipPreferred": true, "onChange": "keep", "onExpiry": "keep",
        "conflictDetection": "strict",
        "fallback": {"ranges": [[{"subnet": "192.0.2.0/24", "rangeStart": "192.0.2.200"}]], "after": 9},
    }));
    let route = Route {
        dst: "10.0.0.0/8".parse().unwrap(),
        via: Some("192.0.2.9".parse().unwrap()),
        mtu: Some(1400),
        advmss: Some(1360),
        priority: Some(5),
        table: Some(7),
        scope: Some(253),
    };
    let expected = Ipam {
        priority: Some(10),
        request: RequestList {
            skip_default: true,
            options: vec![3, 43],
        },
        provide: vec![Provide {
            option: 12,
            value: Some("web".into()),
            from_arg: Some("K8S_POD_NAME".into()),
        }],
        client_id: Some(ClientId::Text("web-1".into())),
        hostname: Some("{pod}".into()),
        fqdn: Some("{pod}.example.net".into()),
        vendor_class: Some("printer".into()),
        user_class: Some("lab".into()),
        broadcast: Some(true),
        rapid_commit: true,
        timeout: Some(4.5),
        routes: vec![route],
        suppress_default_route: true,
        servers: Servers {
            allow: vec![Ipv4Addr::new(192, 0, 2, 1)],
            deny: vec![Ipv4Addr::new(192, 0, 2, 2)],
        },
        release: Some(false),
        grace: Some(5),
        conflict_detection: ConflictDetection::Strict,
        ip_preferred: true,
        keep_on_change: true,
        keep_on_expiry: true,
        fallback: Some(Fallback {
            sets: vec![vec![RangeConfig {
                subnet: "192.0.2.0/24".parse().unwrap(),
                start: Some("192.0.2.200".parse().unwrap()),
                end: None,
                gateway: None,
            }]],
            after: Some(9),
        }),
    };
    assert_eq!(ipam, expected);
}

#[test]
fn conflict_detection_has_three_kinds() {
    for (name, kind) in [
        ("optimistic", ConflictDetection::Optimistic),
        ("strict", ConflictDetection::Strict),
        ("off", ConflictDetection::Off),
    ] {
        assert_eq!(
            parse(json!({"conflictDetection": name})).conflict_detection,
            kind
        );
    }
    assert!(Ipam::parse(&json!({"conflictDetection": "on"})).is_err());
}

#[test]
fn options_have_names_or_numbers() {
    let table = [
        ("dhcp-client-identifier", 61),
        ("subnet-mask", 1),
        ("routers", 3),
        ("host-name", 12),
        ("user-class", 77),
        ("vendor-class-identifier", 60),
        ("static-routes", 33),
        ("classless-static-routes", 121),
        ("1", 1),
        ("254", 254),
    ];
    for (name, number) in table {
        assert_eq!(
            parse(json!({"request": [{"option": name}]}))
                .request
                .options,
            [number],
            "{name}"
        );
        assert_eq!(
            parse(json!({"provide": [{"option": name}]})).provide[0].option,
            number,
            "{name}"
        );
    }
    assert_eq!(
        parse(json!({"request": [{"option": ""}]})).request,
        RequestList::default()
    );
}

#[test]
fn client_identifiers_have_kinds() {
    let table = [
        ("container", ClientId::Container),
        ("mac", ClientId::Mac),
        ("pod", ClientId::Pod),
        ("duid", ClientId::Duid),
        ("hex:00ffA0", ClientId::Hex(vec![0, 255, 160])),
        ("hex:01:02:0a", ClientId::Hex(vec![1, 2, 10])),
        ("hex:", ClientId::Hex(Vec::new())),
        ("text:a:b", ClientId::Text("a:b".into())),
    ];
    for (text, expected) in table {
        assert_eq!(
            parse(json!({"clientId": text})).client_id,
            Some(expected),
            "{text}"
        );
    }
}

#[test]
fn what_is_refused_is_named() {
    let table = r#"
        [] => ipam: it must be an object, not a list
        {"type": 1} => ipam.type: it must be a string, not a number
        {"daemonSocketPath": {}} => ipam.daemonSocketPath: it must be a string, not an object
        {"priority": "10"} => ipam.priority: it must be a number, not a string
        {"priority": -1} => ipam.priority: "-1" is not a whole number from 0 to 4294967295
        {"priority": 1.5} => ipam.priority: "1.5" is not a whole number from 0 to 4294967295
        {"request": {}} => ipam.request: it must be a list, not an object
        {"request": ["routers"]} => ipam.request[0]: it must be an object, not a string
        {"request": [{"skipDefault": 1}]} => ipam.request[0].skipDefault: it must be true or false, not a number
        {"request": [{}, {"option": 3}]} => ipam.request[1].option: it must be a string, not a number
        {"request": [{"option": "gateway"}]} => ipam.request[0].option: "gateway" is not the name of an option, or a number from 1 to 254
        {"request": [{"option": "255"}]} => ipam.request[0].option: "255" is not the name of an option, or a number from 1 to 254
        {"provide": [{"value": "x"}]} => ipam.provide[0].option: missing
        {"provide": [{"option": "60", "value": 1}]} => ipam.provide[0].value: it must be a string, not a number
        {"provide": [{"option": "60", "fromArg": []}]} => ipam.provide[0].fromArg: it must be a string, not a list
        {"clientId": "Mac"} => ipam.clientId: "Mac" is not container, mac, none, pod, duid, hex:… or text:…
        {"clientId": "hex:0"} => ipam.clientId: "hex:0" is not hex: and two digits per byte
        {"clientId": "hex:+1"} => ipam.clientId: "hex:+1" is not hex: and two digits per byte
        {"clientId": "hex:01:2"} => ipam.clientId: "hex:01:2" is not hex: and two digits per byte
        {"clientId": "hex:é0"} => ipam.clientId: "hex:é0" is not hex: and two digits per byte
        {"hostname": true} => ipam.hostname: it must be a string, not a boolean
        {"fqdn": 1} => ipam.fqdn: it must be a string, not a number
        {"vendorClass": []} => ipam.vendorClass: it must be a string, not a list
        {"userClass": {}} => ipam.userClass: it must be a string, not an object
        {"broadcast": "yes"} => ipam.broadcast: "yes" is not true, false or "auto"
        {"broadcast": 1} => ipam.broadcast: it must be true or false, not a number
        {"rapidCommit": "true"} => ipam.rapidCommit: it must be true or false, not a string
        {"timeout": "30s"} => ipam.timeout: it must be a number, not a string
        {"routes": [{"gw": "10.0.0.1"}]} => ipam.routes[0].dst: missing
        {"routes": [{"dst": "10.0.0.1"}]} => ipam.routes[0].dst: "10.0.0.1" is not a subnet, such as 10.0.0.0/8
        {"routes": [{"dst": "10.0.0.0/8", "gw": "fd00::1"}]} => ipam.routes[0].gw: "fd00::1" is not of the same family as dst
        {"routes": [{"dst": "10.0.0.0/8", "scope": 256}]} => ipam.routes[0].scope: "256" is not a whole number from 0 to 255
        {"suppressDefaultRoute": 0} => ipam.suppressDefaultRoute: it must be true or false, not a number
        {"servers": ["10.0.0.1"]} => ipam.servers: it must be an object, not a list
        {"servers": {"allowed": []}} => ipam.servers.allowed: unknown key
        {"servers": {"believe": []}} => ipam.servers.believe: unknown key
        {"servers": {"allow": "10.0.0.1"}} => ipam.servers.allow: it must be a list, not a string
        {"servers": {"deny": ["fd00::1"]}} => ipam.servers.deny[0]: "fd00::1" is not an IPv4 address
        {"release": "no"} => ipam.release: it must be true or false, not a string
        {"ipPreferred": "yes"} => ipam.ipPreferred: it must be true or false, not a string
        {"onChange": "remove"} => ipam.onChange: "remove" is not apply or keep
        {"onExpiry": "apply"} => ipam.onExpiry: "apply" is not remove or keep
        {"onExpiry": true} => ipam.onExpiry: it must be a string, not a boolean
        {"fallback": []} => ipam.fallback: it must be an object, not a list
        {"fallback": {"range": []}} => ipam.fallback.range: unknown key: did you mean ranges?
        {"fallback": {"ranges": [[{}]]}} => ipam.fallback.ranges[0][0].subnet: missing
        {"fallback": {"ranges": [], "after": "20"}} => ipam.fallback.after: it must be a number, not a string
        {"client_id": "mac"} => ipam.client_id: unknown key: did you mean clientId?
        {"clinetId": "mac"} => ipam.clinetId: unknown key: did you mean clientId?
        {"conflictDetect": "off"} => ipam.conflictDetect: unknown key: did you mean conflictDetection?
        {"suppress": ["gateway"]} => ipam.suppress: unknown key: did you mean suppressDefaultRoute?
        {"suppressDefaultRoutes": true} => ipam.suppressDefaultRoutes: unknown key: did you mean suppressDefaultRoute?
    "#;
    for [ipam, fault] in rows(table) {
        let ipam = serde_json::from_str(ipam).unwrap();
        assert_eq!(
            Ipam::parse(&ipam).map_err(|bad| bad.to_string()),
            Err(fault.to_owned()),
            "{ipam}"
        );
    }
}

#[test]
fn keys_of_others_are_ignored() {
    let others = json!({
        "subnet": "10.0.0.0/8", "ranges": [], "gateway": 1, "dataDir": null, "log_level": "debug", "lease": 60,
        "request": [{"option": "routers", "optional": false}], "provide": [{"option": "60", "comment": 1}],
    });
    let expected = Ipam {
        request: RequestList {
            skip_default: false,
            options: vec![3],
        },
        provide: vec![Provide {
            option: 60,
            value: None,
            from_arg: None,
        }],
        ..Ipam::default()
    };
    assert_eq!(parse(others), expected);
}

#[test]
fn a_value_fits_one_option() {
    let of =
        |length| Ipam::parse(&json!({"provide": [{"option": "43", "value": "x".repeat(length)}]}));
    assert!(of(255).is_ok());
    let bad = of(256).unwrap_err().to_string();
    assert!(
        bad.ends_with("is not at most 255 bytes long") && bad.len() < 200,
        "{bad}"
    );
}

#[test]
fn an_empty_text_is_no_value_of_a_key_that_has_a_few() {
    let empty = json!({"clientId": "", "conflictDetection": "", "onChange": "", "onExpiry": "", "broadcast": ""});
    assert_eq!(parse(empty), Ipam::default());
    assert_eq!(parse(json!({"hostname": ""})).hostname.as_deref(), Some(""));
}

#[test]
fn what_is_ignored_and_looks_like_a_mistake_is_named() {
    let of = |ipam: &Value| {
        let config = json!({"type": "macvlan", "ipam": ipam}).to_string();
        let config = super::super::Config::parse(&config).unwrap();
        let ignored: Vec<_> = config.ignored().iter().map(BadKey::to_string).collect();
        ignored.join("; ")
    };
    let table = r#"
        {"type": "dhcp", "requests": [{"option": "routers"}]} => ipam.requests: unknown key, which is ignored: did you mean request?
        {"type": "dhcp", "server": "10.0.0.1"} => ipam.server: unknown key, which is ignored: did you mean servers?
        {"type": "dhcp", "daemonSocket": "/run/x.sock"} => ipam.daemonSocket: unknown key, which is ignored: did you mean daemonSocketPath?
        {"type": "dhcp", "routes": [{"dst": "10.0.0.0/8", "metric": 5, "via": "10.0.0.1"}]} => ipam.routes[0].metric: unknown key, which is ignored: did you mean priority?; ipam.routes[0].via: unknown key, which is ignored
        {"type": "host-local", "subnet": "10.0.0.0/24", "range": "10.0.0.9"} => ipam.range: unknown key, which is ignored: did you mean ranges?
        {"type": "dhcp", "subnet": "10.0.0.0/24", "mtu": 1} =>
        [] =>
    "#;
    for [ipam, said] in rows(table) {
        let ipam = serde_json::from_str(ipam).unwrap();
        assert_eq!(of(&ipam), said, "{ipam}");
        if ipam["type"] == "dhcp" {
            assert!(Ipam::parse(&ipam).is_ok(), "{ipam}");
        }
    }
}
