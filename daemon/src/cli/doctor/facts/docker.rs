//! What dockerd finds on this host.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::daemon::PATIENCE;
use super::processes::{self, Process};
use super::{Docker, Listener};
use crate::cli::args::DoctorArgs;
use crate::cli::client::{ClientError, get_within};
use crate::cli::install;

/// Where dockerd looks for plugins.
const PLUGINS: &str = "/run/docker/plugins";
/// dockerd's configuration.
const CONFIGURATION: &str = "/etc/docker/daemon.json";
/// dockerd's own default.
const EXEC_ROOT: &str = "/var/run/docker";

pub(in crate::cli::doctor) fn docker(args: &DoctorArgs, processes: &[Process]) -> Docker {
    let directory = args
        .docker_plugin_dir
        .clone()
        .unwrap_or_else(|| PLUGINS.into());
    let exec_root = processes::exec_root(processes);
    Docker {
        plugin_dir: args.docker_plugin_dir.clone(),
        sockets: sockets(&directory)
            .into_iter()
            .map(|path| (path.clone(), listener(&path)))
            .collect(),
        netns_dir: args.docker_netns_dir.clone(),
        is_unserved: args.docker_plugin_dir.is_none()
            && (exec_root.is_some() || install::docker::listens()),
        exec_root: exec_root
            .map(|said| said.or_else(configured).unwrap_or_else(|| EXEC_ROOT.into())),
    }
}

fn sockets(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut sockets: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "sock"))
        .collect();
    sockets.sort();
    sockets
}

/// Asks anything: whatever comes back, it is an answer.
fn listener(path: &Path) -> Listener {
    match get_within(path, "/", PATIENCE) {
        Err(ClientError::NoDaemon(_)) => Listener::Nobody,
        Err(ClientError::Io { .. }) => Listener::Silent,
        _ => Listener::Answers,
    }
}

/// Returns the `exec-root` of dockerd's configuration.
fn configured() -> Option<PathBuf> {
    let configuration: Value =
        serde_json::from_str(&fs::read_to_string(CONFIGURATION).ok()?).ok()?;
    configuration["exec-root"].as_str().map(PathBuf::from)
}
