//! CNI's networks, and the links that they name.

use std::path::Path;

use nix::unistd::geteuid;

use super::daemon::PATIENCE;
use super::{LocalFacts, NetworkFacts, NetworksFacts};
use crate::cli::networks::{LocalNetwork, Network, networks as read, site};
use crate::net::{self, LinkState};

pub(in crate::cli::doctor) fn networks(directory: &Path) -> NetworksFacts {
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
    let is_bridged = ours.iter().any(|ours| ours.network.plugin == "bridge");
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
    let link = network.parent.as_deref();
    NetworkFacts {
        // What cannot be looked at is not claimed to be down.
        state: link.and_then(net::link_state).unwrap_or(LinkState::Up),
        wireless: link.is_some_and(net::is_wireless),
        network,
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
