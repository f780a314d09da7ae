//! Logging: fields on standard error, as text or JSON, or as fields of systemd's [`journal`] if standard error leads there.
//! Everything goes through [`queue`], so that the daemon never waits for a reader. The [`filter`] can be changed while it runs;
//! [`recent`] keeps the last warnings.

mod filter;
mod journal;
mod queue;
mod recent;

use std::io;

use clap::ValueEnum;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;
use tracing_subscriber::{fmt, registry, reload};

pub(crate) use filter::Filter;
pub(crate) use queue::Flush;
pub(crate) use recent::{Recent, Said};

/// What is logged if nobody says otherwise.
pub(crate) const DEFAULT: &str = "info";

/// The format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people; the journal's own fields if standard error is the journal.
    Text,
    /// One object per line.
    Json,
}

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    /// The filter is invalid.
    #[error(
        "log filter {filter:?}: {level:?} is no level; a level is error, warn, info, debug or trace"
    )]
    Filter {
        /// What was given.
        filter: String,
        /// What should be a level in it.
        level: String,
    },
    /// The thread that writes it cannot start.
    #[error("cannot start a thread for the log")]
    Thread(#[source] io::Error),
}

/// Sends what `filter` lets through to standard error, including panics, until the returned value is dropped. The returned
/// filter can be changed.
///
/// `filter` is a level, or comma-separated `target=level`s. One that is neither is named in the log, which then has what is
/// logged by default: a daemon that does not start renews no lease.
pub(crate) fn init(format: LogFormat, filter: &str) -> Result<(Flush, Filter), LogError> {
    let (filter, targets, refused) = match parse(filter) {
        Ok(targets) => (filter, targets, None),
        Err(error) => (DEFAULT, parse(DEFAULT)?, Some(error)),
    };
    let (targets, handle) = reload::Layer::new(targets);
    let recent = Recent::default();
    let filter = Filter::new(filter, handle, recent.clone());
    let journal = (format == LogFormat::Text)
        .then(journal::of_stderr)
        .flatten();
    let layer_and_flush = match journal {
        Some(journal) => {
            queue::start(journal).map(|(queue, flush)| (journal::Fields(queue).boxed(), flush))
        }
        None => queue::start(io::stderr()).map(|(queue, flush)| {
            let lines = fmt::layer().with_writer(queue);
            let layer = match format {
                LogFormat::Text => lines.boxed(),
                LogFormat::Json => lines
                    .json()
                    .flatten_event(true)
                    .with_current_span(false)
                    .with_span_list(true)
                    .boxed(),
            };
            (layer, flush)
        }),
    };
    let (layer, flush) = layer_and_flush.map_err(LogError::Thread)?;
    registry()
        .with(layer.with_filter(targets))
        .with(recent.layer())
        .init();
    std::panic::set_hook(Box::new(|panic| {
        let at = panic
            .location()
            .map(ToString::to_string)
            .unwrap_or_default();
        let said = panic.payload_as_str().unwrap_or("panic without a message");
        tracing::error!(at, thread = std::thread::current().name(), "panic: {said}");
    }));
    if let Some(error) = refused {
        tracing::warn!("{error}: {DEFAULT} is used");
    }
    Ok((flush, filter))
}

/// Reads a filter. A word alone is a level, and never a target: a misspelt level would silence the log.
fn parse(filter: &str) -> Result<Targets, LogError> {
    let parts = filter.split(',').map(str::trim);
    parts
        .filter(|part| !part.is_empty())
        .try_fold(Targets::new(), |targets, part| {
            let (target, level) = part
                .split_once('=')
                .map_or((None, part), |(target, level)| (Some(target), level));
            let known = match level.to_lowercase().as_str() {
                "warning" => Some(LevelFilter::WARN),
                name => name.parse().ok(),
            };
            let known = known.ok_or_else(|| LogError::Filter {
                filter: filter.to_owned(),
                level: level.to_owned(),
            })?;
            Ok(match target {
                Some(target) => targets.with_target(target, known),
                None => targets.with_default(known),
            })
        })
}

/// Returns an error with all its causes, outermost first.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_refused_and_named() {
        let lets_through =
            |filter: &str, target, level| parse(filter).unwrap().would_enable(target, &level);
        for filter in [
            "warning",
            "WARN",
            " warn , other=debug",
            "other=trace,Warning",
        ] {
            assert!(lets_through(filter, "leasehold", Level::WARN), "{filter}");
            assert!(!lets_through(filter, "leasehold", Level::INFO), "{filter}");
        }
        assert!(lets_through("info,other=warning", "other", Level::WARN));
        assert!(!lets_through("info,other=warning", "other", Level::INFO));
        for (filter, level) in [
            ("verbose", "verbose"),
            ("info,leasehold", "leasehold"),
            ("leasehold=loud", "loud"),
        ] {
            let said = parse(filter).unwrap_err().to_string();
            assert!(said.contains(&format!("{level:?} is no level")), "{said}");
        }
    }
}
