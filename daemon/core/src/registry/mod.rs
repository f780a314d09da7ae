//! The registry: the calls about attachments, and what concerns more than one binding.
//!
//! It takes inputs, passes them on to the binding or call that they are about, and hands effects out. It keeps one operation per
//! attachment, one live holder per identity and address, permits and turns per LAN.
//!
//! * Below: `tables` has the bindings (`index`) and what they work with and share: deadlines (`timers`), profiles (`profiles`),
//!   effects, LANs, interfaces.
//! * Parts that know only the tables, each with data of its own: `pacing` gives permits and turns, `seek` finds interfaces that
//!   nobody names, `watch` looks at interfaces, `fallback` gives an address of a local range if servers are silent, `servers`
//!   notices which of them fall silent.
//! * Calls: `jobs` has those that are not answered yet, with one file per kind. `calls` gives those about an attachment their turn
//!   (`slots`, `operation`), and has DEL. An ADD is an `admission` until it is past its `rivals`; `add` goes on to its binding;
//!   `adopt` has the containers that already ran. `check` is a CHECK.
//! * A door above the registry sees leases through `port`, gives one back by its address, and hears what concerns it through a
//!   `notice`.
//! * Operators: `orders` says which leases are meant, `troubles` says what is wrong, `holdings` counts what is held.
//! * The rest: `recover` starts with records, `past` has the last addresses of identities, `clocks` notices that the wall clock was
//!   set, `orphans` waits for a DEL.

mod add;
mod admission;
mod adopt;
mod calls;
mod check;
mod clocks;
mod fallback;
mod holdings;
mod index;
mod jobs;
mod notice;
mod operation;
mod orders;
mod orphans;
mod pacing;
mod past;
mod port;
mod profiles;
mod recover;
mod rivals;
mod seek;
mod servers;
mod slots;
mod tables;
#[cfg(test)]
mod tests;
mod timers;
mod troubles;
mod watch;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use self::adopt::Adoptions;
use self::clocks::Clocks;
use self::fallback::Fallbacks;
pub use self::holdings::{Holdings, Kind, OTHER_NETWORKS};
pub(crate) use self::jobs::leave;
use self::jobs::{Jobs, Leavings, Renewal, left_inside};
pub(crate) use self::notice::Notice;
use self::orders::chosen;
use self::orphans::Orphans;
use self::pacing::Turns;
use self::past::{LastAddress, Past};
pub(crate) use self::port::{asking_in, bindings, held_by, held_in, leaving_in, limit};
pub(crate) use self::recover::{look_around, recover};
use self::seek::Seeking;
use self::servers::{notice_silence, server_said};
use self::slots::Slots;
use self::tables::Tables;
pub(crate) use self::timers::{DoorTimer, Key};
pub(crate) use self::troubles::{parents, troubles};
use self::watch::Audit;
pub(crate) use crate::binding::Binding;
use crate::binding::{Hold, Release};
use crate::effect::{Answer, Effect, ExchangeId, FrameMeta, OpId, Outcome, Which, Why};
use crate::event::Event;
use crate::identity::{Attachment, IdentityKey};
use crate::interface::{At, News};
use crate::link::{Cookie, KernelMessage, LinkCause};
use crate::outbox::{Owner, Report, Waiter};
use crate::pool::PoolRecord;
use crate::record::{BindingId, Change};
use crate::time::Now;
use crate::wire::{Mac, frame};

/// What may differ from one daemon to another.
#[derive(Clone, Debug)]
pub struct Config {
    /// How many acquisitions on one LAN talk to its servers at once: enough that a server that takes seconds to answer
    /// (dnsmasq pings before it offers) serves many in time, and few enough that one that works on an answer for 30 ms has
    /// answered each before the first retransmission, a second later.
    pub permits: usize,
    /// How many interfaces are looked at at once, at the start and after lost kernel messages. A change that a restart cut
    /// short goes on after that.
    pub audits: usize,
    /// How long a lease from before a reboot waits for its container before it is given back, from the daemon's start.
    pub reboot_grace: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            permits: 32,
            audits: 8,
            reboot_grace: Duration::from_secs(600),
        }
    }
}

