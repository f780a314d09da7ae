//! host-local's lock: an exclusive lock of the file `lock` in the network's directory (flock(2)). Who waits for it, waits for a time.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use leasehold_api::cni::{Code, Error};

/// How far work on a directory has come, for whoever waits for its end.
#[derive(Debug, Default)]
pub struct Progress(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The lock that it waits for: its path, and the inode by which the kernel lists it.
    awaits: Option<(PathBuf, u64)>,
    /// Nobody waits for the work any more: nothing more is changed.
    is_late: bool,
}

impl Progress {
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn awaits(&self, path: &Path, file: &File) {
        let ino = file.metadata().map_or(0, |found| found.ino());
        self.change(|state| state.awaits = Some((path.to_owned(), ino)));
    }

    /// Records that the lock is had. Returns whether somebody still waits for the work.
    pub(crate) fn has_lock(&self) -> bool {
        self.change(|state| {
            state.awaits = None;
            !state.is_late
        })
    }
}

impl State {
    /// Records that time is up. Returns what keeps the work from its end.
    fn end(&mut self, patience: Duration, directory: &Path) -> Error {
        self.is_late = true;
        let waited = patience.as_secs_f64();
        let text = match self.awaits.take() {
            Some((lock, ino)) => {
                let holder = holder(ino);
                format!(
                    "{} has been locked for {waited} s by {holder}",
                    lock.display()
                )
            }
            None => format!(
                "{} has not been read and written within {waited} s: it may be on a device that does not answer",
                directory.display()
            ),
        };
        Error::new(Code::TryAgainLater, text)
    }
}

/// Does work on a directory. When `patience` ends first, `late` is told why, on another thread. The work goes on with a lock, or
/// returns, only once `late` has returned.
///
/// A thread that only sleeps costs a call less than one that does the work while this one sleeps.
///
/// # Errors
/// What the work fails with.
pub(crate) fn watched<T>(
    patience: Duration,
    directory: &Path,
    late: impl FnOnce(Error) + Send + 'static,
    work: impl FnOnce(&Progress) -> Result<T, Error>,
) -> Result<T, Error> {
    let progress = Arc::new(Progress::default());
    let (work_goes_on, end) = mpsc::channel::<()>();
    let its = progress.clone();
    let directory = directory.to_owned();
    let watch = move || {
        if end.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            its.change(|state| {
                // The work may have ended just now.
                if end.try_recv() == Err(TryRecvError::Empty) {
                    late(state.end(patience, &directory));
                }
            });
        }
    };
    let started = thread::Builder::new().name("watch".to_owned()).spawn(watch);
    started.map_err(|error| Error::new(Code::TryAgainLater, error.to_string()))?;
    let outcome = work(&progress);
    drop(work_goes_on);
    progress.change(|_| outcome)
}

/// Does work on a directory. Whatever the directory, its disk or its lock does, this takes no longer than `patience`.
///
/// # Errors
/// What the work fails with, or what keeps it from its end.
pub(crate) fn within<T: Send + 'static>(
    patience: Duration,
    directory: PathBuf,
    work: impl FnOnce(&Progress) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let (done, outcome) = mpsc::channel();
    thread::spawn(move || {
        let late = done.clone();
        // Nobody may listen any more.
        let late = move |error| drop(late.send(Err(error)));
        drop(done.send(watched(patience, &directory, late, work)));
    });
    outcome.recv().expect("the work ends, or is late")
}

/// Returns who has the lock with this inode, for messages.
fn holder(ino: u64) -> String {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let Some(pid) = holder_in(&locks, ino) else {
        return "a process that cannot be seen from here".to_owned();
    };
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match name.trim() {
        "" => format!("process {pid}"),
        name => format!("process {pid} ({name})"),
    }
}

/// Finds the process that has a file of this inode locked as a whole (proc_locks(5)). Waiting ones are marked by an arrow.
fn holder_in(locks: &str, ino: u64) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let [kind, _, _, pid, file] = [(); 5].map(|()| words.next());
        let (_, of) = file?.rsplit_once(':')?;
        let is_it = kind == Some("FLOCK") && of.parse() == Ok(ino);
        pid?.parse().ok().filter(|pid| is_it && *pid != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fd:00:77 0 EOF\n2: FLOCK  ADVISORY  WRITE 12 fd:00:76 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 13 fd:00:77 0 EOF\n3: -> FLOCK  ADVISORY  WRITE 14 fd:00:77 0 EOF\n";
        assert_eq!(holder_in(locks, 77), Some(13));
        assert_eq!(holder_in(locks, 78), None);
        assert_eq!(
            holder_in("4: FLOCK ADVISORY WRITE 0 00:30:9 0 EOF", 9),
            None
        );
    }
}
