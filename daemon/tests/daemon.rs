//! The program as an operator meets it: starting, stopping, and what it says when it cannot.
//!
//! Each daemon runs in a network namespace of its own, so that nothing of the host's is touched.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use leasehold_api::cni::{Env, PATH, Request};
use leasehold_api::spool;
use leasehold_core::dhcpv4::lease::Lease;
use leasehold_core::dhcpv4::profile::Profile;
use leasehold_core::identity::{Attachment, ClientId, Door, Identity, Lan};
use leasehold_core::link::{Cookie, Link};
use leasehold_core::record::{Record, RecordState};
use leasehold_core::time::{BootId, Instant as CoreInstant, WallTime};
use leasehold_core::wire::Mac;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");

/// How long anything may take before it counts as never.
const PATIENCE: Duration = Duration::from_secs(60);

/// The directories of one daemon, and where it reports its readiness.
struct Home {
    dir: TempDir,
    notify: UnixDatagram,
}

impl Home {
    /// `None` where namespaces cannot be made: the test is skipped then, which on CI is a failure.
    fn new() -> Option<Self> {
        let unshare = Command::new("unshare").args(["--map-root-user", "--net", "true"]).status();
        if !unshare.is_ok_and(|status| status.success()) {
            let line = "skipped: a daemon of its own needs the right to make namespaces";
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{line}; on CI a skip is a failure");
            eprintln!("{line}");
            if let Some(skips) = std::env::var_os("LEASEHOLD_SKIPS") {
                writeln!(fs::OpenOptions::new().append(true).open(skips).unwrap(), "{line}").unwrap();
            }
            return None;
        }
        let dir = TempDir::new().unwrap();
        let notify = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        notify.set_read_timeout(Some(PATIENCE)).unwrap();
        Some(Self { dir, notify })
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("cni/dhcp.sock")
    }

    /// What stands for libcni's cache of running containers.
    fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// A daemon in a network namespace of its own. `unshare` becomes the daemon: same process, same files.
    fn command(&self) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--net", LEASEHOLD, "daemon"]);
        self.environment(&mut command);
        command
    }

    fn environment(&self, command: &mut Command) {
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
    fn start(&self) -> Daemon {
        self.ready(self.command())
    }

    fn ready(&self, mut command: Command) -> Daemon {
        let mut daemon = Daemon(command.spawn().unwrap());
        if self.told().as_deref() != Some("READY=1") {
            let _ = daemon.0.kill();
            panic!("not ready: {}", daemon.log());
        }
        daemon
    }

    /// What the daemon tells the service manager next.
    fn told(&self) -> Option<String> {
        let mut bytes = [0; 4096];
        let length = self.notify.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..length]).trim().to_owned())
    }

    fn list(&self, more: &[&str]) -> Output {
        Command::new(LEASEHOLD).arg("list").args(more).env("LEASEHOLD_SOCKET", self.socket()).output().unwrap()
    }
}

/// A running daemon; killed when the test ends first.
struct Daemon(Child);

impl Daemon {
    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid() as i32), signal).unwrap();
    }

    /// Reads the log to its end, which is the daemon's end.
    fn log(&mut self) -> String {
        let mut log = Vec::new();
        self.0.stderr.take().unwrap().read_to_end(&mut log).unwrap();
        String::from_utf8(log).unwrap()
    }

    fn ended(mut self) -> (ExitStatus, String) {
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

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_ready_daemon_answers_and_stops_cleanly() {
    let Some(home) = Home::new() else { return };
    let daemon = home.start();
    assert_eq!((mode(&home.socket()), mode(home.socket().parent().unwrap())), (0o600, 0o700));
    assert_eq!((mode(&home.state()), mode(&home.state().join("leases.redb"))), (0o700, 0o600));

    let json = home.list(&["--json"]);
    assert!(json.status.success(), "{}", text(&json.stderr));
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&json.stdout).unwrap(),
        serde_json::json!({"bindings": [], "not_adopted": []})
    );
    let table = home.list(&[]);
    assert!(text(&table.stdout).starts_with("ATTACHMENT  LAN  CLIENT ID"), "{}", text(&table.stdout));

    daemon.signal(Signal::SIGTERM);
    assert_eq!(home.told().as_deref(), Some("STOPPING=1"));
    let (status, log) = daemon.ended();
    assert!(status.success(), "{status}: {log}");
    assert!(!home.socket().exists());
    assert!(home.state().join("leases.redb").exists());
    assert!(!log.contains("ERROR"), "{log}");
}

/// A namespace with an interface that nobody answers on; gone when dropped.
struct Silence(Pid);

