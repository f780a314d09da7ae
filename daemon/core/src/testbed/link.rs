//! A link as the kernel has it, for IPv4 only, with the rules by which addresses and routes go when others go.
//!
//! An address with the subnet and prefix length of an earlier one on the link is that one's secondary (`__inet_insert_ifa`), and
//! goes with it (`inet_del_ifa`, `promote_secondaries` is 0).
//! * A route needs its next hop on the link: in the subnet of an address, or behind a route without a next hop.
//! * With the last address of a link all its routes go, and also when it is set down (`fib_disable_ip`).

use std::net::{IpAddr, Ipv4Addr};

use crate::link::own::LinkOwner;
use crate::link::{LinkRoute, Step};
use crate::wire::Mac;
use ipnet::{IpNet, Ipv4Net};

/// A link.
#[derive(Clone, Debug)]
pub struct Wire {
    /// Its name.
    pub ifname: String,
    /// Its Ethernet address.
    pub mac: Mac,
    /// Its MTU.
    pub mtu: u32,
    /// Whether it is administratively up.
    pub up: bool,
    /// Whether it has carrier.
    pub carrier: bool,
    /// Until when its port forwards nothing.
    pub blocked: u64,
    /// The addresses on it, in their order; each with whether it is another one's secondary.
    addresses: Vec<(Ipv4Net, bool)>,
    /// The routes over it, except for those that the kernel makes for addresses.
    pub routes: Vec<LinkRoute>,
    /// The LAN that it is on.
    pub lan: usize,
    /// Whether it is a bridge.
    pub bridge: bool,
    /// Its maker, if a daemon made it for Docker.
    pub own: Option<Own>,
}

/// A link that a daemon made for Docker. A bridge's end of a veth comes and goes with the other end, and does not count itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// Whose it is, as its alias says.
    pub owner: LinkOwner,
    /// The store of the daemon that made it, as its alias says.
    pub store: u32,
    /// The name of the host's link that it is made on. If that goes, it goes too.
    pub on: String,
    /// When it came into the namespace that it is in.
    pub came: u64,
    /// Whether it was moved there.
    pub moved: bool,
}

/// What a step did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Did {
    /// Whether the link was down, and is up now.
    pub raised: bool,
    /// The address that came.
    pub came: Option<Ipv4Addr>,
    /// The addresses that went.
    pub went: Vec<Ipv4Addr>,
}

impl Wire {
    /// Returns a link without addresses.
    pub fn new(ifname: &str, mac: Mac, mtu: u32, lan: usize, up: bool) -> Self {
        let (addresses, routes) = (Vec::new(), Vec::new());
        let (bridge, own) = (false, None);
        Self {
            ifname: ifname.to_owned(),
            mac,
            mtu,
            up,
            carrier: up,
            blocked: 0,
            addresses,
            routes,
            lan,
            bridge,
            own,
        }
    }

    /// Returns the addresses on it.
    pub fn addresses(&self) -> Vec<Ipv4Net> {
        self.addresses.iter().map(|(address, _)| *address).collect()
    }

    /// Puts exactly these addresses on it.
    pub fn carry(&mut self, addresses: impl IntoIterator<Item = IpNet>) {
        self.addresses.clear();
        addresses.into_iter().for_each(|address| self.put(address));
        if self.addresses.is_empty() {
            self.routes.clear();
        }
    }

    /// Puts an address on it.
    pub fn put(&mut self, address: IpNet) {
        self.step(&Step::AddAddress(address))
            .expect("it has none of IPv6");
    }

    /// Returns whether an address is on it, with any prefix.
    pub fn has(&self, ip: Ipv4Addr) -> bool {
        self.addresses
            .iter()
            .any(|(address, _)| address.addr() == ip)
    }

