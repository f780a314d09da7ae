//! What monitors hear: whether the loop runs, and whether an ADD could be recorded; what the read-only socket is for.

use leasehold_core::effect::RangeRow;
use leasehold_core::identity::Lan;
use leasehold_core::range::{Range, Usage};
use leasehold_core::registry::{Holdings, Kind};

use super::events::note;
use super::*;
use crate::metrics::Snapshot;

#[tokio::test]
async fn a_monitor_hears_the_loop_and_nothing_else() {
    let mut server = Server::start();
    let stream = server.begin("GET /healthz").await;
    let Some(DoorReport::Pinged(to)) = server.events.recv().await else {
        panic!("another question")
    };
    to.send(()).unwrap();
    assert_eq!(response(stream).await.status, "HTTP/1.1 200 OK");
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_does_not_turn_is_not_healthy() {
    let mut server = Server::start();
    let stream = server.begin("GET /healthz").await;
    let _asked = server.events.recv().await;
    let error = r#"{"error":"the loop does not run"}"#;
    let response = response(stream).await;
    response.says("503 Service Unavailable", error);
}

#[tokio::test]
async fn many_monitors_have_the_store_written_to_once() {
    let mut server = Server::start();
    for (answer, expected) in [
        (
            Answer::Failed(Failure::NotReady("store full".to_owned())),
            "HTTP/1.1 503 Service Unavailable",
        ),
        // The answer to another question.
        (Answer::Deleted, "HTTP/1.1 503 Service Unavailable"),
        (Answer::Ready, "HTTP/1.1 200 OK"),
    ] {
        let mut streams = Vec::new();
        for _ in 0..20 {
            streams.push(server.begin("GET /readyz").await);
        }
        let (_, call, reply) = server.asked().await;
        assert_eq!(call, Call::Ready);
        reply.send(answer);
        for stream in streams {
            assert_eq!(response(stream).await.status, expected);
        }
        assert!(server.events.try_recv().is_err(), "asked again");
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::time::resume();
    }
}

#[tokio::test]
async fn many_readers_share_one_list_and_change_nothing() {
    let mut server = Server::speaking(Protocol::Read);
    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(server.begin("GET /v1/bindings").await);
    }
    let (_, call, reply) = server.asked().await;
    assert_eq!(call, Call::List);
    reply.send(Answer::Failed(Failure::NotReady("this once".to_owned())));
    for stream in streams {
        assert_eq!(response(stream).await.body, r#"{"error":"this once"}"#);
    }
    let adds = of_shim("ADD");
    for said in [
        &*adds,
        "PUT /v1/log HTTP/1.1\r\n\r\n",
        "GET /v1/log HTTP/1.1\r\n\r\n",
        "GET /v1/capture HTTP/1.1\r\n\r\n",
    ] {
        assert_eq!(
            response(server.say(said).await).await.status,
            "HTTP/1.1 404 Not Found",
            "{said}"
        );
    }
    assert!(server.events.try_recv().is_err());
}

/// Answers what the daemon is asked next with more than a socket's buffers take.
async fn answer_at_length(server: &mut Server) {
    let long = "x".repeat(1 << 20);
    match server.events.recv().await.unwrap() {
        DoorReport::Asked {
            call: Call::List,
            reply,
            ..
        } => {
            reply.send(Answer::Failed(Failure::Store(StoreCause::Failed(long))));
        }
        DoorReport::Asked {
            call: Call::Ranges,
            reply,
            ..
        } => {
            let ip = "10.0.0.2".parse().unwrap();
            let range = Range {
                subnet: "10.0.0.0/24".parse().unwrap(),
                first: ip,
                last: ip,
                gateway: ip,
            };
            let row = RangeRow {
                network: long,
                lan: Lan::Network("lan".into()),
                usage: Usage {
                    range,
                    size: 1,
                    taken: vec![],
                },
            };
            reply.send(Answer::Ranges(vec![row]));
        }
        DoorReport::Asked {
            call: Call::Ready,
            reply,
            ..
        } => {
            reply.send(Answer::Failed(Failure::NotReady(long)));
        }
        DoorReport::Measured(to) => {
            let kind = Kind {
                door: "cni",
                network: long,
                source: "server",
                state: "BOUND",
            };
            let holdings = Holdings {
                leases: [(kind, 1)].into(),
                ..Holdings::default()
            };
            to.send(Box::new(Snapshot {
                holdings,
                ..Snapshot::default()
            }))
            .unwrap();
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_costs_only_its_connection() {
    let paths = [
        "/v1/bindings",
        "/v1/ranges",
        "/v1/events",
        "/metrics",
        "/readyz",
    ];
    let both = [Protocol::Control, Protocol::Read]
        .into_iter()
        .flat_map(|protocol| paths.map(|path| (protocol, path)));
    for (protocol, path) in both {
        let mut server = Server::speaking(protocol);
        note(&server, &"x".repeat(1 << 20));
        let mut slow = server.begin(&format!("GET {path}")).await;
        if path != "/v1/events" {
            answer_at_length(&mut server).await;
        }
        let other = server.begin("GET /healthz").await;
        let Some(DoorReport::Pinged(to)) = server.events.recv().await else {
            panic!("another question")
        };
        to.send(()).unwrap();
        assert_eq!(
            response(other).await.status,
            "HTTP/1.1 200 OK",
            "beside {path}"
        );
        let mut text = vec![0; 9];
        slow.read_exact(&mut text).await.unwrap();
        // Its connection is cut off, else this would not end.
        drop(server.listeners);
        server.serving.await.unwrap();
        slow.read_to_end(&mut text).await.unwrap();
        assert!(
            text.starts_with(b"HTTP/1.1 ") && text.len() < 1 << 20,
            "{path}"
        );
    }
}
