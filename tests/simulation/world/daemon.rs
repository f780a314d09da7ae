//! The daemon's life in the world: it starts, is fed, is drained, crashes.

use leasehold_core::effect::{
    Answer, Call, Effect, ExchangeId, Input, OpId, Outcome, PoolCall, RequestId,
};
use leasehold_core::link::{Cookie, KernelMessage, LinkCause};
use leasehold_core::record::{Change, Record};
use leasehold_core::testbed::kernel::{HOST, Kernel};
use leasehold_core::time::BootId;
use leasehold_core::wire::Mac;
use leasehold_core::wire::frame::FrameMeta;
use netns_fixtures::model::{Kind, Message};

use super::ledger::Excuse;
use super::seen::Seen;
use super::{Event, MILLI, Micros, SECOND, World};
use crate::plan::{CrashPoint, EffectKind, Wires, happens};
use crate::subject::{Subject, add_of, is_collected, is_in, key_of, message_of};
use crate::trace::Brief;
use crate::watch::Rule;

/// A daemon that runs.
pub(crate) struct Daemon {
    pub(super) subject: Subject,
}

/// A core that emits more effects than this for one input never ends.
const MOST_EFFECTS: u32 = 100_000;
/// A core that is woken this often at one instant makes no progress.
const MOST_SPINS: u32 = 1_000;

impl World {
    /// Starts the daemon with what is durable and what was spooled.
    pub(super) fn start(&mut self) {
        if self.daemon.is_some() {
            return;
        }
        self.run += 1;
        self.clocks.started = self.now;
        self.stats.starts += 1;
        let seed = self.seed.wrapping_mul(1_000_003) + u64::from(self.run);
        let subject = Subject::new(seed, self.plan.permits, self.mutation);
        self.daemon = Some(Daemon { subject });
        // What the start does not name belongs to an earlier daemon.
        self.published.clear();
        let (records, adoptees) = (self.store.records(), self.adoptees());
        let boot = BootId(format!("boot-{}", self.clocks.boot));
        let spooled = self.take_spool();
        self.note(|| {
            format!(
                "START {} with {} records and {} spooled",
                boot.0,
                records.len(),
                spooled.len()
            )
        });
        self.go_blind();
        self.show(&Seen::Started);
        self.excuse_outdated();
        self.forget_unwritten();
        let now = self.now;
        for (id, call) in &spooled {
            self.calls.request(now, *id, call);
            self.show(&Seen::Requested(call));
            self.cause_to_send(call);
        }
        self.stats.count_many("adoptees", adoptees.len());
        for adoptee in &adoptees {
            let client = adoptee.add.client_id.resolve(Mac::default());
            self.calls
                .adopts(&client, now + adoptee.add.timeout.as_micros() as Micros);
        }
        let doors = self.store.docker.records();
        self.feed(Input::Start {
            boot,
            records,
            doors,
            spooled,
            adoptees,
        });
    }

    /// Excuses attachments whose record says that their lease has ended: the previous daemon died with an extension that it could
    /// not record on a full disk, and the next one must acquire a new lease.
    fn excuse_outdated(&mut self) {
        let now = self.clock().boot;
        let ended = self
            .store
            .durable
            .values()
            .filter(|record| record.lease.expired(now));
        let ended: Vec<_> = ended.map(|record| record.attachment.clone()).collect();
        for actor in self
            .actors
            .iter_mut()
            .filter(|actor| ended.contains(&actor.attachment))
        {
            actor.excused = true;
        }
    }

    /// Forgets the extensions that the previous daemon received but could not write: this one knows only what is in the store. A
    /// daemon that sees no namespace until such a lease has ended cannot learn more, and considers it lost.
    fn forget_unwritten(&mut self) {
        let boot = BootId(format!("boot-{}", self.clocks.boot));
        let known: Vec<_> = self
            .store
            .durable
            .values()
            .filter(|record| record.boot == boot)
            .cloned()
            .collect();
        for record in known {
            let Some(ends) = record.lease.expires().map(|ends| self.world_time(ends)) else {
                continue;
            };
            let key = Some(key_of(&record.identity.client_id));
            for lan in 0..self.segments.len() {
                if let Some(Some(heard)) =
                    self.ledger
                        .heard
                        .get_mut(&(lan, record.lease.ip(), key.clone()))
                {
                    *heard = ends.min(*heard);
                }
            }
        }
    }

