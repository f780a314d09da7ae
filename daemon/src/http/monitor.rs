//! What a monitor asks: `/metrics`, `/healthz`, `/readyz`.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::effect::{Answer, Call};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::Event;
use super::refusal::{OTHER_ANSWER, STOPPING};
use crate::metrics;

/// How long the loop may take for a turn before it counts as stuck. One takes some milliseconds.
const TURN: Duration = Duration::from_secs(5);

/// For how long an answer to `/readyz` is given again: each look writes to the store.
const FRESH: Duration = Duration::from_secs(1);

/// The last look whether an ADD could be recorded, and when it was. Whoever asks meanwhile waits for it.
pub(super) type Readiness = Arc<Mutex<Option<(Instant, Result<(), String>)>>>;

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

/// Returns whether an ADD could be recorded now: the store is written to.
pub(super) async fn is_ready<F: Future<Output = Option<Answer>>>(
    last: &Readiness,
    ask: impl FnOnce(Call) -> F,
) -> Result<(), String> {
    let mut last = last.lock().await;
    if let Some((at, result)) = &*last
        && at.elapsed() < FRESH
    {
        return result.clone();
    }
    let result = match ask(Call::Status { parent: None }).await {
        Some(Answer::Ready) => Ok(()),
        Some(Answer::Failed(failure)) => Err(failure.to_string()),
        Some(_) => Err(OTHER_ANSWER.to_owned()),
        None => Err(STOPPING.to_owned()),
    };
    *last = Some((Instant::now(), result.clone()));
    result
}
