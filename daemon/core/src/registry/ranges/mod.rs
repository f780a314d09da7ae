//! Addresses from local ranges: who has them, and when they are free again.
//!
//! No packet is sent and no interface needed. `networks` has the tables; an ADD is a job (`jobs/range.rs`). The files in a
//! network's directory are the shell's: it says what others gave, and follows what we give. A DEL, a GC, the end of the
//! namespace or a reboot ends a container's addresses.

mod networks;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use self::networks::{Compared, is_interface, is_of};
pub(super) use self::networks::{Held, Ranges};
use super::Registry;
use super::timers::Key;
use crate::effect::{FileChange, FoundFile, Outcome, RangeAdd, RequestId, Why};
use crate::event::{Event, EventKind};
use crate::identity::{AddressHolder, Attachment};
use crate::link::{Cookie, LinkCause, directory_of};
use crate::outbox::{RangeWait, Waiter};
use crate::range::{Given, NoAddress};
use crate::record::{Change, RangeChange, RangeRecord};
use crate::time::{BootId, Now};

/// The pause before the store is told again what it should forget.
const PAUSE: Duration = Duration::from_secs(10);

/// Whether a namespace lives, as far as a look at it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Lives(Cookie),
    /// Nothing is there, or something else.
    Missing,
    Unclear,
}

impl Life {
    /// Returns what a look at a namespace says; `known`: which one it was, if that is known.
    pub(super) fn of(seen: &Result<Cookie, LinkCause>, known: Option<Cookie>) -> Self {
        match seen {
            Ok(cookie) if known.is_none_or(|known| known == *cookie) => Self::Lives(*cookie),
            Ok(_)
            | Err(LinkCause::NoNetns(_) | LinkCause::NotANetns(_) | LinkCause::NetnsChanged(_)) => {
                Self::Missing
            }
            Err(_) => Self::Unclear,
        }
    }
}

impl Registry {
    /// Takes over what an earlier daemon gave. Only the memory of who had which address outlives a reboot.
    pub(crate) fn recover_ranges(
        &mut self,
        now: Now,
        boot: &BootId,
        mut records: Vec<RangeRecord>,
    ) {
        records.sort_unstable_by_key(|record| record.since);
        for record in records {
            if record.past {
                self.ranges.remember(&record);
            } else if record.boot == *boot {
                self.out.watch(
                    Waiter::Range(RangeWait::Look(record.attachment.clone())),
                    record.netns.clone(),
                );
                self.hold_range(record, true);
            } else {
                self.hold_range(record.clone(), true);
                self.range_ends(now, &record.attachment, "the host was rebooted");
            }
        }
    }

    /// Records what an attachment has, instead of what it had. No binding takes its addresses.
    pub(super) fn hold_range(&mut self, record: RangeRecord, is_recovered: bool) {
        self.free_for_bindings(&record.attachment);
        let attachment = Arc::new(record.attachment.clone());
        for given in &record.given {
            self.bindings
                .note_of_range(&record.lan, given.address.addr(), &attachment);
        }
        self.ranges.hold(record, is_recovered);
    }

    /// Lets bindings take the addresses that an attachment had.
    pub(super) fn free_for_bindings(&mut self, attachment: &Attachment) {
        let Some(Held { record, .. }) = self.ranges.held(attachment) else {
            return;
        };
        for given in &record.given {
            self.bindings
                .forget_of_range(&record.lan, given.address.addr(), attachment);
        }
    }

    /// Has the store delete what an attachment has; its addresses are free when that is done. `cause`: why, for its event.
    pub(super) fn range_ends(&mut self, now: Now, attachment: &Attachment, cause: &str) {
        if self.ranges.leaves(attachment) {
            let changes = self.end_of_range(now, attachment, cause);
            self.out
                .write_for(Waiter::Range(RangeWait::Gone(attachment.clone())), changes);
        }
    }

    /// Returns the changes that delete what an attachment has from the store.
    pub(super) fn end_of_range(
        &mut self,
        now: Now,
        attachment: &Attachment,
        cause: &str,
    ) -> Vec<Change> {
        let record = self.ranges.held(attachment).map(|held| held.record.clone());
        let given = record
            .as_ref()
            .map(|record| record.given.clone())
            .unwrap_or_default();
        // An identity that returns gets the same again, after a restart too.
        let past = record.filter(|record| record.returns_as.is_some());
        let change = match past {
            Some(record) => RangeChange::Put(Box::new(RangeRecord {
                past: true,
                ..record
            })),
            None => RangeChange::Remove(attachment.clone()),
        };
        vec![
            Change::Range(change),
            range_event(now, attachment, EventKind::Released, &given, cause),
        ]
    }

