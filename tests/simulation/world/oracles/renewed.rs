//! Leases that must be renewed: beside a relay that has died broadcasts reach no server, and RENEW still does; and a server
//! that offers an address to another has forgotten who holds it.

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

/// How soon the holder of an address asks its server, which has offered the address to another.
const SOON: Micros = 10 * SECOND;

/// The holder of an address that its server offers to another asks for it soon.
#[derive(Default)]
pub(super) struct Forgotten {
    /// By when the holders of addresses are to ask, by LAN.
    due: BTreeMap<(usize, Ipv4Addr), Micros>,
    /// Who was to ask before: what is extended in vain waits for T1.
    asked: BTreeSet<Attachment>,
    /// The addresses whose holders have asked for them and wait for the answer, by LAN.
    waiting: BTreeSet<(usize, Ipv4Addr)>,
}

impl Oracle for Forgotten {
    fn sees(&mut self, world: &World, seen: &Seen<'_>, says: &mut Says) {
        match seen {
            Seen::Heard(lan, _, message) if message.kind() == Some(Kind::Offer) => {
                self.offered(world, *lan, message);
            }
            Seen::Heard(lan, _, message) => _ = self.waiting.remove(&(*lan, message.yiaddr)),
            Seen::Sends(lan, _, frame) => {
                let message = message_of(frame);
                if let Some(message) = message.filter(|it| it.kind() == Some(Kind::Request)) {
                    let asked = message.address(code::REQUESTED);
                    let asked = (*lan, asked.unwrap_or(message.ciaddr));
                    if self.due.remove(&asked).is_some() {
                        says.count("holders whose address was offered to another");
                    }
                    self.waiting.insert(asked);
                }
            }
            Seen::Ended => (self.due, self.waiting) = Default::default(),
            Seen::Passed => self.judge(world, says),
            _ => {}
        }
    }
}

impl Forgotten {
    /// Handles that a client is offered an address, which another may have.
    fn offered(&mut self, world: &World, lan: usize, message: &Message) {
        let plan = &world.plan;
        let is_disturbed = plan.link_faults > 0
            || plan.flapping > 0
            || plan.suspends.is_some()
            // The store may not know yet that the holder has lost it.
            || world.store_fails
            || plan.actors > 8
            // Another server's offer may be taken, and a client that shares its chaddr may be offered nothing else.
            || plan.servers > 1
            || plan.deaf
            || plan.rogue.is_some()
            || plan.knows != Knows::ClientId;
        let (address, server) = (message.yiaddr, message.address(code::SERVER));
        let Some(actor) = holder(world, lan, address).filter(|_| !is_disturbed) else {
            return;
        };
        // Who asks is what the client said last, and it has not gone on since.
        let key = message.key();
        let waits = world.ledger.speaking.get(&(lan, key.clone()));
        let waits = waits.copied().flatten() == Some((message.xid, None));
        // Docker's pool may not have the address, and then nobody looks at who holds it. A question for offers takes none.
        let takes = |asker: &Actor| asker.lan == lan && asker.client_key() == key;
        let mut askers = world.actors.iter().filter(|asker| takes(asker));
        let is_taken = askers.any(|asker| asker.pool.is_none());
        // What was extended a moment ago is not extended again.
        let is_its = |record: &Record| {
            let is_fresh = world.now < world.world_time(record.lease.start) + SOON;
            server == Some(record.lease.server) && !is_fresh
        };
        // Who waits for an answer asks again at its own pace.
        if waits
            && is_taken
            && actor.client_key() != key
            && !self.waiting.contains(&(lan, address))
            && world.record_of(actor).is_some_and(is_its)
            && self.asked.insert(actor.attachment.clone())
        {
            self.due.insert((lan, address), world.now + SOON);
        }
    }

    fn judge(&mut self, world: &World, says: &mut Says) {
        let is_due = |_: &(usize, Ipv4Addr), at: &mut Micros| *at <= world.now;
        for ((lan, address), _) in self.due.extract_if(.., is_due) {
            let Some(actor) = holder(world, lan, address) else {
                continue;
            };
            let detail = format!(
                "{} does not ask for {address}, which its server offers to another",
                actor.attachment
            );
            says.broken(Rule::Unrenewed, detail);
        }
    }
}

/// Returns the live actor that holds an address.
fn holder(world: &World, lan: usize, address: Ipv4Addr) -> Option<&Actor> {
    let holds = |actor: &&Actor| {
        let told = actor.told.as_ref().is_some_and(|told| told.ip() == address);
        told && actor.lan == lan && actor.phase == Phase::Live && !actor.has_fallback()
    };
    let actor = world.actors.iter().find(holds)?;
    let has = |record: &Record| record.state == RecordState::Bound && record.lease.ip() == address;
    world.record_of(actor).is_some_and(has).then_some(actor)
}
