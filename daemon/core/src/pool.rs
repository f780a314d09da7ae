//! Docker's pools: what a PoolID spells, and what else is kept about a pool.
//!
//! Values, without DHCP. A PoolID spells the pool's definition, so that the pool is still served if the store
//! that knew it is lost.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::time::Duration;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::identity::{Attachment, Lan};
use crate::limits::Limits;
use crate::patience::{NEXT_STEP, OFFER, SLOW_START};
use crate::profile::Wants;
use crate::time::WallTime;

/// How many pools are kept. Beyond that one is forgotten, the oldest without reserved addresses if there is one: it is added
/// again when it is requested.
pub const MOST_POOLS: usize = 256;

/// How many addresses of a pool may be reserved.
pub const MOST_RESERVED: usize = 1024;

/// Returns what Docker requires of a lease in this pool, or in none.
pub fn wants(pool: Option<&PoolId>) -> Wants {
    // None of Docker's own drivers takes an address of the pool 0.0.0.0/0.
    let is_for_ours = pool.is_some_and(|pool| pool.subnet.prefix_len() == 0);
    let sought_for = Some(if is_for_ours { NEXT_STEP } else { SLOW_START });
    Wants {
        // At boot dockerd starts one container after the other, waits for each, and retries none.
        patience: Some(OFFER),
        sought_for,
        told_once: true,
    }
}

/// A pool, by everything that defines it. As text it is the PoolID, `192.168.1.0/24;192.168.1.128/25;parent=eth0`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PoolId {
    /// The door's spelling of all options.
    pub definition: String,
    /// The subnet.
    pub subnet: Ipv4Net,
    /// The part of it that endpoints get their addresses from, if not all of it.
    pub range: Option<Ipv4Net>,
}

/// The key that a definition begins with if it does not name the LAN's link: that was found by the subnet.
pub const FOUND: &str = "found";

/// Returns the link of such a definition, and the other options.
pub(crate) fn found(definition: &str) -> Option<(&str, &str)> {
    let rest = definition.strip_prefix(FOUND)?.strip_prefix('=')?;
    Some(rest.split_once(',').unwrap_or((rest, "")))
}

/// A text that is not a PoolID of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a PoolID of this driver")]
pub struct BadPoolId;

impl PoolId {
    /// Returns the pool with this subnet and range; host bits in them are ignored.
    pub fn new(definition: impl Into<String>, subnet: Ipv4Net, range: Option<Ipv4Net>) -> Self {
        Self {
            definition: definition.into(),
            subnet: subnet.trunc(),
            range: range.map(|range| range.trunc()),
        }
    }

    /// Returns the LAN's link if it was found by the subnet, and not named.
    pub fn found(&self) -> Option<&str> {
        found(&self.definition).map(|(link, _)| link)
    }

    /// Returns the addresses that an endpoint may have, if none is reserved.
    pub fn limits(&self) -> Limits {
        Limits {
            subnet: self.subnet,
            range: self.range,
            reserved: BTreeSet::new(),
        }
    }
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{};", self.subnet)?;
        self.range.map_or(Ok(()), |range| write!(f, "{range}"))?;
        write!(f, ";{}", self.definition)
    }
}

impl FromStr for PoolId {
    type Err = BadPoolId;

    fn from_str(text: &str) -> Result<Self, BadPoolId> {
        let mut parts = text.splitn(3, ';');
        let (Some(subnet), Some(range), Some(definition)) =
            (parts.next(), parts.next(), parts.next())
        else {
            return Err(BadPoolId);
        };
        let net = |text: &str| text.parse::<Ipv4Net>().map_err(|_| BadPoolId);
        let range = if range.is_empty() {
            None
        } else {
            Some(net(range)?)
        };
        let id = Self::new(definition, net(subnet)?, range);
        // One pool has one text.
        if id.to_string() == text {
            Ok(id)
        } else {
            Err(BadPoolId)
        }
    }
}

