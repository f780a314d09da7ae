//! What callers do with their answers, or without one: they configure a lease, judge a failure, or lose their connection.

use std::time::Duration;

use leasehold_core::effect::{Answer, Call, Failure, NetworkAnswer, PoolCall, RequestId};
use leasehold_core::identity::Attachment;

use super::actor::{Act, Actor, Asked, Phase, Role};
use super::seen::Seen;
use super::{Event, MILLI, Micros, SECOND, World};
use crate::subject::add_of;
use crate::watch::Rule;

/// A namespace's death is noticed within this time if no message is lost: the sockets of conflict detection keep the namespace
/// for up to a dozen seconds.
const NOTICED: Micros = 20 * SECOND;

/// How much longer to wait for Docker, which may still release the address, or may not have put the link there yet.
const DOCKER_WAIT: Micros = 630 * SECOND;

impl World {
    /// Returns how soon a dead namespace is noticed and its leases are given back.
    pub(super) fn noticed(&self) -> Micros {
        let waits = self.actors.iter().any(Actor::is_found_later);
        NOTICED + if waits { DOCKER_WAIT } else { 0 }
    }

    /// Records that the core knows that a caller went away. `open` means that it had not answered before.
    pub(super) fn caller_gone(&mut self, id: RequestId, open: bool) {
        let Some(asked) = self.requests.remove(&id) else {
            return;
        };
        if let Some((_, errand)) = asked.errand {
            errand.hung_up(self, &asked, open);
        }
        let Some(index) = self.asker(&asked) else {
            return;
        };
        if self.actors[index].phase != Phase::Ending {
            return;
        }
        if asked.role == Role::Add && open && self.rng.u32(..3) == 0 {
            // Nobody says DEL: the ADD has to go with its caller.
            let plan = &self.plan;
            let stored =
                plan.crashes.is_empty() && plan.store_faults == 0 && plan.store_full.is_none();
            // An older container's end has to be noticed too.
            // A Docker call may be answered with the lease of the container before it, whose release the test waits for.
            let is_new = !self.actors[index].is_told_once();
            if is_new && stored && plan.missed == 0 && plan.link_faults == 0 {
                let attachment = self.actors[index].attachment.clone();
                let generation = self.actors[index].generation;
                let dropped = Event::Act(index, generation, Act::Dropped(attachment));
                self.at(self.now + 20 * SECOND, dropped);
            }
            self.act_after(index, 25 * SECOND, 40 * SECOND, Act::CleanUp);
        } else {
            self.act_after(index, 0, SECOND, Act::Del);
        }
    }

    /// Returns the actor that asked, unless it has begun another container since.
    pub(super) fn asker(&self, asked: &Asked) -> Option<usize> {
        let (index, generation) = asked.by?;
        (self.actors[index].generation == generation).then_some(index)
    }

    /// Delivers an answer to its caller.
    pub(super) fn answer(&mut self, id: RequestId, answer: Answer) {
        if self.requests.get(&id).is_none_or(|asked| asked.gone) {
            return;
        }
        let Some(asked) = self.requests.remove(&id) else {
            return;
        };
        self.note(|| format!("    {id:?} is answered {answer:?}"));
        if let Role::Audit(_) | Role::Inquiry = &asked.role {
            return self.found(id, &asked.role, answer);
        }
        if let Role::Intruder(cookie) = asked.role {
            return self.intruded(cookie, &answer);
        }
        if let Some((lan, errand)) = asked.errand {
            return errand.answered(self, lan, &asked, Some(answer));
        }
        if asked.role == Role::Collect {
            return self.collected(&asked, answer);
        }
        // A lease for which no IPAM driver was asked comes with its endpoint.
        let is_without_lease = asked.lease.is_none() && is_without_lease(&asked.role, &answer);
        self.stats
            .count_if(is_without_lease, "endpoints whose lease was gone");
        let Some(index) = self.asker(&asked) else {
            return;
        };
        match asked.role {
            Role::Add if self.actors[index].phase == Phase::Adding && is_without_lease => {
                self.end_by_del(index);
            }
            Role::Add if self.actors[index].phase == Phase::Adding => {
                self.added(index, &asked, answer)
            }
            Role::Del if self.actors[index].phase == Phase::Ending => self.deleted(index, answer),
            Role::Add | Role::Del => {}
            _ => {
                let door = self.actors[index].door;
                door.answered(self, index, &asked, Some(answer));
            }
        }
    }

    fn added(&mut self, index: usize, asked: &Asked, answer: Answer) {
        self.show(&Seen::Answered(index, asked, &answer));
        match answer {
            Answer::Leased { .. } | Answer::Network(NetworkAnswer::Endpoint(_))
                if let Some(lease) = &asked.lease =>
            {
                self.stats.count("ADD leased");
                let lan = self.actors[index].lan;
                self.actors[index].told = Some(lease.clone());
                self.actors[index].told_at = self.now;
                let lease = self.actors[index].as_told(lease);
                let actor = &self.actors[index];
                if lease.source.is_asked()
                    && !self.is_granted(lan, lease.ip(), &actor.client_id, actor.mac)
                {
                    self.actors[index].excused = true;
                }
                let door = self.actors[index].door;
                door.leased(self, index, &lease);
            }
            Answer::Failed(failure) => {
                self.stats.count("ADD failed");
                self.gave_up(index, &failure);
                let door = self.actors[index].door;
                door.failed(self, index, &failure);
                self.end_by_del(index);
            }
            _ => {}
        }
    }

