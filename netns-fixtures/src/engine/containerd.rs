//! containerd, whose client `ctr run --cni` calls CNI plugins as an engine does.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{Engine, prepare, write};
use crate::error::Error;
use crate::need::Need;
use crate::netns::Netns;
use crate::process::Process;

/// containerd in a host's namespace.
#[derive(Debug)]
pub struct Containerd {
    host: Netns,
    dir: PathBuf,
    process: Process,
}

impl Engine for Containerd {
    /// Root, and Debian's `containerd`, `containernetworking-plugins` and `busybox-static`.
    const NEEDS: &[Need] = &[
        Need::RealRoot,
        Need::Program("containerd"),
        Need::Program("ctr"),
        Need::StaticProgram("busybox"),
        Need::File("/usr/lib/cni/macvlan"),
    ];

    fn start_on(host: &Netns, network: &Value) -> Result<Self, Error> {
        let dir = prepare(host, "containerd", network)?;
        let config = dir.join("config.toml");
        let text = format!(
            "version = 2\nroot = '{0}/root'\nstate = '{0}/state'\ndisabled_plugins = ['io.containerd.grpc.v1.cri']\n\
             [grpc]\naddress = '{0}/sock'\n",
            dir.display()
        );
        write(&config, text)?;
        let mut command = Command::new("containerd");
        command.arg("--config").arg(&config);
        let mut process = Process::start(host, "containerd", command)?;
        process.wait_for_line("containerd successfully booted")?;
        Ok(Self {
            host: host.clone(),
            dir,
            process,
        })
    }

    fn run(&self, id: &str, command: &[&str]) -> Result<String, Error> {
        self.container("--rm", id, command)
    }
}

impl Containerd {
    /// Takes an image from a file, and returns its name.
    pub fn import(&self, file: &Path) -> Result<String, Error> {
        let said = self.ctr(&["images", "import", &file.to_string_lossy()])?;
        // `unpacking NAME (DIGEST)...done`
        let name = said.split_whitespace().nth(1).unwrap_or_default();
        Ok(name.to_owned())
    }

    /// Starts a container that runs until containerd ends.
    pub fn keep(&self, id: &str) -> Result<(), Error> {
        self.container("--detach", id, &["sleep", "1000000"])
            .map(drop)
    }

    /// Runs a busybox command in a running container, and returns what it printed.
    pub fn exec(&self, id: &str, command: &[&str]) -> Result<String, Error> {
        let (id, exec) = (self.unique(id), ["task", "exec", "--exec-id", "exec"]);
        self.ctr(&[&exec[..], &[&id, "/bin/busybox"], command].concat())
    }

    fn container(&self, how: &str, id: &str, command: &[&str]) -> Result<String, Error> {
        let (id, root) = (self.unique(id), self.dir.join("rootfs"));
        // Not every host has a controller to share processors.
        let shares = ["run", how, "--cgroup", "", "--cpu-shares", "0", "--cni"];
        let args = ["--rootfs", &root.to_string_lossy(), &id, "/bin/busybox"];
        self.ctr(&[&shares[..], &args, command].concat())
    }

    /// Returns the id that a container has. It is unique because the container's cgroup is named after it, and a sandbox does not
    /// hide cgroups.
    fn unique(&self, id: &str) -> String {
        format!("{id}-{}", self.host.sandbox().keeper())
    }

    /// Runs its client, and returns what the client printed.
    pub fn ctr(&self, args: &[&str]) -> Result<String, Error> {
        let socket = self.dir.join("sock");
        self.host.run_command(
            "ctr",
            &[&["--address", &socket.to_string_lossy()], args].concat(),
            "",
        )
    }

    /// Returns its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}
