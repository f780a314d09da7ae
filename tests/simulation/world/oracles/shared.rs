//! The holders of addresses.

use super::*;

/// An address of a LAN has one holder.
///
/// A full store may still hold the record of a container that is gone; that record gives nothing to anybody.
pub(super) fn shared(world: &World, seen: &Seen<'_>, says: &mut Says) {
    let (Seen::Listed(rows) | Seen::Quiet(rows)) = seen else {
        return;
    };
    let is_there =
        |row: &Row| row.identity.is_some() || world.local.lives(container(&row.attachment));
    let held = |row: &&Row| !is_leaving(row) && row.ends != Some(Duration::ZERO) && is_there(row);
    let held = rows
        .iter()
        .filter(held)
        .filter_map(|row| Some((row, row.tenure.as_ref()?.ip())));
    let held = held.collect::<Vec<_>>();
    for (at, (row, address)) in held.iter().enumerate() {
        let same = |(other, a): &&(&Row, IpAddr)| a == address && lan_of(other) == lan_of(row);
        if let Some((other, _)) = held[at + 1..].iter().find(same) {
            let detail = format!(
                "{} and {} both hold {address}",
                row.attachment, other.attachment
            );
            return says.broken(Rule::Twice, detail);
        }
    }
}

fn lan_of(row: &Row) -> Option<&Lan> {
    row.identity.as_ref().map(|identity| &identity.lan)
}
