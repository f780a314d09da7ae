//! The only reader of `CLOCK_BOOTTIME` and of the wall clock, and the one timer that waits on the boot clock.
//!
//! Lease deadlines count time in suspend (RFC 2131 §4.4.5 knows no clock that stops). So tokio's timers, which use
//! `CLOCK_MONOTONIC`, only serve the shell's own short limits.

use std::fs;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::time::{BootId, Instant, Now, WallTime};
use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::net::Ready;

/// Reads both clocks and waits on the boot clock.
#[derive(Debug)]
pub(crate) struct Clock {
    timer: Ready<TimerFd>,
    /// What the timer is set to, so that waiting for the same deadline again costs no system call.
    armed: Option<Instant>,
}

impl Clock {
    /// Opens the timer. Must be called inside the runtime that will wait on it.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = Ready::new(TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?)?;
        Ok(Self { timer, armed: None })
    }

    /// Returns the time by both clocks. A wall clock before 1970 reads as 1970.
    pub(crate) fn now() -> Now {
        let boot = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
            .expect("every Linux since 2.6.39 has it");
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Now {
            boot: Instant::from_boot(Duration::from(boot)),
            wall: WallTime::from_epoch(wall),
        }
    }

    /// Returns when the boot clock reads `at` or later, at once if that is past.
    ///
    /// May be dropped and called again with the same or another instant; nothing is lost. Sleeps through a suspend of
    /// the host and wakes after it.
    pub(crate) async fn sleep_until(&mut self, at: Instant) {
        self.arm(at);
        loop {
            let mut ready = self
                .timer
                .wait()
                .await
                .expect("the runtime outlives its timer");
            match TimerFd::wait(&self.timer) {
                Ok(()) => break,
                Err(Errno::EAGAIN) => ready.is_over(),
                Err(errno) => unreachable!("a timer of ours can be read: {errno}"),
            }
        }
        self.armed = None;
    }

    fn arm(&mut self, at: Instant) {
        if self.armed == Some(at) {
            return;
        }
        // Setting it also withdraws an unread expiry. Zero would disarm it instead.
        let at_least = at.since_boot().max(Duration::from_nanos(1));
        let expiry = Expiration::OneShot(TimeSpec::from_duration(at_least));
        match self.timer.set(expiry, TimerSetTimeFlags::TFD_TIMER_ABSTIME) {
            Ok(()) => self.armed = Some(at),
            Err(errno) => unreachable!("a timer of ours takes any positive time: {errno}"),
        }
    }
}

pub(crate) fn boot_id() -> io::Result<BootId> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(BootId(text.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_past_instant_is_over_at_once() {
        let mut clock = Clock::new().unwrap();
        clock.sleep_until(Instant::from_boot(Duration::ZERO)).await;
        clock.sleep_until(Clock::now().boot).await;
    }

    #[tokio::test]
    async fn a_future_instant_is_not_reached_early() {
        let mut clock = Clock::new().unwrap();
        for _ in 0..3 {
            let at = Clock::now().boot + Duration::from_millis(5);
            clock.sleep_until(at).await;
            assert!(Clock::now().boot >= at);
        }
    }

    #[tokio::test]
    async fn an_abandoned_wait_neither_fires_nor_delays_the_next() {
        let mut clock = Clock::new().unwrap();
        let now = Clock::now().boot;
        let far = now + Duration::from_secs(3600);
        let soon = now + Duration::from_millis(5);
        for at in [far, soon, far] {
            tokio::select! {
                biased;
                () = clock.sleep_until(at) => panic!("not yet"),
                () = std::future::ready(()) => {}
            }
        }
        // The expiry at `soon` was withdrawn by the third wait; this one must see its own.
        let at = Clock::now().boot + Duration::from_millis(10);
        clock.sleep_until(at).await;
        assert!(Clock::now().boot >= at);
    }

    #[test]
    fn the_same_boot_has_the_same_name() {
        let id = boot_id().unwrap();
        assert_eq!(id, boot_id().unwrap());
        assert_eq!(id.0.len(), 36, "{id}");
    }
}