/// All bindings, and what is known about their surroundings.
#[derive(Debug)]
pub(crate) struct Registry {
    config: Config,
    pub(crate) tables: Tables,
    clocks: Clocks,
    slots: Slots,
    jobs: Jobs,
    adoptions: Adoptions,
    turns: Turns,
    leavings: Leavings,
    past: Past,
    orphans: Orphans,
    fallbacks: Fallbacks,
    audit: Audit,
    pub(crate) seeking: Seeking,
    /// Sockets that were opened when the link of this attachment's ADD was looked at. The ADD goes on over them during the current input,
    /// or they are closed.
    spare: Option<(ExchangeId, Attachment)>,
    /// What must still be said to the doors above.
    pub(crate) notices: VecDeque<Notice>,
}

impl Registry {
    /// Returns an empty registry. All its randomness comes from `seed`.
    pub(crate) fn new(config: Config, seed: u64) -> Self {
        Self {
            turns: Turns::new(config.permits),
            audit: Audit::new(config.audits),
            config,
            tables: Tables::new(seed),
            clocks: Clocks::default(),
            slots: Slots::default(),
            jobs: Jobs::default(),
            adoptions: Adoptions::default(),
            leavings: Leavings::default(),
            past: Past::default(),
            orphans: Orphans::default(),
            fallbacks: Fallbacks::default(),
            seeking: Seeking::default(),
            spare: None,
            notices: VecDeque::new(),
        }
    }

    /// Compares both clocks with their last reading.
    pub(crate) fn read_clocks(&mut self, now: Now) {
        self.tables.now = now;
        let Some(may_be_late) = self.clocks.read(now) else {
            return;
        };
        let bindings = self.tables.bindings.iter();
        for id in bindings.map(|binding| binding.id).collect::<Vec<_>>() {
            self.tables
                .with(id, |life, cx| life.on_wall_set(may_be_late, cx));
        }
    }

    /// Goes on with somebody whose deadline has come.
    pub(crate) fn on_clock(&mut self, key: Key) {
        match key {
            Key::Binding(id) => self.tables.with(id, |life, cx| life.on_clock(cx)),
            Key::Call(id) => self.call_timed_out(id),
            Key::Audit(at) => self.audit.look_again(&mut self.tables, at),
            Key::Adoption => self.adopt_again(),
            Key::Look => self.look_on_clock(),
            Key::Orphans => {}
            Key::Seek => self.seeking.on_clock(&mut self.tables),
            Key::Extensions => self.turns.extend_next(&mut self.tables),
            Key::Above(timer) => self.notices.push_back(Notice::Due(timer)),
        }
    }

    pub(crate) fn poll_effect(&mut self) -> Option<Effect> {
        self.tables.out.pop().or_else(|| self.publish())
    }

    /// Returns how many containers a daemon that started now would have to adopt: those not adopted yet, and those whose
    /// lease has no record.
    pub(crate) fn adopting(&self) -> usize {
        let bindings = self.tables.bindings.iter();
        self.adoptions.len() + bindings.filter(|binding| binding.is_unwritten()).count()
    }

    /// Returns all leases, and what else an operator should know, with what the doors above know.
    pub(crate) fn list(&self, pools: Vec<PoolRecord>, strangers: Vec<String>) -> Answer {
        let chosen = chosen(self, &Which::default()).into_iter();
        Answer::Bindings {
            rows: chosen.map(|(_, row)| row).collect(),
            pools,
            not_adopted: self.adoptions.failures(),
            strangers,
            refused: self.tables.out.counts.refusals().clone(),
        }
    }

    /// Handles the end of an effect.
    pub(crate) fn done(&mut self, op: OpId, outcome: Outcome) {
        if let Outcome::Persisted(result) = &outcome {
            self.tables.out.written(op, result.is_ok());
        }
        let changed = self.tables.interfaces.end_change(op);
        let sockets = match &outcome {
            Outcome::Prepared { exchange, .. } => *exchange,
            _ => None,
        };
        let waiter = self.tables.out.take(op);
        match waiter {
            Some(Waiter::Binding(id, task)) => {
                self.tables
                    .with(id, |life, cx| life.on_done(task, outcome, cx));
            }
            Some(Waiter::Operation(attachment)) => {
                self.spare = sockets.map(|exchange| (exchange, attachment.clone()));
                self.operation_done(attachment, outcome);
                if let Some((unused, _)) = self.spare.take() {
                    self.tables.out.close(unused);
                }
            }
            Some(Waiter::Audit(at)) => self.audit.done(&mut self.tables, &self.slots, at, outcome),
            Some(Waiter::Call(id)) => self.call_done(id, outcome),
            Some(Waiter::Seek(by)) => self.searched(by, outcome),
            Some(Waiter::Above(waiter)) => self.notices.push_back(Notice::Done(waiter, outcome)),
            Some(Waiter::Journal) => {}
            None => sockets
                .into_iter()
                .for_each(|exchange| self.tables.out.close(exchange)),
        }
        if let Some(at) = changed {
            self.link_changed(at);
        }
    }

