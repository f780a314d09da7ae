//! What the daemon logs, where, and for how long.

use std::fs::{self, File};
use std::os::linux::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Output};

use nix::sys::signal::Signal;

use super::home::*;

fn log(home: &Home, args: &[&str]) -> Output {
    Command::new(LEASEHOLD)
        .arg("log")
        .args(args)
        .env("LEASEHOLD_SOCKET", home.socket())
        .output()
        .unwrap()
}

#[test]
fn what_is_logged_can_be_changed_for_a_while() {
    let Some(home) = Home::new() else { return };
    let daemon = home.start();
    let said = |args: &[&str]| text(&log(&home, args).stdout).to_owned();
    assert_eq!(said(&[]), "info\n");
    home.list(&[]);
    assert!(said(&["debug", "--for", "1h"]).starts_with("debug, for 3"));
    home.list(&[]);
    let shown: serde_json::Value = serde_json::from_str(&said(&["--json"])).unwrap();
    assert_eq!(shown["filter"], "debug");
    assert!(
        shown["seconds_left"]
            .as_u64()
            .is_some_and(|left| (3500..=3600).contains(&left)),
        "{shown}"
    );
    assert_eq!(said(&["--reset"]), "info\n");
    home.list(&[]);

    let bad = log(&home, &["verbose", "--for", "1m"]);
    assert_eq!(bad.status.code(), Some(1));
    assert!(
        text(&bad.stderr).contains("\"verbose\" is no level"),
        "{}",
        text(&bad.stderr)
    );
    assert_eq!(said(&[]), "info\n");
    let long = log(&home, &["debug", "--for", "25h"]);
    assert!(
        text(&long.stderr).contains("expected a number from 1 to 86400"),
        "{}",
        text(&long.stderr)
    );

    daemon.signal(Signal::SIGTERM);
    let (_, log) = daemon.ended();
    let (before, rest) = log.split_once("log filter changed").unwrap();
    let (meanwhile, after) = rest
        .split_once("log filter reset to what it was at the start")
        .unwrap();
    assert!(meanwhile.contains("in input=Request"), "{log}");
    assert!(
        !before.contains("in input=Request") && !after.contains("in input=Request"),
        "only meanwhile: {log}"
    );
}

#[test]
fn a_level_that_nobody_knows_silences_no_daemon() {
    let Some(home) = Home::new() else { return };
    let mut command = home.command();
    command.env("LEASEHOLD_LOG", "verbose");
    let daemon = home.ready(command);
    let said = log(&home, &[]);
    assert_eq!(text(&said.stdout), "info\n");
    daemon.signal(Signal::SIGTERM);
    let (_, log) = daemon.ended();
    has(&log, "WARN");
    has(&log, "\"verbose\" is no level");
}

#[test]
fn the_journal_gets_fields_where_it_is_standard_error() {
    let Some(home) = Home::new() else { return };
    let journal = home.dir.path().join("journal");
    fs::create_dir(&journal).unwrap();
    let socket = UnixDatagram::bind(journal.join("socket")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let stderr = File::create(home.dir.path().join("stderr")).unwrap();
    let stream = stderr
        .metadata()
        .map(|file| format!("{}:{}", file.st_dev(), file.st_ino()))
        .unwrap();

    let mut shell = Command::new("unshare");
    let mounts = "mount -t tmpfs none /run && mkdir -p /run/systemd/journal && \
                  mount --bind \"$1\" /run/systemd/journal && exec \"$0\" daemon";
    shell
        .args([
            "--map-root-user",
            "--net",
            "--mount",
            "sh",
            "-c",
            mounts,
            LEASEHOLD,
        ])
        .arg(&journal);
    home.environment(&mut shell);
    shell.env("JOURNAL_STREAM", stream).stderr(stderr);
    let mut daemon = Daemon(shell.spawn().unwrap());
    assert_eq!(home.told().as_deref(), Some("READY=1"));

    let entry = loop {
        let mut bytes = vec![0; 1 << 16];
        let length = socket.recv(&mut bytes).unwrap();
        let entry = String::from_utf8_lossy(&bytes[..length]).into_owned();
        if entry.contains("store open") {
            break entry;
        }
    };
    for part in [
        "MESSAGE\n",
        "store open state_dir=",
        "PRIORITY\n",
        "LEASEHOLD_STATE_DIR\n",
        "LEASEHOLD_RECORDS\n",
    ] {
        assert!(entry.contains(part), "{part}: {entry}");
    }
    daemon.signal(Signal::SIGTERM);
    daemon.0.wait().unwrap();
    assert_eq!(
        fs::read_to_string(home.dir.path().join("stderr")).unwrap(),
        ""
    );
}
