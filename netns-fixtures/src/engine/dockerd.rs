//! Docker's daemon, from Debian's `docker.io`, with its own containerd.
//!
//! Its files, mounts and iptables rules exist only in its sandbox, where plugins find `/run/docker` as on any host: a daemon in
//! the same sandbox and on the same host sees the containers' namespaces. The root of the file system is read-only for it.
//! Dropping it kills it and its containers, and removes what it made.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{make_dir, make_root};
use crate::cgroup;
use crate::daemon::{DOCKER_PLUGINS, listen, until_ready};
use crate::error::{Doing, Error};
use crate::need::Need;
use crate::netns::Netns;
use crate::process::{DEADLINE, Log, Process};
use crate::sandbox::unmount_under;
use crate::wait::until_found;

/// dockerd in a host's namespace, with busybox as its only image.
#[derive(Debug)]
pub struct Dockerd {
    process: Option<Process>,
    /// The host, for processes that end with dockerd and see its mounts.
    host: Netns,
    /// The host without those mounts.
    outside: Netns,
    files: Files,
}

/// What remains when its processes have ended. Dropping this removes it.
#[derive(Debug)]
struct Files {
    dir: PathBuf,
    /// The containers' control group from the root of all groups, which a sandbox does not hide.
    cgroup: String,
}

/// The command line interface of the same package: a later one refuses some of its own options when it talks to an older dockerd.
const CLIENT: &str = "/usr/bin/docker";

/// Compose, from Debian's `docker-compose`.
const COMPOSE: &str = "docker-compose";

/// What it writes outside `/run` goes to memory, and it may not write to the kernel's own files. Its data is on a separate mount,
/// as on any host, because for a plugin runc makes the mount that its root is on private.
const PRIVATE: &str = "
    mount --bind $DIR/data $DIR/data
    mount -t overlay overlay -o lowerdir=/etc,upperdir=$DIR/etc,workdir=$DIR/work /etc
    for place in /opt /tmp; do mount -t tmpfs none $place; done
    mount --bind /proc/sys/kernel /proc/sys/kernel
    mount -o remount,bind,ro /proc/sys/kernel
    mount -o remount,bind,ro /";

impl Dockerd {
    /// Root, and Debian's `docker.io` and `busybox-static`.
    pub const NEEDS: &[Need] = &[
        Need::RealRoot,
        Need::Program("dockerd"),
        Need::File(CLIENT),
        Need::Program("runc"),
        Need::Program("iptables"),
        Need::StaticProgram("busybox"),
    ];
    /// Where it looks for plugins' sockets.
    pub const PLUGINS: &str = DOCKER_PLUGINS;
    /// Where it mounts its containers' namespaces.
    pub const NETNS: &str = "/run/docker/netns";
    /// Its image.
    pub const IMAGE: &str = "busybox";

    /// Starts it and waits until it serves. A sandbox has room for one.
    pub fn start(host: &Netns) -> Result<Self, Error> {
        let dir = host.sandbox().dir("dockerd")?;
        make_root(&dir)?;
        for place in [
            dir.join("etc"),
            dir.join("work"),
            dir.join("data"),
            Self::PLUGINS.into(),
        ] {
            make_dir(&place)?;
        }
        let sandbox = host.sandbox().nested(&private(&dir))?;
        let cgroup = format!("/leasehold-{}", sandbox.keeper());
        let (outside, files) = (host.clone(), Files { dir, cgroup });
        let mut dockerd = Self {
            process: None,
            host: host.within(sandbox),
            outside,
            files,
        };
        dockerd.launch(&[])?;
        let image = dockerd.files.path("image.tar");
        let root = dockerd.files.path("rootfs");
        dockerd.host.sh(&format!("tar -C {root} -cf {image} ."))?;
        dockerd.docker(&["import", &image, Self::IMAGE])?;
        Ok(dockerd)
    }

    /// Runs the command line interface to its end, and returns what it printed.
    ///
    /// # Errors
    /// [`Error::Failed`] with all its output if it ends with a code other than 0.
    pub fn docker(&self, args: &[&str]) -> Result<String, Error> {
        let (config, socket) = (self.files.path("config"), self.files.socket());
        self.host.run_command(
            CLIENT,
            &[&["--config", &config, "--host", &socket], args].concat(),
            "",
        )
    }