    /// Handles a frame that came in.
    pub(crate) fn frame(&mut self, exchange: ExchangeId, bytes: &[u8], meta: FrameMeta) {
        let Some(id) = self.has_sockets(exchange) else {
            return;
        };
        // On a host's link the container's answers are addressed to a MAC that is not the link's own. The same goes for a
        // container's link whose address has changed since: KubeVirt gives the previous one to its virtual machine.
        let binding = self.tables.bindings.get(id);
        let inside = binding.filter(|it| meta.other_host && !it.speaks_from_host());
        if inside.is_some_and(|it| !bytes.starts_with(&it.identity.chaddr.0)) {
            return;
        }
        match frame::decode(bytes, meta) {
            Ok(frame) => self
                .tables
                .with(id, |life, cx| life.on_frame(exchange, &frame, cx)),
            Err(cause) => match frame::ipv4_source(bytes) {
                Some(from) => self
                    .tables
                    .with(id, |life, cx| life.on_unreadable(exchange, cause, from, cx)),
                None => self.tables.out.counts.refused(cause),
            },
        }
    }

    /// Handles the failure of sockets.
    pub(crate) fn broken(&mut self, exchange: ExchangeId, cause: LinkCause) {
        if let Some(id) = self.has_sockets(exchange) {
            self.tables
                .with(id, |life, cx| life.on_broken(exchange, cause, cx));
        }
    }

    /// Records that a link did not accept a frame.
    pub(crate) fn unsent(&mut self, exchange: ExchangeId, cause: &LinkCause) {
        if let Some(id) = self.has_sockets(exchange) {
            self.tables
                .with(id, |life, cx| life.on_unsent(exchange, cause, cx));
        }
    }

    /// Returns the binding that has these sockets.
    fn has_sockets(&self, exchange: ExchangeId) -> Option<BindingId> {
        match self.tables.out.exchange(exchange)? {
            Owner::Binding(id) => Some(id),
            Owner::Above(_) => None,
        }
    }

    /// Goes on after a search of the namespaces.
    fn searched(&mut self, by: Option<Mac>, outcome: Outcome) {
        let tables = &mut self.tables;
        let ended = self.seeking.done(tables, &mut self.audit, by, outcome);
        let Some((search, whole)) = ended else {
            return;
        };
        for attachment in search.adds {
            self.rival_sought(&attachment, whole);
        }
        if search.again {
            self.seeking.seek(&mut self.tables, by, None);
        }
    }

    /// Goes on after a binding's link is gone. If the binding lives on without it, the link may have appeared elsewhere unnoticed;
    /// else its lease is released soon.
    fn link_went(&mut self, id: BindingId, event: Box<Event>) {
        let Some(mac) = self.tables.bindings.get(id).and_then(Binding::sought) else {
            return self.orphans.add(id, event, self.tables.now.boot);
        };
        if !left_inside(self, id) {
            self.seeking.wait_again(&mut self.tables, id, mac, event);
        }
    }

