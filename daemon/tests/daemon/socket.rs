//! The socket, who has it, and the files beside it.

use std::fs;
use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use leasehold_api::spool;
use nix::sys::signal::Signal;

use super::home::*;

#[test]
fn the_next_daemon_takes_over_after_kill_9() {
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
    let other = home.dir.path().join("other");
    let (status, log) = Daemon(
        home.command()
            .env("LEASEHOLD_STATE_DIR", &other)
            .spawn()
            .unwrap(),
    )
    .ended();
    assert_eq!(status.code(), Some(1));
    let owner = format!(
        "{} is served by process {} (leasehold)",
        home.socket().display(),
        first.pid()
    );
    has(&log, &owner);
    assert!(home.list(&[]).status.success(), "the first one goes on");
}

#[test]
fn a_second_daemon_waits_for_the_first_and_takes_over() {
    let Some(home) = Home::new() else { return };
    let pid_file = home.dir.path().join("pid");
    let begin = |socket: &Path| {
        let mut command = home.command();
        command
            .env("LEASEHOLD_SOCKET", socket)
            .arg("--pid-file")
            .arg(&pid_file);
        let mut daemon = Daemon(command.spawn().unwrap());
        let log = BufReader::new(daemon.0.stderr.take().unwrap());
        (daemon, log)
    };
    let (first, _first_log) = begin(&home.socket());
    assert_eq!(home.told().as_deref(), Some("READY=1"));
    let waiting = format!(
        "is in use by process {} (leasehold): waiting for it to exit",
        first.pid()
    );
    let (second, mut log) = begin(&home.socket());
    said(&mut log, &waiting);
    let other = home.dir.path().join("other.sock");
    let (third, mut third_log) = begin(&other);
    said(&mut third_log, &waiting);
    third.signal(Signal::SIGTERM);
    said(&mut third_log, "stopped before it started");
    assert!(!other.exists());
    // Callers are answered meanwhile, so that whatever replaces daemons can go on.
    assert!(home.list(&[]).status.success());
    assert_eq!(
        fs::read_to_string(&pid_file).unwrap(),
        first.pid().to_string()
    );

    first.signal(Signal::SIGTERM);
    assert_eq!(home.told().as_deref(), Some("STOPPING=1"));
    assert_eq!(home.told().as_deref(), Some("READY=1"));
    assert!(home.list(&[]).status.success());
    assert_eq!(
        fs::read_to_string(&pid_file).unwrap(),
        second.pid().to_string()
    );
}

#[test]
fn a_removed_socket_is_bound_again() {
    let Some(home) = Home::new() else { return };
    let daemon = home.start();
    fs::remove_dir_all(home.socket().parent().unwrap()).unwrap();
    fs::create_dir(home.socket().parent().unwrap()).unwrap();
    let request = call("DEL", "c1", None);
    let file = spool::path(&home.socket(), &request);
    fs::write(&file, serde_json::to_vec(&request).unwrap()).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !home.list(&[]).status.success() || file.exists() {
        assert!(
            Instant::now() < deadline,
            "still gone, or {} is still there",
            file.display()
        );
        std::thread::yield_now();
    }
    daemon.signal(Signal::SIGTERM);
    let (_, log) = daemon.ended();
    has(&log, "WARN");
    has(&log, "bound again");
    assert!(!home.socket().exists());
}

#[test]
fn a_socket_of_systemd_is_used_and_left() {
    let Some(home) = Home::new() else { return };
    let path = home.dir.path().join("activated.sock");
    let daemon = home.activated(&path);
    let list = Command::new(LEASEHOLD)
        .arg("list")
        .arg("--socket")
        .arg(&path)
        .output()
        .unwrap();
    assert!(list.status.success(), "{}", text(&list.stderr));
    assert!(!home.socket().exists());
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.ended().0.success());
    assert!(path.exists());
}

#[test]
fn a_spooled_del_is_carried_out_at_the_start() {
    let Some(home) = Home::new() else { return };
    fs::create_dir(home.socket().parent().unwrap()).unwrap();
    let request = call("DEL", "c1", None);
    let file = spool::path(&home.socket(), &request);
    fs::write(&file, serde_json::to_vec(&request).unwrap()).unwrap();
    let _daemon = home.start();
    // The list is requested after the spooled call, so its answer shows that the loop has run; the file goes right
    // after.
    assert!(home.list(&[]).status.success());
    let deadline = Instant::now() + PATIENCE;
    while file.exists() {
        assert!(
            Instant::now() < deadline,
            "{} is still there",
            file.display()
        );
        assert!(home.list(&[]).status.success());
    }
}
