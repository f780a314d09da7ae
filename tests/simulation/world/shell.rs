//! The shell's part: effects are carried out after a delay, and report back after another.

use leasehold_core::effect::{Answer, Effect, ExchangeId, OpId, Outcome, RequestId, StoreCause};
use leasehold_core::event::EventKind;
use leasehold_core::link::{
    Hears, Link, LinkCause, LinkView, Place, Sightings, Sockets, Sought, Step, Target,
};
use leasehold_core::record::{BindingId, Change, Record, ended_by};
use leasehold_core::silence::Survey;
use leasehold_core::testbed::kernel::{At, HOST};
use leasehold_core::wire::Mac;
use netns_fixtures::model::ClientKey;

use super::actor::{Actor, Phase, Role};
use super::seen::Seen;
use super::{Event, MILLI, Micros, SECOND, World};
use crate::plan::{EffectKind, Wires, happens};
use crate::watch::Rule;

/// The sockets of an exchange.
#[derive(Debug)]
pub(crate) struct Sock {
    /// Where they belong.
    pub(crate) link: Link,
    /// What they should hear.
    pub(crate) want: Sockets,
    /// The LAN that they are on.
    pub(crate) lan: usize,
    /// Where they are open.
    pub(crate) open_at: Option<At>,
    /// When they were asked for.
    pub(crate) since: Micros,
    /// The client that speaks on them, if known: several clients may have one Ethernet address.
    pub(crate) client: Option<ClientKey>,
    /// Whether DHCP was spoken on them, or is about to be, because an answer to an earlier try may come first. Other sockets only
    /// listen for conflicts, and DHCP messages that they hear are not for them.
    pub(crate) speaks: bool,
    /// When the exchange's last effect is carried out: no later effect is carried out before that.
    ready: Micros,
}

/// The fate of an operation on a link.
pub(super) enum Fate {
    Done,
    Refused,
    TimedOut,
}

/// The shell's own limit for one operation.
pub(super) const LIMIT: Micros = 5 * SECOND;

impl World {
    /// Sends an effect on its way.
    pub(super) fn schedule(&mut self, effect: Effect) {
        let run = self.run;
        match effect {
            Effect::Persist { op, changes } => {
                self.store.waiting.push_back((op, changes));
                if !std::mem::replace(&mut self.store.busy, true) {
                    self.after(50, 2 * MILLI, Event::Commit(run));
                }
            }
            Effect::Open {
                exchange,
                ref link,
                want,
                ..
            } => {
                let lan = self.lan_of(link);
                let (link, now, client) = (link.clone(), self.now, self.client_at(link));
                let ready = now + self.worker_delay();
                let speaks = want.hold_port.is_some();
                let sock = Sock {
                    link,
                    want,
                    lan,
                    open_at: None,
                    since: now,
                    client,
                    speaks,
                    ready,
                };
                self.socks.insert(exchange, sock);
                self.at(ready, Event::Carry(run, effect));
            }
            Effect::Send { exchange, .. }
            | Effect::Hear { exchange, .. }
            | Effect::Close { exchange, .. } => {
                // Before any answer reaches its caller: the shell sends while it drains, and an answer needs time.
                let delay = self.rng.u64(1..10);
                let Some(sock) = self.socks.get_mut(&exchange) else {
                    return;
                };
                sock.ready = (sock.ready + 1).max(self.now + delay);
                let ready = sock.ready;
                self.at(ready, Event::Carry(run, effect));
            }
            Effect::Inspect { .. }
            | Effect::Apply { .. }
            | Effect::Prepare { .. }
            | Effect::Survey { .. }
            | Effect::ListInside { .. }
            | Effect::Seek { .. } => {
                let delay = self.worker_delay();
                self.at(self.now + delay, Event::Carry(run, effect));
            }
            // One after the other, in the order of the requests.
            Effect::Make { .. } | Effect::Unmake { .. } | Effect::ListOwn { .. } => {
                let delay = if self.plan.wires.is_some() {
                    self.worker_delay()
                } else {
                    20
                };
                let ready = self.wired.next_change(self.now + delay);
                self.at(ready, Event::Carry(run, effect));
            }
            Effect::Reply { .. } => self.after(1, 500, Event::Carry(run, effect)),
            Effect::Publish { .. } => {
                self.publishes = (self.now + 1).max(self.publishes + 1);
                self.at(self.publishes, Event::Carry(run, effect));
            }
        }
    }

