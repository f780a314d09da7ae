//! The plugin and its daemon: what goes over, what comes back, and what happens while the daemon is not there.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::io::{Read, Write};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use leasehold_api::MAX_BODY;
use leasehold_api::cni::Version;
use serde_json::json;

const RESULT: &str = r#"{"cniVersion":"1.0.0","ips":[{"address":"192.0.2.10/24"}]}"#;

#[test]
fn environment_and_configuration_are_passed_on_verbatim() {
    let place = Place::new();
    let daemon = serve(place.listen(), [answer("200 OK", RESULT)]);
    // Not as serde_json would write it, and with keys that the shim does not know.
    let config = format!("\n{} ", place.config(30.0).to_string().replace(',', " ,\t"));
    let output = run("ADD", &config);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(output.stdout, format!("{RESULT}\n").as_bytes());
    let (head, body) = daemon.join().unwrap().pop().unwrap();
    assert!(head.starts_with("POST /cni HTTP/1.1\r\n"), "{head}");
    assert_eq!(
        body,
        json!({
            "env": {
                "CNI_COMMAND": "ADD", "CNI_CONTAINERID": "abc", "CNI_NETNS": "/run/netns/abc", "CNI_IFNAME": "net1",
                "CNI_PATH": "/opt/cni/bin", "CNI_ARGS": "A=1",
            },
            "config": config,
        })
    );
}

#[test]
fn an_error_of_the_daemon_is_passed_on_byte_for_byte() {
    let place = Place::new();
    let error =
        r#"{"cniVersion":"1.0.0", "code":11, "msg":"no offer", "details":"ADD of lan/abc/net1"}"#;
    for verb in ["ADD", "CHECK", "DEL", "GC", "STATUS"] {
        let _ = std::fs::remove_file(place.socket());
        let daemon = serve(place.listen(), [answer("503 Service Unavailable", error)]);
        let output = place.run(verb);
        assert_eq!(output.status.code(), Some(1), "{verb}");
        assert_eq!(output.stdout, format!("{error}\n").as_bytes(), "{verb}");
        daemon.join().unwrap();
    }
    assert!(place.files().is_empty());
}

#[test]
fn all_verbs_but_add_print_nothing_on_success() {
    let place = Place::new();
    let verbs = ["DEL", "CHECK", "GC", "STATUS"];
    let daemon = serve(place.listen(), verbs.map(|_| answer("200 OK", "")));
    for verb in verbs {
        let output = place.run(verb);
        assert_eq!(
            (output.status.code(), output.stdout.as_slice()),
            (Some(0), b"".as_slice()),
            "{verb}"
        );
    }
    daemon.join().unwrap();
}

#[test]
fn a_restart_of_the_daemon_is_not_noticed() {
    let place = Place::new();
    let first = place.listen();
    let plugin = start(&mut plugin("ADD"), place.config(30.0).to_string());
    read_request(&mut first.accept().unwrap().0);
    drop(first);
    std::fs::remove_file(place.socket()).unwrap();
    let second = serve(place.listen(), [answer("200 OK", RESULT)]);
    assert_eq!(plugin.wait_with_output().unwrap().status.code(), Some(0));
    second.join().unwrap();
}

#[test]
fn a_daemon_that_dies_before_its_answer_is_asked_again() {
    let place = Place::new();
    let daemon = serve(
        place.listen(),
        [String::new(), String::new(), answer("200 OK", RESULT)],
    );
    let output = place.run("ADD");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let requests = daemon.join().unwrap();
    assert_eq!(requests[0], requests[2]);
}

#[test]
fn a_connection_reset_before_the_request_is_tried_again() {
    let place = Place::new();
    let listener = place.listen();
    let daemon = thread::spawn(move || {
        drop(listener.accept().unwrap());
        serve(listener, [answer("200 OK", RESULT)]).join().unwrap();
    });
    assert_eq!(place.run("ADD").status.code(), Some(0));
    daemon.join().unwrap();
}

