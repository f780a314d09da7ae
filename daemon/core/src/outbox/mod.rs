//! What the core wants done: the effects, and who hears their outcomes.

mod exchange;
mod journal;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

pub(crate) use self::exchange::Exchange;
pub(crate) use self::journal::Stake;
use self::journal::{DueNotes, Journal};
use crate::counts::Counts;
use crate::effect::{Answer, Effect, ExchangeId, Failure, OpId, RequestId, StoreCause};
use crate::event::Event;
use crate::identity::{Attachment, DoorId, Lan};
use crate::lan::Said;
use crate::link::own::{LinkOwner, OwnLink};
use crate::link::{Cookie, Hears, Link, Place, Sockets, Sought, Step, Target};
use crate::range::Fallback;
use crate::record::{BindingId, Change};
use crate::source::Lease;
use crate::wire::Mac;

/// Who hears an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// A binding.
    Binding(BindingId, Task),
    /// The operation under way for an attachment.
    Operation(Attachment),
    /// The audit of an interface: is it still there, and what is on it?
    Audit((Cookie, u32)),
    /// A call's job.
    Call(RequestId),
    /// A search for an interface with this Ethernet address; `None`: for all wanted ones.
    Seek(Option<Mac>),
    /// A door above the registry.
    Above(DoorWaiter),
    /// The journal of events, or a record that is deleted.
    Journal,
}

/// Who above the registry hears an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DoorWaiter {
    /// A call's job.
    Call(RequestId),
    /// An endpoint.
    Endpoint(DoorId),
    /// The list of the links that the daemon made.
    OwnLinks,
    /// Nobody. A link that stays is looked for again.
    Nobody,
}

/// Who owns an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A binding.
    Binding(BindingId),
    /// A call's job in a door above the registry.
    Above(RequestId),
}

impl Owner {
    /// Returns who hears an outcome on its behalf. `task`: what a binding waits for.
    fn waiter(self, task: Task) -> Waiter {
        match self {
            Self::Binding(id) => Waiter::Binding(id, task),
            Self::Above(id) => Waiter::Above(DoorWaiter::Call(id)),
        }
    }
}

/// What a binding waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// The sockets of this exchange.
    Open(ExchangeId),
    /// Its record.
    Persist,
    /// Its interface.
    Work,
    /// The reasons why no server answers.
    Survey,
    /// The links of its namespace, because one of them may be who claims its address.
    ListInside,
    /// Its address on its interface, for a RELEASE from there.
    FindAddress,
    /// The host's link, for an exchange over it.
    FindLine,
    /// Whether the link accepts a RELEASE.
    Release,
    /// The end of this exchange, and of the link that was made for it.
    Close(ExchangeId),
}

/// What a binding reports to the registry.
#[derive(Debug)]
pub(crate) enum Report {
    /// An exchange that no caller waits for wants a permit, or, if it has a lease extended or confirmed, a turn.
    WantsPermit,
    /// The exchange is over: its permit or turn is free.
    ExchangeOver,
    /// A RELEASE wants its turn on its LAN.
    WantsTurn,
    /// An acquisition accepts no address but this one, which is kept for another.
    Insists(Ipv4Addr),
    /// No server has answered an acquisition for long enough: it wishes for an address of these ranges.
    FallsBack {
        /// The ranges.
        fallback: Box<Fallback>,
        /// The addresses that others were found to use.
        used: BTreeSet<Ipv4Addr>,
        /// The last address of its identity, if the ranges have it.
        last: Option<IpAddr>,
    },
    /// A believed server said this.
    Heard(Said),
    /// This other binding must extend its lease now: its server has forgotten the lease.
    WantsRenewed(BindingId),
    /// The lease is durable; that write deleted the records of these others.
    Replaced(Vec<BindingId>),
    /// The ADD may be answered with this lease. The binding is held.
    Leased(Box<Lease>),
    /// A server refused this address to the identity that these other bindings have too, or was told that the address is free: no
    /// successor uses their lease unconfirmed.
    Spoiled(Ipv4Addr, Vec<BindingId>),
    /// The acquisition failed. The binding is over.
    Failed(Failure),
    /// The binding is being released; a DEL that waits may be answered.
    GivenBack,
    /// The store refused to record that the lease is being given back. The binding keeps trying, but a DEL need not wait for that.
    NotGivenBack(StoreCause),
    /// The link of a held binding must be looked at: whether it is gone, or what is on it.
    WantsLook,
    /// The interface no longer carries anything of the lease, which is about to be given back.
    Vacated,
    /// The link of a held binding is gone: an event if no DEL follows.
    Orphaned(Box<Event>),
    /// Nothing is left of the binding.
    Over,
}

