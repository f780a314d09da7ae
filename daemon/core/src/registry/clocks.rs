//! A wall clock that is set while the daemon runs.
//!
//! No deadline is on it (all are on the boot clock). But it tells the next boot how old a record's lease is: on a host without a
//! clock, which begins in 1970 until it hears a time server, a record would say that the lease ended decades ago. And a wall
//! clock that is set forward may mean that the boot clock stood still meanwhile, as in a paused virtual machine: servers may
//! have given its addresses away.

use std::time::Duration;

use super::Registry;
use crate::time::{Instant, Now, WallTime};

/// A wall clock that is off by less was corrected, and what records say of a lease's age is near enough.
const JUMP: Duration = Duration::from_secs(60);

/// A wall clock that is set so soon after the boot was not right before: a time server was heard for the first time. The kernel
/// could tell whether it was, but not after it was set, and not to a daemon that must leave clocks alone (`ProtectClock=`).
const FIRST_SET: Instant = Instant::from_boot(Duration::from_secs(600));

impl Registry {
    /// Compares both clocks with their last reading.
    pub(crate) fn read_clocks(&mut self, now: Now) {
        let Some(before) = self.clocks.replace(now) else { return };
        let expected = now.wall_since(before);
        if !is_off(now.wall, expected) {
            return;
        }
        let ids: Vec<_> = self.bindings.iter().map(|binding| binding.id).collect();
        let may_be_late = now.wall > expected && now.boot > FIRST_SET;
        tracing::info!(from = ?expected.since_epoch(), to = ?now.wall.since_epoch(), may_be_late, "the wall clock was set");
        for id in ids {
            self.with(now, id, |binding, cx| binding.on_wall_set(may_be_late, cx));
        }
    }
}

/// Returns whether a wall clock differs from what is expected.
pub(super) fn is_off(wall: WallTime, expected: WallTime) -> bool {
    wall.saturating_since(expected).max(expected.saturating_since(wall)) >= JUMP
}
