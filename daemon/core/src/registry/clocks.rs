//! A wall clock that is set while the daemon runs.
//!
//! All deadlines are on the boot clock. But the wall clock shows the next boot how old a record's lease is: on a host without a
//! clock, which begins in 1970 until it hears a time server, a record would say that the lease ended decades ago. And if the
//! wall clock is set forward, the boot clock may have stood still meanwhile, as in a paused virtual machine: servers may have
//! given its addresses away.

use std::time::Duration;

use crate::rules::{Rule, cut};
use crate::time::{Now, WallTime};

/// If the wall clock is off by less, it was corrected, and the ages of leases in records are near enough.
const JUMP: Duration = Duration::from_secs(60);

/// The last reading of both clocks.
#[derive(Debug, Default)]
pub(super) struct Clocks(Option<Now>);

impl Clocks {
    /// Compares both clocks with their last reading. Returns, if the wall clock was set, whether leases may have been given away
    /// meanwhile.
    pub(super) fn read(&mut self, now: Now) -> Option<bool> {
        let expected = now.wall_since(self.0.replace(now)?);
        let may_be_late = now.wall > expected && !cut(Rule::WallForward);
        let was_set = is_off(now.wall, expected);
        was_set.then(|| {
            tracing::info!(from = ?expected.since_epoch(), to = ?now.wall.since_epoch(), may_be_late, "the wall clock was set");
            may_be_late
        })
    }
}

pub(super) fn is_off(wall: WallTime, expected: WallTime) -> bool {
    wall.saturating_since(expected)
        .max(expected.saturating_since(wall))
        >= JUMP
}
