//! Addresses: those of endpoints, which are leased, and a network's gateway and aux addresses, which are only kept free.

use std::net::Ipv4Addr;

use leasehold_api::docker as wire;
use leasehold_core::dhcpv4::profile::{Profile, Wanted};
use leasehold_core::effect::{Add, Call, ClientIdRule};
use leasehold_core::identity::{Attachment, ClientId};
use leasehold_core::link::Place;
use leasehold_core::pool::PoolId;
use leasehold_core::wire::Mac;

use super::super::client_id::{of_host, untyped};
use super::super::named::is_name;
use super::super::refusal::quoted;
use super::options::{Kind, Options};
use super::pool::{known, profile};
use super::{Asked, Form, Host, Refused, refused};

/// How many seconds to keep a lease whose identity can return, if the network does not say.
const GRACE: u32 = 60;

/// Reads a request for an address.
pub(super) fn request(said: &wire::RequestAddress, host: &Host<'_>) -> Result<Asked, Refused> {
    let (id, options) = known(&said.pool_id)?;
    let address = if said.address.is_empty() { None } else { Some(parse(&said.address)?) };
    let is_gateway = said.options.get(wire::ADDRESS_TYPE).is_some_and(|kind| kind == wire::GATEWAY);
    let (name, mac) = (name(&said.options)?, mac(&said.options)?);
    let form = |about: String, warning| Form { about, prefix: id.subnet.prefix_len(), warning };
    let about = match address {
        Some(address) => format!("address {address}"),
        None => format!("an address of {}", id.subnet),
    };
    let endpoint = match (mac, name) {
        _ if is_gateway => None,
        (Some(mac), name) => Some(Endpoint { mac, name, own_mac: true, number: host.number }),
        // Up to version 28, over this socket an address that the user asks for looks like an aux address.
        (None, None) if host.ipvlan && address.is_some() => None,
        (None, name) if host.ipvlan => {
            let mac = host.ethernet(&host.lan(&options.parent).0);
            Some(Endpoint { mac, name, own_mac: false, number: host.number })
        }
        (None, _) if address.is_some() => None,
        (None, _) => {
            return Err(refused(
                "the endpoint has no Ethernet address: create its network with --ipam-driver leasehold-ipvlan",
            ));
        }
    };
    let warning = match (&endpoint, address) {
        (None, Some(address)) if host.ipvlan && !is_gateway => Some(format!(
            "{address} is reserved without a lease: up to version 28 of Docker, on ipvlan a container's --ip cannot be told \
             from --aux-address; see that the DHCP server leases it to nobody"
        )),
        _ => None,
    };
    let form = form(about, warning);
    let call = match endpoint {
        Some(endpoint) => Call::Add(Box::new(endpoint.add(id, &options, address, host)?)),
        None => Call::Reserve { pool: id, address },
    };
    Ok(Asked::Core { call, form })
}

/// Who an address is for.
struct Endpoint<'a> {
    /// The Ethernet address of its frames.
    mac: Mac,
    /// The container's name, where Docker tells it.
    name: Option<&'a str>,
    /// Whether the Ethernet address is its own.
    own_mac: bool,
    /// Tells it from all others where nothing else does.
    number: u64,
}

impl Endpoint<'_> {
    fn add(&self, id: PoolId, options: &Options, wanted: Option<Ipv4Addr>, host: &Host<'_>) -> Result<Add, Refused> {
        let (ifname, lan) = host.lan(&options.parent);
        Ok(Add {
            attachment: Attachment::Docker { pool: id.to_string(), endpoint: self.of_its_own() },
            place: Place::Parent { ifname, mac: self.mac },
            lan,
            client_id: self.client_id(&id, options, host)?,
            chaddr: None,
            wanted: wanted.map(|address| Wanted { address, preferred: false }),
            profile: Profile {
                hostname: options.hostname(self.name)?,
                grace: self.grace(options, host),
                prefix: Some(id.subnet.prefix_len()),
                ..profile(options, host)
            },
            timeout: options.timeout(&host.site),
            pool: Some(id),
        })
    }

    /// Returns what is its own, as long as it lasts.
    fn of_its_own(&self) -> String {
        match (self.name, self.own_mac) {
            (_, true) => self.mac.to_string(),
            (Some(name), false) => format!("address:{name}"),
            // No container has such a name.
            (None, false) => format!("address:#{:016x}", self.number),
        }
    }

    /// Returns what a server is to know it by.
    ///
    /// By the name alone, the containers `web` of two hosts would be one client to the server.
    fn client_id(&self, id: &PoolId, options: &Options, host: &Host<'_>) -> Result<ClientIdRule, Refused> {
        let machine = host.site.machine_id;
        let own = self.name.map_or_else(|| self.of_its_own(), str::to_owned);
        let of_host = |machine| of_host(&format!("docker/{}/{}/{own}", options.parent, id.subnet), machine);
        let bytes = match (&options.client_id, machine) {
            (Kind::Mac, _) => return Ok(ClientIdRule::Mac),
            (Kind::Auto, Some(machine)) if self.name.is_some() || !self.own_mac => of_host(machine),
            (Kind::Auto, _) if self.own_mac => return Ok(ClientIdRule::Mac),
            (Kind::Duid, Some(machine)) => of_host(machine),
            (kind @ (Kind::Auto | Kind::Duid), _) => {
                return Err(refused(format!("--ipam-opt client-id={kind} needs the host's /etc/machine-id")));
            }
            (Kind::Hex(bytes), _) => bytes.clone(),
            (Kind::Text(text), _) => untyped(text),
        };
        let id = ClientId::new(bytes).map_err(|bad| refused(format!("--ipam-opt client-id: {bad}")))?;
        Ok(ClientIdRule::Bytes(id))
    }

    /// Returns for how long the lease is kept when the endpoint goes: one whose identity can return may be back soon.
    fn grace(&self, options: &Options, host: &Host<'_>) -> Option<u32> {
        let returns = match options.client_id {
            Kind::Auto => self.name.is_some() && host.site.machine_id.is_some(),
            Kind::Mac | Kind::Duid | Kind::Hex(_) | Kind::Text(_) => true,
        };
        match options.grace {
            None => returns.then_some(GRACE),
            Some(said) => (returns || said > 0).then_some(said),
        }
    }
}

/// Reads an address that dockerd sends, which has no prefix.
pub(super) fn parse(text: &str) -> Result<Ipv4Addr, Refused> {
    let fault = || refused(format!("{} is not an IPv4 address of a host", quoted(text)));
    let address: Ipv4Addr = text.parse().map_err(|_| fault())?;
    let is_hosts =
        !(address.is_unspecified() || address.is_broadcast() || address.is_multicast() || address.is_loopback());
    if is_hosts { Ok(address) } else { Err(fault()) }
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
    let mac = text.parse().ok().filter(|mac: &Mac| mac.0[0] & 1 == 0 && *mac != Mac::default());
    mac.map(Some).ok_or_else(|| refused(format!("{} is not the Ethernet address of an interface", quoted(text))))
}
