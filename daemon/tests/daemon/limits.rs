//! What a host may lack or fail to do.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::home::*;

/// The memory of a process, in KiB.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_log_that_nobody_reads_holds_nothing_up() {
    let Some(home) = Home::new() else { return };
    let mut daemon = home.start();
    // A small pipe, and more lines than fit.
    let pipe = daemon.0.stderr.as_ref().unwrap();
    fcntl(pipe, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
    for _ in 0..100 {
        assert!(
            home.ask(&add("c1", "/run/nowhere"))
                .contains("no network namespace at /run/nowhere")
        );
    }
    assert!(home.list(&[]).status.success());
    daemon.signal(Signal::SIGTERM);
    let deadline = Instant::now() + PATIENCE;
    while daemon.0.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it does not stop");
    }
}

#[test]
fn the_loop_feeds_the_watchdog() {
    let Some(home) = Home::new() else { return };
    let mut command = home.command();
    command.env("WATCHDOG_USEC", "20000");
    let daemon = home.ready(command);
    for _ in 0..3 {
        assert_eq!(home.told().as_deref(), Some("WATCHDOG=1"));
    }
    drop(daemon);
}

#[test]
fn callers_beyond_what_there_are_descriptors_for_wait() {
    let Some(home) = Home::new() else { return };
    let (_daemon, silence) = with_silence(&home, 256);
    let netns = format!("/proc/{}/ns/net", silence.0);
    let answers: Vec<String> = std::thread::scope(|scope| {
        let adds: Vec<_> = (0..300)
            .map(|n| {
                let mut add = add(&format!("c{n}"), &netns);
                add.config = add.config.replace(r#""dhcp""#, r#""dhcp","timeout":0.5"#);
                let home = &home;
                scope.spawn(move || home.ask(&add))
            })
            .collect();
        adds.into_iter().map(|add| add.join().unwrap()).collect()
    });
    for answer in answers {
        assert!(
            answer.contains(r#""code":11"#) && !answer.contains("open files"),
            "{answer}"
        );
    }
}

#[test]
fn of_a_request_that_waits_only_what_is_needed_is_kept() {
    let Some(home) = Home::new() else { return };
    let (daemon, silence) = with_silence(&home, 4096);
    let netns = format!("/proc/{}/ns/net", silence.0);
    let before = resident(daemon.pid());
    let callers: Vec<_> = (0..500)
        .map(|n| {
            let mut add = add(&format!("c{n}"), &netns);
            add.config = add.config.replacen(
                '{',
                &format!(r#"{{"padding":"{}","#, "x".repeat(200_000)),
                1,
            );
            let mut caller = UnixStream::connect(home.socket()).unwrap();
            caller.write_all(post(&add).as_bytes()).unwrap();
            caller
        })
        .collect();
    let deadline = Instant::now() + PATIENCE;
    while text(&home.list(&[]).stdout).matches("lan/c").count() < callers.len() {
        assert!(Instant::now() < deadline, "not all are taken up");
    }
    let grown = resident(daemon.pid()) - before;
    assert!(grown < 48 << 10, "{grown} KiB for 100 MB of requests");
}

#[test]
fn a_missing_mount_is_told_from_a_missing_capability() {
    let Some(home) = Home::new() else { return };
    let mut shell = Command::new("unshare");
    // The other process has more capabilities than the daemon, which may then not look at its namespace.
    let script = r#"sleep 600 >/dev/null 2>&1 & echo $!
        less=-sys_ptrace,-dac_override,-dac_read_search
        exec setpriv --inh-caps=$less --bounding-set=$less "$0" daemon"#;
    shell.args(["--map-root-user", "--net", "sh", "-ec", script, LEASEHOLD]);
    home.environment(&mut shell);
    shell.stdout(Stdio::piped());
    let mut daemon = home.ready(shell);
    let mut pid = String::new();
    BufReader::new(daemon.0.stdout.take().unwrap())
        .read_line(&mut pid)
        .unwrap();
    let other = Silence(Pid::from_raw(pid.trim().parse().unwrap()));
    let answer = home.ask(&add("c1", &format!("/proc/{}/ns/net", other.0)));
    has(&answer, "needs CAP_SYS_PTRACE");

    // As `ip netns` leaves it if its mount fails.
    let bare = home.dir.path().join("netns");
    fs::write(&bare, "").unwrap();
    fs::set_permissions(&bare, fs::Permissions::from_mode(0o000)).unwrap();
    let answer = home.ask(&add("c1", bare.to_str().unwrap()));
    has(&answer, "mountPropagation: HostToContainer");
}
