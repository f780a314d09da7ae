//! The state directory, and the lock that reserves it for one daemon.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;
use tracing::{error, info, warn};

use crate::cannot::Cannot;
use crate::lock::{Lock, LockError};
use crate::small_file::make_directories;

/// The lock's file in the state directory.
pub(super) const FILE: &str = "leases.lock";

/// The pause between two tries for a directory that another daemon has.
const PAUSE: Duration = Duration::from_millis(100);

/// The lock on a state directory, held as long as the value lives.
///
/// redb locks its file too, but gives up the lock while it reopens the file after a failure, and does not say who holds it.
#[derive(Debug)]
pub(crate) struct DirLock {
    dir: PathBuf,
    /// `None` if there is no file and nobody can create one.
    _lock: Option<Lock>,
}

impl DirLock {
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Creates the directory (0700) if it is missing, and locks it for the daemon of a socket. An existing directory is not changed.
    ///
    /// Waits for another daemon that works there, either stopping or about to be replaced by this one, and names it. If that is the
    /// daemon of another socket, or `other` exists, which this daemon has used before, `other` is locked instead.
    pub(crate) async fn take(
        dir: &Path,
        socket: &Path,
        other: Option<&Path>,
    ) -> Result<Self, Cannot> {
        if let Some(used) = other.filter(|other| other.is_dir()) {
            return Box::pin(Self::take(used, socket, None)).await;
        }
        match make_directories(dir, 0o700) {
            // This is logged with the other faults.
            Err(error) if has_no_room(&error) => {}
            made => made.map_err(Cannot::with("create", dir))?,
        }
        let path = dir.join(FILE);
        let mut named = None;
        loop {
            match Lock::try_take(&path, &socket.display().to_string()) {
                Ok(lock) => {
                    if named.is_some() {
                        info!(state_dir = %dir.display(), "the state directory is free");
                    }
                    return Ok(Self {
                        dir: dir.to_owned(),
                        _lock: Some(lock),
                    });
                }
                Err(LockError::Held(owner, theirs))
                    if other.is_some() && !theirs.is_empty() && Path::new(&theirs) != socket =>
                {
                    let other = other.unwrap_or(dir);
                    info!(
                        state_dir = %other.display(),
                        "{} is the store of {owner}, which serves {theirs}: this daemon has a store of its own",
                        dir.display()
                    );
                    return Box::pin(Self::take(other, socket, None)).await;
                }
                Err(LockError::Held(owner, _)) => {
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
                    return Ok(Self {
                        dir: dir.to_owned(),
                        _lock: None,
                    });
                }
                Err(error) => return Err(Cannot::with("lock", &path)(error)),
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
