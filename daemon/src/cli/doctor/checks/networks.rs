//! The CNI networks whose addresses come from us, and the bridges they use.

use leasehold_host_local::Usage;

use crate::cli::doctor::facts::{LocalFacts, NetworkFacts, NetworksFacts};
use crate::cli::doctor::finding::Finding;
use crate::cli::networks::Network;
use crate::health::judge_link;
use crate::net::LinkState;

pub(in crate::cli::doctor) fn networks(facts: &NetworksFacts) -> Vec<Finding> {
    if let Some(error) = &facts.unread_directory {
        let found = format!("{}: {error}", facts.directory.display());
        return vec![Finding::warning(
            "networks",
            found,
            "if runtimes use another directory, name it with --cni-conf-dir",
        )];
    }
    let unread = facts.unread.iter().map(|(file, error)| {
        Finding::warning(
            "networks",
            format!("{} cannot be read: {error}", file.display()),
            "repair it: runtimes cannot read it either",
        )
    });
    let said = facts.ours.iter().flat_map(|ours| {
        let Network { warnings, file, .. } = &ours.network;
        let warned = warnings.iter().map(|warning| {
            let found = format!("{warning} ({})", file.display());
            Finding::warning("network", found, "correct its configuration")
        });
        network(ours).into_iter().chain(warned)
    });
    let mut findings: Vec<_> = unread.chain(said).collect();
    if findings.is_empty() {
        findings.push(Finding::ok(
            "networks",
            format!(
                "none in {} gets its addresses from leasehold",
                facts.directory.display()
            ),
        ));
    }
    findings.extend(bridge(facts));
    findings
}

/// Returns what is found on the networks of the plugin host-local, where leasehold takes its place: those that worked with it and
/// that leasehold refuses, and what the directories of the others hold.
pub(in crate::cli::doctor) fn host_local(facts: &NetworksFacts) -> impl Iterator<Item = Finding> {
    let refused = facts.refused_host_local.iter().map(|(file, name, why)| {
        Finding::failure(
            "network",
            format!("{name} ({}), of type host-local: {why}", file.display()),
            "correct its configuration: an ADD fails with the same message",
        )
    });
    refused.chain(facts.local.iter().flat_map(local))
}

fn local(network: &LocalFacts) -> Vec<Finding> {
    const CHECK: &str = "local ranges";
    let name = &network.name;
    let directory = network.directory.display();
    let (usage, strays) = match &network.found {
        Ok((usage, strays)) => (usage, *strays),
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

fn network(facts: &NetworkFacts) -> Vec<Finding> {
    let NetworkFacts {
        network,
        state,
        wireless,
    } = facts;
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
    match judge_link(ifname, *state, 0) {
        Some(_) if *state == LinkState::Missing && network.plugin == "bridge" => {
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
    if *wireless && network.plugin == "macvlan" {
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
fn bridge(facts: &NetworksFacts) -> Option<Finding> {
    let mut networks = facts.ours.iter().map(|ours| &ours.network);
    let bridged = networks.find(|network| network.plugin == "bridge")?;
    let firewall = facts.firewall;
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
    use std::path::Path;

    use leasehold_core::silence::Firewall;
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::doctor::finding::Level;
    use crate::cli::networks::read;
    use crate::http::Site;

    const EMPTY: LinkState = LinkState::NoCarrier { bridge: true };

    fn of(plugin: &str, state: LinkState, wireless: bool) -> NetworkFacts {
        of_config(plugin, json!({"type": "dhcp"}), state, wireless)
    }

    fn of_config(plugin: &str, ipam: Value, state: LinkState, wireless: bool) -> NetworkFacts {
        let link = if plugin == "bridge" {
            "bridge"
        } else {
            "master"
        };
        let config = json!({
            "cniVersion": "1.0.0", "name": "lan", "type": plugin, link: "eth0", "ipam": ipam,
        });
        NetworkFacts {
            network: read(Path::new("/x"), &config, &Site::default()).expect("ours"),
            state,
            wireless,
        }
    }

    #[test]
    fn a_network_is_judged_by_its_parent() {
        use LinkState::{Down, Missing, Up};
        let mut alone = of("ptp", Up, false);
        alone.network.parent = None;
        let table = [
            (of("macvlan", Up, false), Level::Ok, "is on eth0"),
            (of("macvlan", Up, true), Level::Failure, "wireless"),
            (of("ipvlan", Up, true), Level::Ok, "is on eth0"),
            (
                of("bridge", Missing, false),
                Level::Ok,
                "its first container will make bridge",
            ),
            (of("bridge", EMPTY, false), Level::Ok, "is on eth0"),
            (of("bridge", Down, false), Level::Failure, "eth0 is down"),
            (alone, Level::Ok, "names no link"),
        ];
        for (facts, level, text) in table {
            let found = network(&facts);
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
        let facts = LocalFacts {
            name: "pods".to_owned(),
            directory: "/data/pods".into(),
            found: Ok((vec![usage(3, 0), usage(5, 1)], 2)),
        };
        let found = local(&facts);
        let said: Vec<_> = found.iter().map(|found| found.found.as_str()).collect();
        assert_eq!(said, [taken, gone, strays]);
        assert!(found.iter().all(|found| found.level == Level::Ok));
    }

    #[test]
    fn what_a_network_has_for_nothing_is_a_warning() {
        let ipam = json!({"type": "dhcp", "requests": []});
        let lan = of_config("macvlan", ipam, LinkState::Up, false);
        let facts = NetworksFacts {
            ours: vec![lan],
            ..NetworksFacts::default()
        };
        let [on, warned] = &networks(&facts)[..] else {
            panic!("two findings")
        };
        assert_eq!((on.level, warned.level), (Level::Ok, Level::Warning));
        assert!(warned.found.contains("did you mean request? (/x)"));
    }

    #[test]
    fn a_firewall_matters_to_bridges_alone() {
        let on = |plugin, bridge_nf, forward_drop| NetworksFacts {
            ours: vec![of(plugin, LinkState::Up, false)],
            firewall: Firewall {
                bridge_nf,
                forward_drop,
                docker_user: true,
            },
            ..NetworksFacts::default()
        };
        assert_eq!(bridge(&on("macvlan", Some(true), Some(true))), None);
        let found = bridge(&on("bridge", Some(true), Some(true))).unwrap();
        assert_eq!(found.level, Level::Failure);
        assert_eq!(
            found.way_out.as_deref(),
            Some(
                "iptables -I DOCKER-USER -i eth0 -o eth0 -j ACCEPT, or sysctl net.bridge.bridge-nf-call-iptables=0"
            )
        );
        let unsaid = bridge(&on("bridge", Some(true), None)).unwrap();
        assert_eq!(unsaid.level, Level::Warning);
        assert_eq!(bridge(&on("bridge", None, Some(true))), None);
    }
}
