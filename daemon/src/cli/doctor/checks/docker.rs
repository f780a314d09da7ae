//! What dockerd finds: plugins' sockets, and the place where it keeps its containers' namespaces.

use crate::cli::doctor::facts::{Docker, Listener};
use crate::cli::doctor::finding::Finding;

pub(in crate::cli::doctor) fn docker(docker: &Docker) -> Vec<Finding> {
    docker
        .sockets
        .iter()
        .filter_map(|(path, listener)| {
            let path = path.display();
            match listener {
                Listener::Answers => None,
                Listener::Nobody => Some(Finding::warning(
                    "Docker plugin",
                    format!("nobody listens at {path}"),
                    format!("start its plugin, or rm {path}: dockerd asks there, for up to half a minute each time"),
                )),
                Listener::Silent => Some(Finding::failure(
                    "Docker plugin",
                    format!("{path} accepts calls, but nobody answers: dockerd waits for it, even while it starts"),
                    format!("restart its plugin, or rm {path}"),
                )),
            }
        })
        .chain(ours(docker))
        .chain(unserved(docker))
        .chain(exec_root(docker))
        .collect()
}

/// Docker may run without ours on purpose, but whoever serves it without success should hear about it.
fn unserved(docker: &Docker) -> Option<Finding> {
    docker.is_unserved.then(|| {
        Finding::warning(
            "Docker plugin",
            "Docker runs here, and leasehold does not serve it",
            "if its containers are to have addresses of the LAN: echo \
             LEASEHOLD_DOCKER_PLUGIN_DIR=/run/docker/plugins >> /etc/default/leasehold && systemctl restart leasehold.service",
        )
    })
}

/// Checks whether dockerd finds our own drivers.
fn ours(docker: &Docker) -> Option<Finding> {
    let directory = docker.plugin_dir.as_ref()?;
    let path = directory.join("leasehold.sock");
    let answers = docker
        .sockets
        .iter()
        .any(|(socket, listener)| *socket == path && *listener == Listener::Answers);
    let is_there = docker.sockets.iter().any(|(socket, _)| *socket == path);
    match (answers, is_there) {
        (true, _) => Some(Finding::ok(
            "Docker plugin",
            format!("the drivers at {} answer", path.display()),
        )),
        (false, true) => None,
        (false, false) => Some(Finding::failure(
            "Docker plugin",
            format!("there is no {}", path.display()),
            "systemctl restart leasehold.service; its log says why it cannot bind there",
        )),
    }
}

/// Checks whether the daemon looks for Docker's containers where dockerd puts them.
fn exec_root(docker: &Docker) -> Option<Finding> {
    docker.plugin_dir.as_ref()?;
    let kept = docker.exec_root.as_ref()?.join("netns");
    let looked = &docker.netns_dir;
    // /var/run is /run on most hosts.
    let plain = |path: &std::path::Path| {
        path.strip_prefix("/var")
            .map_or(path.to_owned(), |rest| std::path::Path::new("/").join(rest))
    };
    if plain(&kept) == plain(looked) {
        return Some(Finding::ok(
            "Docker's namespaces",
            format!("dockerd keeps them in {}", looked.display()),
        ));
    }
    let found = format!(
        "dockerd keeps them in {}, and the daemon looks in {}",
        kept.display(),
        looked.display()
    );
    Some(Finding::failure(
        "Docker's namespaces",
        found,
        format!("set LEASEHOLD_DOCKER_NETNS_DIR={}", kept.display()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::finding::Level;

    fn unasked(is_unserved: bool) -> Docker {
        Docker {
            plugin_dir: None,
            sockets: Vec::new(),
            netns_dir: "/run/docker/netns".into(),
            is_unserved,
            exec_root: Some("/var/run/docker".into()),
        }
    }

    /// The faults of a daemon that serves it are in `daemon/tests/daemon/doctor.rs`.
    #[test]
    fn a_docker_that_nobody_serves_is_told() {
        assert_eq!(docker(&unasked(false)), []);
        let unserved = docker(&unasked(true));
        assert!(
            unserved.len() == 1 && unserved[0].found.starts_with("Docker runs here"),
            "{unserved:?}"
        );
    }

    #[test]
    fn a_directory_may_have_both_names_of_run() {
        let served = Docker {
            plugin_dir: Some("/run/docker/plugins".into()),
            ..unasked(false)
        };
        assert_eq!(exec_root(&served).unwrap().level, Level::Ok);
    }
}
