mod events;
mod monitors;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_api::{MAX_BODY, spool};
use leasehold_core::effect::{
    Answer, Call, Failure, Obeyed, OpId, RequestId, StoreCause, Upshot, Verb,
};
use leasehold_core::event::{Event as CoreEvent, EventKind};
use leasehold_core::identity::Attachment;
use leasehold_core::record::Change;
use leasehold_core::time::WallTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::super::{DoorReport, Doors, Listening, MAX_OPEN, Reply, Site, serve};
use super::openapi::calls;
use super::{leased, request};
use crate::capture::Frames;
use crate::listen::Protocol;
use crate::log::Filter;
use crate::store::Store;

/// A server on its own socket, with the test in the driver's place.
struct Server {
    _directory: tempfile::TempDir,
    socket: PathBuf,
    store: Store,
    events: mpsc::UnboundedReceiver<DoorReport>,
    listeners: mpsc::UnboundedSender<Listening>,
    serving: JoinHandle<()>,
}

impl Server {
    fn start() -> Self {
        Self::speaking(Protocol::Control)
    }

    fn speaking(protocol: Protocol) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("dhcp.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let (persisted, _ends) = mpsc::unbounded_channel();
        let (store, _) = Store::open(
            directory.path(),
            &directory.path().join("dhcp.sock"),
            persisted,
        )
        .unwrap();
        let (doors, events) = Doors::new(
            Site::default(),
            directory.path().join("networks"),
            store.journal(),
            Filter::of_nothing(),
            Frames::default(),
            MAX_OPEN,
        );
        let (listeners, to_serve) = mpsc::unbounded_channel();
        listeners
            .send(Listening::Begin(protocol, listener))
            .unwrap();
        let serving = tokio::spawn(serve(to_serve, socket.clone(), doors));
        Self {
            _directory: directory,
            socket,
            store,
            events,
            listeners,
            serving,
        }
    }

    async fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.socket).await.unwrap()
    }

    /// Sends `bytes` unchanged.
    async fn say(&self, bytes: impl AsRef<[u8]>) -> UnixStream {
        let mut stream = self.connect().await;
        stream.write_all(bytes.as_ref()).await.unwrap();
        stream
    }

    /// Sends a request without a body, such as `GET /healthz`.
    async fn begin(&self, line: &str) -> UnixStream {
        self.say(bare(line)).await
    }

    /// Sends such a request, and returns the answer.
    async fn ask(&self, line: &str) -> Response {
        response(self.begin(line).await).await
    }

    /// Sends what the shim says for this verb.
    async fn call(&self, verb: &str) -> UnixStream {
        self.say(of_shim(verb)).await
    }

    /// Sends a request and answers it in the driver's place. Returns the call and the response.
    async fn serve(
        &mut self,
        said: String,
        answer: impl FnOnce(&Call) -> Answer,
    ) -> (Call, Response) {
        let stream = self.say(said).await;
        let (_, call, reply) = self.asked().await;
        reply.send(answer(&call));
        (call, response(stream).await)
    }

    /// Listens at another socket beside its own, and returns that one's path.
    fn listen(&self, protocol: Protocol) -> PathBuf {
        let other = self.socket.with_file_name("other");
        let listener = UnixListener::bind(&other).unwrap();
        let begin = Listening::Begin(protocol, listener);
        self.listeners.send(begin).unwrap();
        other
    }

    async fn hung_up(&mut self) -> RequestId {
        match self.events.recv().await.unwrap() {
            DoorReport::HungUp(id) => id,
            other => panic!("{other:?}"),
        }
    }

    async fn asked(&mut self) -> (RequestId, Call, Reply) {
        match self.events.recv().await.unwrap() {
            DoorReport::Asked { id, call, reply } => (id, call, reply),
            other => panic!("{other:?}"),
        }
    }
}

/// Everything that came back.
struct Response {
    status: String,
    head: String,
    body: String,
}

impl Response {
    /// Checks the status and a part of the body.
    fn says(&self, status: &str, part: &str) {
        let (_, said) = self.status.split_once(' ').unwrap();
        assert!(
            said.starts_with(status) && self.body.contains(part),
            "{}: {}",
            self.status,
            self.body
        );
    }
}

