//! The forms that answers to dockerd take.

use ipnet::{IpNet, Ipv4Net};
use leasehold_api::docker::{self as wire, Released};
use leasehold_api::to_json;
use leasehold_core::effect::{Answer, NetworkAnswer};
use leasehold_core::pool::PoolId;

use super::super::refusal::OTHER_ANSWER;
use super::lease::Flag;
use super::{Refused, answer, manifest, refused, words};

/// The form that an answer takes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Form {
    /// What was asked for, for errors: `an address of 192.168.1.0/24`.
    pub(super) about: String,
    pub(super) shape: Shape,
    /// What somebody should know although the call succeeded.
    pub(crate) warning: Option<String>,
    /// The container's name, if Docker passes it, and the network that it is being connected to.
    pub(super) container: Option<Box<(String, PoolId)>>,
    /// What to ask once the network is known.
    pub(crate) then: Option<Box<wire::network::CreateEndpoint>>,
}

/// What an answer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// The core's answer says everything.
    Plain,
    /// An address with this prefix length; 0: that of its lease.
    Address(u8),
    /// What this plugin is.
    Activated,
    /// Nothing, for a network or for an endpoint that goes.
    Nothing,
    /// An endpoint, with or without its Ethernet address.
    Endpoint {
        /// Whether with its address.
        tells_mac: bool,
    },
    /// A link and its routes.
    Join {
        /// The name of the link in the container, or empty.
        ifname: String,
    },
}

impl Form {
    pub(super) fn new(about: impl Into<String>, shape: Shape) -> Self {
        Self {
            about: about.into(),
            shape,
            warning: None,
            container: None,
            then: None,
        }
    }

    /// Returns the answer to dockerd.
    pub(crate) fn answer(&self, answer: &Answer) -> Result<String, Refused> {
        match answer {
            Answer::Pool { id, gateway } => Ok(to_json(&wire::Pool::new(
                id.to_string(),
                id.subnet,
                *gateway,
            ))),
            Answer::Leased { tenures } => self.address(
                tenures
                    .iter()
                    .flat_map(|tenure| &tenure.grant.addresses)
                    .next()
                    .copied(),
            ),
            Answer::Reserved(address) => self.address(Some(Ipv4Net::from(*address).into())),
            Answer::PoolReleased | Answer::Released => Ok(to_json(&Released {})),
            Answer::Network(answer) => self.network(answer),
            Answer::Failed(failure) => Err(refused(
                self.container
                    .as_ref()
                    .and_then(|of| words::of_container(failure, &of.0, &of.1))
                    .unwrap_or_else(|| words::of(failure, self.flag())),
            )),
            _ => Err(another()),
        }
    }

    /// Returns the answer with an address of the pool.
    fn address(&self, address: Option<IpNet>) -> Result<String, Refused> {
        let Some(IpNet::V4(own)) = address else {
            return Err(refused(
                "the daemon answered without an IPv4 address: this is a bug",
            ));
        };
        let address = match self.shape {
            Shape::Address(prefix) if prefix > 0 => Ipv4Net::new(own.addr(), prefix).unwrap_or(own),
            _ => own,
        };
        Ok(to_json(&wire::Address { address }))
    }

    fn network(&self, answer: &NetworkAnswer) -> Result<String, Refused> {
        match (answer, &self.shape) {
            (NetworkAnswer::Done, Shape::Activated) => Ok(manifest()),
            (NetworkAnswer::Done, Shape::Nothing) => Ok(to_json(&Released {})),
            (NetworkAnswer::Endpoint(record), Shape::Endpoint { tells_mac }) => {
                Ok(to_json(&answer::created(record, *tells_mac)))
            }
            (
                NetworkAnswer::Joined {
                    ifname,
                    grant,
                    gateway,
                },
                Shape::Join { ifname: inside },
            ) => Ok(to_json(&answer::joined(
                ifname,
                inside,
                grant.as_deref(),
                *gateway,
            ))),
            (
                NetworkAnswer::Done
                | NetworkAnswer::Found(_)
                | NetworkAnswer::Endpoint(_)
                | NetworkAnswer::Joined { .. },
                _,
            ) => Err(another()),
        }
    }

    /// Returns the flag with which the network's options are given.
    fn flag(&self) -> Flag {
        match self.shape {
            Shape::Plain | Shape::Address(_) | Shape::Activated => Flag::Ipam,
            Shape::Nothing | Shape::Endpoint { .. } | Shape::Join { .. } => Flag::Driver,
        }
    }

    /// Returns the answer of a daemon that stops before it has one.
    pub(crate) fn unanswered(&self) -> Refused {
        refused(format!(
            "the leasehold daemon stopped before it had {}: try again",
            self.about
        ))
    }
}

fn another() -> Refused {
    refused(OTHER_ANSWER)
}