#[test]
fn an_answer_that_breaks_off_is_an_error() {
    let place = Place::new();
    let whole = answer("200 OK", RESULT);
    let daemon = serve(
        place.listen(),
        [whole[..20].to_owned(), whole[..whole.len() - 1].to_owned()],
    );
    for _ in 0..2 {
        assert_error(&place.run("ADD"), 11, "in the middle of its answer");
    }
    daemon.join().unwrap();
}

#[test]
fn an_answer_in_single_bytes_is_put_together() {
    let place = Place::new();
    let listener = place.listen();
    let daemon = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        read_request(&mut stream);
        for byte in answer("200 OK", RESULT).bytes() {
            stream.write_all(&[byte]).unwrap();
        }
        // Nothing is closed: the length alone says that this was all.
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty());
    });
    let output = place.run("ADD");
    assert_eq!(output.stdout, format!("{RESULT}\n").as_bytes());
    daemon.join().unwrap();
}

#[test]
fn an_answer_that_does_not_come_ends_with_the_time_out() {
    let place = Place::new();
    let listener = place.listen();
    for verb in ["ADD", "CHECK", "DEL"] {
        let begin = Instant::now();
        let plugin = start(&mut plugin(verb), place.config(0.1).to_string());
        let (mut stream, _) = listener.accept().unwrap();
        read_request(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\n").unwrap();
        assert_error(
            &plugin.wait_with_output().unwrap(),
            11,
            "did not answer in time",
        );
        // The daemon's time-out, and a margin in which its own error would have won.
        assert!(
            (2100..10_000).contains(&begin.elapsed().as_millis()),
            "{verb}"
        );
    }
    assert!(place.files().is_empty());
}

#[test]
fn a_daemon_that_accepts_nothing_ends_with_the_time_out() {
    let place = Place::new();
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
    let address = socket2::SockAddr::unix(place.socket()).unwrap();
    socket.bind(&address).unwrap();
    socket.listen(0).unwrap();
    // The first fits the backlog; the plugin's own connection then waits.
    let first = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
    first.connect(&address).unwrap();
    assert_error(
        &run("ADD", place.config(0.1).to_string()),
        11,
        "did not answer in time",
    );
}

#[test]
fn without_a_daemon_the_error_names_the_socket_and_remedy() {
    // First nothing at the socket's path, then what a killed daemon leaves there.
    for (verb, stale) in [("ADD", false), ("CHECK", true)] {
        let place = Place::new();
        if stale {
            drop(place.listen());
        }
        let begin = Instant::now();
        let output = run(verb, place.config(0.1).to_string());
        assert_error(&output, 11, place.socket().to_str().unwrap());
        assert_error(&output, 11, "start it (leasehold daemon)");
        assert_eq!(stdout(&output)["cniVersion"], "1.0.0");
        assert!(
            (1900..10_000).contains(&begin.elapsed().as_millis()),
            "{verb}"
        );
        assert!(place.files().is_empty());
    }
}

#[test]
fn an_answer_that_is_not_leaseholds_is_named() {
    // What Go's net/rpc says to a POST, and what a caller that names any socket must not be told, are among them.
    let table = r#"
        SSH-2.0-OpenSSH_9.6\r\n => is not HTTP
        HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n => an encoding
        HTTP/1.1 200 OK\r\n\r\n{} => no length
        HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n => no length
        HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n => 99999999999 bytes long
        HTTP/1.1 100 Continue\r\n\r\n => does not answer the request
        HTTP/1.1 404 Not Found\r\nContent-Length: 18\r\n\r\n404 page not found => answers with HTTP status 404; does another daemon serve
        HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\n{} => answers with HTTP status 500
        HTTP/1.1 403 Forbidden\r\nContent-Length: 6\r\n\r\nsecret => it answers with HTTP status 403
    "#;
    for row in table.lines().filter(|row| !row.trim().is_empty()) {
        let (text, part) = row.split_once(" => ").unwrap();
        let place = Place::new();
        let text = text.trim_start().replace("\\r\\n", "\r\n");
        let daemon = serve(place.listen(), [text]);
        let output = place.run("ADD");
        assert_error(&output, 5, part);
        assert!(!String::from_utf8_lossy(&output.stdout).contains("secret"));
        daemon.join().unwrap();
    }
}

#[test]
fn a_head_that_does_not_end_is_refused() {
    let place = Place::new();
    let daemon = serve(
        place.listen(),
        [format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(10_000))],
    );
    assert_error(&place.run("ADD"), 5, "does not end");
    let _ = daemon.join();
}

