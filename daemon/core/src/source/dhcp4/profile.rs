//! What a client says about itself and wants, beyond what RFC 2131 requires, and whom it believes.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// What all messages of a client have in common by choice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientProfile {
    /// Host name (12), sent as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Fully qualified domain name (81), sent in the wire form of RFC 4702 with the flags E and S.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fqdn: Option<String>,
    /// Vendor class identifier (60).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor_class: Option<String>,
    /// User class (77), one instance, as RFC 3004 has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_class: Option<String>,
    /// Further options, as code and bytes; none that the protocol itself sets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub provide: Vec<(u8, Vec<u8>)>,
    /// The parameter request list (55), in place of the default one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Vec<u8>>,
    /// Whether servers are asked to answer by broadcast.
    pub broadcast: bool,
    /// Whether it offers to take a lease in two messages (80, RFC 4039).
    pub rapid_commit: bool,
    /// Whether it sends no client identifier (61): servers know it by its hardware address.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub without_client_id: bool,
    /// Whose answers it believes.
    #[serde(flatten)]
    pub servers: Servers,
}

/// The servers that a client believes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Servers {
    /// Only these servers' answers are believed; empty: all but `deny`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<Ipv4Addr>,
    /// These servers' answers are not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<Ipv4Addr>,
}

impl Servers {
    /// Returns whether a server's answers are believed.
    pub fn trusts(&self, server: Ipv4Addr) -> bool {
        (self.allow.is_empty() || self.allow.contains(&server)) && !self.deny.contains(&server)
    }
}

/// An address that is asked for (50).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The address.
    pub address: Ipv4Addr,
    /// Whether another one is acceptable.
    pub preferred: bool,
}

impl Wanted {
    /// Returns whether a caller that wants an address, or none in particular, takes this one.
    pub(crate) fn takes(wanted: Option<Self>, address: Ipv4Addr) -> bool {
        wanted.is_none_or(|wanted| wanted.preferred || wanted.address == address)
    }
}
