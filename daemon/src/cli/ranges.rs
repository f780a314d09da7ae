//! Local ranges as `leasehold list` shows them: what host-local's files say, and the fallbacks that a daemon knows.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::SystemTime;

use leasehold_api::cni::{Holder, HostLocal};
use leasehold_api::control::{Attachment, Range, Taken};
use leasehold_host_local::{Directory, Fault, Host, Life, Names};
use serde::Serialize;

use super::columns::columns;
use super::networks::{self, LocalNetwork};
use super::term::printable;

const HEAD: [&str; 6] = ["NETWORK", "LAN", "SET", "RANGE", "SIZE", "TAKEN"];

/// All that is known about local ranges on this host.
#[derive(Debug, Default, Serialize)]
pub(super) struct Listed {
    /// The ranges of the networks that are configured here, then those of fallbacks.
    ranges: Vec<Range>,
    /// The directories below host-local's own that no configuration here names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unconfigured: Vec<Unconfigured>,
    /// What could not be read, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unread: Vec<String>,
}

/// The addresses of a network whose ranges are not known.
#[derive(Debug, Serialize)]
struct Unconfigured {
    network: String,
    taken: Vec<Taken>,
}

impl Listed {
    /// Reads the configurations, and the directories of the networks with local ranges.
    pub(super) fn gather(conf_dir: &Path, fallbacks: Result<Vec<Range>, String>) -> Self {
        let mut listed = Self::default();
        let mut named = Vec::new();
        match networks::networks(conf_dir, &networks::site()) {
            Ok(networks) => {
                for network in &networks.local {
                    named.push(network.directory.path().to_owned());
                    listed.add(network);
                }
                let unread = networks.unread.into_iter();
                listed
                    .unread
                    .extend(unread.map(|(file, why)| format!("{}: {why}", file.display())));
            }
            Err(error) => listed
                .unread
                .push(format!("{}: {error}", conf_dir.display())),
        }
        let others = fs::read_dir(HostLocal::DATA_DIR)
            .into_iter()
            .flatten()
            .flatten();
        let mut others: Vec<_> = others.map(|other| other.path()).collect();
        others.retain(|other| other.is_dir() && !named.contains(other));
        others.sort();
        for path in others {
            let network = path.file_name().unwrap_or_default().to_string_lossy();
            let network = network.into_owned();
            let directory = Directory::at(path.clone());
            let taken = listed.read(&directory, &network);
            if !taken.is_empty() {
                listed.unconfigured.push(Unconfigured { network, taken });
            }
        }
        match fallbacks {
            Ok(fallbacks) => listed.ranges.extend(fallbacks),
            Err(why) => listed
                .unread
                .push(format!("the ranges of fallbacks: {why}")),
        }
        listed
    }

    fn add(&mut self, network: &LocalNetwork) {
        let taken = self.read(&network.directory, &network.name);
        let sets = match &network.sets {
            Ok(sets) => sets,
            Err(why) => return self.unread.push(format!("network {}: {why}", network.name)),
        };
        let range = |(set, range): (usize, &leasehold_core::range::Range)| Range {
            network: network.name.clone(),
            lan: network.lan.clone(),
            set,
            subnet: range.subnet,
            first: range.first,
            last: range.last,
            size: u64::try_from(sets.size(range)).unwrap_or(u64::MAX),
            fallback: false,
            taken: taken
                .iter()
                .filter(|taken| range.contains(taken.address))
                .cloned()
                .collect(),
        };
        self.ranges.extend(sets.ranges().map(range));
    }

    /// Returns the taken addresses of a network, in order.
    fn read(&mut self, directory: &Directory, network: &str) -> Vec<Taken> {
        let names = match directory.exists() {
            Ok(false) => return Vec::new(),
            Ok(true) => directory.names(),
            Err(fault) => Err(fault),
        };
        match names {
            Ok(names) => {
                let host = Host::this();
                let mut addresses: Vec<_> = names.addresses().collect();
                addresses.sort();
                let taken = |address| taken(address, directory, &names, network, &host);
                addresses.into_iter().map(taken).collect()
            }
            Err(Fault { path, error }) => {
                self.unread.push(format!("{}: {error}", path.display()));
                Vec::new()
            }
        }
    }

    /// Lays the ranges out in columns, and then the taken addresses of each.
    pub(super) fn table(&self) -> String {
        let mut rows = vec![HEAD.map(str::to_owned)];
        rows.extend(self.ranges.iter().map(row));
        let mut text = columns(&rows);
        for range in self.ranges.iter().filter(|range| !range.taken.is_empty()) {
            let set = if range.fallback {
                "fallback".to_owned()
            } else {
                format!("set {}", range.set)
            };
            text.push_str(&format!("\n{}, {set}:\n", printable(&range.network)));
            text.extend(range.taken.iter().map(line));
        }
        for Unconfigured { network, taken } in &self.unconfigured {
            text.push_str(&format!(
                "\n{}, which no configuration here names:\n",
                printable(network)
            ));
            text.extend(taken.iter().map(line));
        }
        if !self.unread.is_empty() {
            text.push_str("\nNot shown:\n");
            text.extend(self.unread.iter().map(|unread| printable(unread) + "\n"));
        }
        text
    }
}

