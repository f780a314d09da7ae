//! The holders of addresses.

use super::*;

/// An address of a LAN has one holder.
pub(super) fn shared(_: &World, seen: &Seen<'_>, says: &mut Says) {
    let (Seen::Listed(rows) | Seen::Quiet(rows)) = seen else {
        return;
    };
    let held = |row: &&Row| !is_leaving(row) && row.ends != Some(Duration::ZERO);
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
