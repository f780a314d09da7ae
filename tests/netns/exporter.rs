//! The read-only socket, and the exporter on it: metrics, events and the page, even for badly behaved callers.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use netns_fixtures::model::Config;
use netns_fixtures::server::ModelServer;
use netns_fixtures::{
    CallError, DEADLINE, Error, Lab, Lan, Netns, Process, assert_says, binary, sandbox, until_found,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// Where the exporter listens, in the host's namespace.
const ADDRESS: &str = "127.0.0.1:9467";

/// Callers that occupy the read-only socket, or the exporter.
const CALLERS: usize = 1000;

/// Starts the exporter on a lab's host, before or after its daemon.
pub(crate) fn start_exporter(lab: &Lab) -> Result<Process, Error> {
    let mut command = Command::new(binary("leasehold")?);
    command
        .args([
            "exporter",
            "--listen",
            ADDRESS,
            "--host",
            "node1.example",
            "--socket",
        ])
        .arg(lab.home().read_socket());
    let mut exporter = Process::start(&lab.lan.host, "leasehold exporter", command)?;
    exporter.wait_for_line("listening on")?;
    Ok(exporter)
}

/// Asks the exporter under a name of its host, and returns the head and the body of its answer.
pub(crate) fn ask(host: &Netns, line: &str, name: &str) -> (String, String) {
    ask_at(ADDRESS, host, &format!("{line} HTTP/1.1"), name)
}

fn ask_at(address: &str, host: &Netns, line: &str, name: &str) -> (String, String) {
    host.run(|| {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a time");
        exchange(stream, line, name)
    })
}

/// Asks the daemon at a socket, and returns the head and the body of its answer.
pub(crate) fn ask_daemon(socket: &Path, line: &str) -> (String, String) {
    let stream = UnixStream::connect(socket).expect("the daemon listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a time");
    exchange(stream, &format!("{line} HTTP/1.1"), "x")
}

fn exchange(mut stream: impl Read + Write, line: &str, name: &str) -> (String, String) {
    let head = format!("{line}\r\nHost: {name}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    (head.to_owned(), body.to_owned())
}

pub(crate) fn status(answer: &(String, String)) -> &str {
    answer.0.split(' ').nth(1).unwrap_or_default()
}

/// Waits until the metrics have a line.
pub(crate) fn until_measured(host: &Netns, line: &str) -> Result<(), Error> {
    let measured = || {
        Ok(ask(host, "GET /metrics", "node7:9467")
            .1
            .lines()
            .any(|found| found == line)
            .then_some(()))
    };
    until_found(&format!("the metric {line}"), DEADLINE, measured).map(drop)
}

#[test]
fn the_exporter_shows_what_happens_and_changes_nothing() -> Result<(), CallError> {
    let mut lab = Lab::without_daemon(&sandbox!(&[]))?;
    lab.home().with_read_socket()?;
    let _server = ModelServer::start(&lab.lan, Config::new(Lan::SUBNET))?;
    let _exporter = start_exporter(&lab)?;
    let host = lab.lan.host.clone();
    // An answer is cached for a second: of these two, the one awaited below comes last.
    assert_eq!(status(&ask(&host, "GET /readyz", "x")), "502");
    assert!(
        ask(&host, "GET /metrics", "x")
            .1
            .contains("\nleasehold_up 0\n")
    );
    lab.start_daemon()?;
    until_measured(&host, "leasehold_up 1")?;
    for path in ["/healthz", "/readyz"] {
        assert_eq!(
            status(&ask(&host, &format!("GET {path}"), "x")),
            "200",
            "{path}"
        );
    }

    let follower = host.run(|| TcpStream::connect(ADDRESS).expect("the exporter listens"));
    follower.set_read_timeout(Some(DEADLINE)).expect("a time");
    (&follower)
        .write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("it reads");
    let member = lab.attach("web-0")?;
    let mut lines = BufReader::new(&follower)
        .lines()
        .map(|line| line.expect("events come"));
    let told = lines
        .find(|line| line.starts_with("data: {\"number\""))
        .expect("an event");
    assert_says(&told, r#""kind":"acquired""#);
    assert_says(&told, r#""container":"web-0""#);

    until_measured(
        &host,
        r#"leasehold_leases{door="cni",network="lan",source="server",state="BOUND"} 1.0"#,
    )?;
    until_measured(
        &host,
        r#"leasehold_messages_total{message="request",outcome="answered"} 1"#,
    )?;
    until_measured(&host, r#"leasehold_events_total{kind="acquired"} 1"#)?;
    let metrics = ask(&host, "GET /metrics", "x").1;
    assert!(
        !metrics.contains("web-0") && !metrics.contains("10.7."),
        "a label names a container or an address: {metrics}"
    );
    let leases = ask(&host, "GET /leases", "127.0.0.1:9467");
    assert_says(&leases.1, r#""container":"web-0""#);
    assert_says(&leases.1, "lease_seconds");
    lab.detach(&member)?;

    let page = ask(&host, "GET /", "[::1]:9467");
    assert!(
        page.0.contains("default-src 'none'; script-src 'sha256-")
            && !page.0.contains("set-cookie"),
        "{}",
        page.0
    );
    for (line, name, expected) in [
        ("GET /", "node1.example", "200"),
        ("GET /", "evil.example", "403"),
        ("GET /leases", "evil.example:9467", "403"),
        ("GET /events", "evil.example", "403"),
        ("POST /leases", "localhost", "405"),
        ("GET /v1/log", "localhost", "404"),
    ] {
        let answer = ask(&host, line, name);
        assert_eq!(status(&answer), expected, "{line} of {name}");
    }
    for line in ["GET /v1/show?name=c1", "GET /v1/bindings?network=lan"] {
        let answer = ask_daemon(&lab.home().read_socket(), line);
        assert_eq!(status(&answer), "200", "{line}: {answer:?}");
    }
    for line in [
        "POST /cni",
        "PUT /v1/log",
        "GET /v1/log",
        "GET /v1/capture",
        "DELETE /v1/log",
    ] {
        let answer = ask_daemon(&lab.home().read_socket(), line);
        assert_eq!(status(&answer), "404", "{line}: {answer:?}");
    }
    Ok(())
}

/// The alerts that are shipped.
pub(crate) const ALERTS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../daemon/dist/prometheus/alerts.yaml"
);

/// Where Prometheus answers, in the host's namespace.
const PROMETHEUS: &str = "127.0.0.1:9090";

/// Starts Prometheus, which scrapes the exporter and evaluates these rules every second.
pub(crate) fn start_prometheus(host: &Netns, dir: &Path, rules: &Path) -> Result<Process, Error> {
    let config = json!({
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [rules],
        "scrape_configs": [{"job_name": "leasehold", "static_configs": [{"targets": [ADDRESS]}]}],
    });
    fs::write(dir.join("config.yaml"), config.to_string())
        .expect("an empty directory takes a file");
    let mut command = Command::new("prometheus");
    command
        .arg("--config.file")
        .arg(dir.join("config.yaml"))
        .arg("--storage.tsdb.path")
        .arg(dir.join("data"));
    command.args(["--web.listen-address", PROMETHEUS]);
    let mut server = Process::start(host, "prometheus", command)?;
    server.wait_for_line("Server is ready to receive web requests")?;
    Ok(server)
}

/// Returns what Prometheus answers to a question of its API.
pub(crate) fn prometheus(host: &Netns, question: &str) -> Value {
    // This version's answers come in one piece.
    let (_, body) = ask_at(
        PROMETHEUS,
        host,
        &format!("GET /api/v1/{question} HTTP/1.0"),
        "localhost",
    );
    serde_json::from_str::<Value>(&body).unwrap_or_default()["data"].take()
}

/// Returns a text encoded for a query.
pub(crate) fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Returns whether anybody accepts TCP connections in a namespace.
fn listens_on_tcp(host: &Netns) -> bool {
    // The fourth field is the state, of which 0A is LISTEN.
    let listens = |file: &str| {
        let text = fs::read_to_string(file).expect("procfs has it");
        text.lines()
            .any(|line| line.split_whitespace().nth(3) == Some("0A"))
    };
    host.run(|| {
        ["tcp", "tcp6"]
            .iter()
            .any(|of| listens(&format!("/proc/thread-self/net/{of}")))
    })
}

#[test]
fn a_thousand_readers_keep_no_lease_from_its_renewal() -> Result<(), CallError> {
    let lab = Lab::with_read_socket(&sandbox!(&[]))?;
    let _server = ModelServer::start(&lab.lan, Config::new(Lan::SUBNET).lasting(12))?;
    assert!(!listens_on_tcp(&lab.lan.host));
    let first = lab.attach("c1")?;
    let callers: Vec<_> = (0..CALLERS).map(|n| call(&lab, n)).collect();
    // Few callers got so far.
    assert!(callers.iter().flatten().count() > CALLERS / 2);
    // It comes in by the other socket, and at once.
    let second = lab.attach("c2")?;
    let renewals = || {
        let events = lab.daemon().events()?;
        let is_of = |line: &&String, id: &str| line.contains("renewed") && line.contains(id);
        Ok(["c1", "c2"]
            .iter()
            .all(|id| events.iter().any(|line| is_of(&line, id)))
            .then_some(()))
    };
    until_found("a renewal of each lease", DEADLINE, renewals)?;
    assert!(
        !lab.daemon()
            .events()?
            .iter()
            .any(|line| line.contains("rebound") || line.contains("expired"))
    );
    drop(callers);
    lab.check(&first)?;
    lab.detach(&first)?;
    lab.detach(&second)?;
    Ok(())
}

/// Connects to the read-only socket, sends half a request or a whole one, and reads nothing.
fn call(lab: &Lab, n: usize) -> Option<UnixStream> {
    const ASKED: [&str; 6] = [
        "/v1/bindings",
        "/v1/ranges",
        "/v1/events?after=0&wait=60",
        "/metrics",
        "/healthz",
        "/readyz",
    ];
    let mut stream = UnixStream::connect(lab.home().read_socket()).ok()?;
    stream
        .set_write_timeout(Some(Duration::from_secs(1)))
        .ok()?;
    let said = match ASKED.get(n % (ASKED.len() + 1)) {
        Some(path) => format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"),
        None => "GET /metrics HT".to_owned(),
    };
    stream.write_all(said.as_bytes()).ok()?;
    Some(stream)
}

#[test]
fn a_daemon_that_hangs_is_down_however_many_ask() -> Result<(), CallError> {
    let lab = Lab::with_read_socket(&sandbox!(&[]))?;
    let _exporter = start_exporter(&lab)?;
    let host = lab.lan.host.clone();
    until_measured(&host, "leasehold_up 1")?;
    let daemon = Pid::from_raw(lab.daemon().id() as i32);
    kill(daemon, Signal::SIGSTOP).expect("it runs");
    let callers: Vec<_> = (0..50)
        .map(|_| {
            let mut stream = host
                .run(|| TcpStream::connect(ADDRESS))
                .expect("the exporter listens");
            stream
                .write_all(b"GET /leases HTTP/1.1\r\nHost: localhost\r\n\r\n")
                .expect("it reads");
            stream
        })
        .collect();
    until_measured(&host, "leasehold_up 0")?;
    kill(daemon, Signal::SIGCONT).expect("it is there");
    until_measured(&host, "leasehold_up 1")?;
    drop(callers);
    Ok(())
}

#[test]
fn the_exporter_cuts_off_callers_that_send_half_a_request() -> Result<(), CallError> {
    let lab = Lab::without_daemon(&sandbox!(&[]))?;
    let _exporter = start_exporter(&lab)?;
    let limit = Duration::from_secs(10);
    // Several times as many as it serves at once.
    let mut callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let mut stream = lab
                .lan
                .host
                .run(|| TcpStream::connect(ADDRESS))
                .expect("the exporter listens");
            stream.set_read_timeout(Some(limit)).expect("a time");
            stream.write_all(b"GET /metrics HT").expect("it reads");
            stream
        })
        .collect();
    // Those that came first give way: the scrape does not wait until their time is over.
    let begun = Instant::now();
    assert_eq!(status(&ask(&lab.lan.host, "GET /metrics", "x")), "200");
    assert!(begun.elapsed() < limit, "it took {:?}", begun.elapsed());
    callers[CALLERS - 1]
        .read_to_end(&mut Vec::new())
        .expect("the last caller is cut off");
    Ok(())
}
