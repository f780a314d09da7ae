//! The state directory, and the lock that reserves it for one daemon.

use std::fs::DirBuilder;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{error, info, warn};

use super::StoreError;
use crate::lock::{Lock, LockError};

/// The lock's file in the state directory.
pub(super) const FILE: &str = "leases.lock";

/// The pause between two tries for a directory that another daemon has.
const PAUSE: Duration = Duration::from_millis(100);

/// The lock on a state directory, held as long as the value lives.
///
/// redb locks its file too, but gives up the lock while it reopens the file after a failure, and does not say who holds it.
#[derive(Debug)]
pub(crate) struct DirLock {
    /// `None` if there is no file and nobody can create one.
    _lock: Option<Lock>,
}

impl DirLock {
    /// Creates the directory (0700) if it is missing, and locks it. An existing directory is not changed.
    ///
    /// Waits for another daemon that works there, either stopping or about to be replaced by this one, and names it.
    pub(crate) async fn take(dir: &Path) -> Result<Self, StoreError> {
        match DirBuilder::new().recursive(true).mode(0o700).create(dir) {
            // This is logged with the other faults.
            Err(error) if has_no_room(&error) => {}
            made => made.map_err(|source| StoreError::Directory {
                doing: "create",
                path: dir.to_owned(),
                source,
            })?,
        }
        let path = dir.join(FILE);
        let mut named = None;
        loop {
            match Lock::try_take(&path) {
                Ok(lock) => {
                    if named.is_some() {
                        info!(state_dir = %dir.display(), "the state directory is free");
                    }
                    return Ok(Self { _lock: Some(lock) });
                }
                Err(LockError::Held(owner)) => {
                    if named.as_ref() != Some(&owner) {
                        let state_dir = dir.display();
                        warn!(
                            "state directory {state_dir} is in use by {owner}: waiting for it to exit (or choose another with --state-dir)"
                        );
                        named = Some(owner);
                    }
                    sleep(PAUSE).await;
                }
                Err(LockError::Io(error)) if has_no_room(&error) => {
                    error!(state_dir = %dir.display(), %error, "cannot lock the state directory: no file can be created there");
                    return Ok(Self { _lock: None });
                }
                Err(source) => return Err(StoreError::Lock { path, source }),
            }
        }
    }
}

/// Returns whether the only fault is a file system that is full or read-only.
fn has_no_room(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ReadOnlyFilesystem | ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}