/// Reads until the server closes.
async fn response(mut stream: UnixStream) -> Response {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.lines().next().unwrap_or_default();
    Response {
        status: status.to_owned(),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

/// Lets everything that can happen now happen.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// What the shim says for this verb.
fn of_shim(verb: &str) -> String {
    post("/cni", &serde_json::to_string(&request(verb)).unwrap())
}

/// A request without a body.
fn bare(line: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: x\r\n\r\n")
}

#[tokio::test]
async fn an_add_is_asked_and_its_result_written() {
    let (call, response) = Server::start().serve(of_shim("ADD"), leased).await;
    assert!(matches!(call, Call::Add(_)));
    let result = r#"{"cniVersion":"1.0.0","ips":[{"address":"192.0.2.10/24""#;
    response.says("200 OK", result);
}

#[tokio::test]
async fn a_failure_is_an_error_in_cnis_words() {
    let full = |_: &Call| Answer::Failed(Failure::Store(StoreCause::Full));
    let (_, response) = Server::start().serve(of_shim("ADD"), full).await;
    let error = format!(
        r#"{{"cniVersion":"1.0.0","code":11,"msg":"{}","details":"ADD of lan/abc/net1"}}"#,
        StoreCause::Full
    );
    response.says("503 Service Unavailable", &error);
}

#[tokio::test]
async fn what_no_plugin_sends_never_reaches_the_driver() {
    let mut server = Server::start();
    let deep = "[".repeat(100_000);
    for (body, code) in [
        ("", 6),
        ("[]", 6),
        ("null", 6),
        (r#"{"env": {}, "config": 7}"#, 6),
        (deep.as_str(), 6),
        (r#"{"env": {}, "config": "{}"}"#, 4),
    ] {
        let response = response(server.say(post("/cni", body)).await).await;
        response.says("400 Bad Request", &format!(r#""code":{code},"#));
    }
    assert!(server.events.try_recv().is_err());
}

#[tokio::test]
async fn the_list_is_served() {
    let nothing = |_: &Call| Answer::Bindings {
        rows: Vec::new(),
        pools: Vec::new(),
        not_adopted: Vec::new(),
        strangers: Vec::new(),
        refused: BTreeMap::new(),
    };
    let mut server = Server::start();
    let (call, response) = server.serve(bare("GET /v1/bindings"), nothing).await;
    assert_eq!(call, Call::List);
    response.says("200 OK", r#"{"bindings":[],"not_adopted":[]}"#);
}

#[tokio::test]
async fn only_the_documented_calls_are_served() {
    let mut server = Server::start();
    for (method, path) in calls() {
        let stream = server.say(post(&path, "").replace("POST", &method)).await;
        let asked = tokio::spawn(response(stream));
        // A driver that stops answers nothing.
        while !asked.is_finished() {
            while server.events.try_recv().is_ok() {}
            tokio::task::yield_now().await;
        }
        let status = asked.await.unwrap().status;
        assert!(!status.contains(" 404 "), "{method} {path}: {status}");
        let other = server.ask(&format!("PATCH {path}")).await;
        assert_eq!(other.status, "HTTP/1.1 404 Not Found", "{path}");
    }
}

#[tokio::test]
async fn an_order_reaches_the_driver_and_its_upshot_the_caller() {
    let mut server = Server::start();
    let leaves = |_: &Call| {
        Answer::Obeyed(vec![Obeyed {
            attachment: Attachment::cni("lan", "web-0", "eth0"),
            address: None,
            upshot: Upshot::Leaves,
        }])
    };
    let line = "POST /v1/release?name=web-0&force=true";
    let (call, answer) = server.serve(bare(line), leaves).await;
    let Call::Order(order) = call else {
        panic!("{call:?}")
    };
    assert_eq!(
        (order.verb, order.which.name.as_deref()),
        (Verb::Release { force: true }, Some("web-0"))
    );
    answer.says("200", r#""outcome":"returned""#);
    for line in [
        "POST /v1/renew",
        "POST /v1/renew?force=true",
        "GET /v1/bindings?all=true",
        "GET /v1/show?nam=x",
    ] {
        server.ask(line).await.says("400 Bad Request", "error");
    }
    assert!(server.events.try_recv().is_err());
}

#[tokio::test]
async fn an_unknown_url_is_not_found() {
    let server = Server::start();
    for line in [
        "GET /",
        "GET /cni",
        "POST /v1/bindings",
        "DELETE /cni",
        "GET /v1/bindings/1",
    ] {
        let response = server.ask(line).await;
        response.says("404 Not Found", r#"{"error":""#);
    }
}

#[tokio::test]
async fn a_go_shim_reads_in_the_status_line_what_it_met() {
    let server = Server::start();
    // Byte for byte what net/rpc's DialHTTP sends.
    let response = response(server.say("CONNECT /_goRPC_ HTTP/1.0\n\n").await).await;
    response.says(
        "501 this is leasehold, which does not speak Go RPC",
        "replace the plugin dhcp",
    );
}

#[tokio::test]
async fn a_request_that_is_too_large_is_refused() {
    let server = Server::start();
    let announced = format!(
        "POST /cni HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
        MAX_BODY + 1
    );
    let first = response(server.say(announced).await).await;
    first.says("400 Bad Request", r#""code":7,"#);

    let mut stream = server
        .say("POST /cni HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    for _ in 0..=MAX_BODY / 0x10000 {
        // The server may stop reading before the last chunk.
        if stream.write_all(chunk.as_bytes()).await.is_err() {
            break;
        }
    }
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 400");
}

#[tokio::test(start_paused = true)]
async fn a_head_that_does_not_end_is_cut_off() {
    let server = Server::start();
    for beginning in ["", "POST /cni HT", "POST /cni HTTP/1.1\r\nHost: x\r\n"] {
        let mut stream = server.say(beginning).await;
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        assert!(!rest.starts_with(b"HTTP/1.1 2"), "{beginning:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_end_is_cut_off() {
    let server = Server::start();
    let head = "POST /cni HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{";
    let silent = response(server.say(head).await).await;
    silent.says("500 Internal Server Error", "took longer than");
    // A byte in each second is no progress.
    let mut slow = server.say(head).await;
    let mut answer = [0; 12];
    while timeout(Duration::from_secs(1), slow.read_exact(&mut answer))
        .await
        .is_err()
    {
        slow.write_all(b" ").await.unwrap();
    }
    assert_eq!(&answer, b"HTTP/1.1 500");
}

#[tokio::test]
async fn a_caller_that_hangs_up_is_told_to_the_driver() {
    let mut server = Server::start();
    let stream = server.call("ADD").await;
    let (id, _, reply) = server.asked().await;
    drop(stream);
    assert_eq!(server.hung_up().await, id);
    reply.send(Answer::Deleted);
}

#[tokio::test]
async fn a_half_closed_connection_counts_as_hung_up() {
    let mut server = Server::start();
    let mut stream = server.call("ADD").await;
    let (id, _, _reply) = server.asked().await;
    stream.shutdown().await.unwrap();
    assert_eq!(server.hung_up().await, id);
}

#[tokio::test]
async fn an_answered_request_does_not_hang_up() {
    let mut server = Server::start();
    let deleted = |_: &Call| Answer::Deleted;
    let (_, response) = server.serve(of_shim("DEL"), deleted).await;
    assert_eq!(
        (response.status.as_str(), response.body.as_str()),
        ("HTTP/1.1 200 OK", "")
    );
    // The shim wants a length, even for an empty answer.
    for header in ["\r\ncontent-length: 0", "\r\nconnection: close"] {
        assert!(response.head.contains(header), "{}", response.head);
    }
    assert!(server.events.try_recv().is_err());
}

#[tokio::test]
async fn a_reply_that_is_dropped_means_try_again_later() {
    let mut server = Server::start();
    let stream = server.call("ADD").await;
    drop(server.asked().await);
    let response = response(stream).await;
    response.says("503 Service Unavailable", r#""code":11,"#);
}

#[tokio::test]
async fn a_connection_serves_one_request() {
    let mut server = Server::start();
    let deleted = |_: &Call| Answer::Deleted;
    let (_, response) = server.serve(of_shim("DEL").repeat(2), deleted).await;
    assert_eq!(response.body, "");
    assert!(server.events.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_reads_does_not_keep_its_place() {
    for line in [
        "GET /v1/bindings",
        "GET /v1/show",
        "POST /v1/renew?all=true",
    ] {
        let mut server = Server::start();
        let mut stream = server.begin(line).await;
        let (_, _, reply) = server.asked().await;
        // More than the socket's buffers take.
        reply.send(Answer::Failed(Failure::Store(StoreCause::Failed(
            "x".repeat(8 << 20),
        ))));
        drop(server.listeners);
        server.serving.await.unwrap();
        let mut text = Vec::new();
        stream.read_to_end(&mut text).await.unwrap();
        assert!(text.len() < 8 << 20, "{line}");
    }
}

#[tokio::test]
async fn stopping_cuts_callers_off_before_any_byte() {
    let mut server = Server::start();
    let mut stream = server.call("ADD").await;
    let (_, _, _reply) = server.asked().await;
    drop(server.listeners);
    server.serving.await.unwrap();
    let mut text = Vec::new();
    // Closed, or reset: either way nothing came.
    let _ = stream.read_to_end(&mut text).await;
    assert!(text.is_empty());
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_their_turn() {
    let mut server = Server::start();
    let mut open = Vec::new();
    for _ in 0..MAX_OPEN {
        open.push((server.call("ADD").await, server.asked().await));
    }
    let late = server.call("ADD").await;
    settle().await;
    assert!(server.events.try_recv().is_err());
    // Neither the caller nor the driver alone gives the place back.
    let (stream, (gone, _, reply)) = open.pop().unwrap();
    drop(stream);
    assert_eq!(server.hung_up().await, gone);
    settle().await;
    assert!(server.events.try_recv().is_err());
    drop(reply);
    let (_, call, reply) = server.asked().await;
    reply.send(leased(&call));
    assert_eq!(response(late).await.status, "HTTP/1.1 200 OK");
}

#[tokio::test(start_paused = true)]
async fn slow_callers_at_docker_s_socket_hold_no_add_up() {
    let mut server = Server::start();
    let docker = server.listen(Protocol::Docker);
    let mut slow = Vec::new();
    for _ in 0..24 {
        let mut stream = UnixStream::connect(&docker).await.unwrap();
        let head =
            "POST /IpamDriver.RequestPool HTTP/1.1\r\nHost: \r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    settle().await;
    let began = tokio::time::Instant::now();
    let add = server.call("ADD").await;
    let (_, call, reply) = server.asked().await;
    reply.send(leased(&call));
    assert_eq!(response(add).await.status, "HTTP/1.1 200 OK");
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "it waited {:?} for others' bodies",
        began.elapsed()
    );
}

#[tokio::test]
async fn an_add_or_a_finished_del_removes_a_spooled_del() {
    let mut server = Server::start();
    let file = spool::path(&server.socket, &request("DEL"));

    std::fs::write(&file, "").unwrap();
    let _add = server.call("ADD").await;
    let (_, _, _reply) = server.asked().await;
    assert!(!file.exists());

    std::fs::write(&file, "").unwrap();
    let del = server.call("DEL").await;
    let (_, _, reply) = server.asked().await;
    assert!(file.exists());
    reply.send(Answer::Deleted);
    response(del).await;
    assert!(!file.exists());
}

#[tokio::test]
async fn each_socket_speaks_its_own_protocol() {
    let ask = docker_call("GetCapabilities", "");
    let unknown = "POST /IpamDriver.GetCapabilities: there is nothing here by that name";
    for (protocol, status, body) in [
        (Protocol::Control, "404", unknown),
        (Protocol::Docker, "200", r#""RequiresMACAddress":true"#),
        (
            Protocol::DockerIpvlan,
            "200",
            r#""RequiresMACAddress":false"#,
        ),
    ] {
        let server = Server::speaking(protocol);
        response(server.say(&ask).await).await.says(status, body);
    }
    let server = Server::speaking(Protocol::Docker);
    for line in [
        "GET /Plugin.Activate",
        "POST /NetworkDriver.Dance",
        "POST /cni",
        "GET /v1/bindings",
    ] {
        let response = server.ask(line).await;
        response.says("404 Not Found", r#""Err":""#);
    }
}

#[tokio::test]
async fn a_docker_socket_that_ends_serves_those_who_wait() {
    let ask = docker_call("GetCapabilities", "");
    let server = Server::speaking(Protocol::Docker);
    let control = server.listen(Protocol::Control);
    // Nothing is accepted before the test waits for the first time.
    let waiting = std::os::unix::net::UnixStream::connect(&server.socket).unwrap();
    waiting.set_nonblocking(true).unwrap();
    server.listeners.send(Listening::Stopping).unwrap();
    let mut waiting = UnixStream::from_std(waiting).unwrap();
    waiting.write_all(ask.as_bytes()).await.unwrap();
    assert_eq!(response(waiting).await.status, "HTTP/1.1 200 OK");
    let refused = UnixStream::connect(&server.socket).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    UnixStream::connect(control).await.unwrap();
}

/// A call from dockerd, as it is on the wire.
fn docker_call(method: &str, body: &str) -> String {
    post(&format!("/IpamDriver.{method}"), body).replace("Host: x", "Host: ")
}

const OF_AN_ENDPOINT: &str = r#"{"PoolID":"192.0.0.0/16;;parent=eth0","Address":"","Options":{"com.docker.network.endpoint.macaddress":"02:42:c0:00:02:0a"}}"#;

#[tokio::test]
async fn dockers_calls_are_asked_and_answered_in_its_words() {
    let mut server = Server::speaking(Protocol::Docker);
    let asks = || docker_call("RequestAddress", OF_AN_ENDPOINT);
    let (_, given) = server.serve(asks(), leased).await;
    given.says("200 OK", r#"{"Address":"192.0.2.10/16"}"#);

    // dockerd reads no other answer.
    let full = |_: &Call| Answer::Failed(Failure::Store(StoreCause::Full));
    let (_, failed) = server.serve(asks(), full).await;
    let full = StoreCause::Full;
    failed.says("200 OK", &format!(r#"{{"Err":"{full}","Error":"{full}"}}"#));

    let bad = docker_call("RequestPool", r#"{"Pool":""}"#);
    let refused = response(server.say(bad).await).await;
    refused.says("200 OK", r#""Error":"--ipam-opt parent=LINK is missing"#);
    // As dockerd repeats a call that broke.
    for body in ["", "{"] {
        let refused = response(server.say(docker_call("RequestAddress", body)).await).await;
        refused.says("400 Bad Request", r#""Err":"the call "#);
    }
    assert!(server.events.try_recv().is_err());
}

#[tokio::test]
async fn a_dockerd_that_gave_up_takes_its_call_with_it() {
    let mut server = Server::speaking(Protocol::Docker);
    let stream = server
        .say(docker_call("RequestAddress", OF_AN_ENDPOINT))
        .await;
    let (id, _, _reply) = server.asked().await;
    drop(stream);
    assert_eq!(server.hung_up().await, id);
}

#[tokio::test]
async fn stopping_answers_dockers_calls_and_cuts_none_off() {
    let mut server = Server::speaking(Protocol::Docker);
    let first = server
        .say(docker_call("RequestAddress", OF_AN_ENDPOINT))
        .await;
    let (_, call, answered) = server.asked().await;
    let second = server
        .say(docker_call("RequestAddress", OF_AN_ENDPOINT))
        .await;
    let (_, _, dropped) = server.asked().await;
    drop(server.listeners);
    settle().await;
    assert!(!server.serving.is_finished());
    answered.send(leased(&call));
    drop(dropped);
    assert_eq!(response(first).await.body, r#"{"Address":"192.0.2.10/16"}"#);
    let stopped = r#""Err":"the leasehold daemon stopped before it had an address"#;
    response(second).await.says("200 OK", stopped);
    server.serving.await.unwrap();
}
