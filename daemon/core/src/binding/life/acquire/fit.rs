//! What servers would have an endpoint of Docker's take that is none of its pool: outside of it, or reserved.
//!
//! Docker takes no address from elsewhere, and what is reserved is somebody's. An offer is refused without a word, as another
//! server may have a better one; what was granted without an offer goes back at once.

use std::net::Ipv4Addr;
use std::ops::ControlFlow::{self, Continue};
use std::time::Duration;

use super::{Abort, Acquire};
use crate::binding::{Common, Cx, Life};
use crate::dhcpv4::Output;
use crate::effect::Failure;

/// So many offers are refused; the ADD fails at the last.
const MOST: u32 = 3;

/// The pause before the next DISCOVER, in which another server's offer to this one counts.
const PAUSE: Duration = Duration::from_secs(1);

/// What was refused so far.
#[derive(Debug, Default)]
pub(super) struct Misfits {
    count: u32,
    last: Option<Box<Failure>>,
}

impl Misfits {
    /// Returns why the ADD failed, if the last thing that it was offered was refused.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.last.as_deref().cloned()
    }
}

impl Acquire {
    /// Refuses an address from now on that was reserved since the ADD came in.
    pub(in crate::binding) fn reserve(&mut self, address: Ipv4Addr) {
        self.limits.as_mut().map(|limits| limits.reserved.insert(address));
    }

    /// Refuses what a server would have the ADD take that is none of its pool. Returns whether the ADD has failed by that.
    pub(super) fn misfits(
        &mut self,
        common: &mut Common,
        output: &mut Output,
        cx: &mut Cx<'_>,
    ) -> ControlFlow<Life, bool> {
        let Some((lease, granted)) = common.given(&self.client, output, None, cx.now.boot) else {
            return Continue(false);
        };
        let (server, address) = (lease.server, lease.ip());
        let Some(why) = self.limits.as_ref().and_then(|limits| limits.refuse(address)) else { return Continue(false) };
        tracing::warn!(attachment = %common.attachment, %address, %server, %why, "not taken");
        let failure = Failure::Unfit { server: Some(server), address, why };
        self.misfits.count += 1;
        self.misfits.last = Some(Box::new(failure.clone()));
        if granted || self.misfits.count >= MOST {
            if !granted {
                self.client.refuse(cx.now.boot, Duration::ZERO);
            }
            self.abort(common, Abort::Because(failure), cx)?;
            return Continue(true);
        }
        output.replace(self.client.refuse(cx.now.boot, PAUSE));
        Continue(false)
    }
}
