//! What host-local reads from a network configuration. The ranges are as given: what is left out is not completed here, and
//! nobody checks here whether they can be used.
//!
//! Unknown keys are ignored, as by host-local. In `ipam` itself there is a warning about a key that is one slip away from a known
//! one (`rangeEnds`).

mod holder;

use leasehold_range::RangeConfig;
use serde_json::Value;

use super::ipam::{self, of_routes};
use super::object::{BadKey, Fault, Object, number, text};
use super::range::{address, range, subnet};
use super::{Route, Version};

pub use holder::Holder;

/// All keys of `ipam` that are known here: host-local's, and ours.
pub const HOST_LOCAL_KEYS: [&str; 11] = [
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
];

/// Keys of `ipam` that earlier versions of leasehold knew.
const NO_LONGER_USED: [&str; 2] = ["clientId", "conflictDetection"];

/// Returns the keys in the value of `ipam` that are ignored but look like a mistake.
pub(super) fn ignored(ipam: &Object<'_>) -> Vec<BadKey> {
    let unused = NO_LONGER_USED
        .iter()
        .filter(|key| ipam.get(key).is_some())
        .map(|key| Fault::NoLongerUsed.at(format!("ipam.{key}")));
    let mut keys: Vec<_> = unused.collect();
    keys.extend(ipam.ignored(&HOST_LOCAL_KEYS, |_, _| true));
    keys.extend(of_routes(ipam));
    keys
}

/// What host-local reads from a network configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostLocal {
    /// The range sets, from each of which an ADD gets an address: those of `runtimeConfig.ipRanges`, then the set of the one
    /// range that `subnet`, `rangeStart`, `rangeEnd` and `gateway` make, then those of `ranges`.
    pub sets: Vec<Vec<RangeConfig>>,
    /// `routes`, passed on with each result.
    pub routes: Vec<Route>,
    /// `resolvConf`: the file with the result's name servers.
    pub resolv_conf: Option<String>,
    /// `dataDir`: where host-local keeps its files, in a directory for each network; `None` is [`HostLocal::DATA_DIR`].
    pub data_dir: Option<String>,
    /// `timeout`: how long an ADD waits for the lock of the directory, in seconds (see [`crate::add_timeout`]).
    pub timeout: Option<f64>,
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
        ipam.read("type", text)?;
        let mut sets = match runtime {
            Some(runtime) => Object::new("runtimeConfig", runtime)?.lists("ipRanges", range)?,
            None => Vec::new(),
        };
        // Without a subnet, host-local ignores the keys beside it.
        if ipam.get("subnet").is_some() {
            sets.push(vec![range(ipam.clone())?]);
        }
        sets.extend(ipam.lists("ranges", range)?);
        let of_family = |is_v4| {
            sets.iter()
                .filter_map(|set| set.first())
                .filter(|range| range.subnet.addr().is_ipv4() == is_v4)
                .count()
        };
        if version < Version::V0_3_0 && (of_family(true) > 1 || of_family(false) > 1) {
            return Err(Fault::OneOfAFamily(version).at("ipam.ranges"));
        }
        Ok(Self {
            sets,
            routes: ipam.objects("routes", route)?,
            resolv_conf: ipam.said("resolvConf", text)?,
            data_dir: ipam.said("dataDir", text)?,
            timeout: ipam.read("timeout", number)?,
        })
    }
}

/// Reads a route, which is passed on unchanged: it only has to be readable.
fn route(entry: Object<'_>) -> Result<Route, BadKey> {
    let via = entry.read("gw", address)?.flatten();
    ipam::route(&entry, entry.require("dst", subnet)?, via)
}

#[cfg(test)]
mod tests;