    /// Returns how long an operation waits for a worker and runs: usually a moment, sometimes as long as under load.
    fn worker_delay(&mut self) -> Micros {
        match self.rng.u32(..20) {
            0 => self.rng.u64(..200 * MILLI),
            _ => self.rng.u64(20..3 * MILLI),
        }
    }

    fn lan_of(&self, link: &Link) -> usize {
        let lan = match link {
            Link::Parent { ifindex, .. } => self.kernel.link((HOST, *ifindex)).map(|wire| wire.lan),
            Link::InNetns { .. } => link
                .in_netns()
                .and_then(|at| self.kernel.link(at))
                .map(|wire| wire.lan),
        };
        let by_mac = || {
            self.actors
                .iter()
                .find(|actor| actor.mac == link.mac())
                .map(|actor| actor.lan)
        };
        lan.or_else(by_mac).unwrap_or(0)
    }

    /// Returns the client whose container has a link, or for whose Ethernet address the host's link speaks.
    fn client_at(&self, link: &Link) -> Option<ClientKey> {
        let is_its = |actor: &&Actor| match link.in_netns() {
            Some(at) => actor.at == Some(at),
            None => {
                actor.is_found_later()
                    && actor.phase != Phase::Idle
                    && actor.mac == link.mac()
                    && !self.plan.ipvlan
            }
        };
        self.actors.iter().find(is_its).map(Actor::client_key)
    }

    pub(super) fn fate(&mut self) -> Fate {
        if !happens(&mut self.rng, self.plan.link_faults) {
            return Fate::Done;
        }
        self.stats.count("failed operations");
        if self.rng.bool() {
            Fate::Refused
        } else {
            Fate::TimedOut
        }
    }

