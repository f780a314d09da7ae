//! What the daemon has learnt about a LAN: how many addresses were declined there, whose claims prove nothing, and which servers
//! are on the wire.
//!
//! RFC 5227 §2.1.1 slows down a host that has met ten conflicts: one new address a minute. That is for a host which chooses its
//! addresses itself. Here a server chooses, and what costs the LAN something is the DECLINE, which takes an address out of the
//! pool. If tries were slowed down, one container with forged ARP would keep all others of its LAN from starting. So tries are
//! not held back, and DECLINEs are: [`MOST_DECLINES`] for a LAN in ten minutes. Without one an ADD that meets a conflict
//! ends. In the background the pauses between tries grow to ten minutes.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use crate::identity::Lan;
use crate::patience::REMEMBERED;
use crate::rules::{Rule, cut};
use crate::time::Instant;
use crate::wire::Mac;

/// How many DECLINEs the clients of a LAN may send within ten minutes.
pub const MOST_DECLINES: usize = 10;

/// How many stations that answer for all addresses, and how many servers, are remembered of a LAN: the latest.
const MOST: usize = 8;

/// What is known about each LAN.
#[derive(Debug, Default)]
pub struct Lans(BTreeMap<Lan, Seen>);

/// What is known about one LAN.
#[derive(Debug, Default)]
struct Seen {
    /// When the last DECLINEs were sent.
    declines: Vec<Instant>,
    /// The stations that answer for every address, and when each was found to.
    proxies: Vec<(Mac, Instant)>,
    servers: Vec<AskedServer>,
}

/// A server that was asked whether it is on the wire. A frame sent over the macvlans' parent link leaves on the wire and
/// reaches none of them: a server that answers is on the wire, and one that does not may be in a macvlan itself.
#[derive(Debug)]
struct AskedServer {
    address: Ipv4Addr,
    asked: Instant,
    /// Whether it has answered.
    on_wire: bool,
}

impl Lans {
    /// Counts a DECLINE. Returns whether it may be sent.
    pub fn decline(&mut self, lan: &Lan, now: Instant) -> bool {
        let may = self.may_decline(lan, now);
        self.seen(lan, now).declines.extend(may.then_some(now));
        may
    }

    /// Returns whether a DECLINE may be sent.
    pub fn may_decline(&self, lan: &Lan, now: Instant) -> bool {
        let declines = self.0.get(lan).map_or(&[][..], |seen| &seen.declines);
        let last = declines.iter().filter(|at| counts(**at, now));
        last.count() < MOST_DECLINES || cut(Rule::DeclineLimit)
    }

    /// Records that a station answered for an address that nobody can have.
    pub fn answers_for_all(&mut self, lan: &Lan, mac: Mac, now: Instant) {
        let proxies = &mut self.seen(lan, now).proxies;
        proxies.retain(|(known, _)| *known != mac);
        if proxies.len() == MOST {
            proxies.remove(0);
        }
        proxies.push((mac, now));
    }

    /// Returns whether a station is known to answer for every address.
    pub fn is_proxy(&self, lan: &Lan, mac: Mac, now: Instant) -> bool {
        let proxies = self.0.get(lan).map_or(&[][..], |seen| &seen.proxies);
        proxies
            .iter()
            .any(|(known, at)| *known == mac && counts(*at, now))
    }

    /// Returns whether all servers that clients have chosen lately are on the wire, and one of them is acceptable.
    pub fn are_on_wire(
        &mut self,
        lan: &Lan,
        fits: impl Fn(Ipv4Addr) -> bool,
        now: Instant,
    ) -> bool {
        let servers = &self.seen(lan, now).servers;
        servers.iter().all(|known| known.on_wire) && servers.iter().any(|known| fits(known.address))
    }

    /// Returns whether a server is known to be on the wire; `None`: it is to be asked, and counts as asked now.
    pub fn is_on_wire(&mut self, lan: &Lan, address: Ipv4Addr, now: Instant) -> Option<bool> {
        let servers = &mut self.seen(lan, now).servers;
        if let Some(known) = servers.iter().find(|known| known.address == address) {
            return Some(known.on_wire);
        }
        if servers.len() == MOST {
            servers.remove(0);
        }
        servers.push(AskedServer {
            address,
            asked: now,
            on_wire: false,
        });
        None
    }

    /// Records that a station has answered by ARP.
    pub fn answered(&mut self, lan: &Lan, address: Ipv4Addr) {
        let seen = self.0.get_mut(lan).into_iter();
        let servers = seen.flat_map(|seen| &mut seen.servers);
        let asked = servers.filter(|asked| asked.address == address);
        asked.for_each(|asked| asked.on_wire = true);
    }

