//! Judges what a source gives an ADD: each offer that is about to be requested, each lease, and each that came to nothing.
//!
//! | what a server would have it take | then |
//! |---|---|
//! | another address than the only acceptable one | the client waits for that one; if it is kept, it was given back before the DISCOVER |
//! | an address that its limits do not allow: outside the pool, or reserved | refused, twice; then the ADD fails |
//! | an address that another attachment has | refused, and the holder renews; nine times |
//! | an address that this ADD has declined | refused; the third time the ADD fails |
//! | a lease that ends before its address is known to be free | the ADD fails |
//! | a lease whose address a station uses | declined; the third time the ADD fails, and at once if no other will do |
//! | the offer of a server that has failed this ADD | the client waits a moment for another's |
//!
//! Each failed address is remembered with the reason: an ADD that gets nothing takes its failure from these.

use std::mem::discriminant;
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::binding::Quest;
use crate::conflict::PROBING;
use crate::effect::Failure;
use crate::identity::{AddressHolder, Lan};
use crate::limits::Unfit;
use crate::source::{Lease, Miss, Missed, RECEIVE_WINDOW};
use crate::time::Instant;
use crate::wire::Mac;

/// How many offers of addresses that other attachments have make the ADD fail.
const MOST_HELD: u32 = 10;

/// How many offers outside the pool make the ADD fail.
const MOST_UNFIT: u32 = 3;

/// How many DECLINEs of one address make the ADD fail: its server will not learn about the conflict. So many addresses that
/// stations use make it fail too.
const MOST_IN_USE: usize = 3;

/// The pause after an offer that is refused, doubled each time for an address that another attachment has.
const PAUSE: Duration = Duration::from_millis(250);

/// How many addresses are remembered, the latest.
const MOST: usize = 32;

/// What follows.
pub(super) enum Ruling {
    /// It is requested, kept, declined, or another offer is waited for.
    GoOn,
    /// It is refused, and DISCOVER leaves again after this pause.
    Refuse(Duration),
    /// The ADD fails.
    Fail(Failure),
}

/// Why an address came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The client says why.
    Missed(Miss),
    /// The pool does not allow it.
    Unfit(Unfit),
    /// Another attachment has it; `shared`: with the same Ethernet address.
    Held {
        holder: AddressHolder,
        shared: Option<Mac>,
    },
    /// A station uses it.
    InUse(Mac),
}

/// An address that came to nothing.
#[derive(Debug)]
struct Tried {
    server: Ipv4Addr,
    address: Ipv4Addr,
    cause: Cause,
    /// How often.
    times: u32,
}

/// All such addresses, once per reason, the latest last.
#[derive(Debug, Default)]
pub(super) struct Misses(Vec<Tried>);

impl Misses {
    /// Returns whether a server is there, though nothing of it was acceptable. One that did not acknowledge what it had offered may
    /// have left.
    pub(super) fn show_a_server(&self) -> bool {
        self.0
            .iter()
            .any(|tried| !matches!(tried.cause, Cause::Missed(Miss::Unacknowledged)))
    }

    /// Records why an address came to nothing. Returns how often that happened.
    fn note(&mut self, server: Ipv4Addr, address: Ipv4Addr, cause: Cause) -> u32 {
        let is_it = |tried: &Tried| {
            (tried.server, tried.address) == (server, address) && is_like(&tried.cause, &cause)
        };
        let before = self
            .0
            .iter()
            .position(is_it)
            .map_or(0, |at| self.0.remove(at).times);
        self.push(Tried {
            server,
            address,
            cause,
            times: before + 1,
        });
        before + 1
    }

    /// Returns who uses an address that was declined.
    fn user(&self, address: Ipv4Addr) -> Option<Mac> {
        self.0.iter().find_map(|tried| match tried.cause {
            Cause::InUse(by) if tried.address == address => Some(by),
            _ => None,
        })
    }

    /// Records that a station uses an address. Returns whether that was the last that the ADD tries.
    fn declined(&mut self, server: Ipv4Addr, address: Ipv4Addr, by: Mac) -> bool {
        self.note(server, address, Cause::InUse(by));
        let of_it =
            |tried: &&Tried| tried.address == address && is_like(&tried.cause, &Cause::InUse(by));
        let times: u32 = self.0.iter().filter(of_it).map(|tried| tried.times).sum();
        times as usize >= MOST_IN_USE || self.users().len() >= MOST_IN_USE
    }

