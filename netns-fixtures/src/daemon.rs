//! The daemon as a child process: started in a host's namespace, and ended in any of the ways in which daemons end.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;

use crate::binaries::binary;
use crate::error::{Doing, Error};
use crate::netns::Netns;
use crate::process::{DEADLINE, Log, Process};
use crate::wait::{first_readable, until_found};

/// Where dockerd looks for plugins' sockets.
pub(crate) const DOCKER_PLUGINS: &str = "/run/docker/plugins";

/// `leasehold daemon`, running.
#[derive(Debug)]
pub struct Daemon {
    process: Process,
    netns: Netns,
    home: Home,
}

/// Where a daemon keeps what outlives it (its socket and its store) and looks for containers to adopt.
#[derive(Clone, Debug)]
pub struct Home {
    /// A directory for what only the fixture needs.
    dir: PathBuf,
    socket: PathBuf,
    state_dir: PathBuf,
    cni_cache: PathBuf,
}

impl Home {
    /// Makes an empty home.
    pub fn new(netns: &Netns) -> Result<Self, Error> {
        let dir = netns.sandbox().dir("leasehold")?;
        let socket = dir.join("cni/dhcp.sock");
        let state_dir = dir.join("state");
        let cni_cache = dir.join("cache");
        Ok(Self {
            dir,
            socket,
            state_dir,
            cni_cache,
        })
    }

    /// Returns the places that a daemon uses without arguments. Only for sandboxes with a `/var/lib` of their own.
    pub(crate) fn of_the_system(netns: &Netns) -> Result<Self, Error> {
        Ok(Self {
            dir: netns.sandbox().dir("leasehold")?,
            socket: "/run/cni/dhcp.sock".into(),
            state_dir: "/var/lib/leasehold".into(),
            cni_cache: "/var/lib/cni/results".into(),
        })
    }

    /// Puts the store on a small disk of its own, with a `size` as for mount(8). Call it before the first daemon.
    pub fn on_a_small_disk(&self, netns: &Netns, size: &str) -> Result<(), Error> {
        fs::create_dir_all(&self.state_dir)
            .doing(|| format!("make {}", self.state_dir.display()))?;
        let (options, place) = (format!("size={size},mode=0700"), self.state_dir.display());
        netns
            .sh(&format!("mount -t tmpfs -o {options} none {place}"))
            .map(drop)
    }

    /// Gives its daemons a log that nobody reads: a pipe that is full after 64 KiB.
    pub fn with_stalled_log(&self) -> Result<(), Error> {
        let log = self.stalled_log();
        mkfifo(&log, Mode::S_IRUSR | Mode::S_IWUSR)
            .map_err(io::Error::from)
            .doing(|| format!("make {}", log.display()))
    }

    /// Reads that log, and returns how many bytes were waiting in it.
    pub fn unread_log(&self) -> Result<usize, Error> {
        let log = self.stalled_log();
        let doing = || format!("read {}", log.display());
        let mut pipe = File::options()
            .read(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(&log)
            .doing(doing)?;
        pipe.read(&mut [0; 1 << 16]).doing(doing)
    }

    fn stalled_log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Makes its daemons see another boot, with nothing in the directory that stands for `/run`.
    pub fn boot_again(&self, netns: &Netns) -> Result<(), Error> {
        let (file, number) = (self.dir.join("boot_id"), netns.sandbox().number());
        // Never written again: the previous one may still be mounted.
        let file = file.with_extension(number.to_string());
        fs::write(&file, format!("00000000-0000-4000-8000-{number:012x}\n"))
            .doing(|| format!("write {}", file.display()))?;
        let (file, shown) = (file.display(), "/proc/sys/kernel/random/boot_id");
        netns.sh(&format!("mount --bind {file} {shown}"))?;
        match fs::remove_dir_all(self.runtime_dir()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).doing(|| format!("empty {}", self.runtime_dir().display()))
            }
            _ => Ok(()),
        }
    }

    /// Makes its daemons Docker plugins, where dockerd looks for them.
    pub fn with_docker(&self) -> Result<(), Error> {
        fs::create_dir_all(DOCKER_PLUGINS).doing(|| format!("make {}", DOCKER_PLUGINS))
    }

    /// Gives its daemons a second socket, for reading.
    pub fn with_read_socket(&self) -> Result<(), Error> {
        let dir = self.dir.join("read");
        fs::create_dir_all(&dir).doing(|| format!("make {}", dir.display()))
    }

    /// Returns the path of that socket.
    pub fn read_socket(&self) -> PathBuf {
        self.dir.join("read/leasehold.sock")
    }

    /// Returns the path of the daemon's socket.
    pub fn socket(&self) -> PathBuf {
        self.socket.clone()
    }

    /// Returns the directory of the daemon's store.
    pub fn state_dir(&self) -> PathBuf {
        self.state_dir.clone()
    }

    /// Returns the directory in which the daemon publishes.
    pub fn runtime_dir(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// Returns the directory in which the daemon looks for containers to adopt: libcni's cache.
    pub fn cni_cache(&self) -> PathBuf {
        self.cni_cache.clone()
    }
}

