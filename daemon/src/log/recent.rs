//! The last warnings and errors, for `status`.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, fmt};

/// How many are kept, and how many bytes of each.
const KEPT: usize = 20;
const LONGEST: usize = 512;

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    /// When.
    pub(crate) at: SystemTime,
    /// What, from its level on.
    pub(crate) line: String,
}

/// The last warnings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent(Arc<Mutex<VecDeque<Said>>>);

impl Recent {
    /// Returns them, the latest last.
    pub(crate) fn said(&self) -> Vec<Said> {
        self.lines().iter().cloned().collect()
    }

    /// Returns the layer that keeps them, whatever the log's own filter lets through.
    pub(super) fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> {
        let lines = fmt::layer()
            .without_time()
            .with_ansi(false)
            .with_target(false)
            .with_writer(self.clone());
        lines.with_filter(LevelFilter::WARN)
    }

    fn lines(&self) -> MutexGuard<'_, VecDeque<Said>> {
        self.0
            .lock()
            .expect("nothing panics while it holds the lines")
    }
}

impl<'a> MakeWriter<'a> for Recent {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Each write is one line.
impl Write for Recent {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(&line[..line.len().min(LONGEST)])
            .trim()
            .to_owned();
        let mut lines = self.lines();
        if lines.len() == KEPT {
            lines.pop_front();
        }
        lines.push_back(Said {
            at: SystemTime::now(),
            line: text,
        });
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tracing::{error, info, warn};
    use tracing_subscriber::prelude::*;
    use tracing_subscriber::registry;

    use super::*;

    #[test]
    fn the_last_warnings_are_kept_whole_lines_each() {
        let recent = Recent::default();
        let _log = registry().with(recent.layer()).set_default();
        warn!(attachment = "lan/c1/eth0", "lease lost");
        info!("not a warning");
        error!("{}", "x".repeat(2 * LONGEST));
        let said = recent.said();
        assert_eq!(said[0].line, "WARN lease lost attachment=\"lan/c1/eth0\"");
        assert!(
            said.len() == 2
                && said[1].line.starts_with("ERROR xxx")
                && said[1].line.len() <= LONGEST
        );
        (0..KEPT).for_each(|n| warn!(n, "again"));
        let said = recent.said();
        assert!(
            said.len() == KEPT && said[0].line == "WARN again n=0",
            "{said:?}"
        );
    }
}
