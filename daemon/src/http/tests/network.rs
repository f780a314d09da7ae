//! What dockerd says to a network driver, byte for byte as versions 20.10, 28 and 29 do, and what it becomes.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_api::docker as wire;
use leasehold_core::effect::{
    Add, Answer, Call, ClientIdRule, EndpointAddress, EndpointRequest, Failure, NetworkAnswer,
    NetworkCall,
};
use leasehold_core::grant::policy::Policy;
use leasehold_core::identity::{Attachment, DoorId, Lan};
use leasehold_core::link::own::MacvlanMode;
use leasehold_core::link::{LinkCause, Place};
use leasehold_core::network::{
    AddressSource, EndpointRecord, Mode, NetworkFault, NetworkRecord, Wiring,
};
use leasehold_core::pool;
use leasehold_core::profile::Profile;
use leasehold_core::source::{ClientProfile, lease::LeaseRoute};
use leasehold_core::time::WallTime;
use leasehold_core::wire::Mac;

use super::super::Site;
use super::super::client_id::MachineId;
use super::super::docker::{Asked, Form, Host, Refused};
use super::{lease, rows};

const ETH0: Mac = Mac([2, 0, 0, 0, 0, 0xe0]);
const NET: &str = "4f0066c1e7f1c1e7f14f0066c1e7f1c1e7f14f0066c1e7f1c1e7f14f0066c1e7";
const END: &str = "e9d0066c1e7f1c1e7f14f0066c1e7f1c1e7f14f0066c1e7f1c1e7f14f0066c1e";

