//! Where the file is, and how its contents survive if somebody deletes it or its directory while the daemon runs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::lock::FILE as LOCK;
use crate::cannot::Cannot;
use crate::lock::Lock;
use crate::small_file::make_directories;

/// The file, and whether its name is still its own.
pub(super) struct OnDisk {
    /// The file itself, whatever its name now: `None` if there was none.
    file: Option<File>,
    /// The lock on a directory that was created again.
    lock: Option<Lock>,
}

impl OnDisk {
    /// Returns the file that is at `path` now.
    pub(super) fn of(path: &Path) -> Self {
        Self {
            file: File::open(path).ok(),
            lock: None,
        }
    }

    /// Returns whether the file is still the one at `path`. If that cannot be found out, it counts as the same.
    pub(super) fn is_of(&self, path: &Path) -> bool {
        let Some(Ok(ours)) = self.file.as_ref().map(File::metadata) else {
            return true;
        };
        match fs::metadata(path) {
            Ok(found) => (found.dev(), found.ino()) == (ours.dev(), ours.ino()),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Writes the file to `path` again, and sets aside any other file there. The database must be closed.
    pub(super) fn put_back(&mut self, path: &Path) -> Result<(), Cannot> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let dir = path.parent().expect("the file was joined to its directory");
        make_directories(dir, 0o700).map_err(Cannot::with("create", dir))?;
        let lock = dir.join(LOCK);
        // A lock file that is still there is this daemon's.
        if !lock.exists() {
            self.lock = Some(Lock::try_take(&lock, "").map_err(Cannot::with("lock", &lock))?);
        }
        if path.exists() {
            let kept = set_aside(path)?;
            tracing::error!(kept = %kept.display(), "the file in the lease file's place is set aside");
        }
        let new = path.with_extension("redb.new");
        let mut copied = || -> io::Result<()> {
            let mut copy = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&new)?;
            file.rewind()?;
            io::copy(file, &mut copy)?;
            copy.sync_all()?;
            fs::rename(&new, path)
        };
        copied().map_err(Cannot::with("write", &new))?;
        sync_dir(path)?;
        self.file = File::open(path).ok();
        Ok(())
    }
}

/// Renames the file to an unused name that says what it is.
pub(super) fn set_aside(path: &Path) -> Result<PathBuf, Cannot> {
    let seconds = unix_seconds();
    let aside = (seconds..)
        .map(|n| path.with_extension(format!("redb.damaged-{n}")))
        .find(|name| !name.exists())
        .expect("a directory holds fewer names than there are numbers");
    fs::rename(path, &aside).map_err(Cannot::with("set aside", path))?;
    sync_dir(path)?;
    Ok(aside)
}

/// Makes the names in the file's directory durable.
pub(super) fn sync_dir(path: &Path) -> Result<(), Cannot> {
    let dir = path.parent().expect("the file was joined to its directory");
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(Cannot::with("sync", dir))
}

/// Returns the time of day, in seconds since 1970.
pub(super) fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
