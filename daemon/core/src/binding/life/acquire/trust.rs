//! A silent server: an ADD that cannot wait for long makes do with the lease that its identity has still (RFC 2131 §3.2).

use std::sync::Arc;

use super::{Acquire, Stage};
use crate::binding::{Common, Cx, Next};
use crate::dhcpv4::Client;
use crate::dhcpv4::lease::Lease;
use crate::time::Instant;

impl Acquire {
    /// Returns when the lease that there is will do, as long as no server says anything.
    pub(super) fn trusts_at(&self) -> Option<Instant> {
        let waits = matches!(self.stage, Stage::AwaitingPermit | Stage::Exchanging);
        let tally = self.client.tally();
        let heard = tally.requested.is_some() || tally.nak.is_some() || tally.unwanted.is_some();
        let refused = heard || tally.declined.is_some() || !self.declined.is_empty();
        self.trusts.as_ref().filter(|_| waits && !refused).map(|(_, at)| *at)
    }

    /// Takes that lease out when its time has come, if it will do: not where somebody else is known to use its address, nor where
    /// that is none of its pool by now.
    pub(super) fn take_trusted(&mut self, common: &Common, cx: &Cx<'_>) -> Option<Arc<Lease>> {
        self.trusts_at().filter(|at| cx.now.boot >= *at)?;
        let (lease, _) = self.trusts.take()?;
        let is_free = common.claim().is_none() && common.tenant(lease.ip(), cx).is_none();
        let fits = self.limits.as_ref().is_none_or(|limits| limits.refuse(lease.ip()).is_none());
        Some(lease).filter(|lease| is_free && fits && !lease.expired(cx.now.boot))
    }

    /// Takes the lease as it is. Whoever holds it goes on asking for it.
    pub(super) fn trust(&mut self, common: &mut Common, lease: Arc<Lease>, cx: &mut Cx<'_>) -> Next {
        tracing::warn!(attachment = %common.attachment, address = %lease.address, "no server answers: the lease is used as it is");
        common.exchange.close(cx);
        self.trusted = true;
        let (now, rng) = (cx.now.boot, cx.rng.fork());
        self.client = Client::trust(common.sender(), lease, now, rng);
        self.client.set_mtu(self.mtu);
        self.make_durable(common, cx)
    }
}
