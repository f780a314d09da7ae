//! A silent server: an ADD that cannot wait for long uses the lease that its identity still has (RFC 2131 §3.2).

use std::sync::Arc;
use std::time::Duration;

use super::{Acquire, Phase};
use crate::binding::common::tenancy;
use crate::binding::{Common, Cx, Next};
use crate::source::Lease;
use crate::time::Instant;

/// How long the store and the temporary macvlan may take once a lease is used unconfirmed.
const SETTLING: Duration = Duration::from_secs(3);

impl Acquire {
    /// Returns when to use the existing lease, if no server answers by then.
    pub(super) fn trusts_at(&self) -> Option<Instant> {
        let waits = matches!(self.phase, Phase::Queue | Phase::Ask);
        let heard = self.client.tally().requested.is_some() || self.misses.show_a_server();
        self.trusts
            .as_ref()
            .filter(|_| waits && !heard)
            .map(|(_, at)| *at)
    }

    /// Takes that lease out when its time has come, unless another station is known to use its address, or its pool no longer
    /// allows the address.
    pub(super) fn take_trusted(&mut self, common: &Common, cx: &Cx<'_>) -> Option<Arc<Lease>> {
        self.trusts_at().filter(|at| cx.now.boot >= *at)?;
        let (lease, _) = self.trusts.take()?;
        let is_free = common.claim().is_none() && tenancy::tenant(common, lease.ip(), cx).is_none();
        let fits = self.quest.unfit(lease.ip()).is_none();
        Some(lease).filter(|lease| is_free && fits && !lease.expired(cx.now.boot))
    }

    /// Takes the lease unconfirmed. Its holder keeps asking for it.
    pub(super) fn trust(
        &mut self,
        common: &mut Common,
        lease: Arc<Lease>,
        cx: &mut Cx<'_>,
    ) -> Next {
        tracing::warn!(attachment = %common.attachment, address = %lease.address, "no server answers: using the last lease as it is");
        common.exchange.close(cx.out);
        self.trusted = true;
        // The limit may be this close because no server was expected to answer: what is left to do has its own time.
        self.limit = self.limit.max(cx.now.boot + SETTLING);
        self.client.trust(lease, cx.now.boot);
        self.make_durable(common, cx)
    }
}
