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
    use std::path::PathBuf;

    use super::*;
    use crate::cli::doctor::finding::Level;

    fn served(listener: Listener) -> Docker {
        Docker {
            plugin_dir: Some("/run/docker/plugins".into()),
            sockets: vec![("/run/docker/plugins/leasehold.sock".into(), listener)],
            netns_dir: "/run/docker/netns".into(),
            is_unserved: false,
            exec_root: None,
        }
    }

    #[test]
    fn a_plugin_that_does_not_answer_is_worse_than_none() {
        for (listener, level) in [
            (Listener::Answers, Level::Ok),
            (Listener::Nobody, Level::Warning),
            (Listener::Silent, Level::Failure),
        ] {
            assert_eq!(
                docker(&served(listener))
                    .iter()
                    .map(|found| found.level)
                    .collect::<Vec<_>>(),
                [level]
            );
        }
        assert_eq!(
            docker(&Docker {
                sockets: Vec::new(),
                ..served(Listener::Answers)
            })[0]
                .level,
            Level::Failure
        );
        assert_eq!(
            docker(&Docker {
                plugin_dir: None,
                sockets: Vec::new(),
                ..served(Listener::Answers)
            }),
            []
        );
        let unserved = docker(&Docker {
            plugin_dir: None,
            sockets: Vec::new(),
            is_unserved: true,
            ..served(Listener::Answers)
        });
        assert!(
            unserved.len() == 1 && unserved[0].found.starts_with("Docker runs here"),
            "{unserved:?}"
        );
    }

    #[test]
    fn namespaces_are_looked_for_where_dockerd_keeps_them() {
        for (root, level) in [
            ("/var/run/docker", Level::Ok),
            ("/run/docker", Level::Ok),
            ("/mnt/run", Level::Failure),
        ] {
            let facts = Docker {
                exec_root: Some(PathBuf::from(root)),
                ..served(Listener::Answers)
            };
            assert_eq!(exec_root(&facts).unwrap().level, level, "{root}");
        }
    }
}