    /// Has the store delete what it could not delete before, and repeats that until it succeeds.
    pub(super) fn pay_debts(&mut self, now: Now) {
        let owed = std::mem::take(&mut self.ranges.owed);
        if !owed.is_empty() {
            let changes = owed
                .iter()
                .map(|by| Change::Range(RangeChange::Remove(by.clone())))
                .collect();
            self.out
                .write_for(Waiter::Range(RangeWait::Owed(owed)), changes);
        }
        self.time_debts(now);
    }

    fn time_debts(&mut self, now: Now) {
        let is_due = !self.ranges.owed.is_empty();
        self.timers
            .set(Key::Debts, is_due.then(|| (now.boot + PAUSE, Why::Store)));
    }

    /// Frees what an attachment has: the store has deleted it, or will do so with the next successful write. Returns the addresses
    /// whose files are being removed; `call` waits for that.
    pub(super) fn range_ended(
        &mut self,
        now: Now,
        attachment: &Attachment,
        is_written: bool,
        call: Option<RequestId>,
    ) -> BTreeSet<IpAddr> {
        // A successor may have taken its place.
        if self
            .ranges
            .held(attachment)
            .is_some_and(|held| !held.is_leaving)
        {
            return BTreeSet::new();
        }
        if !is_written {
            self.ranges.owed.insert(attachment.clone());
        }
        self.free_for_bindings(attachment);
        let released = self.ranges.release(attachment);
        self.time_debts(now);
        let Some(record) = released else {
            return BTreeSet::new();
        };
        let addresses: BTreeSet<_> = record
            .given
            .iter()
            .map(|given| given.address.addr())
            .collect();
        for address in &addresses {
            self.out.file(
                call.map(Waiter::Call),
                (&record.directory, *address),
                attachment,
                FileChange::Remove,
            );
        }
        addresses
    }

    /// Removes the files in which others say that an attachment has addresses.
    pub(super) fn remove_files(&mut self, attachment: &Attachment) {
        let Some(directory) = self.ranges.directory(attachment) else {
            return;
        };
        for (address, by) in self.ranges.files_of(attachment) {
            self.ranges.forget_file(attachment.network(), address);
            self.out
                .file(None, (&directory, address), &by, FileChange::Remove);
        }
    }

    /// Gives back what those attachments of a network have that a GC does not name.
    pub(super) fn collect_ranges(&mut self, now: Now, network: &str, keep: &[(String, String)]) {
        let is_kept = |attachment: &Attachment| {
            keep.iter()
                .any(|(container, ifname)| is_interface(attachment, container, ifname))
        };
        self.cancel_ranging(now, |attachment| {
            is_of(attachment, network) && !is_kept(attachment)
        });
        for attachment in self
            .ranges
            .attachments(network)
            .into_iter()
            .filter(|attachment| !is_kept(attachment))
        {
            self.range_ends(now, &attachment, "a GC does not name it");
            self.remove_files(&attachment);
        }
    }

    /// Takes over what the shell found in a network's directory.
    pub(crate) fn files_found(
        &mut self,
        network: &str,
        directory: PathBuf,
        found: Vec<FoundFile>,
        last: Vec<(usize, IpAddr)>,
    ) {
        let Compared { gone, lacking } =
            self.ranges
                .on_files(network, directory.clone(), found, last);
        for (address, by) in gone {
            tracing::info!(%address, %by, "its container is gone: free again");
            self.out
                .file(None, (&directory, address), &by, FileChange::Remove);
        }
        for (address, by, set) in lacking {
            self.out
                .file(None, (&directory, address), &by, FileChange::Write { set });
        }
    }

    /// Frees what the attachments of a dead namespace have.
    pub(super) fn ranges_died(&mut self, now: Now, cookie: Cookie) {
        self.ranging_died(now, cookie);
        let dead = self
            .ranges
            .all_held()
            .filter(|(_, held)| held.record.cookie == Some(cookie));
        for attachment in dead
            .map(|(attachment, _)| attachment.clone())
            .collect::<Vec<_>>()
        {
            self.range_ends(now, &attachment, "its namespace is gone");
        }
    }

