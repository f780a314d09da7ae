//! Finds running containers that the store does not know, because it is new, was set aside or has records that do not parse, or
//! because an earlier daemon could not adopt them all.
//!
//! libcni keeps a file for each attachment: the network's configuration, what the runtime passed and what the plugins
//! answered. From it the daemon builds the ADD that the runtime would send now, so that the lease's client identifier,
//! LAN and options are those of a real ADD. The core finds out whether the container still runs, and whether its server
//! agrees.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use ipnet::{IpNet, Ipv4Net};
use leasehold_api::MAX_BODY;
use leasehold_api::cni::{Env, PrevResult, Request};
use leasehold_core::effect::{Adoptee, Call};
use leasehold_core::identity::Attachment;
use leasehold_core::wire::Mac;
use serde::Deserialize;
use serde_json::{Map, Value};
use tracing::{debug, info, warn};

use crate::cni_cache::{self, files, on_host};
use crate::http::{Asked, Site};
use crate::small_file;

/// The names under which networks call this IPAM plugin.
const PLUGINS: [&str; 2] = ["dhcp", "leasehold"];

/// Why a file of the cache yields no container.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("cannot be read: {0}")]
    Unread(#[from] io::Error),
    #[error("is not a cached attachment: {0}")]
    NotCached(serde_json::Error),
    #[error("is of kind {0:?}: only cniCacheV1 holds the network's configuration")]
    Kind(String),
    #[error("has a network configuration that cannot be read: {0}")]
    Config(String),
    #[error("names no network namespace")]
    NoNetns,
    #[error("has no IPv4 address for the interface")]
    NoAddress,
    #[error("is refused as an ADD: {0}")]
    Refused(String),
}

/// A file of libcni's cache (`cachedInfo` in its api.go). libcni has written `netns` since 1.2.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cached {
    container_id: String,
    /// The network's configuration, or a list of them, in Base64.
    config: String,
    if_name: String,
    network_name: String,
    #[serde(default)]
    netns: String,
    #[serde(default)]
    cni_args: Vec<(String, String)>,
    #[serde(default)]
    capability_args: Map<String, Value>,
    #[serde(default)]
    result: Value,
}

/// A file in the state directory that exists while there may be containers to adopt, so that the next daemon looks
/// for them even if the store already has some. The core leaves those it knows alone.
#[derive(Debug)]
pub(crate) struct Unfinished(PathBuf);

impl Unfinished {
    /// Returns the file of a state directory.
    pub(crate) fn of(state_dir: &Path) -> Self {
        Self(state_dir.join("adopting"))
    }

    /// Returns whether an earlier daemon did not finish.
    pub(crate) fn is_left(&self) -> bool {
        self.0.exists()
    }

    /// Leaves the file for the next daemon, or removes it.
    pub(crate) fn leave(&self, unfinished: bool) {
        let text = "there are still containers to adopt from the runtime's cache\n";
        let done = match unfinished {
            true => std::fs::write(&self.0, text),
            // On a read-only disk the kernel says so even if there is no file.
            false if !self.is_left() => Ok(()),
            false => small_file::remove(&self.0),
        };
        if let Err(error) = done {
            warn!(file = %self.0.display(), %error, "the next daemon may not go on adopting, or may try without need");
        }
    }
}

/// Returns the containers that the caches know, one for each attachment. `only`: those whose network names this socket.
///
/// A missing cache is empty; an unusable file is logged at WARN.
pub(crate) fn find(
    caches: &[PathBuf],
    host_prefix: &Path,
    site: &Site,
    only: Option<&Path>,
) -> Vec<Adoptee> {
    let mut found: BTreeMap<Attachment, Adoptee> = BTreeMap::new();
    for cache in caches.iter().filter(|cache| !cache.as_os_str().is_empty()) {
        let directory = on_host(host_prefix, cache);
        for path in files(&directory) {
            match small_file::read(&path, MAX_BODY)
                .map_err(Unusable::from)
                .and_then(|text| adoptee(&text, site, only))
            {
                Ok(Some(adoptee)) => {
                    found
                        .entry(adoptee.add.attachment.clone())
                        .or_insert(adoptee);
                }
                Ok(None) => debug!(file = %path.display(), "another plugin's container"),
                Err(cause) => {
                    warn!(file = %path.display(), %cause, "a running container may not be adopted")
                }
            }
        }
    }
    if !found.is_empty() {
        info!(
            containers = found.len(),
            "adopting containers that may be running without a daemon to hold their leases"
        );
    }
    found.into_values().collect()
}

