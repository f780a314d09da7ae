//! Looks at a network's directory before its first call, on behalf of the front doors.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::Job;

/// How long a call waits for a look.
const MOMENT: Duration = Duration::from_millis(250);
/// How old the last look must be for a call to begin another, without waiting for it.
const AGAIN: Duration = Duration::from_secs(10);
/// The most directories that are remembered.
const MAX: usize = 1024;

/// Has directories looked at for the front doors.
#[derive(Clone, Debug)]
pub(crate) struct Looks {
    jobs: Sender<Job>,
    begun: Arc<Mutex<HashMap<PathBuf, Look>>>,
}

#[derive(Clone, Debug)]
struct Look {
    begun: Instant,
    /// Closed when the core has what was found.
    known: watch::Receiver<()>,
    is_first: bool,
}

impl Looks {
    pub(super) fn new(jobs: Sender<Job>) -> Self {
        Self {
            jobs,
            begun: Arc::default(),
        }
    }

    /// Returns when the core knows the contents of a network's directory. Waits for that only before the first call, and only a
    /// moment.
    pub(crate) async fn before_call(&self, network: &str, directory: &Path) {
        let Look {
            begun,
            mut known,
            is_first,
        } = self.look(network, directory);
        if is_first && timeout_at(begun + MOMENT, known.changed()).await.is_err() {
            debug!(directory = %directory.display(), "not looked at in time");
        }
    }

    /// Returns the look that counts for a call, and begins it if necessary.
    fn look(&self, network: &str, directory: &Path) -> Look {
        let mut all = self.begun.lock().expect("nobody panics with it");
        let now = Instant::now();
        let before = all
            .get(directory)
            .map(|look| (look.known.has_changed().is_err(), look.clone()));
        match before {
            Some((_, look)) if now - look.begun < AGAIN => return look,
            Some((false, look)) => return look,
            Some((true, _)) | None => {}
        }
        if all.len() >= MAX {
            all.clear();
        }
        let (sender, known) = watch::channel(());
        let look = Look {
            begun: now,
            known,
            is_first: before.is_none(),
        };
        all.insert(directory.to_owned(), look.clone());
        let job = Job::Look {
            network: network.to_owned(),
            directory: directory.to_owned(),
            known: sender,
        };
        // If the thread is gone, the daemon is stopping.
        let _ = self.jobs.send(job);
        look
    }
}
