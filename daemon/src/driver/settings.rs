//! What the command line says.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tracing::debug;

use crate::http::{MachineId, Site};
use crate::listen::{PluginDir, ReadSocket};
use crate::log;

/// The daemon's settings from its command line.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Where to listen when systemd passes no socket.
    pub(crate) socket: PathBuf,
    /// Where Docker looks for plugins, if it should find this one.
    pub(crate) plugin_dir: Option<PluginDir>,
    /// Where monitors ask, if systemd passes no socket for them.
    pub(crate) read_socket: Option<ReadSocket>,
    /// Where Docker keeps its namespaces.
    pub(crate) docker_netns_dir: PathBuf,
    /// Where leases are kept.
    pub(crate) state_dir: PathBuf,
    /// Where leases are kept if a daemon with another socket keeps its own there.
    pub(crate) other_state_dir: Option<PathBuf>,
    /// Where the name servers of leases are published.
    pub(crate) runtime_dir: PathBuf,
    /// Where the host's root directory is.
    pub(crate) host_prefix: PathBuf,
    /// Where the process id is written.
    pub(crate) pid_file: Option<PathBuf>,
    /// Whether only containers are adopted whose networks name this daemon's socket.
    pub(crate) adopts_its_own: bool,
    /// Where libcni caches attachments.
    pub(crate) cni_caches: Vec<PathBuf>,
    /// How long an ADD may take if its network does not say.
    pub(crate) add_timeout: Duration,
    /// Whether to ask servers to answer by broadcast if a network does not say.
    pub(crate) broadcast: bool,
    /// What is logged.
    pub(crate) log: log::Filter,
}

impl Settings {
    /// Returns the settings for the state directory that was locked. A daemon that has another one than it was told has nothing in
    /// common with the daemon that has that.
    pub(super) fn in_state_dir(self, dir: &Path) -> Self {
        if self.other_state_dir.as_deref() != Some(dir) {
            return self;
        }
        let mut runtime_dir = self.runtime_dir.clone().into_os_string();
        runtime_dir.push("-");
        runtime_dir.push(dir.file_name().unwrap_or_default());
        Self {
            state_dir: dir.to_owned(),
            runtime_dir: runtime_dir.into(),
            adopts_its_own: true,
            ..self
        }
    }

    /// Returns what the front doors need to know about the host.
    pub(super) fn site(&self) -> Site {
        let path = self.host_prefix.join("etc/machine-id");
        let machine_id = fs::read_to_string(&path)
            .ok()
            .and_then(|text| MachineId::parse(&text));
        if machine_id.is_none() {
            debug!(path = %path.display(), "no machine id: refusing networks with clientId duid");
        }
        Site {
            machine_id,
            broadcast: self.broadcast,
            add_timeout: self.add_timeout,
        }
    }
}
