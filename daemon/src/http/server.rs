//! The HTTP server: accepts, limits and times connections, and routes their requests.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::ext::ReasonPhrase;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use leasehold_api::cni::{Code, Error};
use leasehold_api::{MAX_BODY, cni as wire, control as wire_control, spool, to_json};
use leasehold_core::effect::{Answer, Call, RequestId};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::cni::Asked;
use super::events::Question;
use super::refusal::undecodable;
use super::{Doors, Event, Reply, control};

/// The longest head of a request, in bytes: hyper keeps a buffer of that size for each waiting caller.
const MAX_HEAD: usize = 8192;
/// From the accept to the end of the request's head.
const HEAD_LIMIT: Duration = Duration::from_secs(5);
/// From the end of the head to the end of the body.
const BODY_LIMIT: Duration = Duration::from_secs(5);
/// From the answer to the end of its transfer.
const WRITE_LIMIT: Duration = Duration::from_secs(2);
/// The pause after a failed accept: it lacked file descriptors or memory, and the next would fail too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The Go plugin shows only the status line of a refusal, so the sentence goes there.
const GO_RPC: &str = "this is leasehold, which does not speak Go RPC: \
     in the runtime's plugin directory, replace the plugin dhcp of containernetworking by leasehold's";

/// Serves the latest listener from `listeners`, until that is closed. `socket` is their path: spooled calls are beside
/// it.
///
/// Callers waiting at an earlier listener are cut off, and ask again.
pub(crate) async fn serve(mut listeners: mpsc::UnboundedReceiver<UnixListener>, socket: PathBuf, doors: Doors) {
    let Some(mut listener) = listeners.recv().await else { return };
    let socket: Arc<Path> = socket.into();
    let (stop, stopping) = watch::channel(());
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            next = listeners.recv() => match next {
                Some(next) => listener = next,
                None => break,
            },
            Some(_) = connections.join_next() => {}
            (stream, place) = accept(&listener, &doors) => {
                let caller = Caller { doors: doors.clone(), socket: socket.clone(), place: Arc::new(place) };
                connections.spawn(connection(stream, caller, stopping.clone()));
            }
        }
    }
    drop((listener, stop));
    while connections.join_next().await.is_some() {}
}

/// Waits for a place, then for a connection.
async fn accept(listener: &UnixListener, doors: &Doors) -> (UnixStream, OwnedSemaphorePermit) {
    let place = doors.places.clone().acquire_owned().await.expect("the places are never closed");
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, place),
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// What is known about a connection before it speaks.
#[derive(Clone)]
struct Caller {
    doors: Doors,
    socket: Arc<Path>,
    place: Arc<OwnedSemaphorePermit>,
}