impl From<PoolId> for String {
    fn from(id: PoolId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for PoolId {
    type Error = BadPoolId;

    fn try_from(text: String) -> Result<Self, BadPoolId> {
        text.parse()
    }
}

/// A pool as the store holds it. JSON there, so that an operator can read a dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRecord {
    /// The pool.
    pub id: PoolId,
    /// The wire; `None`: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lan: Option<Lan>,
    /// The router, if a server named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Ipv4Addr>,
    /// Addresses that no endpoint may have.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub reserved: BTreeSet<Ipv4Addr>,
    /// Whether the subnet is what a server offered: none was requested.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub automatic: bool,
    /// When it was first requested.
    pub since: WallTime,
}

impl PoolRecord {
    /// Returns a pool of which nothing else is known.
    pub fn new(id: PoolId, since: WallTime) -> Self {
        Self {
            id,
            lan: None,
            gateway: None,
            reserved: BTreeSet::new(),
            automatic: false,
            since,
        }
    }
}

/// Why a pool could not be made, or an address could not be reserved in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolFault {
    /// The range is not in the subnet.
    #[error("--ip-range {range} is not in --subnet {subnet}")]
    RangeBeyond {
        /// The range.
        range: Ipv4Net,
        /// The subnet.
        subnet: Ipv4Net,
    },
    /// The LAN's subnet was needed, and no server named one.
    #[error("{because}; pass --subnet")]
    NoSubnet {
        /// Why not.
        because: String,
    },
    /// Not exactly one link of the host has an address with the subnet's prefix.
    #[error(
        "--ipam-opt parent=LINK is missing, and {} an address with the prefix of --subnet {subnet}: name the host's link on \
         the DHCP server's LAN",
        having(.links)
    )]
    NoParent {
        /// The subnet.
        subnet: Ipv4Net,
        /// The links that have one.
        links: Vec<String>,
    },
    /// The subnet that a server offers was answered, and requested again at once, over and over.
    #[error(
        "a network without --subnet was requested {times} times within {within:?}, which dockerd does if {subnet}, \
         which the DHCP server offers, overlaps a route of this host: pass --subnet {subnet}"
    )]
    Overlaps {
        /// The subnet.
        subnet: Ipv4Net,
        /// How often it was answered.
        times: u32,
        /// Within what time.
        within: Duration,
    },
    /// The gateway was needed, and no server named one.
    #[error("no router is known for {subnet}: pass --gateway")]
    NoGateway {
        /// The pool's subnet.
        subnet: Ipv4Net,
    },
    /// An endpoint has the address that should be reserved.
    #[error("{address} is leased by {holder}")]
    Leased {
        /// The address.
        address: Ipv4Addr,
        /// Who has it.
        holder: Attachment,
    },
    /// No more addresses can be reserved.
    #[error("{} addresses are reserved in {subnet} already", MOST_RESERVED)]
    Full {
        /// The pool's subnet.
        subnet: Ipv4Net,
    },
}

fn having(links: &[String]) -> String {
    match links {
        [] => "no link of this host has".to_owned(),
        several => format!("{} all have", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Ipv4Net {
        text.parse().unwrap()
    }

    #[test]
    fn a_pool_id_spells_its_definition() {
        let range = Some(net("192.168.1.128/25"));
        let table = [
            (
                "parent=eth0",
                net("192.168.1.7/24"),
                None,
                "192.168.1.0/24;;parent=eth0",
            ),
            (
                "a;b=;",
                net("10.0.0.0/8"),
                range,
                "10.0.0.0/8;192.168.1.128/25;a;b=;",
            ),
        ];
        for (definition, subnet, range, text) in table {
            let id = PoolId::new(definition, subnet, range);
            assert_eq!((id.to_string().as_str(), text.parse()), (text, Ok(id)));
        }
    }

    #[test]
    fn what_is_spelled_otherwise_is_no_pool_id() {
        for bad in [
            "",
            "10.0.0.0/8",
            "10.0.0.0/8;",
            "10.0.0.1/8;;a",
            ";;a",
            "10.0.0.0/8;x;a",
            "10.0.0.0;;a",
        ] {
            assert_eq!(bad.parse::<PoolId>(), Err(BadPoolId), "{bad}");
        }
    }

    #[test]
    fn a_pool_is_json_that_an_operator_can_read() {
        let id = PoolId::new("parent=eth0", net("10.0.0.0/24"), None);
        let since = WallTime::from_epoch(Duration::from_secs(5));
        let mut record = PoolRecord::new(id, since);
        let short = serde_json::to_string(&record).unwrap();
        assert!(
            short.starts_with(r#"{"id":"10.0.0.0/24;;parent=eth0","since":"#),
            "{short}"
        );
        assert_eq!(serde_json::from_str::<PoolRecord>(&short).unwrap(), record);
        let gateway = Ipv4Addr::new(10, 0, 0, 1);
        (record.gateway, record.automatic) = (Some(gateway), true);
        record.lan = Some(Lan::Link {
            parent: "eth0".into(),
            vlan: 0,
        });
        record.reserved.insert(gateway);
        let json = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<PoolRecord>(&json).unwrap(), record);
    }
}
