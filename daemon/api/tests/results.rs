//! Results of ADD, byte for byte as each version of CNI writes them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use leasehold_api::cni::{Dns, Ip, Route, Success, Version};

fn whole() -> Success {
    Success {
        ips: vec![
            Ip {
                address: "192.0.2.10/24".parse().unwrap(),
                gateway: Some("192.0.2.1".parse().unwrap()),
            },
            Ip {
                address: "2001:db8::10/64".parse().unwrap(),
                gateway: None,
            },
        ],
        routes: vec![
            Route {
                dst: "198.51.100.1/32".parse().unwrap(),
                via: Some("0.0.0.0".parse().unwrap()),
                scope: Some(253),
                ..Route::default()
            },
            Route {
                dst: "203.0.113.0/24".parse().unwrap(),
                ..Route::default()
            },
            Route {
                dst: "0.0.0.0/0".parse().unwrap(),
                via: Some("192.0.2.1".parse().unwrap()),
                mtu: Some(1400),
                priority: Some(10),
                ..Route::default()
            },
            Route {
                dst: "fd00::/8".parse().unwrap(),
                via: Some("2001:db8::1".parse().unwrap()),
                advmss: Some(1360),
                table: Some(100),
                scope: Some(0),
                ..Route::default()
            },
        ],
        dns: Dns {
            nameservers: vec!["192.0.2.53".into(), "192.0.2.54".into()],
            domain: Some("example.net".into()),
            search: vec!["example.net".into(), "example.org".into()],
            options: vec!["ndots:2".into()],
        },
    }
}

/// Compares after a round through a JSON value, which sorts keys and forgets white space.
fn is_golden(text: &str, golden: &str) {
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(value(text), value(golden), "{text}");
}

#[test]
fn versions_0_1_0_and_0_2_0_have_one_address_per_family() {
    is_golden(
        &whole().render(Version::V0_1_0),
        include_str!("golden/result-0.1.0.json"),
    );
    is_golden(
        &whole().render(Version::V0_2_0),
        include_str!("golden/result-0.2.0.json"),
    );
}

#[test]
fn versions_0_3_0_and_0_3_1_name_each_addresss_family() {
    is_golden(
        &whole().render(Version::V0_3_0),
        include_str!("golden/result-0.3.0.json"),
    );
    is_golden(
        &whole().render(Version::V0_3_1),
        include_str!("golden/result-0.3.1.json"),
    );
}

#[test]
fn version_0_4_0_names_the_family_of_each_address() {
    is_golden(
        &whole().render(Version::V0_4_0),
        include_str!("golden/result-0.4.0.json"),
    );
}

#[test]
fn version_1_0_0_has_addresses_without_family() {
    is_golden(
        &whole().render(Version::V1_0_0),
        include_str!("golden/result-1.0.0.json"),
    );
}

#[test]
fn version_1_1_0_gives_the_attributes_of_routes() {
    is_golden(
        &whole().render(Version::V1_1_0),
        include_str!("golden/result-1.1.0.json"),
    );
}

#[test]
fn what_the_server_did_not_give_is_left_out() {
    let bare = Success {
        ips: vec![Ip {
            address: "192.0.2.10/24".parse().unwrap(),
            gateway: None,
        }],
        ..Success::default()
    };
    assert_eq!(
        bare.render(Version::V1_0_0),
        r#"{"cniVersion":"1.0.0","ips":[{"address":"192.0.2.10/24"}]}"#
    );
    assert_eq!(
        bare.render(Version::V0_2_0),
        r#"{"cniVersion":"0.2.0","ip4":{"ip":"192.0.2.10/24"}}"#
    );
}
