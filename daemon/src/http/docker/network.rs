//! Docker's network driver: networks, endpoints, and what dockerd does with them.
//!
//! Leave, EndpointOperInfo, the two calls about external connectivity, the two about discovery and those for the managers of a
//! swarm do nothing here: each succeeds, whatever its body says.

use std::time::Duration;

use data_encoding::BASE64;
use ipnet::Ipv4Net;
use leasehold_api::docker::MAC_ADDRESS;
use leasehold_api::docker::network::{
    AnyOptions, CreateEndpoint, CreateNetwork, ENABLE_IPV6, IFNAME, INTERNAL, Interface, IpamData,
    Join, Named, PREFIX,
};
use leasehold_core::effect::{Add, Call, EndpointAddress, EndpointRequest, NetworkCall};
use leasehold_core::identity::DoorId;
use leasehold_core::link::own::LONGEST_NAME;
use leasehold_core::network::{Mode, NetworkRecord, in_network};
use leasehold_core::time::WallTime;
use leasehold_core::wire::Mac;
use serde_json::{Value, json};

use super::super::named::is_link_name;
use super::super::refusal::quoted;
use super::endpoint::{Endpoint, Source};
use super::form::{Form, Shape};
use super::parse::{ethernet, is_interfaces};
use super::pool::{ipv6, passing};
use super::wiring::{self, NetworkOptions};
use super::{ADDRESS_SPACE, Asked, DONE, Host, Refused, read, refused};

/// The longest name of a namespace that is kept: Docker's have 34 bytes.
const LONGEST_SANDBOX: usize = 256;

/// Reads a call, by the path of its URL.
pub(super) fn parse(path: &str, body: &[u8], host: &Host<'_>) -> Result<Asked, Refused> {
    Ok(match path.strip_prefix(PREFIX).ok_or(Refused::Unknown)? {
        "GetCapabilities" => Asked::known(
            json!({ "Scope": "local", "ConnectivityScope": "local", "GwAllocChecker": true }),
        ),
        // The router comes with the lease.
        "GwAllocCheck" => Asked::known(json!({ "SkipIPv4": true, "SkipIPv6": true })),
        "CreateNetwork" => {
            let network = network(&read(body)?, host)?;
            asked(
                NetworkCall::Create(Box::new(network)),
                "a network",
                Shape::Nothing,
            )
        }
        "DeleteNetwork" => {
            let Named { network_id, .. } = read(body)?;
            asked(
                NetworkCall::Delete(id("NetworkID", &network_id)?),
                "the end of a network",
                Shape::Nothing,
            )
        }
        "CreateEndpoint" => {
            let said: CreateEndpoint = read(body)?;
            id("EndpointID", &said.endpoint_id)?;
            let call = NetworkCall::Find(id("NetworkID", &said.network_id)?);
            let form = Form::new("an endpoint", Shape::Endpoint { tells_mac: false });
            let form = Form {
                then: Some(Box::new(said)),
                ..form
            };
            Asked::Core {
                call: Call::Network(call),
                form,
            }
        }
        "DeleteEndpoint" => {
            let Named { endpoint_id, .. } = read(body)?;
            let call = NetworkCall::DeleteEndpoint(id("EndpointID", &endpoint_id)?);
            asked(call, "the end of an endpoint", Shape::Nothing)
        }
        "Join" => {
            let said: Join = read(body)?;
            let network = id("NetworkID", &said.network_id)?;
            let endpoint = id("EndpointID", &said.endpoint_id)?;
            let shape = Shape::Join {
                ifname: ifname(&said.options)?,
            };
            let sandbox = if said.sandbox_key.len() <= LONGEST_SANDBOX {
                said.sandbox_key
            } else {
                String::new()
            };
            asked(
                NetworkCall::Join {
                    network,
                    endpoint,
                    sandbox,
                },
                "the link of an endpoint",
                shape,
            )
        }
        "EndpointOperInfo" => Asked::known(json!({ "Value": {} })),
        "AllocateNetwork" => Asked::known(json!({ "Options": {} })),
        "FreeNetwork"
        | "Leave"
        | "ProgramExternalConnectivity"
        | "RevokeExternalConnectivity"
        | "DiscoverNew"
        | "DiscoverDelete" => Asked::Known(DONE.to_owned()),
        _ => return Err(Refused::Unknown),
    })
}

