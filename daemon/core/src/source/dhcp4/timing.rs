//! When a client sends again, and from when its times count.

use std::ops::RangeInclusive;
use std::time::Duration;

use fastrand::Rng;

use super::lease::{Lease, LeaseTimes};
use crate::backoff::{LONGEST_PAUSE, doubled, jittered};
use crate::patience::REMEMBERED;
use crate::time::Instant;

/// How long a client listens after a message that no caller waits for, and the first wait of RFC 2131 §4.1.
///
/// A slow server behind a relay answers within a second; the sockets of an idle lease are closed after this.
pub(crate) const RECEIVE_WINDOW: Duration = Duration::from_secs(4);

/// The shortest lease that is held.
///
/// A lease of one second would be extended twice a second as long as its container lives, at the cost of two exchanges and two
/// writes to disk, and the first lost answer would lose it. To use an address beyond its lease, as clients with their own least
/// lease time do, breaks RFC 2131 §4.4.5. So the client does not take such a lease, and the ADD says why.
pub(crate) const SHORTEST_LEASE: Duration = Duration::from_secs(6);

/// The earliest T1: no server may make its clients extend a lease more often. A shorter T1 is ignored.
const EARLIEST_T1: Duration = Duration::from_secs(3);

/// The longest that a client listens after a try to extend a lease, however many tries went unanswered, and that messages are sent
/// under one xid: a lease without an offer (RFC 4039) counts from the first of them.
///
/// Known servers are up to 15 s late: dnsmasq, which pings an address before offering it.
pub(crate) const LONGEST_WINDOW: Duration = Duration::from_secs(32);

/// The time from the first DECLINE to the next DISCOVER (RFC 2131 §3.1 step 5). While a caller waits, it is a hundredth of this after
/// each DECLINE.
const DECLINE_WAIT: Duration = Duration::from_secs(10);

/// How long an offer of an unwanted address waits for a better one, if it is acceptable at all. If not, the client waits as
/// long as its caller does.
pub(crate) const CHOICE: Duration = Duration::from_millis(200);

/// After which waits a first message is repeated soon, if it may have left before the way to the servers was open. A bridge's port
/// usually forwards a moment after its link has carrier, and on a busy machine a little later.
pub(crate) const SOON: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(180)];

/// How long after its link got carrier the way to the servers may not be open. A client that waited longer for its turn
/// repeats nothing: a slow server would have to work on both.
pub(crate) const OPENS: Duration = Duration::from_secs(1);

/// REQUESTs to one server before its offer is given up.
pub(crate) const MAX_REQUESTS: u32 = 3;

/// REQUESTs in INIT-REBOOT form before the client stops waiting for an answer.
pub(crate) const MAX_REBOOTS: u32 = 2;

/// Tries to extend a lease before T1, because another client was offered its address. The client has listened for the last after
/// 28 s.
pub(crate) const MAX_EARLY: u32 = 3;

/// The least time from one try to extend a lease to the next (RFC 2131 §4.4.5), if its phase is not short.
const LEAST_EXTENSION_WAIT: Duration = Duration::from_secs(60);

/// The longest time between two DISCOVERs while a caller waits.
const CAP_WAITED_FOR: Duration = Duration::from_secs(8);

/// What a client's next deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// The pause before discovery is over.
    Discover,
    /// An offer of an unwanted address has waited long enough for a better one.
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
/// RFC 2131 §4.1 wants 4 s first and suggests ±1 s; that protects a server when a building's power returns. A container start
/// cannot wait 4 s for one lost frame. Permits for acquisitions protect the server instead.
pub(crate) fn acquisition_wait(sent: u32, waited_for: bool, rng: &mut Rng) -> Duration {
    let cap = if waited_for {
        CAP_WAITED_FOR
    } else {
        LONGEST_PAUSE
    };
    jittered(doubled(sent.saturating_sub(1), cap), rng)
}

/// Returns how long one of many who ask at once waits at least before it asks again (RFC 2131 §4.1): a server that is slow because
/// many ask it would have to work on each message twice, and then be slower still.
pub(crate) fn crowd_wait(rng: &mut Rng) -> Duration {
    jittered(RECEIVE_WINDOW, rng)
}

/// Returns the wait after the `count`-th DECLINE in a row (1 is the first): while a caller waits, 0.1 s, since an ADD declines three
/// addresses at most; else 10, 20, 40 s … ten minutes.
pub(crate) fn decline_wait(count: u32, waited_for: bool) -> Duration {
    match waited_for {
        true => DECLINE_WAIT / 100,
        false => (DECLINE_WAIT * (1 << count.saturating_sub(1).min(8))).min(REMEMBERED),
    }
}

/// Returns the `secs` of a message if the client began to ask at `began` (RFC 2131 table 1).
pub(crate) fn secs(began: Instant, now: Instant) -> u16 {
    now.saturating_since(began).as_secs().min(u16::MAX.into()) as u16
}