    /// Ends the demand for silence if a call is a cause to send.
    fn cause_to_send(&mut self, call: &Call) {
        let attachment = match call {
            Call::Add(add) => &add.attachment,
            Call::Network(call) => match self.concerned(call) {
                Some(attachment) => &attachment.clone(),
                None => return,
            },
            Call::Del { attachment, .. } => attachment,
            Call::Collect { network, keep } => {
                return self.causes_of(|record| is_collected(&record.attachment, network, keep));
            }
            Call::Order(order) => {
                let which = &order.which;
                return self.causes_of(|record| match (&which.name, &which.network) {
                    (Some(name), _) => record.attachment.to_string() == *name,
                    (None, network) => network
                        .as_ref()
                        .is_none_or(|network| is_in(&record.attachment, network)),
                });
            }
            Call::Check { .. } | Call::Status { .. } | Call::Ready | Call::List | Call::Show(_) => {
                return;
            }
            Call::Pool(PoolCall::ReleaseAddress { address, .. }) => {
                return self
                    .causes_of(|record| record.told.map(|told| told.addr()) == Some(*address));
            }
            Call::Pool(
                PoolCall::Request(_) | PoolCall::Release { .. } | PoolCall::Reserve { .. },
            )
            | Call::Ranges => return,
        };
        let client_id = add_of(call).map(|add| add.client_id.resolve(Mac::default()));
        // Others, who are silent, may have its Ethernet address too.
        let asks = self
            .actors
            .iter()
            .filter(|actor| client_id.is_some() && actor.attachment == *attachment);
        let is_its = |record: &&Record| {
            record.attachment == *attachment
                || Some(&record.identity.client_id) == client_id.as_ref()
        };
        let records = self
            .store
            .durable
            .values()
            .filter(is_its)
            .map(|record| record.link.mac());
        let macs: Vec<_> = asks.map(|actor| actor.mac).chain(records).collect();
        self.causes(macs);
    }

    /// Crashes the daemon, or the whole host. It starts again after a while.
    pub(super) fn crash(&mut self) {
        if self.daemon.take().is_none() {
            return;
        }
        self.stats.crashes += 1;
        self.clocks.ended.push(self.now);
        self.note(|| "CRASH".to_owned());
        self.leave_all(Excuse::DiedUnwritten, true);
        // Its sockets close with it: what only they kept dies now.
        for sock in std::mem::take(&mut self.socks).into_values() {
            if let Some(at) = sock.open_at {
                self.kernel.let_go(at.0);
            }
        }
        let (now, forgetful) = (self.model_time(), self.store_fails);
        self.segments
            .iter_mut()
            .for_each(|segment| segment.judge.clients_restarted(now, forgetful));
        self.show(&Seen::Ended);
        self.squatters.daemon_ended();
        self.pinned.clear();
        self.kernel.forget_watched();
        self.store.daemon_ended();
        (self.calls, self.effects) = Default::default();
        self.timing.begins_anew();
        self.timer = None;
        self.carried.clear();
        for id in self.requests.keys().copied().collect::<Vec<_>>() {
            self.after(0, 5 * MILLI, Event::Cut(id));
        }
        let damaged = self.damage();
        if happens(&mut self.rng, self.plan.reboots) {
            if damaged {
                self.copy_is_lost();
            }
            self.reboot();
        }
        let down = self.downtime();
        self.after(10 * MILLI, down, Event::Start);
        self.run += 1;
    }

    /// Returns the longest time that the daemon stays away. If nothing else goes wrong, it is short enough to lose no lease.
    fn downtime(&self) -> Micros {
        let lease = u64::from(self.plan.lease.min(86_400)) * SECOND;
        match self.plan.may_lose_leases() {
            true => (lease * 3 / 2).min(7_200 * SECOND),
            false => (lease / 8).min(60 * SECOND),
        }
    }

