//! When a client sends again, and from when its times count.

use std::time::Duration;

use fastrand::Rng;

use super::lease::{Lease, Times};
use crate::time::Instant;

/// How long a client listens after a message for which no caller waits.
///
/// A slow server behind a relay answers within a second; the sockets of an idle lease are closed after this.
pub(crate) const RECEIVE_WINDOW: Duration = Duration::from_secs(4);

/// From a DECLINE to the next DISCOVER, when no caller waits (RFC 2131 §3.1 step 5).
pub(crate) const DECLINE_WAIT: Duration = Duration::from_secs(10);

/// How long an offer of another address than the wanted one waits for a better one.
pub(crate) const CHOICE: Duration = Duration::from_millis(200);

/// REQUESTs to one server before its offer is given up.
pub(crate) const MAX_REQUESTS: u32 = 3;

/// REQUESTs in INIT-REBOOT form before the client stops waiting for an answer.
pub(crate) const MAX_REBOOTS: u32 = 2;

/// The longest time between two DISCOVERs while a caller waits.
const CAP_WAITED_FOR: Duration = Duration::from_secs(8);

/// The longest time between two DISCOVERs for which nobody waits.
const CAP_BACKGROUND: Duration = Duration::from_secs(60);

/// What a client's next deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// A pause before discovery is over.
    Discover,
    /// An offer of another address than the wanted one has waited for a better one.
    Choose,
    /// An unanswered message is sent again, or given up.
    Retransmit,
    /// Nothing came within the receive window: the sockets close.
    ReceiveWindow,
    /// An unanswered ARP request is sent again, or given up.
    Resolve,
    /// T1: renew.
    Renew,
    /// T2: rebind.
    Rebind,
    /// The lease ends.
    Expire,
}

/// Returns the wait after the `sent`-th message (1 is the first) of an acquisition: 1, 2, 4, 8 s, each ±12.5 %.
///
/// RFC 2131 §4.1 wants 4 s first and suggests ±1 s; that protects a server from a building that gets its power back.
/// A container start cannot wait 4 s for one lost frame. The herd is held back elsewhere: acquisitions take permits.
pub(crate) fn acquisition_wait(sent: u32, waited_for: bool, rng: &mut Rng) -> Duration {
    let cap = if waited_for { CAP_WAITED_FOR } else { CAP_BACKGROUND };
    jittered(doubled(sent.saturating_sub(1), cap), rng)
}

/// Returns a second, doubled so many `times`, and `most` at most: the pause after another try that failed.
pub(crate) fn doubled(times: u32, most: Duration) -> Duration {
    Duration::from_secs(1 << times.min(16)).min(most)
}

/// Returns `base` ±12.5 %.
pub(crate) fn jittered(base: Duration, rng: &mut Rng) -> Duration {
    let micros = base.as_micros() as u64;
    Duration::from_micros(micros - micros / 8 + rng.u64(0..=micros / 4))
}

/// Returns when an extension is asked for again after a REQUEST at `now`, in the phase (RENEWING or REBINDING) that
/// began at `began` and ends at `end`: at half of the remaining time, but no sooner than 60 s (RFC 2131 §4.4.5).
///
/// Servers grant leases of seconds and minutes, where 60 s would leave one try or none. There the floor is an eighth
/// of the phase, and one second at least.
pub(crate) fn next_extension(now: Instant, began: Instant, end: Instant) -> Instant {
    let phase = end.saturating_since(began);
    let floor = (phase / 8).clamp(Duration::from_secs(1), Duration::from_secs(60));
    let half = end.saturating_since(now) / 2;
    (now + half.max(floor)).min(end)
}

/// Returns a lease's times from what the server sent, in seconds; `None` for the infinite lease 0xffffffff.
///
/// Without T1 or T2, or with an order other than 0 < T1 < T2 < lease time, both get the defaults, half and seven
/// eighths (RFC 2131 §4.4.5).
pub(crate) fn times(lease_time: u32, t1: Option<u32>, t2: Option<u32>) -> Option<Times> {
    if lease_time == u32::MAX {
        return None;
    }
    let end = Duration::from_secs(lease_time.into());
    let default = Times { t1: end / 2, t2: end * 7 / 8, end };
    let sane = match (t1, t2) {
        (Some(t1), Some(t2)) => (t1, t2),
        // One of the two alone is kept where it fits with the other's default.
        (Some(t1), None) => (t1, default.t2.as_secs() as u32),
        (None, Some(t2)) => (default.t1.as_secs() as u32, t2),
        (None, None) => return Some(default),
    };
    let (t1, t2) = sane;
    if 0 < t1 && t1 < t2 && t2 < lease_time {
        Some(Times { t1: Duration::from_secs(t1.into()), t2: Duration::from_secs(t2.into()), end })
    } else {
        Some(default)
    }
}

