//! Recent DHCP and ARP frames, as the daemon sent and received them, for whoever asks.
//!
//! Nothing is kept unless somebody asked a moment ago. The room for frames is bounded, and no reader owns them: a reader that is
//! too slow misses frames, and is told how many.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use leasehold_core::effect::ExchangeId;
use leasehold_core::identity::Attachment;
use leasehold_core::time::WallTime;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::clock::Clock;

/// The most bytes that are kept, including the overhead of each frame.
const ROOM: usize = 4 << 20;
/// A frame's overhead.
const BESIDES: usize = 128;
/// How long frames are kept after somebody asked: longer than a question may wait.
const INTEREST: Duration = Duration::from_secs(90);

/// A frame, from its Ethernet header on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Counts all frames that were kept, from 1 on.
    pub(crate) number: u64,
    pub(crate) time: WallTime,
    /// Whether the daemon sent it.
    pub(crate) sent: bool,
    /// The attachment whose lease it is about, if any.
    pub(crate) attachment: Option<Arc<Attachment>>,
    pub(crate) bytes: Vec<u8>,
}

/// The frames that are kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frames(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    kept: Mutex<Kept>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Kept {
    frames: VecDeque<Seen>,
    bytes: usize,
    /// The number of the last frame.
    last: u64,
    /// Frames are kept until then.
    until: Option<Instant>,
}

/// What was read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Read {
    /// The frames, in order.
    pub(crate) frames: Vec<Seen>,
    /// The number of the last frame looked at: the next question asks for those after it.
    pub(crate) next_after: u64,
    /// How many frames between the two, of any attachment, are no longer kept.
    pub(crate) missed: u64,
}

impl Frames {
    /// Keeps a frame, if somebody asks for frames.
    fn keep(&self, seen: impl FnOnce() -> Seen) {
        let mut kept = self.kept();
        match kept.until {
            None => return,
            Some(until) if Instant::now() >= until => {
                *kept = Kept {
                    last: kept.last,
                    ..Kept::default()
                };
                return;
            }
            Some(_) => {}
        }
        kept.last += 1;
        let frame = Seen {
            number: kept.last,
            ..seen()
        };
        kept.bytes += frame.bytes.len() + BESIDES;
        kept.frames.push_back(frame);
        while kept.bytes > ROOM {
            let Some(oldest) = kept.frames.pop_front() else {
                break;
            };
            kept.bytes -= oldest.bytes.len() + BESIDES;
        }
        drop(kept);
        self.0.news.notify_waiters();
    }

    /// Returns the frames after number `after`, or without one the frames from now on: those that `wanted` lets through, at most
    /// `limit`. Waits until `until` for the first.
    pub(crate) async fn read(
        &self,
        after: Option<u64>,
        limit: usize,
        until: Instant,
        wanted: impl Fn(&Seen) -> bool,
    ) -> Read {
        let mut after = after;
        loop {
            let news = self.0.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            let read = self.kept().read(after, limit, &wanted);
            if after.is_none() || !read.frames.is_empty() || read.missed > 0 {
                return read;
            }
            after = Some(read.next_after);
            if timeout_at(until, news).await.is_err() {
                return read;
            }
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0
            .kept
            .lock()
            .expect("nothing panics while it holds the frames")
    }
}

impl Kept {
    fn read(&mut self, after: Option<u64>, limit: usize, wanted: impl Fn(&Seen) -> bool) -> Read {
        self.until = Some(Instant::now() + INTEREST);
        // A daemon that has started since then has not counted that far.
        let after = after.unwrap_or(self.last).min(self.last);
        let oldest = self
            .frames
            .front()
            .map_or(self.last + 1, |frame| frame.number);
        let missed = (oldest - 1).saturating_sub(after);
        let mut frames = Vec::new();
        let mut next_after = after + missed;
        for frame in self.frames.iter().filter(|frame| frame.number > after) {
            if frames.len() == limit {
                break;
            }
            next_after = frame.number;
            frames.extend(wanted(frame).then(|| frame.clone()));
        }
        Read {
            frames,
            next_after,
            missed,
        }
    }
}

/// The driver's end: which exchange is about whose lease, and which frames pass through it.
#[derive(Debug, Default)]
pub(crate) struct Tap {
    frames: Frames,
    /// The open exchanges whose lease is known. The core forgets the lease before the last frame leaves.
    whose: HashMap<ExchangeId, Arc<Attachment>>,
}

impl Tap {
    pub(crate) fn frames(&self) -> Frames {
        self.frames.clone()
    }

