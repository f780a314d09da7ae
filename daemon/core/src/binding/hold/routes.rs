//! Routes that are due at a binding's interface.
//!
//! They are put on when the address is there and the link is up. Until then they are due: after an ADD whose main plugin is
//! not told of all, and after the link was set down, with which the kernel takes them all. That is no change that a profile
//! could wish to keep out: the interface is to have what its lease gave it. What somebody removes from a link that is up stays
//! away until it is set down: single routes are not listened for, as a container that runs a routing protocol would drown
//! all else that is heard.

use super::Hold;
use super::work::{Stage, Work};
use crate::binding::{Common, Cx};
use crate::interface::Presence;
use crate::link::Step;

impl Work {
    /// Records that routes are missing, also those that a change under way has put on, and those that the kernel refused while
    /// the link was down.
    pub(super) fn lacks_routes(&mut self) {
        self.former.routes_due = true;
        self.refused.retain(|step| !matches!(step, Step::AddRoute(_)));
        if let Stage::Applying { routed, .. } = &mut self.stage {
            *routed = false;
        }
    }
}

impl Hold {
    /// Records that the routes which a main plugin is not told of are to be put on when the address is there.
    pub(in crate::binding) fn route_later(&mut self) {
        let work = self.due();
        work.lacks_routes();
        work.only_late = true;
    }

    /// Records that the link is down: the kernel has taken its routes.
    pub(in crate::binding) fn on_down(&mut self, common: &Common, cx: &Cx<'_>) {
        let differs = self.work.as_ref().is_some_and(|work| work.differs());
        if self.client.lease().is_some() && (common.presence(cx.interfaces) == Presence::There || differs) {
            let work = self.due();
            work.lacks_routes();
            work.only_late = false;
        }
    }

    /// Records that the link is up. A look under way may have seen it down, and nothing else would tell of it again.
    pub(in crate::binding) fn on_up(&mut self) {
        if let Some(Stage::Looking { came_up, .. }) = self.work.as_mut().map(|work| &mut work.stage) {
            *came_up = true;
        }
    }

    /// Records that the address is not there. `taken_off`: somebody took it off; what goes by it is his, too.
    pub(super) fn route_no_more(&mut self, taken_off: bool) {
        if let Some(work) = self.work.as_mut().filter(|_| taken_off) {
            work.former.routes_due = false;
        }
    }

    /// Records that a main plugin is about to put the address on again, and is not told of all routes.
    pub(in crate::binding) fn route_again(&mut self, common: &Common, cx: &Cx<'_>) {
        let late = self.client.lease().is_some_and(|lease| common.grant(lease).has_late(&common.profile));
        if late && common.presence(cx.interfaces) != Presence::There {
            self.route_later();
        }
    }
}
