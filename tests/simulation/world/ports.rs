//! Ports of switches: a port that gets carrier may forward nothing for half a minute (spanning tree), and a link that is plugged
//! in again may be on another network. So a client with a lease on it asks for its lease until a server has heard it.

use std::collections::BTreeMap;

use leasehold_core::testbed::kernel::At;
use netns_fixtures::model::ClientKey;

use super::{Event, MILLI, Micros, SECOND, World};

/// A link whose carrier is away for longer may be back on another network.
const LOSS: Micros = 3 * SECOND + 100 * MILLI;
/// How soon a server hears about a lease after its port forwards: its client asks again after at most a minute and an eighth, for
/// three seconds, when its turn comes.
const HEARD: Micros = 120 * SECOND;

/// Known facts about links and their clients' messages.
#[derive(Debug, Default)]
pub(super) struct Ports {
    /// Since when links have no carrier.
    pub(super) lost: BTreeMap<At, Micros>,
    /// When links got carrier back.
    pub(super) back: BTreeMap<At, Micros>,
    /// When a server last took a message from a client.
    pub(super) taken: BTreeMap<(usize, ClientKey), Micros>,
}

impl World {
    /// Handles that a link lost its carrier.
    pub(super) fn unplugged(&mut self, at: At) {
        self.ports.lost.entry(at).or_insert(self.now);
    }

    /// Has all clients that can be heard confirm their leases soon: the host may have been paused.
    pub(super) fn expects_confirmations(&mut self) {
        let there = self.actors.iter().filter_map(|actor| actor.at);
        for at in there.filter(|_| self.heard_soon).collect::<Vec<_>>() {
            self.ports.back.insert(at, self.now);
            self.at(self.now + HEARD, Event::Heard(at, self.now, self.now));
        }
    }

    /// Handles that a link has carrier again. Its port may forward later.
    pub(super) fn plugged_in(&mut self, at: At) {
        let Some(lost) = self.ports.lost.remove(&at) else {
            return;
        };
        let delay = self
            .plan
            .forward_delay
            .map_or(0, |delay| delay.as_micros() as Micros);
        if delay > 0 {
            self.stats.count("ports that forward late");
            self.kernel.block(at, self.now + delay);
        }
        self.ports.back.insert(at, self.now);
        if self.now > lost + LOSS && self.heard_soon {
            self.at(
                self.now + delay + HEARD,
                Event::Heard(at, lost, self.now + delay),
            );
        }
    }
}
