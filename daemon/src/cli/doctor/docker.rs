//! What dockerd finds: plugins' sockets, and the place where it keeps its containers' namespaces.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::finding::Finding;
use super::processes::{self, Process};
use super::socket::PATIENCE;
use crate::cli::args::DoctorArgs;
use crate::cli::client::{ClientError, get_within};
use crate::cli::install;

/// The name of these checks.
const PLUGIN: &str = "Docker plugin";

/// Where dockerd looks for plugins.
const PLUGINS: &str = "/run/docker/plugins";
/// dockerd's configuration.
const CONFIGURATION: &str = "/etc/docker/daemon.json";
/// dockerd's own default.
const EXEC_ROOT: &str = "/var/run/docker";

pub(super) fn docker(args: &DoctorArgs, processes: &[Process]) -> Vec<Finding> {
    let served = args.docker_plugin_dir.as_deref();
    let own = served.map(|directory| directory.join("leasehold.sock"));
    let mut findings = Vec::new();
    let mut ours = None;
    for path in sockets(served.unwrap_or(Path::new(PLUGINS))) {
        let fault = fault(&path);
        if own.as_ref() == Some(&path) {
            ours = Some(fault.is_none());
        }
        findings.extend(fault);
    }
    let exec_root = processes::exec_root(processes);
    let Some(path) = own else {
        let runs = exec_root.is_some() || install::docker::listens();
        findings.extend(runs.then(unserved));
        return findings;
    };
    let path = path.display();
    match ours {
        Some(true) => {
            findings.push(Finding::ok(PLUGIN, format!("the drivers at {path} answer")));
        }
        Some(false) => {}
        None => findings.push(Finding::failure(
            PLUGIN,
            format!("there is no {path}"),
            "systemctl restart leasehold.service; its log says why it cannot bind there",
        )),
    }
    findings.extend(exec_root.map(|said| {
        let root = said.or_else(configured).unwrap_or_else(|| EXEC_ROOT.into());
        namespaces(&root.join("netns"), &args.docker_netns_dir)
    }));
    findings
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

/// Asks anything at a plugin's socket: whatever comes back, it is an answer.
fn fault(path: &Path) -> Option<Finding> {
    let asked = get_within(path, "/", PATIENCE);
    let path = path.display();
    match asked {
        Err(ClientError::NoDaemon(_)) => Some(Finding::warning(
            PLUGIN,
            format!("nobody listens at {path}"),
            format!(
                "start its plugin, or rm {path}: dockerd asks there, for up to half a minute each time"
            ),
        )),
        Err(ClientError::Io { .. }) => Some(Finding::failure(
            PLUGIN,
            format!(
                "{path} accepts calls, but nobody answers: dockerd waits for it, even while it starts"
            ),
            format!("restart its plugin, or rm {path}"),
        )),
        _ => None,
    }
}

/// Docker may run without ours on purpose, but whoever serves it without success should hear about it.
fn unserved() -> Finding {
    Finding::warning(
        PLUGIN,
        "Docker runs here, and leasehold does not serve it",
        "if its containers are to have addresses of the LAN: echo \
         LEASEHOLD_DOCKER_PLUGIN_DIR=/run/docker/plugins >> /etc/default/leasehold && systemctl restart leasehold.service",
    )
}

/// Returns the `exec-root` of dockerd's configuration.
fn configured() -> Option<PathBuf> {
    let configuration: Value =
        serde_json::from_str(&fs::read_to_string(CONFIGURATION).ok()?).ok()?;
    configuration["exec-root"].as_str().map(PathBuf::from)
}

/// Checks whether the daemon looks for Docker's containers where dockerd puts them.
fn namespaces(kept: &Path, looked: &Path) -> Finding {
    const CHECK: &str = "Docker's namespaces";
    // /var/run is /run on most hosts.
    let plain = |path: &Path| {
        path.strip_prefix("/var")
            .map_or(path.to_owned(), |rest| Path::new("/").join(rest))
    };
    let (kept_in, looked_in) = (kept.display(), looked.display());
    if plain(kept) == plain(looked) {
        return Finding::ok(CHECK, format!("dockerd keeps them in {looked_in}"));
    }
    let found = format!("dockerd keeps them in {kept_in}, and the daemon looks in {looked_in}");
    Finding::failure(
        CHECK,
        found,
        format!("set LEASEHOLD_DOCKER_NETNS_DIR={kept_in}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::finding::Level;

    #[test]
    fn a_directory_may_have_both_names_of_run() {
        let found = namespaces(
            Path::new("/var/run/docker/netns"),
            Path::new("/run/docker/netns"),
        );
        assert_eq!(found.level, Level::Ok);
    }
}
