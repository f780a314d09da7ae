//! Unwanted servers.

use super::*;

/// How long a NAK of a rogue waits at least, counted from the REQUEST.
const PATIENCE: u64 = SECOND / 8 * 7;

/// No client chooses a rogue, uses what it gives, or lets it end a lease at once.
#[derive(Default)]
pub(super) struct Rogues {
    /// Clients whose last NAK was a rogue's.
    refused: BTreeSet<(usize, ClientKey)>,
    /// Leases that were lost to a NAK, as the daemon reported them.
    refusals: Vec<Event>,
}

impl Oracle for Rogues {
    fn sees(&mut self, world: &World, seen: &Seen<'_>, says: &mut Says) {
        match seen {
            Seen::Sends(lan, _, frame) => {
                let request =
                    message_of(frame).filter(|message| message.kind() == Some(Kind::Request));
                Self::judge(
                    world,
                    *lan,
                    request.and_then(|message| message.address(code::SERVER)),
                    says,
                );
            }
            Seen::Answered(
                index,
                Asked {
                    lease: Some(lease), ..
                },
                _,
            ) => {
                Self::judge(world, world.actors[*index].lan, Some(lease.server), says);
            }
            Seen::Heard(lan, bytes, message) if message.kind() == Some(Kind::Nak) => {
                self.heard_refusal(world, *lan, bytes, message);
            }
            Seen::Emitted(Effect::Persist { changes, .. }) => {
                for change in changes {
                    if let Change::Note(event) = change {
                        self.judge_refusal(world, event, says);
                    }
                }
            }
            _ => {}
        }
    }
}

impl Rogues {
    fn heard_refusal(&mut self, world: &World, lan: usize, bytes: &[u8], message: &Message) {
        let who = (lan, message.key());
        if world.segments[lan].is_of_rogue(bytes) {
            self.refused.insert(who);
        } else if message.giaddr.is_unspecified() {
            // One through a relay may not be the last word.
            self.refused.remove(&who);
        }
    }

    /// Checks that no client chooses a rogue, or uses what it gives.
    fn judge(world: &World, lan: usize, server: Option<Ipv4Addr>, says: &mut Says) {
        let rogue = world.segments[lan].rogue_id();
        if rogue.is_some() && server == rogue {
            let detail = format!("a client of LAN {lan} believes {server:?}");
            says.broken(Rule::Rogue, detail);
        }
    }

    /// Judges a refused lease. A rogue's NAK is obeyed only after the lease's own server has had its time to answer, at least a
    /// second.
    ///
    /// An event that the store refused is handed to it again, and then says nothing new.
    fn judge_refusal(&mut self, world: &World, event: &Event, says: &mut Says) {
        let by_nak = event.kind == EventKind::Lost && event.cause.contains("sent NAK");
        if !by_nak || self.refusals.contains(event) {
            return;
        }
        self.refusals.push(event.clone());
        let concerned = world
            .actors
            .iter()
            .find(|actor| actor.attachment == event.attachment);
        let Some(who) = concerned.map(|actor| (actor.lan, actor.client_key())) else {
            return;
        };
        // A damaged answer of the lease's server may have come after the NAK.
        let rogue = world.segments[who.0].rogue_id();
        let names_it = rogue.is_some_and(|id| event.cause.contains(&format!("server {id} sent")));
        if !self.refused.contains(&who) && !names_it {
            return;
        }
        says.count("leases that a rogue ended");
        let asked = world.timing.last_claim(&who);
        if let Some(asked) = asked.filter(|asked| world.now < asked + PATIENCE) {
            let detail = format!(
                "{}: {} {} µs after its REQUEST",
                event.attachment,
                event.cause,
                world.now - asked
            );
            says.broken(Rule::Rogue, detail);
        }
        // Strict probes take so much of a short lease that it is extended by broadcast before its address was announced: the
        // server still sends its ACK to the address's previous holder.
        let plan = &world.plan;
        let is_unannounced =
            plan.detection == Detection::Strict && u64::from(plan.lease) * SECOND < 2 * PROBING;
        if let Some(address) = event.v4().filter(|_| !world.calm || is_unannounced) {
            says.excuse(who.0, address.addr(), "refused by a rogue");
        }
    }
}