    /// Runs Compose to its end with a file that has this text, and returns what it printed.
    ///
    /// # Errors
    /// As [`Dockerd::docker`].
    pub fn compose(&self, text: &str, args: &[&str]) -> Result<String, Error> {
        let socket = self.files.socket();
        let of = [
            "--host",
            &socket,
            "--project-name",
            "compose",
            "--file",
            "-",
        ];
        self.host.run_command(COMPOSE, &[&of, args].concat(), text)
    }

    /// Runs a busybox command in a new container to its end, and returns what it printed.
    pub fn run(&self, how: &[&str], command: &[&str]) -> Result<String, Error> {
        self.container(&[&["--rm"], how].concat(), command)
    }

    /// Starts a container that runs until it is stopped. SIGKILL ends it at once; otherwise Docker would wait ten seconds for its
    /// first process.
    pub fn keep(&self, name: &str, how: &[&str]) -> Result<(), Error> {
        let how = [&["--detach", "--stop-signal", "KILL", "--name", name], how].concat();
        self.container(&how, &["sleep", "1000000"]).map(drop)
    }

    /// Runs a busybox command in a running container, and returns what it printed.
    ///
    /// On a busy host runc may lose its own first process. Then nothing has run, and it is tried again, twice.
    pub fn exec(&self, name: &str, command: &[&str]) -> Result<String, Error> {
        let exec = || self.docker(&[&["exec", name, "/bin/busybox"], command].concat());
        let lost = |done: &Result<String, Error>| matches!(done, Err(error) if error.to_string().contains("init preliminary setup"));
        (0..2)
            .map(|_| exec())
            .find(|done| !lost(done))
            .unwrap_or_else(exec)
    }

    /// Lets a running container ping an address, and waits for the first answer.
    pub fn ping(&self, name: &str, address: Ipv4Addr) -> Result<(), Error> {
        let address = address.to_string();
        self.exec(name, &["ping", "-c", "1", "-W", "10", &address])
            .map(drop)
    }

    /// Returns what Docker believes to be a container's address in a network.
    pub fn address(&self, name: &str, network: &str) -> Result<Ipv4Addr, Error> {
        let format = format!("{{{{(index .NetworkSettings.Networks \"{network}\").IPAddress}}}}");
        let text = self.docker(&["inspect", "--format", &format, name])?;
        text.trim()
            .parse()
            .map_err(|_| Error::unreadable("a container's address", text))
    }

    /// Waits until `docker inspect` prints this about a container.
    pub fn wait_until(&self, name: &str, format: &str, expected: &str) -> Result<(), Error> {
        let awaited = format!("{expected} of a container's {format}");
        until_found(&awaited, DEADLINE, || {
            let printed = self.docker(&["inspect", "--format", format, name])?;
            Ok((printed.trim() == expected).then_some(()))
        })
    }

    /// Returns a running container's network namespace.
    pub fn netns(&self, name: &str) -> Result<Netns, Error> {
        let key = "{{.NetworkSettings.SandboxKey}}";
        let path = self.docker(&["inspect", "--format", key, name])?;
        Netns::open(self.host.sandbox(), path.trim().into())
    }

    /// Returns its containers' control group, as a path from the root of all groups.
    pub fn cgroup(&self) -> &str {
        &self.files.cgroup
    }

    /// Returns its process id, as this process sees it.
    ///
    /// # Panics
    /// While it is down.
    pub fn id(&self) -> u32 {
        self.process().id()
    }

    /// Returns what it writes.
    ///
    /// # Panics
    /// While it is down.
    pub fn log(&self) -> &Log {
        self.process().log()
    }

    /// Waits until it, or a plugin that it runs, has written something.
    ///
    /// # Panics
    /// While it is down.
    pub fn wait_for_line(&mut self, text: &str) -> Result<(), Error> {
        self.process
            .as_mut()
            .expect("dockerd is up")
            .wait_for_line(text)
    }