/// Serves one request. Ends at the latest when a limit passes (while the request comes in or the answer goes out) or,
/// between the two, when the daemon stops (`stopping` closes).
async fn connection(stream: UnixStream, caller: Caller, mut stopping: watch::Receiver<()>) {
    let answered = Notify::new();
    let service = service_fn(|request| async {
        let response = respond(request, &caller).await;
        answered.notify_one();
        Ok::<_, Infallible>(response)
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(MAX_HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    let limit = async {
        tokio::select! {
            biased;
            () = answered.notified() => sleep(WRITE_LIMIT).await,
            _ = stopping.changed() => {}
        }
    };
    tokio::select! {
        served = serving => {
            if let Err(error) = served {
                debug!(%error, "a connection broke");
            }
        }
        () = limit => debug!("a connection was cut off"),
    }
}

async fn respond(request: Request<Incoming>, caller: &Caller) -> Response<Full<Bytes>> {
    match (request.method(), request.uri().path()) {
        (&Method::POST, wire::PATH) => respond_cni(request.into_body(), caller).await,
        (&Method::GET, wire_control::BINDINGS) => respond_bindings(caller).await,
        (&Method::GET, wire_control::EVENTS) => respond_events(request.uri().query().unwrap_or_default(), caller).await,
        (&Method::CONNECT, _) => refuse_go_rpc(),
        (method, path) => {
            sentence(StatusCode::NOT_FOUND, &format!("{method} {path:.64}: there is nothing here by that name"))
        }
    }
}

async fn respond_cni(body: Incoming, caller: &Caller) -> Response<Full<Bytes>> {
    let result = match understand(body, caller).await {
        Ok(understood) => cni(understood, caller).await.map_err(|error| (status(error.code), error)),
        Err(refused) => Err(refused),
    };
    match result {
        Ok(text) => json(StatusCode::OK, text),
        Err((status, error)) => {
            debug!(code = u32::from(error.code), msg = error.msg, details = error.details, "refused");
            json(status, to_json(&error))
        }
    }
}

/// What is kept of a request while its caller waits.
struct Understood {
    asked: Asked,
    /// Where a DEL of its attachment would be spooled.
    spooled: PathBuf,
}

/// Reads a request, and keeps only what is needed of it: its text may be long, and many callers wait.
async fn understand(body: Incoming, caller: &Caller) -> Result<Understood, (StatusCode, Error)> {
    let length = body.size_hint().exact().map_or(MAX_BODY, |length| length.min(MAX_BODY as u64) as usize);
    // The bytes read at once are bounded; others wait in their sockets. Whoever has a share gives it back within
    // BODY_LIMIT.
    let room = caller.doors.reading.acquire_many(length as u32).await.expect("nobody closes it");
    let body = read(body).await?;
    let understood = serde_json::from_slice(&body)
        .map_err(|e| undecodable("the request (is it from leasehold's dhcp plugin?)", &e))
        .and_then(|request: wire::Request| {
            let asked = Asked::parse(&request, &caller.doors.site)?;
            Ok(Understood { asked, spooled: spool::path(&caller.socket, &request) })
        });
    drop((body, room));
    understood.map_err(|error| (status(error.code), error))
}

/// Reads a body of at most [`MAX_BODY`] bytes.
async fn read(body: Incoming) -> Result<Bytes, (StatusCode, Error)> {
    let too_large = || {
        let msg = format!("the request is longer than {MAX_BODY} bytes");
        (StatusCode::PAYLOAD_TOO_LARGE, Error::new(Code::InvalidConfig, msg))
    };
    if body.size_hint().lower() > MAX_BODY as u64 {
        return Err(too_large());
    }
    match timeout(BODY_LIMIT, Limited::new(body, MAX_BODY).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => {
            Err((StatusCode::BAD_REQUEST, Error::new(Code::Io, format!("the request broke off: {error}"))))
        }
        Err(_) => {
            let msg = format!("the request took longer than {BODY_LIMIT:?}");
            Err((StatusCode::REQUEST_TIMEOUT, Error::new(Code::Io, msg)))
        }
    }
}

async fn cni(understood: Understood, caller: &Caller) -> Result<String, Error> {
    let Understood { asked: Asked { call, form }, spooled } = understood;
    // An ADD supersedes any DEL of its attachment that was left behind, such as by a shim that was killed before it
    // could remove the file: a later start must not replay it against the new lease.
    if matches!(call, Call::Add(_)) {
        forget_spooled(&spooled);
    }
    let answer = ask(call, caller).await.ok_or_else(|| form.unanswered())?;
    if answer == Answer::Deleted {
        forget_spooled(&spooled);
    }
    form.answer(&answer)
}

fn forget_spooled(path: &Path) {
    match std::fs::remove_file(path) {
        Ok(()) => debug!(path = %path.display(), "a spooled DEL was superseded"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => warn!(path = %path.display(), %error, "cannot remove a spooled DEL: remove it by hand"),
    }
}

async fn respond_bindings(caller: &Caller) -> Response<Full<Bytes>> {
    match ask(Call::List, caller).await {
        Some(Answer::Bindings { rows, not_adopted, refused }) => {
            json(StatusCode::OK, to_json(&control::bindings(&rows, &not_adopted, refused)))
        }
        Some(Answer::Failed(failure)) => sentence(StatusCode::SERVICE_UNAVAILABLE, &failure.to_string()),
        Some(_) => sentence(StatusCode::INTERNAL_SERVER_ERROR, "the daemon answered another question: this is a bug"),
        None => sentence(StatusCode::SERVICE_UNAVAILABLE, "the leasehold daemon is stopping"),
    }
}

async fn respond_events(query: &str, caller: &Caller) -> Response<Full<Bytes>> {
    let question = match Question::parse(query) {
        Ok(question) => question,
        Err(bad) => return sentence(StatusCode::BAD_REQUEST, &bad.to_string()),
    };
    // A waiting reader must not take the last place from an ADD.
    let _waits = match question.waits().then(|| caller.doors.waiting.try_acquire()).transpose() {
        Ok(permit) => permit,
        Err(_) => return sentence(StatusCode::SERVICE_UNAVAILABLE, "too many wait for events: try again later"),
    };
    match question.answer(caller.doors.journal.clone()).await {
        Ok(events) => json(StatusCode::OK, to_json(&events)),
        Err(error) => sentence(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    }
}

/// Asks the driver; `None` if it stops instead of answering. If dropped before that, tells the driver.
async fn ask(call: Call, caller: &Caller) -> Option<Answer> {
    let id = caller.doors.mint();
    let (answer, waiting) = oneshot::channel();
    let reply = Reply { answer, _place: caller.place.clone() };
    caller.doors.events.send(Event::Asked { id, call, reply }).ok()?;
    let mut hang_up = HangUp { id, events: Some(&caller.doors.events) };
    let answer = waiting.await;
    hang_up.events = None;
    answer.ok()
}

/// Reports on drop that the caller hung up, unless disarmed.
struct HangUp<'a> {
    id: RequestId,
    events: Option<&'a mpsc::UnboundedSender<Event>>,
}

impl Drop for HangUp<'_> {
    fn drop(&mut self) {
        if let Some(events) = self.events {
            // Without a driver nobody needs to know.
            let _ = events.send(Event::HungUp(self.id));
        }
    }
}

/// Returns the HTTP status for a CNI code, for people who use curl; the shim only looks for success.
fn status(code: Code) -> StatusCode {
    match code {
        Code::TryAgainLater | Code::NotAvailable | Code::Limited => StatusCode::SERVICE_UNAVAILABLE,
        Code::Io => StatusCode::INTERNAL_SERVER_ERROR,
        Code::UnknownContainer => StatusCode::NOT_FOUND,
        Code::CheckFailed => StatusCode::CONFLICT,
        Code::IncompatibleVersion
        | Code::UnsupportedField
        | Code::InvalidEnvironment
        | Code::Decode
        | Code::InvalidConfig => StatusCode::BAD_REQUEST,
    }
}

fn refuse_go_rpc() -> Response<Full<Bytes>> {
    let mut response = sentence(StatusCode::NOT_IMPLEMENTED, GO_RPC);
    response.extensions_mut().insert(const { ReasonPhrase::from_static(GO_RPC.as_bytes()) });
    response
}

fn sentence(status: StatusCode, error: &str) -> Response<Full<Bytes>> {
    json(status, serde_json::json!({ "error": error }).to_string())
}

fn json(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
