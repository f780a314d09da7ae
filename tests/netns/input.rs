//! Bad input on the real socket and through the real shim: the error is clear and has the right code, nothing is left behind, and
//! others are still served.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use leasehold_api::MAX_BODY;
use leasehold_api::cni::PATH;
use netns_fixtures::model::Kind;
use netns_fixtures::server::{Dnsmasq, DnsmasqProgram, Grants, Program};
use netns_fixtures::{CallError, Capture, CniError, DEADLINE, Error, Lab, Lan, Sandbox, sandbox};
use serde_json::{Value, json};

/// How soon an answer that needs no network must come. Generous: a busy machine is not a failure.
const AT_ONCE: Duration = Duration::from_secs(15);

/// The longest that a caller may take for its request, with some margin.
const PATIENCE: Duration = Duration::from_secs(15);

/// A daemon, and a server that would give an address to anyone.
struct Scene {
    lab: Lab,
    server: Dnsmasq,
}

impl Scene {
    fn new(sandbox: &Sandbox) -> Result<Self, Error> {
        let lab = Lab::new(sandbox)?;
        let server = Dnsmasq::start(&lab.lan, Grants::default())?;
        Ok(Self { lab, server })
    }

    /// Connects to the daemon and sends something.
    fn say(&self, bytes: &[u8]) -> io::Result<UnixStream> {
        let mut stream = UnixStream::connect(self.lab.daemon().socket())?;
        // A daemon may answer before it has read everything.
        let _ = stream.write_all(bytes);
        Ok(stream)
    }

    /// Sends something, and returns the answer's status and body.
    fn ask(&self, bytes: &[u8]) -> (u16, Value) {
        answer(self.say(bytes).expect("the daemon listens"))
    }

    /// Posts a body as the shim does.
    fn post(&self, body: &[u8]) -> (u16, Value) {
        self.ask(&post(body))
    }

    /// Runs the shim for an ADD that should fail, with parts of its environment replaced.
    fn refused(&self, env: &[(&str, &str)], input: &[u8]) -> Result<CniError, CallError> {
        let usual = [
            ("CNI_CONTAINERID", "bad"),
            ("CNI_NETNS", "/run/netns/good"),
            ("CNI_IFNAME", "eth0"),
        ];
        let asked = Instant::now();
        let call = self
            .lab
            .shim
            .start_with("ADD", &[&usual, env].concat(), input)?;
        let error = call.wait().expect_err("this is no ADD to serve").cni();
        assert!(
            asked.elapsed() < AT_ONCE,
            "{env:?} took {:?}",
            asked.elapsed()
        );
        Ok(error)
    }

    /// Checks that nothing is left behind, and that others are served.
    fn is_unharmed(&self) -> Result<(), CallError> {
        assert_eq!(self.lab.daemon().list()?, Vec::<Value>::new());
        assert_eq!(self.server.leases()?, []);
        let good = self.lab.attach("others")?;
        self.lab.check(&good)?;
        self.lab.detach(&good)?;
        Ok(self.server.wait_until_free()?)
    }
}

#[test]
fn what_is_no_request_is_refused() -> Result<(), CallError> {
    let sandbox = sandbox!(DnsmasqProgram::NEEDS);
    let scene = Scene::new(&sandbox)?;
    let deep = "[".repeat(100_000);
    for body in [
        "",
        "{",
        "not JSON",
        "[]",
        "null",
        "{\"env\": []}",
        "{\"env\": {}, \"config\": 7}",
        &deep,
    ] {
        let (status, error) = scene.post(body.as_bytes());
        assert_eq!(
            (status, &error["code"]),
            (400, &json!(6)),
            "{body:.40}: {error}"
        );
        assert!(
            error["msg"]
                .as_str()
                .is_some_and(|msg| msg.contains("cannot be read")),
            "{body:.40}: {error}"
        );
    }
    let (status, error) = scene.post(b"\xff\xfe");
    assert_eq!((status, &error["code"]), (400, &json!(6)), "{error}");
    scene.is_unharmed()
}

