//! The state directory and the runtime directory.

use crate::cli::doctor::facts::{Directory, Room};
use crate::cli::doctor::finding::Finding;
use crate::health::TOO_LITTLE;
use crate::store::StoreError;

/// With less than this, somebody should look.
const LITTLE: u64 = 64 << 20;

/// `check` is the directory's name in findings.
pub(in crate::cli::doctor) fn directory(
    check: &'static str,
    directory: &Directory,
) -> Vec<Finding> {
    let path = directory.path.display();
    let Some(standing) = directory.found else {
        let way_out = "the daemon makes it when it starts: systemctl start leasehold.service";
        return vec![Finding::warning(
            check,
            format!("there is no {path}"),
            way_out,
        )];
    };
    let mut findings = Vec::new();
    if standing.is_writable_by_others() {
        let found = format!(
            "users other than root may write to {path} (mode {:04o}, owner {})",
            standing.mode & 0o7777,
            standing.owner
        );
        findings.push(Finding::failure(
            check,
            found,
            format!("chown root: {path} && chmod 700 {path}"),
        ));
    }
    findings.extend(
        directory
            .room
            .map(|room| space(check, &path.to_string(), room)),
    );
    findings
}

/// Returns the finding that this release's daemon cannot start on the existing store.
pub(in crate::cli::doctor) fn later_store(why: &StoreError) -> Option<Finding> {
    let StoreError::NewerFormat { path, .. } = why else {
        return None;
    };
    let path = path.display();
    let way_out = format!(
        "install the later release again; or, to start without its leases: systemctl stop leasehold.socket leasehold.service && mv {path} {path}.kept && systemctl start leasehold.socket leasehold.service"
    );
    Some(Finding::failure("store", why.to_string(), way_out))
}

fn space(check: &'static str, path: &str, room: Room) -> Finding {
    let free = format!("{path} has {} free", bytes(room.free));
    match room {
        Room {
            read_only: true, ..
        } => Finding::failure(
            check,
            format!("{path} is read-only"),
            "mount it writable, or choose another with --state-dir",
        ),
        Room { files: 0, .. } => Finding::failure(
            check,
            format!("{path} has no room for another file"),
            "remove files there",
        ),
        Room {
            free: ..TOO_LITTLE, ..
        } => Finding::failure(
            check,
            free,
            "make room there: no lease can be recorded, and ADDs fail",
        ),
        Room {
            free: TOO_LITTLE..LITTLE,
            ..
        } => Finding::warning(
            check,
            free,
            "make room there: with less than 4 MiB free no lease can be recorded, and ADDs fail",
        ),
        _ => Finding::ok(check, free),
    }
}

fn bytes(bytes: u64) -> String {
    match bytes {
        0..0x400 => format!("{bytes} bytes"),
        0x400..0x10_0000 => format!("{} KiB", bytes >> 10),
        0x10_0000..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::finding::Level;

    const PLENTY: Room = Room {
        read_only: false,
        free: 1 << 40,
        files: 1 << 20,
    };

    /// The rest is in `daemon/tests/daemon/doctor.rs`, on real file systems.
    #[test]
    fn a_directory_is_judged_by_its_room() {
        let judged = |room| space("state", "/x", room).level;
        for (free, level) in [
            (TOO_LITTLE - 1, Level::Failure),
            (TOO_LITTLE, Level::Warning),
            (LITTLE - 1, Level::Warning),
            (LITTLE, Level::Ok),
        ] {
            assert_eq!(judged(Room { free, ..PLENTY }), level, "{free}");
        }
        assert_eq!(judged(Room { files: 0, ..PLENTY }), Level::Failure);
    }
}
