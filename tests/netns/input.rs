//! Paths that are no namespace, and callers that say nothing: the error is clear and has the right code, nothing is left behind,
//! and others are still served.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use netns_fixtures::server::{Dnsmasq, DnsmasqProgram, Grants, Program};
use netns_fixtures::{CallError, CniError, Error, Lab, Sandbox, assert_says, sandbox};
use serde_json::Value;

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

    fn connect(&self) -> io::Result<UnixStream> {
        UnixStream::connect(self.lab.daemon().socket())
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
fn a_path_that_is_no_namespace_is_refused_at_once() -> Result<(), CallError> {
    let sandbox = sandbox!(DnsmasqProgram::NEEDS);
    let scene = Scene::new(&sandbox)?;
    let _good = scene.lab.lan.container("good")?;
    let config = scene.lab.config.to_string();
    fs::write("/run/netns/file", "").expect("the sandbox's /run is ours");
    scene.lab.lan.host.sh("mkfifo /run/netns/fifo")?;
    fs::create_dir("/run/netns/directory").expect("the sandbox's /run is ours");
    scene.lab.lan.host.sh("ln -s loop /run/netns/loop")?;
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
    assert_says(&error.msg, "CNI_IFNAME");
    assert_says(&error.msg, "eth9");
    scene.is_unharmed()
}

#[test]
fn an_add_succeeds_beside_a_thousand_silent_callers() -> Result<(), CallError> {
    let scene = Scene::new(&sandbox!(DnsmasqProgram::NEEDS))?;
    let before = descriptors(&scene.lab);
    let silent: Vec<_> = (0..1000)
        .map(|_| scene.connect().expect("the daemon listens"))
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
