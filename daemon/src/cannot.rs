//! A step of the start, or of the store's repair, that failed.

use std::error::Error;
use std::path::{Path, PathBuf};

/// What was tried, with which file or directory if it is one, and why it failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing}{}", .path.as_ref().map(|path| format!(" {}", path.display())).unwrap_or_default())]
pub(crate) struct Cannot {
    doing: &'static str,
    path: Option<PathBuf>,
    source: Box<dyn Error + Send + Sync>,
}

impl Cannot {
    pub(crate) fn of<E: Into<Box<dyn Error + Send + Sync>>>(
        doing: &'static str,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self {
            doing,
            path: None,
            source: source.into(),
        }
    }

    /// The same with a file or directory.
    pub(crate) fn with<E: Into<Box<dyn Error + Send + Sync>>>(
        doing: &'static str,
        path: &Path,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self {
            path: Some(path.to_owned()),
            ..Self::of(doing)(source)
        }
    }
}