#[test]
fn an_unknown_url_is_told_so() -> Result<(), CallError> {
    let sandbox = sandbox!(DnsmasqProgram::NEEDS);
    let scene = Scene::new(&sandbox)?;
    for line in [
        "GET /",
        "POST /v2/cni",
        "GET /cni",
        "DELETE /v1/bindings",
        "POST /../../etc/passwd",
        "OPTIONS *",
    ] {
        let (status, error) = scene.ask(format!("{line} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
        assert_eq!(status, 404, "{line}: {error}");
        assert!(
            error["error"]
                .as_str()
                .is_some_and(|msg| msg.contains("nothing here by that name")),
            "{line}: {error}"
        );
    }
    // The incumbent's plugin.
    let (status, error) = scene.ask(b"CONNECT /_goRPC_ HTTP/1.0\n\n");
    assert_eq!(status, 501, "{error}");
    assert!(
        error["error"]
            .as_str()
            .is_some_and(|msg| msg.contains("Go RPC")),
        "{error}"
    );
    for noise in [
        &b"\0\0\0\0\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"EHLO x\r\n\r\n",
    ] {
        let heard = hear(scene.say(noise).expect("the daemon listens"));
        assert!(
            heard.is_empty() || heard.starts_with(b"HTTP/1.1 400"),
            "{:?}",
            String::from_utf8_lossy(&heard)
        );
    }
    scene.is_unharmed()
}

#[test]
fn a_bad_configuration_is_refused_with_its_fault() -> Result<(), CallError> {
    let sandbox = sandbox!(DnsmasqProgram::NEEDS);
    let scene = Scene::new(&sandbox)?;
    let _good = scene.lab.lan.container("good")?;
    let with = |key: &str, value: Value| {
        let mut config = scene.lab.config.clone();
        config[key] = value;
        config.to_string()
    };
    let ipam = |key: &str, value: Value| {
        let mut config = scene.lab.config.clone();
        config["ipam"][key] = value;
        config.to_string()
    };
    let socket = scene.lab.daemon().socket();
    let mut torn = scene.lab.config.to_string();
    torn.pop();
    for (config, code, word) in [
        (with("cniVersion", json!("9.9.9")), 1, "9.9.9"),
        (with("name", json!("")), 7, "name"),
        (with("name", json!("no name/at all")), 7, "name"),
        (with("name", json!(["lan"])), 6, "cannot be read"),
        (ipam("timeout", json!("soon")), 7, "timeout"),
        (ipam("provide", json!("host-name")), 7, "provide"),
        (
            ipam("request", json!([{ "option": "no-such-option" }])),
            7,
            "no-such-option",
        ),
    ] {
        let error = scene.refused(&[], config.as_bytes())?;
        assert_eq!(error.code, code, "{config}: {error}");
        assert!(error.msg.contains(word), "{config}: {error}");
    }
    // These do not say where the socket is: they go to the daemon at the usual place.
    for body in [torn.as_str(), "", "7", "not JSON"] {
        let (status, error) = scene.post(&request(body, &socket));
        assert_eq!(status, 400, "{body}: {error}");
        assert!(
            [json!(6), json!(7)].contains(&error["code"]),
            "{body}: {error}"
        );
    }
    for (variable, value) in [
        ("CNI_CONTAINERID", "../x"),
        ("CNI_CONTAINERID", ""),
        ("CNI_IFNAME", "a/b"),
        ("CNI_IFNAME", ""),
    ] {
        let error = scene.refused(
            &[(variable, value)],
            scene.lab.config.to_string().as_bytes(),
        )?;
        assert_eq!(error.code, 4, "{error}");
        assert!(error.msg.contains(variable), "{error}");
    }
    scene.is_unharmed()
}

#[test]
fn a_path_that_is_no_namespace_is_refused_at_once() -> Result<(), CallError> {
    let sandbox = sandbox!(DnsmasqProgram::NEEDS);
    let scene = Scene::new(&sandbox)?;
    let _good = scene.lab.lan.container("good")?;
    let config = scene.lab.config.to_string();
    fs::write("/run/netns/file", "").expect("the sandbox's /run is ours");
    scene
        .lab
        .lan
        .host
        .run_command("mkfifo", &["/run/netns/fifo"], "")?;
    fs::create_dir("/run/netns/directory").expect("the sandbox's /run is ours");
    scene
        .lab
        .lan
        .host
        .run_command("ln", &["-s", "loop", "/run/netns/loop"], "")?;
    let host = scene.lab.lan.host.path().to_string_lossy().into_owned();
    let socket = scene.lab.daemon().socket().to_string_lossy().into_owned();
    let long = format!("/run/netns/{}", "x".repeat(300));
    for path in [
        "/run/netns/file",
        "/run/netns/fifo",
        "/run/netns/directory",
        "/run/netns/loop",
        "/run/netns/absent",
        "/run/netns/file/below",
        "/proc/self/ns/uts",
        "/dev/zero",
        "run/netns/good",
        &long,
        "",
        &socket,
        &host,
    ] {
        let error = scene.refused(&[("CNI_NETNS", path)], config.as_bytes())?;
        assert_eq!(error.code, 4, "{path}: {error}");
        assert!(
            error.msg.contains("CNI_NETNS") && error.msg.contains(path),
            "{path}: {error}"
        );
    }
    let error = scene.refused(&[("CNI_NETNS", &host)], config.as_bytes())?;
    assert!(error.msg.contains("the host's own"), "{error}");
    let error = scene.refused(&[("CNI_IFNAME", "eth9")], config.as_bytes())?;
    assert_eq!(error.code, 4, "{error}");
    assert!(
        error.msg.contains("CNI_IFNAME") && error.msg.contains("eth9"),
        "{error}"
    );
    scene.is_unharmed()
}

#[test]
fn a_request_of_more_than_a_mebibyte_is_refused() -> Result<(), CallError> {
    let sandbox = sandbox!(DnsmasqProgram::NEEDS);
    let scene = Scene::new(&sandbox)?;
    let mut config = scene.lab.config.clone();
    config["filler"] = "x".repeat(MAX_BODY).into();
    let error = scene.refused(&[], config.to_string().as_bytes())?;
    assert_eq!(error.code, 7, "{error}");
    assert!(error.msg.contains(&MAX_BODY.to_string()), "{error}");

    let promised = format!(
        "POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
        u64::MAX / 2
    );
    let sent = post(&vec![b' '; MAX_BODY + 1]);
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000)).repeat(17);
    let chunked = format!(
        "POST {PATH} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}0\r\n\r\n"
    );
    for request in [promised.as_bytes(), &sent, chunked.as_bytes()] {
        let (status, error) = scene.ask(request);
        assert_eq!((status, &error["code"]), (413, &json!(7)), "{error}");
    }
    let endless_head = [
        format!("POST {PATH} HTTP/1.1\r\nX: ").into_bytes(),
        vec![b'x'; 8 << 20],
    ]
    .concat();
    let heard = hear(scene.say(&endless_head).expect("the daemon listens"));
    assert!(
        heard.is_empty() || heard.starts_with(b"HTTP/1.1 4"),
        "{:?}",
        String::from_utf8_lossy(&heard)
    );
    scene.is_unharmed()
}

