//! One caller: its connection, how its call reaches the driver, and its answer.

use std::path::Path;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use leasehold_api::to_json;
use leasehold_core::effect::{Answer, Call, RequestId};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, SemaphorePermit, mpsc, oneshot};

use super::question::Refusal;
use super::refusal::{OTHER_ANSWER, STOPPING};
use super::{DoorReport, Doors, Reply};
use crate::listen::Protocol;

/// What is known about a listener.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) doors: Doors,
    pub(super) protocol: Protocol,
    pub(super) socket: Arc<Path>,
}

/// What is known about a connection before it speaks.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) door: Door,
    pub(super) place: Arc<OwnedSemaphorePermit>,
}

impl Caller {
    pub(super) fn doors(&self) -> &Doors {
        &self.door.doors
    }
}

/// Takes one of the places for callers that wait. These places are few, so that callers that wait leave room for ADDs.
pub(super) fn waits(caller: &Caller) -> Result<SemaphorePermit<'_>, Refusal> {
    let share = caller.doors().share(caller.door.protocol);
    let too_many = "too many callers wait at this socket: try again later";
    share
        .waiting
        .try_acquire()
        .map_err(|_| Refusal::later(too_many))
}

/// Asks the driver; `None` if it stops instead of answering. Tells the driver if this is dropped before the answer.
pub(super) async fn ask(call: Call, caller: &Caller) -> Option<Answer> {
    let id = caller.doors().mint();
    let (answer, waiting) = oneshot::channel();
    let reply = Reply {
        answer,
        protocol: caller.door.protocol,
        _place: caller.place.clone(),
    };
    caller
        .doors()
        .reports
        .send(DoorReport::Asked { id, call, reply })
        .ok()?;
    let mut hang_up = HangUp {
        id,
        reports: Some(&caller.doors().reports),
    };
    let answer = waiting.await;
    hang_up.reports = None;
    answer.ok()
}

/// Reports on drop that the caller hung up, unless disarmed.
struct HangUp<'a> {
    id: RequestId,
    reports: Option<&'a mpsc::UnboundedSender<DoorReport>>,
}

impl Drop for HangUp<'_> {
    fn drop(&mut self) {
        if let Some(reports) = self.reports {
            // Without a driver nobody needs to know.
            let _ = reports.send(DoorReport::HungUp(self.id));
        }
    }
}

/// Returns what a caller is told whose question the driver did not answer.
pub(super) fn unexpected(answer: Option<Answer>) -> Refusal {
    match answer {
        Some(Answer::Failed(failure)) => Refusal::later(failure),
        Some(_) => Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, OTHER_ANSWER),
        None => Refusal::later(STOPPING),
    }
}

/// Answers an operator or a monitor with what `result` has as JSON.
pub(super) fn answered(result: Result<impl Serialize, Refusal>) -> Response<Full<Bytes>> {
    match result {
        Ok(answer) => json(StatusCode::OK, to_json(&answer)),
        Err(refusal) => sentence(refusal.status, &refusal.to_string()),
    }
}

pub(super) fn sentence(status: StatusCode, error: &str) -> Response<Full<Bytes>> {
    json(status, serde_json::json!({ "error": error }).to_string())
}

pub(super) fn json(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