    /// Carries out an effect. Transactions go through [`World::commit`].
    pub(super) fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Persist { .. } => {}
            Effect::Publish { attachment, dns } => {
                self.published.retain(|other, _| *other != *attachment);
                self.published
                    .extend(dns.map(|dns| ((*attachment).clone(), dns)));
            }
            Effect::Open { op, exchange, .. } => {
                let (delay, result) = self.open(exchange);
                self.report(op, Outcome::Opened(result), Some(exchange), delay);
            }
            Effect::Inspect { op, target, .. } => {
                let (delay, result) = self.inspect(&target);
                self.report(op, Outcome::Inspected(result), None, delay);
            }
            Effect::Apply { op, target, steps } => {
                let (delay, taken, result) = self.apply(&target, &steps);
                self.report(op, Outcome::Applied { taken, result }, None, delay);
            }
            Effect::Prepare {
                op,
                place,
                lan,
                exchange,
                chaddr,
            } => {
                let (delay, result) = match &place {
                    Place::InNetns(_) => {
                        let (delay, _, result) = self.apply(&place.target(), &[Step::Up]);
                        (delay, result)
                    }
                    Place::Parent { .. } => self.inspect(&place.target()),
                };
                let link = result
                    .as_ref()
                    .ok()
                    .map(|view| (view.carrier, place.link(view, &lan)));
                let exchange = self.open_beside(link, exchange, chaddr);
                self.report(op, Outcome::Prepared { result, exchange }, exchange, delay);
            }
            Effect::Survey { op, link, .. } => {
                let carrier = self
                    .kernel
                    .inspect(&Target::Known(link))
                    .ok()
                    .map(|view| view.carrier);
                self.report(
                    op,
                    Outcome::Surveyed(Survey {
                        carrier,
                        ..Survey::default()
                    }),
                    None,
                    0,
                );
            }
            Effect::ListInside { op, link } => {
                let (delay, result) =
                    self.fated("list links", |world| world.kernel.macs_inside(&link));
                self.report(op, Outcome::Inside(result), None, delay);
            }
            Effect::Seek { op, sought, number } => {
                let look = |world: &mut Self| world.seek(sought, number);
                let (delay, result) = self.fated("look for interfaces", look);
                self.report(op, Outcome::Sought(result), None, delay);
            }
            Effect::Make { op, link } => {
                let (delay, result) = self.make(&link);
                self.report(op, Outcome::Made(result), None, delay);
            }
            Effect::Unmake { op, owner } => {
                let (delay, result) = self.unmake(&owner);
                self.report(op, Outcome::Unmade(result), None, delay);
            }
            Effect::ListOwn { op } => {
                let (delay, result) = self.list_own();
                self.report(op, Outcome::OwnLinks(result), None, delay);
            }
            Effect::Send {
                op,
                exchange,
                frame,
                over,
            } => self.send(op, exchange, frame, over.is_some()),
            Effect::Hear { exchange, arp } => {
                if let Some(sock) = self.socks.get_mut(&exchange) {
                    (sock.want.arp, sock.speaks) = (arp, false);
                }
            }
            Effect::Close { op, exchange } => {
                self.close(exchange);
                if let Some(op) = op {
                    self.stats.count("macvlans beside the host's link");
                    self.report(op, Outcome::Closed, None, 0);
                }
            }
            Effect::Reply { id, answer } => self.reply(id, answer),
        }
    }

    fn seek(&mut self, sought: Vec<Sought>, number: Option<i32>) -> Result<Sightings, LinkCause> {
        let lan = |sought: &Sought| {
            self.segments
                .iter()
                .position(|segment| segment.lan == sought.lan)
        };
        let sought: Vec<_> = sought
            .into_iter()
            .filter_map(|sought| Some((sought.clone(), lan(&sought)?)))
            .collect();
        let found = self.kernel.seek(&sought, number);
        self.stats.count_many(
            "interfaces found",
            found.as_ref().map_or(0, |found| found.found.len()),
        );
        found
    }

    /// Looks at a link. Returns how much later that is reported, and what is there.
    fn inspect(&mut self, target: &Target) -> (Micros, Result<LinkView, LinkCause>) {
        self.fated("look at the link", |world| world.kernel.inspect(target))
    }

    /// Does something with links, unless that is refused or takes too long. Returns how much later that is reported.
    fn fated<T>(
        &mut self,
        doing: &'static str,
        does: impl FnOnce(&mut Self) -> Result<T, LinkCause>,
    ) -> (Micros, Result<T, LinkCause>) {
        match self.fate() {
            Fate::Done => (0, does(self)),
            Fate::Refused => (0, Err(refused(doing))),
            Fate::TimedOut => (LIMIT, Err(LinkCause::TimedOut)),
        }
    }

    /// Changes a link. Returns how much later that is reported, how many steps were taken, and what is there then.
    fn apply(
        &mut self,
        target: &Target,
        steps: &[Step],
    ) -> (Micros, usize, Result<LinkView, LinkCause>) {
        if let Some(mac) = self
            .taken_by_another(target)
            .filter(|_| steps.contains(&Step::Up))
        {
            self.stats.count("links whose Ethernet address was taken");
            return (0, 0, Err(LinkCause::MacTaken(mac)));
        }
        let fate = self.fate();
        let most = match fate {
            Fate::Done => steps.len(),
            Fate::Refused | Fate::TimedOut => self.rng.usize(..=steps.len()),
        };
        let done = self.kernel.apply(target, steps, most);
        self.show(&Seen::Applied(&done, steps));
        if let Some(at) = done.at {
            self.digest.steps(self.now, at, &steps[..done.taken]);
        }
        if let Some(at) = done.at.filter(|_| done.raised) {
            self.raised(at);
        }
        let (taken, result) = (done.taken, done.result);
        done.told.into_iter().for_each(|told| self.tell(Some(told)));
        match fate {
            Fate::Done => (0, taken, result),
            Fate::Refused => (0, taken, result.and(Err(refused("set the link")))),
            Fate::TimedOut => (LIMIT, 0, Err(LinkCause::TimedOut)),
        }
    }

    /// Opens the sockets of an exchange on a link that was found, if the link has carrier and the exchange needs no port, unless
    /// no sockets are to be had at once.
    fn open_beside(
        &mut self,
        found: Option<(bool, Link)>,
        exchange: ExchangeId,
        chaddr: Option<Mac>,
    ) -> Option<ExchangeId> {
        let (carrier, link) = found?;
        if !carrier || matches!(link, Link::Parent { port: true, .. }) || self.rng.u32(..8) == 0 {
            return None;
        }
        let at = self.kernel.locate(&link).ok()?;
        let want = Sockets {
            chaddr: chaddr.unwrap_or(link.mac()),
            arp: Hears::Answers,
            hold_port: None,
        };
        let (lan, now) = (self.lan_of(&link), self.now);
        let client = self.client_at(&link);
        let sock = Sock {
            link,
            want,
            lan,
            open_at: Some(at),
            since: now,
            client,
            speaks: false,
            ready: now,
        };
        self.socks.insert(exchange, sock);
        self.kernel.hold(at.0);
        self.stats.count("sockets opened");
        Some(exchange)
    }

    /// Sends a frame, or refuses to; only a caller that asks learns of the refusal.
    fn send(&mut self, op: Option<OpId>, exchange: ExchangeId, frame: Vec<u8>, over_host: bool) {
        let Some(op) = op else {
            return self.transmit(exchange, frame, over_host);
        };
        // The socket of a link that is gone breaks.
        let Some(at) = self.socks.get(&exchange).and_then(|sock| sock.open_at) else {
            return;
        };
        let Some(up) = self.kernel.link(at).map(|wire| wire.up) else {
            return;
        };
        let result = match self.fate() {
            Fate::Done if up => Ok(()),
            Fate::Done => Err(LinkCause::Down),
            Fate::Refused | Fate::TimedOut => Err(refused("send")),
        };
        match result {
            Ok(()) => self.transmit(exchange, frame, over_host),
            Err(_) => self.not_spoken(exchange, &frame),
        }
        self.report(op, Outcome::Sent(result), None, 0);
    }

    /// Returns the Ethernet address of a link that is down if another link of its LAN has it.
    fn taken_by_another(&mut self, target: &Target) -> Option<Mac> {
        let view = self.kernel.inspect(target).ok().filter(|view| !view.up)?;
        let lan = self.kernel.link(view.at())?.lan;
        let shares = self.plan.ipvlan || self.plan.wires == Some(Wires::Bridge);
        (!shares && self.is_taken(lan, view.mac)).then_some(view.mac)
    }

    /// Returns whether a link has an Ethernet address that no other link of its LAN can have meanwhile.
    fn is_taken(&self, lan: usize, mac: Mac) -> bool {
        let is_going = self.going.get(&(lan, mac));
        self.kernel.is_taken(lan, mac) || is_going.is_some_and(|(until, _)| self.now < *until)
    }

    fn report(&mut self, op: OpId, outcome: Outcome, exchange: Option<ExchangeId>, delay: Micros) {
        self.after(
            delay + 10,
            delay + 2 * MILLI,
            Event::Done(self.run, op, outcome, exchange),
        );
    }

    /// Handles that a link was set up: carrier comes a little later.
    fn raised(&mut self, at: At) {
        let late = happens(&mut self.rng, self.plan.flapping);
        let most = if late { 8 * SECOND } else { 300 * MILLI };
        self.after(MILLI, most, Event::Carrier(at, true));
    }

    fn open(&mut self, exchange: ExchangeId) -> (Micros, Result<(), LinkCause>) {
        let fate = self.fate();
        let Some(sock) = self.socks.get(&exchange) else {
            return (0, Err(LinkCause::TimedOut));
        };
        let needs = (sock.lan, sock.link.mac());
        if matches!(sock.link, Link::Parent { port: true, .. }) {
            // Two ports of a bridge can have one address, two macvlans of a link cannot.
            let taken = self.is_taken(needs.0, needs.1) && self.plan.wires != Some(Wires::Bridge);
            if taken || !matches!(fate, Fate::Done) {
                self.portless.insert(needs);
            }
            if taken {
                self.stats.count("ports whose Ethernet address was taken");
                return (0, Err(LinkCause::MacTaken(needs.1)));
            }
        }
        match fate {
            Fate::Refused => return (0, Err(refused("open a packet socket"))),
            Fate::TimedOut => return (LIMIT, Err(LinkCause::TimedOut)),
            Fate::Done => {}
        }
        let at = match self.kernel.locate(&sock.link) {
            Ok(at) => at,
            Err(cause) => return (0, Err(cause)),
        };
        if !self.kernel.link(at).is_some_and(|wire| wire.up) {
            return (0, Err(LinkCause::Down));
        }
        self.socks
            .entry(exchange)
            .and_modify(|sock| sock.open_at = Some(at));
        self.kernel.hold(at.0);
        self.stats.count("sockets opened");
        (0, Ok(()))
    }

    fn close(&mut self, exchange: ExchangeId) {
        let Some(sock) = self.socks.remove(&exchange) else {
            return;
        };
        if let Some(at) = sock.open_at {
            let died = self.kernel.let_go(at.0);
            self.tell(died);
        }
    }

    /// Sends an answer to its caller.
    fn reply(&mut self, id: RequestId, answer: Answer) {
        self.show(&Seen::Replied(id, &answer));
        let Some(asked) = self.requests.get_mut(&id) else {
            return;
        };
        asked.answered = true;
        self.digest.answer(self.now, id, &answer);
        if let (Role::Spool(attachment), Answer::Deleted) = (&asked.role, &answer) {
            let attachment = attachment.clone();
            self.spool.retain(|spooled| *spooled != attachment);
        }
        self.after(10, MILLI, Event::Answer(id, Box::new(answer)));
    }

    /// Commits a group of the waiting transactions, one after the other.
    pub(super) fn commit(&mut self) {
        let group = 1 + self.rng.usize(..self.store.waiting.len().max(1));
        for _ in 0..group {
            let Some((op, changes)) = self.store.waiting.pop_front() else {
                break;
            };
            if self.crashes_at(EffectKind::Persist, false) {
                return;
            }
            let failure = if self.disk_full {
                Some(StoreCause::Full)
            } else {
                let fails = happens(&mut self.rng, self.plan.store_faults);
                fails.then(|| StoreCause::Failed("simulated".to_owned()))
            };
            let ends = ended_by(&changes).filter(|_| self.plan.spools);
            let result = match (failure, ends) {
                (Some(cause), None) => Err(cause),
                (failure, ends) => {
                    let beside = ends.filter(|_| failure.is_some());
                    self.make_durable(op, changes, beside);
                    Ok(())
                }
            };
            if result.is_err() {
                self.stats.count("failed transactions");
            }
            self.report(op, Outcome::Persisted(result), None, 0);
            if self.crashes_at(EffectKind::Persist, true) {
                return;
            }
        }
        self.store.busy = !self.store.waiting.is_empty();
        if self.store.busy {
            self.after(50, 2 * MILLI, Event::Commit(self.run));
        }
    }

    /// Makes a transaction durable. `beside` is the binding whose end it is, if that is kept beside the socket.
    fn make_durable(&mut self, op: OpId, changes: Vec<Change>, beside: Option<BindingId>) {
        let told = self.store.events.len();
        self.digest.stored(self.now, &changes);
        let going = changes.iter().filter_map(|change| match change {
            Change::Remove(id) => self.store.durable.get(id).cloned(),
            _ => None,
        });
        let going = going.collect::<Vec<_>>();
        let is_trusted =
            |change: &Change| matches!(change, Change::Put(_, record) if record.unconfirmed);
        let trusts = changes.iter().any(is_trusted);
        let ahead = match beside {
            Some(binding) => {
                self.stats.count("ends kept beside the socket");
                self.store.keep_beside(op, binding, changes)
            }
            None => {
                self.store.recorded();
                self.store.commit(op, changes)
            }
        };
        if let Some(event) = ahead {
            self.fail(Rule::EventAhead, format!("{event:?}"));
        }
        if trusts {
            self.timing.begins_anew();
        }
        self.noted(told, &going);
    }

    /// Handles that the events from `first` on are durable. `going` are the records that went with them.
    fn noted(&mut self, first: usize, going: &[Record]) {
        let events = self.store.events[first..].to_vec();
        let deaf = events
            .iter()
            .filter(|event| event.kind == EventKind::DetectionOff)
            .count();
        self.stats
            .count_many("attachments with a station that is not heard", deaf);
        self.note_removals(&events);
        self.note_unreturned(&events);
        self.ended_unseen(going);
        self.show(&Seen::Noted(&events));
        self.note_left(&events, going);
    }

    /// Fills the disk, or makes room on it again.
    pub(super) fn disk(&mut self, full: bool) {
        let Some(every) = self.plan.store_full else {
            return;
        };
        (self.disk_full, self.disk_turned) = (full, self.now);
        self.stats
            .count_which(full, "full stores", "stores with room again");
        self.note(|| format!("DISK full: {full}"));
        let next = if full { every / 4 } else { every };
        self.sometime(next, Event::Disk(!full));
    }
}

pub(super) fn refused(doing: &'static str) -> LinkCause {
    LinkCause::Refused {
        doing,
        reason: "simulated".to_owned(),
    }
}