    /// Records whose lease an exchange is for, if that is known.
    pub(crate) fn learn(&mut self, exchange: ExchangeId, whose: Option<Arc<Attachment>>) {
        self.whose.extend(whose.map(|whose| (exchange, whose)));
    }

    pub(crate) fn forget(&mut self, exchange: ExchangeId) {
        self.whose.remove(&exchange);
    }

    /// Shows a frame to whoever asks for frames.
    pub(crate) fn sees(&self, exchange: ExchangeId, sent: bool, bytes: &[u8]) {
        self.frames.keep(|| Seen {
            number: 0,
            time: Clock::now().wall,
            sent,
            attachment: self.whose.get(&exchange).cloned(),
            bytes: bytes.to_vec(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXCHANGE: ExchangeId = ExchangeId(7);

    fn sees(tap: &Tap, bytes: &[u8]) {
        tap.sees(EXCHANGE, true, bytes);
    }

    async fn read(tap: &Tap, after: Option<u64>) -> Read {
        tap.frames()
            .read(after, 1000, Instant::now(), |_| true)
            .await
    }

    #[tokio::test(start_paused = true)]
    async fn frames_are_kept_only_while_somebody_asks() {
        let mut tap = Tap::default();
        tap.learn(
            EXCHANGE,
            Some(Arc::new(Attachment::cni("lan", "c1", "eth0"))),
        );
        sees(&tap, b"before");
        assert_eq!(read(&tap, None).await, Read::default());
        sees(&tap, b"one");
        let got = read(&tap, Some(0)).await;
        assert_eq!((got.frames.len(), got.next_after, got.missed), (1, 1, 0));
        assert_eq!(got.frames[0].bytes, b"one");
        assert_eq!(
            got.frames[0].attachment.as_ref().unwrap().to_string(),
            "lan/c1/eth0"
        );
        tokio::time::sleep(INTEREST).await;
        sees(&tap, b"nobody asks");
        assert!(tap.frames.kept().frames.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_hears_how_much_it_missed() {
        let tap = Tap::default();
        read(&tap, None).await;
        let fits = ROOM / (1024 + BESIDES);
        for _ in 0..fits + 5 {
            sees(&tap, &[0; 1024]);
        }
        assert!(tap.frames.kept().bytes <= ROOM);
        let got = read(&tap, Some(0)).await;
        assert_eq!(
            (got.missed, got.frames[0].number, got.frames.len()),
            (5, 6, 1000)
        );
        let got = read(&tap, Some(got.next_after)).await;
        assert_eq!(got.missed, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_waits_for_what_it_wants() {
        let tap = Tap::default();
        read(&tap, None).await;
        let frames = tap.frames();
        let until = Instant::now() + Duration::from_secs(20);
        let waits = tokio::spawn(async move {
            frames
                .read(Some(0), 10, until, |frame| frame.bytes == b"wanted")
                .await
        });
        tokio::task::yield_now().await;
        sees(&tap, b"other");
        tokio::task::yield_now().await;
        sees(&tap, b"wanted");
        let got = waits.await.unwrap();
        assert_eq!((got.frames.len(), got.next_after), (1, 2));
        let before = Instant::now();
        let nothing = tap
            .frames()
            .read(Some(2), 10, before + Duration::from_secs(20), |_| true)
            .await;
        assert_eq!(
            (nothing.frames.len(), before.elapsed()),
            (0, Duration::from_secs(20))
        );
    }
}
