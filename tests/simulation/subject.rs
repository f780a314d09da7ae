//! The core under test, as it is or with one of its duties left out.
//!
//! A mutation sits between the core and the world: the core holds no switches for tests. Each does what a core without that
//! duty would do, seen from outside.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;

use leasehold_core::effect::{Answer, Call, Effect, ExchangeId, Failure, Input, OpId, Outcome, RequestId, Why};
use leasehold_core::identity::Attachment;
use leasehold_core::link::{Step, Target};
use leasehold_core::record::{Change, RecordState};
use leasehold_core::registry::{Config, Kept, Registry};
use leasehold_core::time::{BootId, Instant, Now};
use netns_fixtures::model::{Kind, Message, Packet, decode};

/// A duty left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// ADD is answered when the lease is given to the store, not when it is durable.
    ReplyBeforePersist,
    /// A NAK is not heard.
    NakIgnored,
    /// A caller that hangs up is not noticed; nor is it answered.
    HangUpForgotten,
    /// A DEL that comes while its ADD is under way is answered, but does not cancel it.
    DelForgotten,
    /// A RELEASE of an old holder goes out although a new one has taken its lease over.
    ReleaseUnderHolder,
    /// Sockets stay open.
    CloseForgotten,
    /// A failed write counts as done.
    StoreFailureIgnored,
    /// Every restart is taken for a reboot, so that leases are confirmed.
    RestartConfirms,
    /// A namespace that dies is not noticed, nor is a link that goes.
    DeathIgnored,
    /// A record is never removed.
    RecordKept,
    /// An interface is changed for a lease while that is on its way to the store.
    ApplyBeforePersist,
    /// What a lease that is lost left on its interface stays there.
    ExpiryIgnored,
    /// What an interface carries of a lease before is not written down, and forgotten by the next daemon.
    FormerForgotten,
    /// An interface is left as it was when its lease changes.
    ChangeIgnored,
    /// A server is believed whatever the network's configuration says of it.
    RogueBelieved,
    /// A refused lease is asked for again at once, as often as it is refused.
    StormAnswered,
    /// Name servers are not published.
    PublishForgotten,
    /// An event of a lease is written before the lease.
    EventFirst,
    /// Nothing of ARP is heard.
    ArpUnheard,
    /// STATUS is answered whatever was found.
    StatusBlind,
}

/// Operations that a mutation makes of itself have ids from here on.
const OWN_OPS: u64 = 1 << 62;

/// The core, perhaps mutated.
pub(crate) struct Subject {
    seed: u64,
    registry: Registry,
    mutation: Option<Mutation>,
    /// ADDs that wait for their answer.
    adds: BTreeMap<RequestId, Attachment>,
    /// Requests whose answers are dropped: they were answered, or nobody waits.
    dropped: BTreeSet<RequestId>,
    /// Effects of the mutation's own.
    own: VecDeque<Effect>,
    /// Operations of the mutation's own.
    last_op: u64,
    /// Changes of links that were cut short, with how many of their steps were kept from the world.
    cut: BTreeMap<OpId, usize>,
    /// Frames that the mutation sends once more.
    echoes: u32,
    /// RELEASEs that are held back, with what follows them.
    held: BTreeMap<ExchangeId, (Ipv4Addr, Vec<Effect>)>,
}

impl Subject {
    /// Returns a core as it is after its daemon started.
    pub(crate) fn new(seed: u64, mutation: Option<Mutation>) -> Self {
        Self {
            seed,
            registry: Registry::new(Config::default(), seed),
            mutation,
            adds: BTreeMap::new(),
            dropped: BTreeSet::new(),
            own: VecDeque::new(),
            last_op: OWN_OPS,
            cut: BTreeMap::new(),
            echoes: 0,
            held: BTreeMap::new(),
        }
    }

    /// Hands in an input.
    pub(crate) fn handle(&mut self, now: Now, input: Input<'_>) {
        if let Some(input) = self.mutate(input) {
            self.registry.handle(now, input);
        }
    }

    /// Tells that time has passed.
    pub(crate) fn handle_timeout(&mut self, now: Now) {
        self.registry.handle_timeout(now);
    }

    /// Returns the next deadline.
    pub(crate) fn poll_timeout(&self) -> Option<(Instant, Why)> {
        self.registry.poll_timeout()
    }

