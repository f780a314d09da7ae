//! Ports of switches: one that gets carrier may forward nothing for half a minute (spanning tree), and a link that is plugged in
//! again may be on another network. So a client with a lease there asks for it until a server has heard it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use leasehold_core::effect::ExchangeId;
use netns_fixtures::model::ClientKey;

use super::actor::Phase;
use super::{Event, MILLI, Micros, SECOND, World};
use crate::kernel::At;
use crate::watch::Rule;

/// A link whose carrier is away longer may be back on another network.
const LOSS: Micros = 3 * SECOND + 100 * MILLI;
/// How soon a server hears of a lease after its port forwards: its client asks again after at most a minute and an eighth, for
/// three seconds, when its turn comes.
const HEARD: Micros = 120 * SECOND;

/// What is known about links and about what their clients said.
#[derive(Debug, Default)]
pub(super) struct Ports {
    /// Since when links have no carrier.
    lost: BTreeMap<At, Micros>,
    /// When links got it back.
    back: BTreeMap<At, Micros>,
    /// When a server last took a message of a client.
    pub(super) taken: BTreeMap<(usize, ClientKey), Micros>,
}

impl World {
    /// A link has no carrier any more.
    pub(super) fn unplugged(&mut self, at: At) {
        self.ports.lost.entry(at).or_insert(self.now);
    }

    /// A link has carrier again. Its port may forward later.
    pub(super) fn plugged_in(&mut self, at: At) {
        let Some(lost) = self.ports.lost.remove(&at) else { return };
        let delay = self.plan.forward_delay.map_or(0, |delay| delay.as_micros() as Micros);
        if delay > 0 {
            self.stats.count("ports that forward late");
            self.kernel.block(at, self.now + delay);
        }
        self.ports.back.insert(at, self.now);
        if self.now > lost + LOSS && self.heard_soon {
            self.at(self.now + delay + HEARD, Event::Heard(at, lost, self.now + delay));
        }
    }

    /// Checks that a client whose link had no carrier from `lost` on has been heard since its port forwards.
    pub(super) fn must_be_heard(&mut self, at: At, lost: Micros, forwards: Micros) {
        let Some(back) = self.ports.back.get(&at).copied() else { return };
        let has_changed = self.ports.lost.contains_key(&at) || back > forwards;
        let lived = |actor: &&super::Actor| actor.at == Some(at) && actor.phase == Phase::Live && actor.told_at < lost;
        let Some(actor) = self.actors.iter().find(lived).filter(|actor| !has_changed && !actor.docker) else { return };
        let heard = self.ports.taken.get(&(actor.lan, actor.client_key()));
        self.stats.count("clients that are to be heard after a loss of carrier");
        // What leaves by the LAN's link is heard before this port forwards.
        if heard.is_none_or(|heard| *heard < back) {
            let since = (self.now - forwards) / SECOND;
            let detail = format!("{}: no server has heard it for {since} s, since its port forwards", actor.attachment);
            self.fail(Rule::Unconfirmed, detail);
        }
    }

    /// Checks that what ipvlans send to all servers leaves by the link on the host: they share an Ethernet address, by which no
    /// answer finds one of them.
    pub(super) fn judge_link(&mut self, exchange: ExchangeId, frame: &[u8]) {
        let is_inside = self.socks.get(&exchange).is_some_and(|sock| sock.link.in_netns().is_some());
        let to_all = super::daemon::is_dhcp(frame) && frame.get(30..34) == Some(&Ipv4Addr::BROADCAST.octets()[..]);
        if self.plan.ipvlan && is_inside && to_all {
            self.fail(Rule::WrongLink, format!("{exchange:?} broadcasts from inside"));
        }
    }
}
