//! What the questions of operators and monitors share: their parameters, and why one is not answered.

use std::fmt::Display;

use hyper::StatusCode;

/// Why a question is not answered: a sentence, and the status for whoever reads no sentences.
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

    /// The question is wrong.
    pub(super) fn bad(said: impl Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, said)
    }

    /// It may be answered later.
    pub(super) fn later(said: impl Display) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, said)
    }
}

/// Returns the parameters of a query.
pub(super) fn parameters(query: &str) -> impl Iterator<Item = &str> {
    query.split('&').filter(|parameter| !parameter.is_empty())
}
