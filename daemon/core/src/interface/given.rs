//! When a runtime puts on an interface what it was given, and what others then do with it.
//!
//! A CNI runtime was given a grant with the answer to its ADD, and puts it on within moments; after a time the daemon checks
//! what its caller, or a later plugin, did with it. Docker moves the interface in, sets it up with the address and its own
//! routes, and tells nobody. It fails on a route that is already there, and on one that contains the subnet of the container's
//! next network. So nothing is changed there before it has finished.

use std::time::Duration;

use crate::patience::{NEXT_STEP, SLOW_START};
use crate::time::Instant;

/// How long to leave Docker alone with an interface that is up: it puts its routes on, and then sets up the container's
/// next network, which takes milliseconds unless a disk is slow.
const SETUP: Duration = Duration::from_millis(500);

/// Since when a runtime can put a lease on.
#[derive(Debug)]
pub(super) struct Given {
    /// When its ADD was given the lease, or the interface was found.
    at: Instant,
    /// When to check, by a look at the interface, what the ADD's caller did with its answer.
    look_at: Option<Instant>,
    /// Docker is at work there.
    setup: Option<Setup>,
}

/// How far Docker is with an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setup {
    /// It has not set the interface up yet.
    Down,
    /// It has, and counts as finished at this instant.
    Up(Instant),
}

/// What is due when it is time for a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing yet, or not before the lease is used.
    Later,
    /// A look. `is_over`: the runtime's time is up.
    Look { is_over: bool },
    /// No further look.
    Never,
}

impl Given {
    /// Returns what a runtime is given with the answer to its ADD. The daemon looks at the interface after a time, and before T1
    /// (`t1` from now) unless it has seen the address by then.
    pub(super) fn answered(now: Instant, t1: Option<Duration>) -> Self {
        let first = t1.map_or(NEXT_STEP, |t1| (t1 / 2).min(NEXT_STEP));
        Self {
            at: now,
            look_at: Some(now + first),
            setup: None,
        }
    }

    /// Returns what Docker puts on an interface that was found just now.
    pub(super) fn found(now: Instant) -> Self {
        Self {
            at: now,
            look_at: None,
            setup: Some(Setup::Down),
        }
    }

    /// Returns whether a lease that began at `start` was given so long ago that waiting for its address will not help.
    pub(super) fn is_configured(given: Option<&Self>, start: Instant, now: Instant) -> bool {
        let since = match given {
            Some(given) if given.is_settling() => given.at,
            Some(given) => start.max(given.at),
            None => start,
        };
        now.saturating_since(since) >= NEXT_STEP
    }

    /// Returns whether it is still unknown what the ADD's caller did with its answer.
    pub(super) fn is_settling(&self) -> bool {
        self.look_at.is_some()
    }

    /// Returns whether that is still unknown although the runtime's time is up.
    pub(super) fn settles_now(&self, now: Instant) -> bool {
        self.is_settling() && now >= self.at + NEXT_STEP
    }

    /// Returns when the interface must be looked at, or Docker counts as finished with it.
    pub(super) fn wakes_at(&self) -> Option<Instant> {
        self.look_at.or(self.setup_ends())
    }

    /// Returns what is due now. `is_known`: whether the address is there.
    pub(super) fn on_clock(&mut self, is_known: bool, now: Instant) -> Due {
        if self.look_at.is_none_or(|at| now < at) {
            return Due::Later;
        }
        let is_over = now >= self.at + NEXT_STEP;
        self.look_at = Some(if is_over { now } else { self.at } + NEXT_STEP);
        match is_known && now >= self.at + SLOW_START {
            true => Due::Never,
            false => Due::Look { is_over },
        }
    }

    /// Records that the interface, which Docker may be setting up, is up.
    pub(super) fn on_up(&mut self, now: Instant) {
        if let Some(setup @ Setup::Down) = &mut self.setup {
            *setup = Setup::Up(now + SETUP);
        }
    }

    pub(super) fn on_down(&mut self) {
        self.setup.iter_mut().for_each(|setup| *setup = Setup::Down);
    }

    pub(super) fn is_being_set_up(&self) -> bool {
        self.setup.is_some()
    }

    /// Records that Docker has finished, if it has by now. Returns whether that is new.
    pub(super) fn end_setup(&mut self, now: Instant) -> bool {
        let ends = self.setup_ends().is_some_and(|at| now >= at);
        self.setup.take_if(|_| ends).is_some()
    }

    fn setup_ends(&self) -> Option<Instant> {
        match self.setup? {
            Setup::Down => None,
            Setup::Up(at) => Some(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_boot(Duration::from_millis(millis))
    }

    #[test]
    fn an_answered_add_is_looked_at_before_t1_and_each_minute() {
        let mut given = Given::answered(at(0), Some(Duration::from_secs(50)));
        let due = [24_999, 25_000, 59_999, 60_000, 119_999, 120_000]
            .map(|millis| given.on_clock(false, at(millis)));
        let early = Due::Look { is_over: false };
        let late = Due::Look { is_over: true };
        assert_eq!(due, [Due::Later, early, Due::Later, late, Due::Later, late]);
        assert_eq!(
            (given.on_clock(true, at(599_999)), given.wakes_at()),
            (late, Some(at(659_999)))
        );
        assert_eq!(given.on_clock(false, at(659_999)), late, "it has not come");
        assert_eq!(given.on_clock(true, at(720_000)), Due::Never);
    }

    #[test]
    fn docker_has_half_a_second_after_the_interface_is_up() {
        let mut given = Given::found(at(0));
        assert_eq!((given.wakes_at(), given.end_setup(at(9000))), (None, false));
        given.on_up(at(9000));
        given.on_up(at(9400));
        assert_eq!(
            (given.wakes_at(), given.end_setup(at(9499))),
            (Some(at(9500)), false)
        );
        given.on_down();
        given.on_up(at(10_000));
        assert!(!given.end_setup(at(10_499)) && given.is_being_set_up());
        assert!(
            given.end_setup(at(10_500)) && !given.is_being_set_up() && !given.end_setup(at(10_501))
        );
    }
}
