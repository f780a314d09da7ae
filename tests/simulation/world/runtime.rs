//! The runtimes: actors that make containers, ask for addresses, configure them, and end in all the ways that containers end.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::Ipv4Net;
use leasehold_core::dhcpv4::lease::Lease;
use leasehold_core::effect::{Add, Answer, Call, Failure, RequestId};
use leasehold_core::identity::{Attachment, ClientId, Door};
use leasehold_core::wire::Mac;

use super::{Event, MILLI, Micros, SECOND, World};
use crate::kernel::At;
use crate::plan::{Plan, happens, pick};
use crate::watch::Rule;

/// Makes one container after the other.
pub(crate) struct Actor {
    /// Its LAN.
    pub(crate) lan: usize,
    /// Actors of one group share a client identifier.
    pub(crate) group: usize,
    /// The client identifier follows the container, not the group.
    own_ids: bool,
    /// Counts its containers; acts of an earlier one are void.
    pub(crate) generation: u32,
    container: u32,
    /// What it asks for.
    pub(crate) attachment: Attachment,
    pub(crate) client_id: ClientId,
    path: PathBuf,
    /// Its link's Ethernet address.
    pub(crate) mac: Mac,
    /// Where its link is.
    pub(crate) at: Option<At>,
    /// What it is at.
    pub(crate) phase: Phase,
    /// What ADD was answered.
    pub(crate) told: Option<Lease>,
    /// The world, not the daemon, may have cost it its lease.
    pub(crate) excused: bool,
    /// When its last namespace went without a DEL.
    pub(crate) died: Option<Micros>,
    /// Nothing is handed to the daemon before this: callers' requests keep their order.
    order: Micros,
}

/// What an actor is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No container.
    Idle,
    /// ADD was asked.
    Adding,
    /// The container runs with its address.
    Live,
    /// It is being taken down.
    Ending,
}

/// What an actor does.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Makes a container.
    Begin,
    /// Does something with a container that runs.
    Next,
    /// Hangs up.
    HangUp(RequestId),
    /// Asks for DEL.
    Del,
    /// Asks for ADD once more, with another caller.
    Again,
    /// Deletes the link.
    Unlink,
    /// Lets the namespace die.
    Die,
    /// Asks again after a refused connection.
    Retry(Box<Add>),
    /// Removes what is left of the container.
    CleanUp,
    /// The server should know of the release by now.
    Released(Ipv4Addr),
    /// The daemon should have dropped a cancelled ADD by now.
    Dropped(Attachment),
}

/// A request as its caller sees it.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Which actor asked, and for which of its containers.
    pub(crate) by: Option<(usize, u32)>,
    /// Why.
    pub(crate) role: Role,
    /// What.
    pub(crate) call: Call,
    /// The caller went away.
    pub(crate) gone: bool,
    /// The answer is on its way to the caller.
    pub(crate) answered: bool,
    /// Until when its caller tries.
    patience: Micros,
}

impl Asked {
    /// Returns a request that is no actor's.
    pub(crate) fn by_nobody(role: Role, call: Call) -> Self {
        Self { by: None, role, call, gone: false, answered: false, patience: 0 }
    }
}

/// Why something is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The container's ADD.
    Add,
    /// Another ADD of the same.
    Again,
    /// The container's DEL.
    Del,
    /// CHECK.
    Check,
    /// CHECK of an address that nobody was given.
    WrongCheck,
    /// A DEL that was left while the daemon was away.
    Spool(Attachment),
    /// LIST, and this attachment must not hold anything.
    Audit(Option<Attachment>),
    /// The world asks, and waits for the answer.
    Inquiry,
}

/// A DEL that was left while the daemon was away.
#[derive(Debug)]
pub(crate) struct Spooled {
    /// Of what.
    pub(crate) attachment: Attachment,
}

/// An address outside of every pool.
const WRONG: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 2, 1), 24);
/// A namespace that died is noticed within this where no message is lost.
const NOTICED: Micros = 5 * SECOND;