    fn reboot(&mut self) {
        self.note(|| "REBOOT".to_owned());
        self.stats.reboots += 1;
        self.clocks.boot += 1;
        self.clocks.booted_at = self.now;
        self.excuse_outdated_clock();
        self.kernel = Kernel::booted(self.plan.lans, self.plan.wires == Some(Wires::Bridge));
        self.wired.rebooted();
        self.show(&Seen::Rebooted);
        self.spool.clear();
        let lost = self.store.rebooted();
        self.stats
            .count_many("ends beside the socket that a reboot lost", lost);
        self.containers_ended();
    }

    /// Handles the core's deadline.
    pub(super) fn on_timer(&mut self) {
        self.spins += 1;
        self.stats.timeouts += 1;
        if self.spins > MOST_SPINS {
            let why = self.timer;
            self.fail(Rule::Spins, format!("woken for {why:?} again and again"));
            return;
        }
        let spins = self.spins;
        self.timer = None;
        let now = self.clock();
        if let Some(daemon) = &mut self.daemon {
            daemon.subject.handle_timeout(now);
        }
        self.drain();
        self.spins = spins;
    }

    /// Hands an input to the core and takes the result.
    pub(super) fn feed(&mut self, input: Input<'_>) {
        let now = self.clock();
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        daemon.subject.handle(now, input);
        self.drain();
    }

    pub(super) fn drain(&mut self) {
        let mut left = MOST_EFFECTS;
        self.spins = 0;
        while let Some(effect) = self
            .daemon
            .as_mut()
            .and_then(|daemon| daemon.subject.poll_effect())
        {
            left -= 1;
            if left == 0 {
                self.fail(Rule::Spins, "effects without end");
                return;
            }
            self.emitted(effect);
        }
        let wanted = self
            .daemon
            .as_ref()
            .and_then(|daemon| daemon.subject.poll_timeout())
            .map(|(at, _)| at);
        if wanted == self.timer.map(|(at, _)| at) {
            return;
        }
        self.timer = wanted.map(|instant| {
            let late = self.rng.u64(..2 * MILLI);
            (instant, self.world_time(instant).max(self.now) + late)
        });
    }

    /// Judges an effect and sends it on its way.
    fn emitted(&mut self, effect: Effect) {
        self.note(|| format!("  < {}", brief(&effect)));
        let lan = match &effect {
            Effect::Send { exchange, .. } => self.socks.get(exchange).map(|sock| sock.lan),
            _ => None,
        };
        self.show(&Seen::Emitted(&effect));
        let found = self.effects.emitted(&effect);
        self.breach = self.breach.take().or(found);
        match &effect {
            Effect::Make { link, .. } => self.ends_add_of_endpoint(&link.owner),
            Effect::Send {
                exchange, frame, ..
            } => {
                if let Some(lan) = lan {
                    self.show(&Seen::Sends(lan, *exchange, frame));
                    self.spoken(lan, frame, self.strays(*exchange, frame));
                }
            }
            Effect::Reply { id, answer } => self.replies(*id, answer),
            _ => {}
        }
        self.schedule(effect);
    }

    /// Judges an answer, and records what it changes.
    fn replies(&mut self, id: RequestId, answer: &Answer) {
        let netns = self.calls.namespace_of(id);
        let found = self.calls.reply(id, answer, &self.store);
        self.breach = self.breach.take().or(found);
        netns
            .into_iter()
            .for_each(|netns| self.effects.add_ends(&netns));
        if let Answer::Leased { .. } = answer {
            self.rob(id);
        }
        self.may_end_add(id, answer);
        self.note_lease(id, answer);
    }

    /// Tells the core how an effect ended.
    pub(super) fn done(&mut self, op: OpId, outcome: Outcome, exchange: Option<ExchangeId>) {
        self.note(|| format!("> {op:?} {outcome:?}"));
        self.effects.done(op, &outcome, exchange);
        self.store.heard(op);
        self.show(&Seen::Done(op, &outcome));
        self.feed(Input::Done { op, outcome });
        self.show(&Seen::Fed);
    }

