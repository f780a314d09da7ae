//! How fast addresses of a LAN are tried once many were in use (RFC 5227 §2.1.1).

use super::*;

/// How many addresses of a LAN are declined in a row before new tries are held back (RFC 5227 §1.1).
const MOST: usize = 10;
/// The pause between two tries after that.
const PAUSE: Micros = 60 * SECOND;
/// DECLINEs are in a row if each comes within this time of the one before.
const ROW: Micros = 1200 * SECOND;

/// New tries are held back, and no client alone holds up a LAN.
#[derive(Default)]
pub(super) struct Pace {
    /// The addresses declined on a LAN since somebody last got an address there, and when the last one was.
    row: BTreeMap<usize, (BTreeSet<Ipv4Addr>, Micros)>,
    /// The addresses declined on a LAN.
    declined: BTreeSet<(usize, Ipv4Addr)>,
}

impl Oracle for Pace {
    fn sees(&mut self, world: &World, seen: &Seen<'_>, says: &mut Says) {
        match seen {
            Seen::Declines(who, address) => self.judge(world, who.0, *address, says),
            Seen::AddEnds(who, Some(_)) => _ = self.row.remove(&who.0),
            Seen::Answered(index, _, Answer::Failed(Failure::HeldBack { .. })) => {
                self.judge_held_up(world.actors[*index].lan, says);
            }
            Seen::Noted(events) => {
                for event in *events {
                    let Some(actor) = world
                        .actors
                        .iter()
                        .find(|actor| actor.attachment == event.attachment)
                    else {
                        continue;
                    };
                    match event.v4() {
                        // An address counts as in use, with or without a DECLINE on the wire.
                        Some(address) if event.kind == EventKind::Declined => {
                            self.declined.insert((actor.lan, address.addr()));
                        }
                        Some(_) if is_another(event) => _ = self.row.remove(&actor.lan),
                        _ => {}
                    }
                }
            }
            Seen::Ended => self.row.clear(),
            _ => {}
        }
    }
}

impl Pace {
    /// Judges the pace: after ten addresses in a row that were in use, a LAN's addresses are tried at a rate of one a minute.
    /// Tries under way at the tenth go on.
    fn judge(&mut self, world: &World, lan: usize, address: Ipv4Addr, says: &mut Says) {
        let under_way = world.actors.iter().filter(|actor| actor.lan == lan).count();
        self.declined.insert((lan, address));
        let row = self
            .row
            .remove(&lan)
            .filter(|(_, last)| world.now < last + ROW);
        let (mut declined, last) = row.unwrap_or_default();
        let before = declined.len();
        declined.insert(address);
        self.row.insert(lan, (declined, world.now));
        if before >= MOST + under_way && world.now < last + PAUSE {
            let after = (world.now - last) / MILLI;
            says.broken(
                Rule::Pace,
                format!("{address} is declined, after {before} others in a row, after {after} ms"),
            );
        }
    }

    /// Judges an ADD that fails because a LAN is held up. That takes as many addresses in use as RFC 5227 says; addresses that
    /// only one client meets, because its server offers them again and again, do not concern the others.
    fn judge_held_up(&self, lan: usize, says: &mut Says) {
        says.count("ADDs that a LAN in conflict held back");
        let many = self.declined.iter().filter(|(at, _)| *at == lan).count();
        if many < MOST {
            says.broken(
                Rule::HeldUp,
                format!("an ADD is held back, and {many} addresses were in use"),
            );
        }
    }
}
