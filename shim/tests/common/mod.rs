//! The plugin's binary, and a stand-in daemon that answers as each test wants.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};

/// A directory with the path of a socket in it.
pub(crate) struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory().join("dhcp.sock")
    }

    pub(crate) fn listen(&self) -> UnixListener {
        UnixListener::bind(self.socket()).unwrap()
    }

    /// A configuration that points at the socket, with `timeout` seconds for the daemon.
    pub(crate) fn config(&self, timeout: f64) -> Value {
        json!({
            "cniVersion": "1.0.0", "name": "lan", "type": "macvlan", "master": "eth0",
            "ipam": {"type": "dhcp", "daemonSocketPath": self.socket(), "timeout": timeout},
        })
    }

    /// The names of all files in the directory except the socket.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.directory()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != "dhcp.sock").collect()
    }

    /// Runs the plugin on the usual attachment.
    pub(crate) fn run(&self, verb: &str) -> Output {
        run(verb, self.config(30.0).to_string())
    }
}

/// The plugin with the usual environment and no other.
pub(crate) fn plugin(verb: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dhcp"));
    command
        .env_clear()
        .envs([
            ("CNI_COMMAND", verb),
            ("CNI_CONTAINERID", "abc"),
            ("CNI_NETNS", "/run/netns/abc"),
        ])
        .envs([
            ("CNI_IFNAME", "net1"),
            ("CNI_PATH", "/opt/cni/bin"),
            ("CNI_ARGS", "A=1"),
        ]);
    command
}

pub(crate) fn start(command: &mut Command, stdin: impl AsRef<[u8]>) -> Child {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The plugin may stop reading before the end.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_ref());
    child
}

pub(crate) fn run(verb: &str, stdin: impl AsRef<[u8]>) -> Output {
    start(&mut plugin(verb), stdin).wait_with_output().unwrap()
}

pub(crate) fn stdout(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

/// Asserts that the plugin failed with a CNI error of `code` whose message contains `part`.
pub(crate) fn assert_error(output: &Output, code: u64, part: &str) {
    let error = stdout(output);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert_eq!(error["code"], code, "{error}");
    assert!(error["msg"].as_str().unwrap().contains(part), "{error}");
}

/// Reads one request and returns its head and body.
pub(crate) fn read_request(stream: &mut UnixStream) -> (String, Value) {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "))
        .unwrap()
        .parse()
        .unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    (head, serde_json::from_slice(&body).unwrap())
}

pub(crate) fn answer(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Answers the next connections with these texts, one each, and returns the requests. An empty text closes the
/// connection after the request was read.
pub(crate) fn serve(
    listener: UnixListener,
    answers: impl IntoIterator<Item = String>,
) -> JoinHandle<Vec<(String, Value)>> {
    let answers: Vec<_> = answers.into_iter().collect();
    thread::spawn(move || {
        let one = |text: String| {
            let (mut stream, _) = listener.accept().unwrap();
            let request = read_request(&mut stream);
            stream.write_all(text.as_bytes()).unwrap();
            request
        };
        answers.into_iter().map(one).collect()
    })
}
