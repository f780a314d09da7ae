//! The MTU that a lease names, set before its ADD is answered.
//!
//! It is tried once, and that it is due stands in the record before. Later tries are [`super::work`]'s: no ADD
//! fails for its MTU.

use super::work::LONGEST_MTU_PAUSE;
use super::{Acquire, Binding, Cx, Life, Stage};
use crate::effect::Outcome;
use crate::link::LinkCause;

impl Acquire {
    /// Returns the MTU that the lease names.
    fn wanted_mtu(&self) -> Option<u32> {
        self.client.lease()?.mtu.map(u32::from)
    }

    /// Tells whether the lease wants another MTU than the link has.
    pub(super) fn resizes(&self) -> bool {
        self.wanted_mtu().is_some_and(|wanted| wanted != self.mtu)
    }
}

impl Binding {
    /// Records which MTU the interface of a held lease has: what the client asks for from here on fits it.
    pub(super) fn know_mtu(&mut self, mtu: u32) {
        if let Life::Held(hold) = &mut self.life {
            hold.client.set_mtu(mtu);
        }
    }

    /// Sets the MTU, if the server gave one.
    pub(super) fn make_fit(&mut self, cx: &mut Cx<'_>) {
        let Life::Acquiring(acquire) = &mut self.life else { return };
        if acquire.wanted_mtu().is_none() {
            return self.held(cx);
        }
        acquire.stage = Stage::Sizing;
        self.size(cx);
    }

    /// Sets the interface's MTU to what a lease says, at most the parent's; without a parent, at most what it is already.
    /// Ends in [`Binding::sized`].
    fn size(&mut self, cx: &mut Cx<'_>) {
        match self.identity.lan.parent().map(str::to_owned) {
            Some(ifname) => self.look_at_parent(ifname, cx),
            None => self.resize(None, cx),
        }
    }

    fn resize(&mut self, most: Option<u32>, cx: &mut Cx<'_>) {
        let Life::Acquiring(acquire) = &self.life else { return };
        let Some(wanted) = acquire.wanted_mtu() else { return };
        let mtu = wanted.min(most.unwrap_or(acquire.mtu));
        if mtu == acquire.mtu {
            return self.sized(Ok(mtu), cx);
        }
        self.apply_mtu(mtu, cx);
    }

    /// Goes on after the look at the LAN's link, or the change.
    pub(super) fn on_sizing(&mut self, outcome: Outcome, cx: &mut Cx<'_>) {
        let Life::Acquiring(acquire) = &self.life else { return };
        let grows = acquire.wanted_mtu().is_some_and(|wanted| wanted > acquire.mtu);
        match outcome {
            Outcome::Inspected(Err(cause)) if grows => self.sized(Err(super::not_gone(cause)), cx),
            Outcome::Inspected(parent) => self.resize(parent.ok().map(|view| view.mtu), cx),
            Outcome::Applied { result, .. } => self.sized(result.map(|view| view.mtu), cx),
            outcome => tracing::warn!(?outcome, "outcome of another kind of effect"),
        }
    }

    /// Keeps the outcome until it is known whether somebody else uses the address.
    fn size_in_doubt(&mut self, result: Result<u32, LinkCause>) {
        if let Life::Acquiring(acquire) = &mut self.life {
            acquire.sized = Some(Box::new(result));
        }
    }

    /// Goes on after the MTU was set, or could not be: that is tried again, no ADD fails for it.
    pub(super) fn sized(&mut self, result: Result<u32, LinkCause>, cx: &mut Cx<'_>) {
        self.work = None;
        let Life::Acquiring(acquire) = &mut self.life else { return };
        if acquire.stage != Stage::Sizing {
            return;
        }
        if self.is_in_doubt() {
            return self.size_in_doubt(result);
        }
        let Life::Acquiring(acquire) = &mut self.life else { return };
        let noted = acquire.resizes();
        if let Ok(mtu) = &result {
            acquire.mtu = *mtu;
        }
        match result {
            Err(cause) if cause.is_gone() => self.fail_link(cause, cx),
            _ if let Some(by) = self.heard_conflict() => self.forget_won(Some(by), false, cx),
            result => {
                self.held(cx);
                // It may have ended meanwhile.
                if !matches!(self.life, Life::Held(_)) {
                    return;
                }
                let known = match result {
                    Ok(_) => !noted,
                    Err(cause) => {
                        self.size_failed(&cause, cx);
                        noted
                    }
                };
                if !known {
                    self.record_again(cx);
                }
            }
        }
    }

    /// Records that the MTU which came with the ADD is still to be set.
    pub(super) fn size_later(&mut self) {
        self.due().former.mtu_due = true;
    }

    /// Records why it could not be set yet.
    pub(super) fn size_failed(&mut self, cause: &LinkCause, cx: &mut Cx<'_>) {
        self.size_later();
        self.work_later(cause, LONGEST_MTU_PAUSE, cx);
    }
}
