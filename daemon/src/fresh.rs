//! Answers that are reused for a moment, so that many callers cost no more than one.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long an answer is reused.
const FRESH: Duration = Duration::from_secs(1);

/// The last answer to a question, and when it was given. A caller that asks while the next one is being made waits for it.
#[derive(Debug)]
pub(crate) struct Fresh<T>(Mutex<Option<(Instant, T)>>);

impl<T: Clone> Fresh<T> {
    /// Returns the last answer if it is fresh, else makes another.
    pub(crate) async fn or(&self, make: impl Future<Output = T>) -> T {
        let mut last = self.0.lock().await;
        if let Some((at, answer)) = &*last
            && at.elapsed() < FRESH
        {
            return answer.clone();
        }
        let answer = make.await;
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}

impl<T> Default for Fresh<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}
