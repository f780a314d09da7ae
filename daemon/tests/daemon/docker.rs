//! Docker's plugin sockets: who finds them, and which calls come.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::home::*;

impl Home {
    fn plugins(&self) -> PathBuf {
        self.dir.path().join("docker/plugins")
    }

    /// Starts a daemon that Docker finds.
    fn start_for_docker(&self) -> Daemon {
        let mut command = self.command();
        command.arg("--docker-plugin-dir").arg(self.plugins());
        self.ready(command)
    }
}

/// Calls a plugin as dockerd does: with its own kind of JSON, an empty Host, and no Content-Type.
fn begin(socket: &Path, method: &str, body: &str) -> UnixStream {
    let mut caller = UnixStream::connect(socket).unwrap();
    caller.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "POST /{method} HTTP/1.1\r\nHost: \r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: {}\r\n\
         Accept: application/vnd.docker.plugins.v1.2+json\r\n\r\n",
        body.len()
    );
    caller.write_all((head + body).as_bytes()).unwrap();
    caller
}

/// Returns the status and the body of the answer.
fn answer(mut caller: UnixStream) -> (u16, Value) {
    let mut text = String::new();
    caller.read_to_string(&mut text).unwrap();
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (
        status,
        serde_json::from_str(body).unwrap_or_else(|_| panic!("no JSON: {body:?}")),
    )
}

fn call(socket: &Path, method: &str, body: &str) -> (u16, Value) {
    answer(begin(socket, method, body))
}

#[test]
fn docker_finds_two_drivers_if_they_are_asked_for() {
    let Some(home) = Home::new() else { return };
    let daemon = home.start_for_docker();
    for (name, requires) in [("leasehold", true), ("leasehold-ipvlan", false)] {
        let socket = home.plugins().join(format!("{name}.sock"));
        assert_eq!(mode(&socket), 0o600);
        assert_eq!(
            call(&socket, "Plugin.Activate", ""),
            (200, json!({"Implements": ["IpamDriver", "NetworkDriver"]}))
        );
        let capabilities = json!({"RequiresMACAddress": requires, "RequiresRequestReplay": false});
        assert_eq!(
            call(&socket, "IpamDriver.GetCapabilities", ""),
            (200, capabilities)
        );
        let (_, spaces) = call(&socket, "IpamDriver.GetDefaultAddressSpaces", "");
        assert_eq!(
            spaces["LocalDefaultAddressSpace"],
            spaces["GlobalDefaultAddressSpace"]
        );
        let capabilities =
            json!({"Scope": "local", "ConnectivityScope": "local", "GwAllocChecker": true});
        assert_eq!(
            call(&socket, "NetworkDriver.GetCapabilities", ""),
            (200, capabilities)
        );
        assert_eq!(call(&socket, "NetworkDriver.Dance", "").0, 404);
    }
    assert!(home.list(&[]).status.success());
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.ended().0.success());
    assert!(
        !home.plugins().join("leasehold.sock").exists()
            && !home.plugins().join("leasehold-ipvlan.sock").exists()
    );

    // At once: the daemon looks for it meanwhile.
    let gone = home.dir.path().join("gone");
    fs::rename(home.plugins(), &gone).unwrap();
    fs::remove_dir_all(gone).unwrap();
    assert_eq!(home.told().as_deref(), Some("STOPPING=1"));
    let daemon = home.start();
    assert!(!home.plugins().exists());
    drop(daemon);
}

/// Waits until there is a plugin that answers.
fn wait_for_plugin(socket: &Path) {
    let deadline = Instant::now() + PATIENCE;
    while UnixStream::connect(socket).is_err() {
        assert!(Instant::now() < deadline, "still gone");
        std::thread::yield_now();
    }
    assert_eq!(call(socket, "Plugin.Activate", "").0, 200);
}

#[test]
fn a_plugin_socket_that_somebody_removes_is_bound_again() {
    let Some(home) = Home::new() else { return };
    let _daemon = home.start_for_docker();
    fs::remove_dir_all(home.plugins()).unwrap();
    wait_for_plugin(&home.plugins().join("leasehold.sock"));
}

