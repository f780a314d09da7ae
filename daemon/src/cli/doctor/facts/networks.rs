//! CNI's networks, and the links that they name.

use std::path::Path;

use nix::unistd::geteuid;

use super::daemon::PATIENCE;
use super::{LocalFacts, NetworkFacts, NetworksFacts, ParentFacts};
use crate::cli::networks::{LocalNetwork, Network, networks as read, site};
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
        local: match geteuid().is_root() {
            true => found.local.into_iter().filter_map(local).collect(),
            false => Vec::new(),
        },
        firewall: is_bridged
            .then(net::survey::bridge_firewall)
            .unwrap_or_default(),
        ..none
    }
}

fn network(network: Network) -> NetworkFacts {
    let parent = network.parent.map(|ifname| ParentFacts {
        // What cannot be looked at is not claimed to be down.
        state: net::link_state(&ifname).unwrap_or(LinkState::Up),
        wireless: net::is_wireless(&ifname),
        is_standing: network.is_standing,
        ifname,
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

/// Returns what the directory of a network holds, if its ranges can be used.
fn local(network: LocalNetwork) -> Option<LocalFacts> {
    let LocalNetwork {
        name,
        directory,
        sets,
        ..
    } = network;
    let found = leasehold_host_local::look(&directory, &sets.ok()?, PATIENCE);
    Some(LocalFacts {
        name,
        directory: directory.path().to_owned(),
        found: found.map_err(|error| error.msg),
    })
}
