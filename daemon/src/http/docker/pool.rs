//! Pools: what a network is made of, and the PoolID by which its later calls name it.

use ipnet::{IpNet, Ipv4Net};
use leasehold_api::docker as wire;
use leasehold_core::dhcpv4::profile::Profile;
use leasehold_core::effect::PoolRequest;
use leasehold_core::link::Place;
use leasehold_core::pool::PoolId;
use leasehold_core::wire::Mac;

use super::super::refusal::quoted;
use super::options::{Kind, Options};
use super::{Host, Refused, refused};

/// Reads a request for a pool.
pub(super) fn request(said: &wire::RequestPool, host: &Host<'_>) -> Result<PoolRequest, Refused> {
    let subnet = net("--subnet", &said.pool)?;
    let range = net("--ip-range", &said.sub_pool)?;
    if said.v6 {
        return Err(ipv6());
    }
    if let (None, Some(range)) = (subnet, range) {
        return Err(refused(format!("--ip-range {range} needs the --subnet that it is a part of")));
    }
    let options = Options::read(&said.options)?;
    suits(&options, host)?;
    let (ifname, lan) = host.lan(&options.parent);
    // From the link's own address a bridge could not be asked by a port of it, and a server might take it for the host.
    let mac = if host.ipvlan { host.ethernet(&ifname) } else { passing(host.number) };
    Ok(PoolRequest {
        definition: options.to_string(),
        subnet,
        range,
        place: Place::Parent { ifname, mac },
        lan,
        profile: profile(&options, host),
        timeout: options.timeout(&host.site),
    })
}

/// Returns what a client of a network says and wants, whoever it is.
pub(super) fn profile(options: &Options, host: &Host<'_>) -> Profile {
    Profile {
        broadcast: host.site.broadcast || host.ipvlan,
        on_parent: host.ipvlan,
        allow: options.allow.iter().copied().collect(),
        deny: options.deny.iter().copied().collect(),
        release: options.release,
        // Which of its networks a container's default route leads over is Docker's choice, made once.
        suppress_default_route: true,
        follow_router: true,
        ..Profile::default()
    }
}

/// Reads a PoolID, and the options that it spells.
pub(super) fn known(text: &str) -> Result<(PoolId, Options), Refused> {
    let id = id(text)?;
    let options = id.definition.parse()?;
    Ok((id, options))
}

/// Reads a PoolID.
pub(super) fn id(text: &str) -> Result<PoolId, Refused> {
    text.parse().map_err(|bad| refused(format!("PoolID {}: {bad}", quoted(text))))
}

/// Refuses what no endpoint of the network could have.
fn suits(options: &Options, host: &Host<'_>) -> Result<(), Refused> {
    if host.ipvlan && options.client_id == Kind::Mac {
        return Err(refused(
            "--ipam-opt client-id=mac: on ipvlan all containers have the Ethernet address of the parent: leave it out",
        ));
    }
    let wants_host = options.client_id == Kind::Duid || (host.ipvlan && options.client_id == Kind::Auto);
    if wants_host && host.site.machine_id.is_none() {
        return Err(refused(format!(
            "--ipam-opt client-id={} needs the host's /etc/machine-id: run systemd-machine-id-setup and restart leasehold",
            options.client_id
        )));
    }
    Ok(())
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

fn ipv6() -> Refused {
    refused("leasehold leases IPv4 addresses: leave out --ipv6, and --subnet with an IPv6 subnet")
}

/// Returns an Ethernet address for a moment: unicast, locally administered (IEEE 802).
fn passing(number: u64) -> Mac {
    let [a, b, c, d, e, ..] = number.to_be_bytes();
    Mac([2, a, b, c, d, e])
}
