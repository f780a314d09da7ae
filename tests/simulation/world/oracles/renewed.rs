//! Leases beside a relay that has died: broadcasts reach no server, and RENEW still does.

use super::*;

/// None of them ends because an earlier question has no answer.
pub(super) fn renewed(world: &World, seen: &Seen<'_>, says: &mut Says) {
    if !world.is_unrelayed() {
        return;
    }
    match seen {
        Seen::Served(_, _, Served::Granted(..)) => says.count("renewed beside a dead relay"),
        Seen::Noted(events) => {
            let ended = |actor: &&Actor| {
                let is_it = |event: &Event| {
                    event.kind == EventKind::Expired && event.attachment == actor.attachment
                };
                events.iter().any(is_it)
            };
            let could = |actor: &&Actor| actor.phase == Phase::Live && !actor.meddled;
            if let Some(actor) = world.actors.iter().filter(could).find(ended) {
                let detail = format!("the lease of {} has ended", actor.attachment);
                says.broken(Rule::Unrenewed, detail);
            }
        }
        _ => {}
    }
}
