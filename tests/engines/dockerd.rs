//! Docker itself, without us.

use std::fs;
use std::path::{Path, PathBuf};

use netns_fixtures::{Debian13, Dockerd, Error, Lan, sandbox};

/// A network with Docker's own addresses: a container reaches the LAN before and after dockerd's end.
#[test]
fn docker_runs_containers_on_the_lan_and_leaves_nothing() -> Result<(), Error> {
    let sandbox = sandbox!(Dockerd::NEEDS);
    let lan = Lan::new(&sandbox)?;
    let before = mounts();
    let mut docker = Dockerd::start(&lan.host)?;
    let (subnet, server) = (Lan::SUBNET.to_string(), Lan::SERVER.to_string());
    let parent = format!("parent={}", Lan::IFNAME);
    docker.docker(&[
        "network", "create", "-d", "macvlan", "-o", &parent, "--subnet", &subnet, "lan",
    ])?;
    let ping = ["ping", "-c", "1", "-W", "10", &server];
    let printed = docker.run(&["--network", "lan", "--ip", "10.7.9.9"], &ping)?;
    assert!(printed.contains("1 packets received"), "{printed}");

    docker.keep("stays", &["--network", "lan", "--restart", "always"])?;
    docker.kill9()?;
    docker.launch(&["--live-restore"])?;
    docker.exec("stays", &ping)?;
    let first_process = docker.docker(&["inspect", "--format", "{{.State.Pid}}", "stays"])?;
    docker.stop()?;
    docker.launch(&["--live-restore"])?;
    assert_eq!(
        docker.docker(&["inspect", "--format", "{{.State.Pid}}", "stays"])?,
        first_process,
        "it went on"
    );
    docker.stop()?;
    docker.launch(&[])?;
    docker.stop()?;
    docker.launch(&[])?;
    assert_ne!(
        docker.docker(&["inspect", "--format", "{{.State.Pid}}", "stays"])?,
        first_process,
        "it was restarted"
    );
    docker.exec("stays", &ping)?;

    let group = docker.cgroup().trim_start_matches('/').to_owned();
    assert!(!groups(&group).is_empty());
    assert_ne!(mounts(), before);
    drop(docker);
    assert_eq!(mounts(), before);
    assert!(groups(&group).is_empty(), "{:?}", groups(&group));
    assert!(!Path::new("/run/docker").exists());
    Ok(())
}

#[test]
fn debian_13_brings_its_own_docker_and_compose() -> Result<(), Error> {
    let sandbox = sandbox!(&[Dockerd::NEEDS, &[Debian13::NEED]].concat());
    let lan = Lan::new(&sandbox)?;
    let host = Debian13::host(&lan.host)?;
    let docker = Dockerd::start(&host)?;
    let version = docker.docker(&["version", "--format", "{{.Server.Version}}"])?;
    assert!(version.starts_with("26.1."), "{version}");
    let version = docker.compose("", &["version", "--short"])?;
    assert!(version.starts_with("2.26."), "{version}");
    let printed = docker.run(&["--network", "none"], &["echo", "it runs"])?;
    assert_eq!(printed.trim(), "it runs");
    host.run_command("touch", &["/etc/written"], "")
        .expect_err("all tests share its files");
    Ok(())
}

fn mounts() -> String {
    fs::read_to_string("/proc/thread-self/mounts").expect("every process has mounts")
}

/// Returns the control groups with that name: one in version 2, one for each controller in version 1.
fn groups(name: &str) -> Vec<PathBuf> {
    let controllers = fs::read_dir("/sys/fs/cgroup")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    controllers
        .chain([PathBuf::from("/sys/fs/cgroup")])
        .map(|dir| dir.join(name))
        .filter(|dir| dir.exists())
        .collect()
}