/// The queue of effects, and the ids of those that are under way.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    effects: VecDeque<Effect>,
    pub(crate) reports: VecDeque<(BindingId, Report)>,
    ops: BTreeMap<OpId, Waiter>,
    exchanges: BTreeMap<ExchangeId, Owner>,
    /// The exchanges over temporary links with a container's Ethernet address, until these links are gone, and their
    /// owners.
    aside: BTreeMap<ExchangeId, BindingId>,
    last_op: u64,
    last_exchange: u64,
    pub(crate) counts: Counts,
    /// Attachments whose name servers may have changed during the current input.
    pub(crate) resolvers: BTreeSet<Arc<Attachment>>,
    journal: Journal,
    /// The transactions of the current input: whose, and where in the queue. Nothing leaves the queue meanwhile.
    writes: Vec<(BindingId, usize)>,
}

/// How many effects the queue keeps room for. Only a start has ten thousand at once.
const ROOM: usize = 256;

impl Outbox {
    pub(crate) fn pop(&mut self) -> Option<Effect> {
        let effect = self.effects.pop_front();
        if self.effects.is_empty() && self.effects.capacity() > ROOM {
            self.effects.shrink_to(ROOM);
        }
        effect
    }

    /// Takes out who waits for an outcome; `None` for an id that is no longer known.
    pub(crate) fn take(&mut self, op: OpId) -> Option<Waiter> {
        let waiter = self.ops.remove(&op);
        if let Some(Waiter::Binding(_, Task::Close(exchange))) = &waiter {
            self.aside.remove(exchange);
        }
        waiter
    }

    pub(crate) fn forget(&mut self, op: OpId) {
        self.ops.remove(&op);
    }

    /// Makes the core ignore the outcomes of effects, by who waits for them.
    pub(crate) fn forget_all(&mut self, is_one: impl Fn(&Waiter) -> bool) {
        self.ops.retain(|_, waiter| !is_one(waiter));
    }

    pub(crate) fn exchange(&self, exchange: ExchangeId) -> Option<Owner> {
        self.exchanges.get(&exchange).copied()
    }

    /// Returns the call of a door above the registry that has these sockets.
    pub(crate) fn above(&self, exchange: ExchangeId) -> Option<RequestId> {
        match self.exchange(exchange)? {
            Owner::Above(id) => Some(id),
            Owner::Binding(_) => None,
        }
    }

    pub(crate) fn persist(&mut self, owner: BindingId, changes: Vec<Change>) -> OpId {
        self.writes.push((owner, self.effects.len()));
        self.write_for(Waiter::Binding(owner, Task::Persist), changes)
    }

    /// Writes what belongs to no binding. If that fails, the store holds the old value at the next start.
    pub(crate) fn write_alone(&mut self, change: Change) {
        self.write_for(Waiter::Journal, vec![change]);
    }

    /// Writes changes that somebody waits for; none, to check whether the store can write.
    pub(crate) fn write_for(&mut self, waiter: Waiter, changes: Vec<Change>) -> OpId {
        self.ask(waiter, |op| Effect::Persist { op, changes })
    }

