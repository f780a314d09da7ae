//! libnetwork's words to the core's and back: Docker's IPAM driver.
//!
//! Pure: no socket, no file, no state. A call that comes to nothing is a success to HTTP (200), because whatever else a
//! driver answers is final to dockerd, which then shows the answer's bare text. [`options`] is what a network says of itself,
//! [`pool`] and [`address`] are the calls, [`words`] names failures as Docker does.

mod address;
mod options;
mod pool;
mod words;

use std::net::IpAddr;

use ipnet::Ipv4Net;
use leasehold_api::docker::{self as wire, Activated, AddressSpaces, Capabilities, Released};
use leasehold_api::to_json;
use leasehold_core::effect::{Answer, Call};
use leasehold_core::identity::Lan;
use leasehold_core::wire::Mac;
use serde::de::DeserializeOwned;

use super::add::Site;
use super::refusal::cut;

/// The name of both address spaces. Where they have one, dockerd (27 and later) does not ask again for a pool whose subnet
/// overlaps a route of the host, as a LAN's always does.
const ADDRESS_SPACE: &str = "leasehold";

/// What dockerd may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Activate,
    Capabilities,
    AddressSpaces,
    RequestPool,
    ReleasePool,
    RequestAddress,
    ReleaseAddress,
}

impl Method {
    /// Returns the method with this URL.
    pub(crate) fn at(path: &str) -> Option<Self> {
        Some(match path {
            wire::ACTIVATE => Self::Activate,
            wire::CAPABILITIES => Self::Capabilities,
            wire::ADDRESS_SPACES => Self::AddressSpaces,
            wire::REQUEST_POOL => Self::RequestPool,
            wire::RELEASE_POOL => Self::ReleasePool,
            wire::REQUEST_ADDRESS => Self::RequestAddress,
            wire::RELEASE_ADDRESS => Self::ReleaseAddress,
            _ => return None,
        })
    }
}

/// What is known besides a call's own words.
pub(crate) struct Host<'a> {
    pub(crate) site: Site,
    /// Whether the call came by the socket for networks whose endpoints have no Ethernet address of their own.
    pub(crate) ipvlan: bool,
    /// Returns the Ethernet address of the host's link with a name, if there is that link.
    pub(crate) link: &'a dyn Fn(&str) -> Option<Mac>,
    /// A number that nobody can guess and that does not come again.
    pub(crate) number: u64,
}

impl Host<'_> {
    /// Returns the name of a LAN's link, and the LAN. `eth0.10`, which Docker's own drivers make later, is VLAN 10 of `eth0` as
    /// long as there is no link of that name.
    fn lan(&self, parent: &str) -> (String, Lan) {
        let of = |link: &str, vlan| (link.to_owned(), Lan::Link { parent: link.to_owned(), vlan });
        let vlan = parent.rsplit_once('.').and_then(|(link, vlan)| Some((link, vlan.parse::<u16>().ok()?)));
        match vlan.filter(|(link, vlan)| !link.is_empty() && (1..=4094).contains(vlan)) {
            Some((link, vlan)) if (self.link)(parent).is_none() => of(link, vlan),
            _ => of(parent, 0),
        }
    }

    /// Returns the Ethernet address of a LAN's link, by its name; zero where there is no such link.
    fn ethernet(&self, ifname: &str) -> Mac {
        (self.link)(ifname).unwrap_or_default()
    }
}

/// Why a call is refused before the core hears of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The request cannot be read. It may be one that broke: dockerd repeats those without a body.
    Undecodable(String),
    /// It asks for what cannot be had, with the reason for whoever typed the command.
    Said(String),
}

/// Refuses a call with a reason.
fn refused(why: impl Into<String>) -> Refused {
    Refused::Said(why.into())
}

/// A call of dockerd's, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It has this answer, whatever the core holds.
    Told(String),
    /// The core is asked.
    Core {
        /// What.
        call: Call,
        /// How to answer.
        form: Form,
    },
}

