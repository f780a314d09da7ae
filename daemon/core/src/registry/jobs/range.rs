//! An ADD of a network with local ranges: whether namespaces live, then the store, then the files, which follow it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use super::{Job, Next};
use crate::effect::{Answer, Failure, FileCause, FileChange, Outcome, RangeAdd, RangeAnswer, RequestId};
use crate::event::EventKind;
use crate::identity::Attachment;
use crate::link::{Cookie, LinkCause};
use crate::outbox::Waiter;
use crate::range::Given;
use crate::record::{Change, RangeChange, RangeRecord};
use crate::registry::Registry;
use crate::registry::ranges::{Life, range_event};
use crate::time::{Instant, Now};

/// How long an ADD waits for its files once the store has its record: a directory may be slow.
const FILES: Duration = Duration::from_millis(250);

/// How old an address from an earlier daemon may be if its caller may not have had the answer: a shim asks the next daemon
/// again.
const UNHEARD: Duration = Duration::from_secs(60);

/// An ADD under way.
#[derive(Debug)]
pub(in crate::registry) struct Ranging {
    add: Box<RangeAdd>,
    began: Instant,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Whether the namespace lives in which the attachment has addresses already.
    LooksAtFormer,
    /// Whether its own is there.
    Looks,
    Records(Box<Recording>),
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
    /// The addresses that others' files have.
    taken: Vec<(IpAddr, String)>,
}

/// A DEL under way.
#[derive(Debug)]
pub(in crate::registry) struct Parting {
    attachment: Attachment,
}

impl Parting {
    pub(super) fn done(self, core: &mut Registry, outcome: Outcome) -> Next {
        let Outcome::Persisted(result) = outcome else { return Next::Waits(Job::Parting(self)) };
        // A full store does not keep a container from being removed: at its next start the daemon finds the namespace gone.
        core.range_ended(&self.attachment, result.is_ok());
        Next::Answers(Answer::Deleted)
    }
}

