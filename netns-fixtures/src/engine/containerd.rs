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

    fn start(host: &Netns, network: &Value, plugin: &Path) -> Result<Self, Error> {
        let dir = prepare(host, "containerd", network, plugin)?;
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
        Ok(Self { host: host.clone(), dir, process })
    }

    fn run(&self, id: &str, command: &[&str]) -> Result<String, Error> {
        // Its cgroup is named after it, and a sandbox does not hide cgroups.
        let id = format!("{id}-{}", self.host.sandbox().keeper());
        let (socket, root) = (self.dir.join("sock"), self.dir.join("rootfs"));
        let (socket, root) = (socket.to_string_lossy(), root.to_string_lossy());
        let args =
            ["--address", &socket, "run", "--rm", "--cgroup", "", "--cni", "--rootfs", &root, &id, "/bin/busybox"];
        self.host.run_command("ctr", &[&args, command].concat(), "")
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

    /// Runs its client, and returns what that printed.
    pub fn ctr(&self, args: &[&str]) -> Result<String, Error> {
        let socket = self.dir.join("sock");
        self.host.run_command("ctr", &[&["--address", &socket.to_string_lossy()], args].concat(), "")
    }

    /// Returns its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}
