//! The invariants, as far as the world can see them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use leasehold_core::effect::{
    Add, Answer, Call, Effect, ExchangeId, NetworkAnswer, NetworkCall, OpId, Outcome, RequestId,
};
use leasehold_core::identity::{Attachment, ClientId};
use leasehold_core::link::{Hears, Link, Place, Sockets, Target};
use leasehold_core::record::{BindingId, Change, DockerKey, DockerRecord, Record, RecordState};
use leasehold_core::tenure::Tenure;
use leasehold_core::wire::Mac;
use netns_fixtures::model::{ClientKey, Kind, Violation, code};

use crate::plan::EffectKind;
use crate::store::Store;
use crate::subject::{add_of, created, is_collected, key_of, message_of};

/// Which rule was broken. Numbers are those of the design's invariants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// 1: a caller heard of a lease that was not durable.
    NotDurable,
    /// 2: two Persists, two Opens or two Applies of one binding are under way.
    Two(EffectKind),
    /// A request was answered twice, or an unknown one was.
    Answers,
    /// 2: an ADD succeeded although a DEL of its attachment came after it.
    DelOvertaken,
    /// 3: a request was answered after its caller was known to be gone.
    AnswerToNobody,
    /// An answer of another kind than the call.
    WrongAnswer,
    /// 4: a RELEASE of an address that a live attachment holds.
    ReleaseUnderHolder,
    /// 4: a DECLINE of an address that a live attachment holds.
    DeclineUnderHolder,
    /// 4: a RELEASE while another host has the address under the same identity.
    ReleaseElsewhere,
    /// A lease whose identity can return went back too early, or is kept too long.
    Grace,
    /// A frame for sockets that are not open, or were closed.
    SendUnopened,
    /// 5: sockets stay open with nothing to do.
    IdleSockets,
    /// Effects that nobody waits for pile up.
    Unbounded,
    /// 6: the daemon keeps a namespace alive.
    PinnedNamespace,
    /// A macvlan of the daemon has the Ethernet address of an interface that is to come.
    InTheWay,
    /// 7: a packet after a restart, before T1 and without cause.
    Chatty,
    /// 9: a call is not answered by its time-out.
    Unanswered,
    /// A client's message that violates RFC 2131.
    Client(Box<Violation>),
    /// The core asks to be woken again and again without progress.
    Spins,
    /// A server that is denied, or must not be believed, was believed.
    Rogue,
    /// 4: two live attachments hold one address of a LAN.
    Twice,
    /// A message outside its window, or again too soon (RFC 2131 §4.1, §4.4.5).
    Timing,
    /// A client whose link was away for long was not heard by a server soon after.
    Unconfirmed,
    /// A message leaves by another link than it should.
    WrongLink,
    /// A lease stays at its server without a holder.
    Stranded,
    /// An attachment goes on with an address that a neighbour uses, though it could hear that.
    Squatted,
    /// An ADD succeeded with an address that a neighbour was heard to use.
    Accepted,
    /// An ADD declined more than ten addresses.
    Declines,
    /// Addresses of a LAN were declined in a row, too soon after each other (RFC 5227 §2.1.1).
    Pace,
    /// ADDs are held back on a LAN where one client alone meets conflicts.
    HeldUp,
    /// An address was declined without cause.
    Declined,
    /// The name servers that the host's programs read are not those of the leases.
    Published,
    /// A container's interface does not carry what its lease says, or more.
    Interface,
    /// An address is reported as taken off by somebody, and nobody took it off.
    Removed,
    /// The core keeps something after it is over.
    Kept,
    /// A live attachment's lease is gone, at the server or at the daemon.
    LeaseLost,
    /// An attachment that is gone still holds a lease.
    Orphan,
    /// The server was not told in time that a lease came back.
    NotReleased,
    /// A call failed though nothing was wrong.
    Failed,
    /// An event reports a lease that the store does not have.
    EventAhead,
    /// A Docker endpoint was told an address that its network does not have, or has reserved.
    Unfit,
    /// A link that was made for Docker is there without its endpoint, or is missing.
    Wired,
    /// Something is left when all is gone.
    Residue,
    /// Callers never finish.
    Unsettled,
}

