//! A network whose addresses come from local ranges: host-local's configuration as the core's [`RangeAdd`], and host-local's
//! results.

use std::path::{Path, PathBuf};

use leasehold_api::add_timeout;
use leasehold_api::cni::{
    ClientId as Kind, Code, Config, Dns, Error, HostLocal, Ip, Request, Route, Success, Version,
    asked,
};
use leasehold_core::effect::{ClientIdRule, RangeAdd};
use leasehold_core::grant::policy::Detection;
use leasehold_core::identity::ClientId;
use leasehold_core::range::{Given, NoAddress, Sets};

use super::add::{Site, detection};
use super::args::Args;
use super::client_id;
use super::fallback;
use super::named::{Named, attachment, lan, netns};
use super::names::Names;
use super::refusal::{bad_config, refused};

/// What a result contains besides addresses, copied from the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    routes: Vec<Route>,
    dns: Dns,
}

/// Reads an ADD, and what its result contains besides the addresses.
pub(super) fn add(
    request: &Request,
    config: &Config,
    named: Named<'_>,
    version: Version,
    site: &Site,
) -> Result<(RangeAdd, Extras), Error> {
    let (read, sets) = read(config, version)?;
    let netns = netns(request)?;
    let args = Args::parse(request.env.args.as_deref());
    let said = config.runtime_config().map_err(refused)?;
    let dns = request
        .resolv_conf
        .as_deref()
        .map(leasehold_host_local::resolver)
        .unwrap_or_default();
    let add = RangeAdd {
        attachment: attachment(named),
        netns,
        lan: lan(config, named.network),
        returns_as: returns_as(&read, &Names { named, args: &args }, site)?,
        sets,
        asked: asked(config, &said, &args)?,
        directory: directory(Some(&read), named.network),
        detection: read.conflict_detection.map_or(Detection::Off, detection),
        timeout: read
            .timeout
            .filter(|s| *s > 0.0)
            .map_or(site.add_timeout, |seconds| add_timeout(Some(seconds))),
    };
    Ok((
        add,
        Extras {
            routes: read.routes,
            dns,
        },
    ))
}

/// Reads the ranges. Each verb but DEL refuses what host-local would.
pub(super) fn read(config: &Config, version: Version) -> Result<(HostLocal, Sets), Error> {
    let read = config.host_local(version).map_err(refused)?;
    let sets = fallback::sets("ipam.ranges", &read.sets)?;
    Ok((read, sets))
}

/// Returns the directory of a network's files. A path that is not absolute starts at the root, where runtimes run.
pub(super) fn directory(read: Option<&HostLocal>, network: &str) -> PathBuf {
    let data_dir = read
        .and_then(|read| read.data_dir.as_deref())
        .unwrap_or(HostLocal::DATA_DIR);
    Path::new("/").join(data_dir).join(network)
}

/// Returns the identity that gets the same addresses again, if the configuration names one.
fn returns_as(read: &HostLocal, names: &Names<'_>, site: &Site) -> Result<Option<ClientId>, Error> {
    let kind = match &read.client_id {
        None | Some(Kind::Container) => return Ok(None),
        Some(kind @ (Kind::Mac | Kind::None)) => {
            let kind = if *kind == Kind::Mac { "mac" } else { "none" };
            let fault = format!("{kind} needs an interface, and host-local has none");
            return Err(bad_config("ipam.clientId", fault));
        }
        Some(kind) => kind,
    };
    Ok(match client_id::rule(kind, names, site.machine_id)? {
        ClientIdRule::Bytes(id) | ClientIdRule::Hashed { sent: id, .. } => Some(id),
        ClientIdRule::Mac => None,
    })
}

impl Extras {
    /// Returns host-local's result: an address from each set, and what the configuration adds.
    pub(super) fn success(self, given: &[Given]) -> Success {
        let ips = given
            .iter()
            .map(|given| Ip {
                address: given.address,
                gateway: Some(given.gateway),
            })
            .collect();
        Success {
            ips,
            routes: self.routes,
            dns: self.dns,
        }
    }
}

/// Returns the code for an unavailable address. Another may soon be given back, so that the next try succeeds.
pub(super) fn code(none: &NoAddress) -> Code {
    match none {
        NoAddress::Full { .. } | NoAddress::Duplicate { .. } | NoAddress::Taken { .. } => {
            Code::TryAgainLater
        }
        NoAddress::Gateway(_) | NoAddress::NotInSets(_) => Code::InvalidConfig,
    }
}

/// Returns host-local's message for it, which people and scripts search for.
pub(super) fn words(none: &NoAddress) -> &'static str {
    match none {
        NoAddress::Full { .. } => "no IP addresses available in range set",
        NoAddress::Duplicate { .. } => "duplicate allocation is not allowed",
        NoAddress::Taken { .. } => "requested IP address is not available in range set",
        NoAddress::Gateway(_) => "requested ip is subnet's gateway",
        NoAddress::NotInSets(_) => "failed to allocate all requested IPs",
    }
}
