//! All bindings, and who owns which identity.
//!
//! The registry takes inputs, passes them on to the binding or call that they are about, and hands effects out. What concerns more
//! than one binding is decided here: one operation per attachment, one live holder per identity and address, permits and turns
//! per LAN.
//!
//! * Tables: `index` has the bindings, `slots` the attachments, `operation` what each attachment is doing, `jobs` the calls that
//!   are not answered yet, `timers` the deadlines, `profiles` what many bindings have in common, `past` the last addresses of
//!   identities, `kept` the sizes of all this.
//! * Calls: `jobs` says what happens to each, with one file per kind. `calls` gives those about an attachment their turn, and has
//!   DEL and CHECK: `add` goes from an ADD to its binding, past its `rivals`; `adopt` takes over containers that already ran.
//! * Without a server: `fallback` gives an address of a local range if servers are silent.
//! * A door above the registry leases through `port`, gives a lease back by its address, and hears what concerns it through a
//!   `notice`. `seek` finds interfaces that nobody names.
//! * Operators: `orders` says which leases are meant, `servers` notices which of them fall
//!   silent, `troubles` says what is wrong, `holdings` counts what is held.
//! * The rest: `recover` starts with records, `clocks` notices that the wall clock was set, `watch` hears the kernel, `sight`
//!   decides whether a missing namespace is gone, `orphans` waits for a DEL, `pacing` gives permits and turns.

mod add;
mod adopt;
mod calls;
mod clocks;
mod fallback;
mod holdings;
mod index;
mod jobs;
mod kept;
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
mod sight;
mod slots;
mod tables;
#[cfg(test)]
mod tests;
mod timers;
mod troubles;
mod watch;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use self::add::Spare;
use self::adopt::Adoptions;
use self::clocks::Clocks;
use self::fallback::Fallbacks;
pub use self::holdings::{Holdings, Kind, OTHER_NETWORKS};
use self::jobs::{Jobs, Renewal};
pub use self::kept::Kept;
pub(crate) use self::notice::Notice;
pub(crate) use self::operation::CARRIER_PAUSE;
use self::orders::chosen;
use self::orphans::Orphans;
use self::pacing::{Extensions, Pacing, Releases, Urgency};
use self::past::{LastAddress, Past};
use self::port::Leavings;
pub(crate) use self::port::PortHolding;
use self::seek::Seeking;
use self::sight::Sight;
use self::slots::Slots;
use self::tables::Tables;
pub(crate) use self::timers::{DoorTimer, Key};
pub(crate) use self::troubles::{parents, troubles};
use self::watch::Audit;
use crate::binding::{Binding, Hold, Release};
use crate::effect::{Answer, Effect, ExchangeId, FrameMeta, OpId, Outcome, Which, Why};
use crate::identity::{Attachment, IdentityKey};
use crate::link::LinkCause;
use crate::outbox::{Owner, Report, Task, Waiter};
use crate::pool::PoolRecord;
use crate::record::{BindingId, Change};
use crate::source::{Client, Timer};
use crate::time::{Instant, Now};
use crate::wire::frame;

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
    pacing: Pacing,
    leavings: Leavings,
    releases: Releases,
    extensions: Extensions,
    past: Past,
    orphans: Orphans,
    fallbacks: Fallbacks,
    audit: Audit,
    sight: Sight,
    seeking: Seeking,
    /// How many inputs bore an id that was no longer known. They came late, and were dropped.
    pub(crate) unknown: u64,
    /// Open during the current input.
    spare: Option<Spare>,
    /// What must still be said to the doors above.
    pub(crate) notices: VecDeque<Notice>,
}

impl Registry {
    /// Returns an empty registry. All its randomness comes from `seed`.
    pub(crate) fn new(config: Config, seed: u64) -> Self {
        let pacing = Pacing::new(config.permits.max(1));
        Self {
            config,
            tables: Tables::new(seed),
            clocks: Clocks::default(),
            slots: Slots::default(),
            jobs: Jobs::default(),
            adoptions: Adoptions::default(),
            pacing,
            leavings: Leavings::default(),
            releases: Releases::default(),
            extensions: Extensions::default(),
            past: Past::default(),
            orphans: Orphans::default(),
            fallbacks: Fallbacks::default(),
            audit: Audit::default(),
            sight: Sight::default(),
            seeking: Seeking::default(),
            unknown: 0,
            spare: None,
            notices: VecDeque::new(),
        }
    }

    /// Compares both clocks with their last reading.
    pub(crate) fn read_clocks(&mut self, now: Now) {
        let Some(may_be_late) = self.clocks.read(now) else {
            return;
        };
        let ids: Vec<_> = self
            .tables
            .bindings
            .iter()
            .map(|binding| binding.id)
            .collect();
        for id in ids {
            self.tables
                .with(now, id, |binding, cx| binding.on_wall_set(may_be_late, cx));
        }
    }