/// A broken rule.
#[derive(Clone, Debug)]
pub(crate) struct Breach {
    /// Which.
    pub(crate) rule: Rule,
    /// How.
    pub(crate) detail: String,
}

/// Who was told a lease and still has it.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    /// The LAN.
    pub(crate) lan: usize,
    /// The client identifier.
    pub(crate) client_id: ClientId,
    /// Its link's Ethernet address.
    pub(crate) mac: Mac,
    /// The address.
    pub(crate) address: Ipv4Addr,
    /// The server that granted it.
    pub(crate) server: Ipv4Addr,
}

/// A request that was handed to the core.
#[derive(Debug)]
struct Asked {
    call: Call,
    /// When its answer is due.
    due: u64,
    /// Whether a DEL has overtaken this ADD: it cannot succeed any more.
    overtaken: bool,
}

/// An effect that reports back.
#[derive(Debug)]
enum Under {
    Persist(Vec<BindingId>),
    Open(ExchangeId, Link, Sockets),
    Recalled,
    Inspect,
    Apply(Target),
    Send(ExchangeId),
    Close,
}

impl Under {
    fn recall(&mut self, exchange: ExchangeId) {
        if matches!(self, Self::Open(id, ..) if *id == exchange) {
            *self = Self::Recalled;
        }
    }
}

/// What the world remembers in order to judge the daemon. Everything but `holders` is about one run of it.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    asked: BTreeMap<RequestId, Asked>,
    gone: BTreeSet<RequestId>,
    /// Clients of containers that are being adopted, and until when.
    adopting: BTreeMap<Vec<u8>, u64>,
    under_way: BTreeMap<OpId, Under>,
    /// Exchanges, and whether they are known to be open.
    exchanges: BTreeMap<ExchangeId, bool>,
    /// After a start: no frame from these before that time.
    silent: BTreeMap<Mac, u64>,
    /// Who holds what. It outlives the daemon.
    pub(crate) holders: BTreeMap<Attachment, Holder>,
}

/// How soon a DEL or CHECK is answered, in microseconds: this includes the shell's own limits, but not endless failures.
const PATIENCE: u64 = 30_000_000;
/// How late a timer may be.
const SLACK: u64 = 50_000;

impl Watch {
    /// Forgets what the daemon knew: it ended.
    pub(crate) fn daemon_ended(&mut self) {
        let holders = std::mem::take(&mut self.holders);
        *self = Self { holders, ..Self::default() };
    }

    /// Demands silence of an Ethernet address until a time, the earliest if several clients have it.
    pub(crate) fn hush(&mut self, mac: Mac, until: u64) {
        self.silent.entry(mac).and_modify(|before| *before = until.min(*before)).or_insert(until);
    }

    /// Ends that demand for all.
    pub(crate) fn unhush_all(&mut self) {
        self.silent.clear();
    }

    /// Ends that demand: there is a cause to send.
    pub(crate) fn unhush(&mut self, mac: Mac) {
        self.silent.remove(&mac);
    }

    /// Records a request that is handed to the core.
    pub(crate) fn request(&mut self, now: u64, id: RequestId, call: &Call) {
        let limit = match call {
            Call::Add(add) => add.timeout.as_micros() as u64 + SLACK,
            // The store and the kernel come after the lease.
            Call::Network(_) if add_of(call).is_some() => {
                add_of(call).map_or(0, |add| add.timeout.as_micros() as u64) + PATIENCE
            }
            Call::Del { .. } | Call::Check { .. } | Call::Collect { .. } | Call::Status { .. } => PATIENCE,
            Call::RequestPool(_) | Call::Reserve { .. } | Call::ReleaseAddress { .. } | Call::Network(_) => PATIENCE,
            Call::List | Call::ReleasePool { .. } => SLACK,
        };
        if let Call::Del { attachment, .. } = call {
            self.holders.remove(attachment);
            let adds = |asked: &&mut Asked| matches!(&asked.call, Call::Add(add) if add.attachment == *attachment);
            self.asked.values_mut().filter(adds).for_each(|asked| asked.overtaken = true);
        }
        if let Call::Collect { network, keep } = call {
            let stale = |attachment: &Attachment| is_collected(attachment, network, keep);
            self.holders.retain(|attachment, _| !stale(attachment));
            let adds = |asked: &&mut Asked| matches!(&asked.call, Call::Add(add) if stale(&add.attachment));
            self.asked.values_mut().filter(adds).for_each(|asked| asked.overtaken = true);
        }
        if let Call::Network(NetworkCall::DeleteEndpoint(endpoint)) = call {
            let is_it = |asked: &&mut Asked| matches!(created(&asked.call), Some(request) if request.id == *endpoint);
            self.asked.values_mut().filter(is_it).for_each(|asked| asked.overtaken = true);
        }
        self.asked.insert(id, Asked { call: call.clone(), due: now + limit, overtaken: false });
    }

