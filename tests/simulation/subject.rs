//! The core under test, unchanged or with one of its duties omitted.
//!
//! A mutation sits between the core and the world. Seen from outside, each does what a core without that duty would do. The
//! rules that the core itself can leave out are in `leasehold_core::rules`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Core;
use leasehold_core::effect::{
    Add, Answer, Call, Effect, EndpointAddress, EndpointRequest, ExchangeId, Failure, Input,
    NetworkCall, OpId, Outcome, RequestId, Why,
};
use leasehold_core::identity::{Attachment, ClientId, DoorId, Identity, Lan};
use leasehold_core::link::own::LinkOwner;
use leasehold_core::link::{KernelMessage, Link, LinkCause, Step, Target};
use leasehold_core::record::{Change, Record, RecordState};
use leasehold_core::registry::Config;
use leasehold_core::tenure::Tenure;
use leasehold_core::testbed::kept::Kept;
use leasehold_core::time::{BootId, Instant, Now};
use leasehold_core::wire::frame::FrameMeta;
use netns_fixtures::model::{Arp, ClientKey, Kind, Message, Packet, arp, decode};

/// An omitted duty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// ADD is answered when the lease is handed to the store, not when it is durable.
    ReplyBeforePersist,
    /// A NAK is ignored.
    NakIgnored,
    /// A caller that hangs up goes unnoticed, and is not answered.
    HangUpForgotten,
    /// A DEL that comes while its ADD is under way is answered, but does not cancel it.
    DelForgotten,
    /// Sockets stay open.
    CloseForgotten,
    /// A failed write counts as done.
    StoreFailureIgnored,
    /// Every restart is taken for a reboot, so that leases are confirmed.
    RestartConfirms,
    /// A namespace that dies goes unnoticed, and so does a link that disappears.
    DeathIgnored,
    /// A record is never removed.
    RecordKept,
    /// An interface is changed for a lease while the lease is on its way to the store.
    ApplyBeforePersist,
    /// Remains of a lost lease on its interface stay there.
    ExpiryIgnored,
    /// The remains of an earlier lease on an interface are not recorded, and the next daemon forgets them.
    FormerForgotten,
    /// An interface is left unchanged when its lease changes.
    ChangeIgnored,
    /// A server is believed even if the network's configuration denies it.
    RogueBelieved,
    /// A lease is looked for without a pause.
    StormAnswered,
    /// Name servers are not published.
    PublishForgotten,
    /// An event of a lease is written before the lease.
    EventFirst,
    /// No ARP is heard.
    ArpUnheard,
    /// The time until which a lease is kept is not recorded.
    GraceForgotten,
    /// STATUS is answered with success whatever was found.
    StatusBlind,
    /// A RELEASE from the host leaves from the host's link itself.
    PortForgotten,
    /// A namespace that cannot be seen is believed to be gone.
    BlindnessBelieved,
    /// Nobody records that somebody took an address off.
    RemovalForgotten,
    /// A link that is set down goes unnoticed.
    DownUnheard,
    /// Every claimant is taken for a station that answers for all addresses.
    ClaimantsForgiven,
    /// Addresses are declined without end.
    DeclinesUncounted,
    /// Nobody looks for another lease after one is lost, unless a caller waits for it.
    LossAccepted,
    /// Each attachment seems to be on its own LAN: nobody has its addresses, and it meets nobody there.
    LanUnshared,
    /// Links that were made for Docker are never deleted.
    UnmakeForgotten,
    /// A fallback does not wait for servers.
    FallbackImpatient,
    /// No server's offer is heard.
    OffersUnheard,
}

/// Operations that a mutation adds have ids from here on.
const OWN_OPS: u64 = 1 << 62;

/// The core, perhaps mutated.
pub(crate) struct Subject {
    seed: u64,
    core: Core,
    mutation: Option<Mutation>,
    /// ADDs that wait for their answer.
    adds: BTreeMap<RequestId, Attachment>,
    /// Requests whose answers are dropped: they were answered, or nobody waits.
    dropped: BTreeSet<RequestId>,
    /// Effects that the mutation adds.
    own: VecDeque<Effect>,
    /// The last operation that the mutation added.
    last_op: u64,
    /// Changes of links that were cut short, with how many of their steps were kept from the world.
    cut: BTreeMap<OpId, usize>,
    /// Who answered ARP last, by exchange.
    claimants: BTreeMap<ExchangeId, [u8; 6]>,
    /// The LANs that a mutation hides, by the names that it uses instead.
    lans: BTreeMap<Lan, Lan>,
    /// Questions about addresses that nobody can have, which a mutation answers itself.
    controls: VecDeque<(ExchangeId, Arp)>,
}