    /// Notes an event without a write of its binding.
    pub(crate) fn note_alone(&mut self, binding: BindingId, event: Event) {
        self.note(binding, event, Stake::Nothing);
    }

    /// Notes an event about a binding, for the store's journal: see [`Outbox::write_notes`].
    pub(crate) fn note(&mut self, binding: BindingId, event: Event, stake: Stake) {
        self.counts.event(event.kind);
        self.journal.note(binding, event, stake);
    }

    /// Adds the events of the current input to its transactions: each to its own binding's, else to the first; if there is none,
    /// they get one of their own. An event about a record that must still be written waits for that.
    pub(crate) fn write_notes(&mut self, record_is_due: impl Fn(BindingId) -> bool) {
        let writes = std::mem::take(&mut self.writes);
        if self.journal.is_empty() {
            return;
        }
        let mut ready = self.journal.ready(record_is_due);
        for binding in ready.bindings() {
            let own = writes.iter().find(|(owner, _)| *owner == binding);
            let own = own.and_then(|(_, at)| self.effects.get_mut(*at));
            if let Some(Effect::Persist { op, changes }) = own {
                let notes = ready.of(binding, changes);
                self.journal.ride(*op, notes, changes);
            }
        }
        let ready = ready.without_stake();
        if ready.is_empty() {
            return;
        }
        if let Some((_, at)) = writes.first() {
            self.ride(*at, ready);
        } else if self.journal.wants_own(&ready) {
            let op = self.write_for(Waiter::Journal, Vec::new());
            self.journal.began_own(op);
            self.ride(self.effects.len() - 1, ready);
        } else {
            self.journal.put_back(ready);
        }
    }

    fn ride(&mut self, at: usize, notes: DueNotes) {
        if let Some(Effect::Persist { op, changes }) = self.effects.get_mut(at) {
            self.journal.ride(*op, notes, changes);
        }
    }

    pub(crate) fn written(&mut self, op: OpId, done: bool) {
        self.journal.over(op, done);
    }

    /// Returns how many events were dropped because the store did not accept them.
    pub(crate) fn events_dropped(&self) -> u64 {
        self.journal.dropped()
    }

    /// Opens sockets for an owner that closes them.
    pub(crate) fn open(&mut self, owner: Owner, link: Link, want: Sockets) -> (OpId, ExchangeId) {
        self.last_exchange += 1;
        let exchange = ExchangeId(self.last_exchange);
        let waiter = owner.waiter(Task::Open(exchange));
        self.exchanges.insert(exchange, owner);
        let op = self.ask(waiter, |op| Effect::Open {
            op,
            exchange,
            link,
            want,
        });
        (op, exchange)
    }

    /// Makes an ADD's link ready, and opens sockets there, which have no owner yet.
    pub(crate) fn prepare(
        &mut self,
        attachment: Attachment,
        place: Place,
        lan: Lan,
        chaddr: Option<Mac>,
    ) -> OpId {
        self.last_exchange += 1;
        let exchange = ExchangeId(self.last_exchange);
        let waiter = Waiter::Operation(attachment);
        self.ask(waiter, |op| Effect::Prepare {
            op,
            place,
            lan,
            exchange,
            chaddr,
        })
    }

    /// Gives a binding open sockets that have no owner.
    pub(crate) fn give(&mut self, exchange: ExchangeId, owner: BindingId) {
        self.exchanges.insert(exchange, Owner::Binding(owner));
    }

    /// Asks for a report when an exchange is closed: its temporary link has the Ethernet address of an interface that is
    /// about to appear.
    pub(crate) fn goes_aside(&mut self, owner: BindingId, exchange: ExchangeId) {
        self.aside.insert(exchange, owner);
    }

    /// Returns whether a binding has such an exchange, or had one whose link is not gone yet.
    pub(crate) fn is_aside(&self, owner: BindingId) -> bool {
        self.aside.values().any(|other| *other == owner)
    }

