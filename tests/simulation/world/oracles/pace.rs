//! How many addresses of a LAN are declined.

use super::*;

/// The most DECLINEs of a LAN in [`IN`].
const MOST: usize = 10;
/// The daemon counts one when it gives the lease up; it leaves once the store has the loss.
const IN: Micros = 540 * SECOND;

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
