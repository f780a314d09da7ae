//! Looking for the reason before an ADD fails without an offer.

use std::time::Duration;

use super::{Acquire, Stage};
use crate::binding::{Common, Cx};
use crate::effect::Why;
use crate::silence::{Silence, Survey};
use crate::time::Instant;

/// How long before an ADD's limit the look begins. The host's firewall takes a few milliseconds to answer, and a busy host takes
/// seconds.
const AHEAD: Duration = Duration::from_secs(3);

/// How long after the host's boot its links count as newly up: switch ports may not forward yet.
const LATELY: Duration = Duration::from_secs(60);

/// How far the search for a reason is.
#[derive(Debug)]
pub(crate) enum Reason {
    /// Not begun. The number of frames that had come in on the link when the ADD began.
    NotLookedFor(u64),
    /// Under way. The number of frames that had come in when the ADD began.
    LookedFor(u64),
    /// There is an offer, or nothing could be found out.
    None,
    /// What was found.
    Found(Box<Silence>),
}

impl Acquire {
    /// Returns when to look for a reason, if one may be needed.
    ///
    /// That is before the limit, so that the reason is there in time and the ADD is answered as promised.
    pub(super) fn survey_at(&self) -> Option<(Instant, Why)> {
        let wanted =
            matches!(self.reason, Reason::NotLookedFor(_)) && self.stage == Stage::Exchanging;
        let half = self.limit.saturating_since(self.began) / 2;
        wanted.then(|| {
            (
                self.began + half.max((half * 2).saturating_sub(AHEAD)),
                Why::Call,
            )
        })
    }

    /// Looks for a reason once it is time, if there is no offer by then.
    pub(super) fn survey(&mut self, common: &Common, cx: &mut Cx<'_>) {
        if self.survey_at().is_none_or(|(at, _)| cx.now.boot < at) {
            return;
        }
        let Reason::NotLookedFor(before) = self.reason else {
            return;
        };
        if self.client.tally().requested.is_some() {
            self.reason = Reason::None;
            return;
        }
        self.reason = Reason::LookedFor(before);
        cx.out.survey(
            common.id,
            common.link.clone(),
            common.identity.lan.parent().map(str::to_owned),
        );
    }

    /// Records what was found.
    pub(in crate::binding) fn on_surveyed(&mut self, survey: Survey) {
        if let Reason::LookedFor(before) = self.reason {
            let ifname = self.ifname.clone();
            // A host that has just booted has had its own links no longer than that.
            let booted =
                Some(Instant::BOOT).filter(|boot| self.began.saturating_since(*boot) < LATELY);
            let up_for = self
                .came_up
                .or(booted)
                .map(|at| self.limit.saturating_since(at));
            self.reason = Reason::Found(Box::new(Silence {
                ifname,
                before,
                up_for,
                survey,
            }));
        }
    }
}
