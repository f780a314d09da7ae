//! An ADD of a network with local ranges: a look at namespaces, then the probes, if any are wanted, then the store, then the files.

mod probing;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use self::probing::{Probed, Probing};
use super::{Job, Next};
use crate::effect::{
    Answer, ExchangeId, Failure, FileCause, FileChange, Outcome, RangeAdd, RangeAnswer, RequestId,
};
use crate::event::EventKind;
use crate::identity::Attachment;
use crate::link::{Cookie, LinkCause};
use crate::outbox::{RangeWait, Waiter};
use crate::range::{Given, NoAddress};
use crate::record::{Change, RangeChange, RangeRecord};
use crate::registry::Registry;
use crate::registry::ranges::{Life, range_event};
use crate::time::{Instant, Now};
use crate::wire::Mac;
use crate::wire::frame::Arp;

/// How long a call waits for its files once the store has the change: a directory may be slow.
pub(super) const FILES: Duration = Duration::from_millis(250);

/// The greatest age of an address from an earlier daemon whose caller may not have had the answer: a shim asks the next daemon
/// again.
const UNHEARD: Duration = Duration::from_secs(60);

/// How many addresses are tried that turn out to be in use by stations.
const MOST: usize = 10;

/// An ADD under way.
#[derive(Debug)]
pub(in crate::registry) struct Ranging {
    add: Box<RangeAdd>,
    began: Instant,
    stage: Stage,
    /// How many tried addresses turned out to be in use by stations.
    tried: usize,
    /// Its namespace, if the attachment has addresses in it already.
    known: Option<Cookie>,
    /// The namespaces that have died meanwhile.
    died: Vec<Cookie>,
}

#[derive(Debug)]
enum Stage {
    /// Whether the namespace lives in which the attachment has addresses already.
    LooksAtFormer,
    /// Whether its own is there; what was seen of the former one, if that is another.
    Looks(Option<Result<Cookie, LinkCause>>),
    /// Whether stations use its addresses.
    Probes(Box<(Probing, Candidate)>),
    Records(Box<Recording>),
}

/// Addresses that are taken for it, and that the store does not know yet.
#[derive(Debug)]
struct Candidate {
    given: Vec<Given>,
    cookie: Option<Cookie>,
    former: Option<RangeRecord>,
}

/// Addresses that are being written to the store and into files.
#[derive(Debug)]
struct Recording {
    given: Vec<Given>,
    cookie: Option<Cookie>,
    /// What the attachment had before.
    former: Option<RangeRecord>,
    is_written: bool,
    /// The addresses whose files are not there yet.
    files: BTreeSet<IpAddr>,
    /// The addresses that others' files claim.
    taken: Vec<(IpAddr, String)>,
}

impl Ranging {
    pub(super) fn done(
        mut self,
        core: &mut Registry,
        now: Now,
        id: RequestId,
        outcome: Outcome,
    ) -> Next {
        match (&mut self.stage, outcome) {
            (Stage::LooksAtFormer, Outcome::Watched(seen)) => self.look(core, id, Some(seen)),
            (Stage::Looks(former), Outcome::Watched(seen)) => {
                let former = former.take();
                // The namespace that is there now may be another.
                let is_dead = |cookie| self.died.contains(&cookie);
                if seen
                    .as_ref()
                    .ok()
                    .copied()
                    .or(self.known)
                    .is_some_and(is_dead)
                {
                    return Next::Answers(Answer::Failed(self.lacks_netns()));
                }
                // If its own namespace is not seen, perhaps none can be.
                if seen.is_ok() {
                    core.end_if_dead(now, &self.add.attachment, former.as_ref().unwrap_or(&seen));
                }
                let life = Life::of(&seen, None);
                core.saw_namespace(now, &self.add.attachment, &self.add.netns, life);
                self.give(core, now, id, seen.ok())
            }
            (Stage::Probes(probes), outcome) => {
                let probed = probes.0.done(core, now, id, outcome);
                self.probed(core, now, id, probed)
            }
            (Stage::Records(recording), Outcome::Persisted(Ok(()))) => {
                recording.is_written = true;
                for (set, given) in recording.given.iter().enumerate() {
                    let file = (self.add.directory.as_path(), given.address.addr());
                    core.out.file(
                        Some(Waiter::Call(id)),
                        file,
                        &self.add.attachment,
                        FileChange::Write { set },
                    );
                }
                self.goes_on(core, now, id)
            }
            (Stage::Records(_), Outcome::Persisted(Err(cause))) => {
                self.undo(core, now);
                Next::Answers(Answer::Failed(Failure::Store(cause)))
            }
            (Stage::Records(recording), Outcome::Filed { address, result }) => {
                recording.files.remove(&address);
                if let Err(FileCause::Taken(by)) = result {
                    recording.taken.push((address, by));
                }
                self.goes_on(core, now, id)
            }
            _ => Next::Waits(Job::Range(self)),
        }
    }

