//! `leasehold exporter`: serves over TCP what the daemon's read-only socket says: metrics for Prometheus, and a web page.
//!
//! It is a separate process without privileges: the daemon opens no TCP port. It keeps only the last events, and asks for
//! everything else when somebody asks it. [`feed`] follows events, [`host`] says by which names a browser may ask.

mod answer;
mod feed;
mod host;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use leasehold_api::control;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{LocalSet, spawn_blocking, spawn_local};
use tokio::time::sleep;

use self::answer::Answer;
use self::feed::{Feed, Subscription};
use super::args::ExporterArgs;
use super::client::{self, ClientError};
use crate::fresh::Fresh;
use crate::one_request::http1;

/// The most connections at once; a further one waits in the backlog.
const MOST: usize = 256;

/// The most connections that wait there.
const BACKLOG: u32 = 1024;

/// The most requests to the daemon at once. A thread waits for each.
const ASKING: usize = 8;

/// From the accept to the end of the request's head: connections that say nothing make room for others.
const HEAD_LIMIT: Duration = Duration::from_secs(1);
/// From the accept to the end of the answer, except for events, which end when the page is cut off.
const LIMIT: Duration = Duration::from_secs(30);

/// How long the daemon may stay silent.
const PATIENCE: Duration = Duration::from_secs(10);

/// The pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until told to stop.
pub(crate) fn exporter(args: &ExporterArgs) -> anyhow::Result<()> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime
        .enable_all()
        .max_blocking_threads(ASKING)
        .build()
        .context("cannot start")?;
    let served = LocalSet::new().block_on(&runtime, serve(args));
    // This does not wait for pending requests to the daemon.
    runtime.shutdown_background();
    served
}

async fn serve(args: &ExporterArgs) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot start")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot start")?;
    let listener = listen(args.listen).with_context(|| {
        format!(
            "cannot listen on {}: choose another address with --listen",
            args.listen
        )
    })?;
    eprintln!("leasehold: listening on http://{}/", listener.local_addr()?);
    let feed = Feed::default();
    spawn_local(feed.clone().follow(args.socket.clone()));
    let said = ASKED.map(|url| (url, Fresh::default())).into();
    let site = Rc::new(Site {
        socket: args.socket.as_path().into(),
        hosts: args.host.clone(),
        policy: answer::policy(),
        feed,
        said,
    });
    tokio::select! {
        () = accept(&listener, &site) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Listens, even while another exporter of the same user does: an update may start the next one before it ends the last.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// What connections are served with.
struct Site {
    socket: Arc<Path>,
    /// The names by which browsers may ask, besides addresses and `localhost`.
    hosts: Vec<String>,
    /// The policy of the page.
    policy: HeaderValue,
    feed: Feed,
    /// What the daemon answered a moment ago.
    said: BTreeMap<&'static str, Fresh<Said>>,
}

/// The requests to the daemon. However many ask and however slow it is, at most one of each kind is under way.
const ASKED: [&str; 5] = [
    control::STATUS,
    control::METRICS,
    control::HEALTH,
    control::READINESS,
    control::BINDINGS,
];

/// The daemon's answer.
type Said = Arc<Result<Vec<u8>, ClientError>>;

async fn accept(listener: &TcpListener, site: &Rc<Site>) {
    let places = Arc::new(Semaphore::new(MOST));
    loop {
        let place = places
            .clone()
            .acquire_owned()
            .await
            .expect("the places are never closed");
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let site = site.clone();
        spawn_local(async move {
            let _place = place;
            connection(stream, site).await;
        });
    }
}

/// Serves one request.
async fn connection(stream: TcpStream, site: Rc<Site>) {
    let site = &site;
    let follows = &Cell::new(None);
    let service =
        service_fn(
            |request| async move { Ok::<_, Infallible>(respond(&request, site, follows).await) },
        );
    let serving = http1()
        .header_read_timeout(HEAD_LIMIT)
        .serve_connection(TokioIo::new(stream), service);
    let limit = async {
        sleep(LIMIT).await;
        if let Some(cut_off) = follows.take() {
            let _ = cut_off.await;
        }
    };
    tokio::select! {
        _ = serving => {}
        () = limit => {}
    }
}

/// The end of a connection that follows events; `None` for any other.
type Follows = Cell<Option<oneshot::Receiver<Infallible>>>;

async fn respond(request: &Request<Incoming>, site: &Site, follows: &Follows) -> Response<Answer> {
    if request.method() != Method::GET {
        return answer::sentence(
            StatusCode::METHOD_NOT_ALLOWED,
            "nothing can be changed here",
        );
    }
    // The answers name no container, and scrapers may use any name for this host.
    match request.uri().path() {
        "/metrics" => return answer::metrics(&*ask(site, control::METRICS).await),
        control::HEALTH => return relayed(site, control::HEALTH).await,
        control::READINESS => return relayed(site, control::READINESS).await,
        _ => {}
    }
    let host = request
        .headers()
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    if !host.is_some_and(|host| host::is_ours(host, &site.hosts)) {
        return answer::sentence(
            StatusCode::FORBIDDEN,
            "the page is not served under this name: see `--host`",
        );
    }
    match request.uri().path() {
        "/" => answer::page(site.policy.clone()),
        "/leases" => relayed(site, control::BINDINGS).await,
        "/status" => relayed(site, control::STATUS).await,
        "/events" => {
            let last = request
                .headers()
                .get("last-event-id")
                .and_then(|id| id.to_str().ok()?.parse().ok());
            match site.feed.subscribe(last) {
                Some(Subscription { events, cut_off }) => {
                    follows.set(Some(cut_off));
                    answer::events(events)
                }
                None => answer::sentence(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "too many follow events: close a page",
                ),
            }
        }
        _ => answer::sentence(StatusCode::NOT_FOUND, "there is nothing here by that name"),
    }
}

async fn ask(site: &Site, url: &'static str) -> Said {
    let socket = site.socket.clone();
    let asked = async move {
        let asked = spawn_blocking(move || client::get_within(&socket, url, PATIENCE)).await;
        Arc::new(asked.expect("a request does not panic"))
    };
    site.said[url].or(asked).await
}

/// Relays what the daemon says, with its status.
async fn relayed(site: &Site, url: &'static str) -> Response<Answer> {
    match &*ask(site, url).await {
        Ok(body) => answer::json(StatusCode::OK, body.clone()),
        Err(ClientError::Refused { status, said, .. }) => {
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::BAD_GATEWAY);
            answer::sentence(status, said)
        }
        Err(error) => answer::sentence(StatusCode::BAD_GATEWAY, &crate::log::chain(error)),
    }
}
