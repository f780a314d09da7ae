//! Everything that a caller sends is understood or refused, in a few words.

use leasehold_api::cni::{Env, IPAM_KEYS, Request, Version};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::Site;
use super::super::client_id::MachineId;
use super::super::cni::Asked;
use super::leased;

/// Keys outside `ipam` that mean something somewhere, so that values reach the code that reads them.
const KEYS: &str = "cniVersion name master bridge parent vlan vlanId linkInContainer prevResult args cni runtimeConfig mac ips \
    address interface interfaces cni.dev/valid-attachments cni.dev/attachments containerID ifname ipam skipDefault \
    option value fromArg dst gw mtu advmss table scope allow deny";

/// Texts that mean something somewhere.
const TEXTS: &str = "lan ipvlan bridge eth0 container mac pod duid hex: hex:01:02 text:x auto {pod} \
    {namespace}.{pod}.{ifname}.{container} { } 10.0.0.0/8 10.0.0.5 fd00::1/64 61 host-name 02:00:00:00:00:01 \
    K8S_POD_NAME apply keep remove optimistic strict off";

fn text() -> impl Strategy<Value = String> {
    let known = TEXTS.split(' ').chain([""]).collect::<Vec<_>>();
    prop_oneof![3 => prop::sample::select(known).prop_map(str::to_owned), 1 => ".{0,300}"]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0..300u32).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            object(inner).prop_map(Value::from)
        ]
    })
}

fn object(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    let known = KEYS.split(' ').chain(IPAM_KEYS).collect::<Vec<_>>();
    let key = prop_oneof![8 => prop::sample::select(known).prop_map(str::to_owned), 1 => ".{0,40}"];
    prop::collection::vec((key, inner), 0..8).prop_map(|pairs| pairs.into_iter().collect())
}

/// Values that are valid more often than not, key by key, so that several are read before one is refused.
fn ipam() -> impl Strategy<Value = Value> {
    let good = [
        ("priority", json!(7)),
        (
            "request",
            json!([{"skipDefault": true}, {"option": "121"}, {"option": "routers"}]),
        ),
        (
            "provide",
            json!([{"option": "host-name", "value": "x", "fromArg": "K8S_POD_NAME"}, {"option": "61", "fromArg": "A"}]),
        ),
        ("clientId", json!("pod")),
        ("clientId", json!("duid")),
        ("hostname", json!("{container}-{pod}")),
        ("fqdn", json!("{pod}.{namespace}.example.net")),
        ("userClass", json!("x".repeat(254))),
        (
            "routes",
            json!([{"dst": "10.0.0.0/8"}, {"dst": "fd00::/8", "scope": 1}]),
        ),
        ("suppressDefaultRoute", json!(true)),
        ("servers", json!({"allow": ["10.0.0.1"], "deny": []})),
    ];
    (
        prop::sample::subsequence(good.to_vec(), 0..6),
        object(value()),
        prop::bool::weighted(0.3),
    )
        .prop_map(|(good, any, mixed)| {
            let any = if mixed { any } else { Map::new() };
            good.into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .chain(any)
                .collect()
        })
}

fn config() -> impl Strategy<Value = String> {
    let version = prop::sample::select(&Version::ALL[..]);
    let beside = prop_oneof![3 => Just(Map::new()), 1 => object(value())];
    let sound = (beside, ipam(), version).prop_map(|(mut config, ipam, version)| {
        config.insert("cniVersion".into(), version.as_str().into());
        config.insert("name".into(), "lan".into());
        config.insert("ipam".into(), ipam);
        Value::from(config).to_string()
    });
    prop_oneof![6 => sound, 1 => value().prop_map(|value| value.to_string()), 1 => ".{0,200}"]
}

fn env() -> impl Strategy<Value = Env> {
    let verb = prop::sample::select(
        &[
            "ADD", "ADD", "ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION",
        ][..],
    );
    let pair = prop_oneof![
        Just("K8S_POD_NAME=web-0".to_owned()),
        Just("K8S_POD_NAMESPACE=shop".to_owned()),
        Just("IP=10.0.0.7/24".to_owned()),
        text().prop_map(|text| format!("IP={text}")),
        text().prop_map(|text| format!("A={text}")),
        ".{0,20}",
    ];
    let id = prop_oneof![4 => Just("abc".to_owned()), 1 => ".{0,300}"];
    let ifname = prop_oneof![4 => Just("net1".to_owned()), 1 => ".{0,20}"];
    (verb, id, ifname, prop::collection::vec(pair, 0..6)).prop_map(|(verb, id, ifname, pairs)| {
        Env {
            command: Some(verb.into()),
            container_id: Some(id),
            netns: Some("/run/netns/abc".into()),
            ifname: Some(ifname),
            args: Some(pairs.join(";")),
            path: None,
            netns_override: None,
        }
    })
}

proptest! {
    #[test]
    fn any_request_is_understood_or_refused_in_few_words(env in env(), config in config()) {
        let site = Site { machine_id: MachineId::parse(&"5".repeat(32)), ..Site::default() };
        match Asked::parse(&Request { env, config }, &site) {
            Ok(asked) => prop_assert!(asked.form.answer(&leased(&asked.call)).is_ok()),
            Err(error) => prop_assert!(error.msg.len() < 1_500, "{} bytes: {}", error.msg.len(), error.msg),
        }
    }
}
