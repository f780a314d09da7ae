//! Addresses that squatters use.

use super::*;

/// How soon a window is over, and what it heard has been acted on: seven seconds of probes, then two announcements.
const WINDOW: Micros = 20 * SECOND;

/// No attachment that looks for conflicts goes on with one that it could hear.
#[derive(Default)]
pub(super) struct Squatted {
    /// The address that an attachment got while nothing kept it from looking for conflicts, and when.
    watched: BTreeMap<Attachment, (Ipv4Addr, Micros)>,
}

impl Oracle for Squatted {
    fn sees(&mut self, world: &World, seen: &Seen<'_>, says: &mut Says) {
        match seen {
            Seen::Noted(events) => events.iter().for_each(|event| self.note(world, event)),
            // Its address is checked from there on.
            Seen::Appeared(who) => self.watched.get_mut(*who).into_iter().for_each(|(_, since)| *since = world.now),
            // The windows that were open end with the daemon.
            Seen::Ended => self.watched.retain(|_, (_, since)| *since + WINDOW < world.now),
            Seen::Listed(rows) | Seen::Quiet(rows) => self.examine(world, rows, says),
            _ => {}
        }
    }
}

impl Squatted {
    /// Records who has got which address.
    fn note(&mut self, world: &World, event: &Event) {
        let Some(address) = event.v4().filter(|_| is_another(event)) else { return };
        self.watched.remove(&event.attachment);
        let plan = &world.plan;
        if plan.link_faults == 0 && plan.flapping == 0 && plan.blindness == 0 {
            self.watched.insert(event.attachment.clone(), (address.addr(), world.now));
        }
    }

    /// Checks that nobody goes on with a squatter's address.
    fn examine(&self, world: &World, rows: &[Row], says: &mut Says) {
        if world.plan.detection == Detection::Off || world.squatters.at.is_empty() {
            return;
        }
        for row in rows.iter().filter(|row| !is_leaving(row)) {
            let Some(address) = row.tenure.as_ref().and_then(Tenure::v4).map(|net| net.addr()) else { continue };
            let lives = |actor: &&Actor| actor.phase == Phase::Live && actor.attachment == row.attachment;
            let Some(actor) = world.actors.iter().find(lives) else { continue };
            let Some(squatter) = world.squatters.at.get(&(actor.lan, address)) else { continue };
            // A port of a bridge would have the Ethernet address of a link that is to come: nobody uses the address before that,
            // and it is checked then.
            let hears = actor.at.is_some() || world.plan.wires != Some(Wires::Bridge);
            let watched = self.watched.get(&row.attachment).filter(|(got, _)| *got == address && hears);
            match watched.filter(|(_, since)| (*since).max(world.clocks.resumed) + WINDOW < world.now) {
                Some(_) => {
                    let detail = format!("{} goes on with {address}, which {squatter} uses", row.attachment);
                    return says.broken(Rule::Squatted, detail);
                }
                None => says.count("squatters' addresses held by who could not hear"),
            }
        }
        says.count("looks for squatters' addresses");
    }
}

/// Returns whether an event reports another address than before.
pub(super) fn is_another(event: &Event) -> bool {
    match event.kind {
        EventKind::Acquired | EventKind::Adopted => true,
        EventKind::Changed => ["new lease", "address was"].iter().any(|cause| event.cause.contains(cause)),
        _ => false,
    }
}
