//! The facts about this host. This module looks and judges nothing; `checks` judges and looks at nothing.
//!
//! Whatever may hang has a time limit.

pub(super) mod daemon;
pub(super) mod docker;
pub(super) mod files;
pub(super) mod networks;
pub(super) mod plugins;
pub(super) mod processes;

use std::path::PathBuf;

use leasehold_api::control::Bindings;
use leasehold_core::silence::Firewall;
use leasehold_host_local::Usage;

use crate::cli::client::ClientError;
use crate::cli::networks::Network;
use crate::net::LinkState;

/// The kernel, and what the daemon may do with it.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) release: String,
    /// The effective capabilities of the daemon, or of this process.
    pub(super) capabilities: u64,
    /// The daemon's process, if it runs.
    pub(super) daemon: Option<u32>,
}

/// What is at a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) mode: u32,
    pub(super) owner: u32,
    pub(super) is_socket: bool,
}

impl Standing {
    /// Returns whether users other than root may read or write it.
    pub(super) fn is_open_to_others(self) -> bool {
        self.owner != 0 || self.mode & 0o077 != 0
    }

    /// Returns whether users other than root may write to it.
    pub(super) fn is_writable_by_others(self) -> bool {
        self.owner != 0 || self.mode & 0o022 != 0
    }
}

/// The daemon's socket.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) path: PathBuf,
    pub(super) found: Option<Standing>,
    pub(super) directory: Option<Standing>,
    /// The daemon's leases, or why there is no answer.
    pub(super) answer: Result<Bindings, ClientError>,
    /// The process behind it, as far as it can be seen from here.
    pub(super) process: Option<u32>,
}

/// One of the daemon's directories.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    pub(super) found: Option<Standing>,
    pub(super) room: Option<Room>,
}

/// The room on a file system.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) read_only: bool,
    /// In bytes.
    pub(super) free: u64,
    /// How many more files there may be.
    pub(super) files: u64,
}

/// A directory in which a runtime may look for CNI plugins.
#[derive(Debug)]
pub(super) struct PluginDirectory {
    pub(super) path: PathBuf,
    pub(super) dhcp: Plugin,
    /// Whether our shim is there as `host-local` too.
    pub(super) has_our_host_local: bool,
}

/// What is there under the name `dhcp`.
#[derive(Clone, Debug)]
pub(super) enum Plugin {
    None,
    /// Our shim, of this version.
    Ours(String),
    Foreign,
}

/// The CNI networks of the host.
#[derive(Debug, Default)]
pub(super) struct NetworksFacts {
    pub(super) directory: PathBuf,
    /// Why the directory cannot be read.
    pub(super) unread_directory: Option<String>,
    pub(super) unread: Vec<(PathBuf, String)>,
    pub(super) ours: Vec<NetworkFacts>,
    /// The networks of the plugin host-local for which our shim refuses an ADD: their files, names and why.
    pub(super) refused_host_local: Vec<(PathBuf, String, String)>,
    /// The networks with local ranges; empty for another user than root, who may not see who has what.
    pub(super) local: Vec<LocalFacts>,
    /// What iptables does with a bridge's traffic.
    pub(super) firewall: Firewall,
}

/// A network whose addresses come from us, and the state of the host's link that it names.
#[derive(Debug)]
pub(super) struct NetworkFacts {
    pub(super) network: Network,
    pub(super) state: LinkState,
    pub(super) wireless: bool,
}

/// A network whose addresses come from local ranges.
#[derive(Debug)]
pub(super) struct LocalFacts {
    pub(super) name: String,
    pub(super) directory: PathBuf,
    /// How much of each range set is taken, and how many files say nothing; or why that cannot be told.
    pub(super) found: Result<(Vec<Usage>, usize), String>,
}

/// What dockerd finds on this host.
#[derive(Debug)]
pub(super) struct Docker {
    /// Where our drivers are offered, if they are.
    pub(super) plugin_dir: Option<PathBuf>,
    /// All sockets of plugins.
    pub(super) sockets: Vec<(PathBuf, Listener)>,
    /// Where the daemon looks for the namespaces of Docker's containers.
    pub(super) netns_dir: PathBuf,
    /// Whether dockerd runs, and the daemon does not serve it.
    pub(super) is_unserved: bool,
    /// dockerd's `exec-root`, if dockerd runs.
    pub(super) exec_root: Option<PathBuf>,
}

/// Who is at a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listener {
    Answers,
    Nobody,
    Silent,
}
