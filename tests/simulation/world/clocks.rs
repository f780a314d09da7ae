//! Clocks that jump: the wall clock is set, and the host sleeps while its boot clock goes on.

use leasehold_core::link::own::LinkOwner;

use super::actor::{Actor, Phase};
use super::doors::may_stay;
use super::ledger::Excuse;
use super::seen::Seen;
use super::{Event, MILLI, Micros, SECOND, World};
use crate::plan::pick;

/// How long after the wall clock was set the daemon has noticed and recorded it.
const WRITTEN: Micros = 10 * SECOND;

/// The clocks of the host, and when its daemon last began to read them.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    pub(super) boot: u32,
    pub(super) booted_at: Micros,
    /// How far the wall clock is ahead of the world's time, in microseconds.
    pub(super) wall_offset: i64,
    /// When it was last set.
    pub(super) wall_set: Micros,
    /// Whether it was set by less than the daemon considers a jump.
    pub(super) wall_off: bool,
    /// When the daemon last started.
    pub(super) started: Micros,
    /// When daemons ended.
    pub(super) ended: Vec<Micros>,
    /// Whether the time was set when no daemon could record that.
    pub(super) outdated: bool,
    /// When the host was last resumed.
    pub(super) resumed: Micros,
}

impl World {
    /// Sets the wall clock to another time: corrected by a little, or wrong by hours or years.
    pub(super) fn wall_jump(&mut self) {
        let Some(every) = self.plan.wall_jumps else {
            return;
        };
        self.sometime(every, Event::WallJump);
        let most = pick(
            &mut self.rng,
            &[10, 3600, 3600, 10 * 86_400, 10 * 365 * 86_400],
        ) * SECOND as i64;
        let before = std::mem::replace(&mut self.clocks.wall_offset, self.rng.i64(-most..=most));
        self.clocks.wall_off |= before.abs_diff(self.clocks.wall_offset) < 60 * SECOND;
        self.clocks.wall_set = self.now;
        if self.daemon.is_none() {
            self.clocks.outdated = true;
            self.leave_all(Excuse::WallClock, false);
        }
        // No daemon has run since the host booted.
        if self.clocks.started < self.clocks.booted_at {
            self.forget_ends();
        }
        let forward = self.clocks.wall_offset.saturating_sub(before);
        if forward >= 60 * SECOND as i64 && self.daemon.is_some() {
            self.expects_confirmations();
        }
        // Leases are confirmed.
        self.show(&Seen::CauseForAll);
        self.after(0, SECOND, Event::Ticks(self.run));
        let offset = self.clocks.wall_offset / SECOND as i64;
        self.note(|| format!("WALL CLOCK is {offset} s off"));
        self.stats.count_which(
            offset < 0,
            "wall clocks set back",
            "wall clocks set forward",
        );
    }

    /// The daemon reads its clocks.
    pub(super) fn ticks(&mut self) {
        let now = self.clock();
        if let Some(daemon) = &mut self.daemon {
            daemon.subject.handle_timeout(now);
        }
        self.drain();
    }

    /// Excuses leases whose recorded age is useless to the next boot, because this boot's daemon could not record that the wall
    /// clock was set.
    pub(super) fn excuse_outdated_clock(&mut self) {
        let unwritten =
            self.store_fails || self.now < self.clocks.wall_set.max(self.clocks.started) + WRITTEN;
        if self.clocks.wall_set == 0 {
            return;
        }
        match self.clocks.wall_off || unwritten {
            true => {
                self.clocks.outdated = true;
                self.leave_all(Excuse::WallClock, false);
                self.forget_ends();
            }
            false => self.stats.count("reboots after the wall clock was set"),
        }
    }

    /// The next boot's daemon cannot know which leases have ended.
    fn forget_ends(&mut self) {
        let judges = self.segments.iter_mut().map(|segment| &mut segment.judge);
        judges.for_each(|judge| judge.clients_forgot_ends());
    }

    /// Suspends the host. Everything that was to happen meanwhile happens when the host is resumed, in some order.
    pub(super) fn suspend(&mut self) {
        let Some(every) = self.plan.suspends else {
            return;
        };
        let lease = u64::from(self.plan.lease.min(86_400)) * SECOND;
        let asleep = self.rng.u64(..lease * 3 / 2);
        self.stats.count("suspends");
        self.note(|| format!("SUSPENDED for {} s", asleep / SECOND));
        self.now += asleep;
        self.clocks.resumed = self.now;
        self.calls.resumed(asleep);
        // Dockerd may move a link just as the daemon finds that it was left too long, and ends its lease.
        let late = self
            .kernel
            .own()
            .filter(|(own, _)| self.now - own.came >= may_stay(own));
        let late = late.map(|(own, _)| own.owner.clone()).collect::<Vec<_>>();
        // An interface that was between two namespaces has been nowhere all that time.
        let nowhere = |actor: &Actor| {
            actor.is_found_later() && actor.phase == Phase::Live && actor.at.is_none()
        };
        for index in (0..self.actors.len())
            .filter(|index| nowhere(&self.actors[*index]))
            .collect::<Vec<_>>()
        {
            let actor = &mut self.actors[index];
            (actor.excused, actor.stranded) = (true, Some(false));
            if actor
                .endpoint
                .iter()
                .any(|id| late.contains(&LinkOwner::Endpoint(id.clone())))
            {
                self.nobody_has(index);
            }
        }
        // What a client heard before has not aged for it: it slept too.
        self.ledger
            .claimed
            .values_mut()
            .for_each(|heard| *heard += asleep);
        if let Some((_, at)) = &mut self.timer {
            *at = (*at).max(self.now + self.rng.u64(..50 * MILLI));
        }
        self.sometime(every, Event::Suspend);
    }
}
