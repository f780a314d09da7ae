//! Two installs, or an install and an uninstall, take turns: one that looked while the other replaced a file would keep the
//! other's as the original.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::place::Place;
use super::{identity, say};

/// How long to wait for another. Whoever holds a directory's lock for longer installs nothing.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(100);

/// Locks the directories of all places until the result is dropped. Only the directories are the same for all who install: a pod
/// and a package share no other file. Anybody may lock a directory, so nobody waits for ever.
pub(super) fn take(places: &[Place], out: &mut dyn Write) -> anyhow::Result<Vec<File>> {
    let directories = places.iter().map(Place::directory);
    // In one order, so that no two wait for each other.
    let directories: BTreeMap<_, &Path> = directories
        .filter_map(|directory| Some((identity(directory)?, directory)))
        .collect();
    let mut locks = Vec::new();
    let mut left = PATIENCE;
    for directory in directories.into_values() {
        let Ok(lock) = File::open(directory) else {
            continue;
        };
        let mut waits = false;
        while let Err(TryLockError::WouldBlock) = lock.try_lock()
            && !left.is_zero()
        {
            if !waits {
                say(
                    out,
                    directory,
                    "another install is at work here: waiting for it",
                )?;
                waits = true;
            }
            thread::sleep(PAUSE);
            left = left.saturating_sub(PAUSE);
        }
        locks.push(lock);
    }
    Ok(locks)
}
