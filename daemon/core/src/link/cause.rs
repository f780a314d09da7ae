//! Why the shell could not do something at a link.

use std::fmt;
use std::path::PathBuf;

use crate::wire::Mac;

/// Why something could not be done at a link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkCause {
    /// The path's directory is there, but nothing is at the path.
    #[error("no network namespace at {0}")]
    NoNetns(PathBuf),
    /// Nothing is at the path any more, but its directory shows other namespaces: this one is gone.
    #[error("no network namespace at {0} any more")]
    NetnsRemoved(PathBuf),
    /// The path's directory is missing too: the creator of the namespace may see another file system.
    #[error("no directory for {0}: does the daemon see it there, and is --host-prefix right?")]
    NoDirectory(PathBuf),
    /// Something else is at the path.
    #[error("{0} is not a network namespace")]
    NotANetns(PathBuf),
    /// An empty file is at the path, the kind that namespaces are mounted on: the daemon does not see the mount.
    #[error(
        "{0} is an empty file here, with no network namespace mounted on it: a daemon in a container needs that directory with \
         mount propagation (Kubernetes: mountPropagation: HostToContainer; Docker: rslave; on the host: mount --make-shared)"
    )]
    NotMounted(PathBuf),
    /// No path leads to the namespace any more, but the kernel still knows it, with the link in it.
    #[error(
        "no path leads to the network namespace that was at {0}, which is still alive: its file was \
         unmounted, renamed or removed"
    )]
    NoPath(PathBuf),
    /// The path leads to the namespace that the daemon itself runs in.
    #[error("{0} is the host's own network namespace")]
    HostNetns(PathBuf),
    /// The path now leads to another namespace.
    #[error("{0} now leads to another network namespace")]
    NetnsChanged(PathBuf),
    /// No such interface in the namespace.
    #[error("no interface {0}")]
    NoLink(String),
    /// The interface has no Ethernet address of six bytes.
    #[error("interface {0} has no Ethernet address")]
    NotEthernet(String),
    /// The interface is administratively down.
    #[error("the interface is down")]
    Down,
    /// Another link on the same parent has its Ethernet address, and is up.
    #[error("another interface on the same parent has the Ethernet address {0}")]
    MacTaken(Mac),
    /// The kernel refused.
    #[error("{doing}: {reason}")]
    Refused {
        /// What was tried: `open a packet socket`, `set the MTU`.
        doing: &'static str,
        /// The kernel's reason.
        reason: String,
    },
    /// No file descriptor is left, here or on the host.
    #[error(
        "{doing}: {reason}: the limit of open files is reached (LimitNOFILE= in the unit, fs.file-max)"
    )]
    NoDescriptor {
        /// What it was needed for.
        doing: &'static str,
        /// The kernel's reason.
        reason: String,
    },
    /// The shell's own limit passed.
    #[error("no result within the time limit")]
    TimedOut,
}

impl LinkCause {
    /// Returns that something was tried and refused.
    pub fn refused(doing: &'static str, reason: impl fmt::Display) -> Self {
        Self::Refused {
            doing,
            reason: reason.to_string(),
        }
    }

    /// Returns whether the link no longer exists, so that nothing tried there again can succeed. If its namespace is missing, that
    /// holds only if the daemon sees the rest of the directory.
    pub fn is_gone(&self) -> bool {
        self.is_missing() || matches!(self, Self::NoLink(_) | Self::NetnsRemoved(_))
    }

    /// Returns whether the path no longer leads to the namespace: it is gone, or this daemon sees another file system.
    pub fn is_missing(&self) -> bool {
        // The file on which it was mounted, which is there without it, proves nothing: it may be mounted where this daemon does not see
        // that.
        matches!(self, Self::NoNetns(_) | Self::NetnsChanged(_))
    }

    /// Returns whether the namespace was not seen, for any reason: it may be gone, or out of sight.
    pub fn is_unseen(&self) -> bool {
        self.is_missing()
            || matches!(
                self,
                Self::NoDirectory(_) | Self::NotANetns(_) | Self::NotMounted(_) | Self::NoPath(_)
            )
    }
}
