//! The log of the core's inputs and effects.

use leasehold_core::effect::{Answer, Effect, Input};
use tracing::{debug, trace};

/// Logs an input to the core.
pub(super) fn input(input: &Input<'_>) {
    match input {
        Input::Start {
            boot,
            records,
            doors,
            spooled,
            adoptees,
        } => {
            let records = records.len();
            let doors = doors.len();
            let spooled = spooled.len();
            let adoptees = adoptees.len();
            debug!(%boot, records, doors, spooled, adoptees, "start");
        }
        Input::Request { id, call } => debug!(request = id.0, ?call, "asked"),
        Input::HungUp(id) => debug!(request = id.0, "hung up"),
        Input::Done { op, outcome } => debug!(op = op.0, ?outcome, "done"),
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
        Input::Broken { exchange, cause } => debug!(exchange = exchange.0, %cause, "broken"),
        Input::Unsent { exchange, cause } => debug!(exchange = exchange.0, %cause, "unsent"),
        Input::Kernel(event) => debug!(?event, "kernel"),
    }
}

/// Logs an effect of the core.
pub(super) fn effect(effect: &Effect) {
    match effect {
        Effect::Persist { op, changes } => debug!(op = op.0, changes = changes.len(), "persist"),
        Effect::Open {
            op,
            exchange,
            link,
            want,
        } => {
            debug!(op = op.0, exchange = exchange.0, ?link, ?want, "open");
        }
        Effect::Inspect { op, target, routes } => debug!(op = op.0, %target, routes, "inspect"),
        Effect::Apply { op, target, steps } => debug!(op = op.0, %target, ?steps, "apply"),
        Effect::Prepare {
            op,
            place,
            exchange,
            ..
        } => {
            debug!(op = op.0, exchange = exchange.0, target = %place.target(), "prepare");
        }
        Effect::Survey {
            op,
            link,
            lan_parent,
            counts,
        } => debug!(op = op.0, ?link, ?lan_parent, counts, "survey"),
        Effect::ListInside { op, link } => debug!(op = op.0, ?link, "list links inside"),
        Effect::Seek { op, sought, number } => debug!(op = op.0, ?sought, ?number, "seek"),
        Effect::Make { op, link } => debug!(op = op.0, ?link, "make"),
        Effect::Unmake { op, owner } => debug!(op = op.0, %owner, "unmake"),
        Effect::ListOwn { op } => debug!(op = op.0, "list own links"),
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
        Effect::Hear { exchange, arp } => debug!(exchange = exchange.0, ?arp, "hear"),
        Effect::Close { op, exchange } => debug!(?op, exchange = exchange.0, "close"),
        Effect::Reply {
            id,
            answer: Answer::Failed(failure),
        } => debug!(request = id.0, %failure, "failed"),
        Effect::Reply { id, .. } => debug!(request = id.0, "answered"),
        Effect::Publish { attachment, dns } => debug!(%attachment, ?dns, "publish"),
    }
}
