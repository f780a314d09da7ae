//! The CNI networks whose addresses come from us, and the bridges they use.

use std::path::Path;

use leasehold_core::silence::Firewall;
use leasehold_host_local::{Directory, Usage};
use nix::unistd::geteuid;

use super::finding::Finding;
use super::socket::PATIENCE;
use crate::cli::networks::{LocalNetwork, Network, Networks, networks as read, site};
use crate::health::judge_link;
use crate::net::survey::bridge_firewall;
use crate::net::{LinkState, is_wireless, link_state};

/// `as_host_local` means that leasehold takes the place of the plugin host-local.
pub(super) fn networks(directory: &Path, as_host_local: bool) -> Vec<Finding> {
    let Networks {
        ours,
        refused_host_local,
        local,
        unread,
    } = match read(directory, &site()) {
        Ok(found) => found,
        Err(error) => {
            let found = format!("{}: {error}", directory.display());
            let way_out = "if runtimes use another directory, name it with --cni-conf-dir";
            return vec![Finding::warning("networks", found, way_out)];
        }
    };
    let unread = unread.iter().map(|(file, error)| {
        Finding::warning(
            "networks",
            format!("{} cannot be read: {error}", file.display()),
            "repair it: runtimes cannot read it either",
        )
    });
    let mut findings: Vec<_> = unread.chain(ours.iter().flat_map(of_network)).collect();
    if findings.is_empty() {
        let found = format!(
            "none in {} gets its addresses from leasehold",
            directory.display()
        );
        findings.push(Finding::ok("networks", found));
    }
    findings.extend(bridge(&ours, bridge_firewall));
    if as_host_local {
        // These worked with host-local, and leasehold refuses them.
        findings.extend(refused_host_local.iter().map(|(file, name, why)| {
            Finding::failure(
                "network",
                format!("{name} ({}), of type host-local: {why}", file.display()),
                "correct its configuration: an ADD fails with the same message",
            )
        }));
        // Other users may not see who has what.
        let local = local.iter().filter(|_| geteuid().is_root());
        findings.extend(local.flat_map(of_directory));
    }
    findings
}

fn of_network(found: &Network) -> Vec<Finding> {
    let link = found.parent.as_deref();
    // What cannot be looked at is not claimed to be down.
    let state = link.and_then(link_state).unwrap_or(LinkState::Up);
    let mut findings = network(found, state, link.is_some_and(is_wireless));
    findings.extend(found.warnings.iter().map(|warning| {
        let found = format!("{warning} ({})", found.file.display());
        Finding::warning("network", found, "correct its configuration")
    }));
    findings
}

/// Returns what the directory of a network holds, if its ranges can be used.
fn of_directory(network: &LocalNetwork) -> Vec<Finding> {
    let LocalNetwork {
        name,
        directory,
        sets,
        ..
    } = network;
    let Ok(sets) = sets else { return Vec::new() };
    let found = leasehold_host_local::look(directory, sets, PATIENCE);
    local(name, directory, found.map_err(|error| error.msg))
}

/// `found` is how much of each range set is taken, and how many files say nothing; or why that cannot be told.
fn local(
    name: &str,
    directory: &Directory,
    found: Result<(Vec<Usage>, usize), String>,
) -> Vec<Finding> {
    const CHECK: &str = "local ranges";
    let directory = directory.path().display();
    let (usage, strays) = match found {
        Ok(found) => found,
        Err(why) => {
            let way_out = "until that is mended, an ADD fails with the same message";
            return vec![Finding::failure(CHECK, format!("{name}: {why}"), way_out)];
        }
    };
    let of_set = |usage: &Usage| {
        let found = format!("{name}: {usage}");
        if usage.is_full() {
            let way_out =
                "remove containers, free what none of them has, or give the network more addresses";
            Finding::failure(CHECK, found, way_out)
        } else {
            Finding::ok(CHECK, found)
        }
    };
    let mut findings: Vec<_> = usage.iter().map(of_set).collect();
    if findings.is_empty() {
        let found = format!("{name}: its first container will make {directory}");
        findings.push(Finding::ok(CHECK, found));
    }
    if strays > 0 {
        let found = format!(
            "{name}: calls that were killed left {strays} files in {directory}: the next call removes them"
        );
        findings.push(Finding::ok(CHECK, found));
    }
    findings
}

fn network(network: &Network, state: LinkState, is_wireless: bool) -> Vec<Finding> {
    let named = format!("{} ({})", network.name, network.file.display());
    if let Err(refused) = &network.add {
        let way_out = "correct its configuration: an ADD would fail with the same message";
        return vec![Finding::failure(
            "network",
            format!("{named}: {}", refused.msg),
            way_out,
        )];
    }
    let Some(ifname) = &network.parent else {
        return vec![Finding::ok(
            "network",
            format!("{named} names no link of the host"),
        )];
    };
    let mut findings = Vec::new();
    match judge_link(ifname, state, 0) {
        Some(_) if state == LinkState::Missing && network.plugin == "bridge" => {
            return vec![Finding::ok(
                "network",
                format!("{named}: its first container will make bridge {ifname}"),
            )];
        }
        Some((found, remedy)) => findings.push(Finding::failure(
            "network",
            format!("{named}: {found}"),
            remedy,
        )),
        None => {}
    }
    if is_wireless && network.plugin == "macvlan" {
        let found = format!(
            "{named}: {ifname} is wireless: an access point drops frames from any Ethernet address but {ifname}'s"
        );
        findings.push(Finding::failure("network", found, "use type ipvlan"));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("network", format!("{named} is on {ifname}")));
    }
    findings
}

