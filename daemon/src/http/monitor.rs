//! What a monitor asks: `/metrics`, `/healthz`, `/readyz`. However many monitors there are, each second has one answer of each kind
//! that costs something.

use std::time::Duration;

use http_body_util::Full;
use hyper::Response;
use hyper::body::Bytes;
use leasehold_core::effect::Answer;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::Event;
use super::refusal::{OTHER_ANSWER, STOPPING};
use crate::metrics;

/// How long the loop may take for a turn before it counts as stuck. One takes some milliseconds.
const TURN: Duration = Duration::from_secs(5);

/// For how long an answer is given again.
const FRESH: Duration = Duration::from_secs(1);

/// What was said a moment ago.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) metrics: Fresh,
    pub(super) readiness: Fresh,
    /// To those who only read.
    pub(super) bindings: Fresh,
    /// To those who only read.
    pub(super) ranges: Fresh,
}

/// The last answer to a question, and when it was given. Whoever asks while the next one is made waits for that.
#[derive(Debug, Default)]
pub(super) struct Fresh(Mutex<Option<(Instant, Response<Full<Bytes>>)>>);

impl Fresh {
    /// Returns the last answer if it is fresh, else makes another.
    pub(super) async fn or(&self, make: impl Future<Output = Response<Full<Bytes>>>) -> Response<Full<Bytes>> {
        let mut last = self.0.lock().await;
        if let Some((at, answer)) = &*last
            && at.elapsed() < FRESH
        {
            return answer.clone();
        }
        let answer = make.await;
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}

/// Returns all metrics as text; `None` if the daemon stops.
pub(super) async fn metrics(events: &mpsc::UnboundedSender<Event>) -> Option<String> {
    let (to, snapshot) = oneshot::channel();
    events.send(Event::Measured(to)).ok()?;
    Some(metrics::write(*snapshot.await.ok()?))
}

/// Returns whether the loop turns, and nothing else. A daemon that holds leases in memory because the disk is full must not be
/// restarted for that.
pub(super) async fn is_alive(events: &mpsc::UnboundedSender<Event>) -> bool {
    let (to, turned) = oneshot::channel();
    events.send(Event::Turned(to)).is_ok() && matches!(timeout(TURN, turned).await, Ok(Ok(())))
}

/// Returns whether an ADD could be recorded now, by the answer to a STATUS: the store was written to.
pub(super) fn is_ready(answer: Option<Answer>) -> Result<(), String> {
    match answer {
        Some(Answer::Ready) => Ok(()),
        Some(Answer::Failed(failure)) => Err(failure.to_string()),
        Some(_) => Err(OTHER_ANSWER.to_owned()),
        None => Err(STOPPING.to_owned()),
    }
}
