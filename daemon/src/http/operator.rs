//! What an operator asks at the control socket; the modules `order`, `show` and `status` write the answers.

use std::time::SystemTime;

use leasehold_api::control::{Bindings, Obeyed, Ranges, Status, Story};
use leasehold_core::effect::{Answer, Call, Order};
use serde_json::{Map, Value};

use super::caller::{Caller, ask, unexpected, waits};
use super::question::Refusal;
use super::{control, monitor, order, show, status};

pub(super) async fn bindings(query: &str, caller: &Caller) -> Result<Bindings, Refusal> {
    let which = order::which(query)?;
    match ask(Call::List, caller).await {
        Some(Answer::Bindings {
            rows,
            pools,
            not_adopted,
            strangers,
            refused,
        }) => {
            let rows: Vec<_> = which
                .of(rows.into_iter().map(|row| ((), row)))
                .into_iter()
                .map(|(_, row)| row)
                .collect();
            Ok(control::bindings(
                &rows,
                &pools,
                &not_adopted,
                strangers,
                refused,
            ))
        }
        other => Err(unexpected(other)),
    }
}

pub(super) async fn show(query: &str, caller: &Caller) -> Result<Story, Refusal> {
    let which = order::which(query)?;
    let shown = match ask(Call::Show(Box::new(which)), caller).await {
        Some(Answer::Shown(shown)) => shown,
        other => return Err(unexpected(other)),
    };
    let events = match &shown[..] {
        [only] => show::events_of(&caller.doors().journal, &only.row.attachment).await,
        _ => Ok(Vec::new()),
    };
    let events = events.map_err(Refusal::later)?;
    Ok(show::story(&shown, events, SystemTime::now()))
}

pub(super) async fn status(caller: &Caller) -> Result<Status, Refusal> {
    let doors = caller.doors();
    // What it finds about the store is part of what is wrong.
    let _tried = ask(Call::Ready, caller).await;
    let snapshot = monitor::snapshot(doors).await;
    let snapshot = snapshot.ok_or_else(|| unexpected(None))?;
    let rows = match ask(Call::List, caller).await {
        Some(Answer::Bindings { rows, .. }) => rows,
        other => return Err(unexpected(other)),
    };
    let warnings = doors.log.recent().said();
    let now = SystemTime::now();
    Ok(status::status(&snapshot, &rows, &warnings, now))
}

pub(super) async fn obey(
    order: Result<Order, Refusal>,
    caller: &Caller,
) -> Result<Obeyed, Refusal> {
    let order = order?;
    let _waits = waits(caller)?;
    match ask(Call::Order(Box::new(order)), caller).await {
        Some(Answer::Obeyed(obeyed)) => Ok(order::obeyed(&obeyed)),
        other => Err(unexpected(other)),
    }
}

pub(super) async fn ranges(caller: &Caller) -> Result<Ranges, Refusal> {
    match ask(Call::Ranges, caller).await {
        Some(Answer::Ranges(rows)) => Ok(control::ranges(&rows)),
        other => Err(unexpected(other)),
    }
}

/// Answers whether an ADD could be recorded now: the core's answer shows that, because it writes to the store first.
///
/// Whatever the reason, a daemon that is not ready answers 503, so that a probe need not tell reasons apart.
pub(super) async fn is_ready(caller: &Caller) -> Result<Map<String, Value>, Refusal> {
    match ask(Call::Ready, caller).await {
        Some(Answer::Ready) => Ok(Map::new()),
        other => Err(Refusal::later(unexpected(other))),
    }
}
