//! host-local's lock: an exclusive lock of the file `lock` in the network's directory (flock(2)). Every wait for it has an end.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use leasehold_api::cni::{Code, Error};

/// How far work on a directory has come, for whoever waits for its end.
#[derive(Debug, Default)]
pub struct Progress {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The lock that it waits for: its path, and the inode by which the kernel lists it.
    awaits: Option<(PathBuf, u64)>,
    /// The work has ended in time.
    is_over: bool,
    /// Nobody waits for the work any more: nothing more is changed.
    is_late: bool,
}

impl Progress {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn awaits(&self, path: &Path, file: &File) {
        let ino = file.metadata().map_or(0, |found| found.ino());
        self.state().awaits = Some((path.to_owned(), ino));
    }

    /// Records that the work has the lock. Returns whether somebody still waits for the work.
    pub(crate) fn has_lock(&self) -> bool {
        let mut state = self.state();
        state.awaits = None;
        !state.is_late
    }

    /// Waits for the end of the work. If `patience` ends first, calls `late`, and holds the work up until that returns.
    fn watch(&self, patience: Duration, directory: &Path, late: impl FnOnce(Error)) {
        let unended = |state: &mut State| !state.is_over;
        let waited = self
            .ended
            .wait_timeout_while(self.state(), patience, unended);
        let (mut state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            late(state.end(patience, directory));
        }
    }

    /// Records that the work has ended. If it is late, waits until somebody has been told.
    fn end(&self) {
        self.state().is_over = true;
        self.ended.notify_one();
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

/// Does work on a directory. If `patience` ends first, another thread passes the reason to `late`. From then on, the work can
/// neither go on with a lock nor return before `late` has returned.
///
/// The work stays on the calling thread, and a new thread waits for the time-out: a call is faster that way than the other way
/// round.
///
/// # Errors
/// What the work fails with, or that it panicked.
pub(crate) fn watched<T>(
    patience: Duration,
    directory: &Path,
    late: impl FnOnce(Error) + Send + 'static,
    work: impl FnOnce(&Progress) -> Result<T, Error>,
) -> Result<T, Error> {
    let progress = Arc::new(Progress::default());
    let its = progress.clone();
    let directory = directory.to_owned();
    start("watch", move || its.watch(patience, &directory, late))?;
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| work(&progress)));
    progress.end();
    outcome.unwrap_or_else(|_| {
        let text =
            "the call broke off: this is a bug in leasehold, and its standard error says where";
        Err(Error::new(Code::Io, text))
    })
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
    start("files", move || {
        let late = done.clone();
        // Nobody may listen any more.
        let late = move |error| drop(late.send(Err(error)));
        drop(done.send(watched(patience, &directory, late, work)));
    })?;
    outcome
        .recv()
        .expect("the work returns, panics or is late, and `watched` reports each")
}

fn start(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    match thread::Builder::new().name(name.to_owned()).spawn(run) {
        Ok(_) => Ok(()),
        Err(error) => {
            let text =
                format!("cannot start a thread: {error}: is the limit of processes too low?");
            Err(Error::new(Code::TryAgainLater, text))
        }
    }
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

/// Finds the process that has locked the whole file with this inode (proc_locks(5)). An arrow marks a process that waits.
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

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_panic_is_an_error_of_the_call() {
        let at = Path::new("/nowhere");
        let never_late = |error| panic!("late: {error:?}");
        let work = |_: &Progress| -> Result<(), Error> { panic!("as a bug would") };
        let beside = watched(LONG, at, never_late, work).expect_err("it panicked");
        let within = within(LONG, at.to_owned(), work).expect_err("it panicked");
        for error in [beside, within] {
            assert_eq!(error.code, Code::Io);
            assert!(error.msg.contains("this is a bug"), "{error:?}");
        }
    }

    #[test]
    fn late_work_returns_once_its_caller_has_been_told() {
        let (told, is_late) = mpsc::channel();
        let (returned, has_returned) = mpsc::channel();
        let (answer, answered) = mpsc::channel();
        let late = move |error: Error| {
            told.send(()).expect("the work waits for this");
            // Time for the work to return if nothing held it up.
            let held_up = has_returned
                .recv_timeout(Duration::from_millis(50))
                .is_err();
            answer.send((error, held_up)).expect("the test waits");
        };
        let work = |progress: &Progress| {
            is_late.recv().expect("the watch tells");
            Ok(progress.has_lock())
        };
        let at = Path::new("/nowhere");
        let has_lock = watched(Duration::from_millis(1), at, late, work);
        // Nobody may listen any more.
        let _ = returned.send(());
        assert_eq!(has_lock, Ok(false), "late work went on with a lock");
        let (error, held_up) = answered.recv().expect("it was late");
        assert!(held_up, "late work returned first");
        assert!(error.msg.contains("within 0.001 s"), "{error:?}");
    }

    #[test]
    fn nothing_is_late_once_the_work_has_ended() {
        let progress = Progress::default();
        progress.end();
        // As if the time had run out while the work ended.
        progress.watch(Duration::ZERO, Path::new("/nowhere"), |error| {
            panic!("late: {error:?}")
        });
    }

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