    /// Ends it with SIGTERM and waits until it is gone. Its containers stop, unless it was launched with
    /// `--live-restore`.
    pub fn stop(&mut self) -> Result<(), Error> {
        self.process
            .take()
            .map_or(Ok(()), |process| process.terminate().map(drop))
    }

    /// Ends it with SIGKILL. Its containers go on.
    pub fn kill9(&mut self) -> Result<(), Error> {
        self.process.take().map_or(Ok(()), Process::kill)?;
        // Its containerd dies a moment later. A dockerd that finds it dying starts none, and waits for it forever.
        let gone = "! read pid < /run/docker/containerd/containerd.pid || while kill -0 $pid; do sleep 0.05; done";
        self.host
            .run_command("timeout", &["30", "sh", "-c", gone], "")
            .map(drop)
    }

    /// Ends all of its processes and containers as a power cut does, and removes what was in `/run`. Its data stay.
    pub fn lose_power(&mut self) -> Result<(), Error> {
        self.kill9()?;
        // The processes in its sandbox end with that.
        self.host = self.outside.clone();
        self.files.unmount();
        for gone in ["/run/docker", &self.files.path("pid")] {
            let gone = Path::new(gone);
            let removed = if gone.is_dir() {
                fs::remove_dir_all(gone)
            } else {
                fs::remove_file(gone)
            };
            removed.doing(|| format!("remove {}", gone.display()))?;
        }
        self.files.end_cgroup()?;
        make_dir(Path::new(Self::PLUGINS))?;
        self.host = self
            .outside
            .within(self.outside.sandbox().nested(&private(&self.files.dir))?);
        Ok(())
    }

    /// Starts it again with more arguments. Waits until it serves, which it does after it has started the containers that it
    /// restarts.
    pub fn launch(&mut self, more: &[&str]) -> Result<(), Error> {
        self.launch_within(DEADLINE, more)
    }

    /// Does the same if it may take longer.
    pub fn launch_within(&mut self, limit: Duration, more: &[&str]) -> Result<(), Error> {
        let notify = PathBuf::from(self.files.path("notify"));
        let ready = listen(&notify)?;
        // It looks for a kernel module before it uses it: what this machine has not loaded stays unloaded.
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-sys_module", "dockerd", "--bridge=none"]);
        command.args("--storage-driver=vfs --exec-opt=native.cgroupdriver=cgroupfs".split(' '));
        command.args(["--cgroup-parent", &self.files.cgroup]);
        command.args(["--host", &self.files.socket()]);
        command.args(["--data-root", &self.files.path("data")]);
        command.args(["--pidfile", &self.files.path("pid")]);
        // In a container it leaves the machine's AppArmor profiles alone.
        command
            .args(more)
            .env("NOTIFY_SOCKET", &notify)
            .env("container", "sandbox");
        let process = self
            .process
            .insert(Process::start(&self.host, "dockerd", command)?);
        until_ready(process, &ready, limit)
    }

    fn container(&self, how: &[&str], command: &[&str]) -> Result<String, Error> {
        self.docker(&[&["run"], how, &[Self::IMAGE, "/bin/busybox"], command].concat())
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("dockerd is up")
    }
}

/// Returns the script that, in this directory, separates its files from the machine's.
fn private(dir: &Path) -> String {
    PRIVATE.replace("$DIR", &dir.to_string_lossy())
}

impl Files {
    /// Unmounts whatever is mounted for it, as far as possible.
    fn unmount(&self) {
        unmount_under(&[Path::new("/run/docker"), &self.dir]);
    }

    /// Waits until the containers' control group is gone.
    fn end_cgroup(&self) -> Result<(), Error> {
        let cgroup = self.cgroup.trim_start_matches('/');
        until_found("end of a control group", DEADLINE, || {
            Ok(cgroup::remove(cgroup).then_some(()))
        })
    }

    fn socket(&self) -> String {
        format!("unix://{}", self.path("sock"))
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).to_string_lossy().into_owned()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // What cannot be removed goes with the sandbox, except for the control group.
        self.unmount();
        for dir in [Path::new("/run/docker"), &self.dir] {
            let _ = fs::remove_dir_all(dir);
        }
        let _ = self.end_cgroup();
    }
}
