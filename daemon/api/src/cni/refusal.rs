//! Errors in a runtime's request, which name the place and the reason (CNI specification, "Error").

use super::{BadKey, Code, Error};

/// Returns the error for the environment (4); the specification wants the variable named.
pub fn bad_env(variable: &str, fault: impl std::fmt::Display) -> Error {
    Error::new(Code::InvalidEnvironment, format!("{variable}: {fault}"))
}

/// Returns the error for a key of the configuration (7).
pub fn bad_config(key: &str, fault: impl std::fmt::Display) -> Error {
    Error::new(Code::InvalidConfig, format!("{key}: {fault}"))
}

/// Returns the error for a key of the configuration that could not be read.
pub fn refused(bad: BadKey) -> Error {
    bad_config(&bad.key, bad.fault)
}

/// Returns the error for JSON that is not as expected.
pub fn undecodable(what: &str, error: &serde_json::Error) -> Error {
    Error::new(
        Code::Decode,
        format!("{what} cannot be read: {}", cut(&error.to_string())),
    )
}

/// Quotes what came from outside.
pub fn quoted(text: &str) -> String {
    format!("{:?}", cut(text))
}

/// Cuts a text that may hold a megabyte from outside.
pub fn cut(text: &str) -> &str {
    text.char_indices()
        .nth(160)
        .map_or(text, |(end, _)| &text[..end])
}