fn taken(
    address: IpAddr,
    directory: &Directory,
    names: &Names,
    network: &str,
    host: &Host,
) -> Taken {
    let Holder { container, ifname } = directory.holder(address).unwrap_or(Holder {
        container: String::new(),
        ifname: None,
    });
    let since = directory
        .since(address)
        .and_then(|since| since.duration_since(SystemTime::UNIX_EPOCH).ok());
    Taken {
        address,
        attachment: Attachment::Cni {
            network: network.to_owned(),
            container,
            ifname: ifname.unwrap_or_default(),
        },
        since: since.map(|since| since.as_secs()),
        gone: directory.life(names, address, host) == Life::Gone,
    }
}

fn line(taken: &Taken) -> String {
    let Taken {
        address,
        attachment,
        since: _,
        gone,
    } = taken;
    let gone = if *gone { ", which is gone" } else { "" };
    printable(&format!("{address}: {attachment}{gone}")) + "\n"
}

fn row(range: &Range) -> [String; HEAD.len()] {
    let cells = [
        range.network.clone(),
        range.lan.to_string(),
        if range.fallback {
            "fallback".to_owned()
        } else {
            range.set.to_string()
        },
        format!("{}-{} in {}", range.first, range.last, range.subnet),
        range.size.to_string(),
        range.taken.len().to_string(),
    ];
    cells.map(|cell| printable(&cell))
}

#[cfg(test)]
mod tests {
    use leasehold_api::control::Lan;

    use super::*;

    fn taken(address: &str, network: &str, container: &str, gone: bool) -> Taken {
        let attachment = Attachment::Cni {
            network: network.to_owned(),
            container: container.to_owned(),
            ifname: "eth0".to_owned(),
        };
        Taken {
            address: address.parse().unwrap(),
            attachment,
            since: Some(1),
            gone,
        }
    }

    fn ranges() -> Vec<Range> {
        let v4 = Range {
            network: "pods".to_owned(),
            lan: Lan::Link {
                parent: "cni0".into(),
                vlan: 0,
            },
            set: 0,
            subnet: "10.0.0.0/24".parse().unwrap(),
            first: "10.0.0.1".parse().unwrap(),
            last: "10.0.0.254".parse().unwrap(),
            size: 253,
            fallback: false,
            taken: vec![
                taken("10.0.0.2", "pods", "c1", false),
                taken("10.0.0.3", "other", "x", false),
                taken("10.0.0.4", "pods", "old", true),
            ],
        };
        let v6 = Range {
            set: 1,
            subnet: "fd00::/64".parse().unwrap(),
            first: "fd00::1".parse().unwrap(),
            last: "fd00::ffff:ffff:ffff:ffff".parse().unwrap(),
            size: u64::MAX,
            taken: vec![taken("fd00::2", "pods", "c1", false)],
            ..v4.clone()
        };
        let fallback = Range {
            network: "lan".to_owned(),
            first: "10.0.0.200".parse().unwrap(),
            last: "10.0.0.203".parse().unwrap(),
            size: 4,
            fallback: true,
            taken: vec![taken("10.0.0.201", "lan", "c9", false)],
            ..v4.clone()
        };
        vec![v4, v6, fallback]
    }

    #[test]
    fn each_range_is_shown_with_what_is_taken_of_it() {
        let expected = "\
NETWORK  LAN   SET       RANGE                                           SIZE                  TAKEN
pods     cni0  0         10.0.0.1-10.0.0.254 in 10.0.0.0/24              253                   3
pods     cni0  1         fd00::1-fd00::ffff:ffff:ffff:ffff in fd00::/64  18446744073709551615  1
lan      cni0  fallback  10.0.0.200-10.0.0.203 in 10.0.0.0/24            4                     1

pods, set 0:
10.0.0.2: pods/c1/eth0
10.0.0.3: other/x/eth0
10.0.0.4: pods/old/eth0, which is gone

pods, set 1:
fd00::2: pods/c1/eth0

lan, fallback:
10.0.0.201: lan/c9/eth0

multus, which no configuration here names:
10.8.0.2: multus/c7/eth0

Not shown:
/run/x/o: Permission denied
";
        let listed = Listed {
            ranges: ranges(),
            unconfigured: vec![Unconfigured {
                network: "multus".to_owned(),
                taken: vec![taken("10.8.0.2", "multus", "c7", false)],
            }],
            unread: vec!["/run/x/o: Permission denied".to_owned()],
        };
        assert_eq!(listed.table(), expected);
    }
}
