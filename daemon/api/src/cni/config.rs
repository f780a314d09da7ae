//! The network configuration, as far as an IPAM plugin reads it.

use ipnet::IpNet;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A network configuration: the main plugin's, whole. Keys that are not named here are ignored; `null` and the empty
/// string are as good as absent, as they are to the Go plugins.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    /// `cniVersion`.
    #[serde(default, deserialize_with = "said")]
    pub cni_version: Option<String>,
    /// The network's name.
    #[serde(default, deserialize_with = "said")]
    pub name: Option<String>,
    /// The main plugin.
    #[serde(rename = "type", default, deserialize_with = "said")]
    pub plugin: Option<String>,
    /// Our part.
    #[serde(default, deserialize_with = "or_default")]
    pub ipam: Ipam,
    /// The parent link of macvlan, ipvlan, vlan and others.
    pub master: Option<Value>,
    /// The bridge of the bridge plugin and others.
    pub bridge: Option<Value>,
    /// The parent link by another name.
    pub parent: Option<Value>,
    /// The VLAN of a bridge port.
    pub vlan: Option<Value>,
    /// The VLAN of the vlan plugin.
    pub vlan_id: Option<Value>,
    /// Whether `master` is a link of the container's namespace, not of the host's.
    pub link_in_container: Option<Value>,
    /// What the chain answered so far; for CHECK and DEL, what it answered to ADD.
    pub prev_result: Option<Value>,
}

/// Our part of the configuration. The incumbent's `request`, `provide` and `priority` are accepted with the rest.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ipam {
    /// The name that this plugin was called by.
    #[serde(rename = "type", default, deserialize_with = "said")]
    pub plugin: Option<String>,
    /// Where the daemon listens.
    #[serde(default, deserialize_with = "said")]
    pub daemon_socket_path: Option<String>,
    /// How long an ADD may take, in seconds: see [`crate::add_timeout`].
    pub timeout: Option<f64>,
}

impl Config {
    /// Reads a configuration from its JSON.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Returns the name of the host link whose wire the network is on, when the configuration names one.
    ///
    /// `master`, `bridge`, `parent`, `vlan` and `vlanId` belong to the main plugin, and any plugin may give them any
    /// meaning: what does not look like a link's name is not taken for one.
    pub fn parent_link(&self) -> Option<&str> {
        if self.link_in_container == Some(Value::Bool(true)) {
            return None;
        }
        let named = [&self.master, &self.bridge, &self.parent].into_iter().find_map(|v| v.as_ref()?.as_str());
        // The bridge plugin's own default.
        let default = (self.plugin.as_deref() == Some("bridge")).then_some("cni0");
        named.filter(|name| !name.is_empty()).or(default)
    }

    /// Returns the VLAN on the parent link, 0 when untagged.
    pub fn parent_vlan(&self) -> u16 {
        let said = [&self.vlan, &self.vlan_id].into_iter().find_map(|v| v.as_ref()?.as_u64());
        said.and_then(|id| u16::try_from(id).ok()).filter(|id| *id < 4095).unwrap_or(0)
    }
}

/// What a chain of plugins answered to ADD, as far as an IPAM plugin reads it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct PrevResult {
    /// Interfaces, which addresses point to by their index.
    #[serde(default, deserialize_with = "or_default")]
    interfaces: Vec<Interface>,
    /// Addresses.
    #[serde(default, deserialize_with = "or_default")]
    ips: Vec<PrevIp>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct Interface {
    #[serde(default, deserialize_with = "or_default")]
    name: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct PrevIp {
    address: IpNet,
    interface: Option<i64>,
}

impl PrevResult {
    /// Returns the addresses that the result puts on the container's interface `ifname`.
    ///
    /// An address of another interface is not ours to check. One that points to no interface, as an IPAM plugin itself
    /// answers, is taken to be on ours.
    pub fn addresses_on<'a>(&'a self, ifname: &'a str) -> impl Iterator<Item = IpNet> + 'a {
        let elsewhere = move |index: i64| {
            let interface = usize::try_from(index).ok().and_then(|index| self.interfaces.get(index));
            interface.is_some_and(|interface| interface.name != ifname)
        };
        self.ips.iter().filter(move |ip| !ip.interface.is_some_and(elsewhere)).map(|ip| ip.address)
    }
}

/// Reads a string; `null` and the empty string are absent.
fn said<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.filter(|text| !text.is_empty()))
}

