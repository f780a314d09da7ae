//! What an operator asks at the control socket; the modules `order`, `show` and `status` write the answers.

use std::time::SystemTime;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use leasehold_api::to_json;
use leasehold_core::effect::{Answer, Call, Order};

use super::caller::{Caller, ask, json, sentence, too_many_wait, unexpected, waits};
use super::{control, monitor, order, show, status};

pub(super) async fn bindings(query: &str, caller: &Caller) -> Response<Full<Bytes>> {
    let which = match order::which(query) {
        Ok(which) => which,
        Err(bad) => return sentence(StatusCode::BAD_REQUEST, &bad.to_string()),
    };
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
            json(
                StatusCode::OK,
                to_json(&control::bindings(
                    &rows,
                    &pools,
                    &not_adopted,
                    strangers,
                    refused,
                )),
            )
        }
        other => unexpected(other),
    }
}

pub(super) async fn show(query: &str, caller: &Caller) -> Response<Full<Bytes>> {
    let which = match order::which(query) {
        Ok(which) => which,
        Err(bad) => return sentence(StatusCode::BAD_REQUEST, &bad.to_string()),
    };
    let shown = match ask(Call::Show(Box::new(which)), caller).await {
        Some(Answer::Shown(shown)) => shown,
        other => return unexpected(other),
    };
    let events = match &shown[..] {
        [only] => show::events_of(&caller.doors().journal, &only.row.attachment).await,
        _ => Ok(Vec::new()),
    };
    match events {
        Ok(events) => json(
            StatusCode::OK,
            to_json(&show::story(&shown, events, SystemTime::now())),
        ),
        Err(error) => sentence(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    }
}

pub(super) async fn status(caller: &Caller) -> Response<Full<Bytes>> {
    let doors = caller.doors();
    // What it finds about the store is part of what is wrong.
    let _tried = ask(Call::Ready, caller).await;
    let Some(snapshot) = monitor::snapshot(doors).await else {
        return unexpected(None);
    };
    let rows = match ask(Call::List, caller).await {
        Some(Answer::Bindings { rows, .. }) => rows,
        other => return unexpected(other),
    };
    let warnings = doors.log.recent().said();
    let facts = status::Facts {
        snapshot,
        rows,
        warnings,
    };
    json(
        StatusCode::OK,
        to_json(&status::status(&facts, SystemTime::now())),
    )
}

pub(super) async fn obey(
    order: Result<Order, order::BadOrder>,
    caller: &Caller,
) -> Response<Full<Bytes>> {
    let order = match order {
        Ok(order) => order,
        Err(bad) => return sentence(StatusCode::BAD_REQUEST, &bad.to_string()),
    };
    let Ok(_waits) = waits(caller) else {
        return too_many_wait();
    };
    match ask(Call::Order(Box::new(order)), caller).await {
        Some(Answer::Obeyed(obeyed)) => json(StatusCode::OK, to_json(&order::obeyed(&obeyed))),
        other => unexpected(other),
    }
}

pub(super) async fn ranges(caller: &Caller) -> Response<Full<Bytes>> {
    match ask(Call::Ranges, caller).await {
        Some(Answer::Ranges(rows)) => json(StatusCode::OK, to_json(&control::ranges(&rows))),
        other => unexpected(other),
    }
}
