//! What an operator orders: which leases are meant, and what to do with them. Each order is a job (`jobs/renew.rs`,
//! `jobs/release.rs`).

use super::Registry;
use super::jobs::Next;
use crate::binding::{Binding, row};
use crate::effect::{Answer, Obeyed, Order, RequestId, Row, Upshot, Verb, Which};
use crate::record::BindingId;
use crate::time::Now;

impl Registry {
    /// Returns the leases that are meant, in order of attachment.
    pub(super) fn chosen(&self, now: Now, which: &Which) -> Vec<(BindingId, Row)> {
        let leased = |binding: &Binding| {
            let ack = self
                .heard
                .of(binding.id)
                .and_then(|exchanged| exchanged.ack.as_ref());
            let silent = binding
                .lease(now.boot)
                .and_then(|lease| self.lans.silent_since(&binding.identity.lan, lease.server));
            (
                binding.id,
                Row {
                    // How soon it answered says nothing about a server that no longer does.
                    answered_in: ack.filter(|_| silent.is_none()).map(|ack| ack.took),
                    ..row(binding, now.boot)
                },
            )
        };
        let mut rows = which.of(self.bindings.iter().map(leased));
        rows.sort_by(|(_, a), (_, b)| a.by_attachment(b));
        rows
    }

    /// Begins an order. A name that matches several leases selects none of them.
    pub(super) fn order(&mut self, now: Now, id: RequestId, order: &Order) -> Next {
        let chosen = self.chosen(now, &order.which);
        if order.which.name.is_some() && chosen.len() > 1 {
            let of = |(_, row): (_, Row)| Obeyed::of(&row, Upshot::Ambiguous);
            return Next::Answers(Answer::Obeyed(chosen.into_iter().map(of).collect()));
        }
        match order.verb {
            Verb::Renew => self.renew(now, id, chosen),
            Verb::Release { force } => self.give_back_ordered(now, id, chosen, force),
        }
    }
}