/// Starts a daemon that Docker finds, on a host whose `eth0` is a wire where nobody answers.
fn beside_silence(home: &Home) -> Daemon {
    let mut shell = Command::new("unshare");
    let parent =
        "ip link add eth0 type veth peer name peer && ip link set eth0 up && ip link set peer up";
    let run = format!("{parent} && exec \"$0\" daemon --docker-plugin-dir \"$1\"");
    shell
        .args(["--map-root-user", "--net", "sh", "-ec", &run, LEASEHOLD])
        .arg(home.plugins());
    home.environment(&mut shell);
    home.ready(shell)
}

#[test]
fn a_reserved_address_outlives_the_daemon() {
    let Some(home) = Home::new() else { return };
    let socket = home.plugins().join("leasehold.sock");
    let daemon = beside_silence(&home);
    // As 20.10 sends it.
    let request = r#"{"AddressSpace":"leasehold","Pool":"192.168.1.0/24","SubPool":"","Options":{"parent":"eth0"},"V6":false}"#;
    let id = "192.168.1.0/24;;parent=eth0";
    let pool = json!({"PoolID": id, "Pool": "192.168.1.0/24", "Data": {}});
    assert_eq!(
        call(&socket, "IpamDriver.RequestPool", request),
        (200, pool.clone())
    );
    let aux = json!({"PoolID": id, "Address": "192.168.1.5", "Options": null}).to_string();
    assert_eq!(
        call(&socket, "IpamDriver.RequestAddress", &aux),
        (200, json!({"Address": "192.168.1.5/24"}))
    );
    drop(daemon);
    let _daemon = home.start_for_docker();
    let list = home.list(&[]);
    assert!(
        text(&list.stdout).ends_with(&format!("without a lease:\n{id}: 192.168.1.5\n")),
        "{list:?}"
    );
    // Known, though there is no eth0 now.
    assert_eq!(
        call(&socket, "IpamDriver.RequestPool", request),
        (200, pool),
    );
    for _ in 0..2 {
        let release = json!({"PoolID": id, "Address": "192.168.1.5"}).to_string();
        assert_eq!(
            call(&socket, "IpamDriver.ReleaseAddress", &release),
            (200, json!({}))
        );
    }
    let (status, refused) = call(
        &socket,
        "IpamDriver.RequestPool",
        r#"{"Pool":"192.168.1.0/24","Options":{}}"#,
    );
    assert_eq!((status, &refused["Error"]), (200, &refused["Err"]));
    assert_eq!(call(&socket, "IpamDriver.RequestPool", "").0, 400);
    let release = json!({"PoolID": id}).to_string();
    assert_eq!(
        call(&socket, "IpamDriver.ReleasePool", &release),
        (200, json!({}))
    );
}

#[test]
fn at_its_end_the_daemon_answers_dockers_open_calls() {
    let Some(home) = Home::new() else { return };
    let daemon = beside_silence(&home);
    let socket = home.plugins().join("leasehold.sock");
    let mac = json!({"com.docker.network.endpoint.macaddress": "02:42:c0:a8:01:02"});
    let body =
        json!({"PoolID": "192.168.1.0/24;;parent=eth0", "Address": "", "Options": mac}).to_string();
    let open = begin(&socket, "IpamDriver.RequestAddress", &body);
    let deadline = Instant::now() + PATIENCE;
    while !text(&home.list(&[]).stdout).contains("02:42:c0:a8:01:02") {
        assert!(Instant::now() < deadline, "no binding appeared");
    }
    daemon.signal(Signal::SIGTERM);
    assert_eq!(home.told().as_deref(), Some("STOPPING=1"));
    // From now on dockerd finds no socket, and tries again with its whole request.
    assert!(!socket.exists());
    let (status, answer) = answer(open);
    assert_eq!(status, 200);
    assert!(
        answer["Err"]
            .as_str()
            .unwrap()
            .starts_with("the leasehold daemon stopped before it had an address"),
        "{answer}"
    );
    let (status, log) = daemon.ended();
    assert!(status.success(), "{log}");
    let _next = home.start_for_docker();
    // It came to nothing.
    assert!(!text(&home.list(&[]).stdout).contains("02:42:c0:a8:01:02"));
}
