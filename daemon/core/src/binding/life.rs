//! The lives of a binding: what each does when something happens, and what comes after it.

pub(super) mod acquire;
pub(super) mod hold;
pub(super) mod release;

use std::ops::ControlFlow;

use super::holders::Standing;
use super::{Acquire, Common, Cx, Found, Hold, Release, Want};
use crate::effect::{BindingState, ExchangeId, Outcome, StoreCause, Why};
use crate::interface::News;
use crate::limits::Limits;
use crate::link::{LinkCause, LinkView};
use crate::record::Record;
use crate::source::{Client, Lease, Signal};
use crate::time::Instant;
use crate::wire::Mac;
use crate::wire::frame::{Arp, Frame};

/// The life of a binding.
#[derive(Debug)]
pub(crate) enum Life {
    /// An ADD waits for a lease.
    Acquiring(Box<Acquire>),
    /// A lease is held, or looked for again.
    Held(Box<Hold>),
    /// The lease is being given back.
    Releasing(Box<Release>),
}

impl Life {
    /// Applies other limits to an ADD that waits for a lease.
    pub(crate) fn limit(&mut self, limits: &Limits) {
        match self {
            Self::Acquiring(acquire) => acquire.limit(limits),
            Self::Held(_) | Self::Releasing(_) => {}
        }
    }

    /// Returns the life, for queries.
    pub(super) fn get(&self) -> &dyn Living {
        match self {
            Self::Acquiring(acquire) => &**acquire,
            Self::Held(hold) => &**hold,
            Self::Releasing(release) => &**release,
        }
    }

    /// Returns the life, mutably. This is the only place that finds the life to which something happens.
    pub(super) fn get_mut(&mut self) -> &mut dyn Living {
        match self {
            Self::Acquiring(acquire) => &mut **acquire,
            Self::Held(hold) => &mut **hold,
            Self::Releasing(release) => &mut **release,
        }
    }
}

/// The life that follows if this one has ended; `Continue`: it goes on.
pub(super) type Next = ControlFlow<Life>;

/// The life goes on.
pub(super) const SAME: Next = ControlFlow::Continue(());

/// What every life can be asked, and is told. What happens to only one life belongs to that life.
pub(super) trait Living {
    /// Returns whether the binding is the live holder of its identity. An abandoned binding is not.
    fn is_live(&self) -> bool;

    /// Returns the binding's standing: how far it is, and its claim on an address.
    fn standing(&self, now: Instant) -> Standing;

    /// Returns the lease that the binding holds, if callers may hear about it, or gives back.
    fn lease<'a>(&'a self, common: &'a Common, now: Instant) -> Option<&'a Lease>;

    /// Returns the client, if there is one.
    fn client(&self) -> Option<&Client>;

    /// Returns the client, if there is one, mutably.
    fn client_mut(&mut self) -> Option<&mut Client>;

    /// Returns the state for `list`: the client's, if there is one.
    fn state(&self) -> BindingState {
        self.client().map_or(BindingState::Releasing, |client| {
            BindingState::Client(client.state())
        })
    }

    /// Returns when the clock next matters to it, and why.
    fn deadline(&self) -> Option<(Instant, Why)>;