#[test]
fn a_slow_caller_is_cut_off() -> Result<(), CallError> {
    let sandbox = sandbox!(DnsmasqProgram::NEEDS);
    let scene = Scene::new(&sandbox)?;
    let head = format!("POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n");
    let trickling = [
        (scene.say(b"POST /c").expect("the daemon listens"), b"x"),
        (
            scene.say(head.as_bytes()).expect("the daemon listens"),
            b" ",
        ),
    ];
    for (mut stream, byte) in trickling {
        let began = Instant::now();
        let mut heard = Vec::new();
        // One byte whenever nothing has come back for a while.
        stream
            .set_read_timeout(Some(Duration::from_millis(200)))
            .expect("a time-out is set");
        loop {
            match stream.read_to_end(&mut heard) {
                Err(error)
                    if error.kind() == ErrorKind::WouldBlock && began.elapsed() < PATIENCE =>
                {
                    let _ = stream.write(byte);
                }
                _ => break,
            }
        }
        assert!(
            began.elapsed() < PATIENCE,
            "a caller trickles on after {:?}",
            began.elapsed()
        );
    }
    scene.is_unharmed()
}

/// A caller that closes its sending half has hung up: its ADD ends with it.
#[test]
fn a_half_closed_caller_takes_its_add_with_it() -> Result<(), CallError> {
    let sandbox = sandbox!(DnsmasqProgram::NEEDS);
    let mut scene = Scene::new(&sandbox)?;
    scene.server.stop()?;
    let mut seen = Capture::start(&scene.lab.lan.server, Lan::IFNAME)?;
    let container = scene.lab.lan.container("good")?;
    let stream = scene.say(&post(&request(
        &scene.lab.config.to_string(),
        container.netns.path(),
    )));
    let stream = stream.expect("the daemon listens");
    seen.wait_for_dhcp(Kind::Discover, DEADLINE, |m| m.chaddr == container.mac)?;
    stream.shutdown(Shutdown::Write).expect("a half is closed");

    assert_eq!(hear(stream), b"", "there is nobody to answer");
    scene.server.restart(None)?;
    scene.is_unharmed()
}

