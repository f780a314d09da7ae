//! The choices of one attachment's network configuration: what its client says, what its interface should carry, and what
//! happens to its lease; and what its front door requires of the lease.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::grant::policy::Policy;
use crate::source::ClientProfile;

/// How many seconds the lease of an identity that can return is kept, if its network does not say.
pub const GRACE: u32 = 60;

/// The choices of one attachment's network configuration. They outlive a restart in the attachment's record, which does not
/// separate the parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Profile {
    /// What its client says, and whom it believes.
    #[serde(flatten)]
    pub client: Arc<ClientProfile>,
    /// Whether broadcasts leave and arrive over the LAN's parent link: ipvlan interfaces have its hardware address, and a frame to
    /// that address is the parent's.
    pub on_parent: bool,
    /// Whether the main plugin gives the router's address to the host's own bridge.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_router_on_host: bool,
    /// Whether the lease is given back when its attachment goes. If not, it is left to expire.
    pub release: bool,
    /// How many seconds the lease is kept when its attachment goes, because its identity may return with another
    /// container. `None`: the identity is its container's, and ends with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace: Option<u32>,
    /// What its interface should carry.
    #[serde(flatten)]
    pub policy: Policy,
    /// What its front door requires, whatever the network's configuration says.
    #[serde(skip_serializing_if = "Wants::is_default")]
    pub wants: Wants,
}

/// What a front door requires of a lease. The default is a door that names the interface, and whose caller puts the lease on
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Wants {
    /// How long its caller waits for a server if there is an acceptable lease, or if servers were silent a moment ago. `None`: as
    /// long as usual.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<Duration>,
    /// How long to look for the interface, by its Ethernet address: the lease comes before it, and the daemon puts the lease on
    /// it. `None`: the door names the interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sought_for: Option<Duration>,
    /// Whether its caller says and hears everything once. It cannot be told about a later address, names the first one when it
    /// gives that back, and nobody but the store remembers what it said.
    pub told_once: bool,
}

impl Wants {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether the door does not say where the interface is, so that the daemon must find it.
    pub fn is_found_later(&self) -> bool {
        self.sought_for.is_some()
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            client: Arc::default(),
            on_parent: false,
            is_router_on_host: false,
            release: true,
            grace: None,
            policy: Policy::default(),
            wants: Wants::default(),
        }
    }
}

impl Profile {
    /// Returns whether the client's identity may return with another container, also on another host.
    pub fn returns(&self) -> bool {
        self.grace.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As written by daemons that did not separate the parts, with every field.
    const WRITTEN: &str = r#"{"hostname":"h","fqdn":"h.example.net","vendor_class":"v","user_class":"u","provide":[[43,[1,2]]],
        "request":[1,3],"broadcast":true,"on_parent":true,"rapid_commit":true,"allow":["192.0.2.1"],"deny":["192.0.2.2"],
        "prefix":25,"release":false,"grace":60,"detection":"strict","on_change":"keep","on_expiry":"keep","metric":7,
        "routes":[{"destination":"10.0.0.0/8","via":"192.0.2.9","metric":3,"mtu":1300,"advmss":1260,"table":9,"scope":253}],
        "suppress_default_route":true,"follow_router":true,"mtu":1400,"late_routes":true,"plain_routes":true,
        "left_out":[["10.1.0.0/16",254]]}"#;

    #[test]
    fn a_profile_is_written_as_one_and_read_in_its_parts() {
        let written: serde_json::Value = serde_json::from_str(WRITTEN).expect("JSON");
        let profile: Profile = serde_json::from_str(WRITTEN).expect("a profile");
        let client = &profile.client;
        let policy = &profile.policy;
        assert_eq!(
            (
                client.hostname.as_deref(),
                client.servers.deny.len(),
                policy.mtu
            ),
            (Some("h"), 1, Some(1400))
        );
        assert_eq!(serde_json::to_value(&profile).expect("JSON"), written);
        assert_eq!(written.as_object().map(serde_json::Map::len), Some(25));
    }

    #[test]
    fn what_a_profile_does_not_say_is_as_ever() {
        assert_eq!(
            serde_json::from_str::<Profile>("{}").expect("a profile"),
            Profile::default()
        );
        let said = serde_json::to_string(&Profile::default()).expect("JSON");
        assert_eq!(
            said,
            r#"{"broadcast":false,"rapid_commit":false,"on_parent":false,"release":true}"#
        );
    }
}
