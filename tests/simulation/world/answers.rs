//! What callers do with their answers, or without one: a lease to configure, a failure to judge, a broken connection.

use std::time::Duration;

use leasehold_core::dhcpv4::lease::Lease;
use leasehold_core::effect::{Answer, Call, Failure, NetworkAnswer, RequestId};
use leasehold_core::identity::Attachment;
use leasehold_core::link::Cookie;

use super::actor::{Act, Actor, Asked, Form, Phase, Role, Spooled};
use super::runtime::WRONG;
use super::{Event, MILLI, Micros, SECOND, World};
use crate::kernel::At;
use crate::subject::add_of;
use crate::watch::Rule;

/// A namespace that died is noticed within this time if no message is lost: the sockets of conflict detection keep it
/// for up to a dozen seconds.
const NOTICED: Micros = 20 * SECOND;

/// How much longer to wait for Docker, which may still release the address, or has not put the link there.
const DOCKER_WAIT: Micros = 630 * SECOND;

impl World {
    /// Returns within what time a dead namespace is noticed, and its leases are given back.
    pub(super) fn noticed(&self) -> Micros {
        NOTICED + if self.plan.docker { DOCKER_WAIT } else { 0 }
    }

    /// Records that the core knows that a caller went away. `open`: it had not answered before.
    pub(super) fn caller_gone(&mut self, id: RequestId, open: bool) {
        let Some(asked) = self.requests.remove(&id) else { return };
        self.heard_given_up(&asked.call);
        let Some((index, generation)) = asked.by.filter(|(index, g)| self.actors[*index].generation == *g) else {
            return;
        };
        if self.actors[index].phase != Phase::Ending {
            return;
        }
        if asked.role == Role::Add && open && self.rng.u32(..3) == 0 {
            // Nobody says DEL: the ADD has to go with its caller.
            let plan = &self.plan;
            let stored = plan.crashes.is_empty() && plan.store_faults == 0 && plan.store_full.is_none();
            // An older container's end has to be noticed too.
            // A Docker call may be answered with the lease of the container before it, whose release the test waits for.
            let is_new = !self.actors[index].docker;
            if is_new && stored && plan.missed == 0 && plan.link_faults == 0 {
                let attachment = self.actors[index].attachment.clone();
                self.at(self.now + 20 * SECOND, Event::Act(index, generation, Act::Dropped(attachment)));
            }
            self.act_after(index, 25 * SECOND, 40 * SECOND, Act::CleanUp);
        } else {
            self.act_after(index, 0, SECOND, Act::Del);
        }
    }

    /// Delivers an answer to its caller.
    pub(super) fn answer(&mut self, id: RequestId, answer: Answer) {
        if self.requests.get(&id).is_none_or(|asked| asked.gone) {
            return;
        }
        let Some(mut asked) = self.requests.remove(&id) else { return };
        self.note(|| format!("    {id:?} is answered {answer:?}"));
        if let Role::Audit(_) | Role::Inquiry = &asked.role {
            return self.found(id, &asked.role, answer);
        }
        if let Role::Intruder(cookie) = asked.role {
            return self.intruded(cookie, &answer);
        }
        if asked.role == Role::Collect {
            return self.collected(&asked, answer);
        }
        if let Role::Network(lan) = asked.role {
            return self.network_answered(lan, &asked.call, &answer);
        }
        if let Role::Status(expected) = &asked.role {
            return self.status_answered(*expected, &answer);
        }
        if let Role::Wiring(lan) = asked.role {
            return self.wiring_answered(lan, &asked.call, Some(&answer));
        }
        // A lease for which no IPAM driver was asked comes with its endpoint.
        let lease = asked.lease.take();
        let is_without_lease = lease.is_none() && is_without_lease(&asked.role, &answer);
        self.stats.count_many("endpoints whose lease was gone", usize::from(is_without_lease));
        let Some((index, _)) = asked.by.filter(|(index, g)| self.actors[*index].generation == *g) else { return };
        match asked.role {
            Role::Add if self.actors[index].phase == Phase::Adding && is_without_lease => {
                self.end_by_del(index);
            }
            Role::Add if self.actors[index].phase == Phase::Adding => self.added(index, &asked, answer, lease),
            Role::Again if self.actors[index].phase == Phase::Live => self.added_again(index, answer, lease),
            Role::Del if self.actors[index].phase == Phase::Ending => self.deleted(index, answer),
            Role::Check if self.actors[index].phase == Phase::Live => self.checked(index, answer),
            Role::Endpoint | Role::Join | Role::Unmake => self.endpoint_answered(index, &asked.role, Some(answer)),
            Role::WrongCheck if answer == Answer::Checked => self.fail(Rule::WrongAnswer, format!("CHECK of {WRONG}")),
            _ => {}
        }
    }