impl Drop for Silence {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGKILL);
    }
}

#[test]
fn an_add_under_way_is_cut_off_without_an_answer() {
    let Some(home) = Home::new() else { return };
    let mut shell = Command::new("unshare");
    // The namespace belongs to the same user namespace as the daemon, so the daemon may enter it.
    let inner =
        "ip link add eth0 type veth peer name peer && ip link set peer up && echo $$ && exec sleep 600 >/dev/null 2>&1";
    let outer = "unshare --net sh -ec \"$1\" & exec \"$0\" daemon";
    shell.args(["--map-root-user", "--net", "sh", "-c", outer, LEASEHOLD, inner]);
    home.environment(&mut shell);
    shell.stdout(Stdio::piped());
    let mut daemon = home.ready(shell);
    let mut pid = String::new();
    BufReader::new(daemon.0.stdout.take().unwrap()).read_line(&mut pid).unwrap();
    let silence = Silence(Pid::from_raw(pid.trim().parse().unwrap()));

    let request = Request {
        env: Env {
            command: Some("ADD".to_owned()),
            container_id: Some("c1".to_owned()),
            ifname: Some("eth0".to_owned()),
            netns: Some(format!("/proc/{}/ns/net", silence.0)),
            ..Env::default()
        },
        config: r#"{"cniVersion":"1.0.0","name":"lan","type":"macvlan","master":"eth0","ipam":{"type":"dhcp"}}"#
            .to_owned(),
    };
    let body = serde_json::to_string(&request).unwrap();
    let mut caller = UnixStream::connect(home.socket()).unwrap();
    caller.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("POST {PATH} HTTP/1.1\r\nHost: leasehold\r\nContent-Length: {}\r\n\r\n", body.len());
    caller.write_all((head + &body).as_bytes()).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !text(&home.list(&[]).stdout).contains("lan/c1/eth0") {
        assert!(Instant::now() < deadline, "no binding appeared");
    }

    daemon.signal(Signal::SIGTERM);
    let mut answer = Vec::new();
    // Cut, in one of the two ways in which a connection can be.
    let _ = caller.read_to_end(&mut answer);
    assert_eq!(text(&answer), "", "the shim asks the next daemon only when it got no answer");
    let (status, log) = daemon.ended();
    assert!(status.success(), "{log}");
}

#[test]
fn an_interrupt_stops_it_too() {
    let Some(home) = Home::new() else { return };
    let daemon = home.start();
    daemon.signal(Signal::SIGINT);
    assert!(daemon.ended().0.success());
}

#[test]
fn after_kill_9_the_next_daemon_takes_the_socket_and_the_store() {
    let Some(home) = Home::new() else { return };
    let mut first = home.start();
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    assert!(home.socket().exists());
    let refused = UnixStream::connect(home.socket()).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    let _second = home.start();
    assert!(home.list(&["--json"]).status.success());
}

#[test]
fn a_second_daemon_is_told_who_has_the_socket() {
    let Some(home) = Home::new() else { return };
    let first = home.start();
    let (status, log) = Daemon(home.command().spawn().unwrap()).ended();
    assert_eq!(status.code(), Some(1));
    let owner = format!("{} is served by process {} (leasehold)", home.socket().display(), first.pid());
    assert!(log.contains(&owner), "{log}");
    assert!(home.list(&[]).status.success(), "the first one goes on");
}

#[test]
fn a_second_daemon_is_told_who_has_the_state_and_leaves_no_socket() {
    let Some(home) = Home::new() else { return };
    let first = home.start();
    let other = home.dir.path().join("other.sock");
    let (status, log) = Daemon(home.command().env("LEASEHOLD_SOCKET", &other).spawn().unwrap()).ended();
    assert_eq!(status.code(), Some(1));
    assert!(log.contains(&format!("is in use by process {} (leasehold)", first.pid())), "{log}");
    assert!(!other.exists());
}

#[test]
fn a_socket_of_systemd_is_used_and_left() {
    let Some(home) = Home::new() else { return };
    let path = home.dir.path().join("activated.sock");
    let listener = UnixListener::bind(&path).unwrap();
    // As systemd does it: descriptor 3, and a LISTEN_PID that is the daemon's own.
    let mut shell = Command::new("unshare");
    shell.args([
        "--map-root-user",
        "--net",
        "sh",
        "-c",
        "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" daemon 3<&0 0</dev/null",
    ]);
    shell.arg(LEASEHOLD);
    home.environment(&mut shell);
    shell.stdin(OwnedFd::from(listener));
    let daemon = home.ready(shell);
    let list = Command::new(LEASEHOLD).arg("list").arg("--socket").arg(&path).output().unwrap();
    assert!(list.status.success(), "{}", text(&list.stderr));
    assert!(!home.socket().exists());
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.ended().0.success());
    assert!(path.exists());
}

