//! The runtimes: they make containers, ask for addresses, configure them, and end in all the ways that containers end.

use std::net::Ipv4Addr;
use std::time::Duration;

use leasehold_core::effect::{Call, RequestId};
use leasehold_core::link::KernelMessage;
use leasehold_core::testbed::kernel::At;

use super::actor::{Act, Asked, Phase, Role};
use super::doors::ERRANDS;
use super::seen::Seen;
use super::{Event, MILLI, Micros, SECOND, World};
use crate::plan::{happens, pick};

impl World {
    /// Lets an actor act, unless the act was meant for an earlier container.
    pub(super) fn act(&mut self, actor: usize, generation: u32, act: Act) {
        if let Act::Dropped(attachment) = act {
            return self.ask_audit(Some(attachment));
        }
        if let Act::Released(address) = act {
            return self.show(&Seen::ReleasedBy {
                index: actor,
                generation,
                address,
            });
        }
        if self.actors[actor].generation != generation {
            return;
        }
        let door = self.actors[actor].door;
        match act {
            Act::Begin => self.begin_container(actor),
            Act::Next if !self.winding_down && self.actors[actor].phase == Phase::Live => {
                door.next(self, actor)
            }
            Act::HangUp(id) => self.hang_up(actor, id),
            Act::Del if self.actors[actor].phase != Phase::Idle => door.ends(self, actor),
            Act::Again | Act::Appear | Act::Rejoin | Act::Plug => door.acts(self, actor, act),
            Act::Unlink => {
                self.unlink(actor);
                if self.actors[actor].phase == Phase::Live {
                    self.actors[actor].phase = Phase::Ending;
                    self.act_after(actor, 0, 200 * MILLI, Act::Del);
                }
            }
            Act::Die => self.die(actor),
            Act::Retry(add) if self.actors[actor].phase == Phase::Adding => {
                let patience = self.now + add.timeout.as_micros() as Micros;
                self.ask(actor, Role::Add, Call::Add(add), patience);
            }
            Act::CleanUp => self.clean_up(actor),
            Act::Next | Act::Del | Act::Retry(_) | Act::Released(_) | Act::Dropped(_) => {}
        }
    }

    pub(super) fn act_after(&mut self, actor: usize, least: Micros, most: Micros, act: Act) {
        let generation = self.actors[actor].generation;
        self.after(least, most, Event::Act(actor, generation, act));
    }

    /// Makes a namespace with a link that is down, and asks for an address.
    fn begin_container(&mut self, index: usize) {
        if self.winding_down || self.actors[index].phase != Phase::Idle {
            return;
        }
        let door = self.actors[index].door;
        if !door.is_ready(self, self.actors[index].lan) {
            return self.act_after(index, 100 * MILLI, 5 * SECOND, Act::Begin);
        }
        let spooled = self.spool.contains(&self.actors[index].attachment);
        self.comes_back(index);
        let same = self.rng.u32(..4) == 0 && self.actors[index].container > 0 && !spooled;
        let same_mac = self.rng.u32(..6) == 0 || self.plan.lingers;
        let lan = self.actors[index].lan;
        let actor = &mut self.actors[index];
        // The Ethernet address may be the attachment.
        actor.turn_to_next(index, same, same_mac && !(spooled && door.knows_by_mac()));
        actor.began = self.now;
        door.makes(self, index);
        let timeout = Duration::from_secs(pick(&mut self.rng, &[12, 30]));
        let add = self.actors[index].add(self.segments[lan].lan.clone(), timeout, &self.plan);
        let patience = self.now + timeout.as_micros() as Micros;
        let id = door.asks(self, index, add, patience);
        if happens(&mut self.rng, self.plan.unruly) {
            let act = match self.rng.u32(..7) {
                0 | 1 => Act::HangUp(id),
                2 => Act::Del,
                3 | 4 => Act::Again,
                5 => Act::Unlink,
                _ => Act::Die,
            };
            let most = pick(&mut self.rng, &[5 * MILLI, 400 * MILLI, 5 * SECOND]);
            self.act_after(index, 0, most, act);
        }
    }