impl Subject {
    /// Returns a core as it is after its daemon has started.
    pub(crate) fn new(seed: u64, permits: usize, mutation: Option<Mutation>) -> Self {
        let config = Config {
            permits,
            ..Config::default()
        };
        Self {
            seed,
            core: Core::new(config, seed),
            mutation,
            adds: BTreeMap::new(),
            dropped: BTreeSet::new(),
            own: VecDeque::new(),
            last_op: OWN_OPS,
            cut: BTreeMap::new(),
            claimants: BTreeMap::new(),
            lans: BTreeMap::new(),
            controls: VecDeque::new(),
        }
    }

    /// Hands in an input.
    pub(crate) fn handle(&mut self, now: Now, input: Input<'_>) {
        self.answer_controls(now);
        if let (
            Some(Mutation::ClaimantsForgiven),
            Input::Frame {
                exchange, bytes, ..
            },
        ) = (self.mutation, &input)
            && let Some(answer) = arp_of(bytes).filter(|arp| !arp.request)
        {
            self.claimants.insert(*exchange, answer.sender_mac);
        }
        if let Some(input) = self.mutate(input) {
            self.core.handle(now, input);
        }
    }

    /// Reports that time has passed.
    pub(crate) fn handle_timeout(&mut self, now: Now) {
        self.answer_controls(now);
        self.core.handle_timeout(now);
    }

    /// Returns the next deadline.
    pub(crate) fn poll_timeout(&self) -> Option<(Instant, Why)> {
        self.core.poll_timeout()
    }

    /// Returns what the core keeps.
    pub(crate) fn kept(&self) -> Vec<Kept> {
        self.core.kept()
    }

    /// Returns the next effect.
    pub(crate) fn poll_effect(&mut self) -> Option<Effect> {
        loop {
            if let Some(effect) = self.own.pop_front() {
                return Some(effect);
            }
            let effect = self.core.poll_effect()?;
            if let Some(effect) = self.mutate_effect(effect) {
                return Some(effect);
            }
        }
    }