    /// Returns what the store should hold now.
    fn record(&self, common: &Common, cx: &Cx<'_>) -> Option<Record>;

    fn may_write(&self, _common: &Common, _cx: &Cx<'_>) -> bool {
        true
    }

    /// Returns whether the link that could not be used no longer exists, as far as this binding can say.
    fn is_lost(&self, _common: &Common, cause: &LinkCause, _cx: &mut Cx<'_>) -> bool {
        cause.is_gone()
    }

    /// Does what is due by the clock.
    fn on_clock(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> Next;

    /// Handles a signal to its client, if there is one, and the client's output.
    fn signal(&mut self, _common: &mut Common, _signal: Signal<'_>, _cx: &mut Cx<'_>) -> Next {
        SAME
    }

    /// Goes on when its sockets are open.
    fn on_opened(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> Next {
        self.signal(common, Signal::Opened, cx)
    }

    /// Goes on after its sockets could not be opened, or failed.
    fn on_unopened(&mut self, common: &mut Common, cause: LinkCause, cx: &mut Cx<'_>) -> Next;

    /// Goes on after the LAN's link was looked for.
    fn on_line(
        &mut self,
        common: &mut Common,
        result: Result<LinkView, LinkCause>,
        cx: &mut Cx<'_>,
    ) -> Next {
        match result {
            Ok(view) => {
                common.found_line(&view);
                self.on_clock(common, cx)
            }
            Err(cause) => self.on_no_line(common, cause, cx),
        }
    }

    /// Goes on after the LAN's link could not be found.
    fn on_no_line(&mut self, common: &mut Common, cause: LinkCause, cx: &mut Cx<'_>) -> Next {
        self.on_unopened(common, cause, cx)
    }

    /// Goes on with a frame from its sockets.
    fn on_frame(&mut self, common: &mut Common, frame: &Frame<'_>, cx: &mut Cx<'_>) -> Next {
        self.signal(common, frame.into(), cx)
    }

    /// Goes on after a write.
    fn on_persisted(
        &mut self,
        common: &mut Common,
        result: Result<(), StoreCause>,
        cx: &mut Cx<'_>,
    ) -> Next;

    /// Goes on after a look at the interface, or a change of it.
    fn on_worked(&mut self, common: &mut Common, outcome: Outcome, cx: &mut Cx<'_>) -> Next;

    /// Goes on with what happened at the interface.
    fn on_news(&mut self, common: &mut Common, news: News<'_>, cx: &mut Cx<'_>) -> Next;

    /// Goes on with what conflict detection found out.
    fn on_found(&mut self, common: &mut Common, found: Found, cx: &mut Cx<'_>) -> Next;

    /// Begins the exchange that waited for its permit, over `sockets` if some were opened for it.
    fn on_permit(
        &mut self,
        _common: &mut Common,
        _sockets: Option<ExchangeId>,
        _cx: &mut Cx<'_>,
    ) -> Next {
        SAME
    }

    /// Goes on after a temporary link of its exchange is gone.
    fn on_parted(&mut self, _common: &mut Common, _cx: &mut Cx<'_>) -> Next {
        SAME
    }

    /// Does what follows, after everything else.
    fn settle(&mut self, _common: &mut Common, _cx: &mut Cx<'_>) {}

    /// Wants the store to hold this; nothing is durable before [`Living::on_persisted`].
    fn persist(&mut self, common: &mut Common, want: Want, cx: &mut Cx<'_>) {
        common.persistence.want(want);
        self.write(common, cx);
    }

    /// Writes what the store should hold, unless a write is under way.
    fn write(&mut self, common: &mut Common, cx: &mut Cx<'_>) {
        if !common.persistence.may_begin() || !self.may_write(common, cx) {
            return;
        }
        let record = self.record(common, cx);
        let own = self.client().and_then(Client::shared);
        common.write(record, own, cx);
    }

    /// Goes on with conflict detection, as far as possible now.
    fn watch(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> Next {
        while let Some(found) = self.client().and_then(|client| common.watch(client, cx)) {
            self.on_found(common, found, cx)?;
            self.settle(common, cx);
        }
        SAME
    }

    /// Handles an ARP packet that conflict detection heard.
    fn hear(&mut self, common: &mut Common, arp: &Arp, cx: &mut Cx<'_>) -> Next {
        let found = self
            .client()
            .and_then(|client| common.hear(client, arp, cx));
        self.goes_on(common, found, cx)
    }

    /// Goes on once it is known which links the container's namespace has, or cannot be.
    fn on_inside(
        &mut self,
        common: &mut Common,
        macs: Result<Vec<Mac>, LinkCause>,
        cx: &mut Cx<'_>,
    ) -> Next {
        let found = self
            .client()
            .and_then(|client| common.heard_inside(client, macs, cx));
        self.goes_on(common, found, cx)?;
        self.watch(common, cx)
    }

    /// Goes on with what conflict detection found out, if it did.
    fn goes_on(&mut self, common: &mut Common, found: Option<Found>, cx: &mut Cx<'_>) -> Next {
        let Some(found) = found else {
            return SAME;
        };
        self.on_found(common, found, cx)?;
        self.settle(common, cx);
        self.watch(common, cx)
    }
}
