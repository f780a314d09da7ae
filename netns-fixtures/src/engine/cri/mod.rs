//! A Kubernetes node as far as containerd is concerned: pods, and containers in them, through its CRI.
//!
//! Plugins are in `/opt/cni/bin`, as on most nodes. The node can lose its power: the next boot has another id, an empty `/run`,
//! and the same disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use data_encoding::BASE64;
use serde_json::{Value, json};

use super::{copy, cover, make_dir, prepare, write};
use crate::error::{Doing, Error};
use crate::need::Need;
use crate::netns::Netns;
use crate::process::Process;
use crate::sandbox::unmount_under;

/// containerd in a host's namespace, with its CRI.
#[derive(Debug)]
pub struct Cri {
    process: Option<Process>,
    /// The host, for processes that end with the node.
    host: Netns,
    /// The host, for what outlives it.
    outside: Netns,
    dir: PathBuf,
}

/// Calls its methods.
const CALL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/engine/cri/call");

/// Gives the node plugins of its own. The argument is where it finds them.
const PLUGINS: &str = r#"
    mount -t tmpfs tmpfs /opt
    mkdir -p "$0"
    cp -p /usr/lib/cni/* "$0""#;

/// Makes the image that keeps a pod's namespaces. The argument is its directory.
const PAUSE: &str = r#"
    cd "$0"
    tar -C rootfs -cf layer.tar .
    printf '{"architecture":"amd64","os":"linux","config":{"Entrypoint":["/bin/busybox","sleep","1000000"]},
        "rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' "$(sha256sum layer.tar | cut -d" " -f1)" >config.json
    echo '[{"Config":"config.json","RepoTags":["localhost/pause:1"],"Layers":["layer.tar"]}]' >manifest.json
    tar -cf pause.tar layer.tar config.json manifest.json"#;

/// A runc for its containers.
const RUNC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/engine/cri/runc");

impl Cri {
    /// Root, Debian's `containerd`, `containernetworking-plugins` and `busybox-static`, and a client of the CRI.
    pub const NEEDS: &[Need] = &[
        Need::RealRoot,
        Need::Program("containerd"),
        Need::Program("ctr"),
        Need::Program("runc"),
        Need::StaticProgram("busybox"),
        Need::File("/usr/lib/cni/macvlan"),
        Need::Installed("netns-fixtures/src/engine/cri/call"),
    ];
    /// Where it looks for plugins.
    pub const PLUGINS: &str = "/opt/cni/bin";

    /// Boots a node with `network`, a CNI configuration, as the network of its pods, and `plugin` as the IPAM plugin that the
    /// network names.
    pub fn start(host: &Netns, network: &Value, plugin: &Path) -> Result<Self, Error> {
        cover(host, network, plugin)?;
        let dir = prepare(host, "cri", network)?;
        host.run_command("sh", &["-ec", PLUGINS, Self::PLUGINS], "")?;
        host.run_command("sh", &["-ec", PAUSE, &dir.to_string_lossy()], "")?;
        copy(Path::new(RUNC), &dir.join("runc"))?;
        make_dir(&dir.join("logs"))?;
        let mut node = Self {
            process: None,
            host: host.clone(),
            outside: host.clone(),
            dir,
        };
        write(&node.dir.join("config.toml"), node.config())?;
        node.boot()?;
        node.import(&node.dir.join("pause.tar"))?;
        Ok(node)
    }

    /// Ends everything on the node at once, and boots it again.
    pub fn lose_power(&mut self) -> Result<(), Error> {
        self.process.take().map_or(Ok(()), Process::kill)?;
        // The processes in its sandbox end with that.
        self.host = self.outside.clone();
        unmount_under(&[&self.dir]);
        const GONE: &str = r#"
            find /run/netns -name "cni-*" -exec umount --lazy {} ";" -delete
            rm -rf /run/cni /run/leasehold /run/containerd "$0/state""#;
        self.outside
            .run_command("sh", &["-ec", GONE, &self.dir.to_string_lossy()], "")?;
        self.boot()
    }

    fn boot(&mut self) -> Result<(), Error> {
        let number = self.outside.sandbox().number();
        write(
            &self.dir.join("boot_id"),
            format!("00000000-0000-4000-8000-{number:012x}\n"),
        )?;
        self.host = self.outside.within(self.outside.sandbox().nested("")?);
        let mut command = Command::new("containerd");
        command.arg("--config").arg(self.dir.join("config.toml"));
        let process = self
            .process
            .insert(Process::start(&self.host, "containerd", command)?);
        process.wait_for_line("containerd successfully booted")
    }

    fn config(&self) -> String {
        format!(
            "version = 2\nroot = '{0}/root'\nstate = '{0}/state'\n[grpc]\naddress = '{0}/sock'\n\
             [plugins.'io.containerd.grpc.v1.cri']\nsandbox_image = 'localhost/pause:1'\nstream_server_port = '0'\n\
             disable_cgroup = true\ndisable_apparmor = true\nrestrict_oom_score_adj = true\n\
             [plugins.'io.containerd.grpc.v1.cri'.cni]\nbin_dir = '{1}'\nconf_dir = '/etc/cni/net.d'\n\
             [plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc]\nruntime_type = 'io.containerd.runc.v2'\n\
             [plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc.options]\nBinaryName = '{0}/runc'\n",
            self.dir.display(),
            Self::PLUGINS,
        )
    }

    /// Takes an image from a file, and returns its name.
    pub fn import(&self, file: &Path) -> Result<String, Error> {
        let (socket, file) = (self.socket(), file.to_string_lossy());
        let import = "--namespace k8s.io images import";
        let said = self
            .host
            .sh(&format!("ctr --address {socket} {import} '{file}'"))?;
        // `unpacking NAME (DIGEST)...done`
        Ok(said
            .split_whitespace()
            .nth(1)
            .unwrap_or_default()
            .to_owned())
    }

    /// Calls a method of its CRI.
    ///
    /// # Errors
    /// [`Error::Failed`] with what the CRI said, if it refuses.
    pub fn call(&self, method: &str, request: &Value) -> Result<Value, Error> {
        let said =
            self.outside
                .run_command(CALL, &[&self.socket(), method], &request.to_string())?;
        serde_json::from_str(&said).map_err(|_| Error::unreadable("an answer of the CRI", said))
    }

    /// Returns what the CRI is told about a pod as a whole. A pod that is made again is a further attempt.
    pub fn pod(&self, name: &str, attempt: u32) -> Value {
        json!({
            "metadata": { "name": name, "uid": format!("uid-of-{name}"), "namespace": "default", "attempt": attempt },
            "hostname": name,
            "log_directory": self.dir.join("logs"),
        })
    }

    /// Runs a pod, and returns its id.
    pub fn run_pod(&self, pod: &Value) -> Result<String, Error> {
        let ran = self.call("RunPodSandbox", &json!({ "config": pod }))?;
        Ok(ran["pod_sandbox_id"]
            .as_str()
            .unwrap_or_default()
            .to_owned())
    }

    /// Ends a pod and everything that runs in it, and forgets it.
    pub fn remove_pod(&self, id: &str) -> Result<(), Error> {
        let of = json!({ "pod_sandbox_id": id });
        self.call("StopPodSandbox", &of)?;
        self.call("RemovePodSandbox", &of).map(drop)
    }

    /// Returns a pod's network namespace.
    pub fn netns(&self, id: &str) -> Result<Netns, Error> {
        let said = self.call(
            "PodSandboxStatus",
            &json!({ "pod_sandbox_id": id, "verbose": true }),
        )?;
        let info: Option<Value> = said["info"]["info"]
            .as_str()
            .and_then(|text| serde_json::from_str(text).ok());
        let namespaces = info
            .as_ref()
            .and_then(|info| info["runtimeSpec"]["linux"]["namespaces"].as_array());
        let path = namespaces
            .into_iter()
            .flatten()
            .find(|one| one["type"] == "network")
            .map(|one| &one["path"]);
        match path.and_then(Value::as_str) {
            Some(path) => Netns::open(self.outside.sandbox(), path.into()),
            None => Err(Error::unreadable("a pod's namespaces", said.to_string())),
        }
    }

    /// Runs a command, as a list of its words, in a container, and returns what it printed.
    ///
    /// # Errors
    /// [`Error::Unreadable`] with what the command said, if it ends with a code other than 0.
    pub fn exec(&self, container: &str, command: &Value) -> Result<String, Error> {
        let ran = self.call(
            "ExecSync",
            &json!({ "container_id": container, "cmd": command, "timeout": 10 }),
        )?;
        // Bytes are in base64, and what is 0 is left out.
        let text = |name: &str| {
            let bytes = BASE64
                .decode(ran[name].as_str().unwrap_or_default().as_bytes())
                .unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        match ran["exit_code"].is_null() {
            true => Ok(text("stdout")),
            false => Err(Error::unreadable(
                "a command in a container",
                text("stdout") + &text("stderr"),
            )),
        }
    }

    /// Returns what a container has written to a file of this name.
    pub fn log(&self, name: &str) -> Result<String, Error> {
        let path = self.dir.join("logs").join(name);
        fs::read_to_string(&path).doing(|| format!("read {}", path.display()))
    }

    fn socket(&self) -> String {
        self.dir.join("sock").to_string_lossy().into_owned()
    }
}

impl Drop for Cri {
    fn drop(&mut self) {
        drop(self.process.take());
        self.host = self.outside.clone();
        // What cannot be unmounted goes with the sandbox.
        unmount_under(&[&self.dir]);
    }
}
