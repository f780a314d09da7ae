//! `ctr.json` and `podman.json` were written by these engines (libcni 1.0 and 1.1), with the plugin's standard input
//! beside them; `multus.json` has what a newer libcni adds.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use leasehold_core::effect::Add;
use leasehold_core::identity::Lan;
use leasehold_core::wire::Mac;
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::http::tests::rows;

const CTR: &str = include_str!("ctr.json");
const PODMAN: &str = include_str!("podman.json");
const MULTUS: &str = include_str!("multus.json");

fn read(text: &str) -> Result<Option<Adoptee>, Unusable> {
    adoptee(text.as_bytes(), &Site::default(), None)
}

/// The attachment, namespace, LAN, client identifier and address of a cached attachment.
fn summary(text: &str) -> (String, String, Lan, String, String) {
    let Adoptee { add, address, .. } = read(text).unwrap().unwrap();
    let Add {
        attachment,
        place,
        lan,
        client_id,
        ..
    } = *add;
    let netns = place.netns().expect("it runs in one").to_owned();
    let id = String::from_utf8(client_id.resolve(Mac::default()).as_bytes().to_vec()).unwrap();
    (
        attachment.to_string(),
        netns.display().to_string(),
        lan,
        id,
        address.to_string(),
    )
}

/// A cached attachment of `config`, changed by `change`.
fn cached(config: &str, change: impl FnOnce(&mut Value)) -> String {
    let mut value = json!({
        "kind": "cniCacheV1", "containerId": "abc", "config": BASE64.encode(config.as_bytes()), "ifName": "net1",
        "networkName": "lan", "netns": "/run/netns/abc",
        "result": {"cniVersion": "1.0.0", "ips": [{"address": "192.0.2.7/24"}]},
    });
    change(&mut value);
    value.to_string()
}

const CONFIG: &str =
    r#"{"cniVersion": "1.0.0", "name": "lan", "type": "ptp", "ipam": {"type": "dhcp"}}"#;

fn refusal(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

#[test]
fn a_container_of_ctr_is_found_in_its_sandbox() {
    let lan = Lan::Link {
        parent: "eth9".into(),
        vlan: 0,
    };
    let expected = (
        "lan/default-c1/eth0",
        "/proc/15021/ns/net",
        lan,
        "\0default-c1/lan/eth0",
        "10.9.0.5/24",
    );
    let (attachment, netns, lan, id, address) = summary(CTR);
    assert_eq!(
        (
            attachment.as_str(),
            netns.as_str(),
            lan,
            id.as_str(),
            address.as_str()
        ),
        expected
    );
}

#[test]
fn a_container_of_podman_is_found_with_its_arguments() {
    let cached: Cached = serde_json::from_str(PODMAN).unwrap();
    let request = cached.request(cached.plugin().unwrap().unwrap()).unwrap();
    // What podman had libcni ask in earnest.
    let stdin = r#"{"capabilities":{"ips":true,"mac":true},"cniVersion":"0.4.0","ipam":{"type":"dhcp"},"master":"eth9","name":"lan","type":"macvlan"}"#;
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(json(&request.config), json(stdin));
    assert_eq!(
        request.env.args.as_deref(),
        Some("IgnoreUnknown=1;K8S_POD_NAME=c1;MAC=02:00:00:00:00:77")
    );
    assert!(cached.mac().is_some(), "{}", cached.result);
    assert_eq!(
        summary(PODMAN).1,
        "/run/netns/netns-f3ff9af0-3e09-d26e-f157-525760eb5fdd"
    );
}

#[test]
fn a_multus_container_is_found_with_its_capabilities() {
    let cached: Cached = serde_json::from_str(MULTUS).unwrap();
    let plugin = cached.plugin().unwrap().unwrap();
    let config: Value = serde_json::from_str(&cached.request(plugin).unwrap().config).unwrap();
    assert_eq!(config["runtimeConfig"], json!({"mac": "02:00:00:00:00:07"}));
    let (attachment, netns, lan, _, address) = summary(MULTUS);
    let id = "3f6940ab5ab43bc522569d15b23f8c1bbde1d7678b080398506924fc01d72755";
    assert_eq!(attachment, format!("macvlan-conf-1/{id}/net1"));
    assert_eq!(netns, "/var/run/netns/8b8677c8-8929-4746-8206-514069760f6e");
    assert_eq!(
        (lan, address.as_str()),
        (
            Lan::Link {
                parent: "eth1".into(),
                vlan: 0
            },
            "10.1.1.101/24"
        )
    );
}

#[test]
fn a_plugin_of_a_list_has_the_lists_name_and_version() {
    let list = r#"{"cniVersion": "1.1.0", "name": "x", "plugins": [
        {"type": "bandwidth"}, {"type": "bridge", "bridge": "br7", "ipam": {"type": "leasehold"}}, {"type": "tuning"}]}"#;
    assert_eq!(
        summary(&cached(list, |_| ())).2,
        Lan::Link {
            parent: "br7".into(),
            vlan: 0
        }
    );
    // A list may say several versions (CNI 1.1.0); the runtime's choice is in the result.
    let versions = list.replace(
        r#""cniVersion": "1.1.0""#,
        r#""cniVersions": ["1.0.0", "1.1.0"]"#,
    );
    assert!(read(&cached(&versions, |_| ())).unwrap().is_some());
}

