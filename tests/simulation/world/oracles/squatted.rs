//! Addresses that squatters use.

use super::*;

/// How soon a window is over and the daemon has acted on what it heard: seven seconds of probes, then two announcements. Whoever
/// answers when a lease was extended is asked once more within ten seconds.
const WINDOW: Micros = 20 * SECOND;

/// No attachment that looks for conflicts keeps using an address whose squatter it could hear.
#[derive(Default)]
pub(super) struct Squatted {
    /// What attachments got while nothing kept them from looking for conflicts.
    watched: BTreeMap<Attachment, Got>,
}

/// An address that an attachment got.
struct Got {
    address: Ipv4Addr,
    /// When its window last began.
    since: Micros,
    /// Whether it was on an interface.
    appeared: bool,
}

impl Got {
    /// Returns whether the window is over.
    fn is_checked(&self, world: &World) -> bool {
        let since = self.since.max(world.clocks.resumed);
        since >= world.squatters.from && since + WINDOW < world.now
    }
}

impl Oracle for Squatted {
    fn sees(&mut self, world: &World, seen: &Seen<'_>, says: &mut Says) {
        match seen {
            Seen::Noted(events) => events.iter().for_each(|event| self.note(world, event)),
            // Its address is checked from there on.
            Seen::Appeared(who) => {
                let got = self.watched.get_mut(*who);
                got.into_iter()
                    .for_each(|got| (got.since, got.appeared) = (world.now, true));
            }
            // The windows that were open end with the daemon, and when every lease is in doubt.
            Seen::Ended | Seen::CauseForAll => {
                self.watched.retain(|_, got| got.since + WINDOW < world.now)
            }
            Seen::Listed(rows) | Seen::Quiet(rows) => self.examine(world, rows, says),
            _ => {}
        }
    }
}

impl Squatted {
    /// Records who has obtained which address.
    fn note(&mut self, world: &World, event: &Event) {
        // With each extension others are asked once more.
        if event.may_run()
            && let Some(got) = self.watched.get_mut(&event.attachment)
            && got.since < world.squatters.from
        {
            got.since = world.now;
        }
        let Some(address) = event.v4().filter(|_| is_another(event)) else {
            return;
        };
        self.watched.remove(&event.attachment);
        let plan = &world.plan;
        // A station that answers for all ends a window early, and the one answer that counts may be lost.
        let is_drowned = plan.proxy && plan.loss > 0;
        if plan.link_faults == 0 && plan.flapping == 0 && plan.blindness == 0 && !is_drowned {
            let got = Got {
                address: address.addr(),
                since: world.now,
                appeared: false,
            };
            self.watched.insert(event.attachment.clone(), got);
        }
    }

    /// Checks that nobody keeps using a squatter's address.
    fn examine(&self, world: &World, rows: &[Row], says: &mut Says) {
        if world.plan.detection == Detection::Off || world.squatters.at.is_empty() {
            return;
        }
        for row in rows.iter().filter(|row| !is_leaving(row)) {
            let Some(address) = row
                .tenure
                .as_ref()
                .and_then(Tenure::v4)
                .map(|net| net.addr())
            else {
                continue;
            };
            let lives =
                |actor: &&Actor| actor.phase == Phase::Live && actor.attachment == row.attachment;
            let Some(actor) = world.actors.iter().find(lives) else {
                continue;
            };
            let Some(squatter) = world.squatters.at.get(&(actor.lan, address)) else {
                continue;
            };
            // A port of a bridge would have the Ethernet address of a link that is to come: nobody uses the address before that,
            // and it is checked then. So it is after its link has gone, and before another comes.
            let hears = |got: &Got| {
                actor.at.is_some() || !got.appeared && world.plan.wires != Some(Wires::Bridge)
            };
            let watched = self
                .watched
                .get(&row.attachment)
                .filter(|got| got.address == address && hears(got));
            match watched.filter(|got| got.is_checked(world)) {
                Some(_) => {
                    let detail = format!(
                        "{} goes on with {address}, which {squatter} uses",
                        row.attachment
                    );
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
        EventKind::Changed => {
            let moved = was_at(&event.cause)
                .is_some_and(|was| event.v4().is_none_or(|net| net.addr() != was));
            moved || event.cause.contains("new lease")
        }
        _ => false,
    }
}

/// Returns the previous address, according to an event's cause.
fn was_at(cause: &str) -> Option<Ipv4Addr> {
    let (_, was) = cause.split_once("address was ")?;
    was.split_once('/')?.0.parse().ok()
}
