//! What a request and its configuration name: the interface, the namespace, the LAN.

use leasehold_api::cni::{Config, Request};
pub(super) use leasehold_api::cni::{Named, is_link_name, is_name};
use leasehold_core::identity::{Attachment, Lan};

/// Returns the core's attachment.
pub(super) fn attachment(named: Named<'_>) -> Attachment {
    Attachment::cni(named.network, named.container, named.ifname)
}

/// Returns whether the namespace may be the host's own, in either spelling that libcni knows.
pub(super) fn host_netns(request: &Request) -> bool {
    request
        .env
        .netns_override
        .as_deref()
        .is_some_and(|said| said == "1" || said.eq_ignore_ascii_case("true"))
}

/// Returns the LAN that the network is on. A name that no link can have is ignored; an alternative name of a link has
/// up to 127 bytes.
pub(super) fn lan(config: &Config, network: &str) -> Lan {
    match config.parent_link().filter(|name| is_link_name(name, 127)) {
        Some(parent) => Lan::Link {
            parent: parent.into(),
            vlan: config.parent_vlan(),
        },
        None => Lan::Network(network.into()),
    }
}

/// Returns the host's link that must exist before an ADD. A bridge may be missing: its main plugin makes it.
pub(super) fn standing_parent(config: &Config) -> Option<String> {
    let made = config.plugin.as_deref() == Some("bridge");
    config
        .parent_link()
        .filter(|name| !made && is_link_name(name, 127))
        .map(str::to_owned)
}
