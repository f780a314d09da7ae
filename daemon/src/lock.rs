//! A file that one process at a time may hold, and that says which.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process;

use nix::libc;
use nix::unistd::geteuid;

use crate::owner::Owner;

/// A lock, held as long as the value lives. Its file stays: whoever removed it could not know who else has it open.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// Why a lock cannot be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    /// Another process has it, and left this note.
    #[error("{0} has it")]
    Held(Owner, String),
    /// A file that another user may open can be locked by them.
    #[error("it is not a regular file of this user: move it away")]
    Foreign,
    /// The file cannot be opened or locked.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Lock {
    /// Takes the lock at `path`, a file (0600) that is created if missing, and leaves a note of one line for whoever finds it
    /// taken. Never waits.
    ///
    /// A file that cannot be written is opened for reading, which is enough to lock it.
    pub(crate) fn try_take(path: &Path, note: &str) -> Result<Self, LockError> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags);
        let writing = options
            .clone()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path);
        let mut file = match writing {
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied
                ) =>
            {
                // The first reason is the one to report.
                options.open(path).map_err(|_| error)?
            }
            opened => opened?,
        };
        let found = file.metadata()?;
        if !found.is_file() || found.uid() != geteuid().as_raw() {
            return Err(LockError::Foreign);
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let text = fs::read_to_string(path).unwrap_or_default();
                let (pid, note) = text.split_once('\n').unwrap_or((&text, ""));
                let owner = Owner::of(pid.trim().parse().ok());
                return Err(LockError::Held(owner, note.trim_end().to_owned()));
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        // Both only serve the error above; a full disk must not prevent the start.
        let text = format!("{}\n{note}", process::id());
        let written = file
            .set_len(0)
            .and_then(|()| file.write_all(text.trim_end().as_bytes()));
        if let Err(error) = written {
            tracing::warn!(path = %path.display(), %error, "cannot write the process id to the lock file");
        }
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_lock_has_one_holder_who_is_named() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("lock");
        let held = Lock::try_take(&path, "").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let refused = Lock::try_take(&path, "").unwrap_err().to_string();
        assert!(
            refused.starts_with(&format!("process {} (", process::id())),
            "{refused}"
        );
        drop(held);
        let _held = Lock::try_take(&path, "a note").unwrap();
        let refused = Lock::try_take(&path, "");
        assert!(matches!(refused, Err(LockError::Held(_, note)) if note == "a note"));
    }

    #[test]
    fn a_lock_on_the_directory_is_nobody_s_business() {
        let dir = TempDir::new().unwrap();
        let theirs = File::open(dir.path()).unwrap();
        theirs.lock().unwrap();
        Lock::try_take(&dir.path().join("lock"), "").unwrap();
    }

    #[test]
    fn what_is_no_file_of_ours_is_refused() {
        let dir = TempDir::new().unwrap();
        let link = dir.path().join("link");
        symlink(dir.path().join("elsewhere"), &link).unwrap();
        assert!(matches!(Lock::try_take(&link, ""), Err(LockError::Io(_))));
        assert!(!dir.path().join("elsewhere").exists());
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(Lock::try_take(&fifo, ""), Err(LockError::Foreign)));
    }
}
