//! The HTTP server: accepts, limits and times connections, and routes their requests.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::ext::ReasonPhrase;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use leasehold_api::cni::{Code, Error};
use leasehold_api::control::{Events, Frames, Log};
use leasehold_api::{MAX_BODY, cni as wire, control as wire_control, spool, to_json};
use leasehold_core::effect::{Answer, Call, NetworkAnswer, Verb};
use leasehold_host_local::Directory;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::caller::{Caller, Door, answered, ask, json, sentence, waits};
use super::cni::Asked;
use super::docker::{self, Refused};
use super::events::Question;
use super::question::Refusal;
use super::refusal::{STOPPING, undecodable};
use super::{Doors, capture, logging, monitor, operator, order};
use crate::listen::Protocol;
use crate::one_request::http1;
use crate::{metrics, net, unguessable};

/// How long an ADD waits for the names of the addresses that the plugin has given by itself.
const LOOK: Duration = Duration::from_millis(250);

/// From the end of the head to the end of the body.
const BODY_LIMIT: Duration = Duration::from_secs(5);
/// From the answer to the end of its transfer.
const WRITE_LIMIT: Duration = Duration::from_secs(2);
/// The pause after a failed accept: file descriptors or memory ran out, and the next accept would fail too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The Go plugin shows only the status line of a refusal, so the message goes there.
const GO_RPC: &str = "this is leasehold, which does not speak Go RPC: \
     in the runtime's plugin directory, replace the plugin dhcp of containernetworking by leasehold's";

/// What the driver says about listeners.
#[derive(Debug)]
pub(crate) enum Listening {
    /// Callers arrive here, and no longer at the previous listener with this protocol.
    Begin(Protocol, UnixListener),
    /// The daemon stops. Where each call is answered, only callers that already wait are accepted.
    Stopping,
}

/// Serves the listeners that the driver names, until there are no more. `socket` is the control socket's path, beside which
/// spooled calls lie.
///
/// Callers that wait at a listener when it ends are served, because nobody may be able to find it again. Callers that wait when
/// everything ends are left to the next daemon, or are cut off and ask again.
pub(crate) async fn serve(
    mut news: mpsc::UnboundedReceiver<Listening>,
    socket: PathBuf,
    doors: Doors,
) {
    let socket: Arc<Path> = socket.into();
    let (stop, stopping) = watch::channel(());
    let mut serving = JoinSet::new();
    // A listener ends when its sender is dropped.
    let mut open: Vec<(Protocol, oneshot::Sender<Infallible>)> = Vec::new();
    while let Some(said) = news.recv().await {
        match said {
            Listening::Begin(protocol, listener) => {
                let (sender, ended) = oneshot::channel();
                open.retain(|(other, _)| *other != protocol);
                open.push((protocol, sender));
                let door = Door {
                    doors: doors.clone(),
                    protocol,
                    socket: socket.clone(),
                };
                serving.spawn(serve_one(listener, door, ended, stopping.clone()));
            }
            Listening::Stopping => open.retain(|(protocol, _)| !protocol.is_dockers()),
        }
        while serving.try_join_next().is_some() {}
    }
    drop(stop);
    drop(open);
    while serving.join_next().await.is_some() {}
}

/// Serves one listener until it ends or the daemon stops (`stopping` closes), and its connections to their end.
async fn serve_one(
    listener: UnixListener,
    door: Door,
    mut ended: oneshot::Receiver<Infallible>,
    stopping: watch::Receiver<()>,
) {
    let mut connections = JoinSet::new();
    let mut stopped = stopping.clone();
    let places = &door.doors.share(door.protocol).places;
    let serve = |connections: &mut JoinSet<()>, (stream, place)| {
        let caller = Caller {
            door: door.clone(),
            place: Arc::new(place),
        };
        connections.spawn(connection(stream, caller, stopping.clone()));
    };
    loop {
        tokio::select! {
            biased;
            _ = stopped.changed() => break,
            _ = &mut ended => {
                waiting(listener, places).for_each(|accepted| serve(&mut connections, accepted));
                break;
            }
            Some(_) = connections.join_next() => {}
            accepted = accept(&listener, places) => serve(&mut connections, accepted),
        }
    }
    while connections.join_next().await.is_some() {}
}

