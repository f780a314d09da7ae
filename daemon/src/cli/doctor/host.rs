//! The rest of the host: another daemon, its identity, its neighbour table.

use std::fs;

use super::finding::{Finding, Level};

/// `processes` are those of the replaced plugin's daemons, as far as they do not answer at our socket.
pub(super) fn incumbent(processes: &[u32], in_container: bool) -> Finding {
    match processes {
        [] if in_container => Finding::of(
            Level::Unseen,
            "replaced plugin",
            "the daemon's own container does not show the host's processes: whether `dhcp daemon` or dockerd runs is not known",
            "on the host: pgrep -af 'dhcp daemon|dockerd'",
        ),
        [] => Finding::ok("replaced plugin", "no other daemon of it runs"),
        [process, ..] => Finding::warning(
            "replaced plugin",
            format!(
                "`dhcp daemon` of the replaced plugin runs (process {process}), and goes on extending its leases"
            ),
            format!(
                "systemctl disable --now cni-dhcp.service cni-dhcp.socket, or kill {process}; leasehold adopts its containers"
            ),
        ),
    }
}

pub(super) fn identity(has_machine_id: bool) -> Finding {
    match has_machine_id {
        true => Finding::ok("machine id", "/etc/machine-id holds one"),
        false => Finding::warning(
            "machine id",
            "/etc/machine-id holds none: networks with `clientId` `duid` are refused",
            "systemd-machine-id-setup",
        ),
    }
}

/// Returns how many neighbours the kernel keeps for all namespaces together.
pub(super) fn most_neighbours() -> Option<u64> {
    let most = fs::read_to_string("/proc/sys/net/ipv4/neigh/default/gc_thresh3");
    most.ok()?.trim().parse().ok()
}

pub(super) fn neighbours(most: u64, leases: u64) -> Finding {
    let found = format!(
        "the kernel keeps {most} neighbours for all namespaces together, and there are {leases} leases"
    );
    // Each container has at least its router as a neighbour, and the host and other machines have the container as one.
    match leases.saturating_mul(2) {
        needed if needed > most => {
            let way_out = format!(
                "sysctl net.ipv4.neigh.default.gc_thresh3={}",
                needed.saturating_mul(2).next_power_of_two()
            );
            Finding::warning("neighbours", found, way_out)
        }
        _ => Finding::ok("neighbours", found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_neighbour_table_has_room_for_each_lease_twice() {
        assert_eq!(neighbours(1024, 512).level, Level::Ok);
        let found = neighbours(1024, 513);
        assert_eq!(
            (found.level, found.way_out.as_deref()),
            (
                Level::Warning,
                Some("sysctl net.ipv4.neigh.default.gc_thresh3=4096")
            )
        );
    }
}