    /// Returns whose deadlines have come, in order of time.
    pub(crate) fn due(&self, now: Instant) -> Vec<Key> {
        self.tables.timers.due(now)
    }

    /// Goes on with somebody whose deadline has come.
    pub(crate) fn on_clock(&mut self, now: Now, key: Key) {
        match key {
            Key::Binding(id) => self
                .tables
                .with(now, id, |binding, cx| binding.on_clock(cx)),
            Key::Call(id) => self.call_timed_out(now, id),
            Key::Audit(at) => self.audit_again(at),
            Key::Adoption(id) => self.adopt_again(now, id),
            Key::Look => self.look_on_clock(),
            Key::Orphans => {}
            Key::Seek => self.seek_on_clock(now),
            Key::Extensions => self.extend_next(now),
            Key::Above(timer) => self.notices.push_back(Notice::Due(timer)),
        }
    }

    pub(crate) fn poll_effect(&mut self) -> Option<Effect> {
        self.tables.out.pop().or_else(|| self.publish())
    }

    /// Returns when the clock next matters, and why; `None` while nothing waits.
    pub(crate) fn poll_timeout(&self) -> Option<(Instant, Why)> {
        self.tables.timers.next()
    }

    /// Returns how many containers a daemon that started now would have to adopt: those not adopted yet, and those whose
    /// lease has no record.
    pub(crate) fn adopting(&self) -> usize {
        let bindings = self.tables.bindings.iter();
        self.adoptions.len() + bindings.filter(|binding| binding.is_unwritten()).count()
    }

    /// Returns whose lease an exchange is about; `None` if it is about none, or closed.
    pub(crate) fn whose(&self, exchange: ExchangeId) -> Option<Arc<Attachment>> {
        match self.tables.out.exchange(exchange)? {
            Owner::Binding(id) => self.tables.attachment(id),
            Owner::Call(_) | Owner::Above(_) => None,
        }
    }

    /// Returns all leases, and what else an operator should know, with what the doors above know.
    pub(crate) fn list(&self, now: Now, pools: Vec<PoolRecord>, strangers: Vec<String>) -> Answer {
        let chosen = chosen(self, now, &Which::default()).into_iter();
        Answer::Bindings {
            rows: chosen.map(|(_, row)| row).collect(),
            pools,
            not_adopted: self.adoptions.failures(),
            strangers,
            refused: self.tables.out.counts.refusals().clone(),
        }
    }

