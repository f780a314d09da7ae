//! Containers that have lost their lease, beside ADDs that wait.

use super::*;

/// How soon a client asks: background work begins after ten seconds at most, and each of its turns takes four.
const SOON: Micros = 60 * SECOND;

/// They ask for another soon, however many ADDs there are.
#[derive(Default)]
pub(super) struct Asked {
    /// By when clients are to ask.
    due: BTreeMap<Attachment, Micros>,
}

impl Oracle for Asked {
    fn sees(&mut self, world: &World, seen: &Seen<'_>, says: &mut Says) {
        match seen {
            Seen::Noted(events) => {
                for event in events.iter() {
                    match event.kind {
                        EventKind::Lost | EventKind::Expired => {
                            let due = world.now + SOON;
                            self.due.entry(event.attachment.clone()).or_insert(due);
                        }
                        EventKind::Acquired | EventKind::Adopted | EventKind::Released => {
                            self.due.remove(&event.attachment);
                        }
                        _ => {}
                    }
                }
            }
            Seen::Sends(lan, _, frame) if let Some(message) = message_of(frame) => {
                let asks = matches!(message.kind(), Some(Kind::Discover | Kind::Request));
                let is_its = |actor: &&Actor| {
                    asks && (actor.lan, actor.client_key()) == (*lan, message.key())
                };
                for actor in world.actors.iter().filter(is_its) {
                    if self.due.remove(&actor.attachment).is_some() {
                        says.count("clients that asked after they lost a lease");
                    }
                }
            }
            Seen::Gone(attachment) => _ = self.due.remove(*attachment),
            Seen::Ended => self.due.clear(),
            Seen::Passed => self.judge(world, says),
            _ => {}
        }
    }
}

impl Asked {
    fn judge(&mut self, world: &World, says: &mut Says) {
        let plan = &world.plan;
        let is_hindered = super::bare::is_hindered(world)
            || plan.flapping > 0
            || plan.suspends.is_some()
            || !plan.crashes.is_empty();
        if is_hindered {
            return self.due.clear();
        }
        for (attachment, _) in self.due.extract_if(.., |_, at| *at <= world.now) {
            let seeks = |actor: &&Actor| {
                let record = world.record_of(actor);
                actor.phase == Phase::Live
                    && actor.attachment == attachment
                    && record.is_some_and(|record| record.state == RecordState::Seeking)
            };
            if world.actors.iter().any(|actor| seeks(&actor)) {
                let detail = format!("{attachment} has no lease, and asks nobody for one");
                says.broken(Rule::Bare, detail);
            }
        }
    }
}