    /// Tells the core about a frame.
    pub(super) fn frame(&mut self, exchange: ExchangeId, bytes: &[u8], meta: FrameMeta) {
        let Some(sock) = self
            .socks
            .get(&exchange)
            .filter(|sock| sock.open_at.is_some())
        else {
            return;
        };
        self.trace
            .line(self.now, || format!("> {exchange:?} {}", Brief(bytes)));
        let (lan, speaks, mac, client) =
            (sock.lan, sock.speaks, sock.link.mac(), sock.client.clone());
        // On the host's link, frames to the container's Ethernet address are for another host, as the kernel sees it.
        let is_for_us = !meta.other_host || sock.link.in_netns().is_none();
        // If clients share a chaddr, each hears the others' messages.
        let message = Message::decode(bytes.get(42..).unwrap_or_default());
        let relayed_nak = |message: &Message| {
            message.kind() == Some(Kind::Nak) && !message.giaddr.is_unspecified()
        };
        if message.as_ref().is_ok_and(relayed_nak) {
            let refused = client.iter().map(|client| (lan, client.clone()));
            self.ledger.refused_by_relay.extend(refused);
        }
        let for_whom = message.map(|message| message.key());
        let is_own =
            for_whom.is_ok_and(|key| client.as_ref().map_or(!self.plan.ipvlan, |own| key == *own));
        let listens = self.effects.is_open(exchange);
        self.show(&Seen::Frame {
            lan,
            client: client.filter(|_| listens).map(|client| (lan, mac, client)),
            bytes,
        });
        if speaks && is_own && listens && is_for_us {
            self.heard(lan, bytes);
        }
        self.feed(Input::Frame {
            exchange,
            bytes,
            meta,
        });
    }

    /// Tells the core about a socket's failure.
    pub(super) fn broken(&mut self, exchange: ExchangeId, cause: LinkCause) {
        if self
            .socks
            .get(&exchange)
            .is_some_and(|sock| sock.open_at.is_some())
        {
            self.note(|| format!("> {exchange:?} broken: {cause}"));
            self.feed(Input::Broken { exchange, cause });
        }
    }

    /// Tells the core what the kernel reported, or that a report was lost.
    pub(super) fn hears_kernel(&mut self, event: KernelMessage) {
        let lost = happens(&mut self.rng, self.plan.missed);
        self.stats
            .count_which(lost, "kernel messages missed", "kernel messages");
        let event = match lost {
            true => {
                self.kernel.forget_watched();
                KernelMessage::Missed
            }
            false => event,
        };
        self.note(|| format!("> {event:?}"));
        self.feed(Input::Kernel(event));
    }

    /// Delivers the kernel's message to the daemon, if the daemon listens for it.
    pub(super) fn tell(&mut self, event: Option<KernelMessage>) {
        let Some(event) = event else { return };
        let (cookie, ifindex) = match &event {
            KernelMessage::NetnsDied(cookie) | KernelMessage::PathGone(cookie) => (*cookie, None),
            KernelMessage::LinkGone((cookie, ifindex))
            | KernelMessage::Carrier((cookie, ifindex), _)
            | KernelMessage::Down((cookie, ifindex))
            | KernelMessage::Ethernet((cookie, ifindex), _)
            | KernelMessage::AddressAdded((cookie, ifindex), _)
            | KernelMessage::AddressGone((cookie, ifindex), _) => (*cookie, Some(*ifindex)),
            KernelMessage::Appeared { .. }
            | KernelMessage::OwnLink { .. }
            | KernelMessage::Missed => (HOST, None),
        };
        if let KernelMessage::NetnsDied(cookie) = &event {
            self.pinned.remove(&cookie.0);
        }
        self.link_changed(cookie, ifindex);
        if self.kernel.is_watched(cookie) {
            self.after(10, 5 * MILLI, Event::Kernel(self.run, event));
        }
    }

    /// Handles a change of a namespace or a link, which is a cause to send.
    pub(super) fn link_changed(&mut self, cookie: Cookie, ifindex: Option<u32>) {
        let about = |at: (Cookie, u32)| at.0 == cookie && ifindex.is_none_or(|index| index == at.1);
        self.causes_of(|record| record.link.in_netns().is_some_and(about));
    }