    /// Handles a suspend of the host: what was due meanwhile is due that much later.
    pub(crate) fn resumed(&mut self, asleep: u64) {
        self.asked.values_mut().for_each(|asked| asked.due += asleep);
    }

    /// Records a hang-up that is handed to the core; returns whether its request was still open.
    pub(crate) fn hung_up(&mut self, id: RequestId) -> bool {
        self.gone.insert(id);
        let asked = self.asked.remove(&id);
        self.over(asked.as_ref());
        asked.is_some()
    }

    /// Ends an ADD: what is still being done to its link belongs to nobody, and another ADD may begin.
    fn over(&mut self, asked: Option<&Asked>) {
        let Some(Asked { call: Call::Add(add), .. }) = asked else { return };
        for under in self.under_way.values_mut() {
            if matches!(under, Under::Apply(Target::Named(at)) if Some(&*at.netns) == add.place.netns()) {
                *under = Under::Recalled;
            }
        }
    }

    /// Records an outcome that is handed to the core.
    pub(crate) fn done(&mut self, op: OpId, outcome: &Outcome, exchange: Option<ExchangeId>) {
        self.under_way.remove(&op);
        if let (Outcome::Opened(Ok(())), Some(exchange)) = (outcome, exchange) {
            self.exchanges.entry(exchange).and_modify(|open| *open = true);
        }
        if let (Outcome::Prepared { .. }, Some(exchange)) = (outcome, exchange) {
            self.exchanges.insert(exchange, true);
        }
    }

    /// Returns whether the core believes an exchange to be open.
    pub(crate) fn is_open(&self, exchange: ExchangeId) -> bool {
        self.exchanges.get(&exchange) == Some(&true)
    }

    /// Returns how many exchanges the core has not closed.
    pub(crate) fn open_exchanges(&self) -> usize {
        self.exchanges.len()
    }

    /// Returns how many effects have not reported back.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Records that the daemon adopts a container, which counts as a call until then.
    pub(crate) fn adopts(&mut self, client: &ClientId, until: u64) {
        self.adopting.insert(client.as_bytes().to_vec(), until);
    }

    /// Returns whether somebody waits for a client's lease.
    pub(crate) fn waits_for(&self, now: u64, client: &ClientKey) -> bool {
        let ClientKey::Id(id) = client else { return false };
        let is_it = |add: &Add| add.client_id.resolve(Mac::default()).as_bytes() == id;
        self.asked.values().any(|asked| add_of(&asked.call).is_some_and(is_it))
            || self.adopting.get(id).is_some_and(|until| now < *until)
    }

    /// Returns whether a call is waiting for its answer.
    pub(crate) fn is_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Finds a request that should have been answered.
    pub(crate) fn overdue(&self, now: u64) -> Option<Breach> {
        let (id, asked) = self.asked.iter().find(|(_, asked)| now > asked.due)?;
        Some(breach(Rule::Unanswered, format!("{id:?}: {:?}", asked.call)))
    }

