//! What is logged, and for how long.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::info;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::Registry;
use tracing_subscriber::reload::Handle;

use super::{LogError, Recent, parse};

/// The filter of a running log. After a change it reverts to the filter of the start.
#[derive(Clone, Debug)]
pub(crate) struct Filter(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    handle: Handle<Targets, Registry>,
    recent: Recent,
    at_start: String,
    /// What is logged instead, and until when.
    meanwhile: Mutex<Option<(String, Instant)>>,
}

impl Filter {
    pub(super) fn new(at_start: &str, handle: Handle<Targets, Registry>, recent: Recent) -> Self {
        Self(Arc::new(Inner {
            handle,
            recent,
            at_start: at_start.to_owned(),
            meanwhile: Mutex::default(),
        }))
    }

    /// Returns the filter of a log that does not exist.
    #[cfg(test)]
    pub(crate) fn of_nothing() -> Self {
        Self::new(
            "info",
            tracing_subscriber::reload::Layer::new(Targets::new()).1,
            Recent::default(),
        )
    }

    pub(crate) fn recent(&self) -> &Recent {
        &self.0.recent
    }

    /// Returns what is logged now, and for how much longer if that ends.
    pub(crate) fn now(&self) -> (String, Option<Duration>) {
        match &*self.meanwhile() {
            Some((filter, until)) => (
                filter.clone(),
                Some(until.saturating_duration_since(Instant::now())),
            ),
            None => (self.0.at_start.clone(), None),
        }
    }

    /// Logs what `filter` lets through, for `limit`. Must be called inside a runtime.
    pub(crate) fn set(&self, filter: &str, limit: Duration) -> Result<(), LogError> {
        let targets = parse(filter)?;
        let until = Instant::now() + limit;
        info!(filter, seconds = limit.as_secs(), "log filter changed");
        *self.meanwhile() = Some((filter.to_owned(), until));
        self.apply(targets);
        let its = self.clone();
        tokio::spawn(async move {
            sleep(limit).await;
            let is_last = its
                .meanwhile()
                .as_ref()
                .is_some_and(|(_, last)| *last == until);
            if is_last {
                its.reset();
            }
        });
        Ok(())
    }

    /// Goes back to the filter of the start.
    pub(crate) fn reset(&self) {
        *self.meanwhile() = None;
        self.apply(parse(&self.0.at_start).expect("it was parsed at the start"));
        info!(
            filter = self.0.at_start,
            "log filter reset to what it was at the start"
        );
    }

    fn apply(&self, targets: Targets) {
        // It fails only when the log is gone.
        let _ = self.0.handle.reload(targets);
    }

    fn meanwhile(&self) -> MutexGuard<'_, Option<(String, Instant)>> {
        self.0
            .meanwhile
            .lock()
            .expect("nothing panics while it holds the filter")
    }
}

#[cfg(test)]
mod tests {
    use tracing::{Level, enabled};
    use tracing_subscriber::prelude::*;
    use tracing_subscriber::{fmt, registry, reload};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_filter_ends_at_its_own_time() {
        let (targets, handle) = reload::Layer::new(parse("info").unwrap());
        let filter = Filter::new("info", handle, Recent::default());
        let _log = registry()
            .with(fmt::layer().with_writer(std::io::sink).with_filter(targets))
            .set_default();
        let debugs = || enabled!(Level::DEBUG);
        assert!(!debugs());
        filter.set("debug", Duration::from_secs(60)).unwrap();
        assert!(debugs());
        sleep(Duration::from_secs(59)).await;
        filter.set("debug", Duration::from_secs(60)).unwrap();
        sleep(Duration::from_secs(59)).await;
        assert!(debugs());
        assert_eq!(
            filter.now(),
            ("debug".to_owned(), Some(Duration::from_secs(1)))
        );
        sleep(Duration::from_secs(2)).await;
        assert!(!debugs());
        assert_eq!(filter.now(), ("info".to_owned(), None));
    }
}
