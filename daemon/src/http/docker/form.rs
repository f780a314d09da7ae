//! The forms that answers to dockerd take.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};
use leasehold_api::docker as wire;
use leasehold_core::effect::{Answer, NetworkAnswer};
use leasehold_core::grant::Grant;
use leasehold_core::network::{AddressSource, EndpointRecord};
use leasehold_core::pool::PoolId;
use serde_json::{Map, Value, json};

use super::super::refusal::OTHER_ANSWER;
use super::lease::Flag;
use super::{DONE, Refused, manifest, refused, words};

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
            Answer::Pool { id, gateway } => Ok(pool(id, *gateway).to_string()),
            Answer::Leased { tenures } => self.address(
                tenures
                    .iter()
                    .flat_map(|tenure| &tenure.grant.addresses)
                    .next()
                    .copied(),
            ),
            Answer::Reserved(address) => self.address(Some(Ipv4Net::from(*address).into())),
            Answer::PoolReleased | Answer::Released => Ok(DONE.to_owned()),
            Answer::Network(answer) => self.network(answer),
            Answer::Failed(failure) => Err(refused(
                self.container
                    .as_ref()
                    .and_then(|of| words::of_container(failure, &of.0, &of.1))
                    .unwrap_or_else(|| words::of(failure, self.flag())),
            )),
            _ => Err(refused(OTHER_ANSWER)),
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
        Ok(json!({ "Address": address }).to_string())
    }

    fn network(&self, answer: &NetworkAnswer) -> Result<String, Refused> {
        match (answer, &self.shape) {
            (NetworkAnswer::Done, Shape::Activated) => Ok(manifest()),
            (NetworkAnswer::Done, Shape::Nothing) => Ok(DONE.to_owned()),
            (NetworkAnswer::Endpoint(record), Shape::Endpoint { tells_mac }) => {
                Ok(created(record, *tells_mac).to_string())
            }
            (
                NetworkAnswer::Joined {
                    ifname,
                    grant,
                    gateway,
                },
                Shape::Join { ifname: inside },
            ) => Ok(joined(ifname, inside, grant.as_deref(), *gateway).to_string()),
            (
                NetworkAnswer::Done
                | NetworkAnswer::Found(_)
                | NetworkAnswer::Endpoint(_)
                | NetworkAnswer::Joined { .. },
                _,
            ) => Err(refused(OTHER_ANSWER)),
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

/// Names a pool and, if it has one, its gateway.
fn pool(id: &PoolId, gateway: Option<Ipv4Addr>) -> Value {
    let prefix = id.subnet.prefix_len();
    let gateway = gateway.map(|gateway| (wire::GATEWAY, format!("{gateway}/{prefix}")));
    let data = BTreeMap::from_iter(gateway);
    json!({ "PoolID": id.to_string(), "Pool": id.subnet, "Data": data })
}

/// Says what dockerd does not yet know about an endpoint.
fn created(record: &EndpointRecord, tells_mac: bool) -> Value {
    let mut interface = Map::new();
    if let AddressSource::Leased(_) = record.source {
        interface.insert("Address".to_owned(), record.address.to_string().into());
    }
    if tells_mac {
        interface.insert("MacAddress".to_owned(), record.mac.to_string().into());
    }
    json!({ "Interface": interface })
}

/// Says what dockerd should do with an endpoint's link.
fn joined(ifname: &str, inside: &str, grant: Option<&Grant>, gateway: Option<Ipv4Addr>) -> Value {
    /// The type of a route onto the link itself.
    const ON_LINK: u8 = 1;
    let leased = grant.and_then(|grant| grant.gateway);
    let gateway = gateway.map(IpAddr::V4).or(leased);
    let routes: Vec<_> = grant
        .iter()
        .flat_map(|grant| &grant.routes)
        .map(|route| json!({ "Destination": route.destination, "RouteType": ON_LINK }))
        .collect();
    json!({
        "InterfaceName": { "SrcName": ifname, "DstPrefix": "eth", "DstName": inside },
        "Gateway": gateway.map(|gateway| gateway.to_string()).unwrap_or_default(),
        "StaticRoutes": routes,
        // Without a router here, Docker would give the container one of Docker's own.
        "DisableGatewayService": gateway.is_none(),
    })
}