    /// Judges an effect at the moment that the core emits it. `lan` is where a frame would go.
    pub(crate) fn effect(&mut self, now: u64, effect: &Effect, store: &Store, lan: Option<usize>) -> Option<Breach> {
        match effect {
            Effect::Persist { op, changes } => {
                let puts = changes.iter().filter_map(|change| match change {
                    Change::Put(id, _) => Some(*id),
                    // Removing twice is fine: the new holder of an attachment also removes its old one's record.
                    Change::Remove(_) | Change::Note(_) | Change::PutDocker(_) | Change::RemoveDocker(_) => None,
                });
                self.begin(*op, Under::Persist(puts.collect()))
            }
            Effect::Open { op, exchange, link, want } => {
                self.exchanges.insert(*exchange, false);
                self.begin(*op, Under::Open(*exchange, link.clone(), *want))
            }
            Effect::Inspect { op, .. }
            | Effect::Survey { op, .. }
            | Effect::Seek { op, .. }
            | Effect::Make { op, .. }
            | Effect::Unmake { op, .. }
            | Effect::ListOwn { op } => self.begin(*op, Under::Inspect),
            Effect::Apply { op, target, .. } => self.begin(*op, Under::Apply(target.clone())),
            Effect::Prepare { op, place, .. } => match place {
                Place::InNetns(at) => self.begin(*op, Under::Apply(Target::Named(at.clone()))),
                Place::Parent { .. } => self.begin(*op, Under::Inspect),
            },
            Effect::Send { op, exchange, frame, .. } => {
                let found = self.send(now, *exchange, frame, lan);
                found.or(op.and_then(|op| self.begin(op, Under::Send(*exchange))))
            }
            Effect::Hear { exchange, .. } => {
                let open = self.exchanges.get(exchange).is_some_and(|open| *open);
                (!open).then(|| breach(Rule::SendUnopened, format!("Hear on {exchange:?}, which is not open")))
            }
            Effect::Close { op, exchange } => {
                let known = self.exchanges.remove(exchange).is_some();
                // A Close recalls an Open that is under way, and nobody may hear of frames that were still to be sent.
                self.under_way.retain(|_, under| !matches!(under, Under::Send(id) if id == exchange));
                self.under_way.values_mut().for_each(|under| under.recall(*exchange));
                let found = op.and_then(|op| self.begin(op, Under::Close));
                found
                    .or((!known).then(|| breach(Rule::SendUnopened, format!("Close of {exchange:?}, which is closed"))))
            }
            Effect::Reply { id, answer } => self.reply(*id, answer, store),
            Effect::Publish { .. } => None,
        }
    }

    fn begin(&mut self, op: OpId, new: Under) -> Option<Breach> {
        let clash = self.under_way.values().find_map(|old| match (old, &new) {
            (Under::Persist(a), Under::Persist(b)) => a.iter().any(|id| b.contains(id)).then_some(EffectKind::Persist),
            // Two bindings can share the host's link, even with one Ethernet address. Conflict detection has its own sockets
            // besides those for DHCP.
            (Under::Open(_, a, x), Under::Open(_, b, y)) => {
                let same = a == b && a.in_netns().is_some() && !is_window(x) && !is_window(y);
                same.then_some(EffectKind::Open)
            }
            (Under::Apply(a), Under::Apply(b)) => (a == b).then_some(EffectKind::Apply),
            _ => None,
        });
        let found = clash.map(|kind| breach(Rule::Two(kind), format!("{new:?}")));
        match self.under_way.insert(op, new) {
            None => found,
            Some(_) => Some(breach(Rule::Answers, format!("{op:?} is used again"))),
        }
    }

    fn send(&mut self, now: u64, exchange: ExchangeId, frame: &[u8], lan: Option<usize>) -> Option<Breach> {
        if !self.is_open(exchange) {
            return Some(breach(Rule::SendUnopened, format!("Send on {exchange:?}")));
        }
        let source = Mac(frame.get(6..12)?.try_into().ok()?);
        if self.silent.get(&source).is_some_and(|until| now < *until) {
            return Some(breach(Rule::Chatty, format!("a frame from {source} on {exchange:?} after a restart")));
        }
        let message = message_of(frame)?;
        if matches!(message.kind(), Some(Kind::Discover | Kind::Decline)) {
            // A client that looks for a lease has none: it was lost. The same goes for what its holder declines.
            let own = |holder: &Holder| {
                Some(holder.lan) == lan && holder.mac == source && key_of(&holder.client_id) == message.key()
            };
            self.holders.retain(|_, holder| !own(holder));
        }
        let client = message.key();
        let server = message.address(code::SERVER)?;
        // A DECLINE is about its client's own lease, at the server that it names; a server that knows clients by chaddr takes it
        // for the holder's.
        let ends = |holder: &Holder| match message.kind() {
            Some(Kind::Release) => holder.address == message.ciaddr,
            Some(Kind::Decline) => {
                let others = key_of(&holder.client_id) != client && (holder.server == server || holder.mac == source);
                others && message.address(code::REQUESTED) == Some(holder.address)
            }
            _ => false,
        };
        let (attachment, holder) = self.holders.iter().find(|(_, h)| Some(h.lan) == lan && ends(h))?;
        let rule = match message.kind() {
            Some(Kind::Decline) => Rule::DeclineUnderHolder,
            _ => Rule::ReleaseUnderHolder,
        };
        Some(breach(rule, format!("of {}, which {attachment} holds", holder.address)))
    }