/// Reads a value; `null` is its default.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_the_field_is_read_whole() {
        let config = Config::parse(
            r#"{"cniVersion": "1.0.0", "name": "lan", "type": "macvlan", "master": "eth0", "mode": "bridge",
                "runtimeConfig": {"mac": "02:00:00:00:00:01"},
                "ipam": {"type": "dhcp", "daemonSocketPath": "/run/x.sock", "timeout": 45, "priority": 10,
                         "request": [{"skipDefault": true}],
                         "provide": [{"option": "host-name", "fromArg": "K8S_POD_NAME"}]},
                "prevResult": {"ips": []}}"#,
        )
        .unwrap();
        assert_eq!(config.cni_version.as_deref(), Some("1.0.0"));
        assert_eq!(config.name.as_deref(), Some("lan"));
        assert_eq!(config.plugin.as_deref(), Some("macvlan"));
        assert_eq!(config.ipam.plugin.as_deref(), Some("dhcp"));
        assert_eq!(config.ipam.daemon_socket_path.as_deref(), Some("/run/x.sock"));
        assert_eq!(config.ipam.timeout, Some(45.0));
        assert_eq!((config.parent_link(), config.parent_vlan()), (Some("eth0"), 0));
    }

    #[test]
    fn null_and_the_empty_string_are_absent() {
        let empty = r#"{"cniVersion": "", "name": null, "type": "", "ipam": null, "master": "", "vlan": null}"#;
        assert_eq!(
            Config::parse(empty).unwrap(),
            Config { master: Some(Value::String(String::new())), ..Config::default() }
        );
        assert_eq!(Config::parse("{}").unwrap(), Config::default());
    }

    #[test]
    fn the_parent_link_is_what_the_main_plugin_names() {
        let table = [
            (r#"{"master": "eth0"}"#, Some("eth0"), 0),
            (r#"{"type": "vlan", "master": "eth0", "vlanId": 5}"#, Some("eth0"), 5),
            (r#"{"type": "bridge", "bridge": "br0", "vlan": 100}"#, Some("br0"), 100),
            (r#"{"type": "bridge"}"#, Some("cni0"), 0),
            (r#"{"type": "bridge", "bridge": ""}"#, Some("cni0"), 0),
            (r#"{"type": "macvlan"}"#, None, 0),
            (r#"{"type": "macvlan", "master": "eth0", "linkInContainer": true}"#, None, 0),
            (r#"{"parent": "bond0", "vlan": 4094}"#, Some("bond0"), 4094),
            (r#"{"parent": {"name": "bond0"}, "vlan": "all"}"#, None, 0),
            (r#"{"master": "eth0", "vlan": 4095}"#, Some("eth0"), 0),
            (r#"{"master": "eth0", "vlan": 65536}"#, Some("eth0"), 0),
            (r#"{"master": "eth0", "vlan": -1}"#, Some("eth0"), 0),
        ];
        for (text, link, vlan) in table {
            let config = Config::parse(text).unwrap();
            assert_eq!((config.parent_link(), config.parent_vlan()), (link, vlan), "{text}");
        }
    }

    #[test]
    fn what_is_no_configuration_is_refused() {
        for text in ["", "[]", "null", "{", r#"{"name": 1}"#, r#"{"ipam": []}"#, r#"{"ipam": {"timeout": "30"}}"#] {
            assert!(Config::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_deeply_nested_configuration_is_refused() {
        let deep = format!(r#"{{"prevResult": {}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert!(Config::parse(&deep).is_err());
    }

    #[test]
    fn only_addresses_of_our_interface_are_expected() {
        let prev: PrevResult = serde_json::from_str(
            r#"{"interfaces": [{"name": "veth1"}, {"name": "net1", "sandbox": "/run/netns/a"}],
                "ips": [{"address": "10.0.0.1/24", "interface": 0}, {"address": "10.0.0.2/24", "interface": 1},
                        {"address": "10.0.0.3/24"}, {"address": "10.0.0.4/24", "interface": 7},
                        {"address": "fd00::1/64", "interface": 1, "version": "6"},
                        {"address": "10.0.0.5/24", "interface": -1}]}"#,
        )
        .unwrap();
        let ours: Vec<_> = prev.addresses_on("net1").map(|net| net.to_string()).collect();
        assert_eq!(ours, ["10.0.0.2/24", "10.0.0.3/24", "10.0.0.4/24", "fd00::1/64", "10.0.0.5/24"]);
    }
}
