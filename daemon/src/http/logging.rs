//! `/v1/log`: what is logged, and for how long.

use std::time::Duration;

use leasehold_api::control::{Log, LogChange, MAX_LOG_CHANGE};

use super::question::Refusal;
use crate::log::Filter;

/// Changes what is logged, as the body of a request says.
pub(super) fn change(log: &Filter, body: &[u8]) -> Result<(), Refusal> {
    let LogChange { filter, seconds } = serde_json::from_slice(body).map_err(|error| {
        Refusal::bad(format_args!(
            "the change of the log cannot be read: {error}"
        ))
    })?;
    if !(1..=MAX_LOG_CHANGE).contains(&seconds) {
        return Err(Refusal::bad(format_args!(
            "seconds={seconds}: expected a number from 1 to {MAX_LOG_CHANGE}"
        )));
    }
    log.set(&filter, Duration::from_secs(seconds))
        .map_err(Refusal::bad)
}

/// Returns what is logged.
pub(super) fn said(log: &Filter) -> Log {
    let (filter, left) = log.now();
    Log {
        filter,
        seconds_left: left.map(|left| left.as_secs()),
    }
}
