//! The runtimes: they make containers, ask for addresses, configure them, and end in all the ways that containers end.

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};
use leasehold_core::dhcpv4::lease::Lease;
use leasehold_core::effect::{Call, RequestId};
use leasehold_core::link::{KernelEvent, Place};
use leasehold_core::wire::Mac;

use super::actor::{Act, Actor, Asked, Form, Phase, Role, pool_of};
use super::{Event, MILLI, Micros, SECOND, World};
use crate::link::Wire;
use crate::plan::{happens, pick};

/// An address outside every pool.
pub(super) const WRONG: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 2, 1), 24);

impl World {
    /// Lets an actor act, unless the act was meant for an earlier container.
    pub(super) fn act(&mut self, actor: usize, generation: u32, act: Act) {
        if let Act::Dropped(attachment) = act {
            return self.ask_audit(Some(attachment));
        }
        if let Act::Released(address) = act {
            return self.must_be_released(actor, generation, address);
        }
        if self.actors[actor].generation != generation {
            return;
        }
        match act {
            Act::Begin => self.begin_container(actor),
            Act::Next => self.next(actor),
            Act::HangUp(id) => self.hang_up(actor, id),
            Act::Del if self.actors[actor].phase != Phase::Idle => self.end_by_del(actor),
            Act::Again => self.ask_again(actor),
            Act::Appear => self.appear(actor),
            Act::Rejoin if self.actors[actor].phase == Phase::Live => self.join(actor),
            Act::Plug => self.plug_in(actor),
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
            Act::Del | Act::Rejoin | Act::Retry(_) | Act::Released(_) | Act::Dropped(_) => {}
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
        if self.actors[index].form.is_some() && !self.has_network(self.actors[index].lan) {
            return self.act_after(index, 100 * MILLI, 5 * SECOND, Act::Begin);
        }
        let spooled = self.spool.iter().any(|spooled| spooled.attachment == self.actors[index].attachment);
        self.comes_back(index);
        let same = self.rng.u32(..4) == 0 && self.actors[index].container > 0 && !spooled;
        let same_mac = self.rng.u32(..6) == 0;
        let lan = self.actors[index].lan;
        let actor = &mut self.actors[index];
        // For Docker the Ethernet address is the attachment.
        actor.turn_to_next(index, same, same_mac && !(actor.docker && spooled));
        actor.began = self.now;
        self.choose_address(index);
        self.choose_network(index);
        let actor = &self.actors[index];
        let (path, mac) = (actor.path.clone(), actor.mac);
        if self.actors[index].docker {
            let cookie = self.kernel.create_empty(&path);
            self.actors[index].netns = Some(cookie);
            self.note(|| format!("actor {index} makes {} for {mac} as {cookie:?}", path.display()));
        } else {
            let at = self.kernel.create(&path, "eth0", mac, 1500, lan);
            (self.actors[index].at, self.actors[index].netns) = (Some(at), Some(at.0));
            self.furnish(index, at);
            self.note(|| format!("actor {index} makes {} with {mac} at {at:?}", path.display()));
        }
        let timeout = Duration::from_secs(pick(&mut self.rng, &[12, 30]));
        let add = self.actors[index].add(self.segments[lan].lan.clone(), timeout, &self.plan);
        let patience = self.now + timeout.as_micros() as Micros;
        let id = match self.actors[index].form {
            Some(Form::Leased) => self.create_endpoint(index, Role::Add, Some(add), patience),
            Some(Form::Told) | None => self.ask(index, Role::Add, Call::Add(Box::new(add)), patience),
        };
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

    /// Lets Docker start a container that has its address: mostly at once, now and then after minutes, as when it relabels
    /// volumes.
    pub(super) fn starts(&mut self, index: usize) {
        let is_slow = !self.winding_down && self.rng.u32(..12) == 0;
        self.stats.count_many("containers that started slowly", usize::from(is_slow));
        let most = if is_slow { 540 * SECOND } else { 200 * MILLI };
        // Until then the lease is extended from the host's link, which a server in a macvlan does not hear.
        self.actors[index].excused |= is_slow && self.plan.beside;
        self.act_after(index, 0, most, Act::Appear);
    }

    /// Lets Docker move the link of a container into its namespace, some time after it was told the address.
    fn appear(&mut self, index: usize) {
        let actor = &self.actors[index];
        let (Phase::Live, Some(cookie)) = (actor.phase, actor.netns) else { return };
        let at = match actor.form {
            Some(_) => self.link_moves_in(index),
            None => self.kernel.put(cookie, Wire::new("eth0", actor.mac, 1500, actor.lan, false)),
        };
        let Some(at) = at else {
            // Its link was deleted when dockerd had left it too long.
            if self.actors[index].form.is_some() {
                self.end_by_del(index);
            }
            return;
        };
        self.note(|| format!("actor {index} has its link at {at:?}"));
        self.begins_anew(index);
        (self.actors[index].at, self.actors[index].appeared) = (Some(at), self.now);
        self.squatted.appeared(&self.actors[index].attachment, self.now);
        // What somebody took off was on another interface.
        self.actors[index].stays_off = false;
        self.link_changed(at.0, None);
        if let Some(arrival) = self.kernel.arrival(at) {
            self.after(10, 5 * MILLI, Event::Told(self.run, arrival));
        }
        self.act_after(index, 0, 50 * MILLI, Act::Plug);
    }

    /// Lets a client begin again in another place.
    fn begins_anew(&mut self, index: usize) {
        let actor = &self.actors[index];
        self.timing.moved(&(actor.lan, actor.client_key()));
    }

    /// Lets Docker configure the link. It still has what it was told.
    fn plug_in(&mut self, index: usize) {
        let actor = &self.actors[index];
        let (Phase::Live, Some(at), Some(told)) = (actor.phase, actor.at, actor.told.clone()) else { return };
        self.kernel.raise(at);
        self.after(MILLI, 300 * MILLI, Event::Carrier(at, true));
        let told = self.actors[index].as_told(&told);
        self.configure(index, at, &told);
        // Once it is up, which is also reported.
        self.after(MILLI, 50 * MILLI, Event::Told(self.run, self.kernel.arrival(at).expect("it is there")));
    }

    /// Asks the daemon for something: by a connection, or, if there is none, as the shim does.
    pub(super) fn ask(&mut self, actor: usize, role: Role, call: Call, patience: Micros) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let by = Some((actor, self.actors[actor].generation));
        self.requests.insert(id, Asked { by, patience, ..Asked::by_nobody(role, call) });
        let at = (self.now + self.rng.u64(20..2 * MILLI)).max(self.actors[actor].order + 1);
        self.actors[actor].order = at;
        let event = if self.daemon.is_some() { Event::Request(id) } else { Event::Cut(id) };
        self.at(at, event);
        id
    }

    fn ask_again(&mut self, index: usize) {
        let actor = &self.actors[index];
        // Docker asks once.
        if !matches!(actor.phase, Phase::Adding | Phase::Live) || self.daemon.is_none() || actor.docker {
            return;
        }
        let add = actor.add(self.segments[actor.lan].lan.clone(), Duration::from_secs(12), &self.plan);
        self.stats.count("ADD again");
        self.ask(index, Role::Again, Call::Add(Box::new(add)), self.now);
    }

    /// Does something with a running container.
    fn next(&mut self, index: usize) {
        if self.winding_down || self.actors[index].phase != Phase::Live {
            return;
        }
        if self.actors[index].docker {
            return self.next_of_docker(index);
        }
        match self.rng.u32(..100) {
            0..20 => {
                let expected = self.actors[index].told.iter().map(|lease| lease.address.into()).collect();
                self.ask_check(index, Role::Check, expected);
            }
            20..25 => self.ask_check(index, Role::WrongCheck, vec![WRONG.into()]),
            25..35 => {
                self.ask_again(index);
                self.stay(index);
            }
            35..40 if self.plan.flapping > 0 && self.plan.hears_all() => {
                let at = self.actors[index].at.expect("a container that runs has a link");
                self.lower(at);
                self.actors[index].foreign_routes.clear();
                self.stats.count("links set down");
                self.stay(index);
            }
            35..45 if self.plan.flapping > 0 => {
                let at = self.actors[index].at.expect("a container that runs has a link");
                self.carrier(at, false);
                self.stats.count("carrier lost");
                self.stay(index);
            }
            45..50 if self.plan.unruly == 0 => {
                self.intrude(index);
                self.stay(index);
            }
            50..54 if self.plan.unruly > 0 => {
                self.strip(index);
                self.stay(index);
            }
            35..55 => self.stay(index),
            55..65 if self.plan.collects.is_some() => self.end_by_collection(index),
            _ if !happens(&mut self.rng, self.plan.unruly) => self.end_by_del(index),
            _ => match self.rng.u32(..4) {
                0 => self.act_after(index, 0, 0, Act::Unlink),
                1 => {
                    self.end_by_del(index);
                    let id = RequestId(self.next_request - 1);
                    self.act_after(index, 0, 20 * MILLI, Act::HangUp(id));
                }
                _ => self.die(index),
            },
        }
    }

    /// Does something with a running Docker container.
    fn next_of_docker(&mut self, index: usize) {
        let Some(at) = self.actors[index].at else { return self.stay(index) };
        match self.rng.u32(..100) {
            0..10 if self.plan.flapping > 0 => {
                self.carrier(at, false);
                self.stats.count("carrier lost");
                self.stay(index);
            }
            10..15 if self.plan.unruly > 0 => {
                self.strip(index);
                self.stay(index);
            }
            // Not while what was due during a sleep is done all at once: an interface that is nowhere then is given up.
            15..25 if self.resumed == 0 || self.now > self.resumed + 60 * SECOND => {
                self.stats.count("links that moved away and back");
                self.unlink(index);
                self.begins_anew(index);
                self.actors[index].at = None;
                self.actors[index].foreign.clear();
                self.actors[index].foreign_routes.clear();
                let back = if self.actors[index].form.is_some() { Act::Rejoin } else { Act::Appear };
                self.act_after(index, MILLI, 5 * SECOND, back);
                self.stay(index);
            }
            0..45 => self.stay(index),
            // Mostly the link goes first, and the address is released then.
            _ if !happens(&mut self.rng, self.plan.unruly) => {
                self.unlink(index);
                self.end_by_del(index);
            }
            _ => match self.rng.u32(..3) {
                0 => self.act_after(index, 0, 0, Act::Unlink),
                1 => self.end_by_del(index),
                _ => self.die(index),
            },
        }
    }

    /// Asks for the same attachment from another namespace.
    fn intrude(&mut self, index: usize) {
        let actor = &self.actors[index];
        let lan = actor.lan;
        let mac = Mac([2, 0xcc, actor.mac.0[2], actor.mac.0[3], actor.mac.0[4], actor.mac.0[5]]);
        let mut add = actor.add(self.segments[lan].lan.clone(), Duration::from_secs(12), &self.plan);
        let Place::InNetns(at) = &mut add.place else { unreachable!("it is in a namespace") };
        at.netns.as_mut_os_string().push("-too");
        let netns = at.netns.clone();
        let (cookie, _) = self.kernel.create(&netns, "eth0", mac, 1500, lan);
        self.stats.count("intruders");
        self.ask(index, Role::Intruder(cookie), Call::Add(Box::new(add)), self.now);
    }

    fn ask_check(&mut self, index: usize, role: Role, expected: Vec<IpNet>) {
        let attachment = self.actors[index].attachment.clone();
        self.ask(index, role, Call::Check { attachment, expected }, self.now);
        self.stay(index);
    }

    /// Lets the container run on for a while.
    pub(super) fn stay(&mut self, index: usize) {
        let active = self.plan.active.as_micros() as Micros;
        let lease = u64::from(self.plan.lease.min(86_400)) * SECOND;
        self.act_after(index, SECOND, (lease * 3 / 2).min(active / 3), Act::Next);
    }

    pub(super) fn end_by_del(&mut self, index: usize) {
        if self.actors[index].endpoint.is_some() {
            self.actors[index].phase = Phase::Ending;
            if self.actors[index].form == Some(Form::Leased) {
                self.goes_elsewhere(index);
                self.keeps(index);
            }
            return match self.end_endpoint(index) {
                true => {}
                false => self.endpoint_gone(index, false),
            };
        }
        self.goes_elsewhere(index);
        self.keeps(index);
        self.actors[index].phase = Phase::Ending;
        let (attachment, lan) = (self.actors[index].attachment.clone(), self.actors[index].lan);
        let told = self.actors[index].told.as_ref().filter(|_| self.actors[index].docker);
        let call = match told.map(Lease::ip) {
            Some(address) => {
                // If two were told one address, nobody knows whose is meant.
                let is_told = |actor: &&Actor| actor.docker && actor.told.as_ref().map(Lease::ip) == Some(address);
                for actor in self.actors.iter().filter(is_told) {
                    self.watch.holders.remove(&actor.attachment);
                }
                // The call names an address, and what was reserved since goes before a lease that may have ended.
                self.networks[lan].reserved.remove(&address);
                Call::ReleaseAddress { pool: pool_of(lan), address }
            }
            // A container that was not told went with its call.
            None => {
                let grace = self.plan.grace.filter(|_| self.actors[index].returns());
                Call::Del { attachment, grace }
            }
        };
        self.ask(index, Role::Del, call.clone(), self.now);
        if matches!(call, Call::ReleaseAddress { .. }) {
            self.release_twice(index, &call);
        }
    }

    /// Goes on with the end of a container whose endpoint is gone, or whose dockerd does not mention it.
    pub(super) fn endpoint_gone(&mut self, index: usize, told: bool) {
        match self.actors[index].form {
            Some(Form::Leased) => {
                if !told {
                    self.actors[index].died = Some(self.now);
                }
                self.lease_is_back(index, told);
            }
            Some(Form::Told) | None => self.end_by_del(index),
        }
    }

    pub(super) fn unlink(&mut self, index: usize) {
        let Some(at) = self.actors[index].at else { return };
        self.keeps(index);
        self.watch.holders.remove(&self.actors[index].attachment);
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
        self.actors[index].at = None;
        let Some(cookie) = self.actors[index].netns.take() else { return };
        self.keeps(index);
        self.watch.holders.remove(&self.actors[index].attachment);
        self.note(|| format!("actor {index} loses namespace {}", cookie.0));
        let died = self.kernel.doom(cookie);
        if self.kernel.is_pinned(cookie) {
            // Sockets keep it alive, but the shell hears that its path is gone.
            self.tell(Some(KernelEvent::PathGone { cookie }));
            self.pinned.insert(cookie.0, self.now);
        }
        self.link_changed(cookie, None);
        self.tell(died);
    }

    /// Lets the namespace die, perhaps without a DEL ever.
    fn die(&mut self, index: usize) {
        if !matches!(self.actors[index].phase, Phase::Adding | Phase::Live) {
            return;
        }
        self.stats.count("namespaces that died");
        self.doom(index);
        self.actors[index].died = Some(self.now);
        if self.rng.u32(..3) == 0 {
            self.actors[index].phase = Phase::Ending;
            self.act_after(index, 0, 10 * SECOND, Act::Del);
        } else if self.actors[index].form.is_some() && self.plan.ipvlan {
            // Only dockerd reports such a container's end, at its next start.
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
            None => u64::from(self.plan.lease.min(86_400)) * SECOND / 4 + SECOND,
        };
        self.act_after(index, 0, most, Act::Begin);
    }

    fn hang_up(&mut self, index: usize, id: RequestId) {
        let Some(asked) = self.requests.get_mut(&id).filter(|asked| !asked.gone) else { return };
        asked.gone = true;
        self.actors[index].phase = Phase::Ending;
        self.an_add_ends();
        self.stats.count("hang-ups");
        let at = (self.now + 10).max(self.actors[index].order + 1);
        self.actors[index].order = at;
        self.at(at, Event::HungUp(self.run, id));
    }

    /// Returns the spool as requests, which stay in it until they are answered.
    pub(super) fn take_spool(&mut self) -> Vec<(RequestId, Call)> {
        let attachments = self.spool.iter().map(|spooled| spooled.attachment.clone()).collect::<Vec<_>>();
        let mut calls = Vec::new();
        for attachment in attachments {
            let id = RequestId(self.next_request);
            self.next_request += 1;
            // A kept DEL says nothing else.
            let call = Call::Del { attachment: attachment.clone(), grace: None };
            let role = Role::Spool(attachment);
            self.requests.insert(id, Asked::by_nobody(role, call.clone()));
            calls.push((id, call));
        }
        calls
    }

    /// The host rebooted: no container is left, and nobody waits for an answer.
    pub(super) fn containers_ended(&mut self) {
        self.requests.clear();
        self.pinned.clear();
        self.wiring_goes_on();
        for index in 0..self.actors.len() {
            let actor = &mut self.actors[index];
            actor.generation += 1;
            (actor.at, actor.netns, actor.endpoint) = (None, None, None);
            actor.phase = Phase::Idle;
            actor.died = Some(self.now);
            self.act_after(index, SECOND, 30 * SECOND, Act::Begin);
        }
    }

    /// Excuses the holder of an address, who may lose it through no fault of the daemon's. A Docker container is told it before
    /// it runs.
    pub(super) fn excuse(&mut self, lan: usize, address: Ipv4Addr, why: &'static str) {
        for actor in self.actors.iter_mut().filter(|actor| actor.lan == lan) {
            let holds = matches!(actor.phase, Phase::Adding | Phase::Live);
            if holds && actor.told.as_ref().is_some_and(|lease| lease.ip() == address) {
                actor.excused = true;
                self.stats.count(why);
            }
        }
    }
}
