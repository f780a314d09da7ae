//! Versions of the CNI specification.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// A supported version of the CNI specification, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "&'static str")]
pub enum Version {
    /// 0.1.0: one address of each family. Also the version of a configuration without `cniVersion`.
    V0_1_0,
    /// 0.2.0: the same, with VERSION.
    V0_2_0,
    /// 0.3.0: lists of addresses, chains of plugins.
    V0_3_0,
    /// 0.3.1: the same.
    V0_3_1,
    /// 0.4.0: the first with CHECK.
    V0_4_0,
    /// 1.0.0: addresses without a version.
    V1_0_0,
    /// 1.1.0: GC and STATUS.
    V1_1_0,
}

/// An unsupported version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cniVersion {0:?} is not supported")]
pub struct UnknownVersion(pub String);

impl Version {
    /// All supported versions, the oldest first.
    pub const ALL: [Self; 7] = [
        Self::V0_1_0,
        Self::V0_2_0,
        Self::V0_3_0,
        Self::V0_3_1,
        Self::V0_4_0,
        Self::V1_0_0,
        Self::V1_1_0,
    ];

    /// The newest supported version.
    pub const NEWEST: Self = Self::V1_1_0;

    /// The version of a configuration without `cniVersion`, by the specification.
    pub const UNSAID: Self = Self::V0_1_0;

    /// Returns the version as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Version {
    type Err = UnknownVersion;

    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        let known = Self::ALL.into_iter().find(|v| v.as_str() == text);
        known.ok_or_else(|| UnknownVersion(text.chars().take(32).collect()))
    }
}

impl From<Version> for &'static str {
    fn from(version: Version) -> Self {
        version.as_str()
    }
}

/// The answer to VERSION.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionInfo {
    /// The version asked for, or the newest.
    pub cni_version: String,
    /// All supported versions.
    pub supported_versions: Vec<Version>,
}

impl VersionInfo {
    /// Returns the answer to a VERSION whose configuration says `asked`.
    pub fn answering(asked: Option<&str>) -> Self {
        Self {
            cni_version: asked.unwrap_or(Version::NEWEST.as_str()).to_owned(),
            supported_versions: Version::ALL.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_reads_back_as_it_is_written() {
        for version in Version::ALL {
            assert_eq!(version.to_string().parse(), Ok(version));
        }
        assert!(Version::ALL.is_sorted());
        assert_eq!(Version::ALL.last(), Some(&Version::NEWEST));
    }

    #[test]
    fn a_version_that_is_not_spoken_is_named_and_cut() {
        assert_eq!(
            "0.5.0".parse::<Version>().unwrap_err().to_string(),
            "cniVersion \"0.5.0\" is not supported"
        );
        let UnknownVersion(text) = "9".repeat(1000).parse::<Version>().unwrap_err();
        assert_eq!(text.len(), 32);
    }
}
