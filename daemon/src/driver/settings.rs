//! What the command line says.

use std::fs;
use std::path::Path;

use leasehold_api::MAX_ADD_TIMEOUT;

use crate::cli::DaemonArgs;
use crate::http::{MachineId, Site};
use crate::listen::{PluginDir, ReadSocket};
use crate::log;

/// What the command line says, and what became of it.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) args: DaemonArgs,
    /// Whether only containers are adopted whose networks name this daemon's socket.
    pub(crate) adopts_its_own: bool,
    /// What is logged.
    pub(crate) log: log::Filter,
}

impl Settings {
    /// Returns the settings for the state directory that was locked. A daemon that has another one than it was told has nothing in
    /// common with the daemon that has that.
    pub(super) fn in_state_dir(mut self, dir: &Path) -> Self {
        if self.args.other_state_dir.as_deref() == Some(dir) {
            let runtime_dir = &mut self.args.runtime_dir;
            runtime_dir.as_mut_os_string().push("-");
            let name = dir.file_name().unwrap_or_default();
            runtime_dir.as_mut_os_string().push(name);
            self.args.state_dir = dir.to_owned();
            self.adopts_its_own = true;
        }
        self
    }

    /// Returns Docker's plugin directory, if it should find this daemon.
    pub(super) fn plugin_dir(&self) -> Option<PluginDir> {
        Some(PluginDir {
            path: self.args.docker_plugin_dir.clone()?,
            requires_mac: self.args.docker_requires_mac,
        })
    }

    /// Returns the read-only socket.
    pub(super) fn read_socket(&self) -> Option<ReadSocket> {
        Some(ReadSocket {
            path: self.args.read_socket.clone()?,
            gid: self.args.read_gid,
        })
    }

    /// Returns what the front doors need to know about the host.
    pub(super) fn site(&self) -> Site {
        let path = self.args.host_prefix.join("etc/machine-id");
        let machine_id = fs::read_to_string(&path)
            .ok()
            .and_then(|text| MachineId::parse(&text));
        Site {
            machine_id,
            broadcast: self.args.broadcast,
            add_timeout: self.args.timeout.min(MAX_ADD_TIMEOUT),
        }
    }
}