    fn lacks_netns(&self) -> Failure {
        self.lacks_link(LinkCause::NoNetns(self.add.netns.clone()))
    }

    pub(super) fn is_of(&self, attachment: &Attachment) -> bool {
        self.add.attachment == *attachment
    }

    /// Looks at its own namespace.
    fn look(
        mut self,
        core: &mut Registry,
        id: RequestId,
        former: Option<Result<Cookie, LinkCause>>,
    ) -> Next {
        self.stage = Stage::Looks(former);
        core.out.watch(Waiter::Call(id), self.add.netns.clone());
        Next::Waits(Job::Range(self))
    }

    /// Takes addresses, and has them recorded.
    fn give(
        mut self,
        core: &mut Registry,
        now: Now,
        id: RequestId,
        cookie: Option<Cookie>,
    ) -> Next {
        // Addresses that are being given back are freed at once: the store keeps the order.
        core.range_ended(now, &self.add.attachment, true, None);
        let held = core.ranges.held(&self.add.attachment);
        let unheard = held.filter(|held| {
            let age = now.wall.saturating_since(held.record.since);
            held.is_recovered
                && age < UNHEARD
                && held.record.cookie.is_some()
                && held.record.cookie == cookie
        });
        if let Some(held) = unheard {
            let given = &held.record.given;
            let by_file = |given: &Given| {
                core.ranges
                    .by_file(&self.add.attachment, given.address.addr())
            };
            return match given.iter().find_map(by_file) {
                None => Next::Answers(Answer::Ranges(RangeAnswer::Given(given.clone()))),
                // That daemon may have answered before it could change the file: then the container has the address.
                Some(none) => self.has_none(core, none),
            };
        }
        let former = held.map(|held| held.record.clone());
        let given = match core.allocate(now, &self.add) {
            Ok(given) => given,
            Err(none) => return self.has_none(core, none),
        };
        let candidate = Candidate {
            given,
            cookie,
            former,
        };
        let of_v4 = candidate
            .given
            .iter()
            .filter_map(|given| v4(given.address.addr()));
        match Probing::begin(core, id, &self.add, of_v4.collect()) {
            Some(probing) => {
                self.stage = Stage::Probes(Box::new((probing, candidate)));
                Next::Waits(Job::Range(self))
            }
            None => self.write(core, now, id, candidate),
        }
    }

    fn has_none(self, core: &Registry, none: NoAddress) -> Next {
        let running = core.ranges.running(&self.add.attachment);
        Next::Answers(Answer::Failed(Failure::NoAddress { none, running }))
    }

    /// Goes on with what the probes have found out.
    fn probed(mut self, core: &mut Registry, now: Now, id: RequestId, probed: Probed) -> Next {
        let Stage::Probes(probes) = &self.stage else {
            return Next::Waits(Job::Range(self));
        };
        let has_no_interface = |cause: &LinkCause| {
            cause.is_unseen() || matches!(cause, LinkCause::NoLink(_) | LinkCause::NotEthernet(_))
        };
        match probed {
            Probed::Waits => {
                let limit = self.began + self.add.timeout;
                core.time_call(id, probes.0.deadline().map_or(limit, |at| at.min(limit)));
                Next::Waits(Job::Range(self))
            }
            Probed::Unknown(cause) if probes.0.is_strict() && !has_no_interface(&cause) => {
                let failure = self.lacks_link(cause);
                self.undo(core, now);
                Next::Answers(Answer::Failed(failure))
            }
            Probed::InUse(address, by) => {
                let given = [self.passes_over(core, now, address, by)];
                let note = range_event(
                    now,
                    &self.add.attachment,
                    EventKind::Conflict,
                    &given,
                    &format!("{by} uses the address"),
                );
                core.out.write_for(Waiter::Journal, vec![note]);
                let cookie = self.cookie();
                self.undo(core, now);
                self.tried += 1;
                if self.tried == MOST {
                    return Next::Answers(Answer::Failed(Failure::Conflict { address, by }));
                }
                self.give(core, now, id, cookie)
            }
            Probed::Free | Probed::Unknown(_) => {
                core.time_call(id, self.began + self.add.timeout);
                probes.0.close(core);
                match std::mem::replace(&mut self.stage, Stage::Looks(None)) {
                    Stage::Probes(probes) => self.write(core, now, id, probes.1),
                    _ => Next::Nothing,
                }
            }
        }
    }

