//! Why an ADD failed.

use super::{Acquire, Phase};
use crate::effect::Failure;
use crate::identity::Lan;
use crate::time::{Instant, whole_millis};

/// Returns why there is no lease when time is up.
pub(super) fn timed_out(acquire: &Acquire, lan: &Lan, now: Instant) -> Failure {
    if let Some(failure) = acquire
        .misses
        .in_use(lan)
        .filter(|_| matches!(acquire.phase, Phase::Probe | Phase::Fit))
    {
        return failure;
    }
    let waited = whole_millis(now.saturating_since(acquire.quest.began));
    let waiting_for = match acquire.phase {
        Phase::Queue | Phase::Over => {
            "its turn behind others on the same LAN, so no server was asked: try again, or raise `timeout`"
        }
        Phase::Probe => {
            "the probes of strict conflict detection, which take up to 7 s: raise `timeout`"
        }
        Phase::Write => "the store to write the lease",
        Phase::Forget { by: Some(_) } => {
            "the store to delete a lease whose address another station uses"
        }
        Phase::Forget { by: None } => "the store to delete a lease that has ended",
        Phase::Fit => {
            "its temporary macvlan to be removed, the interface's MTU to be set, or the check whether the station that claims the address claims every address"
        }
        Phase::Ask => return unanswered(acquire, lan, now),
    };
    Failure::TimedOut(waiting_for, waited)
}

fn unanswered(acquire: &Acquire, lan: &Lan, now: Instant) -> Failure {
    if let Some(none) = acquire.resort.as_ref().and_then(|resort| resort.none()) {
        return Failure::NoAddress(none.clone());
    }
    let tally = acquire.client.tally();
    let waited = whole_millis(now.saturating_since(acquire.since));
    let queued = whole_millis(acquire.queued);
    // The current request has had no answer so far.
    let asks =
        acquire.client.requesting().is_some() && tally.requested.is_some_and(|(.., sent)| sent > 1);
    let in_vain = if tally.requested.is_none() {
        tally.discovers
    } else {
        0
    };
    if let Some(failure) = acquire.misses.failure(lan, in_vain).filter(|_| !asks) {
        return failure;
    }
    if let Some((server, address, sent)) = tally.requested {
        return Failure::NoAck {
            server,
            address,
            sent,
            waited,
            queued,
            tally: Box::new(tally.clone()),
        };
    }
    Failure::NoOffer {
        lan: lan.clone(),
        sent: tally.discovers,
        waited,
        queued,
        tally: Box::new(tally.clone()),
        silence: acquire.reason.silence(),
        cut: !acquire.quest.add.hurried.is_zero(),
        kept: 0,
    }
}