    /// Takes a step. Returns the reason if the kernel refuses.
    pub fn step(&mut self, step: &Step) -> Result<Did, &'static str> {
        let mut did = Did::default();
        match step {
            Step::Up => did.raised = !std::mem::replace(&mut self.up, true),
            Step::Mtu(mtu) => self.mtu = *mtu,
            Step::AddAddress(IpNet::V4(address)) => {
                did.came = self.add_address(*address).then_some(address.addr())
            }
            Step::RemoveAddress(IpNet::V4(address)) => did.went = self.remove_address(*address),
            Step::AddAddress(IpNet::V6(_)) | Step::RemoveAddress(IpNet::V6(_)) => {
                return Err("no IPv6 here");
            }
            Step::AddRoute(route) => self.add_route(route)?,
            Step::RemoveRoute(route) => self.routes.retain(|there| !is_route(there, route)),
            Step::ReplaceDefault { from, to } => self.replace_default(*from, *to)?,
            // Nobody looks at it any more.
            Step::Abandon => {}
        }
        Ok(did)
    }

    /// Moves it to another namespace, where it has this name: it arrives there down and bare.
    pub fn moved(self, ifname: &str, now: u64) -> Self {
        let own = self.own.map(|own| Own {
            came: now,
            moved: true,
            ..own
        });
        let (addresses, routes) = (Vec::new(), Vec::new());
        Self {
            ifname: ifname.to_owned(),
            up: false,
            carrier: false,
            addresses,
            routes,
            own,
            ..self
        }
    }

    /// Sets it down.
    pub fn lower(&mut self) {
        (self.up, self.carrier) = (false, false);
        self.routes.clear();
    }

    fn add_address(&mut self, address: Ipv4Net) -> bool {
        if self.addresses.iter().any(|(there, _)| *there == address) {
            return false;
        }
        let secondary = self
            .addresses
            .iter()
            .any(|(there, secondary)| !secondary && of_one_subnet(there, &address));
        self.addresses.push((address, secondary));
        true
    }

    fn remove_address(&mut self, address: Ipv4Net) -> Vec<Ipv4Addr> {
        let Some(at) = self
            .addresses
            .iter()
            .position(|(there, _)| *there == address)
        else {
            return Vec::new();
        };
        let (_, was_secondary) = self.addresses.remove(at);
        let mut went = vec![address.addr()];
        if !was_secondary {
            let with_it = self.addresses.extract_if(.., |(a, secondary)| {
                *secondary && of_one_subnet(a, &address)
            });
            went.extend(with_it.map(|(address, _)| address.addr()));
        }
        if self.addresses.is_empty() {
            self.routes.clear();
        }
        went
    }

    fn add_route(&mut self, route: &LinkRoute) -> Result<(), &'static str> {
        if !self.up {
            return Err("network is down");
        }
        if route.via.is_some_and(|via| !self.reaches(via)) {
            return Err("next hop is not on the link");
        }
        match self.routes.iter_mut().find(|there| is_route(there, route)) {
            Some(there) if route.is(there) => {}
            Some(there) => *there = route.clone(),
            None => self.routes.push(route.clone()),
        }
        Ok(())
    }

    fn replace_default(&mut self, from: IpAddr, to: IpAddr) -> Result<(), &'static str> {
        let reaches = self.reaches(to);
        for route in self
            .routes
            .iter_mut()
            .filter(|r| r.destination.prefix_len() == 0 && r.via == Some(from))
        {
            if !reaches {
                return Err("next hop is not on the link");
            }
            route.via = Some(to);
        }
        Ok(())
    }

    fn reaches(&self, hop: IpAddr) -> bool {
        let has =
            |address: &Ipv4Net| address.prefix_len() < 32 && IpNet::from(*address).contains(&hop);
        let in_subnet = self.addresses.iter().any(|(address, _)| has(address));
        in_subnet
            || self
                .routes
                .iter()
                .any(|route| route.via.is_none() && route.destination.contains(&hop))
    }
}

/// Returns whether two routes are the same to the kernel, which does not compare their MTU.
pub fn is_route(a: &LinkRoute, b: &LinkRoute) -> bool {
    let key = |route: &LinkRoute| {
        (
            route.destination.trunc(),
            route.via,
            route.metric.unwrap_or(0),
            route.table,
        )
    };
    key(a) == key(b)
}

fn of_one_subnet(a: &Ipv4Net, b: &Ipv4Net) -> bool {
    a.prefix_len() == b.prefix_len() && a.network() == b.network()
}

#[test]
fn secondary_addresses_go_with_their_primary() {
    let net = |text: &str| text.parse::<Ipv4Net>().expect("an address");
    let route = |to: &str, via: Option<&str>| LinkRoute {
        destination: net(to).into(),
        via: via.map(|via| via.parse().expect("an address")),
        ..LinkRoute::default()
    };
    let mut wire = Wire::new("eth0", Mac([2; 6]), 1500, 0, true);
    let default = route("0.0.0.0/0", Some("10.0.0.1"));
    // The next hop is nowhere.
    assert!(wire.step(&Step::AddRoute(default.clone())).is_err());
    for address in ["10.0.0.5/24", "10.0.0.6/24", "10.0.0.6/32", "172.16.0.1/16"] {
        wire.step(&Step::AddAddress(net(address).into()))
            .expect("an address is never refused");
    }
    wire.step(&Step::AddRoute(default))
        .expect("the next hop is on the link");
    let did = wire
        .step(&Step::RemoveAddress(net("10.0.0.5/24").into()))
        .expect("nor is its removal");
    assert_eq!(
        did.went,
        ["10.0.0.5", "10.0.0.6"].map(|ip| ip.parse::<Ipv4Addr>().expect("an address"))
    );
    assert_eq!(wire.addresses(), [net("10.0.0.6/32"), net("172.16.0.1/16")]);
    // A route outlives the subnet of its next hop.
    assert_eq!(wire.routes.len(), 1);
    for address in ["10.0.0.6/32", "172.16.0.1/16"] {
        wire.step(&Step::RemoveAddress(net(address).into()))
            .expect("an address can go");
    }
    assert!(wire.routes.is_empty());
}
