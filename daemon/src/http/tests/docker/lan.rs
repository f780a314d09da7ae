//! On which LAN a Docker network is: its parent, found by name or by its subnet, and VLANs' links.

use super::*;

#[test]
fn a_parent_that_is_not_named_is_found_by_the_subnet() {
    let body = |subnet: &str| format!(r#"{{"Pool":"{subnet}","Options":{{"client-id":"mac"}}}}"#);
    let one = pool(false, &body("192.168.1.7/24"));
    assert_eq!(
        (one.definition.as_str(), one.ifname.as_str(), &one.unclear),
        ("found=eth0,client-id=mac", "eth0", &None)
    );
    let id = "192.168.1.0/24;;found=eth0,client-id=mac";
    let asked = add(false, &address(id, "", MAC_ONLY));
    let lan = Lan::Link {
        parent: "eth0".into(),
        vlan: 0,
    };
    assert_eq!(
        (asked.lan, asked.attachment.to_string().contains(id)),
        (lan, true)
    );
    for (subnet, links) in [
        ("192.168.0.0/16", &[][..]),
        ("10.1.0.0/16", &["eth1", "br7"]),
    ] {
        assert_eq!(
            pool(false, &body(subnet)).unclear,
            Some(links.iter().map(|link| (*link).to_owned()).collect())
        );
    }
    let none = said(false, wire::REQUEST_POOL, r#"{"Pool":"","Options":{}}"#);
    assert!(
        none.starts_with("--ipam-opt parent=LINK is missing"),
        "{none}"
    );
    let typed = said(
        false,
        wire::REQUEST_POOL,
        r#"{"Pool":"","Options":{"found":"eth0"}}"#,
    );
    assert!(typed.contains("found: unknown option"), "{typed}");
}

#[test]
fn a_vlans_link_and_the_one_below_are_one_lan() {
    let table = [
        ("eth0.10", "eth0", ("eth0", 10)),
        ("br7", "br7", ("br7", 0)),
        ("eth0.0", "eth0.0", ("eth0.0", 0)),
        ("eth0.4095", "eth0.4095", ("eth0.4095", 0)),
        (".10", ".10", (".10", 0)),
        ("eth9", "eth9", ("eth9", 0)),
    ];
    for (parent, link, (lan, vlan)) in table {
        let body = format!(r#"{{"Pool":"192.168.1.0/24","Options":{{"parent":"{parent}"}}}}"#);
        let asked = pool(false, &body);
        assert_eq!(asked.ifname, link);
        assert_eq!(
            asked.lan,
            Lan::Link {
                parent: lan.into(),
                vlan
            }
        );
        // It stays what it is called.
        assert_eq!(asked.definition, format!("parent={parent}"));
    }
    // Whichever of the two links exists.
    for (there, link, vlan) in [
        (&["eth0", "eth0.10"][..], "eth0", 10),
        (&["eth0"], "eth0", 10),
        (&[], "eth0", 10),
        (&["eth0.10"], "eth0.10", 0),
    ] {
        let find = |name: &str| there.contains(&name).then_some(ETH0);
        let host = Host {
            site: site(),
            ipvlan: false,
            link: &find,
            links_in: &|_| vec![],
            number: 1,
        };
        let body = r#"{"Pool":"192.168.1.0/24","Options":{"parent":"eth0.10"}}"#;
        let Ok(Asked::Core {
            call: Call::Pool(PoolCall::Request(asked)),
            ..
        }) = Asked::parse(wire::REQUEST_POOL, body.as_bytes(), &host)
        else {
            panic!("refused")
        };
        assert_eq!(
            (&*asked.ifname, asked.lan),
            (
                link,
                Lan::Link {
                    parent: link.into(),
                    vlan
                }
            ),
            "{there:?}"
        );
    }
}
