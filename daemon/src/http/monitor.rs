//! What a monitor asks for: `/metrics`, `/healthz`, `/readyz`. However many monitors there are, each costly answer is computed at
//! most once a second.

use std::time::Duration;

use http_body_util::Full;
use hyper::Response;
use hyper::body::Bytes;
use leasehold_core::effect::Answer;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::DoorReport;
use super::refusal::{OTHER_ANSWER, STOPPING};
use crate::fresh::Fresh;
use crate::metrics::{self, Snapshot};

/// How long a round of the loop may take before the loop counts as stuck. A round takes some milliseconds.
const ROUND: Duration = Duration::from_secs(5);

/// What was answered a moment ago.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) metrics: Fresh<Response<Full<Bytes>>>,
    pub(super) readiness: Fresh<Response<Full<Bytes>>>,
    /// All bindings, for callers that only read.
    pub(super) bindings: Fresh<Response<Full<Bytes>>>,
    /// All local ranges, for callers that only read.
    pub(super) ranges: Fresh<Response<Full<Bytes>>>,
}

/// Returns all metrics as text; `None` if the daemon stops.
pub(super) async fn metrics(reports: &mpsc::UnboundedSender<DoorReport>) -> Option<String> {
    snapshot(reports).await.map(metrics::write)
}

/// Returns all numbers; `None` if the daemon stops.
pub(super) async fn snapshot(reports: &mpsc::UnboundedSender<DoorReport>) -> Option<Snapshot> {
    let (to, snapshot) = oneshot::channel();
    reports.send(DoorReport::Measured(to)).ok()?;
    Some(*snapshot.await.ok()?)
}

/// Returns whether the loop runs, and nothing else. A daemon that holds leases in memory because the disk is full must not be
/// restarted for that.
pub(super) async fn is_alive(reports: &mpsc::UnboundedSender<DoorReport>) -> bool {
    let (to, pinged) = oneshot::channel();
    reports.send(DoorReport::Pinged(to)).is_ok()
        && matches!(timeout(ROUND, pinged).await, Ok(Ok(())))
}

/// Returns whether an ADD could be recorded now. The answer to a STATUS shows that, because a STATUS writes to the store.
pub(super) fn is_ready(answer: Option<Answer>) -> Result<(), String> {
    match answer {
        Some(Answer::Ready) => Ok(()),
        Some(Answer::Failed(failure)) => Err(failure.to_string()),
        Some(_) => Err(OTHER_ANSWER.to_owned()),
        None => Err(STOPPING.to_owned()),
    }
}