/// Returns when an extension is asked for again after a REQUEST at `now`, in the phase (RENEWING or REBINDING) from `began` to
/// `end`: at half of the remaining time, but no sooner than 60 s (RFC 2131 §4.4.5). No try leaves in the last second of a phase,
/// where the answer would come too late.
///
/// Some servers grant leases of seconds or minutes, for which 60 s would leave one try or none. For these the minimum is an
/// eighth of the phase, but at least one second.
///
/// For a lease that is still to be confirmed (`unconfirmed`) no wait is longer than a minute where it may be: a link may have carrier
/// some time before its switch port forwards.
pub(crate) fn next_extension(
    now: Instant,
    (began, end): (Instant, Instant),
    unconfirmed: bool,
) -> Instant {
    let half = end.saturating_since(now) / 2;
    let wait = if unconfirmed {
        half.min(LEAST_EXTENSION_WAIT)
    } else {
        half
    };
    let phase = end.saturating_since(began);
    let floor = (phase / 8).clamp(Duration::from_secs(1), LEAST_EXTENSION_WAIT);
    let next = now + wait.max(floor);
    if next + Duration::from_secs(1) > end {
        end
    } else {
        next
    }
}

/// Returns how long the client listens for an answer to the `sent`-th try to extend a lease (1 is the first): twice as long
/// after each unanswered try. An answer that comes at once costs no more.
pub(crate) fn extension_window(sent: u32) -> Duration {
    (RECEIVE_WINDOW * (1 << sent.saturating_sub(1).min(8))).min(LONGEST_WINDOW)
}

/// Returns a lease's times from what the server sent, in seconds; `None` for the infinite lease 0xffffffff.
///
/// Without T1 or T2, or with an order other than 3 s ≤ T1 < T2 < lease time, both get the defaults, half and seven
/// eighths (RFC 2131 §4.4.5).
pub(crate) fn times(lease_time: u32, t1: Option<u32>, t2: Option<u32>) -> Option<LeaseTimes> {
    if lease_time == u32::MAX {
        return None;
    }
    let end = Duration::from_secs(lease_time.into());
    let default = LeaseTimes {
        t1: end / 2,
        t2: end * 7 / 8,
        end,
    };
    let sane = match (t1, t2) {
        (Some(t1), Some(t2)) => (t1, t2),
        // A single one is kept if it fits the other's default.
        (Some(t1), None) => (t1, default.t2.as_secs() as u32),
        (None, Some(t2)) => (default.t1.as_secs() as u32, t2),
        (None, None) => return Some(default),
    };
    let (t1, t2) = sane;
    if EARLIEST_T1.as_secs() <= t1.into() && t1 < t2 && t2 < lease_time {
        Some(LeaseTimes {
            t1: Duration::from_secs(t1.into()),
            t2: Duration::from_secs(t2.into()),
            end,
        })
    } else {
        Some(default)
    }
}

/// Returns the times with T1 and T2 earlier by a random amount, up to a sixteenth: leases that were granted together must not be
/// renewed together for ever (RFC 2131 §4.4.5).
///
/// Never later than their server wants. ISC dhcpd gives clients that renew early only the remaining time, but only in the first
/// quarter of a lease (`dhcp-cache-threshold`).
pub(crate) fn spread(times: LeaseTimes, rng: &mut Rng) -> LeaseTimes {
    let mut earlier = |at: Duration, after: Duration| {
        let most = at.saturating_sub(after).as_micros() as u64 / 16;
        at.saturating_sub(Duration::from_micros(rng.u64(0..=most)))
    };
    let t1 = earlier(times.t1, Duration::ZERO).max(times.t1.min(EARLIEST_T1));
    LeaseTimes {
        t1,
        t2: earlier(times.t2, times.t1),
        end: times.end,
    }
}

/// How long work that no caller waits for is put off, so that not all hosts of a building ask at once (RFC 2131 §4.4.1).
const DESYNCHRONIZED: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(10);

/// Returns how long to put off work that is overdue after a restart, so that many leases do not ask at once: a random
/// time between one second and ten, or a random part of half the time left until `limit` if that is less.
pub(crate) fn overdue_delay(now: Instant, limit: Option<Instant>, rng: &mut Rng) -> Duration {
    let (least, most) = DESYNCHRONIZED.into_inner();
    let half = limit.map_or(most, |limit| limit.saturating_since(now) / 2);
    let (least, most) = if half < most {
        (Duration::ZERO, half)
    } else {
        (least, most)
    };
    Duration::from_micros(rng.u64(least.as_micros() as u64..=most.as_micros() as u64))
}

/// Returns the phase that a lease is in at `now`.
pub(crate) fn phase(lease: &Lease, now: Instant) -> LeasePhase {
    let (Some(t1), Some(t2), Some(end)) = (lease.t1(), lease.t2(), lease.expires()) else {
        return LeasePhase::Held;
    };
    match now {
        n if n < t1 => LeasePhase::Held,
        n if n < t2 => LeasePhase::Renewing,
        n if n < end => LeasePhase::Rebinding,
        _ => LeasePhase::Over,
    }
}

