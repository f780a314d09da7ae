//! host-local's files, `<dataDir>/<network>/<address>` and `last_reserved_ip.<set>`: they are written so that users can go back
//! to host-local, and read so that an address that somebody else gave is not given again.
//!
//! The store decides; the files follow. Everything happens on a separate thread, which nobody waits for longer than a moment: a
//! directory may be full, read-only or slow. What fails is tried again.
//!
//! [`looks`] has calls wait for a first look at a directory, [`directory`] works in one, [`wish`] knows what should happen
//! to a file, [`gone`] which containers have ended.

mod directory;
mod gone;
mod looks;
#[cfg(test)]
mod tests;
mod wish;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_api::cni::{File, Holder};
use leasehold_core::effect::{FileCause, FileChange, FoundFile, OpId, Outcome};
use leasehold_core::identity::Attachment;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use self::directory::Directory;
use self::gone::Gone;
use self::wish::{Wish, holder};

pub(crate) use self::looks::Looks;

/// The pause before another try; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long the end of the daemon waits for the last files.
const CLOSING: Duration = Duration::from_millis(500);

/// The driver's end.
#[derive(Debug)]
pub(crate) struct DataDirs {
    jobs: Sender<Job>,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
    /// The removals under way: a file that was found before its removal no longer counts.
    removals: HashMap<(PathBuf, IpAddr), usize>,
}

/// What the thread reports.
#[derive(Debug)]
pub(crate) enum FileReport {
    /// A change is over.
    Filed(Filed),
    /// A directory was looked at.
    Found(Found),
}

/// A change that is over.
#[derive(Debug)]
pub(crate) struct Filed {
    op: Option<OpId>,
    directory: PathBuf,
    address: IpAddr,
    is_removal: bool,
    result: Result<(), FileCause>,
}

/// What lies in a network's directory.
#[derive(Debug)]
pub(crate) struct Found {
    /// The network.
    pub(crate) network: String,
    /// Its directory.
    pub(crate) directory: PathBuf,
    /// The files of addresses.
    pub(crate) files: Vec<FoundFile>,
    /// The last address given of each set.
    pub(crate) last: Vec<(usize, IpAddr)>,
    /// To be dropped when the core has the findings, so that those who wait for the look go on.
    pub(crate) known: watch::Sender<()>,
}

#[derive(Debug)]
enum Job {
    Change {
        op: Option<OpId>,
        directory: PathBuf,
        address: IpAddr,
        of: Attachment,
        change: FileChange,
    },
    Look {
        network: String,
        directory: PathBuf,
        known: watch::Sender<()>,
    },
    /// Stop, after all earlier jobs.
    Close,
}

impl DataDirs {
    /// Starts the thread. The host's root is at `host_prefix`, and the host's runtimes keep a record of what runs in `caches`.
    pub(crate) fn start(
        host_prefix: &Path,
        caches: &[PathBuf],
        reports: UnboundedSender<FileReport>,
    ) -> io::Result<(Self, Looks)> {
        Self::start_with(host_prefix, caches, reports, FIRST_PAUSE)
    }

    fn start_with(
        host_prefix: &Path,
        caches: &[PathBuf],
        reports: UnboundedSender<FileReport>,
        first_pause: Duration,
    ) -> io::Result<(Self, Looks)> {
        let (jobs, queue) = channel();
        let (end, ended) = channel();
        let gone = Gone::new(host_prefix, caches);
        let files = Files {
            host_prefix: host_prefix.to_owned(),
            gone,
            reports,
            undone: BTreeMap::new(),
            troubled: BTreeSet::new(),
            seen: HashSet::new(),
            first_pause,
            pause: first_pause,
            next_try: Instant::now(),
        };
        thread::Builder::new()
            .name("data-dir".to_owned())
            .spawn(move || {
                files.serve(&queue);
                drop(end);
            })?;
        let looks = Looks::new(jobs.clone());
        Ok((
            Self {
                jobs,
                ended,
                removals: HashMap::new(),
            },
            looks,
        ))
    }

    /// Has the file of an attachment's address written or removed. Changes of one file keep their order.
    pub(crate) fn change(
        &mut self,
        op: Option<OpId>,
        directory: PathBuf,
        address: IpAddr,
        of: &Attachment,
        change: FileChange,
    ) {
        if change == FileChange::Remove {
            *self
                .removals
                .entry((directory.clone(), address))
                .or_default() += 1;
        }
        let job = Job::Change {
            op,
            directory,
            address,
            of: of.clone(),
            change,
        };
        self.jobs
            .send(job)
            .expect("the thread ends only when it is told to");
    }

    /// Records that a change is over. Returns the result for the core.
    pub(crate) fn filed(&mut self, filed: Filed) -> Option<(OpId, Outcome)> {
        let Filed {
            op,
            directory,
            address,
            is_removal,
            result,
        } = filed;
        let key = (directory, address);
        if is_removal && let Some(count) = self.removals.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.removals.remove(&key);
            }
        }
        Some((op?, Outcome::Filed { address, result }))
    }

    /// Removes from the findings the files that are being removed.
    pub(crate) fn without_removed(&self, mut found: Found) -> Found {
        let Found {
            directory, files, ..
        } = &mut found;
        files.retain(|file| {
            !self
                .removals
                .contains_key(&(directory.clone(), file.address))
        });
        found
    }
}

impl Drop for DataDirs {
    /// Lets the thread finish, unless a directory takes too long.
    fn drop(&mut self) {
        let _ = self.jobs.send(Job::Close);
        let _ = self.ended.recv_timeout(CLOSING);
    }
}