    /// Records that a station uses an address. Returns the address with its gateway.
    fn passes_over(&self, core: &mut Registry, now: Now, address: Ipv4Addr, by: Mac) -> Given {
        tracing::warn!(attachment = %self.add.attachment, %address, %by, "a station uses this address of a local range: taking another");
        core.conflicts
            .passes_over(&self.add.lan, (address, by), now.boot);
        let Stage::Probes(probes) = &self.stage else {
            unreachable!("it was probed for")
        };
        let is_it = |given: &&Given| given.address.addr() == address;
        *probes
            .1
            .given
            .iter()
            .find(is_it)
            .expect("what is probed for is taken")
    }

    /// Has addresses recorded.
    fn write(mut self, core: &mut Registry, now: Now, id: RequestId, candidate: Candidate) -> Next {
        let Candidate {
            given,
            cookie,
            former,
        } = candidate;
        let record = self.record(core, now, &given, cookie, former.as_ref());
        let put = Change::Range(RangeChange::Put(Box::new(record.clone())));
        let note = range_event(
            now,
            &self.add.attachment,
            EventKind::Acquired,
            &given,
            "ADD, from a local range",
        );
        let changes = vec![put, note];
        core.out.write_for(Waiter::Call(id), changes);
        core.hold_range(record, false);
        let files = given.iter().map(|given| given.address.addr()).collect();
        self.stage = Stage::Records(Box::new(Recording {
            given,
            cookie,
            former,
            is_written: false,
            files,
            taken: Vec::new(),
        }));
        Next::Waits(Job::Range(self))
    }

    fn record(
        &self,
        core: &Registry,
        now: Now,
        given: &[Given],
        cookie: Option<Cookie>,
        former: Option<&RangeRecord>,
    ) -> RangeRecord {
        let before = former.into_iter().flat_map(|former| &former.given);
        RangeRecord {
            attachment: self.add.attachment.clone(),
            lan: self.add.lan.clone(),
            given: before.chain(given).copied().collect(),
            netns: self.add.netns.clone(),
            cookie,
            directory: self.add.directory.clone(),
            returns_as: self.add.returns_as.clone(),
            boot: core.boot.clone(),
            since: now.wall,
            past: false,
        }
    }

    /// Goes on when the store has the record: answers once the files are there, or replaces the addresses that others' files claim.
    fn goes_on(mut self, core: &mut Registry, now: Now, id: RequestId) -> Next {
        let Stage::Records(recording) = &mut self.stage else {
            return Next::Waits(Job::Range(self));
        };
        if !recording.is_written || !recording.files.is_empty() {
            if recording.is_written {
                core.time_call(id, now.boot + FILES);
            }
            return Next::Waits(Job::Range(self));
        }
        if recording.taken.is_empty() {
            return Next::Answers(Answer::Ranges(RangeAnswer::Given(std::mem::take(
                &mut recording.given,
            ))));
        }
        let (taken, cookie) = (std::mem::take(&mut recording.taken), recording.cookie);
        let network = self.add.attachment.network().to_owned();
        self.undo(core, now);
        for (address, by) in taken {
            tracing::info!(%address, by, "another host-local gave it out: taking another");
            core.ranges
                .found_file(&network, address, Attachment::cni(&*network, by, ""));
        }
        core.time_call(id, self.began + self.add.timeout);
        self.give(core, now, id, cookie)
    }

