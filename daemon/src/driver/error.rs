//! Why the daemon does not run.

use std::path::PathBuf;

use crate::cannot::Cannot;
use crate::listen::ListenError;
use crate::store::StoreError;

/// Why the daemon does not run, or stopped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The host's root is not a directory.
    #[error("--host-prefix {} is not a directory: mount the host's root directory there, or say where it is", .0.display())]
    HostPrefix(PathBuf),
    /// There is no socket to listen on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// One of the daemon's own tasks ended, which is a bug.
    #[error("{0} ended: this is a bug; see the log above")]
    Ended(&'static str),
    /// The kernel refused something else.
    #[error(transparent)]
    Cannot(#[from] Cannot),
}