    /// Returns how often an address came to nothing for such a reason.
    fn count(&self, cause: &Cause) -> u32 {
        self.0
            .iter()
            .filter(|tried| is_like(&tried.cause, cause))
            .map(|tried| tried.times)
            .sum()
    }

    fn push(&mut self, tried: Tried) {
        if self.0.len() == MOST {
            self.0.remove(0);
        }
        self.0.push(tried);
    }

    /// Returns the declined addresses, each once with its user.
    fn users(&self) -> Vec<(Ipv4Addr, Mac)> {
        let mut declined: Vec<(Ipv4Addr, Mac)> = Vec::new();
        for tried in &self.0 {
            if let Cause::InUse(by) = tried.cause {
                declined.retain(|(address, _)| *address != tried.address);
                declined.push((tried.address, by));
            }
        }
        declined
    }

    /// Returns the failure that names the addresses that others use, each once, if any was declined.
    pub(super) fn in_use(&self, lan: &Lan) -> Option<Failure> {
        let declined = self.users();
        match declined[..] {
            [] => None,
            [(address, by)] => Some(Failure::Conflict { address, by }),
            _ => Some(Failure::Conflicts {
                lan: lan.clone(),
                declined,
            }),
        }
    }

    /// Returns why an ADD got nothing, by the last address that came to nothing. `in_vain`: DISCOVERs since then without an
    /// offer. `None`: there is no such address, or the server did not acknowledge it.
    pub(super) fn failure(&self, lan: &Lan, in_vain: u32) -> Option<Failure> {
        let Tried {
            server,
            address,
            cause,
            ..
        } = self.0.last()?;
        let (server, address) = (*server, *address);
        match cause.clone() {
            Cause::Missed(Miss::Unwanted { wanted }) => Some(Failure::NotWanted {
                server,
                wanted,
                offered: address,
            }),
            Cause::Missed(Miss::Nak { message }) => Some(Failure::Nak {
                server,
                address,
                message,
                in_vain,
            }),
            Cause::Missed(Miss::Unacknowledged) => None,
            Cause::Unfit(why) => Some(Failure::Unfit {
                server: Some(server),
                address,
                why,
            }),
            Cause::Held { holder, shared } => Some(Failure::AddressHeld {
                server: Some(server),
                address,
                holder,
                shared,
            }),
            Cause::InUse(_) => self.in_use(lan),
        }
    }
}

impl Misses {
    /// Judges an offer that came to nothing.
    pub(super) fn missed(&mut self, quest: &Quest, missed: Missed) -> Ruling {
        let Missed {
            server,
            address,
            miss,
        } = missed;
        // For a running container the request is repeated later, since others wait for their turn; but every server, also a
        // slow one, may answer first. The third DISCOVER leaves some three seconds after the first.
        let unwanted = matches!(miss, Miss::Unwanted { .. });
        let times = self.note(server, address, Cause::Missed(miss));
        match unwanted && quest.adopts() && times > 2 {
            true => self.fail(quest),
            false => Ruling::GoOn,
        }
    }

    /// Judges a lease whose address a station uses. `may_decline`: its LAN has not had its DECLINEs.
    pub(super) fn used(
        &mut self,
        quest: &Quest,
        lease: &Lease,
        by: Mac,
        may_decline: bool,
    ) -> Ruling {
        let address = lease.ip();
        let is_last = self.declined(lease.server, address, by);
        let lan = quest.add.lan.clone();
        match quest.insists() == Some(address) {
            _ if !may_decline => Ruling::Fail(Failure::NotDeclined { lan, address, by }),
            true => Ruling::Fail(Failure::Conflict { address, by }),
            false if is_last => self.fail(quest),
            false => Ruling::GoOn,
        }
    }

