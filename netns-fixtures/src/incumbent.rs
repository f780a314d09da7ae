//! The incumbent: the plugin `dhcp` of containernetworking/plugins, its daemon, and the files that libcni keeps about its
//! containers.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use data_encoding::BASE64;
use serde_json::{Value, json};

use crate::container::Container;
use crate::error::{Doing, Error};
use crate::need::Need;
use crate::netns::Netns;
use crate::process::{DEADLINE, Process};
use crate::shim::{CallError, Shim};
use crate::wait::{until_file, until_found};

/// The incumbent's daemon, running, and the main plugins that ask it.
#[derive(Debug)]
pub struct Incumbent {
    host: Netns,
    process: Process,
}

impl Incumbent {
    /// What it needs: Debian's `containernetworking-plugins`.
    pub const NEEDS: &[Need] = &[
        Need::File("/usr/lib/cni/macvlan"),
        Need::File("/usr/lib/cni/dhcp"),
    ];

    /// The incumbent's plugin.
    pub const PLUGIN: &str = "/usr/lib/cni/dhcp";

    /// Starts its daemon in a host's namespace, and waits until it listens at `socket`.
    pub fn start(host: &Netns, socket: &Path) -> Result<Self, Error> {
        let dir = socket.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(dir).doing(|| format!("make {}", dir.display()))?;
        let mut command = Command::new(Self::PLUGIN);
        command.args(["daemon", "-socketpath"]).arg(socket);
        let process = Process::start(host, "dhcp daemon", command)?;
        until_file(dir, "socket of the incumbent", DEADLINE, || {
            Ok(socket.exists().then_some(()))
        })?;
        // The file exists before anybody listens.
        until_found("the incumbent to listen", DEADLINE, || {
            Ok(UnixStream::connect(socket).ok())
        })?;
        Ok(Self {
            host: host.clone(),
            process,
        })
    }

    /// Attaches a container as a runtime does through libcni: calls the main plugin, here `macvlan`, and writes its
    /// answer to `cache`.
    pub fn attach(
        &self,
        id: &str,
        config: &Value,
        cache: &Path,
    ) -> Result<(Container, Value), CallError> {
        let netns = Netns::new(self.host.sandbox(), id)?;
        // Its plugin makes the interface.
        let container = Container::new(id, netns, "eth0", [0; 6]);
        let plugin =
            PathBuf::from("/usr/lib/cni").join(config["type"].as_str().unwrap_or_default());
        let result = Shim::at(&self.host, plugin).add(&container, config)?;
        let mac = result["interfaces"][0]["mac"]
            .as_str()
            .and_then(crate::link::parse_mac);
        let bad = || Error::unreadable("the interface in a CNI result", result.to_string());
        let container = Container {
            mac: mac.ok_or_else(bad)?,
            ..container
        };
        write_cache(cache, &container, config, &result)?;
        Ok((container, result))
    }

    /// Stops its daemon, as an administrator does who replaces it.
    pub fn stop(self) -> Result<ExitStatus, Error> {
        self.process.terminate()
    }
}

/// Writes a file as libcni 1.1 does (`cachedInfo` in its api.go).
pub(crate) fn write_cache(
    cache: &Path,
    container: &Container,
    config: &Value,
    result: &Value,
) -> Result<(), Error> {
    let network = config["name"].as_str().unwrap_or_default();
    let entry = json!({
        "kind": "cniCacheV1",
        "containerId": container.id,
        "config": BASE64.encode(config.to_string().as_bytes()),
        "ifName": container.ifname,
        "networkName": network,
        "cniArgs": [["IgnoreUnknown", "1"]],
        "result": result,
    });
    fs::create_dir_all(cache).doing(|| format!("make {}", cache.display()))?;
    let file = cache.join(format!("{network}-{}-{}", container.id, container.ifname));
    fs::write(&file, entry.to_string()).doing(|| format!("write {}", file.display()))
}