/// Which of the containers' namespaces a daemon sees.
#[derive(Clone, Debug, Default)]
pub enum Sight {
    /// All of them.
    #[default]
    Whole,
    /// Those under this directory, which stands for the host's root.
    Under(PathBuf),
    /// None: its mount namespace has another `/run/netns`.
    Hidden,
}

impl Daemon {
    /// Starts a daemon in `netns` and waits until it reports that it is ready, as it would to systemd.
    pub fn start(netns: &Netns, home: &Home) -> Result<Self, Error> {
        Self::start_with(netns, home, &Sight::Whole)
    }

    /// Does the same for a daemon that may not see the containers' namespaces.
    pub fn start_with(netns: &Netns, home: &Home, sight: &Sight) -> Result<Self, Error> {
        let notify = home.dir.join("notify");
        let ready = listen(&notify)?;
        let mut command = match sight {
            Sight::Hidden => {
                let mut command = Command::new("unshare");
                let hidden = "mount -t tmpfs none /run/netns && exec \"$0\" \"$@\"";
                command
                    .args(["--mount", "sh", "-c", hidden])
                    .arg(binary("leasehold")?);
                command
            }
            Sight::Whole | Sight::Under(_) => Command::new(binary("leasehold")?),
        };
        command
            .arg("daemon")
            .arg("--socket")
            .arg(home.socket())
            .arg("--state-dir")
            .arg(home.state_dir());
        command.arg("--runtime-dir").arg(home.runtime_dir());
        command.arg("--cni-cache").arg(home.cni_cache());
        if let Sight::Under(root) = sight {
            command.arg("--host-prefix").arg(root);
        }
        if home.dir.join("read").exists() {
            command.arg("--read-socket").arg(home.read_socket());
        }
        if Path::new(DOCKER_PLUGINS).exists() {
            command.args(["--docker-plugin-dir", DOCKER_PLUGINS]);
        }
        command
            .args(["--log-format", "text"])
            .env("NOTIFY_SOCKET", &notify)
            .env("LEASEHOLD_LOG", "debug");
        let log = home.stalled_log();
        if log.exists() {
            // Opened for reading too, so that writing neither waits for a reader nor fails without one.
            let mut stalled = Command::new("sh");
            stalled
                .args(["-c", "log=$1; shift; exec \"$@\" 2<>\"$log\"", "sh"])
                .arg(log);
            stalled.arg(command.get_program()).args(command.get_args());
            stalled.envs(
                command
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            );
            command = stalled;
        }
        let process = Process::start(netns, "leasehold daemon", command)?;
        let mut daemon = Self {
            process,
            netns: netns.clone(),
            home: home.clone(),
        };
        until_ready(&mut daemon.process, &ready, DEADLINE)?;
        Ok(daemon)
    }

    /// Returns its home, for the next daemon.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Returns the path of its socket.
    pub fn socket(&self) -> PathBuf {
        self.home.socket()
    }

    /// Returns its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns what it writes.
    pub fn log(&self) -> &Log {
        self.process.log()
    }

    /// Waits until its log has a line with `text`.
    pub fn wait_for_line(&mut self, text: &str) -> Result<(), Error> {
        self.process.wait_for_line(text)
    }

    /// Ends it with SIGKILL.
    pub fn kill9(self) -> Result<(), Error> {
        self.process.kill()
    }

    /// Ends it with SIGTERM and returns how it ended.
    pub fn terminate(self) -> Result<ExitStatus, Error> {
        self.process.terminate()
    }