    /// Handles an intruder's lease. The core grants one if it does not know that the attachment is held: that was lost with the
    /// store, and not adopted. The container has then lost its place, even if the answer never arrives.
    pub(super) fn rob(&mut self, id: RequestId) {
        let intrudes = |asked: &&Asked| self.was_damaged && matches!(asked.role, Role::Intruder(_));
        let asked = self.requests.get(&id).filter(intrudes);
        let Some(attachment) = asked.and_then(|asked| attachment_of(&asked.call)) else { return };
        let robbed = self.actors.iter_mut().filter(|actor| actor.attachment == *attachment);
        robbed.for_each(|actor| (actor.excused, actor.stranded) = (true, Some(false)));
        self.watch.holders.remove(attachment);
    }

    /// Takes an intruder's namespace away. In a calm world it was told where its attachment is.
    fn intruded(&mut self, cookie: Cookie, answer: &Answer) {
        let died = self.kernel.doom(cookie);
        self.tell(died);
        match answer {
            Answer::Failed(Failure::Attached { .. } | Failure::Cancelled(_)) => self.stats.count("intruders refused"),
            Answer::Failed(_) if !self.calm => {}
            Answer::Leased { .. } if self.was_damaged => {}
            answer => self.fail(Rule::WrongAnswer, format!("to an intruder: {answer:?}")),
        }
    }

    fn added(&mut self, index: usize, asked: &Asked, answer: Answer, lease: Option<Lease>) {
        self.an_add_ends();
        match answer {
            Answer::Leased { .. } | Answer::Network(NetworkAnswer::Endpoint(_)) if let Some(lease) = lease => {
                self.stats.count("ADD leased");
                let lan = self.actors[index].lan;
                self.judge_rogue(lan, Some(lease.server));
                self.actors[index].told = Some(lease.clone());
                self.actors[index].told_at = self.now;
                let lease = self.actors[index].as_told(&lease);
                let actor = &self.actors[index];
                if !self.is_granted(lan, lease.ip(), &actor.client_id, actor.mac) {
                    self.actors[index].excused = true;
                }
                if self.actors[index].form != Some(Form::Leased) && self.actors[index].docker {
                    self.judge_fit(lan, lease.ip());
                    self.judge_chosen(index, lease.ip());
                }
                if self.actors[index].form.is_some() {
                    return self.goes_on(index);
                }
                if self.actors[index].docker {
                    self.actors[index].phase = Phase::Live;
                    self.starts(index);
                    return self.stay(index);
                }
                let Some(at) = self.actors[index].at.filter(|at| self.kernel.link(*at).is_some()) else {
                    return self.end_by_del(index);
                };
                self.check_link(index, at);
                self.configure(index, at, &lease);
                self.actors[index].phase = Phase::Live;
                self.stay(index);
            }
            Answer::Failed(failure) => {
                self.stats.count("ADD failed");
                self.no_such_network(self.actors[index].lan, &failure);
                self.explain(index, asked, &failure);
                self.end_by_del(index);
            }
            Answer::Leased { .. } => {}
            Answer::Deleted | Answer::Checked | Answer::Collected | Answer::Ready | Answer::Bindings { .. } => {}
            Answer::Pool { .. }
            | Answer::PoolReleased
            | Answer::Reserved(_)
            | Answer::Released
            | Answer::Network(_) => {}
        }
    }

    /// Checks that in a calm world the link is as the server wants it by the time of the answer.
    fn check_link(&mut self, index: usize, at: At) {
        if !self.calm {
            return;
        }
        let Some(wire) = self.kernel.link(at) else { return };
        let (good, state) = (wire.up && wire.carrier && wire.mtu == self.plan.mtu.map_or(1500, u32::from), wire.mtu);
        if !good {
            self.fail(Rule::Failed, format!("actor {index} got a lease on a link that is not ready, MTU {state}"));
        }
    }