    fn reply(&mut self, id: RequestId, answer: &Answer, store: &Store) -> Option<Breach> {
        let Some(asked) = self.asked.remove(&id) else {
            let rule = if self.gone.contains(&id) { Rule::AnswerToNobody } else { Rule::Answers };
            return Some(breach(rule, format!("{id:?}: {answer:?}")));
        };
        self.over(Some(&asked));
        match (&asked.call, answer) {
            (Call::Add(add), Answer::Leased { .. }) if asked.overtaken => {
                Some(breach(Rule::DelOvertaken, format!("{} was leased after its DEL", add.attachment)))
            }
            (Call::Add(add), Answer::Leased { tenures }) => {
                let durable = store.known().any(|record| {
                    let bound = record.attachment == add.attachment && record.state == RecordState::Bound;
                    // Times are not in the answer: an extension may wait for the store.
                    bound && tenures.iter().all(|told| is_of(record, add, told))
                });
                (!durable).then(|| breach(Rule::NotDurable, format!("{}: {tenures:?}", add.attachment)))
            }
            (Call::Network(NetworkCall::CreateEndpoint(request)), Answer::Network(NetworkAnswer::Endpoint(record))) => {
                let key = DockerKey::Endpoint(request.id.clone());
                let durable =
                    matches!(store.docker.get(&key), Some(DockerRecord::Endpoint(there)) if *there == **record);
                match () {
                    () if asked.overtaken => {
                        Some(breach(Rule::DelOvertaken, format!("{} is there after its end", request.id)))
                    }
                    () => (!durable).then(|| breach(Rule::NotDurable, format!("{record:?}"))),
                }
            }
            (Call::Network(NetworkCall::Create(_) | NetworkCall::Delete(_)), Answer::Network(NetworkAnswer::Done))
            | (Call::Network(NetworkCall::DeleteEndpoint(_)), Answer::Network(NetworkAnswer::Done))
            | (Call::Network(NetworkCall::Join { .. }), Answer::Network(NetworkAnswer::Joined { .. }))
            | (Call::Del { .. }, Answer::Deleted)
            | (Call::Check { .. }, Answer::Checked)
            | (Call::Collect { .. }, Answer::Collected)
            | (Call::Status { .. }, Answer::Ready)
            | (Call::List, Answer::Bindings { .. })
            | (Call::RequestPool(_), Answer::Pool { .. })
            | (Call::ReleasePool { .. }, Answer::PoolReleased)
            | (Call::Reserve { .. }, Answer::Reserved(_))
            | (Call::ReleaseAddress { .. }, Answer::Released)
            | (_, Answer::Failed(_)) => None,
            (call, answer) => Some(breach(Rule::WrongAnswer, format!("{call:?}: {answer:?}"))),
        }
    }
}

/// Returns whether a record is what the caller of an ADD was told.
pub(crate) fn is_of(record: &Record, add: &Add, told: &Tenure) -> bool {
    record.lease.tenure(&add.profile.policy).told().grants_the_same(told)
}

/// Returns whether sockets may be a conflict window's, which come in addition to others. Those of a RELEASE look the same, and
/// so do those of a renewal whose address is not on the interface.
fn is_window(want: &Sockets) -> bool {
    matches!(want.arp, Hears::About(_)) && want.hold_port.is_none()
}

/// Returns a breach of a rule.
pub(crate) fn breach(rule: Rule, detail: impl Into<String>) -> Breach {
    Breach { rule, detail: detail.into() }
}
