//! What keeps the files from being read or changed.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use leasehold_api::cni::{Code, Error};

/// A file or directory that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.display())]
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
}

/// Room may be made, so that the next try succeeds.
impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        let code = match fault.error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Code::TryAgainLater,
            _ => Code::Io,
        };
        Self::new(code, fault.to_string())
    }
}