/// The form that an answer takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// What was asked for, for errors: `an address of 192.168.1.0/24`.
    about: String,
    /// The prefix length of the pool's addresses.
    prefix: u8,
    /// What someone should know of a success.
    pub(crate) warning: Option<String>,
}

impl Asked {
    /// Reads a call.
    pub(crate) fn parse(method: Method, body: &[u8], host: &Host<'_>) -> Result<Self, Refused> {
        Ok(match method {
            Method::Activate => Self::Told(to_json(&Activated { implements: vec!["IpamDriver".to_owned()] })),
            // Replay would ask for live addresses without their Ethernet addresses: the store knows better.
            Method::Capabilities => Self::Told(to_json(&Capabilities {
                requires_mac_address: !host.ipvlan,
                requires_request_replay: false,
            })),
            Method::AddressSpaces => Self::Told(to_json(&AddressSpaces {
                local_default_address_space: ADDRESS_SPACE.to_owned(),
                global_default_address_space: ADDRESS_SPACE.to_owned(),
            })),
            Method::RequestPool => {
                let call = Call::RequestPool(Box::new(pool::request(&read(body)?, host)?));
                Self::core(call, "a pool of addresses")
            }
            Method::ReleasePool => {
                let wire::ReleasePool { pool_id } = read(body)?;
                Self::core(Call::ReleasePool { id: pool::id(&pool_id)? }, "the end of a pool")
            }
            Method::RequestAddress => address::request(&read(body)?, host)?,
            Method::ReleaseAddress => {
                let wire::ReleaseAddress { pool_id, address } = read(body)?;
                let call = Call::ReleaseAddress { pool: pool::id(&pool_id)?, address: address::parse(&address)? };
                Self::core(call, "the end of an address")
            }
        })
    }

    fn core(call: Call, about: impl Into<String>) -> Self {
        Self::Core { call, form: Form { about: about.into(), prefix: 0, warning: None } }
    }
}

impl Form {
    /// Returns the answer to dockerd.
    pub(crate) fn answer(&self, answer: &Answer) -> Result<String, Refused> {
        match answer {
            Answer::Pool { id, gateway } => Ok(to_json(&wire::Pool::new(id.to_string(), id.subnet, *gateway))),
            Answer::Leased { grant, .. } => self.address(grant.addresses.first().map(|address| address.addr())),
            Answer::Reserved(address) => self.address(Some((*address).into())),
            Answer::PoolReleased | Answer::Released => Ok(to_json(&Released {})),
            Answer::Failed(failure) => Err(refused(words::of(failure))),
            Answer::Deleted
            | Answer::Checked
            | Answer::Collected
            | Answer::Ready
            | Answer::Bindings { .. }
            | Answer::Network(_) => Err(refused("the daemon answered another question: this is a bug")),
        }
    }

    /// Returns the answer that is an address of the pool.
    fn address(&self, address: Option<IpAddr>) -> Result<String, Refused> {
        let address = match address {
            Some(IpAddr::V4(address)) => Ipv4Net::new(address, self.prefix).ok(),
            Some(IpAddr::V6(_)) | None => None,
        };
        let address = address.ok_or_else(|| refused("the daemon answered without an IPv4 address: this is a bug"))?;
        Ok(to_json(&wire::Address { address }))
    }

    /// Returns the answer for a daemon that stops before it has one.
    pub(crate) fn unanswered(&self) -> Refused {
        refused(format!("the leasehold daemon is stopping, and {} was not to be had before: try again", self.about))
    }
}

/// Reads the body of a call.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refused> {
    let unreadable = |error: serde_json::Error| match body {
        [] => Refused::Undecodable(
            "the call has no body: its first try broke off, such as by the daemon's end".to_owned(),
        ),
        _ => Refused::Undecodable(format!("the call cannot be read: {}", cut(&error.to_string()))),
    };
    serde_json::from_slice(body).map_err(unreadable)
}
