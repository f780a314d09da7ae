//! How leases were got or extended last, and how soon, for `show`. Kept only for the leases that were acquired or extended last, however many
//! there are: a lease at rest costs nothing.

use std::collections::{BTreeMap, VecDeque};

use crate::binding::Binding;
use crate::effect::{Acknowledged, Exchanged};
use crate::record::BindingId;
use crate::source::{Outstanding, StateName};
use crate::time::{Instant, Now};

/// How many leases it is kept for: all on a Kubernetes host.
const MOST: usize = 256;

/// What servers said last.
#[derive(Debug, Default)]
pub(super) struct LastExchanges {
    by_id: BTreeMap<BindingId, Exchanged>,
    /// The order in which leases were last heard about.
    order: VecDeque<BindingId>,
}

/// A client's state before an answer came, or after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientState {
    state: StateName,
    outstanding: Option<Outstanding>,
    /// When its lease began.
    start: Option<Instant>,
}

impl ClientState {
    /// Returns the state of a binding's client, if there is one.
    pub(super) fn of(binding: &Binding) -> Option<Self> {
        let client = binding.client()?;
        let start = client.lease().map(|lease| lease.start);
        Some(Self {
            state: client.state(),
            outstanding: client.outstanding(),
            start,
        })
    }
}

impl LastExchanges {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn of(&self, id: BindingId) -> Option<&Exchanged> {
        self.by_id.get(&id)
    }

    pub(super) fn forget(&mut self, id: BindingId) {
        if self.by_id.remove(&id).is_some() {
            self.order.retain(|other| *other != id);
        }
    }

    fn make(&mut self, id: BindingId) -> &mut Exchanged {
        if self.by_id.contains_key(&id) {
            self.order.retain(|other| *other != id);
        } else if self.order.len() >= MOST {
            self.order
                .pop_front()
                .into_iter()
                .for_each(|oldest| _ = self.by_id.remove(&oldest));
        }
        self.order.push_back(id);
        self.by_id.entry(id).or_default()
    }

    /// Keeps the result of a server's message, if it advanced a client.
    pub(super) fn keep(
        &mut self,
        now: Now,
        id: BindingId,
        before: ClientState,
        after: ClientState,
    ) {
        let ClientState {
            state,
            outstanding: Some(asked),
            start,
        } = before
        else {
            return;
        };
        let took = now.boot.saturating_since(asked.began);
        match (state, after.state) {
            (StateName::Selecting, StateName::Requesting) => {
                *self.make(id) = Exchanged {
                    offer: Some((took, asked.sent)),
                    ack: None,
                };
            }
            (_, StateName::Bound) if after.start != start => {
                let exchanged = self.make(id);
                if state != StateName::Requesting {
                    exchanged.offer = None;
                }
                exchanged.ack = Some(Acknowledged {
                    at: now.wall,
                    state,
                    took,
                    requests: asked.sent,
                });
            }
            (..) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_servers_said_is_kept_of_the_latest_leases_only() {
        let mut heard = LastExchanges::default();
        (1..=MOST as u64).for_each(|id| _ = heard.make(BindingId(id)));
        // The first is heard about once more: the second is the oldest now.
        heard.make(BindingId(1));
        heard.make(BindingId(1000));
        assert!(heard.of(BindingId(1)).is_some() && heard.of(BindingId(2)).is_none());
        assert_eq!(heard.len(), MOST);
        heard.forget(BindingId(1000));
        assert_eq!(heard.len(), MOST - 1);
    }
}
