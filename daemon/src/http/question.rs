//! What all requests of operators and monitors have: the parameters of a query, and the reason why one is refused.

use std::fmt::Display;
use std::ops::RangeInclusive;

use hyper::StatusCode;

/// Why a request is refused: a sentence for people, and a status for programs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{said}")]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    said: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, said: impl Display) -> Self {
        let said = said.to_string();
        Self { status, said }
    }

    /// The request is wrong.
    pub(super) fn bad(said: impl Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, said)
    }

    /// The same request may succeed later.
    pub(super) fn later(said: impl Display) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, said)
    }
}

/// Gives each parameter of a query and its value to `take`, which takes it in unless there is no such parameter or value.
///
/// # Errors
/// The first parameter that is not taken in. `known` are those that there are.
pub(super) fn each(
    query: &str,
    known: impl Display,
    mut take: impl FnMut(&str, &str) -> Option<()>,
) -> Result<(), Refusal> {
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        take(name, value).ok_or_else(|| {
            let said = parameter.escape_debug().to_string();
            Refusal::bad(format_args!(
                "{said:.64}: unknown, or not one of its values: use {known}"
            ))
        })?;
    }
    Ok(())
}

/// Reads a number in a range.
pub(super) fn number(value: &str, range: RangeInclusive<u64>) -> Option<u64> {
    value.parse().ok().filter(|number| range.contains(number))
}