#[test]
fn a_descriptor_of_systemd_that_is_no_listener_is_refused() {
    let Some(home) = Home::new() else { return };
    let mut shell = Command::new("sh");
    shell.args(["-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" daemon 3</dev/null", LEASEHOLD]);
    home.environment(&mut shell);
    let (status, log) = Daemon(shell.spawn().unwrap()).ended();
    assert_eq!(status.code(), Some(1));
    assert!(log.contains("the socket that systemd passed cannot be used: "), "{log}");
}

#[test]
fn a_spooled_del_is_carried_out_at_the_start() {
    let Some(home) = Home::new() else { return };
    fs::create_dir(home.socket().parent().unwrap()).unwrap();
    let request = Request {
        env: Env {
            command: Some("DEL".to_owned()),
            container_id: Some("c1".to_owned()),
            ifname: Some("eth0".to_owned()),
            ..Env::default()
        },
        config: r#"{"cniVersion":"1.0.0","name":"lan","type":"macvlan","master":"eth0","ipam":{"type":"dhcp"}}"#
            .to_owned(),
    };
    let file = spool::path(&home.socket(), &request);
    fs::write(&file, serde_json::to_vec(&request).unwrap()).unwrap();
    let _daemon = home.start();
    // The list is asked after the spooled call, so its answer says that the loop has turned; the file follows at once.
    assert!(home.list(&[]).status.success());
    let deadline = Instant::now() + PATIENCE;
    while file.exists() {
        assert!(Instant::now() < deadline, "{} is still there", file.display());
        assert!(home.list(&[]).status.success());
    }
}

#[test]
fn a_daemon_without_leases_looks_for_containers_that_run() {
    let Some(home) = Home::new() else { return };
    fs::create_dir(home.cache()).unwrap();
    // A container of containerd's that has ended long ago, and a file of which nothing can be made.
    let ended = include_str!("../src/adopt/ctr.json").replace("/proc/15021/", "/proc/4194304/");
    fs::write(home.cache().join("lan-default-c1-eth0"), ended).unwrap();
    fs::write(home.cache().join("broken"), "{").unwrap();
    let mut daemon = home.start();
    let mut log = String::new();
    let mut lines = BufReader::new(daemon.0.stderr.take().unwrap());
    while !log.contains(": not adopted") {
        assert_ne!(lines.read_line(&mut log).unwrap(), 0, "{log}");
    }
    for part in ["lan/default-c1/eth0", "no network namespace at /proc/4194304/ns/net", "broken", "containers=1"] {
        assert!(log.contains(part), "{log}");
    }
    let list: serde_json::Value = serde_json::from_slice(&home.list(&["--json"]).stdout).unwrap();
    assert_eq!(list["bindings"], serde_json::json!([]));
}

/// Puts two records into a store: one of an earlier boot, and one that does not parse.
fn store_half(path: &Path) {
    let mac = Mac([2, 0, 0, 0, 0, 1]);
    let whole = Record {
        attachment: Attachment {
            door: Door::Cni,
            network: "lan".to_owned(),
            container: "whole".to_owned(),
            ifname: "eth0".to_owned(),
        },
        identity: Identity {
            lan: Lan::Network("lan".to_owned()),
            client_id: ClientId::new(b"\0whole".to_vec()).unwrap(),
            chaddr: mac,
        },
        profile: Profile::default(),
        link: Link::InNetns { path: "/proc/4194304/ns/net".into(), cookie: Cookie(1), ifindex: 2, mac },
        lease: Lease::unknown("10.0.0.7/24".parse().unwrap(), CoreInstant::from_boot(Duration::ZERO)),
        state: RecordState::Bound,
        boot: BootId("an earlier one".to_owned()),
        since: WallTime::from_epoch(Duration::ZERO),
        former: None,
    };
    let database = redb::Database::open(path).unwrap();
    let txn = database.begin_write().unwrap();
    {
        let mut leases = txn.open_table(redb::TableDefinition::<u64, &[u8]>::new("leases")).unwrap();
        leases.insert(1, serde_json::to_vec(&whole).unwrap().as_slice()).unwrap();
        leases.insert(2, b"{\"half\":".as_slice()).unwrap();
    }
    txn.commit().unwrap();
}

#[test]
fn a_record_that_does_not_parse_may_be_of_a_container_that_runs() {
    let Some(home) = Home::new() else { return };
    let first = home.start();
    first.signal(Signal::SIGTERM);
    assert!(first.ended().0.success());
    store_half(&home.state().join("leases.redb"));
    fs::create_dir(home.cache()).unwrap();
    let ended = include_str!("../src/adopt/ctr.json").replace("/proc/15021/", "/proc/4194304/");
    fs::write(home.cache().join("lan-default-c1-eth0"), ended).unwrap();
    assert_eq!(home.told().as_deref(), Some("STOPPING=1"));
    let daemon = home.start();
    daemon.signal(Signal::SIGTERM);
    let (_, log) = daemon.ended();
    assert!(log.contains("started leases=1") && log.contains("adopting them containers=1"), "{log}");
}

#[test]
fn the_process_id_is_in_its_file_while_the_daemon_runs() {
    let Some(home) = Home::new() else { return };
    let file = home.dir.path().join("pid");
    let mut command = home.command();
    command.arg("--pid-file").arg(&file);
    let daemon = home.ready(command);
    assert_eq!(fs::read_to_string(&file).unwrap(), daemon.pid().to_string());
    // One that may not run does not touch it.
    let mut second = home.command();
    let (status, _) = Daemon(second.arg("--pid-file").arg(&file).spawn().unwrap()).ended();
    assert_eq!(status.code(), Some(1));
    assert_eq!(fs::read_to_string(&file).unwrap(), daemon.pid().to_string());
    let mut elsewhere = home.command();
    elsewhere.env("LEASEHOLD_SOCKET", home.dir.path().join("other.sock"));
    let (status, _) = Daemon(elsewhere.arg("--pid-file").arg(&file).spawn().unwrap()).ended();
    assert_eq!(status.code(), Some(1));
    assert_eq!(fs::read_to_string(&file).ok(), Some(daemon.pid().to_string()), "the store is held");
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.ended().0.success());
    assert!(!file.exists());
}

#[test]
fn the_daemon_opens_as_many_files_as_it_may() {
    let Some(home) = Home::new() else { return };
    let mut shell = Command::new("sh");
    let limits = "ulimit -Sn 64; ulimit -Hn 2048; exec unshare --map-root-user --net \"$0\" daemon";
    shell.args(["-c", limits, LEASEHOLD]);
    home.environment(&mut shell);
    let daemon = home.ready(shell);
    let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(line.split_whitespace().collect::<Vec<_>>()[3..5], ["2048", "2048"], "{line}");
}

#[test]
fn the_daemon_in_the_plugins_place_says_so() {
    let mut plugin = Command::new(LEASEHOLD);
    let output = plugin.env_clear().env("CNI_COMMAND", "ADD").stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(error["code"], 4);
    assert!(error["msg"].as_str().unwrap().contains("not its CNI plugin: install the program dhcp"), "{error}");
}

#[test]
fn a_damaged_store_is_named_in_the_log_and_does_not_stop_it() {
    let Some(home) = Home::new() else { return };
    fs::create_dir(home.state()).unwrap();
    fs::write(home.state().join("leases.redb"), [7; 5000]).unwrap();
    let daemon = home.start();
    daemon.signal(Signal::SIGTERM);
    let (status, log) = daemon.ended();
    assert!(status.success());
    assert!(log.contains("ERROR") && log.contains("leases.redb.damaged-"), "{log}");
}

#[test]
fn the_log_can_be_json() {
    let Some(home) = Home::new() else { return };
    let mut command = home.command();
    command.args(["--log-format", "json", "--log", "debug"]);
    let daemon = home.ready(command);
    daemon.signal(Signal::SIGTERM);
    let (_, log) = daemon.ended();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["message"] == "ready" && line["level"] == "INFO"), "{log}");
    assert!(lines.iter().any(|line| line["message"] == "start" && line["records"] == 0), "{log}");
}

#[test]
fn a_filter_that_is_none_is_refused() {
    let Some(home) = Home::new() else { return };
    let output = home.command().args(["--log", "leasehold=loud"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("leasehold: log filter \"leasehold=loud\""), "{}", text(&output.stderr));
}

#[test]
fn a_list_without_a_daemon_says_how_to_start_one() {
    let Some(home) = Home::new() else { return };
    let output = home.list(&[]);
    assert_eq!(output.status.code(), Some(1));
    let expected = format!(
        "leasehold: no leasehold daemon at {}: start it with `systemctl start leasehold` or `leasehold daemon`\n",
        home.socket().display()
    );
    assert_eq!(text(&output.stderr), expected);
}
