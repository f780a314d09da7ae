//! Looking for the reason before an ADD fails without an offer.

use std::time::Duration;

use crate::binding::{Cx, Quest};
use crate::silence::{AHEAD, Silence, Survey};
use crate::time::Instant;

/// How long after the host's boot its links count as newly up: switch ports may not forward yet.
const LATELY: Duration = Duration::from_secs(60);

/// How long after an ADD began the frames that came in are counted first: most ADDs have their answer by then. If carrier came
/// later, not only the ADD's interface came up, but also the links below it.
const COUNTS: Duration = Duration::from_secs(1);

/// How far the search for a reason is.
#[derive(Debug)]
pub(super) enum Reason {
    /// Not begun.
    NotLookedFor,
    /// The frames that had come in soon after the ADD began, once they are counted.
    Counted(Option<u64>),
    /// Under way. The frames that had come in soon after the ADD began.
    LookedFor(Option<u64>),
    /// There is an offer, or nothing could be found out.
    None,
    /// What was found.
    Found(Box<Silence>),
}

impl Reason {
    /// Returns when to count frames or to look for a reason, if one may be needed, of an ADD that lasts from `began` to `limit`.
    ///
    /// That is before the limit, so that the reason is there in time and the ADD is answered as promised.
    pub(super) fn due_at(&self, began: Instant, limit: Instant) -> Option<Instant> {
        let half = limit.saturating_since(began) / 2;
        let after = match self {
            Self::NotLookedFor => COUNTS.min(half / 2),
            Self::Counted(_) => half.max((half * 2).saturating_sub(AHEAD)),
            Self::LookedFor(_) | Self::None | Self::Found(_) => return None,
        };
        Some(began + after)
    }

    /// Counts frames, or looks for a reason, now that this is due.
    pub(super) fn look(&mut self, cx: &mut Cx<'_>) {
        let (lan, link) = (&cx.own.identity.lan, &cx.own.link);
        let (next, counts) = match *self {
            Self::Counted(before) => (Self::LookedFor(before), false),
            _ => (Self::Counted(None), true),
        };
        *self = next;
        cx.out.survey(cx.own.id, link.clone(), lan, counts);
    }

    /// Records what was found for an ADD at this link.
    pub(super) fn found(&mut self, survey: Survey, ifname: &str, quest: &Quest, limit: Instant) {
        match *self {
            Self::Counted(_) => *self = Self::Counted(survey.received),
            Self::LookedFor(before) => {
                let began = quest.began;
                // A host that has just booted has had its own links no longer than that.
                let booted =
                    Some(Instant::BOOT).filter(|boot| began.saturating_since(*boot) < LATELY);
                let came_up = quest.came_up;
                let late = came_up.filter(|at| at.saturating_since(began) >= COUNTS);
                let up_for = late.or(booted).map(|at| limit.saturating_since(at));
                *self = Self::Found(Box::new(Silence {
                    ifname: ifname.to_owned(),
                    before,
                    up_for,
                    survey,
                    server: None,
                }));
            }
            Self::NotLookedFor | Self::None | Self::Found(_) => {}
        }
    }
}
