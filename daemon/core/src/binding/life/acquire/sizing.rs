//! The MTU that a lease names, set before its ADD is answered.
//!
//! It is tried once, after the record says that it is due. [`crate::binding::life::hold`] makes later tries: no ADD fails for
//! its MTU.

use std::ops::ControlFlow::Break;

use super::{Acquire, Stage};
use crate::binding::common::not_gone;
use crate::binding::{Common, Cx, Life, Next, SAME, Task, Waiter};
use crate::effect::Outcome;
use crate::link::{LinkCause, Step, Target};

impl Acquire {
    /// Returns the MTU that the lease names.
    fn wanted_mtu(&self) -> Option<u32> {
        self.client.lease()?.mtu.map(u32::from)
    }

    /// Returns whether the lease wants an MTU that the link does not have.
    pub(super) fn resizes(&self) -> bool {
        self.wanted_mtu().is_some_and(|wanted| wanted != self.mtu)
    }

    /// Sets the MTU, if the server gave one.
    pub(super) fn make_fit(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> Next {
        // A link of the host keeps its own.
        if self.wanted_mtu().is_none() || common.is_on_host() {
            return match self.held(common, cx) {
                Some(hold) => Break(Life::Held(hold)),
                None => SAME,
            };
        }
        self.stage = Stage::Sizing;
        self.size(common, cx)
    }

    /// Sets the interface's MTU to what a lease says, at most the parent's; without a parent, at most what it already is. Ends
    /// in [`Acquire::sized`].
    fn size(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> Next {
        match common.identity.lan.parent().map(str::to_owned) {
            Some(ifname) => {
                cx.out.inspect(Waiter::Binding(common.id, Task::Work), Target::Host { ifname });
                SAME
            }
            None => self.resize(common, None, cx),
        }
    }

    fn resize(&mut self, common: &mut Common, most: Option<u32>, cx: &mut Cx<'_>) -> Next {
        let Some(wanted) = self.wanted_mtu() else { return SAME };
        let mtu = wanted.min(most.unwrap_or(self.mtu));
        if mtu == self.mtu {
            return self.sized(common, Ok(mtu), cx);
        }
        // A change for another attachment goes on there.
        if cx.is_changing(&common.link) {
            self.awaits_change = true;
            return SAME;
        }
        cx.change(Waiter::Binding(common.id, Task::Work), &common.link, vec![Step::Mtu(mtu)]);
        SAME
    }

    /// Sets the MTU that waited for another change of the interface to end.
    pub(super) fn size_after_all(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> Next {
        match std::mem::take(&mut self.awaits_change) && self.stage == Stage::Sizing {
            true => self.size(common, cx),
            false => SAME,
        }
    }

    /// Goes on after the look at the LAN's link, or the change.
    pub(super) fn on_sizing(&mut self, common: &mut Common, outcome: Outcome, cx: &mut Cx<'_>) -> Next {
        let grows = self.wanted_mtu().is_some_and(|wanted| wanted > self.mtu);
        match outcome {
            Outcome::Inspected(Err(cause)) if grows => self.sized(common, Err(not_gone(cause)), cx),
            Outcome::Inspected(parent) => self.resize(common, parent.ok().map(|view| view.mtu), cx),
            Outcome::Applied { result, .. } => self.sized(common, result.map(|view| view.mtu), cx),
            outcome => {
                tracing::warn!(?outcome, "outcome of another kind of effect");
                SAME
            }
        }
    }

    /// Goes on after the MTU was set, or could not be: that is tried again, no ADD fails for it.
    pub(super) fn sized(&mut self, common: &mut Common, result: Result<u32, LinkCause>, cx: &mut Cx<'_>) -> Next {
        if self.stage != Stage::Sizing {
            return SAME;
        }
        if common.is_in_doubt() {
            // It waits until it is known whether another station uses the address.
            self.sized = Some(Box::new(result));
            return SAME;
        }
        let noted = self.resizes();
        if let Ok(mtu) = &result {
            self.mtu = *mtu;
        }
        match result {
            Err(cause) if cause.is_gone() => self.fail_link(common, cause, cx),
            _ if let Some(by) = common.heard_conflict() => {
                self.forget_won(common, Some(by), false, cx);
                SAME
            }
            result => {
                let Some(mut hold) = self.held(common, cx) else { return SAME };
                let known = match result {
                    Ok(_) => !noted,
                    Err(cause) => {
                        hold.size_failed(common, &cause, cx);
                        noted
                    }
                };
                if !known {
                    hold.record_again();
                }
                Break(Life::Held(hold))
            }
        }
    }
}