    /// Takes back what was recorded.
    fn undo(&mut self, core: &mut Registry, now: Now) {
        let attachment = &self.add.attachment;
        if let Stage::Probes(probes) = &self.stage {
            probes.0.close(core);
            let addresses: Vec<_> = probes
                .1
                .given
                .iter()
                .map(|given| given.address.addr())
                .collect();
            core.ranges.vacate(attachment, &addresses);
            self.stage = Stage::Looks(None);
            return;
        }
        let Stage::Records(recording) = &mut self.stage else {
            return;
        };
        let addresses: Vec<_> = recording
            .given
            .iter()
            .map(|given| given.address.addr())
            .collect();
        core.ranges.vacate(attachment, &addresses);
        for address in addresses {
            core.out.file(
                None,
                (&self.add.directory, address),
                attachment,
                FileChange::Remove,
            );
        }
        let change = match recording.former.take() {
            Some(former) => {
                core.hold_range(former.clone(), false);
                RangeChange::Put(Box::new(former))
            }
            None => {
                core.free_for_bindings(attachment);
                core.ranges.drop_held(attachment);
                RangeChange::Remove(attachment.clone())
            }
        };
        let owed = matches!(change, RangeChange::Remove(_)).then(|| attachment.clone());
        let note = range_event(
            now,
            attachment,
            EventKind::Released,
            &recording.given,
            "the ADD failed",
        );
        let waiter = Waiter::Range(RangeWait::Owed(owed.into_iter().collect()));
        core.out
            .write_for(waiter, vec![Change::Range(change), note]);
    }

    pub(super) fn time_out(mut self, core: &mut Registry, now: Now, id: RequestId) -> Next {
        if let Stage::Probes(probes) = &mut self.stage
            && now.boot < self.began + self.add.timeout
        {
            let probed = probes.0.on_clock(core, now);
            return self.probed(core, now, id, probed);
        }
        let waited = crate::time::whole_millis(now.boot.saturating_since(self.began));
        let waiting_for = match &mut self.stage {
            // The files follow.
            Stage::Records(recording) if recording.is_written && recording.taken.is_empty() => {
                return Next::Answers(Answer::Ranges(RangeAnswer::Given(std::mem::take(
                    &mut recording.given,
                ))));
            }
            Stage::Records(_) => "the store",
            Stage::Probes(_) => "the probes for its addresses",
            Stage::LooksAtFormer | Stage::Looks(_) => "a look at the container's namespace",
        };
        self.undo(core, now);
        Next::Answers(Answer::Failed(Failure::TimedOut {
            waiting_for,
            waited,
        }))
    }

    /// Handles a frame, if it came in on its sockets.
    pub(super) fn on_frame(
        mut self,
        core: &mut Registry,
        now: Now,
        id: RequestId,
        arp: &Arp,
    ) -> Next {
        let Stage::Probes(probes) = &mut self.stage else {
            return Next::Waits(Job::Range(self));
        };
        let probed = probes.0.on_arp(core, now, &self.add, arp);
        self.probed(core, now, id, probed)
    }

    /// Goes on if its interface now has carrier.
    pub(super) fn on_carrier(&mut self, core: &mut Registry, id: RequestId, at: (Cookie, u32)) {
        if let Stage::Probes(probes) = &mut self.stage {
            probes.0.on_carrier(core, id, at);
        }
    }

    /// Returns the namespace that is about to have addresses.
    fn cookie(&self) -> Option<Cookie> {
        match &self.stage {
            Stage::LooksAtFormer | Stage::Looks(_) => None,
            Stage::Probes(probes) => probes.1.cookie,
            Stage::Records(recording) => recording.cookie,
        }
    }

    fn lacks_link(&self, cause: LinkCause) -> Failure {
        Failure::Link {
            target: format!("{} in {}", self.add.ifname(), self.add.netns.display()),
            cause,
        }
    }

    fn is_probing(&self) -> bool {
        matches!(self.stage, Stage::Probes(_))
    }

    /// Returns whether these are its sockets.
    pub(super) fn hears(&self, exchange: ExchangeId) -> bool {
        matches!(&self.stage, Stage::Probes(probes) if probes.0.hears(exchange))
    }

    pub(super) fn hang_up(mut self, core: &mut Registry, now: Now) -> Next {
        self.undo(core, now);
        Next::Nothing
    }
}

fn v4(address: IpAddr) -> Option<Ipv4Addr> {
    if let IpAddr::V4(address) = address {
        Some(address)
    } else {
        None
    }
}

