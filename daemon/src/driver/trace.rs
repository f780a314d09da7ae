//! The log of the core's inputs and effects.

use leasehold_core::effect::{Answer, Effect, Input};
use tracing::{debug, trace};

/// Logs an input to the core.
pub(super) fn input(input: &Input<'_>) {
    match input {
        Input::Start { boot, records, .. } => debug!(%boot, records = records.len(), "start"),
        Input::Frame {
            exchange,
            bytes,
            meta,
        } => {
            trace!(
                exchange = exchange.0,
                length = bytes.len(),
                ?meta,
                "frame in"
            );
        }
        other => debug!(input = ?other, "in"),
    }
}

/// Logs an effect of the core.
pub(super) fn effect(effect: &Effect) {
    match effect {
        Effect::Persist { op, changes } => debug!(op = op.0, changes = changes.len(), "persist"),
        Effect::Send {
            op,
            exchange,
            frame,
            over,
        } => {
            trace!(
                ?op,
                exchange = exchange.0,
                length = frame.len(),
                ?over,
                "frame out"
            );
        }
        Effect::Reply {
            id,
            answer: Answer::Failed(failure),
        } => debug!(request = id.0, %failure, "failed"),
        Effect::Reply { id, .. } => debug!(request = id.0, "answered"),
        other => debug!(effect = ?other, "out"),
    }
}