    /// Handles what the kernel reports about links and namespaces.
    pub(crate) fn kernel(&mut self, message: KernelMessage) {
        match message {
            KernelMessage::NetnsDied(cookie) => self.gone(cookie, None, LinkCause::NoNetns),
            // It may live on.
            KernelMessage::PathGone(cookie) => self.gone(cookie, None, LinkCause::NoPath),
            KernelMessage::LinkGone((cookie, ifindex)) => {
                let cause =
                    |path: PathBuf| LinkCause::NoLink(format!("{ifindex} in {}", path.display()));
                self.gone(cookie, Some(ifindex), cause)
            }
            KernelMessage::Carrier(at, up) => {
                self.tables.interfaces.has_news(at);
                let back = self
                    .tables
                    .interfaces
                    .on_carrier(at, up, self.tables.now.boot);
                if up {
                    self.tables.interfaces.on_up(at, self.tables.now.boot);
                }
                if let Some(lost) = back {
                    self.tables.tell_all(at, News::CarrierBack(lost));
                }
                self.tables.tell_all(at, News::Free);
                // Whoever changed the Ethernet address may have taken the leased one off: a look decides.
                self.audit
                    .look_if(&mut self.tables, at, |binding, interfaces| {
                        binding.is_to_announce(interfaces)
                    });
                if up {
                    self.look_for_carrier(Some(at));
                }
            }
            KernelMessage::Down(at) => {
                self.tables.interfaces.has_news(at);
                self.tables.tell_all(at, News::Down);
            }
            KernelMessage::Ethernet(at, mac) => {
                self.tables.interfaces.has_news(at);
                self.tables.has_ethernet(at, mac);
                self.seeking.seek(&mut self.tables, Some(mac), None);
            }
            KernelMessage::Appeared { number, mac } => {
                self.seeking.seek(&mut self.tables, Some(mac), Some(number))
            }
            KernelMessage::OwnLink { owner, there } => {
                self.notices.push_back(Notice::OwnLink { owner, there })
            }
            KernelMessage::AddressAdded(at, address) => {
                self.tables.interfaces.has_news(at);
                self.tables.tell_all(at, News::AddressAdded(address));
                // The kernel's report does not name the mask.
                self.audit.look_if(&mut self.tables, at, |binding, _| {
                    binding.may_be_outdated(address)
                });
            }
            // It may be back by now, or the whole link may be disappearing: a look decides.
            KernelMessage::AddressGone(at, address) => {
                self.audit
                    .look_if(&mut self.tables, at, |binding, interfaces| {
                        binding.expected_address(interfaces) == Some(address)
                    })
            }
            KernelMessage::Missed => {
                tracing::warn!("kernel messages were lost: looking at every link");
                self.audit.look_at_all(&mut self.tables);
                self.look_for_carrier(None);
                self.seeking.seek(&mut self.tables, None, None);
                self.notices.push_back(Notice::Missed);
            }
        }
    }

    /// Handles the end of a link of a namespace, or with `None` of all, or of the way there. A look at what is held there all the
    /// same decides whether it lives.
    fn gone(&mut self, cookie: Cookie, ifindex: Option<u32>, cause: impl Fn(PathBuf) -> LinkCause) {
        for id in self.tables.interfaces.bindings(cookie, ifindex) {
            let path = self.tables.bindings.get(id).and_then(|it| it.link.netns());
            if let Some(news) = path.map(|path| News::Gone(cause(path.to_owned()))) {
                self.tables.with(id, |life, cx| life.on_news(news, cx));
                self.audit.look_for(&mut self.tables, id);
            }
        }
        self.admissions_gone(cookie, ifindex);
    }

    /// Has those who waited for a change of an interface by the daemon look at the result.
    pub(super) fn link_changed(&mut self, at: At) {
        self.tables.tell_all(at, News::Free);
        for admission in self.slots.admissions() {
            admission.change_ended(&mut self.tables, at);
        }
    }

    /// Carries out the next thing that follows from the current input. False if nothing more does.
    pub(crate) fn go_on(&mut self) -> bool {
        match self.tables.out.reports.pop_front() {
            Some((id, report)) => {
                self.reported(id, report);
                true
            }
            None => self.settle_holders(),
        }
    }

    /// Ends an input, once nothing more follows from it.
    pub(crate) fn end_input(&mut self) {
        self.orphans.tell(self.tables.now, &mut self.tables.out);
        let orphan = self.orphans.deadline().map(|at| (at, Why::Orphan));
        self.tables.timers.set(Key::Orphans, orphan);
        let touched = self.tables.bindings.take_touched();
        notice_silence(&mut self.tables, &touched);
        let bindings = &self.tables.bindings;
        self.tables.out.write_notes(|id| {
            bindings
                .get(id)
                .is_some_and(|binding| binding.record_is_due())
        });
        Renewal::go_on(self, &touched);
        for id in touched {
            let binding = self.tables.bindings.get(id);
            let deadline = binding.and_then(|binding| binding.deadline(&self.tables.interfaces));
            self.tables.timers.set(Key::Binding(id), deadline);
        }
    }

