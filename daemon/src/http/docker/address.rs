//! Addresses: those of endpoints, which are leased, and a network's gateway and aux addresses, which are only reserved.

use ipnet::Ipv4Net;
use leasehold_api::docker as wire;
use leasehold_core::effect::{Call, PoolCall};
use leasehold_core::wire::Mac;
use serde_json::json;

use super::super::named::is_name;
use super::super::refusal::quoted;
use super::endpoint::{Endpoint, Source};
use super::form::{Form, Shape};
use super::pool::{is_anything, known};
use super::{Asked, Host, Refused, parse, refused};

/// Reads a request for an address.
pub(super) fn request(said: &wire::RequestAddress, host: &Host<'_>) -> Result<Asked, Refused> {
    let (id, options) = known(&said.pool_id)?;
    let address = Some(&said.address).filter(|text| !text.is_empty());
    let address = address.map(|text| parse::address(text)).transpose()?;
    let is_gateway = said
        .options
        .get(wire::ADDRESS_TYPE)
        .is_some_and(|kind| kind == wire::GATEWAY);
    if is_gateway && address.is_none() && is_anything(&id) {
        // It has none, and Docker accepts no other answer.
        return Ok(Asked::known(json!({ "Address": Ipv4Net::default() })));
    }
    let name = name(&said.options)?;
    let mac = mac(&said.options)?;
    let is_endpoint = match (mac, name) {
        _ if is_gateway => false,
        (Some(_), _) => true,
        // Up to version 28, an address that the user asks for looks like an aux address on this socket.
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
            "{address} is reserved without a lease: up to Docker 28, a container's --ip on ipvlan looks like an \
             --aux-address; make sure that the DHCP server leases it to nobody"
        )),
        _ => None,
    };
    let form = Form {
        warning,
        container: name.map(|name| Box::new((name.to_owned(), id.clone()))),
        ..Form::new(about, Shape::Address(id.subnet.prefix_len()))
    };
    if !is_endpoint {
        return Ok(Asked::Core {
            call: Call::Pool(PoolCall::Reserve { pool: id, address }),
            form,
        });
    }
    let (ifname, lan) = host.lan(&options.parent);
    let endpoint = Endpoint {
        within: id.to_string(),
        mac: mac.unwrap_or_else(|| host.ethernet(&ifname)),
        name,
        own_mac: mac.is_some(),
        chosen_mac: None,
        id: format!("address:#{:016x}", host.number),
    };
    let subnet = id.subnet;
    let pool = Some(id);
    let shared = host.ipvlan;
    let source = Source {
        ifname,
        lan,
        parent: &options.parent,
        subnet,
        pool,
        shared,
        options: &options.lease,
    };
    Ok(Asked::Core {
        call: Call::Add(Box::new(endpoint.add(source, address, &host.site)?)),
        form,
    })
}

fn name(options: &wire::Options) -> Result<Option<&str>, Refused> {
    match options.get(wire::ENDPOINT_NAME).map(String::as_str) {
        None | Some("") => Ok(None),
        Some(name) if is_name(name) => Ok(Some(name)),
        Some(name) => Err(refused(format!(
            "{} is not the name of a container",
            quoted(name)
        ))),
    }
}

fn mac(options: &wire::Options) -> Result<Option<Mac>, Refused> {
    let said = options.get(wire::MAC_ADDRESS);
    said.filter(|text| !text.is_empty())
        .map(|text| parse::ethernet(text))
        .transpose()
}