    fn seen(&mut self, lan: &Lan, now: Instant) -> &mut Seen {
        self.tidy(now);
        self.0.entry(lan.clone()).or_default()
    }

    /// Forgets what is out of date: nothing is kept about a LAN without trouble.
    fn tidy(&mut self, now: Instant) {
        self.0.retain(|_, seen| {
            seen.declines.retain(|at| counts(*at, now));
            seen.proxies.retain(|(_, at)| counts(*at, now));
            seen.servers.retain(|known| counts(known.asked, now));
            !seen.declines.is_empty() || !seen.proxies.is_empty() || !seen.servers.is_empty()
        });
    }
}

/// Returns whether what happened at a time still counts.
fn counts(at: Instant, now: Instant) -> bool {
    now < at + REMEMBERED
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: f64) -> Instant {
        Instant::from_boot(Duration::from_secs_f64(seconds))
    }

    fn lan(name: &str) -> Lan {
        Lan::Network(name.into())
    }

    #[test]
    fn a_lan_has_ten_declines_in_ten_minutes() {
        let mut lans = Lans::default();
        let a = lan("a");
        assert!(
            (0..10).all(|n| lans.may_decline(&a, at(n.into())) && lans.decline(&a, at(n.into())))
        );
        assert!(!lans.may_decline(&a, at(599.999)) && !lans.decline(&a, at(599.999)));
        assert!(lans.decline(&lan("b"), at(599.999)), "each LAN has its own");
        assert!(lans.may_decline(&a, at(600.0)) && lans.decline(&a, at(600.0)));
        assert!(!lans.decline(&a, at(600.999)) && lans.decline(&a, at(601.0)));
        lans.tidy(at(1300.0));
        assert!(lans.0.is_empty(), "nothing is kept");
    }

    #[test]
    fn eight_proxies_are_remembered_for_ten_minutes() {
        let mut lans = Lans::default();
        let mac = |n| Mac([2, 0, 0, 0, 0, n]);
        lans.answers_for_all(&lan("a"), mac(0), at(0.0));
        let known = |lans: &Lans, name, n, now| lans.is_proxy(&lan(name), mac(n), at(now));
        assert!(known(&lans, "a", 0, 599.999));
        assert_eq!(
            [
                known(&lans, "a", 0, 600.0),
                known(&lans, "b", 0, 0.0),
                known(&lans, "a", 1, 0.0)
            ],
            [false; 3]
        );
        (1..=8).for_each(|n| lans.answers_for_all(&lan("a"), mac(n), at(1.0)));
        assert!(!known(&lans, "a", 0, 1.0) && known(&lans, "a", 1, 1.0));
        lans.answers_for_all(&lan("a"), mac(1), at(2.0));
        lans.answers_for_all(&lan("a"), mac(9), at(2.0));
        assert!(known(&lans, "a", 1, 2.0) && !known(&lans, "a", 2, 2.0));
        lans.tidy(at(700.0));
        assert!(lans.0.is_empty());
    }

    #[test]
    fn a_server_is_known_to_be_on_the_wire_for_ten_minutes() {
        let (mut lans, lan) = (Lans::default(), lan("a"));
        let [server, other] = [50, 51].map(|n| Ipv4Addr::new(192, 0, 2, n));
        let all = |lans: &mut Lans, now| lans.are_on_wire(&lan, |_| true, at(now));
        assert!(!all(&mut lans, 0.0), "nothing is known");
        assert_eq!(lans.is_on_wire(&lan, server, at(0.0)), None);
        lans.answered(&lan, other);
        assert_eq!(lans.is_on_wire(&lan, server, at(1.0)), Some(false));
        lans.answered(&lan, server);
        assert_eq!(lans.is_on_wire(&lan, server, at(599.999)), Some(true));
        assert!(all(&mut lans, 599.999));
        assert!(!lans.are_on_wire(&lan, |address| address != server, at(1.0)));
        assert_eq!(lans.is_on_wire(&lan, other, at(599.0)), None);
        assert!(!all(&mut lans, 599.5), "another may be in a sibling");
        lans.answered(&lan, other);
        assert!(
            all(&mut lans, 599.999)
                && !lans.are_on_wire(&lan, |address| address == server, at(600.0))
        );
        assert_eq!(lans.is_on_wire(&lan, server, at(600.0)), None);
        assert!(!all(&mut lans, 600.0));
        lans.tidy(at(1200.0));
        assert!(lans.0.is_empty(), "nothing is kept");
    }
}
