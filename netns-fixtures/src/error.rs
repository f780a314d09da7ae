//! Why a fixture failed.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether something went wrong in this run.
static WENT_WRONG: AtomicBool = AtomicBool::new(false);

/// Makes processes show their output when they are dropped: an error is on its way to a person.
pub(crate) fn something_went_wrong() {
    WENT_WRONG.store(true, Ordering::Relaxed);
}

/// Returns whether something went wrong in this run.
pub(crate) fn went_wrong() -> bool {
    WENT_WRONG.load(Ordering::Relaxed)
}

/// Why a fixture failed.
#[derive(thiserror::Error)]
pub enum Error {
    /// This process may not make namespaces.
    #[error(
        "may not make network namespaces ({0}): run as root, or inside `unshare --user --map-root-user`"
    )]
    NotAllowed(io::Error),
    /// The operating system refused.
    #[error("{doing}: {source}")]
    Io {
        /// What was tried.
        doing: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The kernel refused a netlink request.
    #[error("{doing}: {source}")]
    Netlink {
        /// What was tried.
        doing: String,
        /// The kernel's reason.
        source: rtnetlink::Error,
    },
    /// A binary of this workspace is not there.
    #[error("{} is not built: run `cargo build -p leasehold -p leasehold-shim` first", .0.display())]
    NotBuilt(PathBuf),
    /// A process ended before it did what we waited for.
    #[error("{program} ended with {status} while we waited for {awaited}; it said:\n{log}")]
    Ended {
        /// The process.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// What we waited for.
        awaited: String,
        /// Its last lines.
        log: String,
    },
    /// A deadline passed.
    #[error("no {awaited} within {waited:?}{context}")]
    TimedOut {
        /// What we waited for.
        awaited: String,
        /// How long.
        waited: Duration,
        /// What was there instead, on separate lines; may be empty.
        context: String,
    },
    /// Something did not have the expected form.
    #[error("cannot read {what}: {text}")]
    Unreadable {
        /// What it should have been.
        what: &'static str,
        /// What it was.
        text: String,
    },
    /// A plugin refused a call.
    #[error("{call}: {said}")]
    Refused {
        /// What was called.
        call: String,
        /// What it said.
        said: String,
    },
    /// A command failed.
    #[error("{command} failed with {status}: {said}")]
    Failed {
        /// The command.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// Its output.
        said: String,
    },
}

impl Error {
    /// Returns that something, which should have been `what`, did not have the expected form.
    pub fn unreadable(what: &'static str, text: impl Into<String>) -> Self {
        let text = text.into();
        Self::Unreadable { what, text }
    }

    pub(crate) fn timed_out(awaited: &str, waited: Duration, context: String) -> Self {
        something_went_wrong();
        Self::TimedOut {
            awaited: awaited.to_owned(),
            waited,
            context,
        }
    }

    /// Returns whether the kernel refused because the thing already exists.
    pub(crate) fn is_exists(&self) -> bool {
        let Self::Netlink {
            source: rtnetlink::Error::NetlinkError(message),
            ..
        } = self
        else {
            return false;
        };
        message.to_io().kind() == io::ErrorKind::AlreadyExists
    }
}

/// As [`Display`](fmt::Display): this is how a test's error is printed, for a person to read.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Adds what was being done to a system error.
pub(crate) trait Doing<T> {
    /// Names the thing that failed.
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Io {
            doing: doing(),
            source,
        })
    }
}

impl<T> Doing<T> for nix::Result<T> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|errno| Error::Io {
            doing: doing(),
            source: errno.into(),
        })
    }
}

impl<T> Doing<T> for Result<T, rtnetlink::Error> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Netlink {
            doing: doing(),
            source,
        })
    }
}
