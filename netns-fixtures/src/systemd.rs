//! A systemd that runs the services of a host.
//!
//! It is the first process of a PID namespace and has its own mounts and control group, with version 2 alone, as distributions
//! have it. It knows only the units that it is given, keeps what it writes in `/run` and `/var/lib`, and may write nowhere else.
//! Dropping it ends it, its services and its control group.

use std::fs;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cgroup;
use crate::daemon::{listen, until_ready};
use crate::error::{Doing, Error};
use crate::netns::Netns;
use crate::process::{DEADLINE, Process};

/// What services want before or after them, unless they say otherwise.
const TARGETS: [&str; 4] = ["sysinit.target", "basic.target", "sockets.target", "shutdown.target"];
/// The target that wants all units.
const ALL: &str = "all.target";
/// Goes into a control group. The arguments: the group, the directory of the units, the wanted unit.
const ENTER: &str = r#"
    mount -t cgroup2 none /sys/fs/cgroup
    mkdir "/sys/fs/cgroup/$1"
    echo 0 > "/sys/fs/cgroup/$1/cgroup.procs"
    umount /sys/fs/cgroup
    exec unshare --pid --fork --kill-child --cgroup --mount --uts --propagation slave sh -ec "$0" "$2" "$3"
"#;
/// Starts systemd, which sees that control group as the root of all.
const START: &str = r#"
    mount -t cgroup2 none /sys/fs/cgroup
    mount -t proc proc /proc
    mount -t tmpfs none /var/lib
    mount --bind /dev/null /dev/console
    mount -o remount,bind,ro /
    exec env -i PATH="$PATH" container=sandbox NOTIFY_SOCKET="$NOTIFY_SOCKET" SYSTEMD_UNIT_PATH="$0" \
        systemd --system --unit="$1"
"#;

/// systemd, running.
#[derive(Debug)]
pub struct Systemd {
    units: PathBuf,
    /// The name of its control group, from the root of all, which no sandbox hides.
    cgroup: String,
    process: Option<Process>,
}

impl Systemd {
    /// Starts systemd with these units, by name and text; returns when each is up, has done its work or has failed.
    pub fn start(host: &Netns, units: &[(&str, String)]) -> Result<Self, Error> {
        let dir = host.sandbox().dir("systemd")?;
        let cgroup = format!("leasehold-{}", host.sandbox().keeper());
        let ready = dir.join("ready");
        let listener: UnixDatagram = listen(&ready)?;
        let mut systemd = Self { units: dir, cgroup, process: None };
        for target in TARGETS {
            systemd.write(target, "[Unit]\nDefaultDependencies=no\n")?;
        }
        let mut all = "[Unit]\nDefaultDependencies=no\n".to_owned();
        for (name, text) in units {
            systemd.write(name, text)?;
            all.push_str(&format!("Wants={name}\n"));
        }
        systemd.write(ALL, &all)?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "slave", "sh", "-ec", ENTER, START]).arg(&systemd.cgroup);
        command.arg(&systemd.units).arg(ALL).env("NOTIFY_SOCKET", &ready);
        let process = systemd.process.insert(Process::start(host, "systemd", command)?);
        until_ready(process, &listener, DEADLINE)?;
        Ok(systemd)
    }

    /// Returns the processes of a service.
    pub fn processes(&self, service: &str) -> Vec<u32> {
        let group = format!("0::/{}/system.slice/{service}", self.cgroup);
        let ids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_of_it = |id: &u32| {
            let groups = fs::read_to_string(format!("/proc/{id}/cgroup")).unwrap_or_default();
            groups.lines().any(|line| line == group)
        };
        ids.filter(is_of_it).collect()
    }

    /// Kills the first process of a service, and returns its number.
    pub fn kill(&self, service: &str) -> Result<u32, Error> {
        self.signal(service, Signal::SIGKILL)
    }

    /// Stops the first process of a service in its tracks, and returns its number.
    pub fn freeze(&self, service: &str) -> Result<u32, Error> {
        self.signal(service, Signal::SIGSTOP)
    }

    fn signal(&self, service: &str, signal: Signal) -> Result<u32, Error> {
        let processes = self.processes(service);
        let first = *processes
            .first()
            .ok_or(io::ErrorKind::NotFound)
            .map_err(io::Error::from)
            .doing(|| format!("find {service}"))?;
        kill(Pid::from_raw(first as i32), signal).doing(|| format!("send {signal} to {service}"))?;
        Ok(first)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        fs::write(self.units.join(name), text).doing(|| format!("write {name}"))
    }
}

impl Drop for Systemd {
    fn drop(&mut self) {
        drop(self.process.take());
        // Its services are gone with it, except for what the kernel is still working on.
        let _ = crate::wait::until_found("end of a control group", DEADLINE, || {
            Ok(cgroup::remove(&self.cgroup).then_some(()))
        });
    }
}
