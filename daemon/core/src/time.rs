//! Time as the core sees it: an argument, never a call.
//!
//! There is no `now()` here. The shell reads `CLOCK_BOOTTIME`, which counts suspend, and hands the reading in.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A reading of the boot clock, in microseconds since boot.
///
/// Two instants compare only within one boot; a record therefore names its boot too.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Instant(u64);

impl Instant {
    /// The boot itself.
    pub const BOOT: Self = Self(0);

    /// Returns the instant that lies `since_boot` after boot.
    pub const fn from_boot(since_boot: Duration) -> Self {
        Self(since_boot.as_micros() as u64)
    }

    /// Returns the time from boot to this instant.
    pub const fn since_boot(self) -> Duration {
        Duration::from_micros(self.0)
    }

    /// Returns the time from `earlier` to this instant, zero if `earlier` is later.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(rhs.as_micros() as u64))
    }
}

/// A reading of the wall clock, in milliseconds since the Unix epoch. Only for records and events: it may jump.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct WallTime(u64);

impl WallTime {
    /// Returns the wall time that lies `since_epoch` after 1970-01-01T00:00:00Z.
    pub const fn from_epoch(since_epoch: Duration) -> Self {
        Self(since_epoch.as_millis() as u64)
    }

    /// Returns the time since 1970-01-01T00:00:00Z.
    pub const fn since_epoch(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// Returns the time from `earlier` to this reading, zero if `earlier` is later.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// What both clocks read when an input arrived.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// The boot clock: every deadline is on it.
    pub boot: Instant,
    /// The wall clock: only into records and events.
    pub wall: WallTime,
}

impl Now {
    /// Returns what the wall clock read at an earlier instant, if nobody has set it since.
    pub(crate) fn wall_at(self, earlier: Instant) -> WallTime {
        let ago = self.boot.saturating_since(earlier);
        WallTime::from_epoch(self.wall.since_epoch().saturating_sub(ago))
    }

    /// Returns what the wall clock would read by now if it had run on with the boot clock since an earlier reading of both.
    pub(crate) fn wall_since(self, earlier: Self) -> WallTime {
        WallTime::from_epoch(earlier.wall.since_epoch() + self.boot.saturating_since(earlier.boot))
    }
}

/// Returns a duration for people to read: to the millisecond.
pub(crate) fn whole_millis(duration: Duration) -> Duration {
    Duration::from_millis(duration.as_millis() as u64)
}

/// Returns a duration in a form that people read: its two largest units.
pub fn brief(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// Names one boot of the host (`/proc/sys/kernel/random/boot_id`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootId(pub String);

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
