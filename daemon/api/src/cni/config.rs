//! The network configuration, as much of it as an IPAM plugin reads.

use ipnet::IpNet;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::object::{BadKey, Fault, Object, objects_of, text};
use super::{HostLocal, Ipam, Version, host_local, ipam};

/// A network configuration: the main plugin's, whole. Keys that are not named here are ignored; `null` and the empty
/// string count as absent, as they do for the Go plugins.
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
    /// Our part: see [`Config::ipam`].
    #[serde(default)]
    ipam: Value,
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
    /// Whether the bridge plugin gives the bridge the gateway's address, and whether it is the default route too.
    is_gateway: Option<Value>,
    is_default_gateway: Option<Value>,
    /// The chain's result so far; for CHECK and DEL, its result of ADD.
    pub prev_result: Option<Value>,
    /// What the runtime passes by convention: see [`Config::args_ips`].
    args: Option<Value>,
    /// What the runtime passes for the network's capabilities: see [`Config::runtime_config`].
    runtime_config: Option<Value>,
    /// See [`Config::valid_attachments`].
    #[serde(
        rename = "cni.dev/valid-attachments",
        default,
        deserialize_with = "present"
    )]
    valid_attachments: Option<Value>,
    #[serde(rename = "cni.dev/attachments", default, deserialize_with = "present")]
    attachments: Option<Value>,
}

/// What a runtime passes for the capabilities of a network, as much of it as this plugin uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeConfig {
    /// `mac`: the hardware address that the interface will have.
    pub mac: Option<String>,
    /// `ips`: addresses to ask for, with or without prefix.
    pub ips: Vec<String>,
}

impl Config {
    /// Reads a configuration from its JSON.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Returns the name of the host link whose wire the network is on, when the configuration names one.
    ///
    /// `master`, `bridge`, `parent`, `vlan` and `vlanId` belong to the main plugin. Of the reference plugins each reads its own; any
    /// other may give them any meaning: a value that does not look like a link's name is ignored.
    pub fn parent_link(&self) -> Option<&str> {
        if self.link_in_container == Some(Value::Bool(true)) {
            return None;
        }
        let (master, bridge) = (&self.master, &self.bridge);
        let keys: &[_] = match self.plugin.as_deref() {
            Some("macvlan" | "ipvlan" | "vlan") => &[master],
            Some("bridge" | "tap") => &[bridge],
            _ => &[master, bridge, &self.parent],
        };
        let named = keys.iter().find_map(|value| value.as_ref()?.as_str());
        // The bridge plugin's own default.
        let default = (self.plugin.as_deref() == Some("bridge")).then_some("cni0");
        named.filter(|name| !name.is_empty()).or(default)
    }

    /// Returns whether the bridge plugin gives the router's address to the host's bridge.
    pub fn is_router_on_host(&self) -> bool {
        let says = |key: &Option<Value>| *key == Some(Value::Bool(true));
        self.plugin.as_deref() == Some("bridge")
            && (says(&self.is_gateway) || says(&self.is_default_gateway))
    }

    /// Returns whether addresses come from local ranges. `ipam.type` says so, under whatever name the plugin is installed.
    pub fn is_host_local(&self) -> bool {
        Object::new("ipam", &self.ipam)
            .is_ok_and(|ipam| ipam.get("type").and_then(Value::as_str) == Some("host-local"))
    }

    /// Reads our part of the configuration.
    ///
    /// # Errors
    /// The first key that is refused: see [`Ipam`].
    pub fn ipam(&self) -> Result<Ipam, BadKey> {
        Ipam::parse(&self.ipam)
    }

    /// Reads what host-local reads, for results of `version`.
    ///
    /// # Errors
    /// The first key that is refused: see [`HostLocal`].
    pub fn host_local(&self, version: Version) -> Result<HostLocal, BadKey> {
        HostLocal::parse(&self.ipam, self.runtime_config.as_ref(), version)
    }

    /// Returns the keys of our part that have no effect but look as if somebody wanted one, for a warning.
    pub fn ignored(&self) -> Vec<BadKey> {
        match Object::new("ipam", &self.ipam) {
            Ok(ipam) if self.is_host_local() => host_local::ignored(&ipam),
            Ok(ipam) => ipam::ignored(&ipam),
            Err(_) => Vec::new(),
        }
    }