    /// Records whether a call that reaches the daemon waits for others about the same attachment that are not answered yet.
    pub(super) fn takes_its_turn(&mut self, id: RequestId) {
        let Some(own) = self
            .requests
            .get(&id)
            .and_then(|asked| attachment_of(&asked.call))
            .cloned()
        else {
            return;
        };
        let is_before = |(other, asked): (&RequestId, &Asked)| {
            *other != id && !asked.answered && attachment_of(&asked.call) == Some(&own)
        };
        let behind = self.requests.iter().any(is_before);
        self.requests
            .entry(id)
            .and_modify(|asked| asked.behind = behind);
    }

    /// Handles that a container's lease is back, as far as its runtime was told.
    pub(super) fn lease_is_back(&mut self, index: usize, told: bool) {
        if let (true, true, Some(lease)) = (told, self.calm, &self.actors[index].told) {
            let (address, kept) = (lease.ip(), self.grace_of(index));
            self.act_after(
                index,
                kept + 30 * SECOND,
                kept + 40 * SECOND,
                Act::Released(address),
            );
        }
        // Macvlan deletes its link at once, others take their time.
        match self.rng.u32(..3) {
            0 => self.act_after(index, 0, SECOND, Act::CleanUp),
            _ => self.clean_up(index),
        }
    }

    fn deleted(&mut self, index: usize, answer: Answer) {
        match answer {
            Answer::Deleted | Answer::Released => {
                self.stats
                    .count_which(answer == Answer::Deleted, "DEL done", "addresses released");
                if answer == Answer::Released {
                    self.judge_released(index);
                }
                self.lease_is_back(index, true);
            }
            Answer::Failed(failure) => {
                let can_be_kept = self.plan.spools && matches!(failure, Failure::Store(_));
                if self.calm || can_be_kept {
                    self.fail(Rule::Failed, format!("DEL: {failure}"));
                }
                let patience = self.plan.active.as_micros() as Micros / 50;
                self.act_after(index, SECOND, patience, Act::Del);
            }
            _ => {}
        }
    }

    /// Handles a connection that broke, or was refused.
    pub(super) fn cut(&mut self, id: RequestId) {
        if self
            .requests
            .get(&id)
            .is_none_or(|asked| asked.answered && !asked.gone)
        {
            return;
        }
        let Some(asked) = self.requests.remove(&id) else {
            return;
        };
        self.note(|| format!("    {id:?} is cut"));
        if let Role::Intruder(cookie) = asked.role {
            self.kernel.doom(cookie);
            return;
        }
        if let Call::Del { attachment, .. } = &asked.call
            && !matches!(asked.role, Role::Spool(_))
        {
            self.stats.count("DEL spooled");
            self.show(&Seen::Gone(attachment));
            self.spool.push(attachment.clone());
        }
        if let Some((lan, errand)) = asked.errand {
            return errand.answered(self, lan, &asked, None);
        }
        let Some(index) = self.asker(&asked) else {
            return;
        };
        match (&asked.role, self.actors[index].phase) {
            (Role::Add, Phase::Adding) => match asked.call {
                Call::Add(mut add)
                    if self.now + SECOND < asked.patience && self.rng.u32(..10) < 7 =>
                {
                    add.timeout = Duration::from_micros(asked.patience - self.now);
                    let least = if self.daemon.is_some() {
                        MILLI
                    } else {
                        100 * MILLI
                    };
                    self.act_after(index, least, 200 * MILLI, Act::Retry(add));
                }
                _ => self.end_by_del(index),
            },
            (Role::Add, Phase::Ending) if asked.gone => self.end_by_del(index),
            // dockerd tries again if it finds no socket.
            (Role::Del, Phase::Ending)
                if matches!(asked.call, Call::Pool(PoolCall::ReleaseAddress { .. })) =>
            {
                self.act_after(index, 100 * MILLI, SECOND, Act::Del);
            }
            (Role::Del, Phase::Ending) => self.clean_up(index),
            (Role::Collect, Phase::Ending) => self.end_by_del(index),
            (Role::Add | Role::Del | Role::Collect, _) => {}
            _ => {
                let door = self.actors[index].door;
                door.answered(self, index, &asked, None);
            }
        }
    }
}

/// Returns whether an endpoint was created whose lease has since gone. Its container starts without one.
fn is_without_lease(role: &Role, answer: &Answer) -> bool {
    *role == Role::Add && matches!(answer, Answer::Network(_))
}

/// Returns the attachment that a call is for, if any.
pub(super) fn attachment_of(call: &Call) -> Option<&Attachment> {
    match call {
        Call::Add(add) => Some(&add.attachment),
        Call::Del { attachment, .. } | Call::Check { attachment, .. } => Some(attachment),
        Call::Collect { .. } | Call::Status { .. } | Call::Ready | Call::List | Call::Ranges => {
            None
        }
        Call::Show(_) | Call::Order(_) | Call::Pool(_) => None,
        Call::Network(_) => add_of(call).map(|add| &add.attachment),
    }
}
