//! Logging: fields on standard error, as text or JSON, through [`queue`], so that the daemon never waits for a reader.

mod queue;

use std::io;

use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::prelude::*;
use tracing_subscriber::{fmt, registry};

use crate::cli::LogFormat;

pub(crate) use queue::Flush;

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    /// The filter is invalid.
    #[error("log filter {filter:?}")]
    Filter {
        /// What was given.
        filter: String,
        /// What is wrong with it.
        source: ParseError,
    },
    /// The thread that writes it cannot start.
    #[error("cannot start a thread for the log")]
    Thread(#[source] io::Error),
}

/// Sends what `filter` lets through to standard error, panics included, until the returned value is dropped.
///
/// `filter` is a level, or comma-separated `target=level`s.
pub(crate) fn init(format: LogFormat, filter: &str) -> Result<Flush, LogError> {
    let targets = filter.parse::<Targets>();
    let filter = targets.map_err(|source| LogError::Filter { filter: filter.to_owned(), source })?;
    let (queue, flush) = queue::start(io::stderr()).map_err(LogError::Thread)?;
    let lines = fmt::layer().with_writer(queue);
    let layer = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).with_span_list(true).boxed(),
    };
    registry().with(layer.with_filter(filter)).init();
    std::panic::set_hook(Box::new(|panic| {
        let at = panic.location().map(ToString::to_string).unwrap_or_default();
        let said = panic.payload_as_str().unwrap_or("panic without a message");
        tracing::error!(at, thread = std::thread::current().name(), backtrace = %backtrace(), "panic: {said}");
    }));
    Ok(flush)
}

/// Returns an error with all its causes, outermost first.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Empty unless RUST_BACKTRACE asks for it.
fn backtrace() -> String {
    let backtrace = std::backtrace::Backtrace::capture();
    match backtrace.status() {
        std::backtrace::BacktraceStatus::Captured => backtrace.to_string(),
        _ => String::new(),
    }
}
