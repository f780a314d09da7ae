//! What dockerd sends, byte for byte as versions 20.10, 28 and 29 do, and what it becomes.

use std::time::Duration;

use ipnet::Ipv4Net;
use leasehold_api::docker as wire;
use leasehold_core::effect::{Add, Answer, Call, ClientIdRule, Failure, PoolCall, PoolRequest};
use leasehold_core::grant::policy::Policy;
use leasehold_core::identity::{AddressHolder, Attachment, ClientId, Lan};
use leasehold_core::link::{LinkCause, Place};
use leasehold_core::pool::PoolId;
use leasehold_core::profile::{Profile, Wants};
use leasehold_core::source::Wanted;
use leasehold_core::wire::Mac;

use super::super::Site;
use super::super::client_id::MachineId;
use super::super::docker::{Asked, Form, Host, Refused};
use super::{lease, rows};

mod lan;

const ETH0: Mac = Mac([2, 0, 0, 0, 0, 0xe0]);
const POOL: &str = "192.168.1.0/24;;parent=eth0";

fn eth0() -> Lan {
    Lan::Link {
        parent: "eth0".into(),
        vlan: 0,
    }
}

/// The endpoint of that name in the usual pool.
fn endpoint(name: &str) -> Attachment {
    Attachment::Docker {
        pool: POOL.into(),
        endpoint: name.into(),
    }
}

/// A host with `eth0`, without `eth0.10`.
fn site() -> Site {
    Site {
        machine_id: MachineId::parse(&"5".repeat(32)),
        ..Site::default()
    }
}

fn on(site: Site, ipvlan: bool, method: &str, body: &str) -> Result<Asked, Refused> {
    let link = |name: &str| ["eth0", "br7"].contains(&name).then_some(ETH0);
    let links_in = |subnet: Ipv4Net| {
        let all = [
            ("192.168.1.0/24", "eth0"),
            ("10.1.0.0/16", "eth1"),
            ("10.1.0.0/16", "br7"),
        ];
        let having = all.iter().filter(|(net, _)| subnet.to_string() == *net);
        having.map(|(_, link)| (*link).to_owned()).collect()
    };
    Asked::parse(
        method,
        body.as_bytes(),
        &Host {
            site,
            ipvlan,
            link: &link,
            links_in: &links_in,
            number: 0x0102_0304_0506_0708,
        },
    )
}

fn asked(ipvlan: bool, method: &str, body: &str) -> (Call, Form) {
    of_core(on(site(), ipvlan, method, body))
}

fn of_core(asked: Result<Asked, Refused>) -> (Call, Form) {
    match asked {
        Ok(Asked::Core { call, form }) => (call, form),
        other => panic!("{other:?}"),
    }
}

fn said(ipvlan: bool, method: &str, body: &str) -> String {
    match on(site(), ipvlan, method, body) {
        Err(Refused::Said(why)) => why,
        other => panic!("{body}: {other:?}"),
    }
}

fn pool(ipvlan: bool, body: &str) -> PoolRequest {
    match asked(ipvlan, wire::REQUEST_POOL, body).0 {
        Call::Pool(PoolCall::Request(pool)) => *pool,
        other => panic!("{other:?}"),
    }
}

/// The body of a request for a pool with these options too.
fn with(options: &str) -> String {
    let comma = if options.is_empty() { "" } else { "," };
    format!(
        r#"{{"AddressSpace":"leasehold","Pool":"192.168.1.0/24","SubPool":"","Options":{{"parent":"eth0"{comma}{options}}},"V6":false}}"#
    )
}