impl Ranging {
    pub(super) fn done(mut self, core: &mut Registry, now: Now, id: RequestId, outcome: Outcome) -> Next {
        match (&mut self.stage, outcome) {
            (Stage::LooksAtFormer, Outcome::Watched(seen)) => {
                core.end_if_dead(now, &self.add.attachment, &seen);
                self.look(core, id)
            }
            (Stage::Looks, Outcome::Watched(seen)) => {
                let is_the_same =
                    core.ranges.held(&self.add.attachment).is_some_and(|held| held.record.netns == self.add.netns);
                if is_the_same {
                    core.end_if_dead(now, &self.add.attachment, &seen);
                }
                let life = Life::of(&seen, None);
                core.saw_namespace(now, &self.add.attachment, &self.add.netns, life);
                self.give(core, now, id, seen.ok())
            }
            (Stage::Records(recording), Outcome::Persisted(Ok(()))) => {
                recording.is_written = true;
                for (set, given) in recording.given.iter().enumerate() {
                    let file = (self.add.directory.as_path(), given.address.addr());
                    core.out.file(Some(Waiter::Call(id)), file, &self.add.attachment, FileChange::Write { set });
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

    pub(super) fn is_of(&self, attachment: &Attachment) -> bool {
        self.add.attachment == *attachment
    }

    /// Looks at its own namespace.
    fn look(mut self, core: &mut Registry, id: RequestId) -> Next {
        self.stage = Stage::Looks;
        core.out.watch(Waiter::Call(id), self.add.netns.clone());
        Next::Waits(Job::Range(self))
    }

    /// Takes addresses, and has them recorded.
    fn give(mut self, core: &mut Registry, now: Now, id: RequestId, cookie: Option<Cookie>) -> Next {
        // Addresses that are being given back are freed at once: the store keeps the order.
        core.range_ended(&self.add.attachment, true);
        let held = core.ranges.held(&self.add.attachment);
        let unheard = held.filter(|held| {
            let age = now.wall.saturating_since(held.record.since);
            held.is_recovered && age < UNHEARD && held.record.cookie.is_some() && held.record.cookie == cookie
        });
        if let Some(held) = unheard {
            let given = held.record.given.clone();
            return Next::Answers(Answer::Ranges(RangeAnswer::Given(given)));
        }
        let former = held.map(|held| held.record.clone());
        let given = match core.allocate(now, &self.add) {
            Ok(given) => given,
            Err(none) => {
                let running = core.ranges.running(&self.add.attachment);
                return Next::Answers(Answer::Failed(Failure::NoAddress { none, running }));
            }
        };
        let record = self.record(core, now, &given, cookie, former.as_ref());
        let mut changes = core.owed_to_store();
        changes.push(Change::Range(RangeChange::Put(Box::new(record.clone()))));
        changes.push(range_event(now, &self.add.attachment, EventKind::Acquired, &given, "ADD, from a local range"));
        core.out.write_for(Waiter::Call(id), changes);
        core.ranges.hold(record, false);
        let files = given.iter().map(|given| given.address.addr()).collect();
        self.stage =
            Stage::Records(Box::new(Recording { given, cookie, former, is_written: false, files, taken: Vec::new() }));
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
        }
    }

    /// Goes on when the store has the record: answers once the files are there, or takes others for addresses that are taken.
    fn goes_on(mut self, core: &mut Registry, now: Now, id: RequestId) -> Next {
        let Stage::Records(recording) = &mut self.stage else { return Next::Waits(Job::Range(self)) };
        if !recording.is_written || !recording.files.is_empty() {
            if recording.is_written {
                core.time_call(id, now.boot + FILES);
            }
            return Next::Waits(Job::Range(self));
        }
        if recording.taken.is_empty() {
            return Next::Answers(Answer::Ranges(RangeAnswer::Given(std::mem::take(&mut recording.given))));
        }
        let (taken, cookie) = (std::mem::take(&mut recording.taken), recording.cookie);
        let Attachment::Cni { network, .. } = &self.add.attachment else { return Next::Nothing };
        let network = network.clone();
        self.undo(core, now);
        for (address, by) in taken {
            tracing::info!(%address, by, "another host-local gave it out: taking another");
            core.ranges.found_file(&network, address, Attachment::cni(&*network, by, ""));
        }
        core.time_call(id, self.began + self.add.timeout);
        self.give(core, now, id, cookie)
    }

    /// Takes back what was recorded.
    fn undo(&mut self, core: &mut Registry, now: Now) {
        let Stage::Records(recording) = &mut self.stage else { return };
        let attachment = &self.add.attachment;
        let addresses: Vec<_> = recording.given.iter().map(|given| given.address.addr()).collect();
        core.ranges.vacate(attachment, &addresses);
        for address in addresses {
            core.out.file(None, (&self.add.directory, address), attachment, FileChange::Remove);
        }
        let change = match recording.former.take() {
            Some(former) => {
                core.ranges.hold(former.clone(), false);
                RangeChange::Put(Box::new(former))
            }
            None => {
                core.ranges.drop_held(attachment);
                RangeChange::Remove(attachment.clone())
            }
        };
        let note = range_event(now, attachment, EventKind::Released, &recording.given, "the ADD failed");
        core.out.write_for(Waiter::Journal, vec![Change::Range(change), note]);
    }

    pub(super) fn time_out(mut self, core: &mut Registry, now: Now) -> Next {
        let waited = crate::time::whole_millis(now.boot.saturating_since(self.began));
        let waiting_for = match &mut self.stage {
            // The files follow.
            Stage::Records(recording) if recording.is_written && recording.taken.is_empty() => {
                return Next::Answers(Answer::Ranges(RangeAnswer::Given(std::mem::take(&mut recording.given))));
            }
            Stage::Records(_) => "the store",
            Stage::LooksAtFormer | Stage::Looks => "a look at the container's namespace",
        };
        self.undo(core, now);
        Next::Answers(Answer::Failed(Failure::TimedOut { waiting_for, waited }))
    }

    pub(super) fn hang_up(mut self, core: &mut Registry, now: Now) -> Next {
        self.undo(core, now);
        Next::Nothing
    }
}

impl Registry {
    /// An ADD of a network with local ranges.
    pub(super) fn add_from_ranges(&mut self, now: Now, id: RequestId, add: Box<RangeAdd>) -> Next {
        let attachment = add.attachment.clone();
        if self.jobs.ranging(&attachment).is_some() {
            return Next::Answers(Answer::Failed(Failure::Attached { attachment, netns: Some(add.netns) }));
        }
        self.time_call(id, now.boot + add.timeout);
        let former = self.ranges.held(&attachment).filter(|held| held.record.netns != add.netns);
        let former = former.map(|held| held.record.netns.clone());
        let mut job = Ranging { add, began: now.boot, stage: Stage::LooksAtFormer };
        match former {
            Some(netns) => {
                self.out.watch(Waiter::Call(id), netns);
                Next::Waits(Job::Range(job))
            }
            None => {
                job.stage = Stage::Looks;
                job.look(self, id)
            }
        }
    }

    /// Gives back what an attachment has, if its namespace is gone without a DEL.
    fn end_if_dead(&mut self, now: Now, attachment: &Attachment, seen: &Result<Cookie, LinkCause>) {
        let Some(held) = self.ranges.held(attachment) else { return };
        if Life::of(seen, held.record.cookie) == Life::Missing && held.record.cookie.is_some() {
            self.range_ends(now, attachment, "its namespace is gone, and no DEL came");
        }
    }

    /// Returns whether an attachment has addresses from local ranges, or is about to get some.
    pub(super) fn has_range(&self, attachment: &Attachment) -> bool {
        self.ranges.knows(attachment) || self.jobs.ranging(attachment).is_some()
    }

    /// A DEL of an attachment that has addresses from local ranges.
    pub(super) fn del_from_ranges(&mut self, now: Now, id: RequestId, attachment: Attachment) -> Next {
        if let Some((add, Job::Range(mut job))) = self.jobs.take_ranging(&attachment) {
            job.undo(self, now);
            self.call_goes_on(add, Next::Answers(Answer::Failed(Failure::Cancelled(attachment.clone()))));
        }
        self.remove_files(&attachment);
        if !self.ranges.leaves(&attachment) {
            return Next::Answers(Answer::Deleted);
        }
        let changes = self.end_of_range(now, &attachment, "DEL");
        self.out.write_for(Waiter::Call(id), changes);
        Next::Waits(Job::Parting(Parting { attachment }))
    }
}
