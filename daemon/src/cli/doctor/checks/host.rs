//! The rest of the host: another daemon, its identity, its neighbour table, its clock.

use std::path::PathBuf;
use std::time::Duration;

use crate::cli::doctor::finding::Finding;

/// How far a file may be ahead of the clock: a file server's clock may differ.
const SKEW: Duration = Duration::from_secs(60);

/// `processes` are those of the replaced plugin's daemons, as far as they do not answer at our socket.
pub(in crate::cli::doctor) fn incumbent(processes: &[u32], in_container: bool) -> Finding {
    match processes {
        [] if in_container => Finding::unseen(
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

pub(in crate::cli::doctor) fn identity(has_machine_id: bool, in_conflict: &[String]) -> Finding {
    match (has_machine_id, in_conflict) {
        (false, _) => Finding::warning(
            "machine id",
            "/etc/machine-id holds none: networks with `clientId` `duid` are refused",
            "systemd-machine-id-setup",
        ),
        (true, []) => Finding::ok(
            "machine id",
            "nothing on the LAN suggests that another host has the same one",
        ),
        (true, [one, ..]) => Finding::warning(
            "machine id",
            format!(
                "{one} is identified by it, and lost its address or met another user of that address: another host may have the same id"
            ),
            "compare /etc/machine-id with that host's; on one of them: rm -f /etc/machine-id /var/lib/dbus/machine-id && systemd-machine-id-setup, and reboot it",
        ),
    }
}

pub(in crate::cli::doctor) fn neighbours(most: Option<u64>, leases: u64) -> Option<Finding> {
    let most = most?;
    let found = format!(
        "the kernel keeps {most} neighbours for all namespaces together, and there are {leases} leases"
    );
    // Each container has at least its router as a neighbour, and the host and other machines have the container as one.
    Some(match leases.saturating_mul(2) {
        needed if needed > most => {
            let way_out = format!(
                "sysctl net.ipv4.neigh.default.gc_thresh3={}",
                needed.saturating_mul(2).next_power_of_two()
            );
            Finding::warning("neighbours", found, way_out)
        }
        _ => Finding::ok("neighbours", found),
    })
}

pub(in crate::cli::doctor) fn clock(from_ahead: Option<&(PathBuf, Duration)>) -> Finding {
    let Some((path, ahead)) = from_ahead.filter(|(_, ahead)| *ahead > SKEW) else {
        return Finding::ok("clock", "none of leasehold's files is newer than it");
    };
    let found = format!("{} is {} s newer than it", path.display(), ahead.as_secs());
    Finding::warning(
        "clock",
        found,
        "set it (timedatectl set-ntp true): after a reboot, leases are timed by it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::finding::Level;

    #[test]
    fn the_incumbent_is_named_with_its_process() {
        assert_eq!(incumbent(&[], false).level, Level::Ok);
        assert_eq!(incumbent(&[], true).level, Level::Unseen);
        let found = incumbent(&[42], false);
        assert!(
            found.level == Level::Warning && found.found.contains("process 42"),
            "{found:?}"
        );
    }

    #[test]
    fn a_machine_id_may_be_another_hosts_too() {
        let of = |has_machine_id, conflicts: &[&str]| {
            let conflicts: Vec<_> = conflicts.iter().map(|text| (*text).to_owned()).collect();
            identity(has_machine_id, &conflicts).level
        };
        assert_eq!(of(true, &[]), Level::Ok);
        assert_eq!(of(true, &["lan/c1/eth0"]), Level::Warning);
        assert_eq!(of(false, &[]), Level::Warning);
    }

    #[test]
    fn the_neighbour_table_has_room_for_each_lease_twice() {
        let of = |leases| neighbours(Some(1024), leases).unwrap();
        assert_eq!(of(512).level, Level::Ok);
        let found = of(513);
        assert_eq!(
            (found.level, found.way_out.as_deref()),
            (
                Level::Warning,
                Some("sysctl net.ipv4.neigh.default.gc_thresh3=4096")
            )
        );
        assert_eq!(neighbours(None, 9), None);
    }

    #[test]
    fn a_clock_that_was_set_back_is_told_by_what_was_written() {
        let of = |seconds| {
            let ahead = ("/x".into(), Duration::from_secs(seconds));
            clock(Some(&ahead)).level
        };
        assert_eq!((of(60), of(61)), (Level::Ok, Level::Warning));
        assert_eq!(clock(None).level, Level::Ok);
    }
}
