//! Container engines, which call plugins in ways that nobody imagined. Those with CNI see their sandbox's own `/etc/cni`,
//! `/usr/lib/cni` and `/var/lib`; Docker, which has no CNI, sees its own `/run/docker`.

pub mod between;
mod containerd;
mod cri;
mod dockerd;
pub mod played;
pub mod plugin;
mod podman;
mod registry;
pub mod wired;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

pub use containerd::Containerd;
pub use cri::Cri;
pub use dockerd::Dockerd;
pub use podman::Podman;
pub use registry::Registry;

use crate::error::{Doing, Error};
use crate::need::Need;
use crate::netns::Netns;

/// An engine that speaks CNI in a host's namespace, with one CNI network and busybox containers only.
pub trait Engine: Sized {
    /// What it needs.
    const NEEDS: &[Need];

    /// Starts it on a host with `network`, a CNI configuration, as its only network, and with the existing plugins.
    fn start_on(host: &Netns, network: &Value) -> Result<Self, Error>;

    /// Does so in a sandbox that shows the machine's own files, with `plugin` as the IPAM plugin that the network names.
    fn start(host: &Netns, network: &Value, plugin: &Path) -> Result<Self, Error> {
        cover(host, network, plugin)?;
        Self::start_on(host, network)
    }

    /// Runs a busybox command in a new container to its end, and returns what it printed.
    fn run(&self, id: &str, command: &[&str]) -> Result<String, Error>;
}

/// The programs in a container's `/bin`, as in any image, besides busybox itself.
const APPLETS: [&str; 3] = ["sh", "sleep", "ip"];

/// Where engines look for CNI plugins.
const PLUGINS: &str = "/usr/lib/cni";

/// Replaces the IPAM plugin `name` with a plugin, for the sandbox's processes, as an administrator would.
pub fn install_plugin(host: &Netns, name: &str, plugin: &Path) -> Result<(), Error> {
    let plugin = plugin.display();
    host.sh(&format!("install -m 755 '{plugin}' {PLUGINS}/{name}"))
        .map(drop)
}

/// Gives a sandbox files of its own where engines and their plugins keep theirs, and a plugin among them.
fn cover(host: &Netns, network: &Value, plugin: &Path) -> Result<(), Error> {
    let dir = host.sandbox().dir("files")?;
    // Read before anything covers it.
    let plugin = copy(plugin, &dir.join("dhcp"))?;
    for (i, place) in ["/etc", PLUGINS, "/var/lib"].into_iter().enumerate() {
        let [upper, work] = ["upper", "work"].map(|kind| dir.join(format!("{kind}{i}")));
        make_dir(&upper)?;
        make_dir(&work)?;
        host.overlay(place.as_ref(), &upper, &work, place.as_ref())?;
    }
    let name = network["ipam"]["type"].as_str().unwrap_or("dhcp");
    install_plugin(host, name, &plugin)
}

/// Prepares a host for an engine: puts the network where the engine looks for it, and makes a root file system for its
/// containers, as `rootfs` in the returned directory.
fn prepare(host: &Netns, name: &str, network: &Value) -> Result<PathBuf, Error> {
    let dir = host.sandbox().dir(name)?;
    host.sh("mkdir -p /etc/cni/net.d")?;
    // The first by name counts.
    host.run_command(
        "tee",
        &["/etc/cni/net.d/10-lan.conflist"],
        &network_list(network).to_string(),
    )?;
    make_root(&dir)?;
    Ok(dir)
}

/// Returns a list that contains only the plugin of a configuration.
fn network_list(network: &Value) -> Value {
    let mut plugin = network.clone();
    let (version, name) = (plugin["cniVersion"].take(), plugin["name"].take());
    if let Some(plugin) = plugin.as_object_mut() {
        plugin.retain(|_, value| !value.is_null());
    }
    json!({ "cniVersion": version, "name": name, "plugins": [plugin] })
}

/// Makes a root file system with busybox in it.
fn make_root(dir: &Path) -> Result<(), Error> {
    let bin = dir.join("rootfs/bin");
    make_dir(&bin)?;
    let busybox = Need::program("busybox").ok_or_else(|| Error::NotBuilt("busybox".into()))?;
    copy(&busybox, &bin.join("busybox"))?;
    let link = |applet| symlink("busybox", bin.join(applet)).doing(|| format!("make {applet}"));
    APPLETS.into_iter().try_for_each(link)
}

fn make_dir(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).doing(|| format!("make {}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result<PathBuf, Error> {
    fs::copy(from, to).doing(|| format!("copy {}", from.display()))?;
    Ok(to.to_owned())
}

fn write(path: &Path, text: String) -> Result<(), Error> {
    fs::write(path, text).doing(|| format!("write {}", path.display()))
}
