//! The networks of a CNI configuration directory whose addresses come from us, read as for an ADD.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use leasehold_api::cni::{Config, Env, Error, HostLocal, Request, Version};
use leasehold_api::control::Lan;
use leasehold_core::effect::{Add, Call};
use leasehold_core::range::Sets;
use leasehold_host_local::Directory;
use serde_json::Value;

use crate::http::{Asked, MachineId, Site, warnings};

/// Where a host keeps its identity (machine-id(5)).
const MACHINE_ID: &str = "/etc/machine-id";

/// A network whose addresses come from us.
#[derive(Debug)]
pub(super) struct Network {
    /// Where it is configured.
    pub(super) file: PathBuf,
    /// Its name; empty if it has none.
    pub(super) name: String,
    /// Its main plugin.
    pub(super) plugin: String,
    /// The host's link that its configuration names.
    pub(super) parent: Option<String>,
    /// What its configuration has that works but looks like a mistake.
    pub(super) warnings: Vec<String>,
    /// The ADD for one of its containers, or the error with which it would be refused.
    pub(super) add: Result<Box<Add>, Error>,
}

/// A network whose addresses come from local ranges, which needs no daemon.
#[derive(Debug)]
pub(super) struct LocalNetwork {
    /// Its name; empty if it has none.
    pub(super) name: String,
    /// Its wire.
    pub(super) lan: Lan,
    /// Its ranges, or why they cannot be used.
    pub(super) sets: Result<Sets, String>,
    /// The directory of its files.
    pub(super) directory: Directory,
}

/// What a CNI configuration directory holds.
#[derive(Debug, Default)]
pub(super) struct Networks {
    /// The networks whose addresses come from us, in the order of their files.
    pub(super) ours: Vec<Network>,
    /// The networks of the plugin host-local for which our shim, installed under that name, refuses an ADD: their files, their
    /// names, and why.
    pub(super) refused_host_local: Vec<(PathBuf, String, String)>,
    /// The networks with local ranges, also in the order of their files.
    pub(super) local: Vec<LocalNetwork>,
    /// The files that cannot be read, and why.
    pub(super) unread: Vec<(PathBuf, String)>,
}

/// Returns the facts about this host on which an ADD depends.
pub(super) fn site() -> Site {
    let machine_id = fs::read_to_string(MACHINE_ID)
        .ok()
        .and_then(|text| MachineId::parse(&text));
    Site {
        machine_id,
        ..Site::default()
    }
}

/// Reads the files that libcni reads: those named `.conf`, `.conflist` and `.json`. `site` should be the daemon's.
pub(super) fn networks(dir: &Path, site: &Site) -> io::Result<Networks> {
    let mut files: Vec<_> = fs::read_dir(dir)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()?;
    files.retain(|file| {
        file.extension()
            .is_some_and(|end| ["conf", "conflist", "json"].iter().any(|e| end == *e))
    });
    files.sort();
    let mut networks = Networks::default();
    for file in files {
        let text = fs::read_to_string(&file).map_err(|error| error.to_string());
        match text.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string())) {
            Ok(configuration) => {
                for plugin in plugins(configuration) {
                    networks.ours.extend(read(&file, &plugin, site));
                    networks
                        .refused_host_local
                        .extend(refused_host_local(&file, &plugin));
                    networks.local.extend(local(&plugin));
                }
            }
            Err(error) => networks.unread.push((file, error)),
        }
    }
    Ok(networks)
}

/// Returns the configuration that each plugin of a file gets: a list's name and version are added to those of its plugins.
fn plugins(mut configuration: Value) -> Vec<Value> {
    let list = configuration.get_mut("plugins").map(Value::take);
    let shared = ["name", "cniVersion"].map(|key| (key, configuration.get(key).cloned()));
    let plugins = match list {
        Some(Value::Array(plugins)) => plugins,
        Some(_) => Vec::new(),
        None => return vec![configuration],
    };
    let with_shared = |mut plugin: Value| {
        for (key, value) in &shared {
            if let (Some(plugin), Some(value)) = (plugin.as_object_mut(), value) {
                plugin.insert((*key).to_owned(), value.clone());
            }
        }
        plugin
    };
    plugins.into_iter().map(with_shared).collect()
}

/// Returns whether a network's addresses come from this IPAM plugin.
fn has_ipam(plugin: &Value, kind: &str) -> bool {
    plugin
        .get("ipam")
        .and_then(|ipam| ipam.get("type"))
        .is_some_and(|found| found == kind)
}

/// Reads an ADD for a container of the network.
fn add(plugin: &Value, site: &Site) -> Result<Asked, Error> {
    let request = Request {
        env: stand_in(),
        config: plugin.to_string(),
    };
    Asked::parse(&request, site)
}

/// Returns a network of the plugin host-local for which we refuse an ADD.
fn refused_host_local(file: &Path, plugin: &Value) -> Option<(PathBuf, String, String)> {
    if !has_ipam(plugin, "host-local") {
        return None;
    }
    let refused = leasehold_host_local::Call::parse(&stand_in(), &plugin.to_string()).err()?;
    let name = plugin["name"].as_str().unwrap_or_default();
    Some((file.to_owned(), name.to_owned(), refused.msg))
}

