//! Why a call failed, in Docker's terms: networks, containers, and the flags of its commands.

use leasehold_core::effect::Failure;
use leasehold_core::identity::{AddressHolder, Attachment, ClientId};
use leasehold_core::link::LinkCause;
use leasehold_core::pool::PoolId;
use leasehold_core::wire::Mac;

use super::lease::Flag;
use super::pool::is_anything;

/// The type of a client identifier that is made from a container's name (RFC 4361 §6.1).
const RFC_4361: u8 = 255;

/// Says why a container with a name cannot have a second lease under it. Up to Docker 28 no name is known.
pub(super) fn of_container(failure: &Failure, name: &str, pool: &PoolId) -> Option<String> {
    let Failure::Held {
        lan,
        client_id,
        holder: Attachment::Docker { pool: other, .. },
        seen: true,
    } = failure
    else {
        return None;
    };
    // Other identifiers do not depend on the name.
    let is_of_name = client_id.as_bytes().first() == Some(&RFC_4361);
    is_of_name.then(|| {
        format!(
            "container {name} has an address on {lan} already, through {}, and a container can be on a LAN through one network \
             only: disconnect it from this one, {} (docker network disconnect NETWORK {name}), or Docker tries again at each \
             start; if another container had the name {name} before it was renamed, restart that one",
            network(other),
            network(&pool.to_string()),
        )
    })
}

/// Returns how Docker's user knows a network: by its subnet and options, or by its id, as `docker network ls` shows it.
fn network(pool: &str) -> String {
    match pool.parse::<PoolId>() {
        Ok(id) if is_anything(&id) => format!("the network with {}", id.definition),
        Ok(id) => format!("the network {} with {}", id.subnet, id.definition),
        Err(_) => format!("the {pool}"),
    }
}

/// Returns how Docker's user knows who holds something.
fn holder(of: &Attachment) -> String {
    match of {
        Attachment::Docker { pool, endpoint } => {
            format!("the container {endpoint} on {}", network(pool))
        }
        Attachment::Cni { .. } => of.to_string(),
    }
}

/// Returns how Docker's user knows who has an address.
fn address_holder(of: &AddressHolder) -> String {
    match of {
        AddressHolder::Attachment(of) => holder(of),
        AddressHolder::Host(_) | AddressHolder::Station(_) => of.to_string(),
    }
}

/// Returns the Ethernet address that is a client identifier.
fn ethernet(client_id: &ClientId) -> Option<Mac> {
    match client_id.as_bytes() {
        [1, mac @ ..] => Some(Mac(mac.try_into().ok()?)),
        _ => None,
    }
}

/// Says why a call failed, and what to do.
pub(super) fn of(failure: &Failure, flag: Flag) -> String {
    match failure {
        Failure::Link { cause: LinkCause::NoLink(name), .. } => {
            let option = match flag {
                Flag::Ipam => "--ipam-opt parent=",
                Flag::Driver => "-o parent= or -o bridge=",
            };
            format!("there is no link {name} on this host: {option} must name the LAN's link")
        }
        Failure::Held { lan, client_id, holder: by, seen: true } if let Some(mac) = ethernet(client_id) => format!(
            "another container on {lan} has --mac-address {mac} ({}): stop that one first, or give this one another",
            holder(by)
        ),
        Failure::Held { lan, client_id, holder: by, seen } => format!(
            "client identifier {} on {lan} is held by {}{}; or give the network another {flag} client-id",
            client_id.readable(),
            holder(by),
            match seen {
                true =>
                    ", whose interface is there: stop that container first, or if it was renamed while it ran, restart it",
                false =>
                    ", whose interface was not found, but not all of Docker's namespaces can be searched: stop that \
                     container if it runs; else check that --docker-netns-dir names the directory where Docker keeps \
                     them, and that leasehold's log has no more warnings about it",
            }
        ),
        Failure::AddressHeld { server: Some(server), address, holder: by, shared } => format!(
            "server {server} gives this container {address}, which {} has{}",
            address_holder(by),
            match shared {
                Some(mac) => format!(
                    ": it seems to recognise clients by their Ethernet address, and both have {mac}: use macvlan instead of ipvlan, \
                     or give this container another --mac-address"
                ),
                None if matches!(by, AddressHolder::Host(_)) => ": take it out of the server's pool".to_owned(),
                None => ": it has lost its leases, or gives everybody that address; check its lease records".to_owned(),
            }
        ),
        Failure::AddressHeld { server: None, address, holder: by, .. } => {
            format!("{} has {address}: stop that container first", address_holder(by))
        }
        Failure::NotWanted { server, wanted, offered } => format!(
            "server {server} offers {offered} instead of --ip {wanted}: have it reserve {wanted} for this container's client \
             identifier or --mac-address, or leave --ip out"
        ),
        Failure::Attached { attachment, .. } => format!("{} has an address already: disconnect it first", holder(attachment)),
        Failure::Cancelled(attachment) => format!("the address of {} was released before it was leased", holder(attachment)),
        Failure::NoCarrier { ifname, waited } => {
            format!("the network's parent {ifname} has no carrier after {waited:?}: is the link up?")
        }
        other => other.to_string(),
    }
}
