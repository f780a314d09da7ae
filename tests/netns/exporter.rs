//! The socket for reading, and the exporter on it: metrics, events and the page, whoever asks and however badly.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use netns_fixtures::model::Config;
use netns_fixtures::server::ModelServer;
use netns_fixtures::{CallError, DEADLINE, Error, Lab, Lan, Netns, Process, binary, sandbox, until_found};

/// Where the exporter listens, in the host's namespace.
const ADDRESS: &str = "127.0.0.1:9467";

/// Callers that hold on to the socket for reading.
const CALLERS: usize = 1000;

/// Starts the exporter on a lab's host, before or after its daemon.
pub(crate) fn start_exporter(lab: &Lab) -> Result<Process, Error> {
    let mut command = Command::new(binary("leasehold")?);
    command
        .args(["exporter", "--listen", ADDRESS, "--host", "node1.example", "--socket"])
        .arg(lab.home().read_socket());
    let mut exporter = Process::start(&lab.lan.host, "leasehold exporter", command)?;
    exporter.wait_for_line("listening on")?;
    Ok(exporter)
}

/// Asks the exporter, under a name of its host, and returns the head and the body of its answer.
fn ask(host: &Netns, line: &str, name: &str) -> (String, String) {
    let text = host.run(|| {
        let mut stream = TcpStream::connect(ADDRESS).expect("the exporter listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a time");
        stream.write_all(format!("{line} HTTP/1.1\r\nHost: {name}\r\n\r\n").as_bytes()).expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        text
    });
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    (head.to_owned(), body.to_owned())
}

fn status(answer: &(String, String)) -> &str {
    answer.0.split(' ').nth(1).unwrap_or_default()
}

/// Waits until the metrics have a line.
fn until_measured(host: &Netns, line: &str) -> Result<(), Error> {
    let measured = || Ok(ask(host, "GET /metrics", "node7:9467").1.lines().any(|found| found == line).then_some(()));
    until_found(&format!("the metric {line}"), DEADLINE, measured).map(drop)
}

#[test]
fn the_exporter_shows_what_happens_and_changes_nothing() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(&[]) else { return Ok(()) };
    let mut lab = Lab::without_daemon(&sandbox)?;
    lab.home().with_read_socket()?;
    let _server = ModelServer::start(&lab.lan, Config::new(Lan::SUBNET))?;
    let _exporter = start_exporter(&lab)?;
    let host = lab.lan.host.clone();
    assert!(ask(&host, "GET /metrics", "x").1.contains("\nleasehold_up 0\n"));
    assert_eq!(status(&ask(&host, "GET /readyz", "x")), "502");
    lab.start_daemon()?;
    until_measured(&host, "leasehold_up 1")?;
    for path in ["/healthz", "/readyz"] {
        assert_eq!(status(&ask(&host, &format!("GET {path}"), "x")), "200", "{path}");
    }

    let follower = host.run(|| TcpStream::connect(ADDRESS).expect("the exporter listens"));
    follower.set_read_timeout(Some(DEADLINE)).expect("a time");
    (&follower).write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
    let member = lab.attach("c1")?;
    let mut lines = BufReader::new(&follower).lines().map(|line| line.expect("events come"));
    let told = lines.find(|line| line.starts_with("data: {\"number\"")).expect("an event");
    assert!(told.contains(r#""kind":"acquired""#) && told.contains(r#""container":"c1""#), "{told}");

    until_measured(&host, r#"leasehold_leases{door="cni",network="lan",source="server",state="BOUND"} 1.0"#)?;
    until_measured(&host, r#"leasehold_messages_total{message="request",outcome="answered"} 1"#)?;
    until_measured(&host, r#"leasehold_events_total{kind="acquired"} 1"#)?;
    let leases = ask(&host, "GET /leases", "127.0.0.1:9467");
    assert!(leases.1.contains(r#""container":"c1""#) && leases.1.contains("lease_seconds"), "{leases:?}");
    lab.detach(&member)?;

    let page = ask(&host, "GET /", "[::1]:9467");
    assert!(page.0.contains("default-src 'none'; script-src 'sha256-") && !page.0.contains("set-cookie"), "{}", page.0);
    for (line, name, expected) in [
        ("GET /", "node1.example", "200"),
        ("GET /", "evil.example", "403"),
        ("GET /leases", "evil.example:9467", "403"),
        ("GET /events", "evil.example", "403"),
        ("POST /leases", "localhost", "405"),
        ("GET /v1/log", "localhost", "404"),
    ] {
        assert_eq!(status(&ask(&host, line, name)), expected, "{line} of {name}");
    }
    for line in ["POST /cni", "PUT /v1/log", "GET /v1/log", "GET /v1/capture", "DELETE /v1/log"] {
        let mut stream = UnixStream::connect(lab.home().read_socket()).expect("the daemon listens");
        write!(stream, "{line} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        assert!(text.starts_with("HTTP/1.1 404 "), "{line}: {text}");
    }
    Ok(())
}

#[test]
fn a_thousand_readers_keep_no_lease_from_its_renewal() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(&[]) else { return Ok(()) };
    let mut lab = Lab::without_daemon(&sandbox)?;
    lab.home().with_read_socket()?;
    lab.start_daemon()?;
    let _server = ModelServer::start(&lab.lan, Config { lease: 12, ..Config::new(Lan::SUBNET) })?;
    let first = lab.attach("c1")?;
    let callers: Vec<_> = (0..CALLERS).map(|n| call(&lab, n)).collect();
    assert!(callers.iter().flatten().count() > CALLERS / 2, "few callers got so far");
    // It comes in by the other socket, and at once.
    let second = lab.attach("c2")?;
    let renewals = || {
        let events = lab.daemon().events()?;
        let is_of = |line: &&String, id: &str| line.contains("renewed") && line.contains(id);
        Ok(["c1", "c2"].iter().all(|id| events.iter().any(|line| is_of(&line, id))).then_some(()))
    };
    until_found("a renewal of each lease", DEADLINE, renewals)?;
    assert!(!lab.daemon().events()?.iter().any(|line| line.contains("rebound") || line.contains("expired")));
    drop(callers);
    lab.check(&first)?;
    lab.detach(&first)?;
    lab.detach(&second)?;
    Ok(())
}

/// Connects to the socket for reading, says half a request, or a whole one, and reads nothing.
fn call(lab: &Lab, n: usize) -> Option<UnixStream> {
    const ASKED: [&str; 6] =
        ["/v1/bindings", "/v1/ranges", "/v1/events?after=0&wait=60", "/metrics", "/healthz", "/readyz"];
    let mut stream = UnixStream::connect(lab.home().read_socket()).ok()?;
    stream.set_write_timeout(Some(Duration::from_secs(1))).ok()?;
    let said = match ASKED.get(n % (ASKED.len() + 1)) {
        Some(path) => format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"),
        None => "GET /metrics HT".to_owned(),
    };
    stream.write_all(said.as_bytes()).ok()?;
    Some(stream)
}
