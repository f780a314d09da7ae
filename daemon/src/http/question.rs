//! What all requests of operators and monitors have: the parameters of a query, and the reason why one is refused.

use std::fmt::Display;

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

/// Returns the parameters of a query.
pub(super) fn parameters(query: &str) -> impl Iterator<Item = &str> {
    query.split('&').filter(|parameter| !parameter.is_empty())
}
