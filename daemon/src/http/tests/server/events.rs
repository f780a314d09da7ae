//! Readers of events.

use super::*;

/// Writes an event with this cause; later readers find it.
pub(super) fn note(server: &Server, cause: &str) {
    let event = CoreEvent {
        wall: WallTime::from_epoch(Duration::from_secs(1)),
        attachment: Attachment::cni("lan", "abc", "net1"),
        kind: EventKind::Lost,
        address: None,
        server: None,
        cause: cause.to_owned(),
        run: None,
    };
    server
        .store
        .persist(OpId(1), vec![Change::Note(Box::new(event))]);
}

async fn events(server: &Server, query: &str) -> Response {
    server.ask(&format!("GET /v1/events{query}")).await
}

#[tokio::test]
async fn events_are_served_with_their_numbers() {
    let server = Server::start();
    assert_eq!(
        events(&server, "").await.body,
        r#"{"events":[],"next_after":0}"#
    );
    note(&server, "a");
    note(&server, "b");
    let attachment =
        r#""attachment":{"door":"cni","network":"lan","container":"abc","ifname":"net1"}"#;
    let event = |number: u64, cause: &str| {
        format!(
            r#"{{"number":{number},"time":"1970-01-01T00:00:01.000Z",{attachment},"kind":"lost","cause":"{cause}"}}"#
        )
    };
    let expected = format!(
        r#"{{"events":[{},{}],"next_after":2}}"#,
        event(1, "a"),
        event(2, "b")
    );
    assert_eq!(events(&server, "").await.body, expected);
    let expected = format!(r#"{{"events":[{}],"next_after":1}}"#, event(1, "a"));
    assert_eq!(events(&server, "?limit=1").await.body, expected);
    assert_eq!(
        events(&server, "?after=2").await.body,
        r#"{"events":[],"next_after":2}"#
    );
    assert!(server.events.is_empty(), "the driver is not asked");
}

#[tokio::test]
async fn a_reader_that_waits_hears_of_the_next_event() {
    let server = Server::start();
    note(&server, "a");
    let waiting = server.begin("GET /v1/events?after=1&wait=60").await;
    let nothing = events(&server, "?after=1").await;
    assert_eq!(nothing.body, r#"{"events":[],"next_after":1}"#);
    note(&server, "b");
    assert!(response(waiting).await.body.contains(r#""cause":"b""#));
}

#[tokio::test(start_paused = true)]
async fn a_reader_is_not_kept_waiting_for_longer_than_it_asked() {
    let server = Server::start();
    let response = events(&server, "?wait=60").await;
    assert_eq!(response.body, r#"{"events":[],"next_after":0}"#);
}

#[tokio::test]
async fn a_bad_parameter_is_refused_by_name() {
    let server = Server::start();
    let error = r#"{"error":"limit=0: unknown, or not one of its values: use after=NUMBER, limit=NUMBER (1 to 1000) and wait=SECONDS (up to 60)"}"#;
    events(&server, "?limit=0")
        .await
        .says("400 Bad Request", error);
}

#[tokio::test]
async fn readers_that_wait_take_no_more_than_their_places() {
    let server = Server::start();
    let mut waiting = Vec::new();
    for _ in 0..crate::http::MAX_WAITING {
        waiting.push(server.begin("GET /v1/events?wait=60").await);
    }
    let late = events(&server, "?wait=60").await;
    assert_eq!(late.status, "HTTP/1.1 503 Service Unavailable");
    assert_eq!(events(&server, "").await.status, "HTTP/1.1 200 OK");
}

#[tokio::test]
async fn stopping_cuts_readers_off() {
    let server = Server::start();
    let waiting = server.begin("GET /v1/events?wait=60").await;
    assert_eq!(events(&server, "").await.status, "HTTP/1.1 200 OK");
    drop(server.listeners);
    server.serving.await.unwrap();
    assert_eq!(response(waiting).await.head, "");
}