/// Returns when a lease's RENEWING begins and ends, if it has begun by `now`. A lease without end never comes to it.
pub(crate) fn renewing(lease: &Lease, now: Instant) -> Option<(Instant, Instant)> {
    lease.t1().zip(lease.t2()).filter(|(t1, _)| now >= *t1)
}

/// The phase of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeasePhase {
    /// Before T1.
    Held,
    /// From T1 to T2.
    Renewing,
    /// From T2 to the end.
    Rebinding,
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
    fn an_extension_waits_half_of_the_rest_or_a_minute() {
        // A lease of 8 h: T1 at 4 h, T2 at 7 h. A lease of 10 s.
        let (long, short) = ((14_400.0, 25_200.0), (5.0, 8.75));
        for ((t1, t2), now, next) in [
            (long, 14_400.0, 19_800.0),
            (long, 25_000.0, 25_100.0),
            (long, 25_120.0, 25_180.0),
            (long, 25_139.0, 25_199.0),
            // None in the last second of the phase.
            (long, 25_139.1, 25_200.0),
            (long, 25_180.0, 25_200.0),
            (short, 5.0, 6.875),
            // At least one second.
            (short, 6.75, 7.75),
            (short, 6.875, 8.75),
        ] {
            let phase = (at(t1), at(t2));
            assert_eq!(next_extension(at(now), phase, false), at(next), "{now}");
        }
    }

    #[test]
    fn what_is_to_be_confirmed_is_extended_each_minute() {
        let t1 = at(14_400.0);
        let t2 = at(25_200.0);
        assert_eq!(next_extension(t1, (t1, t2), true), at(14_460.0));
        // A short lease as any other.
        let short = (at(5.0), at(8.75));
        assert_eq!(next_extension(at(5.0), short, true), at(6.875));
    }

    #[test]
    fn background_work_begins_after_one_to_ten_seconds() {
        let mut rng = Rng::with_seed(1);
        for (limit, least, most) in [
            (None, 1.0, 10.0),
            (Some(3600.0), 1.0, 10.0),
            (Some(1004.0), 0.0, 2.0),
        ] {
            let delays: Vec<_> = (0..200)
                .map(|_| overdue_delay(at(1000.0), limit.map(at), &mut rng).as_secs_f64())
                .collect();
            assert!(
                delays.iter().all(|delay| (least..=most).contains(delay)),
                "{limit:?}: {delays:?}"
            );
            assert!(
                delays.iter().any(|delay| *delay > most * 0.9)
                    && delays.iter().any(|delay| *delay < least + 1.0)
            );
        }
    }

    #[test]
    fn t1_and_t2_are_spread_a_little_and_never_late() {
        let mut rng = Rng::with_seed(1);
        for seconds in [60, 3600, u32::MAX - 1] {
            let given = times(seconds, None, None).expect("finite");
            let spread: Vec<_> = (0..100).map(|_| spread(given, &mut rng)).collect();
            for times in &spread {
                assert!(
                    given.t1 - given.t1 / 16 <= times.t1 && times.t1 <= given.t1,
                    "{times:?}"
                );
                assert!(
                    given.t2 - (given.t2 - given.t1) / 16 <= times.t2 && times.t2 <= given.t2,
                    "{times:?}"
                );
                assert_eq!(times.end, given.end);
            }
            let late = spread
                .iter()
                .filter(|times| times.t1 > given.t1 - given.t1 / 32)
                .count();
            assert!((30..70).contains(&late), "{late} of 100 in the second half");
        }
        let shortest = times(6, None, None).expect("finite");
        assert_eq!(spread(shortest, &mut rng).t1, EARLIEST_T1);
    }

    #[test]
    fn times_are_the_servers_where_they_are_sane() {
        let seconds = |t: LeaseTimes| (t.t1.as_secs_f64(), t.t2.as_secs_f64(), t.end.as_secs_f64());
        for (lease, t1, t2, want) in [
            (1000, None, None, (500.0, 875.0, 1000.0)),
            (1000, Some(100), Some(200), (100.0, 200.0, 1000.0)),
            (1000, Some(200), Some(100), (500.0, 875.0, 1000.0)),
            (1000, Some(100), Some(1000), (500.0, 875.0, 1000.0)),
            (1000, Some(0), Some(900), (500.0, 875.0, 1000.0)),
            (1000, Some(2), Some(900), (500.0, 875.0, 1000.0)),
            (1000, Some(3), Some(900), (3.0, 900.0, 1000.0)),
            (1000, Some(100), None, (100.0, 875.0, 1000.0)),
            (1000, Some(900), None, (500.0, 875.0, 1000.0)),
            (1000, None, Some(600), (500.0, 600.0, 1000.0)),
            (1000, None, Some(400), (500.0, 875.0, 1000.0)),
            (6, None, None, (3.0, 5.25, 6.0)),
            (
                u32::MAX - 1,
                None,
                None,
                (2147483647.0, 3758096382.25, 4294967294.0),
            ),
        ] {
            assert_eq!(
                seconds(times(lease, t1, t2).expect("finite")),
                want,
                "{lease} {t1:?} {t2:?}"
            );
        }
        assert_eq!(times(u32::MAX, Some(1), Some(2)), None);
    }
}
