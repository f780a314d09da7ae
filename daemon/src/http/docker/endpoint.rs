//! Endpoints: how a server recognises one, and the ADD that leases its address.

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;
use leasehold_core::effect::{Add, ClientIdRule};
use leasehold_core::identity::{Attachment, ClientId, Lan};
use leasehold_core::link::Place;
use leasehold_core::pool::{PoolId, wants};
use leasehold_core::profile::GRACE;
use leasehold_core::source::Wanted;
use leasehold_core::wire::Mac;

use super::super::add::Site;
use super::super::client_id::{of_host, untyped};
use super::lease::{Kind, LeaseOptions};
use super::{Refused, refused};

/// What an address is for.
pub(super) struct Endpoint<'a> {
    /// The pool or network that it is in.
    pub(super) within: String,
    /// The Ethernet address of its frames.
    pub(super) mac: Mac,
    /// The container's name, if Docker passes it.
    pub(super) name: Option<&'a str>,
    /// Whether the Ethernet address is its own.
    pub(super) own_mac: bool,
    /// Whether somebody chose the Ethernet address, so that it can return; `None`: Docker does not say.
    pub(super) chosen_mac: Option<bool>,
    /// What distinguishes it from all others if nothing else does. No container has such a name.
    pub(super) id: String,
}

/// Where its address comes from.
pub(super) struct Source<'a> {
    /// The name of the LAN's link.
    pub(super) ifname: String,
    pub(super) lan: Lan,
    /// The network's name for that link.
    pub(super) parent: &'a str,
    /// The subnet that Docker knows; 0.0.0.0/0 is everything.
    pub(super) subnet: Ipv4Net,
    /// The pool that the address must belong to.
    pub(super) pool: Option<PoolId>,
    /// Whether all clients of the LAN have their parent's Ethernet address.
    pub(super) shared: bool,
    pub(super) options: &'a LeaseOptions,
}

impl Endpoint<'_> {
    /// Returns the ADD for the endpoint, which asks for the address `wanted`.
    pub(super) fn add(
        &self,
        source: Source<'_>,
        wanted: Option<Ipv4Addr>,
        site: &Site,
    ) -> Result<Add, Refused> {
        let client_id = self.client_id(&source, site)?;
        let Source {
            ifname,
            lan,
            subnet,
            pool,
            shared,
            options,
            ..
        } = source;
        let mut profile = options.profile(site, shared, options.hostname(self.name)?);
        profile.grace = self.grace(options, site);
        profile.policy.prefix = Some(subnet.prefix_len()).filter(|prefix| *prefix != 0);
        profile.wants = wants(pool.as_ref());
        Ok(Add {
            attachment: Attachment::Docker {
                pool: (&self.within).into(),
                endpoint: self.of_its_own().into(),
            },
            place: Place::Parent {
                ifname,
                mac: self.mac,
            },
            lan,
            client_id,
            chaddr: None,
            wanted: wanted.map(|address| Wanted {
                address,
                preferred: false,
            }),
            profile,
            timeout: options.timeout(site),
            hurried: Duration::ZERO,
            fallback: pool.as_ref().map_or(Ok(None), |pool| {
                options.fallback(pool.subnet, pool.range, site)
            })?,
            limits: pool.map(|pool| pool.limits()),
        })
    }

    /// Returns a name that is unique as long as the endpoint exists.
    fn of_its_own(&self) -> String {
        match (self.name, self.own_mac) {
            (_, true) => self.mac.to_string(),
            (Some(name), false) => format!("address:{name}"),
            (None, false) => self.id.clone(),
        }
    }

    /// Returns how a server recognises the endpoint.
    ///
    /// By name only, the containers `web` of two hosts would be one client to the server.
    fn client_id(&self, source: &Source<'_>, site: &Site) -> Result<ClientIdRule, Refused> {
        let Source {
            parent,
            subnet,
            options: LeaseOptions {
                flag, client_id, ..
            },
            ..
        } = source;
        let machine = site.machine_id;
        let own = self.name.map_or_else(|| self.of_its_own(), str::to_owned);
        let of_host = |machine| of_host(&format!("docker/{parent}/{subnet}/{own}"), machine);
        let bytes = match (client_id, machine) {
            (Kind::Mac | Kind::None, _) => return Ok(ClientIdRule::Mac),
            (Kind::Auto, Some(machine)) if self.name.is_some() || !self.own_mac => of_host(machine),
            (Kind::Auto, _) if self.own_mac => return Ok(ClientIdRule::Mac),
            (Kind::Duid, Some(machine)) => of_host(machine),
            (kind @ (Kind::Auto | Kind::Duid), _) => {
                return Err(refused(format!(
                    "{flag} client-id={kind} needs the host's /etc/machine-id"
                )));
            }
            (Kind::Hex(bytes), _) => bytes.clone(),
            (Kind::Text(text), _) => untyped(text),
        };
        let id = ClientId::new(bytes).map_err(|bad| refused(format!("{flag} client-id: {bad}")))?;
        Ok(ClientIdRule::Bytes(id))
    }

    /// Returns how long the lease is kept after the endpoint has gone, if its identity can return.
    fn grace(&self, options: &LeaseOptions, site: &Site) -> Option<u32> {
        let chosen = self.chosen_mac;
        let returns = match options.client_id {
            Kind::Auto => {
                (self.name.is_some() && site.machine_id.is_some()) || chosen == Some(true)
            }
            Kind::Mac | Kind::None | Kind::Duid => chosen != Some(false),
            Kind::Hex(_) | Kind::Text(_) => true,
        };
        match options.grace {
            None => returns.then_some(GRACE),
            Some(said) => (returns || said > 0).then_some(said),
        }
    }
}