    /// Checks that in a calm world an ADD fails only for what its caller did, or for want of time.
    fn explain(&mut self, index: usize, asked: &Asked, failure: &Failure) {
        if let Failure::HeldBack { .. } = failure {
            self.judge_held_up(self.actors[index].lan);
        }
        let actor = &self.actors[index];
        let intact = actor.docker || actor.at.is_some_and(|at| self.kernel.link(at).is_some());
        let recent = self
            .actors
            .iter()
            .any(|other| other.group == actor.group && other.died.is_some_and(|died| self.now < died + self.noticed()));
        let chosen = actor.wanted.is_some();
        let is_in_use = self.claims_heard() > 0 || self.plan.stubborn && !self.plan.squatters.is_empty();
        let explained = match failure {
            // Another has the requested address, or had it.
            Failure::NotWanted { .. } | Failure::AddressHeld { .. } | Failure::Conflict { .. } if chosen => true,
            Failure::Held { .. } => self.plan.sharers > 1 || recent,
            Failure::Attached { .. } => recent,
            Failure::Link { .. } => !intact,
            Failure::AddressHeld { .. } => self.has_namesake(index),
            Failure::Unfit { .. } => actor.docker,
            // Its server may offer it nothing else.
            Failure::Conflict { .. } | Failure::Conflicts { .. } | Failure::HeldBack { .. } if is_in_use => true,
            // Its time is over. What another has may become free in its last moment.
            Failure::Conflict { .. }
            | Failure::Conflicts { .. }
            | Failure::Nak { .. }
            | Failure::NoOffer { .. }
            | Failure::NoAck { .. }
            | Failure::TimedOut { .. } => {
                let had = add_of(&asked.call).map(|add| add.timeout).filter(|_| !asked.behind);
                let needs = self.plan.needs() + self.plan.one_try() * self.claims_heard();
                had.is_none_or(|had| had < needs) || self.has_namesake(index)
            }
            _ => false,
        };
        let doing = actor.attachment.to_string();
        if self.calm && !explained && !self.winding_down {
            self.fail(Rule::Failed, format!("ADD of {doing}: {failure}"));
        }
        if let Failure::Held { .. } = failure {
            self.stats.count("held by another");
        }
    }

    /// Records whether a call that reaches the daemon waits for others about the same attachment, which are not answered yet.
    pub(super) fn takes_its_turn(&mut self, id: RequestId) {
        let Some(own) = self.requests.get(&id).and_then(|asked| attachment_of(&asked.call)).cloned() else { return };
        let is_before = |(other, asked): (&RequestId, &Asked)| {
            *other != id && !asked.answered && attachment_of(&asked.call) == Some(&own)
        };
        let behind = self.requests.iter().any(is_before);
        self.requests.entry(id).and_modify(|asked| asked.behind = behind);
    }

    /// Returns whether another actor has, or had since this one's began, a container that servers do not tell apart from this
    /// one's. A container that ended meanwhile had its address for part of that time, and an ADD that is refused the address
    /// again and again asks with growing pauses.
    fn has_namesake(&self, index: usize) -> bool {
        let known = |actor: &Actor| (actor.lan, self.known_as(&actor.client_id, actor.mac));
        let began = self.actors[index].began;
        let lives = |actor: &Actor| {
            let died = actor.died.is_some_and(|died| self.now < died + self.noticed());
            actor.phase != Phase::Idle || died || actor.ended.is_some_and(|ended| ended >= began)
        };
        let own = known(&self.actors[index]);
        let mut others = self.actors.iter().enumerate().filter(|(other, _)| *other != index);
        others.any(|(_, other)| lives(other) && known(other) == own)
    }

    fn added_again(&mut self, index: usize, answer: Answer, lease: Option<Lease>) {
        self.excuse_lapsed(index);
        let actor = &self.actors[index];
        let Some(told) = actor.told.clone() else { return };
        match answer {
            Answer::Leased { .. }
                if let Some(lease) = lease.filter(|lease| lease.address == told.address || actor.excused) =>
            {
                self.stats.count("ADD again leased");
                // A lease that had ended took its address off the link; main plugins put on what they are told.
                if let Some(at) = actor.at {
                    self.actors[index].meddled |= lease.address != told.address;
                    self.plug(at, &lease);
                }
                self.actors[index].told = Some(lease);
                self.actors[index].told_at = self.now;
            }
            // What failed ends with a DEL.
            Answer::Failed(_) if actor.excused => self.end_by_del(index),
            Answer::Failed(_) if !self.calm => {}
            answer => self.fail(Rule::LeaseLost, format!("second ADD of {}: {answer:?}", actor.attachment)),
        }
    }

