//! The last warnings and errors, for `status`: of each kind the last one, and how many there were. A kind is a place in the code.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use tracing::callsite::Identifier;
use tracing::level_filters::LevelFilter;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, fmt};

/// How many kinds are kept, and how many bytes of each line.
const KEPT: usize = 10;
const LONGEST: usize = 512;

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    /// When.
    pub(crate) at: SystemTime,
    /// What, from its level on.
    pub(crate) line: String,
    /// How many of its kind there were.
    pub(crate) count: u64,
}

/// Lines by kind: the place in the code that says it.
type Lines = VecDeque<(Option<Identifier>, Said)>;

/// The last warnings of each kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent(Arc<Mutex<Lines>>);

impl Recent {
    /// Returns them, the latest last.
    pub(crate) fn said(&self) -> Vec<Said> {
        self.lines().iter().map(|(_, said)| said.clone()).collect()
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

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0
            .lock()
            .expect("nothing panics while it holds the lines")
    }
}

impl<'a> MakeWriter<'a> for Recent {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line {
            recent: self,
            kind: None,
        }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Line<'a> {
        Line {
            recent: self,
            kind: Some(metadata.callsite()),
        }
    }
}

/// A line of one kind.
pub(crate) struct Line<'a> {
    recent: &'a Recent,
    kind: Option<Identifier>,
}

/// Each write is one line.
impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(&line[..line.len().min(LONGEST)])
            .trim()
            .to_owned();
        let mut lines = self.recent.lines();
        let before = lines.iter().position(|(kind, _)| *kind == self.kind);
        let before = before.and_then(|at| lines.remove(at));
        if lines.len() == KEPT {
            lines.pop_front();
        }
        let said = Said {
            at: SystemTime::now(),
            line: text,
            count: before.map_or(0, |(_, said)| said.count) + 1,
        };
        lines.push_back((self.kind.clone(), said));
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
    fn of_each_kind_of_warning_the_last_is_kept_with_a_count() {
        let recent = Recent::default();
        let _log = registry().with(recent.layer()).set_default();
        (1..=3).for_each(|n| warn!(attachment = %format!("lan/c{n}/eth0"), "lease lost"));
        info!("not a warning");
        error!("{}", "x".repeat(2 * LONGEST));
        let said = recent.said();
        assert_eq!(
            (said[0].line.as_str(), said[0].count),
            ("WARN lease lost attachment=lan/c3/eth0", 3)
        );
        assert!(
            said.len() == 2
                && said[1].line.starts_with("ERROR xxx")
                && said[1].line.len() <= LONGEST
        );
    }

    #[test]
    fn only_the_last_kinds_of_warning_are_kept() {
        let recent = Recent::default();
        let _log = registry().with(recent.layer()).set_default();
        macro_rules! each {
            ($($text:literal)*) => { $(warn!($text);)* };
        }
        each!("a" "b" "c" "d" "e" "f" "g" "h" "i" "j" "k");
        let said = recent.said();
        assert_eq!((said.len(), said[0].line.as_str()), (KEPT, "WARN b"));
    }
}