    /// Looks at the namespaces of these attachments.
    pub(super) fn look_at_ranges(&mut self, which: impl Fn(&Attachment) -> bool) {
        let held = self
            .ranges
            .all_held()
            .filter(|(by, held)| !held.is_leaving && which(by));
        for (attachment, netns) in held
            .map(|(by, held)| (by.clone(), held.record.netns.clone()))
            .collect::<Vec<_>>()
        {
            self.out
                .watch(Waiter::Range(RangeWait::Look((*attachment).clone())), netns);
        }
    }

    /// Ends an effect for local ranges that no call waits for.
    pub(super) fn range_done(&mut self, now: Now, wait: RangeWait, outcome: Outcome) {
        match (wait, outcome) {
            (RangeWait::Gone(attachment), Outcome::Persisted(result)) => {
                self.range_ended(now, &attachment, result.is_ok(), None);
            }
            // What has been given since is written already.
            (RangeWait::Owed(owed), Outcome::Persisted(Err(_))) => {
                let still = owed.into_iter().filter(|by| self.ranges.held(by).is_none());
                self.ranges.owed.extend(still.collect::<Vec<_>>());
                self.time_debts(now);
            }
            (RangeWait::Look(attachment), Outcome::Watched(seen)) => {
                let Some(held) = self
                    .ranges
                    .held(&attachment)
                    .filter(|held| !held.is_leaving)
                else {
                    return;
                };
                let (life, netns) = (
                    Life::of(&seen, held.record.cookie),
                    held.record.netns.clone(),
                );
                self.saw_namespace(now, &attachment, &netns, life);
            }
            _ => {}
        }
    }

    /// Concludes what a look at an attachment's namespace says. A missing namespace is gone only if another is then seen, and it
    /// is still missing after that.
    pub(super) fn saw_namespace(
        &mut self,
        now: Now,
        attachment: &Attachment,
        netns: &Path,
        life: Life,
    ) {
        let directory = directory_of(netns);
        match life {
            Life::Lives(_) => {
                let missing = self.ranges.sight.saw(directory, attachment);
                self.look_at_ranges(|attachment| missing.contains(attachment));
            }
            Life::Missing if self.ranges.held(attachment).is_some() => {
                if self.ranges.sight.takes_voucher(attachment) {
                    self.fail_recording(now, attachment);
                    self.range_ends(now, attachment, "its namespace is gone");
                } else if self.ranges.sight.doubt(directory, attachment.clone()) {
                    self.look_at_another(directory);
                }
            }
            Life::Missing | Life::Unclear => {}
        }
    }

    /// Looks at a namespace in a directory where another is missing, to see whether any is seen there.
    fn look_at_another(&mut self, directory: &Path) {
        let sight = &self.ranges.sight;
        let is_one = |by: &Attachment, netns: &Path| {
            directory_of(netns) == directory && !sight.doubts(directory, by)
        };
        let other = self
            .ranges
            .all_held()
            .find(|(by, held)| !held.is_leaving && is_one(by, &held.record.netns));
        if let Some(other) = other.map(|(by, _)| by.clone()) {
            self.look_at_ranges(|attachment| *attachment == *other);
        }
    }

    /// Gives an attachment an address of each set.
    pub(super) fn allocate(&mut self, now: Now, add: &RangeAdd) -> Result<Vec<Given>, NoAddress> {
        self.ranges.enter(add);
        let (holders, lans) = (self.bindings.holders(), &self.conflicts);
        let others = |address| {
            let IpAddr::V4(address) = address else {
                return None;
            };
            let station = || {
                lans.user(&add.lan, address, now.boot)
                    .map(AddressHolder::Station)
            };
            holders.claimant(&add.lan, address).or_else(station)
        };
        self.ranges.allocate(add, &others, now.wall)
    }
}

/// Returns the event of an attachment's addresses, which bears the first of them.
pub(super) fn range_event(
    now: Now,
    attachment: &Attachment,
    kind: EventKind,
    given: &[Given],
    cause: &str,
) -> Change {
    let address = given.first().map(|given| given.address);
    let (attachment, cause) = (attachment.clone(), cause.to_owned());
    Change::Note(Box::new(Event {
        wall: now.wall,
        attachment,
        kind,
        address,
        server: None,
        cause,
        run: None,
    }))
}