#[test]
fn an_add_succeeds_beside_a_thousand_silent_callers() -> Result<(), CallError> {
    let sandbox = sandbox!(DnsmasqProgram::NEEDS);
    let scene = Scene::new(&sandbox)?;
    let before = descriptors(&scene.lab);
    let silent: Vec<_> = (0..1000)
        .map(|_| scene.say(b"").expect("the daemon listens"))
        .collect();
    let container = scene.lab.lan.container("good")?;
    let member = scene.lab.add(container)?;
    // None of them had to be cut off for this.
    let last = silent.last().expect("there are a thousand");
    last.set_nonblocking(true).expect("a socket has the option");
    let heard = (&*last).read(&mut [0; 1]).expect_err("it is open");
    assert_eq!(heard.kind(), ErrorKind::WouldBlock);
    last.set_nonblocking(false)
        .expect("a socket has the option");
    scene.lab.detach(&member)?;
    scene.server.wait_until_free()?;

    // All are cut off, and nothing is left of them.
    for stream in silent {
        hear(stream);
    }
    scene.is_unharmed()?;
    let after = descriptors(&scene.lab);
    assert!(
        after <= before + 20,
        "{before} descriptors before, {after} after"
    );
    Ok(())
}

/// Returns how many files the daemon has open.
fn descriptors(lab: &Lab) -> usize {
    fs::read_dir(format!("/proc/{}/fd", lab.daemon().id()))
        .expect("the daemon is up")
        .count()
}

/// Returns the shim's request for an ADD.
fn request(config: &str, netns: &Path) -> Vec<u8> {
    let env = json!({
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "bad",
        "CNI_NETNS": netns,
        "CNI_IFNAME": "eth0",
        "CNI_PATH": "/opt/cni/bin",
    });
    json!({ "env": env, "config": config })
        .to_string()
        .into_bytes()
}

fn post(body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Returns everything that arrives until the connection ends, one way or another.
fn hear(mut stream: UnixStream) -> Vec<u8> {
    let mut heard = Vec::new();
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("a time-out is set");
    match stream.read_to_end(&mut heard) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            panic!("a connection is open after {PATIENCE:?}")
        }
        _ => heard,
    }
}

/// Returns the status and the body of an answer.
fn answer(stream: UnixStream) -> (u16, Value) {
    let heard = String::from_utf8(hear(stream)).expect("an answer is text");
    let status = heard
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let body = heard.split_once("\r\n\r\n").map(|(_, body)| body);
    match (
        status,
        body.and_then(|body| serde_json::from_str(body).ok()),
    ) {
        (Some(status), Some(body)) => (status, body),
        _ => panic!("no answer: {heard:?}"),
    }
}