impl Actor {
    /// Returns an actor at rest.
    pub(crate) fn new(plan: &Plan, index: usize) -> Self {
        let lan = index % plan.lans;
        let group = index / plan.lans / plan.sharers as usize;
        let attachment = Attachment {
            door: Door::Cni,
            network: format!("net{lan}"),
            container: String::new(),
            ifname: "eth0".to_owned(),
        };
        Self {
            lan,
            group,
            own_ids: plan.sharers == 1 && index.is_multiple_of(2),
            generation: 0,
            container: 0,
            attachment,
            client_id: ClientId::new(vec![0, 0]).expect("two bytes are an identifier"),
            path: PathBuf::new(),
            mac: Mac([2, 0, 0, 0, (index >> 8) as u8, index as u8]),
            at: None,
            phase: Phase::Idle,
            told: None,
            excused: false,
            died: None,
            order: 0,
        }
    }

    fn add(&self, lan: leasehold_core::identity::Lan, timeout: Duration) -> Add {
        Add {
            attachment: self.attachment.clone(),
            netns: self.path.clone(),
            lan,
            client_id: self.client_id.clone(),
            timeout,
        }
    }
}

impl World {
    /// Lets an actor act, unless that was meant for an earlier container of it.
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
                self.ask(actor, Role::Add, Call::Add(*add), patience);
            }
            Act::CleanUp => self.clean_up(actor),
            Act::Del | Act::Retry(_) | Act::Released(_) | Act::Dropped(_) => {}
        }
    }

    fn act_after(&mut self, actor: usize, least: Micros, most: Micros, act: Act) {
        let generation = self.actors[actor].generation;
        self.after(least, most, Event::Act(actor, generation, act));
    }

    /// Makes a namespace with a link that is down, and asks for an address.
    fn begin_container(&mut self, index: usize) {
        if self.winding_down || self.actors[index].phase != Phase::Idle {
            return;
        }
        let spooled = self.spool.iter().any(|spooled| spooled.attachment == self.actors[index].attachment);
        let same = self.rng.u32(..4) == 0 && self.actors[index].container > 0 && !spooled;
        let same_mac = self.rng.u32(..6) == 0;
        let lan = self.actors[index].lan;
        let actor = &mut self.actors[index];
        actor.generation += 1;
        if !same {
            actor.container += 1;
            actor.attachment.container = format!("c{index}-{}", actor.container);
        }
        let id = match actor.own_ids {
            true => format!("\0{}/net{lan}/eth0", actor.attachment.container),
            false => format!("\0group-{}", actor.group),
        };
        actor.client_id = ClientId::new(id.into_bytes()).expect("longer than two bytes");
        if !same_mac {
            [actor.mac.0[2], actor.mac.0[3]] = (actor.generation as u16).to_be_bytes();
        }
        actor.path = PathBuf::from(format!("/run/netns/{}", actor.attachment.container));
        (actor.phase, actor.told, actor.excused) = (Phase::Adding, None, false);
        let (path, mac) = (actor.path.clone(), actor.mac);
        let at = self.kernel.create(&path, "eth0", mac, 1500, lan);
        self.actors[index].at = Some(at);
        self.note(|| format!("actor {index} makes {} with {mac} at {at:?}", path.display()));
        let timeout = Duration::from_secs(pick(&mut self.rng, &[12, 30]));
        let add = self.actors[index].add(self.segments[lan].lan.clone(), timeout);
        let patience = self.now + timeout.as_micros() as Micros;
        let id = self.ask(index, Role::Add, Call::Add(add), patience);
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

    /// Asks the daemon for something: by a connection, or where there is none as the shim does without.
    fn ask(&mut self, actor: usize, role: Role, call: Call, patience: Micros) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let by = Some((actor, self.actors[actor].generation));
        self.requests.insert(id, Asked { by, role, call, gone: false, answered: false, patience });
        let at = (self.now + self.rng.u64(20..2 * MILLI)).max(self.actors[actor].order + 1);
        self.actors[actor].order = at;
        let event = if self.daemon.is_some() { Event::Request(id) } else { Event::Cut(id) };
        self.at(at, event);
        id
    }

    fn ask_again(&mut self, index: usize) {
        let actor = &self.actors[index];
        if !matches!(actor.phase, Phase::Adding | Phase::Live) || self.daemon.is_none() {
            return;
        }
        let add = actor.add(self.segments[actor.lan].lan.clone(), Duration::from_secs(12));
        self.stats.count("ADD again");
        self.ask(index, Role::Again, Call::Add(add), self.now);
    }

    /// Does something with a container that runs.
    fn next(&mut self, index: usize) {
        if self.winding_down || self.actors[index].phase != Phase::Live {
            return;
        }
        match self.rng.u32(..100) {
            0..20 => {
                let expected = self.actors[index].told.iter().map(|lease| lease.address).collect();
                self.ask_check(index, Role::Check, expected);
            }
            20..25 => self.ask_check(index, Role::WrongCheck, vec![WRONG]),
            25..35 => {
                self.ask_again(index);
                self.stay(index);
            }
            35..45 if self.plan.flapping > 0 => {
                let at = self.actors[index].at.expect("a container that runs has a link");
                self.carrier(at, false);
                self.stats.count("carrier lost");
                self.stay(index);
            }
            35..55 => self.stay(index),
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

    fn ask_check(&mut self, index: usize, role: Role, expected: Vec<Ipv4Net>) {
        let attachment = self.actors[index].attachment.clone();
        self.ask(index, role, Call::Check { attachment, expected }, self.now);
        self.stay(index);
    }

    /// Lets the container run on for a while.
    fn stay(&mut self, index: usize) {
        let active = self.plan.active.as_micros() as Micros;
        let lease = u64::from(self.plan.lease.min(86_400)) * SECOND;
        self.act_after(index, SECOND, (lease * 3 / 2).min(active / 3), Act::Next);
    }

    pub(super) fn end_by_del(&mut self, index: usize) {
        self.actors[index].phase = Phase::Ending;
        let attachment = self.actors[index].attachment.clone();
        self.ask(index, Role::Del, Call::Del { attachment }, self.now);
    }

    fn unlink(&mut self, index: usize) {
        let Some(at) = self.actors[index].at else { return };
        self.watch.holders.remove(&self.actors[index].attachment);
        self.break_socks(at);
        let gone = self.kernel.delete_link(at);
        if gone.is_some() {
            self.note(|| format!("actor {index} deletes its link"));
        }
        self.tell(gone);
    }

    /// Takes the namespace away.
    fn doom(&mut self, index: usize) {
        let Some((cookie, _)) = self.actors[index].at.take() else { return };
        self.watch.holders.remove(&self.actors[index].attachment);
        self.note(|| format!("actor {index} loses namespace {}", cookie.0));
        let died = self.kernel.doom(cookie);
        if self.kernel.is_pinned(cookie) {
            self.pinned.insert(cookie.0, self.now);
        }
        self.link_changed(cookie, None);
        self.tell(died);
    }

    /// The namespace dies, and perhaps nobody will ever say DEL.
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
        } else {
            self.rest(index);
        }
    }

    /// Removes what is left of a container, as the main plugin does after DEL's answer.
    fn clean_up(&mut self, index: usize) {
        self.unlink(index);
        self.doom(index);
        self.rest(index);
    }

    fn rest(&mut self, index: usize) {
        let actor = &mut self.actors[index];
        actor.phase = Phase::Idle;
        actor.at = None;
        // What was asked for this container is void, but for the acts that end it.
        let lease = u64::from(self.plan.lease.min(600)) * SECOND;
        // Who had nothing of it tries again, but not at once.
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
        self.stats.count("hang-ups");
        let at = (self.now + 10).max(self.actors[index].order + 1);
        self.actors[index].order = at;
        self.at(at, Event::HungUp(self.run, id));
    }

    /// The core knows that a caller went away. `open`: it had not answered before.
    pub(super) fn caller_gone(&mut self, id: RequestId, open: bool) {
        let Some(asked) = self.requests.remove(&id) else { return };
        let Some((index, generation)) = asked.by.filter(|(index, g)| self.actors[*index].generation == *g) else {
            return;
        };
        if self.actors[index].phase != Phase::Ending {
            return;
        }
        if asked.role == Role::Add && open && self.rng.u32(..3) == 0 {
            // Nobody says DEL: the ADD has to go with its caller.
            let faultless =
                self.plan.crashes.is_empty() && self.plan.store_faults == 0 && self.plan.store_full.is_none();
            if faultless {
                let attachment = self.actors[index].attachment.clone();
                self.at(self.now + 20 * SECOND, Event::Act(index, generation, Act::Dropped(attachment)));
            }
            self.act_after(index, 25 * SECOND, 40 * SECOND, Act::CleanUp);
        } else {
            self.act_after(index, 0, SECOND, Act::Del);
        }
    }

    /// An answer reaches its caller.
    pub(super) fn answer(&mut self, id: RequestId, answer: Answer) {
        if self.requests.get(&id).is_none_or(|asked| asked.gone) {
            return;
        }
        let Some(asked) = self.requests.remove(&id) else { return };
        self.note(|| format!("    {id:?} is answered {answer:?}"));
        if let Role::Audit(_) | Role::Inquiry = &asked.role {
            return self.found(id, &asked.role, answer);
        }
        let Some((index, _)) = asked.by.filter(|(index, g)| self.actors[*index].generation == *g) else { return };
        match asked.role {
            Role::Add if self.actors[index].phase == Phase::Adding => self.added(index, answer),
            Role::Again if self.actors[index].phase == Phase::Live => self.added_again(index, answer),
            Role::Del if self.actors[index].phase == Phase::Ending => self.deleted(index, answer),
            Role::Check if self.actors[index].phase == Phase::Live => self.checked(index, answer),
            Role::WrongCheck if answer == Answer::Checked => self.fail(Rule::WrongAnswer, format!("CHECK of {WRONG}")),
            _ => {}
        }
    }

    fn added(&mut self, index: usize, answer: Answer) {
        match answer {
            Answer::Leased(lease) => {
                self.stats.count("ADD leased");
                let lan = self.actors[index].lan;
                self.actors[index].told = Some((*lease).clone());
                if !self.is_granted(lan, lease.ip(), self.actors[index].client_id.as_bytes()) {
                    self.actors[index].excused = true;
                }
                let Some(at) = self.actors[index].at.filter(|at| self.kernel.link(*at).is_some()) else {
                    return self.end_by_del(index);
                };
                self.check_link(index, at);
                let added = self.kernel.add_address(at, lease.address);
                self.tell(added);
                self.actors[index].phase = Phase::Live;
                self.stay(index);
            }
            Answer::Failed(failure) => {
                self.stats.count("ADD failed");
                self.explain(index, &failure);
                self.end_by_del(index);
            }
            Answer::Deleted | Answer::Checked | Answer::Bindings(_) => {}
        }
    }

    /// In a calm world the link is as the server wants it by the time of the answer.
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

    /// In a calm world an ADD fails only for what its caller did.
    fn explain(&mut self, index: usize, failure: &Failure) {
        let actor = &self.actors[index];
        let intact = actor.at.is_some_and(|at| self.kernel.link(at).is_some());
        let recent = self
            .actors
            .iter()
            .any(|other| other.group == actor.group && other.died.is_some_and(|died| self.now < died + NOTICED));
        let explained = match failure {
            Failure::Held { .. } => self.plan.sharers > 1 || recent,
            Failure::Attached { .. } => recent,
            Failure::Link { .. } => !intact,
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

    fn added_again(&mut self, index: usize, answer: Answer) {
        self.excuse_lapsed(index);
        let actor = &self.actors[index];
        let Some(told) = &actor.told else { return };
        match answer {
            Answer::Leased(lease) if lease.address == told.address || actor.excused => {
                self.stats.count("ADD again leased");
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
            Answer::Failed(failure) => {
                self.stats.count("CHECK failed");
                if self.calm {
                    let attachment = self.actors[index].attachment.clone();
                    self.fail(Rule::Failed, format!("CHECK of {attachment}: {failure}"));
                }
                if self.actors[index].excused {
                    self.end_by_del(index);
                }
            }
            Answer::Leased(_) | Answer::Deleted | Answer::Bindings(_) => {}
        }
    }

    fn deleted(&mut self, index: usize, answer: Answer) {
        match answer {
            Answer::Deleted => {
                self.stats.count("DEL done");
                if let (true, Some(told)) = (self.calm, &self.actors[index].told) {
                    let address = told.ip();
                    self.act_after(index, 30 * SECOND, 40 * SECOND, Act::Released(address));
                }
                // Macvlan deletes its link at once, others take their time.
                match self.rng.u32(..3) {
                    0 => self.act_after(index, 0, SECOND, Act::CleanUp),
                    _ => self.clean_up(index),
                }
            }
            Answer::Failed(failure) => {
                if self.calm {
                    self.fail(Rule::Failed, format!("DEL: {failure}"));
                }
                let patience = self.plan.active.as_micros() as Micros / 50;
                self.act_after(index, SECOND, patience, Act::Del);
            }
            Answer::Leased(_) | Answer::Checked | Answer::Bindings(_) => {}
        }
    }

    /// A connection broke, or was refused.
    pub(super) fn cut(&mut self, id: RequestId) {
        if self.requests.get(&id).is_none_or(|asked| asked.answered && !asked.gone) {
            return;
        }
        let Some(asked) = self.requests.remove(&id) else { return };
        self.note(|| format!("    {id:?} is cut"));
        if let Call::Del { attachment } = &asked.call
            && !matches!(asked.role, Role::Spool(_))
        {
            self.stats.count("DEL spooled");
            self.watch.holders.remove(attachment);
            self.spool.push(Spooled { attachment: attachment.clone() });
        }
        let Some((index, _)) = asked.by.filter(|(index, g)| self.actors[*index].generation == *g) else { return };
        match (&asked.role, self.actors[index].phase) {
            (Role::Add, Phase::Adding) => match asked.call {
                Call::Add(mut add) if self.now + SECOND < asked.patience && self.rng.u32(..10) < 7 => {
                    add.timeout = Duration::from_micros(asked.patience - self.now);
                    let least = if self.daemon.is_some() { MILLI } else { 100 * MILLI };
                    self.act_after(index, least, 200 * MILLI, Act::Retry(Box::new(add)));
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
            (Role::Del, Phase::Ending) => self.clean_up(index),
            _ => {}
        }
    }

    /// Returns the spool as requests, which stay in it until they are answered.
    pub(super) fn take_spool(&mut self) -> Vec<(RequestId, Call)> {
        let attachments = self.spool.iter().map(|spooled| spooled.attachment.clone()).collect::<Vec<_>>();
        let mut calls = Vec::new();
        for attachment in attachments {
            let id = RequestId(self.next_request);
            self.next_request += 1;
            let call = Call::Del { attachment: attachment.clone() };
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
        for index in 0..self.actors.len() {
            let actor = &mut self.actors[index];
            actor.generation += 1;
            actor.at = None;
            actor.phase = Phase::Idle;
            actor.died = Some(self.now);
            self.act_after(index, SECOND, 30 * SECOND, Act::Begin);
        }
    }

    /// The one who holds an address may lose it through no fault of the daemon's.
    pub(super) fn excuse(&mut self, lan: usize, address: Ipv4Addr, why: &'static str) {
        for actor in self.actors.iter_mut().filter(|actor| actor.lan == lan) {
            if actor.told.as_ref().is_some_and(|lease| lease.ip() == address) && actor.phase == Phase::Live {
                actor.excused = true;
                self.stats.count(why);
            }
        }
    }
}