/// Returns how far the work that is overdue after a restart is put off, so that many leases do not ask at once: a
/// random part of half the time left until `limit`, at most ten seconds.
pub(crate) fn overdue_delay(now: Instant, limit: Option<Instant>, rng: &mut Rng) -> Duration {
    let most = limit.map_or(Duration::from_secs(10), |l| (l.saturating_since(now) / 2).min(Duration::from_secs(10)));
    Duration::from_micros(rng.u64(0..=most.as_micros() as u64))
}

/// Returns the phase that a lease is in at `now`: how far it has come and until when that lasts.
pub(crate) fn phase(lease: &Lease, now: Instant) -> Phase {
    let (Some(t1), Some(t2), Some(end)) = (lease.t1(), lease.t2(), lease.expires()) else {
        return Phase::Held { until: None };
    };
    match now {
        n if n < t1 => Phase::Held { until: Some(t1) },
        n if n < t2 => Phase::Renewing { until: t2 },
        n if n < end => Phase::Rebinding { until: end },
        _ => Phase::Over,
    }
}

/// How far a lease has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Before T1; `None`: for ever.
    Held { until: Option<Instant> },
    /// From T1 to T2.
    Renewing { until: Instant },
    /// From T2 to the end.
    Rebinding { until: Instant },
    /// Past the end.
    Over,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Instant {
        Instant::from_boot(Duration::from_secs_f64(seconds))
    }

    #[test]
    fn acquisition_doubles_from_one_second_to_its_cap() {
        let mut rng = Rng::with_seed(1);
        for (sent, waited_for, base) in [
            (1, true, 1.0),
            (2, true, 2.0),
            (3, true, 4.0),
            (4, true, 8.0),
            (9, true, 8.0),
            (5, false, 16.0),
            (40, false, 60.0),
        ] {
            for _ in 0..100 {
                let wait = acquisition_wait(sent, waited_for, &mut rng).as_secs_f64();
                assert!((base * 0.875..=base * 1.125).contains(&wait), "{sent}: {wait}");
            }
        }
    }

    #[test]
    fn an_extension_waits_half_of_what_is_left_and_a_minute_at_least() {
        // lease of 8 h: T1 at 4 h, T2 at 7 h
        let (t1, t2) = (at(14_400.0), at(25_200.0));
        assert_eq!(next_extension(t1, t1, t2), at(19_800.0));
        assert_eq!(next_extension(at(25_000.0), t1, t2), at(25_100.0));
        assert_eq!(next_extension(at(25_120.0), t1, t2), at(25_180.0), "the floor of 60 s");
        assert_eq!(next_extension(at(25_180.0), t1, t2), t2, "never past the phase");
    }

    #[test]
    fn a_lease_of_ten_seconds_still_gets_tries() {
        let (t1, t2) = (at(5.0), at(8.75));
        assert_eq!(next_extension(t1, t1, t2), at(6.875));
        assert_eq!(next_extension(at(6.875), t1, t2), at(7.875), "the floor of one second");
        assert_eq!(next_extension(at(7.875), t1, t2), t2);
    }

    #[test]
    fn times_are_the_servers_where_they_are_sane() {
        let seconds = |t: Times| (t.t1.as_secs_f64(), t.t2.as_secs_f64(), t.end.as_secs_f64());
        for (lease, t1, t2, want) in [
            (1000, None, None, (500.0, 875.0, 1000.0)),
            (1000, Some(100), Some(200), (100.0, 200.0, 1000.0)),
            (1000, Some(200), Some(100), (500.0, 875.0, 1000.0)),
            (1000, Some(100), Some(1000), (500.0, 875.0, 1000.0)),
            (1000, Some(0), Some(900), (500.0, 875.0, 1000.0)),
            (1000, Some(100), None, (100.0, 875.0, 1000.0)),
            (1000, Some(900), None, (500.0, 875.0, 1000.0)),
            (1000, None, Some(600), (500.0, 600.0, 1000.0)),
            (1000, None, Some(400), (500.0, 875.0, 1000.0)),
            (1, None, None, (0.5, 0.875, 1.0)),
            (u32::MAX - 1, None, None, (2147483647.0, 3758096382.25, 4294967294.0)),
        ] {
            assert_eq!(seconds(times(lease, t1, t2).expect("finite")), want, "{lease} {t1:?} {t2:?}");
        }
        assert_eq!(times(u32::MAX, Some(1), Some(2)), None);
    }
}