    /// Handles the end of an effect.
    pub(crate) fn done(&mut self, now: Now, op: OpId, outcome: Outcome) {
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
                    .with(now, id, |binding, cx| binding.on_done(task, outcome, cx));
                if matches!(task, Task::Close(_)) {
                    self.answer_withheld(now, id);
                }
            }
            Some(Waiter::Operation(attachment, look)) => {
                self.spare = sockets.map(|exchange| Spare {
                    exchange,
                    attachment: attachment.clone(),
                });
                self.operation_done(now, attachment, look, outcome);
                let unused = self.spare.take();
                unused
                    .into_iter()
                    .for_each(|it| self.tables.out.close(it.exchange));
            }
            Some(Waiter::Audit(at)) => self.audited(now, at, outcome),
            Some(Waiter::Call(id)) => self.call_done(id, outcome),
            Some(Waiter::Seek(by)) => self.sought(now, by, outcome),
            Some(Waiter::Above(waiter)) => self.notices.push_back(Notice::Done(waiter, outcome)),
            Some(Waiter::Journal) => {}
            None => {
                self.unknown += 1;
                sockets
                    .into_iter()
                    .for_each(|exchange| self.tables.out.close(exchange));
            }
        }
        if let Some(at) = changed {
            self.link_changed(now, at);
        }
    }

    /// Handles a frame that came in.
    pub(crate) fn frame(&mut self, now: Now, exchange: ExchangeId, bytes: &[u8], meta: FrameMeta) {
        let id = match self.tables.out.exchange(exchange) {
            Some(Owner::Binding(id)) => id,
            // A STATUS only checks whether sockets can be opened.
            Some(Owner::Call(_) | Owner::Above(_)) => return,
            None => return self.unknown += 1,
        };
        // On a host's link the container's answers are addressed to a MAC that is not the link's own. The same goes for a
        // container's link whose address has changed since: KubeVirt gives the previous one to its virtual machine.
        let binding = self.tables.bindings.get(id);
        let inside = binding.filter(|it| meta.other_host && !it.speaks_from_host());
        if inside.is_some_and(|it| !bytes.starts_with(&it.identity.chaddr.0)) {
            return;
        }
        match frame::decode(bytes, meta) {
            Ok(frame) => self.tables.with(now, id, |binding, cx| {
                binding.on_frame(exchange, &frame, cx)
            }),
            Err(cause) => match frame::ipv4_source(bytes) {
                Some(from) => self.tables.with(now, id, |binding, cx| {
                    binding.on_unreadable(exchange, cause, from, cx)
                }),
                None => self.tables.out.counts.refused(cause.name()),
            },
        }
    }

    /// Handles the failure of sockets.
    pub(crate) fn broken(&mut self, now: Now, exchange: ExchangeId, cause: LinkCause) {
        match self.tables.out.exchange(exchange) {
            Some(Owner::Binding(id)) => self.tables.with(now, id, |binding, cx| {
                binding.on_broken(exchange, cause, cx)
            }),
            Some(Owner::Call(_) | Owner::Above(_)) => {}
            None => self.unknown += 1,
        }
    }

    /// Records that a link did not accept a frame.
    pub(crate) fn unsent(&mut self, now: Now, exchange: ExchangeId, cause: &LinkCause) {
        match self.tables.out.exchange(exchange) {
            Some(Owner::Binding(id)) => self
                .tables
                .with(now, id, |binding, _| binding.on_unsent(exchange, cause)),
            Some(Owner::Call(_) | Owner::Above(_)) => {}
            None => self.unknown += 1,
        }
    }

    /// Carries out the next thing that follows from the current input. False if nothing more does.
    pub(crate) fn go_on(&mut self, now: Now) -> bool {
        match self.tables.out.reports.pop_front() {
            Some((id, report)) => {
                self.reported(now, id, report);
                true
            }
            None => self.settle_holders(now) || self.resume_checks(now),
        }
    }

    /// Ends an input, once nothing more follows from it.
    pub(crate) fn end_input(&mut self, now: Now) {
        self.orphans.tell(now, &mut self.tables.out);
        let orphan = self.orphans.deadline().map(|at| (at, Why::Orphan));
        self.tables.timers.set(Key::Orphans, orphan);
        let touched = self.tables.bindings.take_touched();
        self.notice_silence(now, &touched);
        let bindings = &self.tables.bindings;
        self.tables.out.write_notes(|id| {
            bindings
                .get(id)
                .is_some_and(|binding| binding.record_is_due())
        });
        Renewal::go_on(self, now, &touched);
        for id in touched {
            let binding = self.tables.bindings.get(id);
            let deadline = binding.and_then(|binding| binding.deadline(&self.tables.interfaces));
            self.tables.timers.set(Key::Binding(id), deadline);
        }
    }

    /// Lets leaving bindings go on, or give way, when live ones have come or gone. Returns whether there was anything to do.
    fn settle_holders(&mut self, now: Now) -> bool {
        if let Some(beside) = self.tables.bindings.next_settled() {
            for other in beside {
                self.tables
                    .with(now, other, |binding, cx| binding.give_way(cx));
            }
            return true;
        }
        let Some(key) = self.tables.bindings.next_stirred() else {
            return false;
        };
        for leaving in self.tables.bindings.holders().leaving(&key) {
            self.tables.with(now, leaving, |binding, cx| {
                binding.gives_back(cx, Release::unpause)
            });
        }
        true
    }

    /// Returns the name servers of the next attachment's durable lease, whichever of its bindings has it by now.
    ///
    /// Computed on demand: a start has one of these for each lease.
    fn publish(&mut self) -> Option<Effect> {
        let attachment = self.tables.out.resolvers.pop_first()?;
        let dns = self.holder_of(&attachment).and_then(|it| it.resolver());
        Some(Effect::Publish { attachment, dns })
    }

    fn reported(&mut self, now: Now, id: BindingId, report: Report) {
        match report {
            Report::WantsPermit => self.want_permit(now, id),
            Report::WantsTurn => self.want_turn(now, id),
            Report::ExchangeOver => self.give_permit_back(now, id),
            Report::Insists(address) => self.unblock(now, id, address),
            Report::FallsBack {
                fallback,
                used,
                last,
            } => self.fall_back(now, id, &fallback, &used, last),
            Report::Heard(said) => self.server_said(now, id, said),
            Report::WantsRenewed(other) => self.tables.with(now, other, |binding, cx| {
                binding.holds(cx, Hold::renew_early)
            }),
            Report::Replaced(replaced) => {
                if let Some(binding) = self.tables.bindings.get(id) {
                    self.past.forget(&binding.identity.key());
                }
                replaced.into_iter().for_each(|old| self.replaced(now, old));
            }
            Report::Leased(lease) => self.leased(now, id, *lease),
            Report::Spoiled(address, others) => others.into_iter().for_each(|other| {
                self.tables.with(now, other, |binding, cx| {
                    binding.gives_back(cx, |release, _, _| release.spoil(address))
                });
            }),
            Report::Failed(failure) => self.acquisition_failed(now, id, failure),
            Report::GivenBack => {
                self.tables.departs(now, id);
                if let Some(attachment) = self.tables.attachment(id) {
                    self.given_back(now, id, &attachment);
                }
            }
            Report::NotGivenBack(cause) => self.not_given_back(now, id, cause),
            Report::Orphaned(event) => self.link_went(now, id, event),
            Report::WantsLook => self.audit_one(id),
            Report::Vacated => _ = self.left_inside(now, id),
            Report::NotExtended(cause) => Renewal::not_extended(self, id, &cause),
            Report::Over => self.over(now, id),
        }
    }

    /// Removes a binding of which nothing is left; whoever waits for that goes on.
    fn over(&mut self, now: Now, id: BindingId) {
        let attachment = self.tables.attachment(id);
        let binding = self
            .tables
            .bindings
            .get(id)
            .filter(|it| it.is_to_remember());
        if let Some((binding, lease)) = binding.and_then(|it| Some((it, it.lease(now.boot)?))) {
            let key = binding.identity.key();
            let last = LastAddress {
                record: id,
                address: lease.ip(),
                returns: binding.profile.returns(),
            };
            // A successor writes its own address.
            if self.tables.bindings.holders().of(&key).is_none() {
                self.remember(key, last);
            }
        }
        self.remove(now, id);
        if let Some(attachment) = attachment {
            self.given_back(now, id, &attachment);
            self.notices.push_back(Notice::Over((*attachment).clone()));
        }
    }

    fn remember(&mut self, key: IdentityKey, last: LastAddress) {
        if let Some(record) = self.past.remember(key, last) {
            self.tables.out.write_alone(Change::Remove(record));
        }
    }

    fn replaced(&mut self, now: Now, id: BindingId) {
        let mut is_over = true;
        self.tables
            .with(now, id, |binding, cx| is_over = binding.replaced(cx));
        if is_over {
            self.over(now, id);
        }
    }

    fn want_permit(&mut self, now: Now, id: BindingId) {
        let Some(binding) = self.tables.bindings.get(id) else {
            return;
        };
        let lan = binding.identity.lan.clone();
        if let Some(lease) = binding.client().and_then(Client::lease) {
            // One without end is in no hurry.
            let endless = now.boot + Duration::from_secs(u32::MAX.into());
            let ends = lease.expires().unwrap_or(endless);
            self.extensions.wait(lan, id, lease.server, ends);
            self.extend_next(now);
        } else if self.pacing.ask(&lan, id, Urgency::Background) {
            self.tables
                .with(now, id, |binding, cx| binding.on_permit(None, cx));
        }
    }

    /// Gives each free turn to the next lease that is to be extended.
    fn extend_next(&mut self, now: Now) {
        while let Some(next) = self.extensions.next(now.boot) {
            self.tables
                .with(now, next, |binding, cx| binding.on_permit(None, cx));
        }
        let next = self.extensions.deadline();
        let why = Why::Dhcp(Timer::ReceiveWindow);
        self.tables
            .timers
            .set(Key::Extensions, next.map(|at| (at, why)));
    }

    fn give_permit_back(&mut self, now: Now, id: BindingId) {
        let Some(lan) = self.tables.lan(id) else {
            return;
        };
        self.extensions.leave(&lan, id);
        self.extend_next(now);
        if let Some(next) = self.pacing.leave(&lan, id) {
            self.tables
                .with(now, next, |binding, cx| binding.on_permit(None, cx));
        }
    }

    fn want_turn(&mut self, now: Now, id: BindingId) {
        let Some(lan) = self.tables.lan(id) else {
            return;
        };
        let at = self.releases.take(lan, now.boot);
        self.tables.with(now, id, |binding, cx| {
            binding.gives_back(cx, |release, common, cx| release.on_turn(common, at, cx))
        });
    }

    /// Removes a binding from all tables.
    fn remove(&mut self, now: Now, id: BindingId) {
        self.give_permit_back(now, id);
        self.sight.forget(id);
        self.await_interface_no_more(id);
        self.tables.remove(now, id);
    }

    /// Returns the binding that holds an attachment's lease, or looks for another.
    fn holder_of(&self, attachment: &Attachment) -> Option<&Binding> {
        self.tables.bindings.get(self.slots.holder(attachment)?)
    }
}