impl Registry {
    /// Passes a frame to the call whose sockets it came in on.
    pub(in crate::registry) fn call_hears(&mut self, now: Now, exchange: ExchangeId, arp: &Arp) {
        let is_its = |job: &Job| matches!(job, Job::Range(job) if job.hears(exchange));
        if let Some((id, Job::Range(job))) = self.jobs.take(is_its) {
            let next = job.on_frame(self, now, id, arp);
            self.call_goes_on(id, next);
        }
    }

    /// Goes on with the ADDs that wait for an interface's carrier, which has come.
    pub(in crate::registry) fn ranges_have_carrier(&mut self, at: (Cookie, u32)) {
        let waiting = self
            .jobs
            .ids_of(|job| matches!(job, Job::Range(job) if job.is_probing()));
        for id in waiting {
            if let Some(Job::Range(mut job)) = self.jobs.by_id.remove(&id) {
                job.on_carrier(self, id, at);
                self.jobs.by_id.insert(id, Job::Range(job));
            }
        }
    }

    /// Begins an ADD of a network with local ranges.
    pub(super) fn add_from_ranges(&mut self, now: Now, id: RequestId, add: Box<RangeAdd>) -> Next {
        let attachment = add.attachment.clone();
        if self.jobs.ranging(&attachment).is_some() {
            return Next::Answers(Answer::Failed(Failure::Attached {
                attachment,
                netns: Some(add.netns),
            }));
        }
        self.time_call(id, now.boot + add.timeout);
        let held = self.ranges.held(&attachment).map(|held| &held.record);
        let known = held
            .filter(|record| record.netns == add.netns)
            .and_then(|record| record.cookie);
        let former = held
            .filter(|record| record.netns != add.netns)
            .map(|record| record.netns.clone());
        let job = Ranging {
            add,
            began: now.boot,
            stage: Stage::LooksAtFormer,
            tried: 0,
            known,
            died: Vec::new(),
        };
        match former {
            Some(netns) => {
                self.out.watch(Waiter::Call(id), netns);
                Next::Waits(Job::Range(job))
            }
            None => job.look(self, id, None),
        }
    }

    /// Gives back what an attachment has, if its namespace went without a DEL.
    fn end_if_dead(&mut self, now: Now, attachment: &Attachment, seen: &Result<Cookie, LinkCause>) {
        let Some(held) = self.ranges.held(attachment) else {
            return;
        };
        if Life::of(seen, held.record.cookie) == Life::Missing && held.record.cookie.is_some() {
            self.range_ends(now, attachment, "its namespace is gone, and no DEL came");
        }
    }

    /// Returns whether an attachment has addresses from local ranges, or is about to get some.
    pub(super) fn has_range(&self, attachment: &Attachment) -> bool {
        self.ranges.knows(attachment) || self.jobs.ranging(attachment).is_some()
    }

    /// Fails the ADDs of these attachments.
    pub(in crate::registry) fn cancel_ranging(
        &mut self,
        now: Now,
        is_one: impl Fn(&Attachment) -> bool,
    ) {
        let cancelled = |job: &Ranging| Failure::Cancelled(job.add.attachment.clone());
        self.fail_ranging(now, |job| is_one(&job.add.attachment), cancelled);
    }

    /// Fails the ADDs that are giving a dead namespace addresses. A look that is about to show it alive is not believed.
    pub(in crate::registry) fn ranging_died(&mut self, now: Now, cookie: Cookie) {
        self.fail_ranging(
            now,
            |job| job.cookie() == Some(cookie),
            Ranging::lacks_netns,
        );
        self.jobs.rangings().for_each(|job| job.died.push(cookie));
    }

    /// Fails the ADD under way that recorded an attachment's addresses, because their namespace is gone.
    pub(in crate::registry) fn fail_recording(&mut self, now: Now, attachment: &Attachment) {
        let records =
            |job: &Ranging| job.is_of(attachment) && matches!(job.stage, Stage::Records(_));
        self.fail_ranging(now, records, Ranging::lacks_netns);
    }

    fn fail_ranging(
        &mut self,
        now: Now,
        is_one: impl Fn(&Ranging) -> bool,
        why: impl Fn(&Ranging) -> Failure,
    ) {
        while let Some((id, Job::Range(mut job))) = self
            .jobs
            .take(|job| matches!(job, Job::Range(job) if is_one(job)))
        {
            let failure = why(&job);
            job.undo(self, now);
            self.call_goes_on(id, Next::Answers(Answer::Failed(failure)));
        }
    }
}
