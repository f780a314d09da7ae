//! What monitors are told: whether the loop turns, and whether an ADD could be recorded.

use super::*;

#[tokio::test]
async fn a_monitor_hears_the_loop_and_nothing_else() {
    let mut server = Server::start();
    let stream = server.say("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let Some(Event::Turned(to)) = server.events.recv().await else { panic!("another question") };
    to.send(()).unwrap();
    assert_eq!(response(stream).await.status, "HTTP/1.1 200 OK");
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_does_not_turn_is_not_healthy() {
    let mut server = Server::start();
    let stream = server.say("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let _asked = server.events.recv().await;
    let response = response(stream).await;
    assert_eq!(response.status, "HTTP/1.1 503 Service Unavailable");
    assert_eq!(response.body, r#"{"error":"the loop does not turn"}"#);
}

#[tokio::test]
async fn many_monitors_have_the_store_written_to_once() {
    let mut server = Server::start();
    for (answer, expected) in [
        (Answer::Failed(Failure::NotReady("store full".to_owned())), "HTTP/1.1 503 Service Unavailable"),
        (Answer::Ready, "HTTP/1.1 200 OK"),
    ] {
        let mut streams = Vec::new();
        for _ in 0..20 {
            streams.push(server.say("GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n").await);
        }
        let (_, call, reply) = server.asked().await;
        assert_eq!(call, Call::Status { parent: None });
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
