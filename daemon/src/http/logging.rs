//! `/v1/log`: what is logged, and for how long.

use std::time::Duration;

use leasehold_api::control::{Log, LogChange, MAX_LOG_CHANGE};

use crate::log::{Filter, LogError};

/// Why the log stays as it is.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadChange {
    /// The change cannot be read.
    #[error("the change of the log cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// It would last for no time, or for too long.
    #[error("seconds={0}: expected a number from 1 to {MAX_LOG_CHANGE}")]
    Seconds(u64),
    /// The filter is invalid.
    #[error(transparent)]
    Filter(#[from] LogError),
}

/// Changes what is logged, as the body of a request says.
pub(super) fn change(log: &Filter, body: &[u8]) -> Result<(), BadChange> {
    let LogChange { filter, seconds } = serde_json::from_slice(body)?;
    if !(1..=MAX_LOG_CHANGE).contains(&seconds) {
        return Err(BadChange::Seconds(seconds));
    }
    Ok(log.set(&filter, Duration::from_secs(seconds))?)
}

/// Returns what is logged.
pub(super) fn said(log: &Filter) -> Log {
    let (filter, left) = log.now();
    Log {
        filter,
        seconds_left: left.map(|left| left.as_secs()),
    }
}