/// Everything that the thread has.
struct Files {
    host_prefix: PathBuf,
    gone: Gone,
    reports: UnboundedSender<FileReport>,
    /// What could not be done.
    undone: BTreeMap<(PathBuf, IpAddr), Wish>,
    /// The directories that the log has complained about.
    troubled: BTreeSet<PathBuf>,
    /// The directories that were looked at.
    seen: HashSet<PathBuf>,
    first_pause: Duration,
    pause: Duration,
    next_try: Instant,
}

impl Files {
    fn serve(mut self, queue: &Receiver<Job>) {
        loop {
            let next = match self.undone.is_empty() {
                true => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => {
                    queue.recv_timeout(self.next_try.saturating_duration_since(Instant::now()))
                }
            };
            match next {
                // The next daemon compares all files.
                Ok(Job::Close) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(job) => self.carry_out(job),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if !self.undone.is_empty() && self.next_try <= Instant::now() {
                self.try_again();
            }
        }
    }

    fn carry_out(&mut self, job: Job) {
        match job {
            Job::Change {
                op,
                directory,
                address,
                of,
                change,
            } => {
                let at = Directory::new(directory, &self.host_prefix);
                let result = self.change(&at, op.is_none(), address, &of, change);
                let (directory, is_removal) = (at.name().to_owned(), change == FileChange::Remove);
                // While the daemon stops nobody listens any more.
                let _ = self.reports.send(FileReport::Filed(Filed {
                    op,
                    directory,
                    address,
                    is_removal,
                    result,
                }));
            }
            Job::Look {
                network,
                directory,
                known,
            } => {
                self.look(
                    &Directory::new(directory, &self.host_prefix),
                    network,
                    known,
                );
            }
            Job::Close => {}
        }
    }

    fn change(
        &mut self,
        at: &Directory,
        is_given: bool,
        address: IpAddr,
        of: &Attachment,
        change: FileChange,
    ) -> Result<(), FileCause> {
        let key = (at.name().to_owned(), address);
        let mut wish = self.undone.remove(&key).unwrap_or_default();
        match change {
            FileChange::Write { set } => wish.write(holder(of), set),
            FileChange::Remove => wish.remove(holder(of)),
        }
        let result = at.follow(address, &wish, is_given);
        match &result {
            Err(FileCause::Later(cause)) => self.put_off(key, wish, cause),
            Err(FileCause::Taken(by)) if is_given => {
                warn!(directory = %at.name().display(), %address, %of, by, "the file of an address in use is not ours");
            }
            Ok(()) | Err(FileCause::Taken(_)) => {}
        }
        result
    }

    fn put_off(&mut self, key: (PathBuf, IpAddr), wish: Wish, cause: &str) {
        if self.undone.is_empty() {
            self.pause = self.first_pause;
            self.next_try = Instant::now() + self.pause;
        }
        if self.troubled.insert(key.0.clone()) {
            warn!(directory = %key.0.display(), cause, "host-local's files cannot be kept there now: trying again");
        }
        self.undone.insert(key, wish);
    }

    fn try_again(&mut self) {
        for ((path, address), wish) in std::mem::take(&mut self.undone) {
            match Directory::new(path.clone(), &self.host_prefix).follow(address, &wish, true) {
                Ok(()) => {}
                Err(FileCause::Later(cause)) => {
                    debug!(directory = %path.display(), %address, cause, "file still not as it should be");
                    self.undone.insert((path, address), wish);
                }
                Err(FileCause::Taken(by)) => {
                    warn!(directory = %path.display(), %address, by, "the file of an address in use is not ours");
                }
            }
        }
        let undone: BTreeSet<_> = self.undone.keys().map(|(path, _)| path.clone()).collect();
        for path in self.troubled.difference(&undone) {
            info!(directory = %path.display(), "host-local's files are kept there again");
        }
        self.troubled = undone;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.next_try = Instant::now() + self.pause;
    }

    fn look(&mut self, at: &Directory, network: String, known: watch::Sender<()>) {
        let found = match at.look() {
            Ok(found) => found,
            Err(error) => {
                if self.troubled.insert(at.name().to_owned()) {
                    warn!(directory = %at.name().display(), %error, "cannot learn which addresses others gave out there");
                }
                return;
            }
        };
        // On a later look there are only strays, and their runtime may not yet say that they run.
        let is_first = self.seen.insert(at.name().to_owned());
        let gone = is_first.then(|| self.gone.of(&network));
        let (mut files, mut last) = (Vec::new(), Vec::new());
        for (file, written) in found {
            match file {
                File::Last { set, address } => last.push((set, address)),
                File::Taken { address, by } if !self.is_stale(at, address, by.as_ref()) => {
                    let gone = gone
                        .as_ref()
                        .is_some_and(|gone| gone.is_gone(by.as_ref(), written));
                    let (container, ifname) =
                        by.map_or((None, None), |by| (Some(by.container), by.ifname));
                    files.push(FoundFile {
                        address,
                        container,
                        ifname,
                        gone,
                    });
                }
                File::Taken { .. } => {}
            }
        }
        debug!(directory = %at.name().display(), files = files.len(), "looked at which addresses others gave out");
        let directory = at.name().to_owned();
        let _ = self.reports.send(FileReport::Found(Found {
            network,
            directory,
            files,
            last,
            known,
        }));
    }

    /// Returns whether a file should have been removed.
    fn is_stale(&self, at: &Directory, address: IpAddr, by: Option<&Holder>) -> bool {
        self.undone
            .get(&(at.name().to_owned(), address))
            .is_some_and(|wish| wish.is_stale(by))
    }
}