fn asked(call: NetworkCall, about: &str, shape: Shape) -> Asked {
    Asked::Core {
        call: Call::Network(call),
        form: Form::new(about, shape),
    }
}

fn id(key: &str, text: &str) -> Result<DoorId, Refused> {
    let refuse = |_| {
        refused(format!(
            "{key} {}: not a Docker id (1 to 64 letters and digits)",
            quoted(text)
        ))
    };
    DoorId::try_from(text.to_owned()).map_err(refuse)
}

/// Reads a requested network.
fn network(said: &CreateNetwork, host: &Host<'_>) -> Result<NetworkRecord, Refused> {
    let id = id("NetworkID", &said.network_id)?;
    let is_true = |key| {
        said.options
            .get(key)
            .is_some_and(|value| matches!(value, Value::Bool(true)))
    };
    if is_true(ENABLE_IPV6) || !said.ipv6_data.is_empty() {
        return Err(ipv6());
    }
    if is_true(INTERNAL) {
        return Err(refused(
            "a network on the LAN cannot be isolated: leave out --internal",
        ));
    }
    let data = match &said.ipv4_data[..] {
        [] => IpamData::default(),
        [data] => data.clone(),
        _ => {
            return Err(refused(
                "a network on the LAN has one subnet: pass one --subnet, or none",
            ));
        }
    };
    let pool: Ipv4Net = match data.pool.as_str() {
        "" => Ipv4Net::default(),
        text => text
            .parse()
            .map_err(|_| refused(format!("--subnet {}: not a subnet of IPv4", quoted(text))))?,
    };
    let leases = data.address_space == ADDRESS_SPACE;
    let options = NetworkOptions::read(&wiring::said(&said.options)?, host)?;
    if !leases {
        // No other IPAM driver gets a container's name, nor does this network driver.
        options.lease.hostname(None)?;
    }
    if options.lease.fallback.is_some() && !leases {
        return Err(refused(
            "-o fallback: its range needs a subnet: pass --ipam-driver leasehold with --subnet, and --ipam-opt fallback= instead",
        ));
    }
    // Docker's own IPAM driver, the default, does not know which addresses are taken on the LAN.
    let is_numbered = !leases && pool.prefix_len() != 0;
    if options.numbered != is_numbered {
        return Err(refused(match is_numbered {
            true => format!(
                "its containers would get addresses of Docker's own, or of another IPAM driver, from {pool}, whoever \
                 has these on the LAN: pass --ipam-driver null, or --ipam-driver leasehold with --ipam-opt parent=, to \
                 lease addresses from the LAN's DHCP server; if you mean it, pass -o addresses=docker, and keep {pool} \
                 out of that server's pool"
            ),
            false => {
                "-o addresses=docker is for networks whose addresses Docker assigns: leave out --ipam-driver, or the option"
                    .to_owned()
            }
        }));
    }
    // Its addresses are leased before the network exists, or Docker assigns them.
    if let Some((key, _)) = options
        .lease
        .spelled()
        .next()
        .filter(|_| leases || is_numbered)
    {
        return Err(refused(match leases {
            true => format!(
                "-o {key}: with --ipam-driver leasehold an address is leased before its network is known: pass it as \
                 --ipam-opt {key}= instead"
            ),
            false => format!(
                "-o {key}: with -o addresses=docker there is no lease: leave one of the two out"
            ),
        }));
    }
    // A pool of ours names the gateway of the moment; the lease knows better.
    let from_ipam = data
        .gateway
        .parse()
        .ok()
        .map(|gateway: Ipv4Net| gateway.addr());
    let from_ipam = from_ipam.filter(|gateway| !leases && !gateway.is_unspecified());
    Ok(NetworkRecord {
        id,
        definition: options.to_string(),
        gateway: options.gateway.or(from_ipam),
        wiring: options.wiring,
        pool: pool.trunc(),
        leases,
        since: WallTime::from_epoch(Duration::ZERO),
    })
}

