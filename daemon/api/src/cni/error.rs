//! CNI's errors.

use serde::Serialize;

use super::Version;

/// The code of an error (CNI specification 1.1.0, "Error").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "u32")]
#[repr(u32)]
pub enum Code {
    /// The configuration's `cniVersion` is not supported, or does not have the verb.
    IncompatibleVersion = 1,
    /// A field of the configuration is known but its value is not supported.
    UnsupportedField = 2,
    /// The container is unknown or does not exist.
    UnknownContainer = 3,
    /// An environment variable is missing or invalid; the message names it.
    InvalidEnvironment = 4,
    /// Input or output failed.
    Io = 5,
    /// Something could not be decoded.
    Decode = 6,
    /// The network configuration is invalid.
    InvalidConfig = 7,
    /// A passing condition: try again later.
    TryAgainLater = 11,
    /// STATUS: an ADD cannot be served.
    NotAvailable = 50,
    /// STATUS: not available, and containers of the network may have limited connectivity.
    Limited = 51,
    /// CHECK: the container is not as its result says. Codes from 100 on are a plugin's own.
    CheckFailed = 100,
}

impl From<Code> for u32 {
    fn from(code: Code) -> Self {
        code as u32
    }
}

/// An error as a plugin prints it on standard output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Error {
    /// The configuration's version, or the newest if that is not supported.
    pub cni_version: Version,
    /// What kind of error.
    pub code: Code,
    /// What happened and what to do, in one sentence.
    pub msg: String,
    /// Whom it concerns: the attachment.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub details: String,
}

impl Error {
    /// Returns the error in the newest version, without details.
    pub fn new(code: Code, msg: impl Into<String>) -> Self {
        Self {
            cni_version: Version::NEWEST,
            code,
            msg: msg.into(),
            details: String::new(),
        }
    }

    /// Returns the error in `version`.
    pub fn in_version(self, cni_version: Version) -> Self {
        Self {
            cni_version,
            ..self
        }
    }

    /// Returns the error with `details`.
    pub fn with_details(self, details: impl Into<String>) -> Self {
        Self {
            details: details.into(),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_written_as_the_specification_wants() {
        let error = Error::new(Code::TryAgainLater, "no offer").in_version(Version::V0_4_0);
        assert_eq!(
            serde_json::to_string(&error).unwrap(),
            r#"{"cniVersion":"0.4.0","code":11,"msg":"no offer"}"#
        );
        assert_eq!(
            serde_json::to_string(&error.clone().with_details("ADD of n/c/eth0")).unwrap(),
            r#"{"cniVersion":"0.4.0","code":11,"msg":"no offer","details":"ADD of n/c/eth0"}"#
        );
    }
}
