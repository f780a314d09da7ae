//! Asking from a macvlan beside the LAN's link, if nobody answers what is sent from the link itself (see `link::Beside`).
//!
//! An ADD that speaks from the LAN's link, after a first message without an answer, sends the next one a second later from a
//! temporary macvlan, with the Ethernet address of the interface that is to come.
//!
//! The macvlan must be gone before the ADD is answered, with a lease or without one: Docker's own macvlan gets that address, and
//! the kernel sets no two with one address up (EADDRINUSE). If it cannot be made, or fails, the ADD goes on from the LAN's link.

use super::{Acquire, Stage};
use crate::binding::{Common, Cx, Next, SAME};
use crate::dhcpv4::Event;
use crate::link::{Beside, LinkCause};

impl Acquire {
    /// Goes on from there with the first message that would be sent again.
    pub(super) fn go_aside(&mut self, common: &mut Common, cx: &mut Cx<'_>) {
        let asks = self.stage == Stage::Exchanging && self.client.asked_in_vain(cx.now.boot) > 0;
        if asks && self.beside == Beside::Possible {
            tracing::debug!(attachment = %common.attachment, "no answer on the LAN's link: asking from a macvlan beside it");
            self.beside = Beside::Now;
            common.go_aside(cx);
            self.client.reopens();
        }
    }

    /// Goes on from the LAN's link if the sockets that failed were beside it. `Err`: they were not.
    pub(super) fn come_back(
        &mut self,
        common: &mut Common,
        cause: LinkCause,
        cx: &mut Cx<'_>,
    ) -> Result<Next, LinkCause> {
        if self.beside != Beside::Now {
            return Err(cause);
        }
        tracing::info!(attachment = %common.attachment, %cause, "no macvlan to ask from beside the LAN's link");
        self.beside = Beside::Never;
        self.client.reopens();
        Ok(self.event(common, Event::Clock, cx))
    }

    /// Waits until the macvlan is gone, if there is one. Its sockets are closed. Returns whether it does.
    pub(super) fn parts(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> bool {
        common.come_back();
        let parts = cx.out.is_aside(common.id);
        if parts {
            self.stage = Stage::Parting;
        }
        parts
    }

    /// Goes on once it is gone.
    pub(super) fn parted(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> Next {
        match self.stage {
            Stage::Parting if !cx.out.is_aside(common.id) => self.make_fit(common, cx),
            Stage::Parting
            | Stage::AwaitingPermit
            | Stage::Exchanging
            | Stage::Probing
            | Stage::Persisting { .. }
            | Stage::Doubting
            | Stage::Forgetting { .. }
            | Stage::Sizing
            | Stage::Over => SAME,
        }
    }
}
