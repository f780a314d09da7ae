//! Pools: what a network consists of, and the PoolID by which later calls name a pool.

use ipnet::{IpNet, Ipv4Net};
use leasehold_api::docker as wire;
use leasehold_core::effect::{Call, PoolCall, PoolRequest};
use leasehold_core::pool::PoolId;
use leasehold_core::wire::Mac;

use super::super::refusal::quoted;
use super::options::Options;
use super::{Asked, Host, Refused, refused};

/// Reads a request for a pool.
pub(super) fn request(said: &wire::RequestPool, host: &Host<'_>) -> Result<Asked, Refused> {
    let subnet = net("--subnet", &said.pool)?;
    let range = net("--ip-range", &said.sub_pool)?;
    if said.v6 {
        return Err(ipv6());
    }
    if let (None, Some(range)) = (subnet, range) {
        return Err(refused(format!(
            "--ip-range {range} needs the --subnet that contains it"
        )));
    }
    let mut unclear = None;
    let options = Options::read(&said.options, || {
        let links = (host.links_in)(subnet.filter(|subnet| subnet.prefix_len() > 0)?);
        match <[String; 1]>::try_from(links) {
            Ok([link]) => Some(link),
            Err(links) => {
                unclear = Some(links);
                Some(String::new())
            }
        }
    })?;
    options.lease.suit(&host.site, host.ipvlan)?;
    if let Some(subnet) = subnet {
        options.lease.fallback(subnet, range, &host.site)?;
    }
    let (ifname, lan) = host.lan(&options.parent);
    // If it used its link's own address, a bridge could not be asked through a port, and a server might take it for the host.
    let mac = if host.ipvlan {
        host.ethernet(&ifname)
    } else {
        passing(host.number)
    };
    let request = PoolRequest {
        definition: options.to_string(),
        subnet,
        range,
        ifname,
        mac,
        lan,
        profile: options.lease.profile(&host.site, host.ipvlan, None),
        timeout: options.lease.timeout(&host.site),
        unclear,
    };
    Ok(Asked::core(
        Call::Pool(PoolCall::Request(Box::new(request))),
        "a pool of addresses",
    ))
}

/// Returns whether a pool contains every address.
pub(super) fn is_anything(id: &PoolId) -> bool {
    id.subnet.prefix_len() == 0
}

/// Reads a PoolID, and the options that it contains.
pub(super) fn known(text: &str) -> Result<(PoolId, Options), Refused> {
    let id = id(text)?;
    let options = id.definition.parse()?;
    Ok((id, options))
}

pub(super) fn id(text: &str) -> Result<PoolId, Refused> {
    text.parse()
        .map_err(|bad| refused(format!("PoolID {}: {bad}", quoted(text))))
}

/// Reads a subnet of IPv4, or nothing.
fn net(flag: &str, text: &str) -> Result<Option<Ipv4Net>, Refused> {
    match text.parse() {
        _ if text.is_empty() => Ok(None),
        Ok(IpNet::V4(net)) => Ok(Some(net.trunc())),
        Ok(IpNet::V6(_)) => Err(ipv6()),
        Err(_) => Err(refused(format!("{flag} {}: not a subnet", quoted(text)))),
    }
}

/// Refuses a network with IPv6.
pub(super) fn ipv6() -> Refused {
    refused("leasehold leases IPv4 addresses: leave out --ipv6, and --subnet with an IPv6 subnet")
}

/// Returns a temporary Ethernet address: unicast, locally administered (IEEE 802).
pub(super) fn passing(number: u64) -> Mac {
    let [a, b, c, d, e, ..] = number.to_be_bytes();
    Mac([2, a, b, c, d, e])
}
