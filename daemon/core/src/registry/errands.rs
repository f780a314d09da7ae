//! Requests that the core makes of itself, and what for.

use std::collections::BTreeMap;

use crate::effect::RequestId;
use crate::identity::Attachment;
use crate::network::DockerId;
use crate::wire::Mac;

/// Their ids begin here: nobody else has made so many.
const FIRST: u64 = 1 << 63;

/// What the core asks of itself.
#[derive(Debug)]
pub(super) enum Errand {
    /// A DEL on behalf of this collection.
    Collect(RequestId, Attachment),
    /// The ADD of a container that was running before.
    Adopt(Attachment),
    /// The ADD of an endpoint, in a network, with an Ethernet address.
    Endpoint(DockerId, DockerId, Mac, Attachment),
}

/// The errands under way, and those that wait for their time.
#[derive(Debug, Default)]
pub(super) struct Errands {
    by_request: BTreeMap<RequestId, Errand>,
    begun: u64,
}

impl Errand {
    /// Returns whom it is about.
    pub(super) fn attachment(&self) -> &Attachment {
        match self {
            Self::Collect(_, attachment) | Self::Adopt(attachment) => attachment,
            Self::Endpoint(.., attachment) => attachment,
        }
    }
}

impl Errands {
    /// Returns how many there are.
    pub(super) fn len(&self) -> usize {
        self.by_request.len()
    }

    /// Adds an errand, and returns the request that it is.
    pub(super) fn begin(&mut self, errand: Errand) -> RequestId {
        let id = RequestId(FIRST + self.begun);
        self.begun += 1;
        self.by_request.insert(id, errand);
        id
    }

    pub(super) fn get(&self, id: RequestId) -> Option<&Errand> {
        self.by_request.get(&id)
    }

    /// Removes an errand that is done, or that nobody needs any more.
    pub(super) fn end(&mut self, id: RequestId) -> Option<Errand> {
        self.by_request.remove(&id)
    }
}