#[test]
fn other_plugins_containers_are_passed_over() {
    for config in [
        r#"{"name": "lan", "type": "bridge", "ipam": {"type": "host-local"}}"#,
        r#"{"name": "lan", "type": "flannel", "delegate": {}}"#,
        r#"{"name": "lan", "plugins": []}"#,
        r#"{"name": "lan", "plugins": [{"type": "dhcp"}, {"ipam": []}, 7]}"#,
    ] {
        assert_eq!(read(&cached(config, |_| ())).unwrap(), None, "{config}");
    }
}

#[test]
fn the_address_is_the_interfaces_own_and_of_version_4() {
    let result = json!({"interfaces": [{"name": "veth0"}, {"name": "net1", "sandbox": "/run/netns/abc"}],
        "ips": [{"address": "10.0.0.1/24", "interface": 0}, {"address": "fd00::2/64", "interface": 1},
                {"address": "10.0.0.2/24", "interface": 1}]});
    assert_eq!(
        summary(&cached(CONFIG, |value| value["result"] = result)).4,
        "10.0.0.2/24"
    );
    let before_0_3 =
        json!({"cniVersion": "0.2.0", "ip4": {"ip": "10.0.0.3/8", "gateway": "10.0.0.1"}});
    assert_eq!(
        summary(&cached(CONFIG, |value| value["result"] = before_0_3)).4,
        "10.0.0.3/8"
    );
}

#[test]
fn the_daemons_defaults_are_those_of_an_add() {
    let site = Site {
        add_timeout: Duration::from_secs(208),
        broadcast: true,
        ..Site::default()
    };
    let add = adoptee(CTR.as_bytes(), &site, None).unwrap().unwrap().add;
    assert_eq!(
        (add.timeout, add.profile.client.broadcast),
        (Duration::from_secs(208), true)
    );
}

#[test]
fn what_leads_to_no_container_says_why() {
    let refused = |text: &str, cause: &str| {
        let said = refusal(text);
        assert!(said.contains(cause), "{text}: {said}");
    };
    refused("", "is not a cached attachment");
    // The second is a result alone, as libcni before 0.8 wrote it.
    for bare in ["{}", r#"{"cniVersion": "0.4.0", "ips": []}"#, "[]"] {
        refused(bare, "is of kind \"\"");
    }
    let no_object = cached("[]", |_| ());
    refused(
        &no_object,
        "has a network configuration that cannot be read",
    );
    let table = r#"
        kind => "cniCacheV2" => is of kind "cniCacheV2"
        containerId => null => is not a cached attachment
        cniArgs => [["A"]] => is not a cached attachment
        config => "!" => has a network configuration that cannot be read
        config => "e30" => has a network configuration that cannot be read
        config => "ew==" => has a network configuration that cannot be read
        netns => "" => names no network namespace
        netns => "relative" => CNI_NETNS
        ifName => "too-long-for-a-link" => CNI_IFNAME
        networkName => "/" => the network's name
        result => null => has no IPv4 address
        result => {"ips": [{"address": "x"}]} => has no IPv4 address
        result => {"ips": [{"address": "fd00::1/64"}]} => has no IPv4 address
        result => {"ip4": {"ip": "10.0.0.1"}} => has no IPv4 address
    "#;
    for [key, value, cause] in rows(table) {
        let value: Value = serde_json::from_str(value).unwrap();
        refused(&cached(CONFIG, |it| it[key] = value), cause);
    }
}

#[test]
fn every_cache_file_is_read_and_none_delays_the_start() {
    let host = TempDir::new().unwrap();
    let (one, two) = (host.path().join("one"), host.path().join("var/two"));
    for cache in [&one, &two] {
        fs::create_dir_all(cache).unwrap();
    }
    fs::write(one.join("lan-default-c1-eth0"), CTR).unwrap();
    fs::write(one.join("broken"), "{").unwrap();
    fs::write(one.join("long"), vec![b' '; leasehold_api::MAX_BODY + 1]).unwrap();
    fs::create_dir(one.join("directory")).unwrap();
    nix::unistd::mkfifo(&one.join("fifo"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    symlink("/dev/zero", one.join("link")).unwrap();
    fs::write(two.join("again"), CTR).unwrap();
    fs::write(two.join("net1"), MULTUS).unwrap();

    let found = |caches: &[&str]| {
        let caches: Vec<_> = caches.iter().map(PathBuf::from).collect();
        let found = find(&caches, host.path(), &Site::default(), None);
        let name = |adoptee: Adoptee| adoptee.add.attachment.to_string();
        found
            .into_iter()
            .map(|adoptee| name(adoptee).split('/').next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        found(&["/one", "/missing", "/var/two", ""]),
        ["lan", "macvlan-conf-1"]
    );
    assert_eq!(found(&[""]), [""; 0], "not the root directory");
    let socket = Path::new("/run/other.sock");
    let others = find(
        &["/one".into()],
        host.path(),
        &Site::default(),
        Some(socket),
    );
    assert!(others.is_empty(), "their networks name no socket");
}

#[test]
fn what_is_left_of_adopting_is_known_to_the_next_daemon() {
    let directory = TempDir::new().unwrap();
    let unfinished = || Unfinished::of(directory.path());
    unfinished().leave(false);
    assert!(!unfinished().is_left());
    unfinished().leave(true);
    unfinished().leave(true);
    assert!(unfinished().is_left());
    unfinished().leave(false);
    assert!(!unfinished().is_left());
}
