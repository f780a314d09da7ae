//! What keeps the files from being read or changed.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use leasehold_api::cni::{Code, Error};

/// A file or directory that cannot be used.
#[derive(Debug)]
pub struct Fault {
    /// Which one.
    pub path: PathBuf,
    /// Why not.
    pub error: io::Error,
}

impl Fault {
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |error| Self { path, error }
    }

    /// Returns CNI's error. Room may be made, so that the next try succeeds.
    pub(crate) fn error(&self) -> Error {
        let code = match self.error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Code::TryAgainLater,
            _ => Code::Io,
        };
        Error::new(code, self.to_string())
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.error)
    }
}
