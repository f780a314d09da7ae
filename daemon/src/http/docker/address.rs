//! Addresses: those of endpoints, which are leased, and a network's gateway and aux addresses, which are only kept free.

use ipnet::Ipv4Net;
use leasehold_api::docker as wire;
use leasehold_api::to_json;
use leasehold_core::effect::{Call, NetworkCall};
use leasehold_core::identity::Lan;
use leasehold_core::network::NetworkRecord;
use leasehold_core::wire::Mac;

use super::super::named::is_name;
use super::super::refusal::quoted;
use super::endpoint::{Endpoint, Source};
use super::form::{Form, Shape, Then};
use super::lease::LeaseOptions;
use super::pool::{self, is_anything, known};
use super::{Asked, Host, Refused, parse, refused, wiring};

/// Reads a request for an address.
pub(super) fn request(said: &wire::RequestAddress, host: &Host<'_>) -> Result<Asked, Refused> {
    let (id, options) = known(&said.pool_id)?;
    let address = if said.address.is_empty() { None } else { Some(parse::address(&said.address)?) };
    let is_gateway = said.options.get(wire::ADDRESS_TYPE).is_some_and(|kind| kind == wire::GATEWAY);
    if is_gateway && address.is_none() && is_anything(&id) {
        // It has none, and Docker takes no other answer.
        return Ok(Asked::Told(to_json(&wire::Address { address: Ipv4Net::default() })));
    }
    let (name, mac) = (name(&said.options)?, mac(&said.options)?);
    let is_endpoint = match (mac, name) {
        _ if is_gateway => false,
        (Some(_), _) => true,
        // Up to version 28, over this socket an address that the user asks for looks like an aux address.
        (None, None) if host.ipvlan => address.is_none(),
        (None, Some(_)) if host.ipvlan => true,
        (None, _) if address.is_some() => false,
        (None, _) => {
            return Err(refused(
                "the endpoint has no Ethernet address: create its network with --ipam-driver leasehold-ipvlan",
            ));
        }
    };
    let about = match address {
        Some(address) => format!("address {address}"),
        None => format!("an address of {}", id.subnet),
    };
    let warning = match address {
        Some(address) if !is_endpoint && host.ipvlan && !is_gateway => Some(format!(
            "{address} is reserved without a lease: up to version 28 of Docker, on ipvlan a container's --ip cannot be told \
             from --aux-address; see that the DHCP server leases it to nobody"
        )),
        _ => None,
    };
    let form = Form { warning, ..Form::new(about, Shape::Address(id.subnet.prefix_len())) };
    if !is_endpoint {
        return Ok(Asked::Core { call: Call::Reserve { pool: id, address }, form });
    }
    if is_anything(&id) && options.parent.is_none() {
        // Docker names no network here, nor did it tell one of its pool.
        let form = Form { then: Some(Then::Address(Box::new(said.clone()))), ..form };
        return Ok(Asked::Core { call: Call::Network(NetworkCall::FindByPool), form });
    }
    let parent = options.parent()?;
    let (ifname, lan) = host.lan(parent);
    add(said, (ifname, lan, parent), &options.lease, host, form)
}

/// Goes on when the network is known that the pool of such a request is of.
pub(super) fn of_network(
    said: &wire::RequestAddress,
    found: &NetworkRecord,
    host: &Host<'_>,
) -> Result<Asked, Refused> {
    let options = known(&said.pool_id)?.1.lease.or(wiring::lease_of(&found.definition)?);
    let place = (found.wiring.on.clone(), found.wiring.lan(), &*wiring::parent_of(&found.wiring));
    add(said, place, &options, host, Form::new("an address of the LAN", Shape::Address(0)))
}

/// Asks for an endpoint's address on a LAN: that of a link, by its name and by what the network calls it.
fn add(
    said: &wire::RequestAddress,
    (ifname, lan, parent): (String, Lan, &str),
    options: &LeaseOptions,
    host: &Host<'_>,
    form: Form,
) -> Result<Asked, Refused> {
    let id = pool::id(&said.pool_id)?;
    let own = mac(&said.options)?;
    let endpoint = Endpoint {
        within: id.to_string(),
        mac: own.unwrap_or_else(|| host.ethernet(&ifname)),
        name: name(&said.options)?,
        own_mac: own.is_some(),
        chosen_mac: None,
        id: format!("address:#{:016x}", host.number),
    };
    let wanted = if said.address.is_empty() { None } else { Some(parse::address(&said.address)?) };
    let (subnet, pool, shared) = (id.subnet, Some(id), host.ipvlan);
    let source = Source { ifname, lan, parent, subnet, pool, shared, options };
    Ok(Asked::Core { call: Call::Add(Box::new(endpoint.add(source, wanted, &host.site)?)), form })
}

fn name(options: &wire::Options) -> Result<Option<&str>, Refused> {
    match options.get(wire::ENDPOINT_NAME).map(String::as_str) {
        None | Some("") => Ok(None),
        Some(name) if is_name(name) => Ok(Some(name)),
        Some(name) => Err(refused(format!("{} is not the name of a container", quoted(name)))),
    }
}

fn mac(options: &wire::Options) -> Result<Option<Mac>, Refused> {
    let Some(text) = options.get(wire::MAC_ADDRESS).filter(|text| !text.is_empty()) else { return Ok(None) };
    parse::ethernet(text).map(Some)
}