    fn checked(&mut self, index: usize, answer: Answer) {
        self.excuse_lapsed(index);
        match answer {
            Answer::Checked => self.stats.count("CHECK passed"),
            Answer::Failed(Failure::NotOnLink { .. }) if self.actors[index].meddled => {
                self.stats.count("CHECK missed the address");
            }
            Answer::Failed(failure) => {
                self.stats.count("CHECK failed");
                if self.calm && !self.actors[index].excused {
                    let attachment = self.actors[index].attachment.clone();
                    self.fail(Rule::Failed, format!("CHECK of {attachment}: {failure}"));
                }
                if self.actors[index].excused {
                    self.end_by_del(index);
                }
            }
            Answer::Leased { .. } | Answer::Deleted | Answer::Collected | Answer::Ready | Answer::Bindings { .. } => {}
            Answer::Pool { .. }
            | Answer::PoolReleased
            | Answer::Reserved(_)
            | Answer::Released
            | Answer::Network(_) => {}
        }
    }

    /// Handles the return of a container's lease, as far as its runtime was told.
    pub(super) fn lease_is_back(&mut self, index: usize, told: bool) {
        if let (true, true, Some(lease)) = (told, self.calm, &self.actors[index].told) {
            let (address, kept) = (lease.ip(), self.grace_of(index));
            self.act_after(index, kept + 30 * SECOND, kept + 40 * SECOND, Act::Released(address));
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
                self.stats.count(if answer == Answer::Deleted { "DEL done" } else { "addresses released" });
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
            Answer::Leased { .. } | Answer::Checked | Answer::Collected | Answer::Ready | Answer::Bindings { .. } => {}
            Answer::Pool { .. } | Answer::PoolReleased | Answer::Reserved(_) | Answer::Network(_) => {}
        }
    }

    /// Handles a connection that broke, or was refused.
    pub(super) fn cut(&mut self, id: RequestId) {
        if self.requests.get(&id).is_none_or(|asked| asked.answered && !asked.gone) {
            return;
        }
        let Some(asked) = self.requests.remove(&id) else { return };
        self.note(|| format!("    {id:?} is cut"));
        if let Role::Intruder(cookie) = asked.role {
            self.kernel.doom(cookie);
            return;
        }
        if let Call::Del { attachment, .. } = &asked.call
            && !matches!(asked.role, Role::Spool(_))
        {
            self.stats.count("DEL spooled");
            self.watch.holders.remove(attachment);
            self.spool.push(Spooled { attachment: attachment.clone() });
        }
        if let Role::Wiring(lan) = asked.role {
            // A caller that has given up asks anew.
            if asked.gone {
                return;
            }
            return self.wiring_answered(lan, &asked.call, None);
        }
        let Some((index, _)) = asked.by.filter(|(index, g)| self.actors[*index].generation == *g) else { return };
        if let Role::Endpoint | Role::Join | Role::Unmake = asked.role {
            return self.endpoint_answered(index, &asked.role, None);
        }
        match (&asked.role, self.actors[index].phase) {
            (Role::Add, Phase::Adding) => match asked.call {
                Call::Add(mut add) if self.now + SECOND < asked.patience && self.rng.u32(..10) < 7 => {
                    add.timeout = Duration::from_micros(asked.patience - self.now);
                    let least = if self.daemon.is_some() { MILLI } else { 100 * MILLI };
                    self.act_after(index, least, 200 * MILLI, Act::Retry(add));
                }
                _ => self.end_by_del(index),
            },
            (Role::Add, Phase::Ending) if asked.gone => self.end_by_del(index),
            (Role::Again, Phase::Live) => {
                self.excuse_lapsed(index);
                if self.actors[index].excused {
                    self.end_by_del(index);
                }
            }
            // dockerd tries again if it finds no socket.
            (Role::Del, Phase::Ending) if matches!(asked.call, Call::ReleaseAddress { .. }) => {
                self.act_after(index, 100 * MILLI, SECOND, Act::Del);
            }
            (Role::Del, Phase::Ending) => self.clean_up(index),
            (Role::Collect, Phase::Ending) => self.end_by_del(index),
            _ => {}
        }
    }
}

/// Returns whether an endpoint was created whose lease has gone since. Its container starts without it.
fn is_without_lease(role: &Role, answer: &Answer) -> bool {
    *role == Role::Add && matches!(answer, Answer::Network(_))
}

/// Returns the attachment that a call is for, if it is for one.
fn attachment_of(call: &Call) -> Option<&Attachment> {
    match call {
        Call::Add(add) => Some(&add.attachment),
        Call::Del { attachment, .. } | Call::Check { attachment, .. } => Some(attachment),
        Call::Collect { .. } | Call::Status { .. } | Call::List => None,
        Call::RequestPool(_) | Call::ReleasePool { .. } | Call::Reserve { .. } | Call::ReleaseAddress { .. } => None,
        Call::Network(_) => add_of(call).map(|add| &add.attachment),
    }
}
