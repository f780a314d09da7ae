//! Looking for what keeps DHCP servers from answering a container.

use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold_core::link::{Link, Target};
use leasehold_core::silence::{Firewall, Survey};
use tracing::debug;

use super::netlink::Which;
use super::netns::Worker;

/// Says whether frames that a bridge carries go through iptables, in the reader's namespace.
const BRIDGE_NF: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";
/// The UDP sockets of the reading thread's namespace.
const UDP_SOCKETS: &str = "/proc/thread-self/net/udp";
/// The UDP port of a DHCP server (RFC 2131 §4.1).
const SERVER_PORT: u16 = 67;
/// How long iptables may take. It waits for others only if told to.
const PATIENCE: Duration = Duration::from_secs(2);
/// More than the policy and rules of any chain worth reading.
const LONGEST: u64 = 64 * 1024;

/// Looks at a container's link, at the host's link that is its LAN, and at the host.
pub(super) fn look(
    worker: &mut Worker,
    link: Link,
    lan_parent: Option<String>,
    counts: bool,
) -> Survey {
    let is_named = lan_parent.is_some();
    let parent = lan_parent.and_then(|ifname| worker.host_link(Which::Name(&ifname)).ok());
    let bridge = parent.as_ref().filter(|link| link.bridge);
    let outside = bridge.and_then(|bridge| worker.count_outside(bridge.index));
    let own = match counts && is_named {
        true => None,
        false => worker.apply(&Target::Known(link), &[], |_| true).ok(),
    };
    let received = match (is_named, bridge) {
        (true, Some(_)) => outside.map(|(received, _)| received),
        (true, None) => parent.as_ref().map(|link| link.received),
        (false, _) => own.as_ref().map(|view| view.received),
    };
    if counts {
        return Survey {
            received,
            ..Survey::default()
        };
    }
    let parent_is_bridge = parent.as_ref().is_some_and(|link| link.bridge);
    let survey = Survey {
        carrier: own.as_ref().map(|view| view.carrier),
        received,
        ports: outside.map(|(_, ports)| ports),
        firewall: parent_is_bridge.then(bridge_firewall).unwrap_or_default(),
        server_on_host: fs::read_to_string(UDP_SOCKETS).is_ok_and(|table| serves(&table)),
        parent_is_bridge,
        port_delay: parent.and_then(|link| link.port_delay),
        macvlan: own.as_ref().is_some_and(|view| view.macvlan),
    };
    debug!(?survey, "looked for what keeps servers from answering");
    survey
}

/// Returns whether bridged frames go through iptables in the caller's namespace, and if so, what FORWARD does with them. May
/// take two seconds.
pub(crate) fn bridge_firewall() -> Firewall {
    let bridge_nf = setting(BRIDGE_NF);
    match bridge_nf {
        Some(true) => Firewall {
            bridge_nf,
            ..forward_chain(&forward_rules().unwrap_or_default())
        },
        // The policy does not matter if no frame meets it.
        _ => Firewall {
            bridge_nf,
            ..Firewall::default()
        },
    }
}

/// Reads a setting that is on or off; `None` if the kernel does not have it.
fn setting(path: &str) -> Option<bool> {
    match fs::read_to_string(path).ok()?.trim() {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// Returns whether a table of sockets (proc_net_tcp.txt) has one on the server's port.
fn serves(table: &str) -> bool {
    let port = format!(":{SERVER_PORT:04X}");
    table
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().nth(1))
        .any(|local| local.ends_with(&port))
}

/// Asks iptables for FORWARD, in the calling thread's namespace; `None` if it cannot be asked.
fn forward_rules() -> Option<String> {
    let (ours, its) = UnixStream::pair().ok()?;
    ours.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut iptables = Command::new("iptables");
    iptables
        .args(["-S", "FORWARD"])
        .stdin(Stdio::null())
        .stdout(OwnedFd::from(its))
        .stderr(Stdio::null());
    let mut running = iptables.spawn().ok()?;
    // The command holds the writing end too: reading would not end before the command is dropped.
    drop(iptables);
    let mut said = String::new();
    let read = ours.take(LONGEST).read_to_string(&mut said);
    // Harmless if it has already ended.
    let _ = running.kill();
    let ended = running.wait();
    debug!(?read, ?ended, "asked iptables");
    Some(said)
}

/// Reads what `iptables -S FORWARD` prints: the policy, `-P FORWARD DROP`, and a jump to Docker's chain.
fn forward_chain(said: &str) -> Firewall {
    let policy = said
        .lines()
        .find_map(|line| line.strip_prefix("-P FORWARD "));
    Firewall {
        forward_drop: policy.map(|policy| policy.trim() == "DROP"),
        docker_user: said.lines().any(|line| line.ends_with("-j DOCKER-USER")),
        ..Firewall::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_its_port() {
        let header =
            "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n";
        for (local, serving) in [
            ("00000000:0043", true),
            ("0101000A:0043", true),
            ("00000000:0044", false),
        ] {
            let line = format!(
                "  447: {local} 00000000:0000 07 00000000:00000000 00:00000000 00000000     0\n"
            );
            assert_eq!(serves(&format!("{header}{line}")), serving, "{local}");
        }
        let other_end =
            "  447: 00000000:0044 00000000:0043 07 00000000:00000000 00:00000000 00000000     0\n";
        assert!(!serves(&format!("{header}{other_end}")) && !serves(header) && !serves(""));
    }

    #[test]
    fn the_policy_is_what_iptables_says() {
        for (said, drops, docker_user) in [
            (
                "-P FORWARD DROP\n-A FORWARD -j DOCKER-USER\n",
                Some(true),
                true,
            ),
            ("-P FORWARD ACCEPT\n", Some(false), false),
            ("iptables: Permission denied\n", None, false),
        ] {
            let found = forward_chain(said);
            assert_eq!(
                (found.forward_drop, found.docker_user),
                (drops, docker_user),
                "{said}"
            );
        }
    }
}