/// Reads a requested endpoint.
pub(super) fn endpoint(
    said: &CreateEndpoint,
    network: &NetworkRecord,
    host: &Host<'_>,
) -> Result<Asked, Refused> {
    let id = id("EndpointID", &said.endpoint_id)?;
    let Interface {
        address,
        address_ipv6,
        mac_address,
    } = &said.interface;
    if !address_ipv6.is_empty() {
        return Err(refused("leasehold gives IPv4 addresses: leave out --ip6"));
    }
    let given = if mac_address.is_empty() {
        None
    } else {
        Some(ethernet(mac_address)?)
    };
    let chosen = chosen_mac(&said.options)?;
    let shared = network.wiring.mode == Mode::Ipvlan;
    let mac = match given.or(chosen) {
        Some(_) if shared && chosen.is_none() && network.leases => {
            return Err(refused(
                "this IPAM driver has Docker make up an Ethernet address, but on -o mode=ipvlan all containers have \
                 the parent's: create the network with --ipam-driver leasehold-ipvlan",
            ));
        }
        Some(_) if shared => {
            return Err(refused(
                "--mac-address: on -o mode=ipvlan all containers have the parent's Ethernet address: leave it out",
            ));
        }
        Some(mac) => mac,
        None if shared => host.ethernet(&network.wiring.on),
        None => passing(host.number),
    };
    // No IPAM driver gave the address, so the user chose it, and no lease is behind it.
    let is_chosen = !network.leases && network.pool.prefix_len() == 0;
    let origin = match address.as_str() {
        "" => EndpointAddress::Leased(Box::new(add(&id, mac, chosen.is_some(), network, host)?)),
        text if is_chosen => {
            return Err(refused(format!(
                "--ip {}: with --ipam-driver null the server chooses the address: leave --ip out, or create the \
                 network with --ipam-driver leasehold and --subnet",
                quoted(text)
            )));
        }
        text => EndpointAddress::Ipam(text.parse().map_err(|_| {
            refused(format!(
                "{} is not an IPv4 address with a prefix",
                quoted(text)
            ))
        })?),
    };
    let request = EndpointRequest {
        id,
        network: network.id.clone(),
        mac,
        address: origin,
    };
    let call = NetworkCall::CreateEndpoint(Box::new(request));
    Ok(asked(
        call,
        "an endpoint",
        Shape::Endpoint {
            tells_mac: given.is_none() && !shared,
        },
    ))
}

/// Returns the ADD for an endpoint to which no IPAM driver gave an address.
fn add(
    id: &DoorId,
    mac: Mac,
    chosen: bool,
    network: &NetworkRecord,
    host: &Host<'_>,
) -> Result<Add, Refused> {
    let shared = network.wiring.mode == Mode::Ipvlan;
    let endpoint = Endpoint {
        within: in_network(network.id.short()),
        mac,
        name: None,
        own_mac: !shared,
        chosen_mac: Some(chosen),
        id: format!("endpoint:{}", id.short()),
    };
    let options = wiring::lease_of(&network.definition)?;
    let source = Source {
        ifname: network.wiring.on.clone(),
        lan: network.wiring.lan(),
        parent: &network.wiring.parent(),
        subnet: Ipv4Net::default(),
        pool: None,
        shared,
        options: &options,
    };
    endpoint.add(source, None, &host.site)
}

/// Returns the Ethernet address that the user chose, if any: six bytes in Base64 (RFC 4648 §4), or as text.
fn chosen_mac(options: &AnyOptions) -> Result<Option<Mac>, Refused> {
    let text = match options.get(MAC_ADDRESS) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) if text.is_empty() => return Ok(None),
        Some(Value::String(text)) => text,
        Some(_) => {
            return Err(refused(format!(
                "{MAC_ADDRESS}: expected six bytes in Base64"
            )));
        }
    };
    let six = BASE64.decode(text.as_bytes()).ok();
    match six.and_then(|six| six.try_into().ok()).map(Mac) {
        Some(mac) if is_interfaces(&mac) => Ok(Some(mac)),
        Some(mac) => Err(refused(format!(
            "--mac-address {mac} is not the Ethernet address of an interface"
        ))),
        None => ethernet(text).map(Some),
    }
}

/// Returns the name of an interface in its container, or nothing.
fn ifname(options: &AnyOptions) -> Result<String, Refused> {
    match options.get(IFNAME) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(name)) if name.is_empty() || is_link_name(name, LONGEST_NAME) => {
            Ok(name.clone())
        }
        Some(other) => Err(refused(format!(
            "{IFNAME}={}: expected the name of a link",
            quoted(&other.to_string())
        ))),
    }
}
