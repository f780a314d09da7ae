//! Files of the host: directories and their room, plugins, settings, times.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use nix::sys::statvfs::{FsFlags, statvfs};

use super::{Directory, Room, Standing};

/// Returns what is at a path.
pub(super) fn standing(path: &Path) -> Option<Standing> {
    let found = fs::metadata(path).ok()?;
    Some(Standing {
        mode: found.mode(),
        owner: found.uid(),
        is_socket: found.file_type().is_socket(),
    })
}

pub(in crate::cli::doctor) fn directory(path: &Path) -> Directory {
    Directory {
        path: path.to_owned(),
        found: standing(path),
        room: room(path),
    }
}

fn room(path: &Path) -> Option<Room> {
    let found = statvfs(path).ok()?;
    // Some file systems do not count files.
    let files = if found.files() == 0 {
        u64::MAX
    } else {
        found.files_available()
    };
    Some(Room {
        read_only: found.flags().contains(FsFlags::ST_RDONLY),
        free: found
            .blocks_available()
            .saturating_mul(found.fragment_size()),
        files,
    })
}

/// Returns how many neighbours the kernel keeps for all namespaces together.
pub(in crate::cli::doctor) fn most_neighbours() -> Option<u64> {
    fs::read_to_string("/proc/sys/net/ipv4/neigh/default/gc_thresh3")
        .ok()?
        .trim()
        .parse()
        .ok()
}