    /// Hands a request to the core.
    pub(super) fn request(&mut self, id: RequestId) {
        let Some(asked) = self.requests.get(&id).filter(|asked| !asked.gone) else {
            return;
        };
        if self.daemon.is_none() || self.is_late_echo(asked) {
            return self.cut(id);
        }
        let mut call = asked.call.clone();
        self.name_the_valid(&mut call);
        self.note(|| format!("> {id:?} {}", brief_call(&call)));
        self.calls.request(self.now, id, &call);
        self.show(&Seen::Requested(&call));
        if !matches!(call, Call::List | Call::Status { .. } | Call::Check { .. }) {
            self.timing.begins_anew();
        }
        self.takes_its_turn(id);
        if add_of(&call).is_some() {
            self.add_begins(id);
        }
        self.cause_to_send(&call);
        self.feed(Input::Request { id, call });
    }

    /// Hands a hang-up to the core.
    pub(super) fn hung_up(&mut self, id: RequestId) {
        self.note(|| format!("> {id:?} hung up"));
        if let Some(netns) = self.calls.namespace_of(id) {
            self.effects.add_ends(&netns);
        }
        let open = self.calls.hung_up(id);
        self.feed(Input::HungUp(id));
        self.caller_gone(id, open);
    }

    /// Carries out an effect, unless the daemon crashes before it; or crashes after it.
    pub(super) fn carry(&mut self, effect: Effect) {
        let kind = kind_of(&effect);
        if self.crashes_at(kind, false) {
            return;
        }
        self.carry_out(effect);
        self.crashes_at(kind, true);
    }

    /// Crashes if this is the point for it, and returns whether it did. A call for the time before an effect counts the effect.
    pub(super) fn crashes_at(&mut self, kind: EffectKind, after: bool) -> bool {
        let count = self.carried.entry(kind).or_default();
        if !after {
            *count += 1;
        }
        let due =
            |point: &CrashPoint| (point.kind, point.nth, point.after) == (kind, *count, after);
        if self.winding_down || !self.crashes.front().is_some_and(due) {
            return false;
        }
        self.crashes.pop_front();
        *self.stats.crash_points.entry((kind, after)).or_default() += 1;
        self.crash();
        true
    }
}

fn kind_of(effect: &Effect) -> EffectKind {
    match effect {
        Effect::Persist { .. } => EffectKind::Persist,
        Effect::Open { .. } => EffectKind::Open,
        Effect::Inspect { .. }
        | Effect::Survey { .. }
        | Effect::ListInside { .. }
        | Effect::Seek { .. }
        | Effect::ListOwn { .. } => EffectKind::Inspect,
        Effect::Apply { .. } | Effect::Prepare { .. } => EffectKind::Apply,
        Effect::Make { .. } => EffectKind::Make,
        Effect::Unmake { .. } => EffectKind::Unmake,
        Effect::Send { .. } | Effect::Hear { .. } => EffectKind::Send,
        Effect::Close { .. } => EffectKind::Close,
        Effect::Reply { .. } => EffectKind::Reply,
        Effect::Publish { .. } => EffectKind::Publish,
    }
}

fn brief(effect: &Effect) -> String {
    match effect {
        Effect::Send {
            exchange, frame, ..
        } => format!("Send {exchange:?} {}", Brief(frame)),
        Effect::Persist { op, changes } => {
            let changes = changes.iter().map(|change| match change {
                Change::Put(id, record) => {
                    format!(
                        "put {} {:?} {} {}",
                        id.0, record.state, record.attachment, record.lease.address
                    )
                }
                Change::Remove(id) => format!("remove {}", id.0),
                Change::Note(event) => {
                    format!("note {} {} ({})", event.kind, event.attachment, event.cause)
                }
                Change::PutDoor(record) => format!("put {record:?}"),
                Change::RemoveDoor(key) => format!("remove {key:?}"),
            });
            format!("Persist {op:?}: {}", changes.collect::<Vec<_>>().join(", "))
        }
        other => format!("{other:?}"),
    }
}

fn brief_call(call: &Call) -> String {
    match call {
        Call::Add(add) => {
            format!(
                "ADD {} client {} in {}",
                add.attachment,
                add.client_id.resolve(Mac::default()),
                add.place.target()
            )
        }
        Call::Del { attachment, .. } => format!("DEL {attachment}"),
        other => format!("{other:?}"),
    }
}

/// Returns whether a frame is DHCP: losses only count for those.
pub(super) fn is_dhcp(frame: &[u8]) -> bool {
    message_of(frame).is_some()
}