    /// Runs `leasehold list --json` and returns the bindings.
    pub fn list(&self) -> Result<Vec<Value>, Error> {
        let text = self.operator(&["list", "--json"])?;
        let bad = || Error::unreadable("a list of bindings", text.clone());
        match serde_json::from_str(&text) {
            Ok(Value::Array(rows)) => Ok(rows),
            Ok(Value::Object(mut answer)) => match answer.remove("bindings") {
                Some(Value::Array(rows)) => Ok(rows),
                _ => Err(bad()),
            },
            _ => Err(bad()),
        }
    }

    /// Waits until it lists nothing: a binding disappears a moment after its RELEASE.
    pub fn wait_until_empty(&self) -> Result<(), Error> {
        until_found("empty list", DEADLINE, || {
            Ok(self.list()?.is_empty().then_some(()))
        })
    }

    /// Waits until each lease that it lists lives inside a container.
    pub fn wait_until_inside(&self) -> Result<(), Error> {
        let is_inside = |row: &Value| row["link"]["netns"].is_string();
        until_found("leases inside containers", DEADLINE, || {
            Ok(self.list()?.iter().all(is_inside).then_some(()))
        })
    }

    /// Returns its events from the first on, as `leasehold events` prints them.
    pub fn events(&self) -> Result<Vec<String>, Error> {
        Ok(self
            .operator(&["events"])?
            .lines()
            .map(str::to_owned)
            .collect())
    }

    /// Starts `leasehold events --follow`, from the next event on.
    pub fn follow(&self) -> Result<Process, Error> {
        let known = self.operator(&["events", "--json"])?;
        let last = known
            .lines()
            .last()
            .map(serde_json::from_str::<Value>)
            .transpose();
        let last = last.map_err(|_| Error::unreadable("an event", known.clone()))?;
        self.follow_after(
            last.and_then(|event| event["number"].as_u64())
                .unwrap_or_default(),
        )
    }

    /// Waits until the line of an event, from the first on, contains `text`. A change's event and record appear together.
    pub fn wait_for_event(&self, text: &str) -> Result<(), Error> {
        self.follow_after(0)?.wait_for_line(text)
    }

    fn follow_after(&self, after: u64) -> Result<Process, Error> {
        let mut command = Command::new(binary("leasehold")?);
        command
            .args([
                "events",
                "--follow",
                "--after",
                &after.to_string(),
                "--socket",
            ])
            .arg(self.socket());
        Process::start(&self.netns, "leasehold events", command)
    }

    /// Runs one of the operator's commands and returns what it prints.
    pub fn operator(&self, args: &[&str]) -> Result<String, Error> {
        let (program, socket) = (binary("leasehold")?, self.socket());
        let socket = socket.to_string_lossy();
        let args = [args, &["--socket", &socket]].concat();
        self.netns
            .run_command(&program.to_string_lossy(), &args, "")
    }
}

/// Waits until a process says that it is ready, as it would to systemd.
pub(crate) fn until_ready(
    process: &mut Process,
    socket: &UnixDatagram,
    limit: Duration,
) -> Result<(), Error> {
    let deadline = Instant::now() + limit;
    let mut message = [0; 4096];
    loop {
        match socket.recv(&mut message) {
            Ok(length)
                if message[..length]
                    .split(|b| *b == b'\n')
                    .any(|line| line == b"READY=1") =>
            {
                return Ok(());
            }
            Ok(_) => continue,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e).doing(|| "hear whether a process is ready".to_owned()),
        }
        if !first_readable(&[socket.as_fd(), process.lifeline()], deadline)? {
            return Err(Error::timed_out(
                "READY=1 of a process",
                limit,
                String::new(),
            ));
        }
        process.still_runs("its readiness")?;
    }
}

/// Listens at `path` for that report, in place of systemd.
pub(crate) fn listen(path: &Path) -> Result<UnixDatagram, Error> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            return Err(e).doing(|| format!("remove {}", path.display()));
        }
        _ => {}
    }
    let socket = UnixDatagram::bind(path).doing(|| format!("listen on {}", path.display()))?;
    socket
        .set_nonblocking(true)
        .doing(|| "set a socket non-blocking".to_owned())?;
    Ok(socket)
}
