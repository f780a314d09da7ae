//! DEL while the daemon is down: it succeeds and is not forgotten.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Output;
use std::thread;
use std::time::Instant;

use common::*;
use leasehold_api::cni::Request;
use leasehold_api::spool;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_del_without_a_daemon_is_kept_and_succeeds() {
    let place = Place::new();
    let begin = Instant::now();
    let output = place.run("DEL");
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(0), b"".as_slice()),
        "{output:?}"
    );
    // A second in which a restart goes unnoticed, less the last pause.
    assert!((900..20_000).contains(&begin.elapsed().as_millis()));
    let [name] = place.files().try_into().unwrap();
    let file = place.directory().join(name);
    let request: Request = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(request.env.command.as_deref(), Some("DEL"));
    // The attachment and no more: nobody should find the rest of the configuration there.
    assert_eq!(
        (
            request.config.as_str(),
            &request.env.netns,
            &request.env.args
        ),
        (r#"{"name":"lan"}"#, &None, &None)
    );
    assert_eq!(spool::path(&place.socket(), &request), file);
    assert_eq!(mode(&file), 0o600);
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains(file.to_str().unwrap())
    );
}

#[test]
fn a_del_that_is_asked_twice_is_kept_once() {
    let place = Place::new();
    drop(place.listen());
    for _ in 0..2 {
        assert_eq!(place.run("DEL").status.code(), Some(0));
        assert_eq!(place.files().len(), 1);
    }
}

/// Runs a DEL for a socket in `directory`, and returns what it says on standard error.
fn del_in(place: &Place, directory: &str) -> String {
    let mut config = place.config(30.0);
    config["ipam"]["daemonSocketPath"] = place
        .directory()
        .join(directory)
        .join("dhcp.sock")
        .to_str()
        .unwrap()
        .into();
    let output = run("DEL", config.to_string());
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(0), b"".as_slice()),
        "{output:?}"
    );
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_configuration_makes_no_directories() {
    let place = Place::new();
    let said = del_in(&place, "etc/cron.d");
    assert!(
        said.contains("the DEL is not kept for it") && said.contains("etc/cron.d: No such file"),
        "{said}"
    );
    assert!(place.files().is_empty());
}

#[test]
fn a_configuration_puts_no_file_where_others_may_write() {
    let place = Place::new();
    let shared = place.directory().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    let said = del_in(&place, "shared");
    assert!(said.contains("others may write there"), "{said}");
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 0);
}

#[test]
fn a_full_directory_takes_no_more() {
    let place = Place::new();
    for i in 0..spool::MAX_CALLS {
        fs::File::create(place.directory().join(format!("dhcp.sock.del-{i}"))).unwrap();
    }
    let said = del_in(&place, ".");
    assert!(said.contains("65536 files are there already"), "{said}");
    assert_eq!(place.files().len(), spool::MAX_CALLS);
}

#[test]
fn a_directory_that_is_there_keeps_its_mode() {
    let place = Place::new();
    fs::set_permissions(place.directory(), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(place.run("DEL").status.code(), Some(0));
    assert_eq!(mode(place.directory()), 0o755);
}

#[test]
fn a_del_fails_if_a_file_is_in_place_of_the_directory() {
    let place = Place::new();
    fs::write(place.directory().join("file"), "").unwrap();
    let mut config = place.config(30.0);
    config["ipam"]["daemonSocketPath"] = place
        .directory()
        .join("file/dhcp.sock")
        .to_str()
        .unwrap()
        .into();
    assert_error(&run("DEL", config.to_string()), 5, "cannot be used");
}

#[test]
fn a_del_that_cannot_be_kept_succeeds_and_says_so() {
    let place = Place::new();
    // Where the file of lan/abc/eth0 would be.
    fs::create_dir(
        place
            .directory()
            .join("dhcp.sock.del-5d416efeea0b234eb9330f3d3b4862db"),
    )
    .unwrap();
    let mut command = plugin("DEL");
    command.env("CNI_IFNAME", "eth0");
    let output = start(&mut command, place.config(30.0).to_string())
        .wait_with_output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(0), b"".as_slice()),
        "{said}"
    );
    assert!(
        said.contains("the DEL is not kept for it (Is a directory"),
        "{said}"
    );
    assert_eq!(place.files().len(), 1);
}

#[test]
fn a_restart_within_a_second_is_not_noticed() {
    let place = Place::new();
    let first = place.listen();
    let plugin = start(&mut plugin("DEL"), place.config(30.0).to_string());
    let cut_off = first.accept().unwrap();
    // However slow this machine is, there is no time without a listener.
    let next = place.directory().join("next.sock");
    let second = serve(UnixListener::bind(&next).unwrap(), [answer("200 OK", "")]);
    fs::rename(&next, place.socket()).unwrap();
    drop((cut_off, first));
    assert_eq!(plugin.wait_with_output().unwrap().status.code(), Some(0));
    assert_eq!(second.join().unwrap().len(), 1);
    assert!(place.files().is_empty());
}

/// Runs a DEL against a daemon that closes every connection until the DEL is kept, and then answers `reply`.
fn last_try(reply: &str) -> (Place, Output) {
    let place = Place::new();
    let listener = place.listen();
    let output = thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let (mut stream, _) = listener.accept().unwrap();
                let kept = place.files().iter().any(|name| name.contains(".del-"));
                read_request(&mut stream);
                if kept {
                    return stream.write_all(reply.as_bytes()).unwrap();
                }
            }
        });
        place.run("DEL")
    });
    (place, output)
}

#[test]
fn a_del_answered_at_the_last_try_is_not_kept() {
    let (place, output) = last_try(&answer("200 OK", ""));
    assert_eq!(output.status.code(), Some(0));
    assert!(place.files().is_empty());
}

#[test]
fn a_del_that_fails_at_the_last_try_is_kept() {
    let error = r#"{"cniVersion":"1.0.0","code":11,"msg":"store full"}"#;
    let (place, output) = last_try(&answer("503 Service Unavailable", error));
    assert_error(&output, 11, "store full");
    assert_eq!(place.files().len(), 1);
}

#[test]
fn a_daemon_that_dies_again_and_again_gets_its_del_later() {
    let place = Place::new();
    let listener = place.listen();
    let closer = thread::spawn(move || {
        // A connection without a word is the test's, which is done.
        while listener.accept().unwrap().0.read(&mut [0]).unwrap() > 0 {}
    });
    assert_eq!(place.run("DEL").status.code(), Some(0));
    assert_eq!(place.files().len(), 1);
    drop(UnixStream::connect(place.socket()).unwrap());
    closer.join().unwrap();
}
