//! A daemon's directories, the daemon itself, and those who ask it.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use leasehold_api::cni::{Env, PATH, Request};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::skip::skip;

pub(crate) const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");

/// How long anything may take before it counts as failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The directories of one daemon, and the socket where it reports readiness.
pub(crate) struct Home {
    pub(crate) dir: TempDir,
    pub(crate) notify: UnixDatagram,
}

impl Home {
    /// `None` if namespaces cannot be made: the test is then skipped, which is a failure on CI.
    pub(crate) fn new() -> Option<Self> {
        let unshare = Command::new("unshare")
            .args(["--map-root-user", "--net", "true"])
            .status();
        if !unshare.is_ok_and(|status| status.success()) {
            skip("a daemon of its own needs the right to make namespaces");
            return None;
        }
        let dir = TempDir::new().unwrap();
        let notify = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        notify.set_read_timeout(Some(PATIENCE)).unwrap();
        Some(Self { dir, notify })
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("cni/dhcp.sock")
    }

    /// The stand-in for libcni's cache of running containers.
    pub(crate) fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// Returns a command for a daemon in its own network namespace. `unshare` becomes the daemon: same process, same files.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--net", LEASEHOLD, "daemon"]);
        self.environment(&mut command);
        command
    }

    pub(crate) fn environment(&self, command: &mut Command) {
        command
            .env("LEASEHOLD_SOCKET", self.socket())
            .env("LEASEHOLD_STATE_DIR", self.state())
            .env("LEASEHOLD_RUNTIME_DIR", self.dir.path().join("run"))
            .env("LEASEHOLD_CNI_CACHE", self.cache())
            .env("NOTIFY_SOCKET", self.dir.path().join("notify"))
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
    }

    /// Starts a daemon and waits until it is ready.
    pub(crate) fn start(&self) -> Daemon {
        self.ready(self.command())
    }

    pub(crate) fn ready(&self, mut command: Command) -> Daemon {
        let mut daemon = Daemon(command.spawn().unwrap());
        if self.told().as_deref() != Some("READY=1") {
            let _ = daemon.0.kill();
            panic!("not ready: {}", daemon.log());
        }
        daemon
    }

    /// Starts a daemon with a socket at `path`, passed as systemd does: as descriptor 3, with the daemon's own
    /// LISTEN_PID.
    pub(crate) fn activated(&self, path: &Path) -> Daemon {
        let listener = UnixListener::bind(path).unwrap();
        let mut shell = Command::new("unshare");
        let passing = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" daemon 3<&0 0</dev/null";
        shell.args(["--map-root-user", "--net", "sh", "-c", passing, LEASEHOLD]);
        self.environment(&mut shell);
        shell.stdin(OwnedFd::from(listener));
        self.ready(shell)
    }

    /// Returns what the daemon tells the service manager next.
    pub(crate) fn told(&self) -> Option<String> {
        let mut bytes = [0; 4096];
        let length = loop {
            match self.notify.recv(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                told => break told.ok()?,
            }
        };
        Some(String::from_utf8_lossy(&bytes[..length]).trim().to_owned())
    }

    /// Sends a request, and returns the answer with its head.
    pub(crate) fn ask(&self, request: &Request) -> String {
        let mut caller = UnixStream::connect(self.socket()).unwrap();
        caller.set_read_timeout(Some(PATIENCE)).unwrap();
        caller.write_all(post(request).as_bytes()).unwrap();
        let mut answer = String::new();
        caller.read_to_string(&mut answer).unwrap();
        answer
    }

    pub(crate) fn list(&self, more: &[&str]) -> Output {
        Command::new(LEASEHOLD)
            .arg("list")
            .args(more)
            .env("LEASEHOLD_SOCKET", self.socket())
            .output()
            .unwrap()
    }
}

/// A running daemon; killed when the test ends first.
pub(crate) struct Daemon(pub(crate) Child);

impl Daemon {
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid() as i32), signal).unwrap();
    }

    /// Reads the log to its end, when the daemon ends.
    pub(crate) fn log(&mut self) -> String {
        let mut log = Vec::new();
        self.0.stderr.take().unwrap().read_to_end(&mut log).unwrap();
        String::from_utf8(log).unwrap()
    }

    pub(crate) fn ended(mut self) -> (ExitStatus, String) {
        let log = self.log();
        (self.0.wait().unwrap(), log)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

/// Checks that a text has a part.
#[track_caller]
pub(crate) fn has(text: &str, part: &str) {
    assert!(text.contains(part), "no {part:?} in {text}");
}

/// A runtime's request for a container's `eth0` on the network `lan`.
pub(crate) fn call(command: &str, container: &str, netns: Option<&str>) -> Request {
    Request {
        env: Env {
            command: Some(command.to_owned()),
            container_id: Some(container.to_owned()),
            ifname: Some("eth0".to_owned()),
            netns: netns.map(str::to_owned),
            ..Env::default()
        },
        config: r#"{"cniVersion":"1.0.0","name":"lan","type":"macvlan","master":"eth0","ipam":{"type":"dhcp"}}"#
            .to_owned(),
    }
}

pub(crate) fn add(container: &str, netns: &str) -> Request {
    call("ADD", container, Some(netns))
}

/// A request as it goes over the socket.
pub(crate) fn post(request: &Request) -> String {
    let body = serde_json::to_string(request).unwrap();
    format!(
        "POST {PATH} HTTP/1.1\r\nHost: leasehold\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub(crate) fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// A namespace with an interface where nobody answers; it goes when dropped.
pub(crate) struct Silence(pub(crate) Pid);

impl Drop for Silence {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGKILL);
    }
}

/// Starts a daemon with a limit of open files and, in a namespace that it may enter, an interface where nobody answers.
pub(crate) fn with_silence(home: &Home, files: u32) -> (Daemon, Silence) {
    let mut shell = Command::new("unshare");
    // The namespace belongs to the same user namespace as the daemon, so the daemon may enter it.
    let inner = "ip link add eth0 type veth peer name peer && ip link set peer up && echo $$ && exec sleep 600 >/dev/null 2>&1";
    let outer = format!("ulimit -n {files}; unshare --net sh -ec \"$1\" & exec \"$0\" daemon");
    shell.args([
        "--map-root-user",
        "--net",
        "sh",
        "-c",
        &outer,
        LEASEHOLD,
        inner,
    ]);
    home.environment(&mut shell);
    shell.stdout(Stdio::piped());
    let mut daemon = home.ready(shell);
    let mut pid = String::new();
    BufReader::new(daemon.0.stdout.take().unwrap())
        .read_line(&mut pid)
        .unwrap();
    (daemon, Silence(Pid::from_raw(pid.trim().parse().unwrap())))
}

/// Reads a daemon's log until a text appears.
pub(crate) fn said(log: &mut impl BufRead, what: &str) -> String {
    let mut lines = String::new();
    while !lines.contains(what) {
        assert_ne!(
            log.read_line(&mut lines).unwrap(),
            0,
            "it ended without {what:?}: {lines}"
        );
    }
    lines
}

/// Makes a store, or changes the one that is there, to be as a release to come leaves it.
pub(crate) fn as_a_later_release_has_it(path: &Path) {
    let database = redb::Database::create(path).unwrap();
    let txn = database.begin_write().unwrap();
    txn.open_table(redb::TableDefinition::<&str, u64>::new("meta"))
        .unwrap()
        .insert("format", 2)
        .unwrap();
    txn.open_table(redb::TableDefinition::<(), &str>::new("release"))
        .unwrap()
        .insert((), "9.8.7")
        .unwrap();
    txn.commit().unwrap();
}
