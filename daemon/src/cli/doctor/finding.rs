//! What a check finds.

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// As it should be.
    Ok,
    /// It cannot be looked at from here.
    Unseen,
    /// It works, or will, but somebody should look.
    Warning,
    /// Containers get no addresses, or lose them.
    Failure,
}

/// What a check found.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// What was checked, in a word or two.
    pub(super) check: &'static str,
    pub(super) level: Level,
    /// What was found, in one sentence.
    pub(super) found: String,
    /// What to do about it; absent if nothing needs to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) way_out: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            check,
            level: Level::Ok,
            found: found.into(),
            way_out: None,
        }
    }

    pub(super) fn warning(
        check: &'static str,
        found: impl Into<String>,
        way_out: impl Into<String>,
    ) -> Self {
        Self::of(Level::Warning, check, found, way_out)
    }

    pub(super) fn failure(
        check: &'static str,
        found: impl Into<String>,
        way_out: impl Into<String>,
    ) -> Self {
        Self::of(Level::Failure, check, found, way_out)
    }

    pub(super) fn of(
        level: Level,
        check: &'static str,
        found: impl Into<String>,
        way_out: impl Into<String>,
    ) -> Self {
        Self {
            check,
            level,
            found: found.into(),
            way_out: Some(way_out.into()),
        }
    }
}
