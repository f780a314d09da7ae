//! The state directory and the runtime directory.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::statvfs::{FsFlags, statvfs};

use super::finding::Finding;
use crate::health::TOO_LITTLE;
use crate::store::StoreError;

/// With less than this, somebody should look.
const LITTLE: u64 = 64 << 20;

/// The room on a file system.
#[derive(Clone, Copy, Debug)]
struct Room {
    read_only: bool,
    /// In bytes.
    free: u64,
    /// How many more files there may be.
    files: u64,
}

/// Returns whether users other than root may write to a file or directory.
pub(super) fn is_writable_by_others(found: &Metadata) -> bool {
    found.uid() != 0 || found.mode() & 0o022 != 0
}

/// `check` is the directory's name in findings.
pub(super) fn directory(check: &'static str, directory: &Path) -> Vec<Finding> {
    let path = directory.display();
    let Ok(found) = fs::metadata(directory) else {
        let way_out = "the daemon makes it when it starts: systemctl start leasehold.service";
        return vec![Finding::warning(
            check,
            format!("there is no {path}"),
            way_out,
        )];
    };
    let mut findings = Vec::new();
    if is_writable_by_others(&found) {
        let found = format!(
            "users other than root may write to {path} (mode {:04o}, owner {})",
            found.mode() & 0o7777,
            found.uid()
        );
        findings.push(Finding::failure(
            check,
            found,
            format!("chown root: {path} && chmod 700 {path}"),
        ));
    }
    findings.extend(room(directory).map(|room| space(check, &path.to_string(), room)));
    findings
}

fn room(path: &Path) -> Option<Room> {
    let found = statvfs(path).ok()?;
    // Some file systems do not count files.
    let files = match found.files() {
        0 => u64::MAX,
        _ => found.files_available(),
    };
    Some(Room {
        read_only: found.flags().contains(FsFlags::ST_RDONLY),
        free: found
            .blocks_available()
            .saturating_mul(found.fragment_size()),
        files,
    })
}

/// Returns the finding that this release's daemon cannot start on the existing store.
pub(super) fn later_store(why: &StoreError) -> Option<Finding> {
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
