//! Bindings of containers that are gone.

use super::*;

/// These bindings go with their containers, and with ADDs that were cancelled.
pub(super) fn orphans(world: &World, seen: &Seen<'_>, says: &mut Says) {
    let holds = |row: &&Row| row.tenure.is_some() && !is_leaving(row);
    match seen {
        Seen::Dropped(attachment, rows) => {
            if let Some(row) = rows
                .iter()
                .filter(holds)
                .find(|row| row.attachment == **attachment)
            {
                let detail = format!(
                    "{} holds {:?}, but was cancelled",
                    row.attachment, row.tenure
                );
                says.broken(Rule::Orphan, detail);
            }
        }
        Seen::Listed(rows) if world.calm => {
            let died = |actor: &Actor| {
                actor
                    .died
                    .is_some_and(|died| world.now < died + world.noticed())
            };
            // Its actor may have gone on to another container a moment ago.
            if world.actors.iter().any(died) {
                return;
            }
            let has_it = |row: &Row| {
                let is_its = |actor: &Actor| {
                    actor.attachment == row.attachment && actor.phase != Phase::Idle
                };
                world.actors.iter().any(is_its)
            };
            if let Some(row) = rows.iter().filter(holds).find(|row| !has_it(row)) {
                let detail = format!("{} holds {:?}", row.attachment, row.tenure);
                says.broken(Rule::Orphan, detail);
            }
        }
        _ => {}
    }
}