/// Returns the container that a file describes, `None` if its address is not from this plugin, or not from the daemon at `only`.
fn adoptee(text: &[u8], site: &Site, only: Option<&Path>) -> Result<Option<Adoptee>, Unusable> {
    let value: Value = serde_json::from_slice(text).map_err(Unusable::NotCached)?;
    match value["kind"].as_str() {
        Some("cniCacheV1") => {}
        kind => {
            return Err(Unusable::Kind(
                kind.unwrap_or_default().chars().take(32).collect(),
            ));
        }
    }
    let cached = Cached::deserialize(value).map_err(Unusable::NotCached)?;
    let Some(plugin) = cached.plugin()? else {
        return Ok(None);
    };
    let socket = plugin["ipam"]["daemonSocketPath"].as_str();
    if only.is_some_and(|only| socket.map(Path::new) != Some(only)) {
        return Ok(None);
    }
    let asked = Asked::parse(&cached.request(plugin)?, site)
        .map_err(|error| Unusable::Refused(error.msg))?;
    let Call::Add(add) = asked.call else {
        return Ok(None);
    };
    let address = cached.address().ok_or(Unusable::NoAddress)?;
    Ok(Some(Adoptee {
        add,
        address,
        mac: cached.mac(),
    }))
}

impl Cached {
    /// Returns the configuration of the plugin that asked this one for an address.
    fn plugin(&self) -> Result<Option<Map<String, Value>>, Unusable> {
        let bytes = BASE64
            .decode(self.config.as_bytes())
            .map_err(|error| Unusable::Config(error.to_string()))?;
        let mut config: Map<String, Value> =
            serde_json::from_slice(&bytes).map_err(|error| Unusable::Config(error.to_string()))?;
        // The plugins of a list have its name and version; a single configuration has its own.
        let version = config
            .get("cniVersion")
            .unwrap_or(&self.result["cniVersion"])
            .clone();
        let plugins = match config.remove("plugins") {
            Some(Value::Array(plugins)) => plugins,
            _ => vec![Value::Object(config)],
        };
        let asks = |plugin: &Value| {
            plugin["ipam"]["type"]
                .as_str()
                .is_some_and(|name| PLUGINS.contains(&name))
        };
        let Some(Value::Object(mut plugin)) = plugins.into_iter().find(asks) else {
            return Ok(None);
        };
        plugin.insert("name".to_owned(), self.network_name.clone().into());
        plugin.insert("cniVersion".to_owned(), version);
        Ok(Some(plugin))
    }

    /// Returns the ADD as the runtime would send it, put together as libcni does (`buildOneConfig` in its api.go).
    fn request(&self, mut plugin: Map<String, Value>) -> Result<Request, Unusable> {
        let capable = |(name, _): &(&String, &Value)| {
            plugin
                .get("capabilities")
                .is_some_and(|all| all[*name] == true)
        };
        let runtime: Map<_, _> = self
            .capability_args
            .iter()
            .filter(capable)
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if !runtime.is_empty() {
            plugin.insert("runtimeConfig".to_owned(), Value::Object(runtime));
        }
        let args: Vec<_> = self
            .cni_args
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let netns = cni_cache::netns(&self.netns, &self.result, &self.if_name);
        let env = Env {
            command: Some("ADD".to_owned()),
            container_id: Some(self.container_id.clone()),
            netns: Some(netns.ok_or(Unusable::NoNetns)?.to_owned()),
            ifname: Some(self.if_name.clone()),
            args: Some(args.join(";")),
            ..Env::default()
        };
        Ok(Request {
            env,
            config: Value::Object(plugin).to_string(),
        })
    }

    /// Returns the Ethernet address that the plugins gave the interface.
    fn mac(&self) -> Option<Mac> {
        let interfaces = self.result["interfaces"].as_array().into_iter().flatten();
        // A host interface may have the same name; it is in no sandbox.
        let is_ours = |interface: &&Value| {
            let sandbox = interface["sandbox"].as_str().unwrap_or_default();
            interface["name"] == self.if_name.as_str() && !sandbox.is_empty()
        };
        interfaces
            .filter(is_ours)
            .find_map(|interface| interface["mac"].as_str()?.parse().ok())
    }

    /// Returns the first IPv4 address that the plugins put on the interface.
    fn address(&self) -> Option<Ipv4Net> {
        // Before 0.3.0 there is one address of each family, and no interfaces.
        if let Some(address) = self.result["ip4"]["ip"].as_str() {
            return address.parse().ok();
        }
        let result = PrevResult::deserialize(&self.result).ok()?;
        result
            .addresses_on(&self.if_name)
            .find_map(|address| match address {
                IpNet::V4(address) => Some(address),
                IpNet::V6(_) => None,
            })
    }
}

#[cfg(test)]
mod tests;