    /// Returns where host-local's files are, even if the rest of `ipam` cannot be used.
    pub fn data_dir(&self) -> Option<String> {
        let ipam = Object::new("ipam", &self.ipam).ok()?;
        let said = ipam.get("dataDir")?.as_str()?;
        Some(said.to_owned()).filter(|said| !said.is_empty())
    }

    /// Returns the addresses that the convention `args.cni.ips` asks for. The rest of `args` may be anything.
    ///
    /// # Errors
    /// `args.cni.ips` is not a list of strings.
    pub fn args_ips(&self) -> Result<Vec<String>, BadKey> {
        let cni = self
            .args
            .as_ref()
            .and_then(|args| args.get("cni"))
            .filter(|cni| cni.is_object());
        cni.map_or(Ok(Vec::new()), |cni| {
            Object::new("args.cni", cni)?.list("ips", owned)
        })
    }

    /// Returns what the runtime passes for the network's capabilities.
    ///
    /// # Errors
    /// `runtimeConfig` is not an object, or a key in it has the wrong type.
    pub fn runtime_config(&self) -> Result<RuntimeConfig, BadKey> {
        let Some(value) = &self.runtime_config else {
            return Ok(RuntimeConfig::default());
        };
        let said = Object::new("runtimeConfig", value)?;
        let mac = said.read("mac", owned)?.filter(|mac| !mac.is_empty());
        Ok(RuntimeConfig {
            mac,
            ips: said.list("ips", owned)?,
        })
    }

    /// Returns the attachments that are valid according to a GC, each as container and interface name.
    ///
    /// `cni.dev/valid-attachments` is the key in the specification, and `cni.dev/attachments` an older spelling. libcni sends
    /// both, and an attachment that either names is valid. libcni writes `null` for no attachment at all.
    ///
    /// # Errors
    /// Neither key is there, so nothing is known about any attachment; or an entry is not complete.
    pub fn valid_attachments(&self) -> Result<Vec<(String, String)>, BadKey> {
        const KEYS: [&str; 2] = ["cni.dev/valid-attachments", "cni.dev/attachments"];
        let said = KEYS
            .into_iter()
            .zip([&self.valid_attachments, &self.attachments]);
        let mut said = said
            .filter_map(|(key, value)| Some((key, value.as_ref()?)))
            .peekable();
        if said.peek().is_none() {
            return Err(Fault::Missing.at(KEYS[0]));
        }
        let mut valid = Vec::new();
        for (key, value) in said {
            valid.extend(objects_of(key, value, |entry| {
                Ok((
                    entry.require("containerID", owned)?,
                    entry.require("ifname", owned)?,
                ))
            })?);
        }
        Ok(valid)
    }

    /// Returns the VLAN on the parent link, 0 when untagged.
    pub fn parent_vlan(&self) -> u16 {
        let keys: &[_] = match self.plugin.as_deref() {
            Some("macvlan" | "ipvlan") => &[],
            Some("vlan") => &[&self.vlan_id],
            Some("bridge") => &[&self.vlan],
            _ => &[&self.vlan, &self.vlan_id],
        };
        let said = keys.iter().find_map(|value| value.as_ref()?.as_u64());
        said.and_then(|id| u16::try_from(id).ok())
            .filter(|id| *id < 4095)
            .unwrap_or(0)
    }
}

/// The result of ADD of a chain of plugins, as much of it as an IPAM plugin reads.
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
    /// An address on another interface is not ours to check. One that points to no interface, like those in an IPAM plugin's own
    /// answer, is taken to be on ours.
    pub fn addresses_on<'a>(&'a self, ifname: &'a str) -> impl Iterator<Item = IpNet> + 'a {
        let elsewhere = move |index: i64| {
            let interface = usize::try_from(index)
                .ok()
                .and_then(|index| self.interfaces.get(index));
            interface.is_some_and(|interface| interface.name != ifname)
        };
        self.ips
            .iter()
            .filter(move |ip| !ip.interface.is_some_and(elsewhere))
            .map(|ip| ip.address)
    }
}

/// Reads a string; `null` and the empty string count as absent.
fn said<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.filter(|text| !text.is_empty()))
}

