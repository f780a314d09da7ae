//! Answers that are reused for a moment, so that many callers cost no more than one.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long an answer is reused.
const FRESH: Duration = Duration::from_secs(1);

/// The last answer to a question, and when it was given. A caller that asks while the next one is being made waits for it.
#[derive(Debug)]
pub(crate) struct Fresh<T>(Arc<Mutex<Option<(Instant, T)>>>);

impl<T: Clone + Send + 'static> Fresh<T> {
    /// Returns the last answer if it is fresh, else makes another, to its end even if the caller hangs up: a caller that asks and
    /// hangs up again and again has no more made than one that waits.
    pub(crate) async fn or(&self, make: impl Future<Output = T> + Send + 'static) -> T {
        let mut last = self.0.clone().lock_owned().await;
        if let Some((at, answer)) = &*last
            && at.elapsed() < FRESH
        {
            return answer.clone();
        }
        let making = tokio::spawn(async move {
            let answer = make.await;
            *last = Some((Instant::now(), answer.clone()));
            answer
        });
        making.await.expect("what makes an answer does not panic")
    }
}

impl<T> Default for Fresh<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_made_once_however_many_hang_up() {
        let fresh = Fresh::default();
        let made = Arc::new(AtomicUsize::new(0));
        let make = |takes| {
            let made = made.clone();
            async move {
                made.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(takes).await;
                7
            }
        };
        let takes = Duration::from_secs(60);
        let patience = Duration::from_secs(1);
        for _ in 0..50 {
            let hung_up = tokio::time::timeout(patience, fresh.or(make(takes))).await;
            assert!(hung_up.is_err());
        }
        assert_eq!(fresh.or(make(takes)).await, 7);
        assert_eq!(made.load(Ordering::Relaxed), 1);
        tokio::time::sleep(FRESH).await;
        assert_eq!(fresh.or(make(takes)).await, 7);
        assert_eq!(made.load(Ordering::Relaxed), 2);
    }
}
