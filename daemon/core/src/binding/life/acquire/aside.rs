//! Asking from a macvlan beside the LAN's link, if nobody answers messages from the link itself (see `link::Line`).
//!
//! If an ADD that speaks from the LAN's link gets no answer to its first message, it sends the next one, usually a second
//! later, from a temporary macvlan, with the Ethernet address that the interface will have.
//!
//! The macvlan must be gone before the ADD is answered, with a lease or without one: Docker's own macvlan gets that address, and
//! the kernel does not set two with the same address up (EADDRINUSE). If the macvlan cannot be made, or fails, the ADD goes on
//! from the LAN's link.

use super::{Acquire, Phase};
use crate::binding::{Common, Cx};

impl Acquire {
    /// Continues from beside the link with the first message that must be sent again.
    pub(super) fn go_aside(&mut self, common: &mut Common, cx: &mut Cx<'_>) {
        let asks = self.phase == Phase::Ask && self.client.asked_in_vain(cx.now.boot) > 0;
        if asks && common.go_aside(cx) {
            tracing::debug!(attachment = %common.attachment, "no answer on the LAN's link: asking from a macvlan beside it");
            self.client.reopens();
        }
    }
}
