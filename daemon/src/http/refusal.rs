//! Errors in a runtime's request, which name the place and the reason (CNI specification, "Error"), and what callers get if the
//! daemon has no answer.

use leasehold_api::cni::{BadKey, Code, Error};

/// What a caller gets if there will be no answer.
pub(super) const STOPPING: &str = "the leasehold daemon is stopping";

/// What a caller gets if the answer belongs to another question.
pub(super) const OTHER_ANSWER: &str = "the daemon answered another question: this is a bug";

/// Returns the error for the environment (4); the specification wants the variable named.
pub(super) fn bad_env(variable: &str, fault: impl std::fmt::Display) -> Error {
    Error::new(Code::InvalidEnvironment, format!("{variable}: {fault}"))
}

/// Returns the error for a key of the configuration (7).
pub(super) fn bad_config(key: &str, fault: impl std::fmt::Display) -> Error {
    Error::new(Code::InvalidConfig, format!("{key}: {fault}"))
}

/// Returns the error for a key of the configuration that could not be read.
pub(crate) fn refused(bad: BadKey) -> Error {
    bad_config(&bad.key, bad.fault)
}

/// Returns the error for JSON that is not as expected.
pub(crate) fn undecodable(what: &str, error: &serde_json::Error) -> Error {
    Error::new(
        Code::Decode,
        format!("{what} cannot be read: {}", cut(&error.to_string())),
    )
}

/// Quotes what came from outside.
pub(super) fn quoted(text: &str) -> String {
    format!("{:?}", cut(text))
}

/// Cuts a text that may hold a megabyte from outside.
pub(super) fn cut(text: &str) -> &str {
    text.char_indices()
        .nth(160)
        .map_or(text, |(end, _)| &text[..end])
}
