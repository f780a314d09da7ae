//! Converts between libnetwork's terms and the core's: Docker's IPAM driver, and its network driver.
//!
//! Pure: no socket, no file, no state. A failed call is a success to HTTP (200), because dockerd takes any other status from a
//! driver as final and shows the bare text of the answer. [`options`] and [`wiring`] are what a network says about itself to the
//! IPAM driver and to the network driver, [`lease`] is what it may say to both; [`pool`] and [`address`] are the calls of the
//! IPAM driver, [`network`] those of the network driver. [`endpoint`] is who a lease is for. A [`form`] is how to answer,
//! [`words`] names failures in Docker's terms, and [`parse`] reads addresses.

mod address;
mod endpoint;
mod form;
mod lease;
mod network;
mod options;
mod parse;
mod pool;
mod wiring;
mod words;

use ipnet::Ipv4Net;
use leasehold_api::docker as wire;
use leasehold_core::effect::{Call, NetworkCall, PoolCall};
use leasehold_core::identity::Lan;
use leasehold_core::network::NetworkRecord;
use leasehold_core::wire::Mac;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(crate) use self::form::Form;
use self::form::Shape;
use super::add::Site;
use super::refusal::cut;

/// The name of both address spaces. If they have a name, dockerd (27 and later) does not ask again for a pool whose subnet
/// overlaps a route of the host, as a LAN's always does.
const ADDRESS_SPACE: &str = "leasehold";

/// What dockerd accepts as the gateway of a network that does not have one yet.
const NO_ADDRESS: &str = "0.0.0.0";

/// The answer to a call that is carried out and has no result.
const DONE: &str = "{}";

/// The kinds of driver that this plugin is.
const DRIVERS: [&str; 2] = ["IpamDriver", "NetworkDriver"];

/// What is known besides the call itself.
pub(crate) struct Host<'a> {
    pub(crate) site: Site,
    /// Whether the call came through the socket for networks whose endpoints have no Ethernet address of their own.
    pub(crate) ipvlan: bool,
    /// Returns the Ethernet address of the host's link with a name, if that link exists.
    pub(crate) link: &'a dyn Fn(&str) -> Option<Mac>,
    /// Returns the links that may be a LAN's and have an address with this very prefix, by name.
    pub(crate) links_in: &'a dyn Fn(Ipv4Net) -> Vec<String>,
    /// A number that nobody can guess and that is never repeated.
    pub(crate) number: u64,
}

impl Host<'_> {
    /// Returns the name of a LAN's link, and the LAN. `eth0.10` is VLAN 10 of `eth0`, whether a link of that name exists already
    /// or Docker's own drivers make it later: the LAN is the same. It is an ordinary link only if there is no `eth0`.
    fn lan(&self, parent: &str) -> (String, Lan) {
        let of = |link: &str, vlan| {
            (
                link.to_owned(),
                Lan::Link {
                    parent: link.into(),
                    vlan,
                },
            )
        };
        match Self::in_vlan(parent) {
            Some((link, vlan)) if (self.link)(link).is_some() || (self.link)(parent).is_none() => {
                of(link, vlan)
            }
            _ => of(parent, 0),
        }
    }

    /// Returns the link and the VLAN that a name such as `eth0.10` may mean.
    fn in_vlan(name: &str) -> Option<(&str, u16)> {
        let (link, vlan) = name.rsplit_once('.')?;
        let vlan = vlan.parse().ok()?;
        (!link.is_empty() && (1..=4094).contains(&vlan)).then_some((link, vlan))
    }

    /// Returns the Ethernet address of a LAN's link, by its name; zero if there is no such link.
    fn ethernet(&self, ifname: &str) -> Mac {
        (self.link)(ifname).unwrap_or_default()
    }
}

/// Why a call is refused before it reaches the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// There is no such call.
    Unknown,
    /// The request cannot be read. It may repeat a call that broke off: dockerd repeats those without a body.
    Undecodable(String),
    /// The request asks for something impossible; the reason is for whoever typed the command.
    Said(String),
}

fn refused(why: impl Into<String>) -> Refused {
    Refused::Said(why.into())
}

/// A call from dockerd, parsed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Asked {
    /// It has this answer, whatever the core holds.
    Known(String),
    /// The core is asked.
    Core {
        /// What.
        call: Call,
        /// How to answer.
        form: Form,
    },
}

impl Asked {
    /// Reads a call, by the path of its URL.
    pub(crate) fn parse(path: &str, body: &[u8], host: &Host<'_>) -> Result<Self, Refused> {
        Ok(match path {
            wire::ACTIVATE if host.ipvlan => Self::Known(manifest()),
            // The networks of our network driver are made under this name.
            wire::ACTIVATE => {
                let form = Form::new("the drivers that it is", Shape::Activated);
                Self::Core {
                    call: Call::Network(NetworkCall::Started),
                    form,
                }
            }
            // Replay would ask for live addresses without their Ethernet addresses: the store knows better.
            wire::CAPABILITIES => Self::known(
                json!({ "RequiresMACAddress": !host.ipvlan, "RequiresRequestReplay": false }),
            ),
            wire::ADDRESS_SPACES => Self::known(json!({
                "LocalDefaultAddressSpace": ADDRESS_SPACE,
                "GlobalDefaultAddressSpace": ADDRESS_SPACE,
            })),
            wire::REQUEST_POOL => pool::request(&read(body)?, host)?,
            wire::RELEASE_POOL => {
                let wire::ReleasePool { pool_id } = read(body)?;
                Self::core(
                    Call::Pool(PoolCall::Release {
                        id: pool::id(&pool_id)?,
                    }),
                    "the end of a pool",
                )
            }
            wire::REQUEST_ADDRESS => address::request(&read(body)?, host)?,
            wire::RELEASE_ADDRESS => {
                let wire::ReleaseAddress { pool_id, address } = read(body)?;
                if address == NO_ADDRESS {
                    // The gateway of a pool that has none.
                    return Ok(Self::Known(DONE.to_owned()));
                }
                let call = Call::Pool(PoolCall::ReleaseAddress {
                    pool: pool::id(&pool_id)?,
                    address: parse::address(&address)?,
                });
                Self::core(call, "the end of an address")
            }
            _ => network::parse(path, body, host)?,
        })
    }

    fn known(answer: Value) -> Self {
        Self::Known(answer.to_string())
    }

    fn core(call: Call, about: impl Into<String>) -> Self {
        Self::Core {
            call,
            form: Form::new(about, Shape::Plain),
        }
    }

    /// Goes on with a call once its network is known.
    pub(crate) fn about(
        then: &wire::network::CreateEndpoint,
        network: &NetworkRecord,
        host: &Host<'_>,
    ) -> Result<Self, Refused> {
        network::endpoint(then, network, host)
    }
}

/// Returns what this plugin is.
fn manifest() -> String {
    json!({ "Implements": DRIVERS }).to_string()
}

/// Reads the body of a call.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refused> {
    let unreadable = |error: serde_json::Error| match body {
        [] => Refused::Undecodable(
            "the call has no body: dockerd's first try broke off, perhaps because the daemon ended"
                .to_owned(),
        ),
        _ => Refused::Undecodable(format!(
            "the call cannot be read: {}",
            cut(&error.to_string())
        )),
    };
    wire::read(body).map_err(unreadable)
}