/// The body of a request for an address.
fn address(pool: &str, address: &str, options: &str) -> String {
    format!(r#"{{"PoolID":"{pool}","Address":"{address}","Options":{options}}}"#)
}

fn add(ipvlan: bool, body: &str) -> Add {
    add_on(site(), ipvlan, body)
}

fn add_on(site: Site, ipvlan: bool, body: &str) -> Add {
    match of_core(on(site, ipvlan, wire::REQUEST_ADDRESS, body)).0 {
        Call::Add(add) => *add,
        other => panic!("{other:?}"),
    }
}

const MAC_ONLY: &str = r#"{"com.docker.network.endpoint.macaddress":"02:42:c0:a8:01:02"}"#;
const MAC_AND_NAME: &str = r#"{"com.docker.network.endpoint.macaddress":"02:42:c0:a8:01:02","com.docker.network.endpoint.name":"web"}"#;
const NAME_ONLY: &str = r#"{"com.docker.network.endpoint.name":"web"}"#;
const GATEWAY: &str = r#"{"RequestAddressType":"com.docker.network.gateway"}"#;

fn id(text: &str) -> PoolId {
    text.parse().unwrap()
}

#[test]
fn a_pool_is_asked_for_with_its_subnet_or_without() {
    let whole = pool(false, &with(""));
    assert_eq!(whole.definition, "parent=eth0");
    assert_eq!(
        (whole.subnet, whole.range),
        (Some("192.168.1.0/24".parse().unwrap()), None)
    );
    assert_eq!(whole.lan, eth0());
    assert_eq!(whole.timeout, Duration::from_secs(20));
    assert!(
        whole.ifname == "eth0" && whole.mac.0[0] == 2 && whole.mac != ETH0,
        "{whole:?}"
    );
    // --ip-range, and host bits in both.
    let part =
        r#"{"Pool":"192.168.1.7/24","SubPool":"192.168.1.130/25","Options":{"parent":"eth0"}}"#;
    let part = pool(false, part);
    assert_eq!(
        part.subnet.zip(part.range),
        Some((
            "192.168.1.0/24".parse().unwrap(),
            "192.168.1.128/25".parse().unwrap()
        ))
    );
    // No --subnet.
    let any = pool(
        false,
        r#"{"AddressSpace":"leasehold","Pool":"","SubPool":"","Options":{"parent":"br7"},"V6":false}"#,
    );
    assert_eq!((any.subnet, any.definition.as_str()), (None, "parent=br7"));
    // On ipvlan everything has the parent's Ethernet address.
    let ipvlan = pool(true, &with(""));
    assert_eq!((&*ipvlan.ifname, ipvlan.mac), ("eth0", ETH0));
    assert!(ipvlan.profile.on_parent && ipvlan.profile.client.broadcast);
}

#[test]
fn options_are_spelled_in_a_pool_id_and_read_from_it() {
    let table = r#"
        => parent=eth0
        "client-id":"auto","release":"true" => parent=eth0
        "client-id":"hex:01:0A:ff" => parent=eth0,client-id=hex:010aff
        "client-id":"text:a, 100% ü" => parent=eth0,client-id=text:a%2c%20100%25%20%c3%bc
        "client-id":"none" => parent=eth0,client-id=none
        "client-id":"mac","grace":"0" => parent=eth0,client-id=mac,grace=0
        "fallback":"192.168.1.200-192.168.1.220" => parent=eth0,fallback=192.168.1.200-192.168.1.220
        "hostname":"" => parent=eth0,hostname=
        "hostname":"{name}.lan","timeout":"7" => parent=eth0,hostname={name}.lan,timeout=7
        "servers-deny":"10.0.0.9","servers-allow":"10.0.0.2, 10.0.0.1","release":"false" => parent=eth0,servers-allow=10.0.0.1%2c10.0.0.2,servers-deny=10.0.0.9,release=false
    "#;
    for [options, definition] in rows(table) {
        let asked = pool(false, &with(options));
        assert_eq!(asked.definition, definition);
        let id = PoolId::new(definition, "192.168.1.0/24".parse().unwrap(), None).to_string();
        let add = add(false, &address(&id, "", MAC_AND_NAME));
        assert_eq!(add.profile.client.servers, asked.profile.client.servers);
        assert_eq!(
            (add.profile.release, add.timeout),
            (asked.profile.release, asked.timeout)
        );
        assert!(matches!(add.attachment, Attachment::Docker { pool, .. } if pool == id));
    }
}

#[test]
fn a_bad_option_is_named_with_its_value_and_the_remedy() {
    let table = r#"
        "parnet":"eth1" => --ipam-opt parnet: unknown option; the options are parent, client-id, hostname, timeout,
        "parent":"eth 0" => --ipam-opt parent=eth 0: expected the name of a host link
        "client-id":"pod" => --ipam-opt client-id=pod: expected auto, mac, none, duid, hex:… or text:…
        "client-id":"hex:1" => --ipam-opt client-id=hex:1: expected hex: and the bytes of option 61
        "client-id":"text:" => --ipam-opt client-id=text:: expected text: and 1 to 254 bytes
        "timeout":"21" => --ipam-opt timeout=21: expected whole seconds, from 1 to 20
        "timeout":"0" => --ipam-opt timeout=0: expected whole seconds, from 1 to 20
        "servers-allow":"dhcp.lan" => --ipam-opt servers-allow=dhcp.lan: expected comma-separated IPv4 addresses
        "release":"no" => --ipam-opt release=no: expected true or false
        "fallback":"192.168.1.9-192.168.1.2" => --ipam-opt fallback=192.168.1.9-192.168.1.2: expected the first and the last address
        "grace":"1m" => --ipam-opt grace=1m: expected a number of seconds
        "hostname":"a b" => --ipam-opt hostname=a b: expected a host name
    "#;
    for [options, why] in rows(table) {
        let body = with(options);
        let said = said(false, wire::REQUEST_POOL, &body);
        assert!(said.starts_with(why), "{said}");
    }
    let table = r#"
        {"Pool":"","Options":null} => --ipam-opt parent=LINK is missing: name the host's link
        {"SubPool":"10.0.0.0/25","Options":{"parent":"eth0"}} => --ip-range 10.0.0.0/25 needs the --subnet
        {"Pool":"fd00::/64","V6":true,"Options":{"parent":"eth0"}} => leasehold leases IPv4 addresses: leave out --ipv6
        {"Pool":"","V6":true,"Options":{"parent":"eth0"}} => leasehold leases IPv4 addresses: leave out --ipv6
        {"Pool":"lan","Options":{"parent":"eth0"}} => --subnet "lan": not a subnet
    "#;
    for [body, why] in rows(table) {
        let said = said(false, wire::REQUEST_POOL, body);
        assert!(said.starts_with(why), "{said}");
    }
    for kind in ["mac", "none"] {
        let options = format!(r#""client-id":"{kind}""#);
        let said = said(true, wire::REQUEST_POOL, &with(&options));
        assert!(said.contains(&format!("client-id={kind}: on ipvlan all containers have")));
    }
    let nobody = on(
        Site::default(),
        false,
        wire::REQUEST_POOL,
        &with(r#""client-id":"duid""#),
    );
    assert!(matches!(nobody, Err(Refused::Said(why)) if why.contains("systemd-machine-id-setup")));
    let nobody = on(Site::default(), true, wire::REQUEST_POOL, &with(""));
    assert!(
        matches!(nobody, Err(Refused::Said(why)) if why.contains("client-id=auto needs the host's /etc/machine-id"))
    );
    assert!(on(Site::default(), false, wire::REQUEST_POOL, &with("")).is_ok());
}

#[test]
fn an_endpoint_gets_a_lease_for_its_ethernet_address() {
    // 20.10 and 28.
    let add = add(false, &address(POOL, "", MAC_ONLY));
    let mac = Mac([2, 0x42, 0xc0, 0xa8, 1, 2]);
    assert_eq!(add.attachment, endpoint("02:42:c0:a8:01:02"));
    assert_eq!(
        add.place,
        Place::Parent {
            ifname: "eth0".into(),
            mac
        }
    );
    assert_eq!((add.lan, add.limits), (eth0(), Some(id(POOL).limits())));
    assert_eq!(
        (add.client_id, add.wanted, add.chaddr),
        (ClientIdRule::Mac, None, None)
    );
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let profile = Profile {
        policy: Policy {
            prefix: Some(24),
            suppress_default_route: true,
            follow_router: true,
            ..Policy::default()
        },
        wants: Wants {
            patience: seconds(5),
            sought_for: seconds(600),
            told_once: true,
        },
        ..Profile::default()
    };
    assert_eq!(
        (add.profile, add.timeout),
        (profile, Duration::from_secs(20))
    );
    // --ip
    let wanted = self::add(false, &address(POOL, "192.168.1.77", MAC_ONLY)).wanted;
    assert_eq!(
        wanted,
        Some(Wanted {
            address: "192.168.1.77".parse().unwrap(),
            preferred: false
        })
    );
}

#[test]
fn a_name_is_one_client_on_each_host() {
    let one = add(false, &address(POOL, "", MAC_AND_NAME));
    assert_eq!(
        (one.profile.grace, one.profile.client.hostname.as_deref()),
        (Some(60), Some("web"))
    );
    let bytes = one.client_id.resolve(Mac::default());
    // Fixed: servers recognise the host's containers by it. RFC 4361: type 255, IAID, DUID-UUID.
    assert_eq!(bytes.to_string().len(), 2 * (1 + 4 + 18));
    assert!(bytes.to_string().starts_with("ff") && bytes.to_string()[10..14] == *"0004");
    let successor = MAC_AND_NAME.replace("02:42:c0:a8:01:02", "02:42:c0:a8:01:99");
    let two = add(false, &address(POOL, "", &successor));
    assert_eq!(two.client_id, one.client_id);
    assert_ne!(two.attachment, one.attachment);
    // Another range or time-out does not make it another container.
    let range = "192.168.1.0/24;192.168.1.128/25;parent=eth0,timeout=7";
    assert_eq!(
        add(false, &address(range, "", MAC_AND_NAME)).client_id,
        one.client_id
    );
    for other in ["192.168.2.0/24;;parent=eth0", "192.168.1.0/24;;parent=br7"] {
        assert_ne!(
            add(false, &address(other, "", MAC_AND_NAME)).client_id,
            one.client_id
        );
    }
    let elsewhere = Site {
        machine_id: MachineId::parse(&"6".repeat(32)),
        ..site()
    };
    let elsewhere = add_on(elsewhere, false, &address(POOL, "", MAC_AND_NAME));
    assert_ne!(elsewhere.client_id, one.client_id);
    let nowhere = add_on(Site::default(), false, &address(POOL, "", MAC_AND_NAME));
    assert_eq!(
        (nowhere.client_id, nowhere.profile.grace),
        (ClientIdRule::Mac, None)
    );
}

#[test]
fn a_network_chooses_its_client_identifier_and_grace() {
    let of = |options: &str, sent: &str| {
        let add = add(false, &address(&format!("{POOL}{options}"), "", sent));
        (
            add.client_id
                .resolve(Mac([2, 0x42, 0xc0, 0xa8, 1, 2]))
                .to_string(),
            add.profile.grace,
        )
    };
    let mac = "010242c0a80102".to_owned();
    assert_eq!(of("", MAC_ONLY), (mac.clone(), None));
    assert_eq!(of(",client-id=mac", MAC_AND_NAME), (mac.clone(), Some(60)));
    assert_eq!(of(",client-id=none", MAC_AND_NAME), (mac.clone(), Some(60)));
    let nameless = |options: &str| {
        let add = add(false, &address(&format!("{POOL}{options}"), "", MAC_ONLY));
        add.profile.client.without_client_id
    };
    assert!(nameless(",client-id=none") && !nameless(",client-id=mac"));
    assert_eq!(
        of(",client-id=hex:0102ff,grace=5", MAC_ONLY),
        ("0102ff".to_owned(), Some(5))
    );
    assert_eq!(
        of(",client-id=text:web", MAC_ONLY),
        ("00776562".to_owned(), Some(60))
    );
    assert_eq!(of(",client-id=duid", MAC_AND_NAME), of("", MAC_AND_NAME));
    let (duid, grace) = of(",client-id=duid", MAC_ONLY);
    assert!(duid.starts_with("ff") && grace == Some(60));
    // With --mac-address an endpoint comes back too, which nothing tells the driver.
    assert_eq!(of(",grace=30", MAC_ONLY).1, Some(30));
    assert_eq!(
        (of(",grace=0", MAC_ONLY).1, of(",grace=0", MAC_AND_NAME).1),
        (None, Some(0))
    );
}

#[test]
fn the_host_name_is_the_networks_or_the_containers() {
    let of = |options: &str, sent: &str| {
        add(false, &address(&format!("{POOL}{options}"), "", sent))
            .profile
            .client
            .hostname
            .clone()
    };
    assert_eq!(of("", MAC_ONLY), None);
    assert_eq!(of("", MAC_AND_NAME).as_deref(), Some("web"));
    assert_eq!(of(",hostname=", MAC_AND_NAME), None);
    assert_eq!(of(",hostname=x", MAC_ONLY).as_deref(), Some("x"));
    assert_eq!(
        of(",hostname={name}.docker", MAC_AND_NAME).as_deref(),
        Some("web.docker")
    );
    let body = address(&format!("{POOL},hostname={{name}}.docker"), "", MAC_ONLY);
    let why = said(false, wire::REQUEST_ADDRESS, &body);
    assert!(
        why.contains("Docker passes it from version 29 on, and only to --ipam-driver leasehold"),
        "{why}"
    );
}

#[test]
fn gateways_and_aux_addresses_are_reserved() {
    let reserve = |text: Option<&str>| {
        Call::Pool(PoolCall::Reserve {
            pool: id(POOL),
            address: text.map(|text| text.parse().unwrap()),
        })
    };
    for ipvlan in [false, true] {
        let (call, form) = asked(
            ipvlan,
            wire::REQUEST_ADDRESS,
            &address(POOL, "192.168.1.1", GATEWAY),
        );
        assert_eq!(
            (call, form.warning.as_deref()),
            (reserve(Some("192.168.1.1")), None)
        );
        assert_eq!(
            asked(ipvlan, wire::REQUEST_ADDRESS, &address(POOL, "", GATEWAY)).0,
            reserve(None)
        );
        let (call, form) = asked(
            ipvlan,
            wire::REQUEST_ADDRESS,
            &address(POOL, "192.168.1.5", "null"),
        );
        assert_eq!(
            (call, form.warning.is_some()),
            (reserve(Some("192.168.1.5")), ipvlan)
        );
        let answer = form
            .answer(&Answer::Reserved("192.168.1.5".parse().unwrap()))
            .unwrap();
        assert_eq!(answer, r#"{"Address":"192.168.1.5/24"}"#);
    }
    let why = said(false, wire::REQUEST_ADDRESS, &address(POOL, "", "null"));
    assert!(why.contains("--ipam-driver leasehold-ipvlan"), "{why}");
}

#[test]
fn an_ipvlan_endpoint_is_known_by_its_name_or_a_number() {
    let named = add(true, &address(POOL, "192.168.1.9", NAME_ONLY));
    assert_eq!(named.attachment, endpoint("address:web"));
    assert_eq!(
        named.place,
        Place::Parent {
            ifname: "eth0".into(),
            mac: ETH0
        }
    );
    assert!(named.profile.on_parent && named.profile.client.broadcast && named.wanted.is_some());
    assert_eq!(
        named.client_id,
        add(false, &address(POOL, "", MAC_AND_NAME)).client_id
    );
    // 28: Options are null.
    let unnamed = add(true, &address(POOL, "", "null"));
    assert_eq!(unnamed.attachment, endpoint("address:#0102030405060708"));
    // Not the Ethernet address, which all have.
    assert!(
        unnamed
            .client_id
            .resolve(ETH0)
            .to_string()
            .starts_with("ff"),
    );
    assert_eq!(
        (
            unnamed.profile.grace,
            unnamed.profile.client.hostname.as_deref()
        ),
        (None, None)
    );
}

#[test]
fn answers_are_in_libnetworks_words() {
    let (_, form) = asked(false, wire::REQUEST_POOL, &with(""));
    let gateway = Some("192.168.1.1".parse().unwrap());
    assert_eq!(
        form.answer(&Answer::Pool {
            id: id(POOL),
            gateway
        })
        .unwrap(),
        r#"{"Data":{"com.docker.network.gateway":"192.168.1.1/24"},"Pool":"192.168.1.0/24","PoolID":"192.168.1.0/24;;parent=eth0"}"#
    );
    assert_eq!(
        form.answer(&Answer::Pool {
            id: id(POOL),
            gateway: None
        })
        .unwrap(),
        r#"{"Data":{},"Pool":"192.168.1.0/24","PoolID":"192.168.1.0/24;;parent=eth0"}"#
    );
    let body = format!(r#"{{"PoolID":"{POOL}"}}"#);
    let (call, form) = asked(false, wire::RELEASE_POOL, &body);
    assert_eq!(
        (call, form.answer(&Answer::PoolReleased).as_deref()),
        (Call::Pool(PoolCall::Release { id: id(POOL) }), Ok("{}"))
    );
    let body = format!(r#"{{"PoolID":"{POOL}","Address":"192.168.1.23"}}"#);
    let (call, form) = asked(true, wire::RELEASE_ADDRESS, &body);
    assert_eq!(
        call,
        Call::Pool(PoolCall::ReleaseAddress {
            pool: id(POOL),
            address: "192.168.1.23".parse().unwrap()
        })
    );
    assert_eq!(form.answer(&Answer::Released).as_deref(), Ok("{}"));
    // The pool's prefix, whatever the lease's.
    let body = address("192.0.0.0/16;;parent=eth0", "", MAC_ONLY);
    let policy = add(false, &body).profile.policy;
    let (_, form) = asked(false, wire::REQUEST_ADDRESS, &body);
    assert_eq!(
        form.answer(&Answer::leased(&lease(), &policy)).as_deref(),
        Ok(r#"{"Address":"192.0.2.10/16"}"#)
    );
}

#[test]
fn a_call_with_a_foreign_pool_or_no_body_is_refused() {
    for method in [
        wire::REQUEST_POOL,
        wire::RELEASE_POOL,
        wire::REQUEST_ADDRESS,
        wire::RELEASE_ADDRESS,
    ] {
        for body in ["", "{", "null", "7", r#"{"PoolID":7,"Pool":7}"#] {
            assert!(
                matches!(
                    on(site(), false, method, body),
                    Err(Refused::Undecodable(_))
                ),
                "{method} {body}"
            );
        }
    }
    for pool in [
        "",
        "x",
        "192.168.1.0/24",
        "192.168.1.0/24;;",
        "192.168.1.0/24;;parent",
        "192.168.1.1/24;;parent=eth0",
    ] {
        for method in [wire::REQUEST_ADDRESS, wire::RELEASE_ADDRESS] {
            let body = address(pool, "192.168.1.9", MAC_ONLY);
            if let Ok(asked) = on(site(), false, method, &body) {
                // What is given back need not be understood.
                assert!(
                    matches!(
                        asked,
                        Asked::Core {
                            call: Call::Pool(PoolCall::ReleaseAddress { .. }),
                            ..
                        }
                    ),
                    "{pool}"
                );
            }
        }
    }
    for text in [
        "fd00::1",
        "192.168.1.0/24",
        "0.0.0.0",
        "255.255.255.255",
        "127.0.0.1",
        "224.0.0.1",
        "x",
    ] {
        let why = said(false, wire::REQUEST_ADDRESS, &address(POOL, text, MAC_ONLY));
        assert!(why.ends_with("is not an IPv4 address of a host"), "{why}");
    }
    let table = r#"
        {"com.docker.network.endpoint.macaddress":"02:42"} => "02:42" is not the Ethernet address of an interface
        {"com.docker.network.endpoint.macaddress":"01:00:5e:00:00:01"} => is not the Ethernet address
        {"com.docker.network.endpoint.name":"../x"} => "../x" is not the name of a container
    "#;
    for [options, why] in rows(table) {
        assert!(
            said(false, wire::REQUEST_ADDRESS, &address(POOL, "", options)).contains(why),
            "{options}"
        );
    }
}

#[test]
fn a_failure_is_in_dockers_words() {
    let (_, form) = asked(false, wire::REQUEST_ADDRESS, &address(POOL, "", MAC_ONLY));
    let holder = endpoint("02:42:c0:a8:01:03");
    let [server, one, other] =
        ["192.168.1.1", "192.168.1.7", "192.168.1.8"].map(|text| text.parse().unwrap());
    let table = [
        (
            Failure::Link {
                target: "host link eth9".into(),
                cause: LinkCause::NoLink("eth9".into()),
            },
            "there is no link eth9 on this host: --ipam-opt parent= must name the LAN's link",
        ),
        (
            Failure::NotWanted {
                server,
                wanted: one,
                offered: other,
            },
            "server 192.168.1.1 offers 192.168.1.8 instead of --ip 192.168.1.7: have it reserve 192.168.1.7 for",
        ),
        (
            Failure::AddressHeld {
                server: None,
                address: one,
                holder: AddressHolder::Attachment(holder.clone().into()),
                shared: None,
            },
            "the container 02:42:c0:a8:01:03 on the network 192.168.1.0/24 with parent=eth0 has 192.168.1.7: stop that container first",
        ),
        (
            Failure::AddressHeld {
                server: Some(server),
                address: one,
                holder: AddressHolder::Host("eth0".into()),
                shared: None,
            },
            "server 192.168.1.1 gives this container 192.168.1.7, which this host itself (eth0) has: take it out of",
        ),
        (
            Failure::Held {
                lan: eth0(),
                client_id: ClientId::ethernet(ETH0),
                holder: holder.clone(),
                seen: true,
            },
            "another container on eth0 has --mac-address 02:00:00:00:00:e0 (the container 02:42:c0:a8:01:03 on the network 192.168.1.0/24 with parent=eth0): \
             stop that one first",
        ),
        (
            Failure::Held {
                lan: eth0(),
                client_id: ClientId::new(vec![0, b'x']).unwrap(),
                holder: holder.clone(),
                seen: true,
            },
            "client identifier 00:x on eth0 is held by the container 02:42:c0:a8:01:03 on the network 192.168.1.0/24 with parent=eth0, \
             whose interface is there: stop that container first, or if it was renamed while it ran, restart it; or \
             give",
        ),
        (
            Failure::Held {
                lan: eth0(),
                client_id: ClientId::ethernet(ETH0),
                holder,
                seen: false,
            },
            "client identifier 010200000000e0 on eth0 is held by the container 02:42:c0:a8:01:03 on the network 192.168.1.0/24 with parent=eth0, whose interface was \
             not found",
        ),
    ];
    for (failure, words) in table {
        let Err(Refused::Said(why)) = form.answer(&Answer::Failed(failure)) else {
            panic!("no error: {words}")
        };
        assert!(why.starts_with(words), "{why}");
    }
    // A second network on one LAN, where Docker says the container's name.
    let (_, named) = asked(
        false,
        wire::REQUEST_ADDRESS,
        &address(POOL, "", MAC_AND_NAME),
    );
    let twice = Answer::Failed(Failure::Held {
        lan: eth0(),
        client_id: ClientId::new(vec![255, 1, 2, 3]).unwrap(),
        holder: Attachment::Docker {
            pool: "192.168.1.0/24;;parent=eth0,grace=5".into(),
            endpoint: "02:42:c0:a8:01:03".into(),
        },
        seen: true,
    });
    let Err(Refused::Said(why)) = named.answer(&twice) else {
        panic!("no error")
    };
    assert!(
        why.starts_with("container web has an address on eth0 already, through the network 192.168.1.0/24 with parent=eth0,grace=5, and")
            && why.contains("from this one, the network 192.168.1.0/24 with parent=eth0 (docker network disconnect NETWORK web)"),
        "{why}"
    );
    let Refused::Said(why) = form.unanswered() else {
        panic!("{form:?}")
    };
    assert_eq!(
        why,
        "the leasehold daemon stopped before it had an address of 192.168.1.0/24: try again"
    );
}
