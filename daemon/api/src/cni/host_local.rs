//! What host-local reads from a network configuration. The ranges are as given: what is left out is not completed here, and
//! nobody checks here whether they can be used.
//!
//! Unknown keys are ignored, as by host-local, except in `ipam` itself a key that is nearly one of ours (`clinetId`): see
//! [`Ipam`](super::Ipam).

mod file;

use serde_json::Value;

use super::ipam::of_routes;
use super::object::{BadKey, Fault, Object, number, text, u8, u32};
use super::range::{Range, address, subnet};
use super::{ClientId, ConflictDetection, Route, Version};

pub use file::{File, Holder};

/// All keys of `ipam` that are known here: host-local's, and those of ours that mean something without a server.
pub const HOST_LOCAL_KEYS: [&str; 13] = [
    "type",
    "dataDir",
    "resolvConf",
    "routes",
    "ranges",
    "subnet",
    "rangeStart",
    "rangeEnd",
    "gateway",
    "daemonSocketPath",
    "timeout",
    "clientId",
    "conflictDetection",
];

/// How many of [`HOST_LOCAL_KEYS`], from the first, are host-local's.
const INCUMBENTS: usize = 9;

/// Returns whether a key that is nearly the known one `meant` is ignored, as by host-local.
fn is_ignored(_key: &str, meant: &str) -> bool {
    HOST_LOCAL_KEYS[..INCUMBENTS].contains(&meant)
}

/// Returns the keys in the value of `ipam` that are ignored but look like a mistake.
pub(super) fn ignored(ipam: &Object<'_>) -> Vec<BadKey> {
    let mut keys = ipam.ignored(&HOST_LOCAL_KEYS, is_ignored);
    keys.extend(of_routes(ipam));
    keys
}

/// What host-local reads from a network configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostLocal {
    /// The range sets, from each of which an ADD gets an address: those of `runtimeConfig.ipRanges`, then the set of the one
    /// range that `subnet`, `rangeStart`, `rangeEnd` and `gateway` make, then those of `ranges`.
    pub sets: Vec<Vec<Range>>,
    /// `routes`, passed on with each result.
    pub routes: Vec<Route>,
    /// `resolvConf`: the file with the result's name servers.
    pub resolv_conf: Option<String>,
    /// `dataDir`: where host-local keeps its files, in a directory for each network; `None` is [`HostLocal::DATA_DIR`].
    pub data_dir: Option<String>,
    /// `timeout`: how long an ADD may take, in seconds (see [`crate::add_timeout`]).
    pub timeout: Option<f64>,
    /// `clientId`: who gets the same addresses again; `None` is nobody.
    pub client_id: Option<ClientId>,
    /// `conflictDetection`: whether IPv4 addresses are probed for; `None` is not at all.
    pub conflict_detection: Option<ConflictDetection>,
}

impl HostLocal {
    /// host-local's directory if a configuration has no `dataDir`.
    pub const DATA_DIR: &str = "/var/lib/cni/networks";

    /// Reads the values of `ipam` and `runtimeConfig`.
    ///
    /// # Errors
    /// The first key that is refused; or more than one set of a family before version 0.3.0, whose results have one address of
    /// each family.
    pub(super) fn parse(
        ipam: &Value,
        runtime: Option<&Value>,
        version: Version,
    ) -> Result<Self, BadKey> {
        let ipam = Object::new("ipam", ipam)?;
        ipam.nothing_misspelt(&HOST_LOCAL_KEYS, is_ignored)?;
        ipam.read("type", text)?;
        // The shim reads it.
        ipam.read("daemonSocketPath", text)?;
        let mut sets = match runtime {
            Some(runtime) => {
                Object::new("runtimeConfig", runtime)?.lists("ipRanges", Range::read)?
            }
            None => Vec::new(),
        };
        // Without a subnet, host-local ignores the keys beside it.
        if ipam.get("subnet").is_some() {
            sets.push(vec![Range::read(ipam.clone())?]);
        }
        sets.extend(ipam.lists("ranges", Range::read)?);
        let of_family = |is_v4| {
            sets.iter()
                .filter_map(|set| set.first())
                .filter(|range| range.is_v4() == is_v4)
                .count()
        };
        if version < Version::V0_3_0 && (of_family(true) > 1 || of_family(false) > 1) {
            return Err(Fault::OneOfAFamily(version).at("ipam.ranges"));
        }
        let said = |key| {
            Ok(ipam
                .read(key, text)?
                .filter(|text| !text.is_empty())
                .map(str::to_owned))
        };
        Ok(Self {
            sets,
            routes: ipam.objects("routes", route)?,
            resolv_conf: said("resolvConf")?,
            data_dir: said("dataDir")?,
            timeout: ipam.read("timeout", number)?,
            client_id: ipam.choose("clientId", ClientId::read)?,
            conflict_detection: ipam.choose("conflictDetection", ConflictDetection::read)?,
        })
    }
}

/// Reads a route, which is passed on unchanged: it only has to be readable.
fn route(entry: Object<'_>) -> Result<Route, BadKey> {
    Ok(Route {
        dst: entry.require("dst", subnet)?,
        via: entry.read("gw", address)?.flatten(),
        mtu: entry.read("mtu", u32)?,
        advmss: entry.read("advmss", u32)?,
        priority: entry.read("priority", u32)?,
        table: entry.read("table", u32)?,
        scope: entry.read("scope", u8)?,
    })
}

#[cfg(test)]
mod tests;
