//! Why an ADD came to nothing.

use super::{Acquire, Reason, Stage};
use crate::effect::Failure;
use crate::identity::Lan;
use crate::time::{Instant, whole_millis};

impl Acquire {
    /// Returns why there is no lease although the time is up.
    pub(super) fn timed_out(&self, lan: &Lan, now: Instant) -> Failure {
        if let Some(failure) = self.in_use(lan).filter(|_| matches!(self.stage, Stage::Probing | Stage::Doubting)) {
            return failure;
        }
        let waited = whole_millis(now.saturating_since(self.began));
        let waiting_for = match self.stage {
            Stage::AwaitingPermit | Stage::Over => "its turn: others on the same LAN wait for the DHCP server",
            Stage::Probing => "the probes of strict conflict detection, which take up to 7 s: raise `timeout`",
            Stage::Persisting { .. } => "the store to write the lease",
            Stage::Forgetting { by: Some(_), .. } => "the store to forget an address that is in use by somebody else",
            Stage::Forgetting { by: None, .. } => "the store to forget a lease that has ended",
            Stage::Doubting => "word whether a station that claims the address claims every address",
            Stage::Parting => "the macvlan that it asked from to go",
            Stage::Sizing => "the interface's MTU to be set",
            Stage::Exchanging => return self.unanswered(lan, now),
        };
        Failure::TimedOut { waiting_for, waited }
    }

    /// Returns that another address was offered than the only one that will do, and by whom.
    pub(super) fn not_wanted(&self) -> Option<Failure> {
        let (server, offered) = self.client.tally().unwanted?;
        self.insists.map(|wanted| Failure::NotWanted { server, wanted, offered })
    }

    /// Returns that others use what it was offered, if any was.
    pub(super) fn in_use(&self, lan: &Lan) -> Option<Failure> {
        match &self.declined[..] {
            [] => None,
            [(address, by)] => Some(Failure::Conflict { address: *address, by: *by }),
            declined => Some(Failure::Conflicts { lan: lan.clone(), declined: declined.to_vec() }),
        }
    }

    fn unanswered(&self, lan: &Lan, now: Instant) -> Failure {
        let (tally, waited, queued) =
            (self.client.tally(), whole_millis(now.saturating_since(self.since)), whole_millis(self.queued));
        if let Some(failure) = self.not_wanted().filter(|_| tally.declined.is_none()) {
            return failure;
        }
        if let Some(failure) = self.misfits.failure().filter(|_| tally.requested.is_none()) {
            return failure;
        }
        if let Some(failure) = self.again.failure().filter(|_| tally.requested.is_none() && tally.declined.is_none()) {
            return failure;
        }
        if let Some((server, address, message)) = tally.nak.clone() {
            let in_vain = if tally.requested.is_none() { tally.discovers } else { 0 };
            return Failure::Nak { server, address, message, in_vain };
        }
        if let Some(failure) = self.in_use(lan).filter(|_| tally.declined.is_some()) {
            return failure;
        }
        if let Some((server, address, sent)) = tally.requested {
            return Failure::NoAck { server, address, sent, waited, queued, tally: Box::new(tally.clone()) };
        }
        Failure::NoOffer {
            lan: lan.clone(),
            sent: tally.discovers,
            waited,
            queued,
            tally: Box::new(tally.clone()),
            silence: match &self.reason {
                Reason::Found(silence) => Some(silence.clone()),
                Reason::NotLookedFor(_) | Reason::LookedFor(_) | Reason::None => None,
            },
            cut: false,
        }
    }
}
