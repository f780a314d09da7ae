//! What a server gives out, and how it behaves.

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;

use super::message::{ClientKey, Message, code};

/// How a server knows its clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Knows {
    /// Their client identifiers, else their hardware addresses (RFC 2131 §4.2).
    #[default]
    ClientId,
    /// Their hardware addresses, whatever option 61 says, as BusyBox's udhcpd and odhcpd do.
    Chaddr,
    /// By nothing: all are one client to it, and get one address.
    Nothing,
}

impl Knows {
    /// Returns the key under which it keeps the lease of a client that uses this name.
    pub fn key(self, name: ClientKey, hardware: [u8; 6]) -> ClientKey {
        match self {
            Self::ClientId => name,
            Self::Chaddr => ClientKey::Hardware(hardware),
            Self::Nothing => ClientKey::Hardware([0; 6]),
        }
    }
}

/// What a server gives out, and how it behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The server identifier (54), which is its address too.
    pub id: Ipv4Addr,
    /// The subnet: its mask goes out as option 1.
    pub subnet: Ipv4Net,
    /// The first and the last address of the pool.
    pub pool: (Ipv4Addr, Ipv4Addr),
    /// The lease time in seconds; `u32::MAX` for ever.
    pub lease: u32,
    /// T1 in seconds, sent if given.
    pub t1: Option<u32>,
    /// T2 in seconds, sent if given.
    pub t2: Option<u32>,
    /// Routers (3).
    pub routers: Vec<Ipv4Addr>,
    /// Domain name servers (6).
    pub dns: Vec<Ipv4Addr>,
    /// Domain name (15).
    pub domain: Option<String>,
    /// Interface MTU (26).
    pub mtu: Option<u16>,
    /// Classless static routes (121), each with its next hop.
    pub routes: Vec<(Ipv4Net, Ipv4Addr)>,
    /// Further options, as they are.
    pub extra: Vec<(u8, Vec<u8>)>,
    /// How it knows its clients.
    pub knows: Knows,
    /// Whether it is authoritative for the wire: it refuses whatever it does not know to be right.
    pub authoritative: bool,
    /// How long it waits before an OFFER (dnsmasq pings the address for 3 s).
    pub offer_delay: Duration,
    /// How long a REQUEST that extends a lease waits for its answer (dnsmasq answers nobody while it pings).
    pub extend_delay: Duration,
    /// How long it works on an answer. It makes answers one after the other.
    pub answer_time: Duration,
    /// Whether it answers an extension with only the lease's times, as MikroTik's does.
    pub terse: bool,
    /// The option whose value lacks its last byte in answers to an extension.
    pub cut: Option<u8>,
    /// Whether it refuses every REQUEST, as after a change of configuration. It drops the leases that it refuses.
    pub refuses: bool,
    /// Whether it ignores clients without an address that do not ask for answers by broadcast.
    pub flag_only: bool,
    /// Whether it offers addresses and never acknowledges one.
    pub deaf: bool,
    /// The relay of another subnet through which it also hears all broadcasts. It refuses what it hears that way, in addition to
    /// its own answer.
    pub relay: Option<Ipv4Addr>,
    /// How long an offered address is kept for its client.
    pub offer_hold: Duration,
    /// How long a declined address is not offered.
    pub decline_hold: Duration,
    /// Whether it offers a client an address again that the client has declined, as ISC dhcpd does with a `fixed-address`.
    pub stubborn: bool,
}

impl Config {
    /// Returns a plain authoritative server at the subnet's first address, which is also the router, with a pool of all
    /// addresses from the tenth on and leases of an hour.
    pub fn new(subnet: Ipv4Net) -> Self {
        let at = |offset: u32| Ipv4Addr::from_bits(subnet.network().to_bits() + offset);
        Self {
            id: at(1),
            subnet,
            pool: (
                at(10),
                Ipv4Addr::from_bits(subnet.broadcast().to_bits() - 1),
            ),
            lease: 3600,
            t1: None,
            t2: None,
            routers: vec![at(1)],
            dns: vec![at(1)],
            domain: None,
            mtu: None,
            routes: Vec::new(),
            extra: Vec::new(),
            knows: Knows::ClientId,
            authoritative: true,
            offer_delay: Duration::ZERO,
            extend_delay: Duration::ZERO,
            answer_time: Duration::ZERO,
            terse: false,
            cut: None,
            refuses: false,
            flag_only: false,
            deaf: false,
            relay: None,
            offer_hold: Duration::from_secs(60),
            decline_hold: Duration::from_secs(600),
            stubborn: false,
        }
    }

    /// Adds the lease's times, and whatever else the client asks for, or everything if the client does not say.
    pub(super) fn parameters(&self, request: &Message, answer: &mut Message) {
        let list = |addresses: &[Ipv4Addr]| {
            addresses
                .iter()
                .flat_map(|a| a.octets())
                .collect::<Vec<u8>>()
        };
        let number = |n: u32| n.to_be_bytes().to_vec();
        answer.options.push((code::LEASE_TIME, number(self.lease)));
        answer
            .options
            .extend(self.t1.map(|t1| (code::T1, number(t1))));
        answer
            .options
            .extend(self.t2.map(|t2| (code::T2, number(t2))));
        if self.terse && !request.ciaddr.is_unspecified() {
            return;
        }
        answer
            .options
            .push((code::SUBNET_MASK, self.subnet.netmask().octets().to_vec()));
        let mut more = vec![
            (code::ROUTERS, list(&self.routers)),
            (code::DNS, list(&self.dns)),
            (
                code::DOMAIN,
                self.domain.clone().unwrap_or_default().into_bytes(),
            ),
            (
                code::MTU,
                self.mtu
                    .map(|mtu| mtu.to_be_bytes().to_vec())
                    .unwrap_or_default(),
            ),
            (code::CLASSLESS_ROUTES, classless(&self.routes)),
        ];
        more.extend(self.extra.iter().cloned());
        let wanted = request.option(code::PARAMETERS);
        more.retain(|(code, value)| {
            !value.is_empty() && wanted.is_none_or(|list| list.contains(code))
        });
        let cut = self.cut.filter(|_| !request.ciaddr.is_unspecified());
        for (_, value) in more.iter_mut().filter(|(code, _)| Some(*code) == cut) {
            value.pop();
        }
        answer.options.append(&mut more);
    }

    /// Leases of so many seconds.
    pub fn lasting(self, lease: u32) -> Self {
        Self { lease, ..self }
    }

    /// With T1, and perhaps T2, after so many seconds.
    pub fn renewed(self, t1: u32, t2: Option<u32>) -> Self {
        let t1 = Some(t1);
        Self { t1, t2, ..self }
    }
}

/// Writes routes as option 121 does (RFC 3442).
fn classless(routes: &[(Ipv4Net, Ipv4Addr)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (destination, via) in routes {
        out.push(destination.prefix_len());
        out.extend(
            &destination.network().octets()[..usize::from(destination.prefix_len()).div_ceil(8)],
        );
        out.extend(via.octets());
    }
    out
}