/// Bridged frames may go through iptables, where Docker drops what it does not know.
fn bridge(ours: &[Network], firewall: impl FnOnce() -> Firewall) -> Option<Finding> {
    let bridged = ours.iter().find(|network| network.plugin == "bridge")?;
    let firewall = firewall();
    let bridge = bridged.parent.as_deref().unwrap_or("br0");
    let remedy = format!(
        "{}, or sysctl net.bridge.bridge-nf-call-iptables=0",
        firewall.allow(bridge)
    );
    match (firewall.bridge_nf?, firewall.forward_drop) {
        (true, Some(true)) => Some(Finding::failure(
            "bridge netfilter",
            format!(
                "traffic on the bridge of {} goes through iptables, where FORWARD drops by policy",
                bridged.name
            ),
            remedy,
        )),
        (true, _) => Some(Finding::warning(
            "bridge netfilter",
            format!(
                "traffic on the bridge of {} goes through iptables",
                bridged.name
            ),
            remedy,
        )),
        (false, _) => Some(Finding::ok(
            "bridge netfilter",
            "bridges do not go through iptables",
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::doctor::finding::Level;
    use crate::cli::networks::read;
    use crate::http::Site;

    const EMPTY: LinkState = LinkState::NoCarrier { bridge: true };

    fn of(plugin: &str, ipam: Value) -> Network {
        let link = if plugin == "bridge" {
            "bridge"
        } else {
            "master"
        };
        let config = json!({
            "cniVersion": "1.0.0", "name": "lan", "type": plugin, link: "eth0", "ipam": ipam,
        });
        read(Path::new("/x"), &config, &Site::default()).expect("ours")
    }

    fn plain(plugin: &str) -> Network {
        of(plugin, json!({"type": "dhcp"}))
    }

    #[test]
    fn a_network_is_judged_by_its_parent() {
        use LinkState::{Down, Missing, Up};
        let alone = Network {
            parent: None,
            ..plain("ptp")
        };
        let table = [
            ((plain("macvlan"), Up, false), Level::Ok, "is on eth0"),
            ((plain("macvlan"), Up, true), Level::Failure, "wireless"),
            ((plain("ipvlan"), Up, true), Level::Ok, "is on eth0"),
            (
                (plain("bridge"), Missing, false),
                Level::Ok,
                "its first container will make bridge",
            ),
            ((plain("bridge"), EMPTY, false), Level::Ok, "is on eth0"),
            (
                (plain("bridge"), Down, false),
                Level::Failure,
                "eth0 is down",
            ),
            ((alone, Up, false), Level::Ok, "names no link"),
        ];
        for ((on, state, is_wireless), level, text) in table {
            let found = network(&on, state, is_wireless);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(
                found[0].level == level && found[0].found.contains(text),
                "{found:?}"
            );
        }
    }

    /// What an empty, a full and a locked directory are is in `daemon/tests/daemon/doctor.rs`.
    #[test]
    fn addresses_of_gone_containers_do_not_fill_a_range() {
        let usage = |taken, gone| Usage {
            set: 0,
            size: 5,
            taken,
            running: 3,
            gone,
            longest: Some(([10, 9, 0, 2].into(), "c1".to_owned())),
            directory: "/data/pods".into(),
        };
        let taken = "pods: 3 of 5 addresses of range set 0 are taken, 10.9.0.2 the longest, by c1; 3 belong to running containers";
        let gone = "pods: 5 of 5 addresses of range set 0 are taken, 10.9.0.2 the longest, by c1; 3 belong to running containers, \
            1 to containers that are gone: an ADD that finds the set full frees them; nobody can say whether those of the \
            other 1 live: a GC frees what no container has, and so does removing its files in /data/pods";
        let strays =
            "pods: calls that were killed left 2 files in /data/pods: the next call removes them";
        let directory = Directory::at("/data/pods".into());
        let found = local("pods", &directory, Ok((vec![usage(3, 0), usage(5, 1)], 2)));
        let said: Vec<_> = found.iter().map(|found| found.found.as_str()).collect();
        assert_eq!(said, [taken, gone, strays]);
        assert!(found.iter().all(|found| found.level == Level::Ok));
    }

    #[test]
    fn what_a_network_has_for_nothing_is_a_warning() {
        let lan = of("macvlan", json!({"type": "dhcp", "requests": []}));
        let found = of_network(&lan);
        let warned = found.last().unwrap();
        assert_eq!(warned.level, Level::Warning);
        assert!(warned.found.contains("did you mean request? (/x)"));
    }

    #[test]
    fn a_firewall_matters_to_bridges_alone() {
        let on = |plugin, bridge_nf, forward_drop| {
            bridge(&[plain(plugin)], || Firewall {
                bridge_nf,
                forward_drop,
                docker_user: true,
            })
        };
        assert_eq!(on("macvlan", Some(true), Some(true)), None);
        let found = on("bridge", Some(true), Some(true)).unwrap();
        assert_eq!(found.level, Level::Failure);
        assert_eq!(
            found.way_out.as_deref(),
            Some(
                "iptables -I DOCKER-USER -i eth0 -o eth0 -j ACCEPT, or sysctl net.bridge.bridge-nf-call-iptables=0"
            )
        );
        let unsaid = on("bridge", Some(true), None).unwrap();
        assert_eq!(unsaid.level, Level::Warning);
        assert_eq!(on("bridge", None, Some(true)), None);
    }
}