#[test]
fn a_refusal_before_the_whole_request_was_read_is_heard() {
    let place = Place::new();
    let listener = place.listen();
    let error = r#"{"cniVersion":"1.0.0","code":7,"msg":"too large"}"#;
    let daemon = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 100]).unwrap();
        stream
            .write_all(answer("413 Payload Too Large", error).as_bytes())
            .unwrap();
    });
    let mut config = place.config(30.0);
    config["padding"] = "x".repeat(900_000).into();
    assert_error(&run("ADD", config.to_string()), 7, "too large");
    daemon.join().unwrap();
}

#[test]
fn what_does_not_fit_a_request_is_refused() {
    let place = Place::new();
    let mut config = place.config(30.0);
    config["padding"] = "x".repeat(MAX_BODY).into();
    assert_error(&run("ADD", config.to_string()), 7, "too large");
    // It fits as it is, but not as a JSON string.
    config["padding"] = "\"".repeat(MAX_BODY / 3).into();
    assert_error(&run("DEL", config.to_string()), 7, "too large");
}

#[test]
fn what_the_shim_cannot_read_the_daemon_judges() {
    let place = Place::new();
    let socket = place.socket().display().to_string();
    // Invalid UTF-8, unset and strange variables: all of it arrives.
    let listener = place.listen();
    let daemon = serve(listener, [answer("200 OK", ""), answer("200 OK", "")]);
    let mut config = format!(
        r#"{{"name": [], "ipam": {{"daemonSocketPath": "{socket}", "timeout": "x"}}, "x": ""#
    );
    config.push_str("\u{fffd}\"}");
    let bytes: Vec<u8> = config
        .replace('\u{fffd}', "?")
        .bytes()
        .map(|b| if b == b'?' { 0xff } else { b })
        .collect();
    let mut strange = plugin("CHECK");
    strange
        .env("CNI_CONTAINERID", "../\n\"")
        .env("CNI_IFNAME", "")
        .env_remove("CNI_NETNS");
    for _ in 0..2 {
        let output = start(&mut strange, &bytes).wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    let (_, body) = daemon.join().unwrap().pop().unwrap();
    assert_eq!(body["config"], config);
    assert_eq!(body["env"]["CNI_CONTAINERID"], "../\n\"");
    assert_eq!(body["env"]["CNI_IFNAME"], "");
    assert!(body["env"].get("CNI_NETNS").is_none());
}

#[test]
fn a_killed_plugin_is_a_closed_connection() {
    let place = Place::new();
    let listener = place.listen();
    let mut plugin = start(&mut plugin("ADD"), place.config(30.0).to_string());
    let (mut stream, _) = listener.accept().unwrap();
    read_request(&mut stream);
    let (closed, closes) = mpsc::channel();
    thread::spawn(move || closed.send(stream.read(&mut [0; 1]).unwrap()).unwrap());
    // Until then it is not even half-closed.
    assert!(closes.recv_timeout(Duration::from_millis(50)).is_err());
    plugin.kill().unwrap();
    assert_eq!(closes.recv_timeout(Duration::from_secs(10)), Ok(0));
    plugin.wait().unwrap();
}

#[test]
fn gc_and_status_are_passed_on_without_an_attachment() {
    let place = Place::new();
    let daemon = serve(place.listen(), [answer("200 OK", ""), answer("200 OK", "")]);
    let config = place.config(30.0).to_string();
    for verb in ["GC", "STATUS"] {
        let mut bare = Command::new(env!("CARGO_BIN_EXE_dhcp"));
        bare.env_clear()
            .env("CNI_COMMAND", verb)
            .env("CNI_PATH", "/opt/cni/bin");
        assert_eq!(
            start(&mut bare, &config)
                .wait_with_output()
                .unwrap()
                .status
                .code(),
            Some(0)
        );
    }
    for ((_, body), verb) in daemon.join().unwrap().into_iter().zip(["GC", "STATUS"]) {
        assert_eq!(
            body,
            json!({"env": {"CNI_COMMAND": verb, "CNI_PATH": "/opt/cni/bin"}, "config": config})
        );
    }
}

#[test]
fn status_and_gc_without_a_daemon_name_the_socket_soon() {
    let place = Place::new();
    for (verb, code) in [("STATUS", 50), ("GC", 11)] {
        let begin = Instant::now();
        let output = place.run(verb);
        assert!(
            (900..20_000).contains(&begin.elapsed().as_millis()),
            "{verb}"
        );
        assert_error(&output, code, &place.socket().display().to_string());
        assert_error(&output, code, "leasehold daemon");
        assert!(place.files().is_empty(), "{verb}");
    }
}

#[test]
fn the_socket_is_found_whatever_the_case_of_its_key() {
    let place = Place::new();
    let daemon = serve(place.listen(), [answer("200 OK", RESULT)]);
    let config = place
        .config(30.0)
        .to_string()
        .replace("daemonSocketPath", "DaemonSocketpath");
    assert_eq!(run("ADD", config).status.code(), Some(0));
    daemon.join().unwrap();
}

#[test]
fn status_of_another_daemon_is_not_available() {
    let place = Place::new();
    let daemon = serve(
        place.listen(),
        ["HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno".to_owned()],
    );
    assert_error(&place.run("STATUS"), 50, "not the leasehold daemon");
    daemon.join().unwrap();
}

#[test]
fn whether_the_hosts_namespace_will_do_is_passed_on() {
    let place = Place::new();
    let daemon = serve(place.listen(), [answer("200 OK", RESULT)]);
    let mut plugin = plugin("ADD");
    let output = start(
        plugin.env("CNI_NETNS_OVERRIDE", "1"),
        place.config(30.0).to_string(),
    );
    assert_eq!(output.wait_with_output().unwrap().status.code(), Some(0));
    assert_eq!(
        daemon.join().unwrap()[0].1["env"]["CNI_NETNS_OVERRIDE"],
        "1"
    );
}

#[test]
fn version_needs_no_daemon_and_no_configuration() {
    let table = [
        ("", "1.1.0"),
        ("{}", "1.1.0"),
        ("{", "1.1.0"),
        (r#"{"cniVersion": ""}"#, "1.1.0"),
        (r#"{"cniVersion": "0.4.0"}"#, "0.4.0"),
        (r#"{"cniVersion": "0.2.0"}"#, "0.2.0"),
    ];
    for (stdin, version) in table {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dhcp"));
        let output = start(command.env_clear().env("CNI_COMMAND", "VERSION"), stdin)
            .wait_with_output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(
            stdout(&output),
            json!({"cniVersion": version, "supportedVersions": Version::ALL.map(Version::as_str)}),
            "{stdin}"
        );
    }
}

#[test]
fn a_verb_that_is_not_served_is_named_at_once() {
    for verb in ["", "add", "UPDATE"] {
        assert_error(&run(verb, "{}"), 4, "is not a supported verb");
    }
    let output = start(plugin("").env_remove("CNI_COMMAND"), "")
        .wait_with_output()
        .unwrap();
    assert_error(&output, 4, "CNI_COMMAND: not set");
}
