//! What a monitor asks for: `/metrics`, `/healthz`, `/readyz`. However many monitors there are, each costly answer is computed at
//! most once a second.

use std::time::{Duration, SystemTime};

use http_body_util::Full;
use hyper::Response;
use hyper::body::Bytes;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::timeout;

use super::{DoorReport, Doors};
use crate::fresh::Fresh;
use crate::health::{self, FirstSeen, Host};
use crate::metrics::Snapshot;
use crate::net;

/// How long a look at the store's disk and at links may take.
const LOOK_LIMIT: Duration = Duration::from_secs(2);

/// How long a round of the loop may take before the loop counts as stuck. A round takes some milliseconds.
const ROUND: Duration = Duration::from_secs(5);

/// What was answered a moment ago.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) metrics: Fresh<Response<Full<Bytes>>>,
    pub(super) readiness: Fresh<Response<Full<Bytes>>>,
    /// The daemon's status, for callers that only read.
    pub(super) status: Fresh<Response<Full<Bytes>>>,
    /// Since when there is trouble.
    first_seen: Mutex<FirstSeen>,
    /// All bindings, for callers that only read.
    pub(super) bindings: Fresh<Response<Full<Bytes>>>,
}

/// Returns all numbers, and all that is wrong; `None` if the daemon stops.
pub(super) async fn snapshot(doors: &Doors) -> Option<Snapshot> {
    let (to, snapshot) = oneshot::channel();
    doors.reports.send(DoorReport::Measured(to)).ok()?;
    let mut snapshot = *snapshot.await.ok()?;
    let store = snapshot.store.clone();
    let links = snapshot.links.clone();
    let look = tokio::task::spawn_blocking(move || {
        let seen = links.into_iter().filter_map(|(ifname, leases)| {
            let state = net::link_state(&ifname)?;
            Some((ifname, (state, leases)))
        });
        (health::look_at_disk(&store), seen.collect())
    });
    // Of what cannot be seen in time, nothing is claimed.
    let seen = timeout(LOOK_LIMIT, look).await.ok().and_then(Result::ok);
    let (disk, links) = seen.unwrap_or_default();
    let now = SystemTime::now();
    let (old_plugin_calls, old_plugin) = doors.old_plugin.calls(now);
    snapshot.old_plugin_calls = old_plugin_calls;
    let host = Host {
        fault: snapshot.commits.fault.clone(),
        store: snapshot.store.clone(),
        disk,
        links,
        events_lost: snapshot.events_dropped,
        old_plugin,
    };
    let found = snapshot.troubles.into_iter().chain(health::judge(&host));
    let mut first_seen = doors.said.first_seen.lock().await;
    snapshot.troubles = first_seen.account(found.collect(), now);
    snapshot.disk = disk;
    Some(snapshot)
}

/// Returns whether the loop runs, and nothing else. A daemon that holds leases in memory because the disk is full must not be
/// restarted for that.
pub(super) async fn is_alive(reports: &mpsc::UnboundedSender<DoorReport>) -> bool {
    let (to, pinged) = oneshot::channel();
    reports.send(DoorReport::Pinged(to)).is_ok()
        && matches!(timeout(ROUND, pinged).await, Ok(Ok(())))
}