    /// Lets a container's caller end it.
    pub(super) fn end_by_del(&mut self, index: usize) {
        let door = self.actors[index].door;
        door.ends(self, index);
    }

    /// Makes a client begin again in another place.
    pub(super) fn begins_anew(&mut self, index: usize) {
        let actor = &self.actors[index];
        self.timing.settled(&(actor.lan, actor.client_key()));
    }

    /// Sends the daemon a request: over a connection, or, if there is none, as the shim does.
    pub(super) fn ask(
        &mut self,
        actor: usize,
        role: Role,
        call: Call,
        patience: Micros,
    ) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let by = Some((actor, self.actors[actor].generation));
        self.requests.insert(
            id,
            Asked {
                by,
                patience,
                ..Asked::by_nobody(role, call)
            },
        );
        let at = (self.now + self.rng.u64(20..2 * MILLI)).max(self.actors[actor].order + 1);
        self.actors[actor].order = at;
        let event = if self.daemon.is_some() {
            Event::Request(id)
        } else {
            Event::Cut(id)
        };
        self.at(at, event);
        id
    }

    /// Lets the container run on for a while.
    pub(super) fn stay(&mut self, index: usize) {
        let active = self.plan.active.as_micros() as Micros;
        let lease = u64::from(self.plan.lease.min(86_400)) * SECOND;
        self.act_after(index, SECOND, (lease * 3 / 2).min(active / 3), Act::Next);
    }

    pub(super) fn unlink(&mut self, index: usize) {
        let Some(at) = self.actors[index].at else {
            return;
        };
        self.show(&Seen::Leaves(index));
        self.nobody_has(index);
        self.break_socks(at);
        if self.link_moves_back(at) {
            self.actors[index].at = None;
            return self.note(|| format!("actor {index} gives its link back"));
        }
        let gone = self.kernel.delete_link(at);
        if gone.is_some() {
            self.note(|| format!("actor {index} deletes its link"));
        }
        self.tell(gone);
    }

    /// Takes the namespace away.
    fn doom(&mut self, index: usize) {
        let at = self.actors[index].at.take();
        let Some(cookie) = self.actors[index].netns.take() else {
            return;
        };
        self.show(&Seen::Leaves(index));
        self.nobody_has(index);
        self.note(|| format!("actor {index} loses namespace {}", cookie.0));
        self.lingers(at);
        let died = self.kernel.doom(cookie);
        if self.kernel.is_pinned(cookie) {
            // Sockets keep it alive, but the shell hears that its path is gone.
            self.tell(Some(KernelMessage::PathGone(cookie)));
            self.pinned.insert(cookie.0, self.now);
        }
        self.link_changed(cookie, None);
        self.tell(died);
    }

    /// Has the kernel keep the link of a namespace that dies for a moment.
    fn lingers(&mut self, at: Option<At>) {
        let wire = at.filter(|_| self.plan.lingers);
        if let Some(wire) = wire.and_then(|at| self.kernel.link(at)) {
            self.going.insert(
                (wire.lan, wire.mac),
                (self.now + 2 * SECOND, wire.addresses()),
            );
        }
    }

    /// Makes the namespace die, perhaps without a DEL ever.
    pub(super) fn die(&mut self, index: usize) {
        if !matches!(self.actors[index].phase, Phase::Adding | Phase::Live) {
            return;
        }
        self.stats.count("namespaces that died");
        self.doom(index);
        self.actors[index].died = Some(self.now);
        if self.rng.u32(..3) == 0 {
            self.actors[index].phase = Phase::Ending;
            self.act_after(index, 0, 10 * SECOND, Act::Del);
        } else if self.actors[index].door.dies_unseen(self) {
            // As dockerd does at its next start.
            self.actors[index].phase = Phase::Ending;
            self.act_after(index, SECOND, 60 * SECOND, Act::Del);
        } else {
            self.rest(index);
        }
    }

    /// Removes what is left of a container, as the main plugin does after DEL's answer.
    pub(super) fn clean_up(&mut self, index: usize) {
        self.unlink(index);
        self.doom(index);
        self.rest(index);
    }

    fn rest(&mut self, index: usize) {
        if self.actors[index].endpoint.is_some() {
            self.stats.count("endpoints that dockerd forgot");
            self.actors[index].died = Some(self.now);
            self.forget_endpoint(index);
        }
        let actor = &mut self.actors[index];
        actor.phase = Phase::Idle;
        (actor.at, actor.netns, actor.ended) = (None, None, Some(self.now));
        // What was scheduled for this container is void, except for the acts that end it.
        let lease = u64::from(self.plan.lease.min(600)) * SECOND;
        // A container that got nothing tries again, but not at once.
        let most = match self.actors[index].told {
            Some(_) => pick(&mut self.rng, &[10 * MILLI, SECOND, lease]),
            None if self.plan.pool < 10 => SECOND,
            None => u64::from(self.plan.lease.min(86_400)) * SECOND / 4 + SECOND,
        };
        self.act_after(index, 0, most, Act::Begin);
    }

    /// Records that nobody has the lease of an actor's container any more.
    pub(super) fn nobody_has(&mut self, index: usize) {
        self.show(&Seen::Gone(&self.actors[index].attachment.clone()));
    }

    fn hang_up(&mut self, index: usize, id: RequestId) {
        let Some(asked) = self.requests.get_mut(&id).filter(|asked| !asked.gone) else {
            return;
        };
        asked.gone = true;
        self.actors[index].phase = Phase::Ending;
        self.show(&Seen::HangsUp);
        self.stats.count("hang-ups");
        let at = (self.now + 10).max(self.actors[index].order + 1);
        self.actors[index].order = at;
        self.at(at, Event::HungUp(self.run, id));
    }

    /// Returns the spool as requests, which stay in it until they are answered.
    pub(super) fn take_spool(&mut self) -> Vec<(RequestId, Call)> {
        let mut calls = Vec::new();
        for attachment in self.spool.clone() {
            let id = RequestId(self.next_request);
            self.next_request += 1;
            // A kept DEL says nothing else.
            let call = Call::Del {
                attachment: attachment.clone(),
                grace: None,
            };
            let role = Role::Spool(attachment);
            self.requests
                .insert(id, Asked::by_nobody(role, call.clone()));
            calls.push((id, call));
        }
        calls
    }

    /// Handles a reboot of the host: no container is left, and nobody waits for an answer.
    pub(super) fn containers_ended(&mut self) {
        self.requests.clear();
        self.pinned.clear();
        for lan in 0..self.segments.len() {
            ERRANDS.iter().for_each(|errand| errand.rebooted(self, lan));
        }
        for index in 0..self.actors.len() {
            let actor = &mut self.actors[index];
            actor.generation += 1;
            (actor.at, actor.netns, actor.endpoint) = (None, None, None);
            actor.phase = Phase::Idle;
            actor.died = Some(self.now);
            self.act_after(index, SECOND, 30 * SECOND, Act::Begin);
        }
    }

    /// Excuses the holder of an address, which may lose it through no fault of the daemon's. A Docker container is told of it
    /// before it runs.
    pub(super) fn excuse(&mut self, lan: usize, address: Ipv4Addr, why: &'static str) {
        for actor in self.actors.iter_mut().filter(|actor| actor.lan == lan) {
            let holds = matches!(actor.phase, Phase::Adding | Phase::Live);
            if holds
                && actor
                    .told
                    .as_ref()
                    .is_some_and(|lease| lease.ip() == address)
            {
                actor.excused = true;
                self.stats.count(why);
            }
        }
    }
}