/// Returns a network, if its addresses come from us.
pub(super) fn read(file: &Path, plugin: &Value, site: &Site) -> Option<Network> {
    if !has_ipam(plugin, "dhcp") {
        return None;
    }
    let config = Config::parse(&plugin.to_string()).unwrap_or_default();
    let add = match add(plugin, site) {
        Ok(Asked {
            call: Call::Add(add),
            ..
        }) => Ok(add),
        Ok(other) => unreachable!("an ADD is read as one: {other:?}"),
        Err(error) => Err(error),
    };
    Some(Network {
        file: file.to_owned(),
        name: config.name.clone().unwrap_or_default(),
        parent: config.parent_link().map(str::to_owned),
        warnings: warnings(&config),
        plugin: config.plugin.unwrap_or_default(),
        add,
    })
}

/// Returns a network, if its addresses come from local ranges.
fn local(plugin: &Value) -> Option<LocalNetwork> {
    let config = Config::parse(&plugin.to_string()).ok()?;
    if !config.is_host_local() {
        return None;
    }
    let name = config.name.clone().unwrap_or_default();
    let data_dir = config.data_dir();
    let data_dir = Path::new("/").join(data_dir.as_deref().unwrap_or(HostLocal::DATA_DIR));
    let lan = match config.parent_link() {
        Some(parent) => Lan::Link {
            parent: parent.to_owned(),
            vlan: config.parent_vlan(),
        },
        None => Lan::Network {
            network: name.clone(),
        },
    };
    let read = config
        .host_local(Version::NEWEST)
        .map_err(|bad| bad.to_string());
    let sets =
        read.and_then(|read| Sets::new(&read.sets).map_err(|bad| format!("ipam.ranges: {bad}")));
    Some(LocalNetwork {
        directory: Directory::at(data_dir.join(&name)),
        name,
        lan,
        sets,
    })
}

/// Returns the environment of an ADD with everything that a runtime may say.
fn stand_in() -> Env {
    let said = |text: &str| Some(text.to_owned());
    Env {
        command: said("ADD"),
        container_id: said("probe"),
        netns: said("/run/netns/probe"),
        ifname: said("eth0"),
        args: said("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=probe"),
        path: None,
        netns_override: None,
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn networks_of_ours_are_found_in_lists_and_alone() {
        let dir = TempDir::new().unwrap();
        let lan = r#"{"type": "macvlan", "master": "eth0", "ipam": {"type": "dhcp", "requests": [], "timeout": 700, "servers": {"deny": ["10.0.0.2"]}}}"#;
        let files = [
            (
                "10-list.conflist",
                format!(
                    r#"{{"cniVersion": "1.0.0", "name": "lan", "plugins": [{lan}, {{"type": "tuning"}}]}}"#
                ),
            ),
            (
                "20-alone.conf",
                r#"{"name": "br", "type": "bridge", "isGateway": true, "ipam": {"type": "dhcp", "grace": "x"}}"#
                    .to_owned(),
            ),
            (
                "30-other.json",
                r#"{"cniVersion": "1.0.0", "name": "o", "type": "bridge", "ipam": {"type": "host-local", "dataDir": "/run/x", "subnet": "10.0.0.0/24"}}"#.to_owned(),
            ),
            (
                "31-slip.json",
                r#"{"cniVersion": "1.0.0", "name": "slip", "type": "bridge", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/31"}]]}}"#.to_owned(),
            ),
            ("40-broken.conf", "{".to_owned()),
            ("50-notes.txt", "{".to_owned()),
        ];
        for (file, text) in files {
            fs::write(dir.path().join(file), text).unwrap();
        }
        let Networks {
            ours,
            local,
            refused_host_local,
            unread,
        } = networks(dir.path(), &Site::default()).unwrap();
        let [(_, name, why)] = &refused_host_local[..] else {
            panic!("{refused_host_local:?}")
        };
        assert!(name == "slip" && why.contains("too small"), "{why}");
        let [lan, bridge] = &ours[..] else {
            panic!("{ours:?}")
        };
        assert_eq!(
            (lan.name.as_str(), lan.parent.as_deref()),
            ("lan", Some("eth0"))
        );
        assert_eq!(
            lan.warnings,
            [
                "network lan: ipam.requests: unknown key, which is ignored: did you mean request?",
                "network lan: `timeout` 700 is cut to 600: no ADD may take longer"
            ]
        );
        let [other, _slip] = &local[..] else {
            panic!("{local:?}")
        };
        assert_eq!(other.directory.path(), Path::new("/run/x/o"));
        assert!(other.sets.is_ok(), "{other:?}");
        let add = lan.add.as_ref().unwrap();
        assert!(
            !add.profile
                .client
                .servers
                .trusts("10.0.0.2".parse().unwrap())
        );
        assert_eq!(
            (bridge.name.as_str(), bridge.parent.as_deref()),
            ("br", Some("cni0"))
        );
        let [warning] = &bridge.warnings[..] else {
            panic!("{bridge:?}")
        };
        assert!(warning.starts_with("network br: isGateway gives the host's bridge cni0"));
        assert!(
            bridge.add.as_ref().unwrap_err().msg.contains("ipam.grace"),
            "{bridge:?}"
        );
        assert_eq!(
            unread
                .iter()
                .map(|(file, _)| file.file_name().unwrap())
                .collect::<Vec<_>>(),
            ["40-broken.conf"]
        );
    }
}