    /// Lets leaving bindings go on, or give way, when live ones have come or gone. Returns whether there was anything to do.
    fn settle_holders(&mut self) -> bool {
        if let Some(beside) = self.tables.bindings.next_settled() {
            for other in beside {
                self.tables
                    .at_release(other, |release, cx| _ = release.give_way(cx));
            }
            return true;
        }
        let Some(key) = self.tables.bindings.next_stirred() else {
            return false;
        };
        for leaving in self.tables.bindings.holders().leaving(&key) {
            self.tables.at_release(leaving, Release::unpause);
        }
        true
    }

    /// Returns the name servers of the next attachment's durable lease, whichever of its bindings has it by now.
    ///
    /// Computed on demand: a start has one of these for each lease.
    fn publish(&mut self) -> Option<Effect> {
        let attachment = self.tables.out.resolvers.pop_first()?;
        let holder = self.tables.bindings.held_by(&attachment);
        let dns = holder.and_then(|it| it.resolver());
        Some(Effect::Publish { attachment, dns })
    }

    fn reported(&mut self, id: BindingId, report: Report) {
        match report {
            Report::WantsPermit => self.turns.want_permit(&mut self.tables, id),
            Report::WantsTurn => self.turns.want_release(&mut self.tables, id),
            Report::ExchangeOver => self.turns.end(&mut self.tables, id),
            Report::Insists(address) => rivals::unblock(&mut self.tables, id, address),
            Report::FallsBack {
                fallback,
                used,
                last,
            } => self
                .fallbacks
                .fall_back(&mut self.tables, id, &fallback, &used, last),
            Report::Heard(said) => server_said(&mut self.tables, &self.fallbacks, id, said),
            Report::WantsRenewed(other) => self
                .tables
                .with(other, |life, cx| life.holds(cx, Hold::renew_early)),
            Report::Replaced(replaced) => {
                if let Some(binding) = self.tables.bindings.get(id) {
                    self.past.forget(&binding.identity.key());
                }
                for old in replaced {
                    let mut is_over = true;
                    self.tables
                        .with(old, |life, cx| is_over = life.replaced(cx));
                    if is_over {
                        self.over(old);
                    }
                }
            }
            Report::Leased(lease) => self.leased(id, *lease),
            Report::Spoiled(address, others) => others.into_iter().for_each(|other| {
                self.tables
                    .at_release(other, |release, _| release.spoil(address));
            }),
            Report::Failed(failure) => self.acquisition_failed(id, failure),
            Report::GivenBack => {
                self.tables.departs(id);
                if let Some(attachment) = self.tables.attachment(id) {
                    self.given_back(id, &attachment);
                }
            }
            Report::NotGivenBack(cause) => self.not_given_back(id, cause),
            Report::Orphaned(event) => self.link_went(id, event),
            Report::WantsLook => self.audit.look_for(&mut self.tables, id),
            Report::Vacated => _ = left_inside(self, id),
            Report::Over => self.over(id),
        }
    }

    /// Removes a binding of which nothing is left; whoever waits for that goes on.
    fn over(&mut self, id: BindingId) {
        let now = self.tables.now;
        let attachment = self.tables.attachment(id);
        let binding = self.tables.bindings.get(id);
        let binding = binding.filter(|it| it.is_to_remember());
        if let Some((binding, lease)) = binding.and_then(|it| Some((it, it.lease(now.boot)?))) {
            let key = binding.identity.key();
            let last = LastAddress {
                record: id,
                address: lease.ip(),
            };
            // A successor writes its own address.
            if self.tables.bindings.holders().of(&key).is_none() {
                self.remember(key, last);
            }
        }
        self.turns.end(&mut self.tables, id);
        self.seeking.wait_no_more(&mut self.tables, id);
        self.tables.remove(id);
        if let Some(attachment) = attachment {
            self.given_back(id, &attachment);
            self.notices.push_back(Notice::Over((*attachment).clone()));
        }
    }

    fn remember(&mut self, key: IdentityKey, last: LastAddress) {
        if let Some(record) = self.past.remember(key, last) {
            self.tables.out.write_alone(Change::Remove(record));
        }
    }
}
