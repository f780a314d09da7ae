//! Which leases are meant by an operator.

use super::Registry;
use crate::binding::{Binding, row};
use crate::effect::{Row, Which};
use crate::record::BindingId;
use crate::time::Now;

/// Returns the leases that are meant, in order of attachment.
pub(super) fn chosen(core: &Registry, now: Now, which: &Which) -> Vec<(BindingId, Row)> {
    let leased = |binding: &Binding| {
        let ack = core
            .heard
            .of(binding.id)
            .and_then(|exchanged| exchanged.ack.as_ref());
        let silent = binding
            .lease(now.boot)
            .and_then(|lease| core.lans.silent_since(&binding.identity.lan, lease.server));
        (
            binding.id,
            Row {
                // How soon it answered says nothing about a server that no longer does.
                answered_in: ack.filter(|_| silent.is_none()).map(|ack| ack.took),
                ..row(binding, now.boot)
            },
        )
    };
    let mut rows = which.of(core.bindings.iter().map(leased));
    rows.sort_by(|(_, a), (_, b)| a.by_attachment(b));
    rows
}
