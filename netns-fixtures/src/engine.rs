//! containerd, whose client `ctr run --cni` calls CNI plugins as an engine does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::binaries::binary;
use crate::error::{Doing, Error};
use crate::need::Need;
use crate::netns::Netns;
use crate::process::Process;

/// containerd on a host's namespace, with a root file system of busybox alone and this workspace's shim as the IPAM
/// plugin `dhcp`. What it sees at `/etc/cni` and `/usr/lib/cni` is its sandbox's own.
#[derive(Debug)]
pub struct Containerd {
    host: Netns,
    dir: PathBuf,
    process: Process,
}

impl Containerd {
    /// What it needs: root, Debian's `containerd`, `containernetworking-plugins` and `busybox-static`.
    pub const NEEDS: &[Need] = &[
        Need::RealRoot,
        Need::Program("containerd"),
        Need::Program("ctr"),
        Need::StaticProgram("busybox"),
        Need::File("/usr/lib/cni/macvlan"),
    ];

    /// Starts it with `network`, a CNI configuration, as its only network.
    pub fn start(host: &Netns, network: &Value) -> Result<Self, Error> {
        let dir = host.sandbox().dir("containerd")?;
        install_network(host, &dir, network, &binary("dhcp")?)?;
        make_root(&dir)?;
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

    /// Runs a command of busybox in a container of its own to its end, and returns what it printed.
    pub fn run(&self, id: &str, command: &[&str]) -> Result<String, Error> {
        let (socket, root) = (self.dir.join("sock"), self.dir.join("rootfs"));
        let (socket, root) = (socket.to_string_lossy(), root.to_string_lossy());
        let args =
            ["--address", &socket, "run", "--rm", "--cgroup", "", "--cni", "--rootfs", &root, id, "/bin/busybox"];
        self.host.run_command("ctr", &[&args, command].concat(), "")
    }

    /// Returns its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

/// Puts the network where engines look, and the shim beside the main plugins, for the sandbox's processes only.
fn install_network(host: &Netns, dir: &Path, network: &Value, shim: &Path) -> Result<(), Error> {
    let mut plugin = network.clone();
    let (version, name) = (plugin["cniVersion"].take(), plugin["name"].take());
    if let Some(plugin) = plugin.as_object_mut() {
        plugin.retain(|_, value| !value.is_null());
    }
    let list = json!({ "cniVersion": version, "name": name, "plugins": [plugin] });
    let etc = dir.join("etc");
    fs::create_dir_all(etc.join("cni/net.d")).doing(|| "make a directory for CNI".to_owned())?;
    write(&etc.join("cni/net.d/10-lan.conflist"), list.to_string())?;
    let bin = dir.join("bin");
    fs::create_dir_all(&bin).doing(|| "make a directory for plugins".to_owned())?;
    fs::copy(shim, bin.join("dhcp")).doing(|| format!("copy {}", shim.display()))?;
    for (over, place) in [(etc, "/etc"), (bin, "/usr/lib/cni")] {
        let work = dir.join(format!("work{}", place.replace('/', "-")));
        fs::create_dir_all(&work).doing(|| "make a directory for an overlay".to_owned())?;
        let options = format!("lowerdir={place},upperdir={},workdir={}", over.display(), work.display());
        host.run_command("mount", &["-t", "overlay", "overlay", "-o", &options, place], "")?;
    }
    Ok(())
}

/// Makes a root file system with busybox in it.
fn make_root(dir: &Path) -> Result<(), Error> {
    let bin = dir.join("rootfs/bin");
    fs::create_dir_all(&bin).doing(|| format!("make {}", bin.display()))?;
    let busybox = Need::program("busybox").ok_or_else(|| Error::NotBuilt("busybox".into()))?;
    fs::copy(&busybox, bin.join("busybox")).doing(|| format!("copy {}", busybox.display())).map(drop)
}

fn write(path: &Path, text: String) -> Result<(), Error> {
    fs::write(path, text).doing(|| format!("write {}", path.display()))
}
