//! A systemd that runs the services of a host.
//!
//! It is the first process of a PID namespace and has its own mounts and control group, with only version 2, as distributions
//! have it. It knows only the units that it is given, keeps what it writes in `/run` and `/var/lib`, and may write nowhere else.
//! Dropping it ends it, its services and its control group.

use std::fs;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::binaries::binary;
use crate::cgroup;
use crate::daemon::{listen, until_ready};
use crate::error::{Doing, Error};
use crate::netns::{Netns, printed};
use crate::process::{DEADLINE, Process};

/// What services want before or after them, unless they say otherwise.
const TARGETS: [&str; 4] = [
    "sysinit.target",
    "basic.target",
    "sockets.target",
    "shutdown.target",
];
/// The target that wants all units.
const ALL: &str = "all.target";
/// Enters a control group. The arguments: the group, the directory of the units, the wanted unit.
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

/// Starts systemd in another root directory, where packages put its units. Tests say what may be started there.
const START_AT: &str = r#"
    cd "$0"
    mount --rbind /dev dev
    mount --rbind /sys sys
    mount -t cgroup2 none sys/fs/cgroup
    mount -t proc proc proc
    mount --rbind /run run
    mount --bind /dev/null dev/console
    rm -f usr/sbin/policy-rc.d
    pivot_root . mnt
    cd /
    umount --lazy /mnt
    exec env -i PATH="$PATH" container=sandbox NOTIFY_SOCKET="$NOTIFY_SOCKET" \
        /lib/systemd/systemd --system --unit="$1"
"#;
/// Where packages and an administrator's commands put units that are enabled.
const ENABLED: &str = "etc/systemd/system";

/// Returns the text of a unit of ours as it is installed, for the daemon that is built here.
pub fn installed_unit(name: &str) -> Result<String, Error> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../daemon/dist")).join(name);
    let text = fs::read_to_string(&path).doing(|| format!("read {}", path.display()))?;
    Ok(text.replace(
        "/usr/bin/leasehold",
        &binary("leasehold")?.to_string_lossy(),
    ))
}

/// systemd, running.
#[derive(Debug)]
pub struct Systemd {
    units: PathBuf,
    /// The name of its control group from the root of all groups, which no sandbox hides.
    cgroup: String,
    process: Option<Process>,
}

impl Systemd {
    /// Starts systemd with these units, by name and text; returns when each is up, has done its work or has failed.
    pub fn start(host: &Netns, units: &[(&str, String)]) -> Result<Self, Error> {
        let mut systemd = Self::new(host, host.sandbox().dir("systemd")?);
        for target in TARGETS {
            systemd.write(target, "[Unit]\nDefaultDependencies=no\n")?;
        }
        let mut all = "[Unit]\nDefaultDependencies=no\n".to_owned();
        for (name, text) in units {
            systemd.write(name, text)?;
            all.push_str(&format!("Wants={name}\n"));
        }
        systemd.write(ALL, &all)?;
        let units = systemd.units.clone();
        systemd.boot(host, START, &units)?;
        Ok(systemd)
    }

    /// Starts systemd on a Debian of its own: it has the files and packages in `files`, which is the machine's own root directory,
    /// or [`crate::Debian13::root`]. Its writes are invisible there, and it has no services but those installed from now on.
    /// Returns the host for processes of that Debian, and its root directory as seen from outside.
    pub fn debian(host: &Netns, files: &Path) -> Result<(Self, Netns, PathBuf), Error> {
        let dir = host.sandbox().dir("debian")?;
        let [upper, work, root] = ["upper", "work", "root"].map(|name| dir.join(name));
        for path in [&upper, &work, &root] {
            fs::create_dir(path).doing(|| format!("make {}", path.display()))?;
        }
        host.overlay(files, &upper, &work, &root)?;
        let units = root.join(ENABLED);
        fs::remove_dir_all(&units).doing(|| format!("empty {}", units.display()))?;
        fs::create_dir(&units).doing(|| format!("make {}", units.display()))?;
        let mut systemd = Self::new(host, units);
        systemd.write(ALL, "[Unit]\nDefaultDependencies=no\n")?;
        systemd.boot(host, START_AT, &root)?;
        let inside = host.within(host.sandbox().beside(systemd.id()?)?);
        Ok((systemd, inside, root))
    }

    fn new(host: &Netns, units: PathBuf) -> Self {
        let cgroup = format!("leasehold-{}", host.sandbox().keeper());
        Self {
            units,
            cgroup,
            process: None,
        }
    }

    /// Runs a script that becomes systemd; the directory is its first argument.
    fn boot(&mut self, host: &Netns, script: &str, directory: &Path) -> Result<(), Error> {
        let ready = host.sandbox().dir("ready")?.join("ready");
        let listener: UnixDatagram = listen(&ready)?;
        let mut command = Command::new("unshare");
        command
            .args("--mount --propagation slave sh -ec".split(' '))
            .args([ENTER, script, &self.cgroup]);
        command.arg(directory).arg(ALL).env("NOTIFY_SOCKET", &ready);
        let process = self
            .process
            .insert(Process::start(host, "systemd", command)?);
        until_ready(process, &listener, DEADLINE)
    }

    /// Returns the id of its own process.
    fn id(&self) -> Result<u32, Error> {
        first("systemd", &self.of_group("init.scope"))
    }

    /// Returns the processes of a service.
    pub fn processes(&self, service: &str) -> Vec<u32> {
        self.of_group(&format!("system.slice/{service}"))
    }

    /// Returns the processes of one of its control groups.
    fn of_group(&self, group: &str) -> Vec<u32> {
        let group = format!("0::/{}/{group}", self.cgroup);
        let ids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_of_it = |id: &u32| {
            let groups = fs::read_to_string(format!("/proc/{id}/cgroup")).unwrap_or_default();
            groups.lines().any(|line| line == group)
        };
        ids.filter(is_of_it).collect()
    }

    /// Runs systemctl to its end, as an administrator of that host would, and returns what it printed.
    ///
    /// # Errors
    /// [`Error::Failed`] with all its output if it ends with a code other than 0.
    pub fn control(&self, args: &[&str]) -> Result<String, Error> {
        self.run("systemctl", args)
    }

    /// Runs any program in the same way, and returns what it printed.
    ///
    /// # Errors
    /// As [`Systemd::control`].
    pub fn run(&self, program: &str, args: &[&str]) -> Result<String, Error> {
        let own = self.id()?;
        // By its number here: no sandbox shows another's processes.
        let mut command = Command::new("nsenter");
        command.args("--mount --net --pid --cgroup --root --wd=/ --target".split(' '));
        command.arg(own.to_string());
        let output = command
            .arg(program)
            .args(args)
            .output()
            .doing(|| format!("run {program}"))?;
        printed(program, args, &output)
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
        let first = first(service, &self.processes(service))?;
        kill(Pid::from_raw(first as i32), signal)
            .doing(|| format!("send {signal} to {service}"))?;
        Ok(first)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        fs::write(self.units.join(name), text).doing(|| format!("write {name}"))
    }
}

/// Returns the first of the processes of `what`.
fn first(what: &str, processes: &[u32]) -> Result<u32, Error> {
    let first = processes.first().copied().ok_or(io::ErrorKind::NotFound);
    first
        .map_err(io::Error::from)
        .doing(|| format!("find {what}"))
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
