//! One of the two contenders: its running daemon, and its plugin.

use std::error::Error;
use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use netns_fixtures::{DEADLINE, Netns, Process};
use serde_json::Value;
use tempfile::TempDir;

use crate::binaries::Binaries;
use crate::processor;

/// How long nothing may change before a daemon counts as at rest. Ours keeps spare threads for two seconds, and listens
/// for conflicts of a new address for at most eight (RFC 5227 §2.1.1, §2.3).
const REST: Duration = Duration::from_secs(9);
/// The pause between two looks at a daemon.
const LOOK: Duration = Duration::from_millis(100);

/// The contenders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// leasehold.
    Ours,
    /// `dhcp` of containernetworking-plugins.
    Theirs,
}

/// Returns both, in the order of round `number`.
pub(crate) fn order(number: usize) -> [Who; 2] {
    if number.is_multiple_of(2) {
        [Who::Ours, Who::Theirs]
    } else {
        [Who::Theirs, Who::Ours]
    }
}

/// A running daemon and its plugin.
#[derive(Debug)]
pub(crate) struct Contender {
    process: Process,
    /// Where it listens.
    pub(crate) socket: PathBuf,
    /// What a runtime calls.
    pub(crate) plugin: PathBuf,
    state: TempDir,
}

/// The resources that a daemon takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Its resident memory in bytes.
    pub(crate) rss: u64,
    /// Its threads.
    pub(crate) threads: u64,
    /// Its open descriptors.
    pub(crate) descriptors: u64,
}

impl Contender {
    /// Starts a daemon without state in the host's namespace, and waits until it answers.
    pub(crate) fn start(
        who: Who,
        binaries: &Binaries,
        host: &Netns,
    ) -> Result<Self, Box<dyn Error>> {
        let dir = host.sandbox().dir("bench")?;
        let (socket, state) = (dir.join("dhcp.sock"), binaries.state_dir()?);
        let process = match who {
            Who::Ours => {
                let mut process = spawn_ours(&binaries.daemon, host, &socket, state.path())?;
                process.wait_for_line("ready")?;
                process
            }
            Who::Theirs => start_theirs(&binaries.incumbent, host, &socket)?,
        };
        let plugin = if who == Who::Ours {
            &binaries.shim
        } else {
            &binaries.incumbent
        };
        Ok(Self {
            process,
            socket,
            plugin: plugin.clone(),
            state,
        })
    }

    /// Starts our daemon as Docker's plugin, with its sockets in a directory.
    pub(crate) fn start_for_docker(
        binaries: &Binaries,
        host: &Netns,
        plugins: &Path,
    ) -> Result<Self, Box<dyn Error>> {
        let socket = host.sandbox().dir("bench")?.join("dhcp.sock");
        let state = binaries.state_dir()?;
        let mut command = ours(&binaries.daemon, &socket, state.path());
        command.arg("--docker-plugin-dir").arg(plugins);
        let mut process = Process::start(host, "leasehold daemon", command)?;
        process.wait_for_line("ready")?;
        Ok(Self {
            process,
            socket,
            plugin: binaries.shim.clone(),
            state,
        })
    }

    /// Returns what our daemon lists.
    pub(crate) fn list(&self, binaries: &Binaries) -> Result<Value, Box<dyn Error>> {
        let listed = Command::new(&binaries.daemon)
            .args(["list", "--json", "--socket"])
            .arg(&self.socket)
            .output()?;
        Ok(serde_json::from_slice(&listed.stdout)?)
    }

    /// Kills our daemon, and starts it again on its state. It may not be ready yet.
    pub(crate) fn revive(self, binaries: &Binaries, host: &Netns) -> Result<Self, Box<dyn Error>> {
        let Self {
            process,
            socket,
            plugin,
            state,
        } = self;
        process.kill()?;
        let process = spawn_ours(&binaries.daemon, host, &socket, state.path())?;
        Ok(Self {
            process,
            socket,
            plugin,
            state,
        })
    }

    /// Returns the resources that the daemon takes at rest.
    pub(crate) fn at_rest(&self) -> io::Result<Usage> {
        let (began, mut since) = (Instant::now(), Instant::now());
        let mut last = self.usage()?;
        while since.elapsed() < REST && began.elapsed() < 2 * DEADLINE {
            thread::sleep(LOOK);
            let now = self.usage()?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(last)
    }

    /// Returns how long the daemon has kept a processor busy so far.
    pub(crate) fn processor(&self) -> io::Result<Duration> {
        processor::of(self.process.id())
    }

    /// Ends the daemon.
    pub(crate) fn stop(self) -> Result<(), Box<dyn Error>> {
        Ok(self.process.kill()?)
    }

    fn usage(&self) -> io::Result<Usage> {
        let proc = PathBuf::from(format!("/proc/{}", self.process.id()));
        let status = fs::read_to_string(proc.join("status"))?;
        let number = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            let value = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
            value.ok_or_else(|| io::Error::other(format!("no {key} of a daemon")))
        };
        Ok(Usage {
            rss: 1024 * number("VmRSS:")?,
            threads: number("Threads:")?,
            descriptors: fs::read_dir(proc.join("fd"))?.count() as u64,
        })
    }
}

fn spawn_ours(
    program: &Path,
    host: &Netns,
    socket: &Path,
    state: &Path,
) -> Result<Process, Box<dyn Error>> {
    Ok(Process::start(
        host,
        "leasehold daemon",
        ours(program, socket, state),
    )?)
}

fn ours(program: &Path, socket: &Path, state: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .arg("daemon")
        .arg("--socket")
        .arg(socket)
        .arg("--state-dir")
        .arg(state);
    command
        .arg("--runtime-dir")
        .arg(socket.with_file_name("run"));
    command
}

fn start_theirs(program: &Path, host: &Netns, socket: &Path) -> Result<Process, Box<dyn Error>> {
    let mut command = Command::new(program);
    command.args(["daemon", "-socketpath"]).arg(socket);
    let process = Process::start(host, "dhcp daemon", command)?;
    let began = Instant::now();
    while UnixStream::connect(socket).is_err() {
        if began.elapsed() > DEADLINE {
            return Err("the incumbent's daemon does not listen".into());
        }
        thread::sleep(LOOK / 10);
    }
    Ok(process)
}
