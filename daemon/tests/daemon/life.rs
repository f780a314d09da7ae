//! Starting, stopping, and what the daemon says about it.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::sys::signal::Signal;

use super::home::*;

#[test]
fn a_ready_daemon_answers_and_stops_cleanly() {
    let Some(home) = Home::new() else { return };
    let daemon = home.start();
    assert_eq!(
        (mode(&home.socket()), mode(home.socket().parent().unwrap())),
        (0o600, 0o700)
    );
    assert_eq!(
        (mode(&home.state()), mode(&home.state().join("leases.redb"))),
        (0o700, 0o600)
    );

    let json = home.list(&["--json"]);
    assert!(json.status.success(), "{}", text(&json.stderr));
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&json.stdout).unwrap(),
        serde_json::json!({"bindings": [], "not_adopted": []})
    );
    let table = home.list(&[]);
    assert!(
        text(&table.stdout).starts_with("NAME  ATTACHMENT  ADDRESS  STATE  LEFT"),
        "{}",
        text(&table.stdout)
    );

    daemon.signal(Signal::SIGTERM);
    assert_eq!(home.told().as_deref(), Some("STOPPING=1"));
    let (status, log) = daemon.ended();
    assert!(status.success(), "{status}: {log}");
    assert!(!home.socket().exists());
    assert!(home.state().join("leases.redb").exists());
    assert!(!log.contains("ERROR"), "{log}");
}

#[test]
fn an_add_under_way_is_cut_off_without_an_answer() {
    let Some(home) = Home::new() else { return };
    let (daemon, silence) = with_silence(&home, 4096);
    let request = add("c1", &format!("/proc/{}/ns/net", silence.0));
    let mut caller = UnixStream::connect(home.socket()).unwrap();
    caller.set_read_timeout(Some(PATIENCE)).unwrap();
    caller.write_all(post(&request).as_bytes()).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !text(&home.list(&[]).stdout).contains("lan/c1/eth0") {
        assert!(Instant::now() < deadline, "no binding appeared");
    }

    daemon.signal(Signal::SIGTERM);
    let mut answer = Vec::new();
    // Cut, in one of the two ways in which a connection can be.
    let _ = caller.read_to_end(&mut answer);
    // The shim asks the next daemon only when it got no answer.
    assert_eq!(text(&answer), "");
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
fn the_daemon_opens_as_many_files_as_it_may() {
    let Some(home) = Home::new() else { return };
    let mut shell = Command::new("sh");
    let limits = "ulimit -Sn 64; ulimit -Hn 2048; exec unshare --map-root-user --net \"$0\" daemon";
    shell.args(["-c", limits, LEASEHOLD]);
    home.environment(&mut shell);
    let daemon = home.ready(shell);
    let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.pid())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    assert_eq!(
        line.split_whitespace().collect::<Vec<_>>()[3..5],
        ["2048", "2048"],
        "{line}"
    );
}

#[test]
fn the_daemon_in_the_plugins_place_says_so() {
    let mut plugin = Command::new(LEASEHOLD);
    let output = plugin
        .env_clear()
        .env("CNI_COMMAND", "ADD")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(error["code"], 4);
    assert!(
        error["msg"]
            .as_str()
            .unwrap()
            .contains("not its CNI plugin: install the program dhcp"),
        "{error}"
    );
}

#[test]
fn the_log_can_be_json() {
    let Some(home) = Home::new() else { return };
    let mut command = home.command();
    command.args(["--log-format", "json", "--log", "debug"]);
    let daemon = home.ready(command);
    daemon.signal(Signal::SIGTERM);
    let (_, log) = daemon.ended();
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(
        lines
            .iter()
            .any(|line| line["message"] == "ready" && line["level"] == "INFO"),
        "{log}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line["message"] == "start" && line["records"] == 0),
        "{log}"
    );
}