    /// Judges an offer that is about to be requested, or a lease that a server has `granted`. `held`: another attachment has the
    /// address; `probed`: from when the address is known to be free, if it is probed for first.
    pub(super) fn judge(
        &mut self,
        quest: &Quest,
        lease: &Lease,
        granted: bool,
        held: Option<Cause>,
        probed: Option<Instant>,
    ) -> Ruling {
        let (server, address) = (lease.server, lease.ip());
        if let Some(cause) = quest.unfit(address).map(Cause::Unfit) {
            self.note(server, address, cause.clone());
            return match granted || self.count(&cause) >= MOST_UNFIT {
                true => self.fail(quest),
                // A server that pings first may need a second for its offer.
                false => Ruling::Refuse(PAUSE * 4),
            };
        }
        if let Some(cause) = held {
            let shared = matches!(cause, Cause::Held { shared, .. } if shared.is_some());
            let times = self.note(server, address, cause.clone());
            let no_other_will_do = quest.insists().is_some() || granted && shared;
            return match no_other_will_do || self.count(&cause) >= MOST_HELD {
                true => self.fail(quest),
                false => Ruling::Refuse((PAUSE * (1 << (times - 1))).min(RECEIVE_WINDOW)),
            };
        }
        match self.user(address).filter(|_| !granted) {
            Some(by) if self.declined(server, address, by) => self.fail(quest),
            Some(_) => Ruling::Refuse(PAUSE),
            None => match lease.times {
                Some(times) if granted && probed.is_some_and(|at| lease.expired(at)) => {
                    Ruling::Fail(Failure::TooShort {
                        server,
                        address,
                        lease: times.end,
                        probing: PROBING,
                    })
                }
                _ => Ruling::GoOn,
            },
        }
    }

    /// Fails the ADD by what came to nothing last.
    fn fail(&self, quest: &Quest) -> Ruling {
        let failure = self.failure(&quest.add.lan, 0);
        failure.map_or(Ruling::GoOn, Ruling::Fail)
    }
}

fn is_like(one: &Cause, other: &Cause) -> bool {
    match (one, other) {
        (Cause::Missed(one), Cause::Missed(other)) => discriminant(one) == discriminant(other),
        _ => discriminant(one) == discriminant(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const BY: Mac = Mac([2, 0, 0, 0, 0, 9]);

    fn address(n: u8) -> Ipv4Addr {
        Ipv4Addr::new(192, 0, 2, n)
    }

    fn nak() -> Cause {
        Cause::Missed(Miss::Nak { message: None })
    }

    #[test]
    fn the_last_miss_is_why_an_add_failed() {
        let lan = Lan::Network("lan".into());
        let mut misses = Misses::default();
        assert_eq!(misses.failure(&lan, 0), None);
        for n in [50, 51, 50] {
            misses.declined(SERVER, address(n), BY);
        }
        let declined = vec![(address(51), BY), (address(50), BY)];
        let in_use = Failure::Conflicts {
            lan: lan.clone(),
            declined,
        };
        assert_eq!(misses.failure(&lan, 0), Some(in_use.clone()));
        misses.note(SERVER, address(52), nak());
        let refused = Failure::Nak {
            server: SERVER,
            address: address(52),
            message: None,
            in_vain: 3,
        };
        assert_eq!(misses.failure(&lan, 3), Some(refused.clone()));
        assert_eq!(
            (misses.in_use(&lan), misses.user(address(51))),
            (Some(in_use), Some(BY))
        );
    }

    #[test]
    fn the_third_decline_is_the_last() {
        let last_of = |declines: &[(Ipv4Addr, u8)]| {
            let mut misses = Misses::default();
            let mut declined =
                |(server, n): &(Ipv4Addr, u8)| misses.declined(*server, address(*n), BY);
            declines.iter().map(&mut declined).collect::<Vec<_>>()
        };
        let other = address(2);
        assert_eq!(
            last_of(&[(SERVER, 50), (other, 50), (SERVER, 50)]),
            [false, false, true]
        );
        assert_eq!(
            last_of(&[
                (SERVER, 50),
                (SERVER, 51),
                (SERVER, 50),
                (other, 51),
                (SERVER, 52)
            ]),
            [false, false, false, false, true]
        );
    }

    #[test]
    fn whatever_servers_offer_little_is_remembered() {
        let mut misses = Misses::default();
        (0..=255).for_each(|n| _ = misses.note(SERVER, address(n), nak()));
        assert_eq!(misses.0.len(), MOST);
        assert_eq!(
            (
                misses.note(SERVER, address(0), nak()),
                misses.note(SERVER, address(255), nak())
            ),
            (1, 2)
        );
    }
}
