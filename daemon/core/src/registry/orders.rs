//! Which leases are meant by an operator.

use super::Registry;
use crate::binding::{Binding, row};
use crate::effect::{Row, Which};
use crate::record::BindingId;

/// Returns the leases that are meant, in order of attachment.
pub(super) fn chosen(core: &Registry, which: &Which) -> Vec<(BindingId, Row)> {
    let leased = |binding: &Binding| (binding.id, row(binding, core.tables.now.boot));
    let mut rows = which.of(core.tables.bindings.iter().map(leased));
    rows.sort_by(|(_, a), (_, b)| a.by_attachment(b));
    rows
}
