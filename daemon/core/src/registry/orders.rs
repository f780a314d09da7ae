//! What an operator orders: which leases are meant, and what to do with them. Each order is a job (`jobs/renew.rs`,
//! `jobs/release.rs`).

use super::Registry;
use super::jobs::Next;
use super::ranges::Held;
use crate::binding::{Binding, row};
use crate::effect::{Answer, Obeyed, Order, RequestId, Row, Upshot, Verb, Which};
use crate::identity::Attachment;
use crate::record::BindingId;
use crate::time::{Instant, Now};

impl Registry {
    /// Returns the leases that are meant, in order of attachment: each with its binding, or none if a local range gave it.
    pub(super) fn chosen(&self, now: Now, which: &Which) -> Vec<(Option<BindingId>, Row)> {
        let leased = |binding: &Binding| {
            let ack = self
                .heard
                .of(binding.id)
                .and_then(|exchanged| exchanged.ack.as_ref());
            let silent = binding
                .lease(now.boot)
                .and_then(|lease| self.lans.silent_since(&binding.identity.lan, lease.server));
            (
                Some(binding.id),
                Row {
                    // How soon it answered says nothing about a server that no longer does.
                    answered_in: ack.filter(|_| silent.is_none()).map(|ack| ack.took),
                    ..row(binding, now.boot)
                },
            )
        };
        let held = self
            .ranges
            .all_held()
            .map(|(attachment, held)| (None, row_of(attachment, held, now)));
        let mut rows = which.of(self.bindings.iter().map(leased).chain(held));
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

/// Returns what an attachment has from local ranges, as `list` shows it.
fn row_of(attachment: &Attachment, held: &Held, now: Now) -> Row {
    let age = now.wall.saturating_since(held.record.since);
    let start = Instant::from_boot(now.boot.since_boot().saturating_sub(age));
    Row::of_ranges(
        attachment.clone(),
        &held.record.given,
        start,
        held.is_leaving,
    )
}