/// Waits for a place, then for a connection.
async fn accept(
    listener: &UnixListener,
    places: &Arc<Semaphore>,
) -> (UnixStream, OwnedSemaphorePermit) {
    let place = places
        .clone()
        .acquire_owned()
        .await
        .expect("the places are never closed");
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

/// Ends a listener, and returns the callers that wait there, as many as there are places.
fn waiting(
    listener: UnixListener,
    places: &Arc<Semaphore>,
) -> impl Iterator<Item = (UnixStream, OwnedSemaphorePermit)> {
    // The runtime may not know about them yet, so the kernel itself is asked.
    let listener = listener.into_std().ok();
    std::iter::from_fn(move || {
        let place = places.clone().try_acquire_owned().ok()?;
        let (stream, _) = listener.as_ref()?.accept().ok()?;
        stream.set_nonblocking(true).ok()?;
        Some((UnixStream::from_std(stream).ok()?, place))
    })
}

/// Serves one request of HTTP/1.1. Ends when a limit passes while the request comes in or the answer goes out. Between the two,
/// ends when the daemon stops (`stopping` closes), unless the driver then answers each call.
async fn connection(stream: UnixStream, caller: Caller, mut stopping: watch::Receiver<()>) {
    let answered = Notify::new();
    let service = service_fn(|request| async {
        let response = respond(request, &caller).await;
        answered.notify_one();
        Ok::<_, Infallible>(response)
    });
    let serving = http1().serve_connection(TokioIo::new(stream), service);
    let limit = async {
        tokio::select! {
            biased;
            () = answered.notified() => sleep(WRITE_LIMIT).await,
            _ = stopping.changed(), if !caller.door.protocol.is_dockers() => {}
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
    match caller.door.protocol {
        Protocol::Control => respond_control(request, caller).await,
        Protocol::Read => respond_read(request, caller).await,
        Protocol::Docker => respond_docker(request, false, caller).await,
        Protocol::DockerIpvlan => respond_docker(request, true, caller).await,
    }
}

/// Answers dockerd, which takes any status but 200 as final and shows `Err`.
async fn respond_docker(
    request: Request<Incoming>,
    ipvlan: bool,
    caller: &Caller,
) -> Response<Full<Bytes>> {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let answer = match method {
        Method::POST => docker_call(path.clone(), ipvlan, request.into_body(), caller).await,
        _ => Err(Refused::Unknown),
    };
    match answer {
        Ok(text) => json(StatusCode::OK, text),
        Err(refused) => {
            debug!(path, ?refused, "refused");
            let (status, why) = match refused {
                Refused::Unknown => (
                    StatusCode::NOT_FOUND,
                    format!("{method} {path:.64}: this plugin has no such call"),
                ),
                Refused::Undecodable(why) => (StatusCode::BAD_REQUEST, why),
                Refused::Said(why) => (StatusCode::OK, why),
            };
            // dockerd reads one in an IPAM driver's answer, the other in a network driver's, and whenever the status is not 200.
            json(
                status,
                serde_json::json!({ "Error": why, "Err": why }).to_string(),
            )
        }
    }
}

/// Reads a call from dockerd, and has the core answer it. A call that names a network is read again once the core has described
/// that network.
async fn docker_call(
    path: String,
    ipvlan: bool,
    body: Incoming,
    caller: &Caller,
) -> Result<String, Refused> {
    let (body, room) = take_in(body, caller)
        .await
        .map_err(|unread| Refused::Undecodable(unread.to_string()))?;
    let mut asked = understand_docker(ipvlan, caller, move |host| {
        docker::Asked::parse(&path, &body, host)
    })
    .await;
    drop(room);
    loop {
        let (call, form) = match asked? {
            docker::Asked::Known(text) => return Ok(text),
            docker::Asked::Core { call, form } => (call, form),
        };
        let answer = ask(call, caller).await.ok_or_else(|| form.unanswered())?;
        match (answer, form.then.clone()) {
            (Answer::Network(NetworkAnswer::Found(network)), Some(then)) => {
                let on = move |host: &docker::Host<'_>| docker::Asked::about(&then, &network, host);
                asked = understand_docker(ipvlan, caller, on).await;
            }
            (answer, _) => {
                return form.answer(&answer).inspect(|_| {
                    if let Some(warning) = &form.warning {
                        warn!("{warning}");
                    }
                });
            }
        }
    }
}

/// Reads a call from dockerd, on a thread: it may require a look at the host's links, for which the kernel may take a while.
async fn understand_docker(
    ipvlan: bool,
    caller: &Caller,
    read: impl Fn(&docker::Host<'_>) -> Result<docker::Asked, Refused> + Send + 'static,
) -> Result<docker::Asked, Refused> {
    let site = caller.doors().site;
    let number = unguessable();
    let reading = tokio::task::spawn_blocking(move || {
        read(&docker::Host {
            site,
            ipvlan,
            link: &net::ethernet,
            links_in: &net::links_in,
            number,
        })
    });
    let understood = reading.await;
    understood.unwrap_or_else(|error| {
        Err(Refused::Said(format!(
            "the daemon cannot read this call, a bug: {error}"
        )))
    })
}

async fn respond_control(request: Request<Incoming>, caller: &Caller) -> Response<Full<Bytes>> {
    let query = request.uri().query().unwrap_or_default();
    match (request.method(), request.uri().path()) {
        (&Method::POST, wire::PATH) => respond_cni(request.into_body(), caller).await,
        (&Method::GET, wire_control::BINDINGS) => answered(operator::bindings(query, caller).await),
        (&Method::GET, wire_control::SHOW) => answered(operator::show(query, caller).await),
        (&Method::GET, wire_control::STATUS) => answered(operator::status(caller).await),
        (&Method::GET, wire_control::RANGES) => answered(operator::ranges(caller).await),
        (&Method::POST, wire_control::RENEW) => {
            answered(operator::obey(order::parse(query, Verb::Renew), caller).await)
        }
        (&Method::POST, wire_control::RELEASE) => {
            answered(operator::obey(order::parse(query, order::RELEASE), caller).await)
        }
        (&Method::GET, wire_control::EVENTS) => answered(events(query, caller).await),
        (&Method::GET | &Method::PUT | &Method::DELETE, wire_control::LOG) => {
            answered(log(request, caller).await)
        }
        (&Method::GET, wire_control::CAPTURE) => answered(frames(query, caller).await),
        (&Method::GET, wire_control::METRICS) => {
            let asker = caller.clone();
            let answer = async move { respond_metrics(&asker).await };
            caller.doors().said.metrics.or(answer).await
        }
        (&Method::GET, wire_control::HEALTH) => {
            let alive = monitor::is_alive(&caller.doors().reports).await;
            let empty = || serde_json::json!({});
            let stuck = || Refusal::later("the loop does not run");
            answered(alive.then(empty).ok_or_else(stuck))
        }
        (&Method::GET, wire_control::READINESS) => {
            let asker = caller.clone();
            let answer = async move { answered(operator::is_ready(&asker).await) };
            caller.doors().said.readiness.or(answer).await
        }
        (&Method::CONNECT, _) => refuse_go_rpc(caller),
        (method, path) => sentence(
            StatusCode::NOT_FOUND,
            &format!("{method} {path:.64}: there is nothing here by that name"),
        ),
    }
}

/// Answers a caller that only reads. However many ask, leases are listed once a second, and only a few may wait for events.
async fn respond_read(request: Request<Incoming>, caller: &Caller) -> Response<Full<Bytes>> {
    let said = &caller.doors().said;
    let asker = caller.clone();
    let asks_for_all = request.uri().query().is_none_or(str::is_empty);
    match (request.method(), request.uri().path()) {
        (&Method::GET, wire_control::BINDINGS) if asks_for_all => {
            let answer = async move { answered(operator::bindings("", &asker).await) };
            said.bindings.or(answer).await
        }
        (&Method::GET, wire_control::STATUS) => {
            let answer = async move { answered(operator::status(&asker).await) };
            said.status.or(answer).await
        }
        // These are not the same for all, or asked for rarely.
        (&Method::GET, wire_control::BINDINGS | wire_control::SHOW | wire_control::RANGES) => {
            let _waits = match waits(caller) {
                Ok(place) => place,
                Err(refusal) => return answered(Err::<(), _>(refusal)),
            };
            respond_control(request, caller).await
        }
        (
            &Method::GET,
            wire_control::EVENTS
            | wire_control::METRICS
            | wire_control::HEALTH
            | wire_control::READINESS,
        ) => respond_control(request, caller).await,
        (method, path) => sentence(
            StatusCode::NOT_FOUND,
            &format!(
                "{method} {path:.64} is not answered at this socket, which is only for reading: use the daemon's main socket \
                 (/run/cni/dhcp.sock, unless --socket says otherwise), as root"
            ),
        ),
    }
}

async fn respond_cni(body: Incoming, caller: &Caller) -> Response<Full<Bytes>> {
    let result = match understand(body, caller).await {
        Ok(understood) => cni(understood, caller).await,
        Err(error) => Err(error),
    };
    match result {
        Ok(text) => json(StatusCode::OK, text),
        Err(error) => {
            debug!(
                code = u32::from(error.code),
                msg = error.msg,
                details = error.details,
                "refused"
            );
            json(status(error.code), to_json(&error))
        }
    }
}

/// The part of a request that is kept while its caller waits.
struct Understood {
    asked: Asked,
    /// Where a DEL of its attachment would be spooled.
    spooled: PathBuf,
}

/// Reads a request, and keeps only what is needed: its text may be long, and many callers wait.
async fn understand(body: Incoming, caller: &Caller) -> Result<Understood, Error> {
    let taken_in = take_in(body, caller).await;
    let (body, _room) = taken_in.map_err(|unread| Error::new(unread.code(), unread.to_string()))?;
    serde_json::from_slice(&body)
        .map_err(|e| undecodable("the request (is it from leasehold's dhcp plugin?)", &e))
        .and_then(|request: wire::Request| {
            let asked = Asked::parse(&request, &caller.doors().site)?;
            Ok(Understood {
                asked,
                spooled: spool::path(&caller.door.socket, &request),
            })
        })
}

/// Why a request's body was not read.
#[derive(Debug, thiserror::Error)]
enum Unread {
    /// Longer than any request.
    #[error("the request is longer than {MAX_BODY} bytes")]
    TooLong,
    /// The connection failed.
    #[error("the request broke off: {0}")]
    Broken(String),
    /// It did not come in time.
    #[error("the request took longer than {BODY_LIMIT:?}")]
    Slow,
}

impl Unread {
    fn code(&self) -> Code {
        match self {
            Self::TooLong => Code::InvalidConfig,
            Self::Broken(_) | Self::Slow => Code::Io,
        }
    }
}

/// Reads a body of at most [`MAX_BODY`] bytes, and returns it with its share of the bytes that may be read at once; other bodies
/// wait in their sockets. A share is given back within [`BODY_LIMIT`].
async fn take_in(body: Incoming, caller: &Caller) -> Result<(Bytes, OwnedSemaphorePermit), Unread> {
    let length = body
        .size_hint()
        .exact()
        .map_or(MAX_BODY, |length| length.min(MAX_BODY as u64) as usize);
    let room = caller
        .door
        .doors
        .share(caller.door.protocol)
        .reading
        .clone()
        .acquire_many_owned(length as u32)
        .await
        .expect("nobody closes it");
    if body.size_hint().lower() > MAX_BODY as u64 {
        return Err(Unread::TooLong);
    }
    match timeout(BODY_LIMIT, Limited::new(body, MAX_BODY).collect()).await {
        Ok(Ok(body)) => Ok((body.to_bytes(), room)),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Unread::TooLong),
        Ok(Err(error)) => Err(Unread::Broken(error.to_string())),
        Err(_) => Err(Unread::Slow),
    }
}

async fn cni(understood: Understood, caller: &Caller) -> Result<String, Error> {
    let Understood {
        asked: Asked {
            mut call,
            form,
            warnings,
        },
        spooled,
    } = understood;
    for warning in &warnings {
        warn!("{warning}");
    }
    // An ADD supersedes any DEL of its attachment that was left behind, such as by a shim that was killed before it could remove
    // the file: no later start may replay that DEL against the new lease.
    if matches!(call, Call::Add(_)) {
        forget_spooled(&spooled);
    }
    if let Call::Add(add) = &mut call
        && let Some(fallback) = &mut add.fallback
    {
        let networks = &caller.doors().networks;
        fallback.pass_over(given_without_us(networks, add.attachment.network()).await);
    }
    let answer = ask(call, caller).await.ok_or_else(|| form.unanswered())?;
    if answer == Answer::Deleted {
        forget_spooled(&spooled);
    }
    form.answer(&answer)
}

/// Returns the addresses that the plugin, or host-local, has given in a network by itself.
async fn given_without_us(networks: &Path, network: &str) -> BTreeSet<IpAddr> {
    let directory = Directory::at(networks.join(network));
    let names = tokio::task::spawn_blocking(move || directory.names());
    // A directory that does not answer holds up no ADD. Nearly every network with a fallback has none.
    match timeout(LOOK, names).await {
        Ok(Ok(Ok(names))) => names.addresses().collect(),
        _ => BTreeSet::new(),
    }
}

fn forget_spooled(path: &Path) {
    match std::fs::remove_file(path) {
        Ok(()) => debug!(path = %path.display(), "a spooled DEL was superseded"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => {
            warn!(path = %path.display(), %error, "cannot remove a spooled DEL: remove it by hand")
        }
    }
}

async fn log(request: Request<Incoming>, caller: &Caller) -> Result<Log, Refusal> {
    let log = &caller.doors().log;
    match *request.method() {
        Method::PUT => {
            let taken_in = take_in(request.into_body(), caller).await;
            let (body, _room) = taken_in.map_err(Refusal::bad)?;
            logging::change(log, &body)?;
        }
        Method::DELETE => log.reset(),
        _ => {}
    }
    Ok(logging::said(log))
}

async fn events(query: &str, caller: &Caller) -> Result<Events, Refusal> {
    let question = Question::parse(query)?;
    let may_be_long = question.waits() || caller.door.protocol == Protocol::Read;
    let _waits = may_be_long.then(|| waits(caller)).transpose()?;
    let journal = caller.doors().journal.clone();
    question.answer(journal).await.map_err(Refusal::later)
}

async fn frames(query: &str, caller: &Caller) -> Result<Frames, Refusal> {
    let question = capture::Question::parse(query)?;
    let _waits = question.waits().then(|| waits(caller)).transpose()?;
    Ok(question.answer(&caller.doors().frames).await)
}

async fn respond_metrics(caller: &Caller) -> Response<Full<Bytes>> {
    let Some(snapshot) = monitor::snapshot(caller.doors()).await else {
        return sentence(StatusCode::SERVICE_UNAVAILABLE, STOPPING);
    };
    let mut response = json(StatusCode::OK, metrics::write(snapshot));
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static(metrics::CONTENT_TYPE),
    );
    response
}

/// Returns the HTTP status for a CNI code, for people who use curl; the shim only checks for success.
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

fn refuse_go_rpc(caller: &Caller) -> Response<Full<Bytes>> {
    if caller.doors().old_plugin.called(SystemTime::now()) {
        warn!(
            "the plugin dhcp of containernetworking was called: another installer has overwritten leasehold's; put it back \
               with `leasehold install`"
        );
    }
    let mut response = sentence(StatusCode::NOT_IMPLEMENTED, GO_RPC);
    response
        .extensions_mut()
        .insert(const { ReasonPhrase::from_static(GO_RPC.as_bytes()) });
    response
}
