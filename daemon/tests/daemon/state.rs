//! The state directory, and the other files that are written.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use leasehold_core::identity::{Attachment, ClientId, Identity, Lan};
use leasehold_core::link::{Cookie, Link};
use leasehold_core::profile::Profile;
use leasehold_core::record::{Record, RecordState};
use leasehold_core::source::Lease;
use leasehold_core::time::{BootId, Instant as CoreInstant, WallTime};
use leasehold_core::wire::Mac;
use nix::sys::signal::Signal;

use super::home::*;

/// Puts two records into a store: one of an earlier boot, and one that does not parse.
fn store_half(path: &Path) {
    let mac = Mac([2, 0, 0, 0, 0, 1]);
    let whole = Record {
        attachment: Attachment::cni("lan", "whole", "eth0"),
        identity: Identity {
            lan: Lan::Network("lan".into()),
            client_id: ClientId::new(b"\0whole".to_vec()).unwrap(),
            chaddr: mac,
        },
        profile: Profile::default(),
        link: Link::InNetns {
            path: "/proc/4194304/ns/net".into(),
            cookie: Cookie(1),
            ifindex: 2,
            mac,
        },
        lease: Lease::unknown(
            "10.0.0.7/24".parse().unwrap(),
            CoreInstant::from_boot(Duration::ZERO),
        ),
        state: RecordState::Bound,
        boot: BootId("an earlier one".to_owned()),
        since: WallTime::from_epoch(Duration::ZERO),
        kept: None,
        former: None,
        taken_off: false,
        unconfirmed: false,
        elsewhere: false,
        told: None,
    };
    let database = redb::Database::open(path).unwrap();
    let txn = database.begin_write().unwrap();
    {
        let mut leases = txn
            .open_table(redb::TableDefinition::<u64, &[u8]>::new("leases"))
            .unwrap();
        leases
            .insert(1, serde_json::to_vec(&whole).unwrap().as_slice())
            .unwrap();
        leases.insert(2, b"{\"half\":".as_slice()).unwrap();
    }
    txn.commit().unwrap();
}

#[test]
fn a_daemon_without_leases_looks_for_containers_that_run() {
    let Some(home) = Home::new() else { return };
    fs::create_dir(home.cache()).unwrap();
    // A container of containerd that ended long ago, and an unusable file.
    let ended = include_str!("../../src/adopt/ctr.json").replace("/proc/15021/", "/proc/4194304/");
    fs::write(home.cache().join("lan-default-c1-eth0"), ended).unwrap();
    fs::write(home.cache().join("broken"), "{").unwrap();
    let mut daemon = home.start();
    let mut log = String::new();
    let mut lines = BufReader::new(daemon.0.stderr.take().unwrap());
    while !log.contains(": not adopted") {
        assert_ne!(lines.read_line(&mut log).unwrap(), 0, "{log}");
    }
    for part in [
        "lan/default-c1/eth0",
        "no network namespace at /proc/4194304/ns/net",
        "broken",
        "containers=1",
    ] {
        has(&log, part);
    }
    let list: serde_json::Value = serde_json::from_slice(&home.list(&["--json"]).stdout).unwrap();
    assert_eq!(list["bindings"], serde_json::json!([]));
}

#[test]
fn a_container_whose_record_is_unreadable_is_adopted() {
    let Some(home) = Home::new() else { return };
    let first = home.start();
    first.signal(Signal::SIGTERM);
    assert!(first.ended().0.success());
    store_half(&home.state().join("leases.redb"));
    fs::create_dir(home.cache()).unwrap();
    let ended = include_str!("../../src/adopt/ctr.json").replace("/proc/15021/", "/proc/4194304/");
    fs::write(home.cache().join("lan-default-c1-eth0"), ended).unwrap();
    assert_eq!(home.told().as_deref(), Some("STOPPING=1"));
    let daemon = home.start();
    daemon.signal(Signal::SIGTERM);
    let (_, log) = daemon.ended();
    has(&log, "started leases=1");
    has(&log, "to hold their leases containers=1");
}

#[test]
fn the_process_id_is_in_its_file_while_the_daemon_runs() {
    let Some(home) = Home::new() else { return };
    let file = home.dir.path().join("pid");
    let mut command = home.command();
    command.arg("--pid-file").arg(&file);
    let daemon = home.ready(command);
    assert_eq!(fs::read_to_string(&file).unwrap(), daemon.pid().to_string());
    // A daemon that must not run does not touch it.
    let mut second = home.command();
    second.env("LEASEHOLD_STATE_DIR", home.dir.path().join("other"));
    let (status, _) = Daemon(second.arg("--pid-file").arg(&file).spawn().unwrap()).ended();
    assert_eq!(status.code(), Some(1));
    assert_eq!(fs::read_to_string(&file).unwrap(), daemon.pid().to_string());
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.ended().0.success());
    assert!(!file.exists());
}

#[test]
fn a_read_only_state_directory_is_read_but_refuses_adds() {
    let Some(home) = Home::new() else { return };
    let first = home.start();
    first.signal(Signal::SIGTERM);
    assert!(first.ended().0.success());
    assert_eq!(home.told().as_deref(), Some("STOPPING=1"));
    store_half(&home.state().join("leases.redb"));
    for empty in [false, true] {
        if empty {
            fs::remove_dir_all(home.state()).unwrap();
            fs::create_dir(home.state()).unwrap();
        }
        let mut shell = Command::new("unshare");
        let read_only = r#"mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && exec "$0" daemon --pid-file "$1/pid""#;
        shell
            .args([
                "--map-root-user",
                "--net",
                "--mount",
                "sh",
                "-ec",
                read_only,
                LEASEHOLD,
            ])
            .arg(home.state());
        home.environment(&mut shell);
        let daemon = home.ready(shell);
        let mut status = call("STATUS", "c1", None);
        status.config = status.config.replace("1.0.0", "1.1.0");
        let answer = home.ask(&status);
        has(&answer, r#""code":50"#);
        has(&answer, "Read-only file system");
        assert!(home.list(&[]).status.success());
        daemon.signal(Signal::SIGTERM);
        assert_eq!(home.told().as_deref(), Some("STOPPING=1"));
        let (status, log) = daemon.ended();
        assert!(status.success(), "{log}");
        has(&log, "lease file cannot be written");
        has(&log, "cannot write the process id to ");
        has(&log, if empty { "records=0" } else { "records=1" });
    }
}

#[test]
fn a_store_of_a_later_release_stops_a_start() {
    let Some(home) = Home::new() else { return };
    let first = home.start();
    first.signal(Signal::SIGTERM);
    assert!(first.ended().0.success());
    assert_eq!(home.told().as_deref(), Some("STOPPING=1"));
    let path = home.state().join("leases.redb");
    as_a_later_release_has_it(&path);
    let (status, log) = Daemon(home.command().spawn().unwrap()).ended();
    assert_eq!(status.code(), Some(1), "{log}");
    let said = format!(
        "is from leasehold 9.8.7 and has format 2; leasehold {} knows 1 at most",
        env!("CARGO_PKG_VERSION")
    );
    has(&log, &said);
    has(&log, "run the newer one, or move the file away");
    fs::rename(&path, home.state().join("moved")).unwrap();
    let daemon = home.start();
    daemon.signal(Signal::SIGTERM);
    let (status, log) = daemon.ended();
    assert!(status.success() && log.contains("records=0"), "{log}");
}