/// A host with `eth0`, `eth0.20` and `br7`.
fn with_host<T>(ipvlan: bool, work: impl FnOnce(&Host<'_>) -> T) -> T {
    let site = Site {
        machine_id: MachineId::parse(&"5".repeat(32)),
        ..Site::default()
    };
    let link = |name: &str| ["eth0", "eth0.20", "br7"].contains(&name).then_some(ETH0);
    work(&Host {
        site,
        ipvlan,
        link: &link,
        links_in: &|_| vec![],
        number: 0x0102_0304_0506_0708,
    })
}

fn on(method: &str, body: &str) -> Result<Asked, Refused> {
    let path = format!("/NetworkDriver.{method}");
    with_host(false, |host| Asked::parse(&path, body.as_bytes(), host))
}

fn asked(method: &str, body: &str) -> (NetworkCall, Form) {
    match on(method, body) {
        Ok(Asked::Core {
            call: Call::Network(call),
            form,
        }) => (call, form),
        other => panic!("{body}: {other:?}"),
    }
}

fn told(method: &str, body: &str) -> String {
    match on(method, body) {
        Ok(Asked::Known(text)) => text,
        other => panic!("{method} {body}: {other:?}"),
    }
}

fn said(asked: Result<Asked, Refused>) -> String {
    match asked {
        Err(Refused::Said(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// The body that makes a network with these `-o`, as 20.10 with the null driver says it.
fn create(options: &str) -> String {
    format!(
        r#"{{"NetworkID":"{NET}","Options":{{"com.docker.network.enable_ipv6":false,"com.docker.network.generic":{options}}},"IPv4Data":[{{"AddressSpace":"null","Pool":"0.0.0.0/0","Gateway":"0.0.0.0/0"}}],"IPv6Data":[]}}"#
    )
}

/// The same, with this from its IPAM driver.
fn create_with(options: &str, data: &str) -> String {
    format!(
        r#"{{"NetworkID":"{NET}","Options":{{"com.docker.network.generic":{options}}},"IPv4Data":{data}}}"#
    )
}

fn made(body: &str) -> NetworkRecord {
    match asked("CreateNetwork", body).0 {
        NetworkCall::Create(record) => *record,
        other => panic!("{other:?}"),
    }
}

/// The network with these `-o`.
fn network(options: &str) -> NetworkRecord {
    made(&create(options))
}

fn id(text: &str) -> DoorId {
    DoorId::try_from(text.to_owned()).unwrap()
}

/// The body that makes an endpoint, whose interface and options are these.
fn endpoint(interface: &str, options: &str) -> String {
    format!(
        r#"{{"NetworkID":"{NET}","EndpointID":"{END}","Interface":{interface},"Options":{options}}}"#
    )
}

/// Understands such a body when it is known which network that is.
fn of(network: &NetworkRecord, interface: &str, options: &str) -> Result<Asked, Refused> {
    let (call, form) = asked("CreateEndpoint", &endpoint(interface, options));
    assert_eq!(call, NetworkCall::Find(id(NET)));
    with_host(false, |host| {
        Asked::about(&form.then.expect("there is more to ask"), network, host)
    })
}

fn requested(asked: Result<Asked, Refused>) -> (EndpointRequest, Form) {
    match asked {
        Ok(Asked::Core {
            call: Call::Network(NetworkCall::CreateEndpoint(request)),
            form,
        }) => (*request, form),
        other => panic!("{other:?}"),
    }
}

fn leased(asked: Result<Asked, Refused>) -> (Add, Mac) {
    let (request, _) = requested(asked);
    match request.address {
        EndpointAddress::Leased(add) => (*add, request.mac),
        EndpointAddress::Ipam(address) => panic!("{address}"),
    }
}

const CHOSEN: &str = r#"{"com.docker.network.endpoint.macaddress":"AkLA/+4B"}"#;

#[test]
fn calls_that_need_no_state_are_answered_at_once() {
    for body in ["", "{}", "null", &endpoint("null", "null")] {
        assert_eq!(
            told("GetCapabilities", body),
            r#"{"ConnectivityScope":"local","GwAllocChecker":true,"Scope":"local"}"#
        );
        assert_eq!(
            told("GwAllocCheck", body),
            r#"{"SkipIPv4":true,"SkipIPv6":true}"#
        );
        assert_eq!(told("EndpointOperInfo", body), r#"{"Value":{}}"#);
        assert_eq!(told("AllocateNetwork", body), r#"{"Options":{}}"#);
        for method in [
            "FreeNetwork",
            "Leave",
            "ProgramExternalConnectivity",
            "RevokeExternalConnectivity",
            "DiscoverNew",
            "DiscoverDelete",
        ] {
            assert_eq!(told(method, body), "{}");
        }
    }
    assert_eq!(on("Dance", ""), Err(Refused::Unknown));
    // Under the other name, that of our network driver, the call also reaches the core: a dockerd has started.
    let manifest = r#"{"Implements":["IpamDriver","NetworkDriver"]}"#;
    let activated = with_host(true, |host| Asked::parse(wire::ACTIVATE, b"", host));
    assert_eq!(activated, Ok(Asked::Known(manifest.to_owned())));
    let Ok(Asked::Core { call, form }) =
        with_host(false, |host| Asked::parse(wire::ACTIVATE, b"", host))
    else {
        panic!()
    };
    assert_eq!(call, Call::Network(NetworkCall::Started));
    assert_eq!(
        form.answer(&Answer::Network(NetworkAnswer::Done))
            .as_deref(),
        Ok(manifest)
    );
}

#[test]
fn a_network_is_made_as_its_options_say() {
    // eth0.10: whether or not there is a link of that name, which may have been made for the first network in the VLAN.
    let table = r#"
        {"parent":"eth0"} => parent=eth0
        {"parent":"eth0","mode":"macvlan"} => parent=eth0
        {"parent":"eth0","vlan":10} => parent=eth0,vlan=10
        {"parent":"eth0.10"} => parent=eth0,vlan=10
        {"parent":"eth0.20"} => parent=eth0,vlan=20
        {"parent":"wan.20"} => parent=wan,vlan=20
        {"parent":"eth0","macvlan_mode":"private"} => parent=eth0,macvlan_mode=private
        {"parent":"eth0","macvlan_mode":"vepa"} => parent=eth0,macvlan_mode=vepa
        {"parent":"eth0","macvlan_mode":"passthru"} => parent=eth0,macvlan_mode=passthru
        {"parent":"eth0","mode":"ipvlan"} => mode=ipvlan,parent=eth0
        {"bridge":"br7"} => mode=bridge,bridge=br7
        {"bridge":"br7","mode":"bridge"} => mode=bridge,bridge=br7
        {"parent":"eth0","client-id":"text:a, b","grace":"7","hostname":"h"} => parent=eth0,client-id=text:a%2c%20b,hostname=h,grace=7
    "#;
    for [options, definition] in rows(table) {
        let record = network(options);
        // The definition is spelled from the wiring.
        assert_eq!(record.definition, definition, "{options}");
        assert_eq!(
            (record.wiring.mtu, record.gateway, record.leases),
            (None, None, false)
        );
        assert_eq!(
            (record.id, record.pool),
            (id(NET), "0.0.0.0/0".parse().unwrap())
        );
    }
    let wiring = Wiring {
        mode: Mode::Macvlan(MacvlanMode::Vepa),
        on: "eth0".to_owned(),
        vlan: 10,
        mtu: None,
    };
    let record = network(r#"{"parent":"eth0","vlan":10,"macvlan_mode":"vepa"}"#);
    assert_eq!(record.wiring, wiring);
    let record = network(r#"{"parent":"eth0","mtu":"1400","gateway":"10.7.0.2"}"#);
    assert_eq!(
        (record.wiring.mtu, record.gateway),
        (Some(1400), Some(Ipv4Addr::new(10, 7, 0, 2)))
    );
    assert_eq!(record.definition, "parent=eth0,mtu=1400,gateway=10.7.0.2");
}

#[test]
fn a_network_has_its_pool_from_whichever_ipam_driver() {
    let of = |data: &str| made(&create_with(r#"{"parent":"eth0"}"#, data));
    let ours = of(
        r#"[{"AddressSpace":"leasehold","Pool":"10.7.0.0/16","Gateway":"10.7.0.1/16","AuxAddresses":{"a":"10.7.0.3/16"}}]"#,
    );
    assert_eq!(
        (ours.leases, ours.pool, ours.gateway),
        (true, "10.7.0.0/16".parse().unwrap(), None)
    );
    let others = made(&create_with(
        r#"{"parent":"eth0","addresses":"docker"}"#,
        r#"[{"AddressSpace":"LocalDefault","Pool":"10.7.0.0/16","Gateway":"10.7.0.1/16"}]"#,
    ));
    assert_eq!(others.definition, "parent=eth0,addresses=docker");
    assert_eq!(
        (others.leases, others.gateway),
        (false, Some(Ipv4Addr::new(10, 7, 0, 1)))
    );
    for nothing in [
        "null",
        "[]",
        "[{}]",
        r#"[{"AddressSpace":"null","Pool":"0.0.0.0/0"}]"#,
    ] {
        let none = of(nothing);
        assert_eq!(
            (none.leases, none.pool, none.gateway),
            (false, "0.0.0.0/0".parse().unwrap(), None),
            "{nothing}"
        );
    }
}

#[test]
fn an_impossible_network_is_refused_with_the_way_out() {
    let table = r#"
        {} => -o parent=LINK is missing
        null => -o parent=LINK is missing
        {"parent":"eth0","colour":"red"} => -o colour: unknown option; the options are mode, parent, bridge
        {"parent":"eth0","mode":"host"} => -o mode=host: expected macvlan, ipvlan or bridge
        {"mode":"bridge"} => -o bridge=LINK is missing
        {"mode":"bridge","parent":"eth0"} => -o bridge=
        {"mode":"macvlan","bridge":"br7"} => -o parent=
        {"parent":"eth0","bridge":"br7"} => -o parent=
        {"parent":"eth0123456789012"} => -o parent=eth0123456789012: expected the name of a host link
        {"bridge":"a/b"} => -o bridge=a/b: expected
        {"parent":"eth0","vlan":"0"} => -o vlan=0: expected the number of a VLAN, from 1 to 4094
        {"parent":"eth0","vlan":4095} => -o vlan=4095: expected
        {"parent":"eth0.10","vlan":"11"} => -o vlan=11
        {"parent":"enp0s31f6u2u1","vlan":"100"} => enp0s31f6u2u1.100
        {"bridge":"br7","vlan":"10"} => -o vlan=10 is not for -o mode=bridge
        {"parent":"eth0","mtu":"67"} => -o mtu=67: expected a number of bytes, from 68 to 65535
        {"parent":"eth0","mtu":"big"} => -o mtu=big: expected
        {"parent":"eth0","gateway":"0.0.0.0"} => -o gateway=0.0.0.0: expected the IPv4 address of the router
        {"parent":"eth0","macvlan_mode":"source"} => bridge, private, vepa or passthru
        {"parent":"eth0","mode":"ipvlan","macvlan_mode":"vepa"} => -o macvlan_mode
        {"parent":"eth0","addresses":"mine"} => -o addresses=mine: expected dhcp or docker
        {"parent":"eth0","timeout":"21"} => -o timeout=21: expected whole seconds, from 1 to 20
        {"parent":"eth0","parent2":["x"]} => -o parent2=
        {"parent":"eth0","mode":"ipvlan","client-id":"mac"} => -o client-id=mac: on ipvlan
        {"parent":"eth0","hostname":"{name}.lan"} => -o hostname={name}.lan
    "#;
    for [options, why] in rows(table) {
        let refused = said(on("CreateNetwork", &create(options)));
        assert!(refused.contains(why), "{options}: {refused}");
    }
    let table = r#"
        "com.docker.network.enable_ipv6":true, =>  => --ipv6
        => ,"IPv6Data":[{}] => --ipv6
        "com.docker.network.internal":true, =>  => --internal
        => ,"IPv4Data":[{},{}] => one --subnet
        => ,"IPv4Data":[{"Pool":"x"}] => --subnet
        => ,"NetworkID":"../x" => NetworkID
    "#;
    let generic = r#""com.docker.network.generic":{"parent":"eth0"}"#;
    for [options, more, why] in rows(table) {
        let id = match more.contains("NetworkID") {
            true => String::new(),
            false => format!(r#","NetworkID":"{NET}""#),
        };
        let body = format!(r#"{{"Options":{{{options}{generic}}}{id}{more}}}"#);
        let refused = said(on("CreateNetwork", &body));
        assert!(refused.contains(why), "{body}: {refused}");
    }
    assert!(said(on("CreateNetwork", "{}")).contains("NetworkID"));
    assert!(
        matches!(on("CreateNetwork", ""), Err(Refused::Undecodable(why)) if why.contains("no body"))
    );
}

#[test]
fn lease_options_are_refused_by_a_driver_without_leases() {
    let of = |space: &str, pool: &str, options: &str| {
        let data =
            format!(r#"[{{"AddressSpace":"{space}","Pool":"{pool}","Gateway":"10.7.0.1/16"}}]"#);
        on("CreateNetwork", &create_with(options, &data))
    };
    let denies = r#"{"parent":"eth0","servers-deny":"10.7.0.9"}"#;
    let table = r#"
        leasehold => 10.7.0.0/16 => dhcp => -o servers-deny: with --ipam-driver leasehold
        leasehold => 0.0.0.0/0 => dhcp => -o servers-deny: with --ipam-driver leasehold
        LocalDefault => 172.18.0.0/16 => docker => -o servers-deny: with -o addresses=docker there is no lease
    "#;
    for [space, pool, addresses, why] in rows(table) {
        let with = |more: &str| format!(r#"{{"parent":"eth0","addresses":"{addresses}",{more}}}"#);
        let refused = said(of(space, pool, &with(r#""servers-deny":"10.7.0.9""#)));
        assert!(refused.starts_with(why), "{refused}");
        assert!(of(space, pool, &with(r#""vlan":"10","release":"true""#)).is_ok());
    }
    assert!(of("null", "0.0.0.0/0", denies).is_ok());
}

/// As 20.10 says it if no IPAM driver is named, with --subnet and without; 28 and 29 leave the gateway out.
#[test]
fn addresses_by_docker_itself_must_be_asked_for() {
    for (space, pool, is_numbered) in [
        ("LocalDefault", "172.18.0.0/16", true),
        ("LocalDefault", "10.7.0.0/16", true),
        ("null", "0.0.0.0/0", false),
        ("leasehold", "0.0.0.0/0", false),
        ("leasehold", "10.7.0.0/16", false),
    ] {
        for (means_it, options) in [
            (false, r#"{"parent":"eth0"}"#),
            (true, r#"{"parent":"eth0","addresses":"docker"}"#),
        ] {
            let data = format!(r#"[{{"AddressSpace":"{space}","Pool":"{pool}"}}]"#);
            let body = create_with(options, &data);
            match (on("CreateNetwork", &body), is_numbered) {
                (Ok(_), _) => assert_eq!(means_it, is_numbered, "{body}"),
                (Err(Refused::Said(why)), true) => {
                    assert!(
                        !means_it
                            && ["--ipam-driver null", "-o addresses=docker", pool]
                                .iter()
                                .all(|way| why.contains(way)),
                        "{why}"
                    );
                }
                (Err(Refused::Said(why)), false) => {
                    assert!(means_it && why.contains("-o addresses=docker"), "{why}")
                }
                (Err(other), _) => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(
        network(r#"{"parent":"eth0","addresses":"dhcp"}"#).definition,
        "parent=eth0"
    );
}

#[test]
fn an_endpoint_without_an_address_gets_a_lease() {
    let net = network(r#"{"parent":"eth0","vlan":"10","timeout":"9","hostname":"h"}"#);
    // Nothing is known about it: 20.10 to 29 with the null driver.
    for interface in [
        "{}",
        "null",
        r#"{"Address":"","AddressIPv6":"","MacAddress":""}"#,
    ] {
        let (add, mac) = leased(of(&net, interface, "{}"));
        assert_eq!(mac, Mac([2, 1, 2, 3, 4, 5]));
        assert_eq!(
            add,
            Add {
                attachment: Attachment::Docker {
                    pool: "network 4f0066c1e7f1".into(),
                    endpoint: mac.to_string().into()
                },
                place: Place::Parent {
                    ifname: "eth0".into(),
                    mac
                },
                lan: Lan::Link {
                    parent: "eth0".into(),
                    vlan: 10
                },
                client_id: ClientIdRule::Mac,
                chaddr: None,
                wanted: None,
                profile: Profile {
                    client: Arc::new(ClientProfile {
                        hostname: Some("h".into()),
                        ..ClientProfile::default()
                    }),
                    policy: Policy {
                        suppress_default_route: true,
                        follow_router: true,
                        ..Policy::default()
                    },
                    wants: pool::wants(None),
                    ..Profile::default()
                },
                timeout: Duration::from_secs(9),
                hurried: Duration::ZERO,
                limits: None,
                fallback: None,
            }
        );
    }
    // An Ethernet address that the user chose may come again.
    for interface in ["{}", r#"{"MacAddress":"02:42:c0:ff:ee:01"}"#] {
        let (add, mac) = leased(of(&net, interface, CHOSEN));
        assert_eq!(
            (mac, add.profile.grace),
            (Mac([2, 0x42, 0xc0, 0xff, 0xee, 1]), Some(60))
        );
    }
    let (given, _) = leased(of(&net, r#"{"MacAddress":"02:42:c0:ff:ee:01"}"#, "{}"));
    assert_eq!(given.profile.grace, None, "Docker made it up");
    let kept = network(r#"{"parent":"eth0","grace":"90"}"#);
    assert_eq!(leased(of(&kept, "{}", "{}")).0.profile.grace, Some(90));
    let text = network(r#"{"parent":"eth0","client-id":"text:a"}"#);
    assert_eq!(leased(of(&text, "{}", "{}")).0.profile.grace, Some(60));
}

#[test]
fn an_endpoint_asks_over_its_bridge_or_as_its_parent() {
    let (add, mac) = leased(of(&network(r#"{"bridge":"br7"}"#), "{}", "{}"));
    assert_eq!(
        (add.place, add.lan),
        (
            Place::Parent {
                ifname: "br7".into(),
                mac
            },
            Lan::Link {
                parent: "br7".into(),
                vlan: 0
            }
        )
    );
    let ipvlan = network(r#"{"parent":"eth0","mode":"ipvlan"}"#);
    let (add, mac) = leased(of(&ipvlan, "{}", "{}"));
    assert_eq!(
        (mac, add.place.clone()),
        (
            ETH0,
            Place::Parent {
                ifname: "eth0".into(),
                mac: ETH0
            }
        )
    );
    assert!(add.profile.on_parent && add.profile.client.broadcast && add.profile.grace.is_none());
    assert!(
        matches!(add.attachment, Attachment::Docker { endpoint, .. } if endpoint == "endpoint:e9d0066c1e7f")
    );
    assert!(matches!(add.client_id, ClientIdRule::Bytes(_)));
    for options in ["{}", CHOSEN] {
        let refused = said(of(
            &ipvlan,
            r#"{"MacAddress":"02:42:c0:ff:ee:01"}"#,
            options,
        ));
        assert!(refused.contains("--mac-address"), "{refused}");
    }
    assert!(said(of(&ipvlan, "{}", CHOSEN)).contains("--mac-address"));
    let ours = NetworkRecord {
        leases: true,
        ..ipvlan
    };
    let refused = said(of(
        &ours,
        r#"{"MacAddress":"02:42:c0:ff:ee:01","Address":"10.7.1.5/16"}"#,
        "{}",
    ));
    assert!(
        refused.contains("--ipam-driver leasehold-ipvlan"),
        "{refused}"
    );
}

#[test]
fn an_endpoint_with_an_address_has_that() {
    let net = NetworkRecord {
        leases: true,
        ..network(r#"{"parent":"eth0"}"#)
    };
    let interface = r#"{"Address":"10.7.1.5/16","MacAddress":"02:42:c0:ff:ee:01"}"#;
    let (request, form) = requested(of(&net, interface, "{}"));
    let mac = Mac([2, 0x42, 0xc0, 0xff, 0xee, 1]);
    let address = "10.7.1.5/16".parse().unwrap();
    assert_eq!(
        request,
        EndpointRequest {
            id: id(END),
            network: id(NET),
            mac,
            address: EndpointAddress::Ipam(address)
        }
    );
    let record = |source| EndpointRecord {
        id: id(END),
        network: id(NET),
        mac,
        address,
        source,
        since: WallTime::from_epoch(Duration::ZERO),
    };
    let answer = |form: &Form, source| {
        form.answer(&Answer::Network(NetworkAnswer::Endpoint(Box::new(record(
            source,
        )))))
    };
    assert_eq!(
        answer(&form, AddressSource::Ipam),
        Ok(r#"{"Interface":{}}"#.to_owned())
    );
    let (_, form) = requested(of(&net, r#"{"Address":"10.7.1.5/16"}"#, "{}"));
    assert_eq!(
        answer(&form, AddressSource::Ipam),
        Ok(r#"{"Interface":{"MacAddress":"02:42:c0:ff:ee:01"}}"#.to_owned())
    );
    let lease = || {
        AddressSource::Leased(Attachment::Docker {
            pool: "network x".into(),
            endpoint: "y".into(),
        })
    };
    let (_, form) = requested(of(&net, "{}", "{}"));
    let both = r#"{"Interface":{"Address":"10.7.1.5/16","MacAddress":"02:42:c0:ff:ee:01"}}"#;
    assert_eq!(answer(&form, lease()), Ok(both.to_owned()));
    // Docker accepts none in place of one that it has.
    let (_, form) = requested(of(&net, r#"{"MacAddress":"02:42:c0:ff:ee:01"}"#, CHOSEN));
    assert_eq!(
        answer(&form, lease()),
        Ok(r#"{"Interface":{"Address":"10.7.1.5/16"}}"#.to_owned())
    );
}

#[test]
fn what_no_endpoint_can_be_is_refused() {
    let net = network(r#"{"parent":"eth0"}"#);
    // The null driver gives no address, so this is one that the user chose, and no lease is behind it.
    let chosen = said(of(&net, r#"{"Address":"10.7.1.5/16"}"#, "{}"));
    assert!(
        chosen.starts_with(r#"--ip "10.7.1.5/16": "#) && chosen.contains("--ipam-driver leasehold"),
        "{chosen}"
    );
    let net = NetworkRecord {
        leases: true,
        ..net
    };
    let table = r#"
        {"Address":"10.7.1.5"} => {} => not an IPv4 address with a prefix
        {"AddressIPv6":"2001:db8::1/64"} => {} => --ip6
        {"MacAddress":"01:00:00:00:00:01"} => {} => Ethernet address
        {} => {"com.docker.network.endpoint.macaddress":"////////"} => --mac-address
        {} => {"com.docker.network.endpoint.macaddress":"AkLA/+4"} => Ethernet address
        {} => {"com.docker.network.endpoint.macaddress":7} => Base64
    "#;
    for [interface, options, why] in rows(table) {
        let refused = said(of(&net, interface, options));
        assert!(refused.contains(why), "{interface} {options}: {refused}");
    }
    let table = r#"
        CreateEndpoint => {"NetworkID":"NET","EndpointID":""}
        CreateEndpoint => {"NetworkID":"","EndpointID":"END"}
        DeleteEndpoint => {"NetworkID":"NET"}
        DeleteNetwork => {}
        Join => {"NetworkID":"NET"}
    "#;
    for [method, body] in rows(table) {
        assert!(
            said(on(method, body)).contains("not a Docker id"),
            "{method} {body}"
        );
        assert!(matches!(on(method, ""), Err(Refused::Undecodable(_))));
    }
}

#[test]
fn the_other_calls_name_their_network_or_endpoint() {
    let both = format!(r#"{{"NetworkID":"{NET}","EndpointID":"{END}"}}"#);
    assert_eq!(
        asked("DeleteNetwork", &format!(r#"{{"NetworkID":"{NET}"}}"#)).0,
        NetworkCall::Delete(id(NET))
    );
    assert_eq!(
        asked("DeleteEndpoint", &both).0,
        NetworkCall::DeleteEndpoint(id(END))
    );
    let (call, form) = asked("DeleteNetwork", &both);
    assert_eq!(call, NetworkCall::Delete(id(NET)));
    assert_eq!(
        form.answer(&Answer::Network(NetworkAnswer::Done)),
        Ok("{}".to_owned())
    );
    let unknown = Failure::Network(NetworkFault::Unknown(id(NET)));
    let refused = form.answer(&Answer::Failed(unknown)).unwrap_err();
    assert!(matches!(refused, Refused::Said(why) if why.contains("docker network create")));
    let gone = Failure::Link {
        target: "eth9".into(),
        cause: LinkCause::NoLink("eth9".into()),
    };
    let refused = form.answer(&Answer::Failed(gone)).unwrap_err();
    assert!(
        matches!(refused, Refused::Said(why) if why.contains("-o parent=") && !why.contains("ipam"))
    );
    assert!(
        matches!(form.answer(&Answer::Deleted), Err(Refused::Said(why)) if why.contains("bug"))
    );
}

#[test]
fn a_join_is_told_the_link_its_router_and_the_way_there() {
    let body = format!(
        r#"{{"NetworkID":"{NET}","EndpointID":"{END}","SandboxKey":"/var/run/docker/netns/1a2b3c4d5e6f","Options":{{"com.docker.network.endpoint.exposedports":[]}}}}"#
    );
    let (call, form) = asked("Join", &body);
    let sandbox = "/var/run/docker/netns/1a2b3c4d5e6f".to_owned();
    assert_eq!(
        call,
        NetworkCall::Join {
            network: id(NET),
            endpoint: id(END),
            sandbox
        }
    );
    let mut lease = lease();
    lease.routes = vec![LeaseRoute {
        destination: "203.0.113.1/32".parse().unwrap(),
        via: None,
    }];
    lease.gateway = Some(Ipv4Addr::new(203, 0, 113, 1));
    let grant = Box::new(lease.grant(&Policy::default()));
    let joined = |form: &Form, grant, gateway| {
        form.answer(&Answer::Network(NetworkAnswer::Joined {
            ifname: "lh1".into(),
            grant,
            gateway,
        }))
        .unwrap()
    };
    let routes = r#"{"Destination":"203.0.113.1/32","RouteType":1}"#;
    let text = |gateway: &str, routes: &str, none: bool| {
        format!(
            r#"{{"DisableGatewayService":{none},"Gateway":"{gateway}","InterfaceName":{{"DstName":"","DstPrefix":"eth","SrcName":"lh1"}},"StaticRoutes":[{routes}]}}"#
        )
    };
    assert_eq!(
        joined(&form, Some(grant.clone()), None),
        text("203.0.113.1", routes, false)
    );
    let named = Some(Ipv4Addr::new(192, 0, 2, 2));
    assert_eq!(
        joined(&form, Some(grant), named),
        text("192.0.2.2", routes, false)
    );
    assert_eq!(joined(&form, None, named), text("192.0.2.2", "", false));
    assert_eq!(joined(&form, None, None), text("", "", true));

    let named = |name: &str| {
        format!(
            r#"{{"NetworkID":"{NET}","EndpointID":"{END}","Options":{{"com.docker.network.endpoint.ifname":{name}}}}}"#
        )
    };
    let (_, form) = asked("Join", &named(r#""lan0""#));
    assert!(joined(&form, None, None).contains(r#""DstName":"lan0""#));
    for bad in [r#""a/b""#, "7", r#""0123456789abcdef""#] {
        assert!(
            said(on("Join", &named(bad))).contains("expected the name of a link"),
            "{bad}"
        );
    }
}

const MAC_ONLY: &str = r#"{"com.docker.network.endpoint.macaddress":"02:42:c0:a8:01:02"}"#;

#[test]
fn a_pool_without_a_lan_is_refused_with_the_right_line() {
    let call =
        |method, body: &str| with_host(false, |host| Asked::parse(method, body.as_bytes(), host));
    for body in [
        "{}",
        r#"{"AddressSpace":"leasehold","Pool":"","Options":{"grace":"9"},"V6":false}"#,
        r#"{"Pool":"0.0.0.0/0"}"#,
    ] {
        let line = "docker network create -d leasehold -o parent=eth0 --ipam-driver leasehold --ipam-opt parent=eth0 lan";
        assert!(
            said(call(wire::REQUEST_POOL, body)).contains(line),
            "{body}"
        );
    }
    // One that an earlier version took.
    let body = format!(r#"{{"PoolID":"0.0.0.0/0;;grace=9","Address":"","Options":{MAC_ONLY}}}"#);
    assert!(said(call(wire::REQUEST_ADDRESS, &body)).contains("--ipam-opt parent=LINK is missing"));
    let body = r#"{"PoolID":"0.0.0.0/0;;grace=9"}"#;
    // Its network can be removed.
    assert!(matches!(
        call(wire::RELEASE_POOL, body),
        Ok(Asked::Core { .. })
    ),);
}

#[test]
fn a_pool_that_is_all_there_is_has_no_gateway() {
    let call =
        |method, body: &str| with_host(false, |host| Asked::parse(method, body.as_bytes(), host));
    let gateway = r#"{"PoolID":"0.0.0.0/0;;parent=eth0","Address":"","Options":{"RequestAddressType":"com.docker.network.gateway"}}"#;
    assert_eq!(
        call(wire::REQUEST_ADDRESS, gateway),
        Ok(Asked::Known(r#"{"Address":"0.0.0.0/0"}"#.to_owned()))
    );
    for definition in ["", "parent=eth0"] {
        let release = format!(r#"{{"PoolID":"0.0.0.0/0;;{definition}","Address":"0.0.0.0"}}"#);
        assert_eq!(
            call(wire::RELEASE_ADDRESS, &release),
            Ok(Asked::Known("{}".to_owned()))
        );
    }
}
