//! How many addresses of a LAN are declined, and given back at once.

use super::*;

/// The most DECLINEs of a LAN in [`IN`].
const MOST: usize = 10;
/// The daemon counts one when it gives the lease up; it leaves once the store has the loss.
const IN: Micros = 540 * SECOND;

/// The most RELEASEs of a LAN in [`MOMENT`]: servers lose what does not fit into their sockets' buffers.
const RELEASES: usize = 150;
const MOMENT: Micros = 100 * MILLI;

/// A LAN's servers are not flooded with what no caller waits for.
#[derive(Default)]
pub(super) struct Flood {
    /// When the last RELEASEs left, by LAN.
    released: BTreeMap<usize, VecDeque<Micros>>,
}

impl Oracle for Flood {
    fn sees(&mut self, world: &World, seen: &Seen<'_>, says: &mut Says) {
        match seen {
            Seen::Sends(lan, _, frame) => {
                let message = message_of(frame);
                if message.is_some_and(|message| message.kind() == Some(Kind::Release)) {
                    self.releases(world, *lan, says);
                }
            }
            Seen::Ended => *self = Self::default(),
            _ => {}
        }
    }
}

impl Flood {
    fn releases(&mut self, world: &World, lan: usize, says: &mut Says) {
        let released = self.released.entry(lan).or_default();
        released.retain(|at| world.now < at + MOMENT);
        released.push_back(world.now);
        if released.len() > RELEASES {
            let detail = format!("{} RELEASEs leave LAN {lan} at once", released.len());
            says.broken(Rule::Pace, detail);
        }
    }
}

/// A station that claims every address does not empty a LAN's pool.
#[derive(Default)]
pub(super) struct Pace {
    /// When addresses were declined on each LAN, since the daemon began.
    declined: BTreeMap<usize, Vec<Micros>>,
}

impl Oracle for Pace {
    fn sees(&mut self, world: &World, seen: &Seen<'_>, says: &mut Says) {
        match seen {
            Seen::Declines(who, address) => {
                let declined = self.declined.entry(who.0).or_default();
                declined.retain(|at| world.now < at + IN);
                declined.push(world.now);
                if declined.len() > MOST {
                    let detail =
                        format!("{address} is declined, the {}th on its LAN", declined.len());
                    says.broken(Rule::Pace, detail);
                }
            }
            Seen::Answered(_, _, Answer::Failed(Failure::NotDeclined { .. })) => {
                says.count("ADDs that met a conflict when their LAN had its DECLINEs");
            }
            Seen::Ended => self.declined.clear(),
            _ => {}
        }
    }
}