    pub(crate) fn close(&mut self, exchange: ExchangeId) {
        self.exchanges.remove(&exchange);
        let owner = self.aside.get(&exchange).copied();
        let op = owner.map(|owner| self.mint(Waiter::Binding(owner, Task::Close(exchange))));
        self.effects.push_back(Effect::Close { op, exchange });
    }

    pub(crate) fn hear(&mut self, exchange: ExchangeId, arp: Hears) {
        self.effects.push_back(Effect::Hear { exchange, arp });
    }

    /// Sends a frame, over a link of the host if one is named.
    pub(crate) fn send_over(&mut self, exchange: ExchangeId, frame: Vec<u8>, over: Option<u32>) {
        self.effects.push_back(Effect::Send {
            op: None,
            exchange,
            frame,
            over,
        });
    }

    /// Sends a RELEASE, and reports whether the link accepted it.
    pub(crate) fn send_release(
        &mut self,
        owner: BindingId,
        exchange: ExchangeId,
        frame: Vec<u8>,
    ) -> OpId {
        let waiter = Waiter::Binding(owner, Task::Release);
        self.ask(waiter, |op| Effect::Send {
            op: Some(op),
            exchange,
            frame,
            over: None,
        })
    }

    pub(crate) fn inspect(&mut self, waiter: Waiter, target: Target) -> OpId {
        self.inspect_with(waiter, target, false)
    }

    /// Looks at a link, and with `routes` at the routes over it too.
    pub(crate) fn inspect_with(&mut self, waiter: Waiter, target: Target, routes: bool) -> OpId {
        self.ask(waiter, |op| Effect::Inspect { op, target, routes })
    }

    pub(crate) fn seek(&mut self, by: Option<Mac>, sought: Vec<Sought>, number: Option<i32>) {
        self.ask(Waiter::Seek(by), |op| Effect::Seek { op, sought, number });
    }

    pub(crate) fn make(&mut self, waiter: DoorWaiter, link: OwnLink) -> OpId {
        let link = Box::new(link);
        self.ask(Waiter::Above(waiter), |op| Effect::Make { op, link })
    }

    pub(crate) fn unmake(&mut self, waiter: DoorWaiter, owner: LinkOwner) -> OpId {
        self.ask(Waiter::Above(waiter), |op| Effect::Unmake { op, owner })
    }

    pub(crate) fn list_own(&mut self) {
        let waiter = Waiter::Above(DoorWaiter::OwnLinks);
        self.ask(waiter, |op| Effect::ListOwn { op });
    }

    pub(crate) fn survey(&mut self, waiter: Waiter, link: Link, lan: &Lan, counts: bool) -> OpId {
        let lan_parent = lan.parent().map(str::to_owned);
        self.ask(waiter, |op| Effect::Survey {
            op,
            link,
            lan_parent,
            counts,
        })
    }

    pub(crate) fn list_inside(&mut self, owner: BindingId, link: Link) {
        let waiter = Waiter::Binding(owner, Task::ListInside);
        self.ask(waiter, |op| Effect::ListInside { op, link });
    }

    pub(crate) fn apply(&mut self, waiter: Waiter, target: Target, steps: Vec<Step>) -> OpId {
        self.ask(waiter, |op| Effect::Apply { op, target, steps })
    }

    pub(crate) fn reply(&mut self, id: RequestId, answer: Answer) {
        self.effects.push_back(Effect::Reply { id, answer });
    }

    pub(crate) fn report(&mut self, binding: BindingId, report: Report) {
        self.reports.push_back((binding, report));
    }

    /// Queues an effect whose outcome somebody waits for.
    fn ask(&mut self, waiter: Waiter, effect: impl FnOnce(OpId) -> Effect) -> OpId {
        let op = self.mint(waiter);
        self.effects.push_back(effect(op));
        op
    }

    fn mint(&mut self, waiter: Waiter) -> OpId {
        self.last_op += 1;
        let op = OpId(self.last_op);
        self.ops.insert(op, waiter);
        op
    }
}
