//! Podman with its CNI backend, which Debian 12 has. It has no daemon.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::{Engine, prepare, write};
use crate::cgroup;
use crate::error::Error;
use crate::need::Need;
use crate::netns::{Netns, printed};

/// Podman in a host's namespace.
#[derive(Debug)]
pub struct Podman {
    host: Netns,
    dir: PathBuf,
    network: String,
    /// Its containers' cgroup from the root of all cgroups, which a sandbox does not hide.
    cgroup: String,
}

impl Engine for Podman {
    /// Root, and Debian's `podman`, `runc`, `containernetworking-plugins` and `busybox-static`.
    const NEEDS: &[Need] = &[
        Need::RealRoot,
        Need::Program("podman"),
        Need::Program("runc"),
        Need::StaticProgram("busybox"),
        Need::File("/usr/lib/cni/macvlan"),
    ];

    fn start_on(host: &Netns, network: &Value) -> Result<Self, Error> {
        let dir = prepare(host, "podman", network)?;
        // Not every host has a controller to limit processes.
        let config = "[network]\nnetwork_backend = 'cni'\ncni_plugin_dirs = ['/usr/lib/cni']\n[containers]\npids_limit = 0\n\
                      [engine]\ncgroup_manager = 'cgroupfs'\nevents_logger = 'file'\nruntime = 'runc'\n";
        write(&dir.join("containers.conf"), config.to_owned())?;
        let network = network["name"].as_str().unwrap_or_default().to_owned();
        let cgroup = format!("/leasehold-{}", host.sandbox().keeper());
        let podman = Self {
            host: host.clone(),
            dir,
            network,
            cgroup,
        };
        let dir = podman.dir.display();
        host.sh(&format!("tar -C {dir}/rootfs -cf {dir}/image.tar ."))?;
        let image = format!("{dir}/image.tar");
        podman.podman(&["import", &image, "busybox:latest"])?;
        Ok(podman)
    }

    fn run(&self, id: &str, command: &[&str]) -> Result<String, Error> {
        self.container(&["--rm", "--name", id], command)
    }
}

impl Podman {
    /// Starts a container that runs until it is removed, and returns its id.
    pub fn keep(&self, name: &str) -> Result<String, Error> {
        Ok(self
            .container(&["--detach", "--name", name], &["sleep", "1000000"])?
            .trim()
            .to_owned())
    }

    /// Starts a container again, under the same id.
    pub fn restart(&self, name: &str) -> Result<(), Error> {
        self.podman(&["restart", "--time", "0", name]).map(drop)
    }

    /// Runs a busybox command in a running container, and returns what it printed.
    pub fn exec(&self, name: &str, command: &[&str]) -> Result<String, Error> {
        self.podman(&[&["exec", name, "/bin/busybox"], command].concat())
    }

    /// Ends a container.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        self.podman(&["rm", "--force", "--time", "0", name])
            .map(drop)
    }

    fn container(&self, how: &[&str], command: &[&str]) -> Result<String, Error> {
        // Its own limits are higher than a container without CAP_SYS_RESOURCE may ask for.
        let limits = "run --ulimit nofile=1024:1024 --ulimit nproc=1024:1024";
        let limits: Vec<_> = limits.split(' ').collect();
        let groups = ["--cgroups", "no-conmon", "--cgroup-parent", &self.cgroup];
        let network = ["--network", &self.network];
        let image = ["localhost/busybox:latest", "/bin/busybox"];
        self.podman(&[&limits, how, &groups, &network, &image, command].concat())
    }

    fn podman(&self, args: &[&str]) -> Result<String, Error> {
        let mut command = Command::new("podman");
        for (flag, dir) in [
            ("--root", "root"),
            ("--runroot", "runroot"),
            ("--tmpdir", "tmp"),
        ] {
            command.arg(flag).arg(self.dir.join(dir));
        }
        command
            .args(["--storage-driver", "vfs"])
            .args(args)
            .env("CONTAINERS_CONF", self.dir.join("containers.conf"));
        printed("podman", args, &self.host.output(command, b"")?)
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        // A group in use stays, and most controllers have none.
        cgroup::remove(self.cgroup.trim_start_matches('/'));
    }
}