    fn mutate<'a>(&mut self, mut input: Input<'a>) -> Option<Input<'a>> {
        let Some(mutation) = self.mutation else {
            return Some(input);
        };
        match (mutation, &mut input) {
            (
                _,
                Input::Request {
                    id,
                    call: Call::Add(add),
                },
            ) => {
                if mutation == Mutation::RogueBelieved {
                    Arc::make_mut(&mut add.profile.client).servers.deny.clear();
                }
                if mutation == Mutation::FallbackImpatient {
                    add.fallback
                        .iter_mut()
                        .for_each(|fallback| fallback.after = Duration::ZERO);
                }
                if mutation == Mutation::LanUnshared {
                    let own = Lan::Network(add.attachment.to_string().into());
                    self.lans
                        .insert(own.clone(), std::mem::replace(&mut add.lan, own));
                }
                self.adds.insert(*id, add.attachment.clone());
            }
            (
                Mutation::DelForgotten,
                Input::Request {
                    id,
                    call: Call::Del { attachment, .. },
                },
            ) if self.adds.values().any(|adding| adding == attachment) => {
                let (id, answer) = (*id, Answer::Deleted);
                self.own.push_back(Effect::Reply { id, answer });
                return None;
            }
            (Mutation::OffersUnheard, Input::Frame { bytes, .. })
                if kind_of(bytes) == Some(Kind::Offer) =>
            {
                return None;
            }
            (Mutation::NakIgnored, Input::Frame { bytes, .. })
                if kind_of(bytes) == Some(Kind::Nak) =>
            {
                return None;
            }
            (Mutation::HangUpForgotten, Input::HungUp(id)) => {
                self.dropped.insert(*id);
                return None;
            }
            (
                Mutation::StoreFailureIgnored,
                Input::Done {
                    outcome: Outcome::Persisted(result),
                    ..
                },
            ) => *result = Ok(()),
            (Mutation::RestartConfirms, Input::Start { boot, .. }) => {
                *boot = BootId(format!("{}, {}", boot.0, self.seed));
            }
            (Mutation::DeathIgnored, Input::Kernel(_))
            | (Mutation::DownUnheard, Input::Kernel(KernelMessage::Down(..))) => return None,
            (
                Mutation::BlindnessBelieved,
                Input::Done {
                    outcome: Outcome::Inspected(Err(cause)),
                    ..
                },
            ) if cause.is_unseen() => *cause = LinkCause::NoLink("that can be seen".to_owned()),
            (Mutation::ArpUnheard, Input::Frame { bytes, .. }) if is_arp(bytes) => return None,
            (_, Input::Done { op, .. }) if op.0 > OWN_OPS => return None,
            (
                _,
                Input::Done {
                    op,
                    outcome: Outcome::Applied { taken, .. },
                },
            ) => *taken += self.cut.remove(op).unwrap_or(0),
            _ => {}
        }
        Some(input)
    }

    fn mutate_effect(&mut self, mut effect: Effect) -> Option<Effect> {
        let Some(mutation) = self.mutation else {
            return Some(effect);
        };
        if let Effect::Reply { id, .. } = &effect {
            self.adds.remove(id);
            if self.dropped.remove(id) {
                return None;
            }
        }
        match (mutation, &mut effect) {
            (Mutation::ReplyBeforePersist, Effect::Persist { changes, .. }) => {
                changes.iter().for_each(|change| self.answer_early(change));
            }
            (
                Mutation::ClaimantsForgiven,
                Effect::Send {
                    exchange, frame, ..
                },
            ) => {
                let question = arp_of(frame).filter(|arp| arp.request && is_nobodys(arp.target));
                self.controls
                    .extend(question.map(|question| (*exchange, question)));
            }
            (Mutation::LossAccepted, Effect::Send { frame, .. })
                if kind_of(frame) == Some(Kind::Discover) && self.adds.is_empty() =>
            {
                return None;
            }
            (Mutation::DeclinesUncounted, Effect::Send { frame, .. })
                if kind_of(frame) == Some(Kind::Decline) =>
            {
                (0..10).for_each(|_| self.echo(&effect));
            }
            (
                Mutation::LanUnshared,
                Effect::Reply {
                    answer: Answer::Bindings { rows, .. },
                    ..
                },
            ) => {
                for row in rows {
                    let Some(Identity { lan, .. }) = &mut row.identity else {
                        continue;
                    };
                    *lan = self.lans.get(lan).unwrap_or(lan).clone();
                }
            }
            (Mutation::CloseForgotten, Effect::Close { .. })
            | (Mutation::PublishForgotten, Effect::Publish { .. }) => return None,
            (Mutation::PortForgotten, Effect::Open { link, .. }) => {
                if let Link::Parent { ifindex, mac, .. } = link {
                    *link = Link::parent(*ifindex, *mac);
                }
            }
            (Mutation::ApplyBeforePersist, Effect::Persist { changes, .. }) => {
                changes.iter().for_each(|change| self.apply_early(change));
            }
            (Mutation::ExpiryIgnored, Effect::Apply { op, steps, .. })
                if !steps
                    .iter()
                    .any(|step| matches!(step, Step::AddAddress(_) | Step::Up)) =>
            {
                self.cut_short(*op, steps, |step| matches!(step, Step::Mtu(_)));
            }
            (Mutation::ChangeIgnored, Effect::Apply { op, steps, .. }) => {
                self.cut_short(*op, steps, |step| matches!(step, Step::Up | Step::Mtu(_)));
            }
            (Mutation::FormerForgotten, Effect::Persist { changes, .. }) => {
                put(changes).for_each(|record| record.former = None);
            }
            (Mutation::RemovalForgotten, Effect::Persist { changes, .. }) => {
                put(changes).for_each(|record| record.taken_off = false);
            }
            (Mutation::GraceForgotten, Effect::Persist { changes, .. }) => {
                put(changes).for_each(|record| record.kept = None);
            }
            (Mutation::StormAnswered, Effect::Send { frame, .. })
                if kind_of(frame) == Some(Kind::Discover) =>
            {
                (0..80).for_each(|_| self.echo(&effect));
            }
            (Mutation::UnmakeForgotten, Effect::Unmake { owner, .. }) => {
                // Deleting a link that is not there succeeds.
                let nobody = DoorId::try_from("0".to_owned()).expect("a digit is an id");
                *owner = LinkOwner::Endpoint(nobody);
            }
            (
                Mutation::StatusBlind,
                Effect::Reply {
                    answer: answer @ Answer::Failed(Failure::NotReady(_)),
                    ..
                },
            ) => *answer = Answer::Ready,
            (Mutation::RecordKept, Effect::Persist { changes, .. }) => {
                changes.retain(|change| !matches!(change, Change::Remove(_)));
            }
            (Mutation::EventFirst, Effect::Persist { op, changes }) => {
                let (events, records) = std::mem::take(changes)
                    .into_iter()
                    .partition(|change| matches!(change, Change::Note(_)));
                self.own.push_back(Effect::Persist {
                    op: *op,
                    changes: records,
                });
                // Nobody waits for the end of this one.
                (*op, *changes) = (OpId(u64::MAX - op.0), events);
            }
            _ => {}
        }
        Some(effect)
    }

    /// Sends a frame once more.
    fn echo(&mut self, effect: &Effect) {
        let mut again = effect.clone();
        if let Effect::Send { op, .. } = &mut again {
            *op = None;
        }
        self.own.push_back(again);
    }

    /// Answers for addresses that nobody can have, in the name of whoever claimed the leased one.
    fn answer_controls(&mut self, now: Now) {
        while let Some((exchange, question)) = self.controls.pop_front() {
            let Some(claimant) = self.claimants.get(&exchange) else {
                continue;
            };
            let bytes = arp(
                *claimant,
                question.sender_mac,
                &answer_of(&question, *claimant),
            );
            self.core.handle(
                now,
                Input::Frame {
                    exchange,
                    bytes: &bytes,
                    meta: FrameMeta::default(),
                },
            );
        }
    }

    /// Puts the address of a lease on its interface before its record is written.
    fn apply_early(&mut self, change: &Change) {
        let Change::Put(_, record) = change else {
            return;
        };
        if record.state == RecordState::Bound && record.former.is_some() {
            self.last_op += 1;
            let (op, target) = (OpId(self.last_op), Target::Known(record.link.clone()));
            self.own.push_back(Effect::Apply {
                op,
                target,
                steps: vec![Step::AddAddress(record.lease.address.into())],
            });
        }
    }

    /// Lets only some of the steps happen, and tells the core that all were taken.
    fn cut_short(&mut self, op: OpId, steps: &mut Vec<Step>, kept: impl Fn(&Step) -> bool) {
        let all = steps.len();
        steps.retain(kept);
        self.cut.insert(op, all - steps.len());
    }

    fn answer_early(&mut self, change: &Change) {
        let Change::Put(_, record) = change else {
            return;
        };
        let waits = self
            .adds
            .iter()
            .find(|(_, attachment)| **attachment == record.attachment);
        let Some((id, _)) = waits.filter(|_| record.state == RecordState::Bound) else {
            return;
        };
        let (id, answer) = (*id, Answer::leased(&record.lease, &record.profile.policy));
        self.adds.remove(&id);
        self.dropped.insert(id);
        self.own.push_back(Effect::Reply { id, answer });
    }
}