    /// Returns what the core keeps.
    pub(crate) fn kept(&self) -> Vec<Kept> {
        self.registry.kept()
    }

    /// Returns the next effect.
    pub(crate) fn poll_effect(&mut self) -> Option<Effect> {
        loop {
            if let Some(effect) = self.own.pop_front() {
                return Some(effect);
            }
            let effect = self.registry.poll_effect()?;
            if let Some(effect) = self.mutate_effect(effect) {
                return Some(effect);
            }
        }
    }

    fn mutate<'a>(&mut self, input: Input<'a>) -> Option<Input<'a>> {
        let Some(mutation) = self.mutation else { return Some(input) };
        match (mutation, input) {
            (_, Input::Request { id, call: Call::Add(mut add) }) => {
                if mutation == Mutation::RogueBelieved {
                    add.profile.deny.clear();
                }
                self.adds.insert(id, add.attachment.clone());
                Some(Input::Request { id, call: Call::Add(add) })
            }
            (Mutation::DelForgotten, Input::Request { id, call: Call::Del { attachment } }) => {
                if self.adds.values().any(|adding| *adding == attachment) {
                    self.own.push_back(Effect::Reply { id, answer: Answer::Deleted });
                    return None;
                }
                Some(Input::Request { id, call: Call::Del { attachment } })
            }
            (Mutation::NakIgnored, Input::Frame { bytes, .. }) if kind_of(bytes) == Some(Kind::Nak) => None,
            (Mutation::HangUpForgotten, Input::HungUp(id)) => {
                self.dropped.insert(id);
                None
            }
            (Mutation::StoreFailureIgnored, Input::Done { op, outcome: Outcome::Persisted(Err(_)) }) => {
                Some(Input::Done { op, outcome: Outcome::Persisted(Ok(())) })
            }
            (Mutation::RestartConfirms, Input::Start { boot, records, spooled, adoptees }) => {
                let boot = BootId(format!("{}, {}", boot.0, self.seed));
                Some(Input::Start { boot, records, spooled, adoptees })
            }
            (Mutation::DeathIgnored, Input::Kernel(_)) => None,
            (Mutation::ArpUnheard, Input::Frame { bytes, .. }) if is_arp(bytes) => None,
            (_, Input::Done { op, .. }) if op.0 > OWN_OPS => None,
            (_, Input::Done { op, outcome: Outcome::Applied { taken, result } }) => {
                let taken = taken + self.cut.remove(&op).unwrap_or(0);
                Some(Input::Done { op, outcome: Outcome::Applied { taken, result } })
            }
            (_, input) => Some(input),
        }
    }

    fn mutate_effect(&mut self, effect: Effect) -> Option<Effect> {
        let Some(mutation) = self.mutation else { return Some(effect) };
        if let Effect::Reply { id, answer } = &effect {
            self.adds.remove(id);
            if self.dropped.remove(id) {
                return None;
            }
            if let (Mutation::ReleaseUnderHolder, Answer::Leased(lease)) = (mutation, answer) {
                self.let_releases_go(lease.ip());
            }
        }
        match (mutation, effect) {
            (Mutation::ReplyBeforePersist, Effect::Persist { op, changes }) => {
                changes.iter().for_each(|change| self.answer_early(change));
                Some(Effect::Persist { op, changes })
            }
            (Mutation::ReleaseUnderHolder, Effect::Send { op, exchange, frame })
                if kind_of(&frame) == Some(Kind::Release) =>
            {
                let address = message_of(&frame).expect("a kind comes from a message").ciaddr;
                self.held.insert(exchange, (address, vec![Effect::Send { op, exchange, frame }]));
                None
            }
            (Mutation::ReleaseUnderHolder, Effect::Close { exchange }) => match self.held.get_mut(&exchange) {
                Some((_, effects)) => {
                    effects.push(Effect::Close { exchange });
                    None
                }
                None => Some(Effect::Close { exchange }),
            },
            (Mutation::CloseForgotten, Effect::Close { .. }) => None,
            (Mutation::ApplyBeforePersist, Effect::Persist { op, changes }) => {
                changes.iter().for_each(|change| self.apply_early(change));
                Some(Effect::Persist { op, changes })
            }
            (Mutation::ExpiryIgnored, Effect::Apply { op, target, steps })
                if !steps.iter().any(|step| matches!(step, Step::AddAddress(_) | Step::Up)) =>
            {
                Some(self.cut_short(op, target, &steps, |step| matches!(step, Step::Mtu(_))))
            }
            (Mutation::ChangeIgnored, Effect::Apply { op, target, steps }) => {
                Some(self.cut_short(op, target, &steps, |step| matches!(step, Step::Up | Step::Mtu(_))))
            }
            (Mutation::FormerForgotten, Effect::Persist { op, mut changes }) => {
                for change in &mut changes {
                    if let Change::Put(_, record) = change {
                        record.former = None;
                    }
                }
                Some(Effect::Persist { op, changes })
            }
            (Mutation::StormAnswered, Effect::Send { op, exchange, frame })
                if kind_of(&frame) == Some(Kind::Discover) && self.echoes < 40 =>
            {
                self.echoes += 1;
                self.own.push_back(Effect::Send { op: None, exchange, frame: frame.clone() });
                Some(Effect::Send { op, exchange, frame })
            }
            (Mutation::PublishForgotten, Effect::Publish { .. }) => None,
            (Mutation::StatusBlind, Effect::Reply { id, answer: Answer::Failed(Failure::NotReady(_)) }) => {
                Some(Effect::Reply { id, answer: Answer::Ready })
            }
            (Mutation::RecordKept, Effect::Persist { op, mut changes }) => {
                changes.retain(|change| !matches!(change, Change::Remove(_)));
                Some(Effect::Persist { op, changes })
            }
            (Mutation::EventFirst, Effect::Persist { op, changes }) => {
                let (events, records) = changes.into_iter().partition(|change| matches!(change, Change::Note(_)));
                self.own.push_back(Effect::Persist { op, changes: records });
                // Nobody waits for the end of this one.
                Some(Effect::Persist { op: OpId(u64::MAX - op.0), changes: events })
            }
            (_, effect) => Some(effect),
        }
    }

    /// Puts the address of a lease on its interface before its record is written.
    fn apply_early(&mut self, change: &Change) {
        let Change::Put(_, record) = change else { return };
        if record.state == RecordState::Bound && record.former.is_some() {
            self.last_op += 1;
            let (op, target) = (OpId(self.last_op), Target::Known(record.link.clone()));
            self.own.push_back(Effect::Apply { op, target, steps: vec![Step::AddAddress(record.lease.address)] });
        }
    }

    /// Lets only some of the steps happen, and tells the core that all were taken.
    fn cut_short(&mut self, op: OpId, target: Target, steps: &[Step], kept: impl Fn(&Step) -> bool) -> Effect {
        let left: Vec<_> = steps.iter().filter(|step| kept(step)).cloned().collect();
        self.cut.insert(op, steps.len() - left.len());
        Effect::Apply { op, target, steps: left }
    }

    fn answer_early(&mut self, change: &Change) {
        let Change::Put(_, record) = change else { return };
        let waits = self.adds.iter().find(|(_, attachment)| **attachment == record.attachment);
        let Some((id, _)) = waits.filter(|_| record.state == RecordState::Bound) else { return };
        let (id, answer) = (*id, Answer::Leased(Box::new(record.lease.clone())));
        self.adds.remove(&id);
        self.dropped.insert(id);
        self.own.push_back(Effect::Reply { id, answer });
    }

    /// Sends the RELEASEs of an address that were held back: somebody was just told that it is his.
    fn let_releases_go(&mut self, address: Ipv4Addr) {
        let ready = self.held.extract_if(.., |_, (released, _)| *released == address);
        self.own.extend(ready.flat_map(|(_, (_, effects))| effects));
    }
}

/// Returns the DHCP message in a frame.
pub(crate) fn message_of(frame: &[u8]) -> Option<Message> {
    match decode(frame).ok()?.packet {
        Packet::Udp { payload, .. } => Message::decode(payload).ok(),
        Packet::Arp(_) | Packet::Other(_) => None,
    }
}

fn is_arp(frame: &[u8]) -> bool {
    matches!(decode(frame), Ok(frame) if matches!(frame.packet, Packet::Arp(_)))
}

fn kind_of(frame: &[u8]) -> Option<Kind> {
    message_of(frame)?.kind()
}
