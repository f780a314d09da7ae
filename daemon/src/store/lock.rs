//! The state directory, and the lock that makes it one daemon's.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use super::StoreError;
use crate::owner::Owner;

/// The lock on a state directory, held as long as the value lives.
///
/// redb locks its file too, but gives the lock up while the file is reopened after a failure, and does not say who
/// holds it.
pub(super) struct DirLock {
    _file: File,
}

impl DirLock {
    /// Makes the directory (0700) if it is missing, and locks it. An existing directory is not changed.
    pub(super) fn take(dir: &Path) -> Result<Self, StoreError> {
        let failed = |doing, path: &Path| {
            let path = path.to_owned();
            move |source: io::Error| StoreError::Directory { doing, path, source }
        };
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed("create", dir))?;
        let path = dir.join("leases.lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let pid = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
                return Err(StoreError::Held { dir: dir.to_owned(), owner: Owner::of(pid) });
            }
            Err(TryLockError::Error(source)) => return Err(failed("lock", &path)(source)),
        }
        // The number only serves the error above. A full disk must not keep the daemon from starting.
        let note = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        if let Err(error) = note {
            tracing::warn!(path = %path.display(), %error, "process id not written to the lock file");
        }
        Ok(Self { _file: file })
    }
}
