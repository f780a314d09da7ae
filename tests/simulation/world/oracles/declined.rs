//! Addresses that clients decline.

use super::*;

/// How many addresses an ADD may decline, and how many times one of them.
const MOST: usize = 3;
/// How soon a DECLINE follows the ARP packet that causes it.
const CLAIMED: Micros = 60 * SECOND;

/// Each has a cause, and no ADD declines without end.
#[derive(Default)]
pub(super) struct Declined {
    /// What each ADD under way has declined.
    declines: BTreeMap<Who, Vec<Ipv4Addr>>,
    /// The attachments whose leases are in a transaction under way.
    writing: BTreeMap<OpId, Vec<Attachment>>,
    /// The attachments whose leases the store has refused at this very moment: their ADDs are undone.
    refused: Vec<Attachment>,
}

impl Oracle for Declined {
    fn sees(&mut self, world: &World, seen: &Seen<'_>, says: &mut Says) {
        match seen {
            Seen::Emitted(Effect::Persist { op, changes }) => {
                let whose = |change: &Change| match change {
                    Change::Put(_, record) => Some(record.attachment.clone()),
                    _ => None,
                };
                self.writing
                    .insert(*op, changes.iter().filter_map(whose).collect());
            }
            Seen::Done(op, outcome) => {
                let whose = self.writing.remove(op).unwrap_or_default();
                self.refused = if let Outcome::Persisted(Err(_)) = outcome {
                    whose
                } else {
                    Vec::new()
                };
            }
            Seen::Fed => self.refused.clear(),
            Seen::Declines(who, address) => {
                self.judge_cause(world, who, *address, says);
                self.count(world, who, *address, says);
            }
            Seen::AddBegins(who) | Seen::AddEnds(who, _) => _ = self.declines.remove(*who),
            Seen::Ended => *self = Self::default(),
            _ => {}
        }
    }
}

impl Declined {
    /// Judges why a client declines an address: somebody else has it, or had it a moment ago.
    fn judge_cause(&self, world: &World, who: &Who, address: Ipv4Addr, says: &mut Says) {
        let lan = who.0;
        let mut claims = world
            .ledger
            .claimed
            .range((lan, address, Mac([0; 6]))..=(lan, address, Mac([0xff; 6])));
        // A server that has not answered may have committed what it was asked for: a claim heard since then counts.
        let asked = world
            .ledger
            .latest
            .get(&(lan, who.2.clone()))
            .map(|(_, at)| *at);
        let counts =
            |at: Micros| at + CLAIMED >= world.now || asked.is_some_and(|asked| at >= asked);
        let is_claimed = claims.any(|((.., mac), at)| *mac != who.1 && counts(*at));
        if !is_claimed && !self.is_unproven(world, who) {
            says.broken(Rule::Declined, format!("{address}, which nobody else uses"));
        }
    }

    /// Counts an ADD's DECLINEs.
    fn count(&mut self, world: &World, who: &Who, address: Ipv4Addr, says: &mut Says) {
        if !world.adds(who) {
            self.declines.remove(who);
            return;
        }
        let mac = who.1;
        let declined = self.declines.entry(who.clone()).or_default();
        declined.push(address);
        let (count, again) = (
            declined.iter().collect::<BTreeSet<_>>().len(),
            declined.iter().filter(|before| **before == address).count(),
        );
        if count > MOST || again > MOST {
            let detail = format!(
                "{mac} declines {address}, for the {again}th time, the {count}th address of its ADD"
            );
            says.broken(Rule::Declines, detail);
        }
    }

    /// Returns whether a station that answers for all has claimed an address to an ADD that was cut short, by its caller, by the
    /// store or by its time limit, before its claims were found to prove nothing. Until then they count (RFC 5227 §2.1.1).
    fn is_unproven(&self, world: &World, who: &Who) -> bool {
        let refused = |actor: &&Actor| self.refused.contains(&actor.attachment);
        let is_undone = world
            .actors
            .iter()
            .filter(refused)
            .any(|actor| world.who(actor).as_ref() == Some(who));
        let is_late = |asked: &Asked| {
            let by = asked.by.and_then(|(index, _)| world.actors.get(index));
            asked.role == Role::Add
                && asked.patience <= world.now
                && by.is_some_and(|actor| world.who(actor).as_ref() == Some(who))
        };
        let is_over = !world.adds(who) || world.requests.values().any(is_late);
        world.plan.proxy && (is_undone || is_over)
    }
}