/// Reads a value that is present, even if it is `null`.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

fn owned(value: &Value) -> Result<String, Fault> {
    text(value).map(str::to_owned)
}

/// Reads a value; `null` means its default.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::rows;

    fn read(text: &str) -> Config {
        Config::parse(text).expect("a configuration that can be read")
    }

    #[test]
    fn a_network_of_the_field_is_read_whole() {
        let config = read(
            r#"{"cniVersion": "1.0.0", "name": "lan", "type": "macvlan", "master": "eth0", "mode": "bridge",
                "runtimeConfig": {"mac": "02:00:00:00:00:01"},
                "ipam": {"type": "dhcp", "daemonSocketPath": "/run/x.sock", "timeout": 45, "priority": 10,
                         "request": [{"skipDefault": true}],
                         "provide": [{"option": "host-name", "fromArg": "K8S_POD_NAME"}]},
                "prevResult": {"ips": []}}"#,
        );
        assert_eq!(config.cni_version.as_deref(), Some("1.0.0"));
        assert_eq!(config.name.as_deref(), Some("lan"));
        assert_eq!(config.plugin.as_deref(), Some("macvlan"));
        let ipam = config.ipam().expect("an object");
        assert_eq!((ipam.timeout, ipam.priority), (Some(45.0), Some(10)));
        assert_eq!(
            config.runtime_config().expect("an object").mac.as_deref(),
            Some("02:00:00:00:00:01")
        );
        assert_eq!(
            (config.parent_link(), config.parent_vlan()),
            (Some("eth0"), 0)
        );
    }

    #[test]
    fn null_and_the_empty_string_are_absent() {
        let empty = r#"{"cniVersion": "", "name": null, "type": "", "ipam": null, "master": "", "vlan": null}"#;
        assert_eq!(
            read(empty),
            Config {
                master: Some(Value::String(String::new())),
                ..Config::default()
            }
        );
        assert_eq!(read("{}"), Config::default());
    }

    #[test]
    fn the_parent_link_is_what_the_main_plugin_names() {
        let table = r#"
            {"master": "eth0"} => eth0 => 0
            {"type": "vlan", "master": "eth0", "vlanId": 5} => eth0 => 5
            {"type": "bridge", "bridge": "br0", "vlan": 100} => br0 => 100
            {"type": "bridge"} => cni0 => 0
            {"type": "bridge", "bridge": ""} => cni0 => 0
            {"type": "macvlan"} =>  => 0
            {"type": "macvlan", "master": "eth0", "vlan": 200} => eth0 => 0
            {"type": "bridge", "bridge": "br0", "master": "eth0"} => br0 => 0
            {"type": "macvlan", "master": "eth0", "linkInContainer": true} =>  => 0
            {"parent": "bond0", "vlan": 4094} => bond0 => 4094
            {"parent": {"name": "bond0"}, "vlan": "all"} =>  => 0
            {"master": "eth0", "vlan": 4095} => eth0 => 0
            {"master": "eth0", "vlan": 65536} => eth0 => 0
            {"master": "eth0", "vlan": -1} => eth0 => 0
        "#;
        for [text, link, vlan] in rows(table) {
            let config = read(text);
            let (its, tag) = (config.parent_link(), config.parent_vlan());
            assert_eq!((its.unwrap_or_default(), &*tag.to_string()), (link, vlan));
        }
    }

    #[test]
    fn a_gateway_bridge_takes_the_address_of_the_router() {
        let table = [
            (r#"{"type": "bridge", "isGateway": true}"#, true),
            (r#"{"type": "bridge", "isDefaultGateway": true}"#, true),
            (r#"{"type": "bridge", "isGateway": false}"#, false),
            (r#"{"type": "bridge"}"#, false),
            (r#"{"type": "macvlan", "isGateway": true}"#, false),
        ];
        for (text, takes) in table {
            assert_eq!(read(text).is_router_on_host(), takes, "{text}");
        }
    }

    #[test]
    fn what_is_no_configuration_is_refused() {
        for text in ["", "[]", "null", "{", r#"{"name": 1}"#] {
            assert!(Config::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_part_that_is_not_read_may_be_anything() {
        let config = read(r#"{"ipam": [], "args": 7, "runtimeConfig": "x"}"#);
        assert_eq!(config.ipam().unwrap_err().key, "ipam");
        assert_eq!(config.args_ips(), Ok(Vec::new()));
        assert_eq!(config.runtime_config().unwrap_err().key, "runtimeConfig");
    }

    #[test]
    fn addresses_are_asked_for_in_lists_of_strings() {
        let config = read(
            r#"{"args": {"cni": {"ips": ["10.0.0.5"], "labels": 1}}, "runtimeConfig": {"ips": ["10.0.0.6/24"], "dns": 1}}"#,
        );
        assert_eq!(config.args_ips().expect("a list of strings"), ["10.0.0.5"]);
        assert_eq!(
            config.runtime_config().expect("an object").ips,
            ["10.0.0.6/24"]
        );
        let table = r#"
            {"args": {"cni": {"ips": "10.0.0.5"}}} => args.cni.ips: it must be a list, not a string
            {"args": {"cni": {"ips": [5]}}} => args.cni.ips[0]: it must be a string, not a number
            {"runtimeConfig": {"ips": {}}} => runtimeConfig.ips: it must be a list, not an object
            {"runtimeConfig": {"mac": 2}} => runtimeConfig.mac: it must be a string, not a number
        "#;
        for [text, fault] in rows(table) {
            let config = read(text);
            let result = config.args_ips().and(config.runtime_config());
            assert_eq!(result.unwrap_err().to_string(), fault, "{text}");
        }
    }

    #[test]
    fn valid_attachments_come_under_either_name() {
        let one = r#"[{"containerID": "a", "ifname": "eth0"}]"#;
        let two = r#"[{"containerID": "b", "ifname": "net1", "other": 1}]"#;
        let table = [
            (
                format!(r#"{{"cni.dev/valid-attachments": {one}}}"#),
                Ok(vec![("a", "eth0")]),
            ),
            (
                format!(r#"{{"cni.dev/attachments": {two}}}"#),
                Ok(vec![("b", "net1")]),
            ),
            (
                format!(r#"{{"cni.dev/valid-attachments": {one}, "cni.dev/attachments": {two}}}"#),
                Ok(vec![("a", "eth0"), ("b", "net1")]),
            ),
            (r#"{"cni.dev/valid-attachments": []}"#.into(), Ok(vec![])),
            (
                r#"{"cni.dev/valid-attachments": null, "cni.dev/attachments": null}"#.into(),
                Ok(vec![]),
            ),
            ("{}".into(), Err("cni.dev/valid-attachments: missing")),
            (
                r#"{"cni.dev/valid-attachments": {}}"#.into(),
                Err("cni.dev/valid-attachments: it must be a list, not an object"),
            ),
            (
                r#"{"cni.dev/attachments": [{"containerID": "a"}]}"#.into(),
                Err("cni.dev/attachments[0].ifname: missing"),
            ),
        ];
        for (text, expected) in table {
            let valid = read(&text).valid_attachments();
            let valid = valid
                .as_ref()
                .map(|list| list.iter().map(|(c, i)| (c.as_str(), i.as_str())).collect());
            assert_eq!(
                valid.map_err(ToString::to_string),
                expected.map_err(str::to_owned),
                "{text}"
            );
        }
    }

    #[test]
    fn a_host_may_have_thousands_of_attachments() {
        let entry = r#"{"containerID": "a", "ifname": "eth0"}"#;
        let text = format!(
            r#"{{"cni.dev/valid-attachments": [{}]}}"#,
            vec![entry; 5_000].join(",")
        );
        assert_eq!(
            read(&text)
                .valid_attachments()
                .expect("a list of attachments")
                .len(),
            5_000
        );
    }

    #[test]
    fn a_deeply_nested_configuration_is_refused() {
        let deep = format!(
            r#"{{"prevResult": {}{}}}"#,
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
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
        .expect("a result");
        let ours: Vec<_> = prev
            .addresses_on("net1")
            .map(|net| net.to_string())
            .collect();
        assert_eq!(
            ours,
            [
                "10.0.0.2/24",
                "10.0.0.3/24",
                "10.0.0.4/24",
                "fd00::1/64",
                "10.0.0.5/24"
            ]
        );
    }
}
