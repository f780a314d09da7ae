//! Clocks that jump: the wall clock is set, and the host sleeps while its boot clock goes on.

use super::actor::Phase;
use super::{Event, MILLI, SECOND, World};
use crate::plan::pick;

impl World {
    /// The wall clock is set to another time: corrected by a little, or wrong by hours or years.
    pub(super) fn wall_jump(&mut self) {
        let Some(every) = self.plan.wall_jumps else { return };
        self.sometime(every, Event::WallJump);
        let most = pick(&mut self.rng, &[10, 3600, 3600, 10 * 86_400, 10 * 365 * 86_400]) * SECOND as i64;
        self.wall_offset = self.rng.i64(-most..=most);
        let offset = self.wall_offset / SECOND as i64;
        self.note(|| format!("WALL CLOCK is {offset} s off"));
        self.stats.count(if offset < 0 { "wall clocks set back" } else { "wall clocks set forward" });
    }

    /// The host is suspended. All that was to happen meanwhile happens when it is resumed, in some order.
    pub(super) fn suspend(&mut self) {
        let Some(every) = self.plan.suspends else { return };
        let lease = u64::from(self.plan.lease.min(86_400)) * SECOND;
        let asleep = self.rng.u64(..lease * 3 / 2);
        self.stats.count("suspends");
        self.note(|| format!("SUSPENDED for {} s", asleep / SECOND));
        self.now += asleep;
        self.resumed = self.now;
        self.watch.resumed(asleep);
        // An interface that was between two namespaces has been nowhere for all that time.
        for actor in self.actors.iter_mut().filter(|actor| actor.docker && actor.phase == Phase::Live) {
            if actor.at.is_none() {
                (actor.excused, actor.stranded) = (true, Some(false));
            }
        }
        // What a client heard before is no older to it than it was: it slept too.
        self.claimed.values_mut().for_each(|heard| *heard += asleep);
        if let Some((_, at)) = &mut self.timer {
            *at = (*at).max(self.now + self.rng.u64(..50 * MILLI));
        }
        self.sometime(every, Event::Suspend);
    }
}