/// Returns the records that are written.
fn put(changes: &mut [Change]) -> impl Iterator<Item = &mut Record> {
    changes.iter_mut().filter_map(|change| match change {
        Change::Put(_, record) => Some(&mut **record),
        _ => None,
    })
}

/// Returns the ADD that a call is or contains.
pub(crate) fn add_of(call: &Call) -> Option<&Add> {
    match (call, created(call).map(|request| &request.address)) {
        (Call::Add(add), _) | (_, Some(EndpointAddress::Leased(add))) => Some(add),
        _ => None,
    }
}

/// Returns the endpoint that a call creates.
pub(crate) fn created(call: &Call) -> Option<&EndpointRequest> {
    match call {
        Call::Network(NetworkCall::CreateEndpoint(request)) => Some(request),
        _ => None,
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
    arp_of(frame).is_some()
}

/// Returns the ARP packet in a frame.
pub(crate) fn arp_of(frame: &[u8]) -> Option<Arp> {
    match decode(frame).ok()?.packet {
        Packet::Arp(arp) => Some(arp),
        Packet::Udp { .. } | Packet::Other(_) => None,
    }
}

/// Returns whether nobody can have an address (RFC 5737).
pub(crate) fn is_nobodys(address: Ipv4Addr) -> bool {
    address.is_documentation()
}

/// Returns a station's answer to a question.
pub(crate) fn answer_of(question: &Arp, mac: [u8; 6]) -> Arp {
    Arp {
        request: false,
        sender_mac: mac,
        sender: question.target,
        target_mac: question.sender_mac,
        target: question.sender,
    }
}

fn kind_of(frame: &[u8]) -> Option<Kind> {
    message_of(frame)?.kind()
}

/// Returns the name that a client with this identifier uses.
pub(crate) fn key_of(client_id: &ClientId) -> ClientKey {
    ClientKey::Id(client_id.as_bytes().to_vec())
}

/// Returns whether an attachment belongs to this network.
pub(crate) fn is_in(attachment: &Attachment, name: &str) -> bool {
    matches!(attachment, Attachment::Cni { network, .. } if network == name)
}

/// Returns whether a GC of a network gives an attachment back.
pub(crate) fn is_collected(
    attachment: &Attachment,
    network: &str,
    keep: &[(String, String)],
) -> bool {
    is_in(attachment, network)
        && !keep
            .iter()
            .any(|(c, ifname)| *attachment == Attachment::cni(network, c, ifname))
}

/// Returns the container's name.
pub(crate) fn container(attachment: &Attachment) -> &str {
    match attachment {
        Attachment::Cni { container, .. } => container,
        Attachment::Docker { endpoint, .. } => endpoint,
    }
}

/// Returns the IPv4 address that a caller is told, and the server that granted it.
pub(crate) fn granted(tenures: &[Tenure]) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let tenure = tenures.iter().find(|tenure| tenure.v4().is_some())?;
    match tenure.by.server()? {
        IpAddr::V4(server) => Some((tenure.v4()?.addr(), server)),
        IpAddr::V6(_) => None,
    }
}
