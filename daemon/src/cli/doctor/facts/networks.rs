//! CNI's networks, and the links that they name.

use std::path::Path;

use super::{LinkFacts, NetworkFacts, NetworksFacts, ParentFacts};
use crate::cli::networks::{Network, networks as read, site};
use crate::net::{self, LinkState};

pub(super) fn networks(directory: &Path) -> NetworksFacts {
    let none = NetworksFacts {
        directory: directory.to_owned(),
        ..NetworksFacts::default()
    };
    let found = match read(directory, &site()) {
        Ok(found) => found,
        Err(error) => {
            return NetworksFacts {
                unread_directory: Some(error.to_string()),
                ..none
            };
        }
    };
    let refused_host_local = found.refused_host_local;
    let ours: Vec<_> = found.ours.into_iter().map(network).collect();
    let is_bridged = ours.iter().any(|network| network.plugin == "bridge");
    NetworksFacts {
        unread: found.unread,
        ours,
        refused_host_local,
        firewall: is_bridged
            .then(net::survey::bridge_firewall)
            .unwrap_or_default(),
        ..none
    }
}

fn network(network: Network) -> NetworkFacts {
    let parent = network.parent.map(|ifname| {
        let found = link(&ifname);
        ParentFacts {
            ifname,
            found,
            is_standing: network.is_standing,
        }
    });
    let refused = network.add.err().map(|error| error.msg);
    NetworkFacts {
        name: network.name,
        file: network.file,
        plugin: network.plugin,
        refused,
        warnings: network.warnings,
        parent,
    }
}

fn link(ifname: &str) -> LinkFacts {
    LinkFacts {
        // What cannot be looked at is not claimed to be down.
        state: net::link_state(ifname).unwrap_or(LinkState::Up),
        wireless: Path::new("/sys/class/net")
            .join(ifname)
            .join("phy80211")
            .exists(),
    }
}
