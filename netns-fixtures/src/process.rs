//! A long-lived process of a fixture, and its output.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::{Doing, Error, went_wrong};
use crate::netns::Netns;
use crate::sandbox::Sandbox;

/// How long a fixture waits for what should happen at once. Generous: a busy machine is not a failure.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// A running process. Dropping it kills it and, if something went wrong, shows what the process said.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    /// Our end of its standard input, which hangs up when it ends.
    lifeline: ChildStdin,
    log: Log,
    /// It ends no sooner: a sandbox that ends waits until somebody has waited for each of its processes.
    _sandbox: Sandbox,
}

/// What a process has written so far to its standard output and error, line by line.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<(Mutex<Lines>, Condvar)>);

#[derive(Debug, Default)]
struct Lines {
    lines: Vec<String>,
    /// How many pipes are still open.
    open: u32,
}

impl Process {
    /// Starts a process in `netns`; `name` is for messages.
    pub fn start(netns: &Netns, name: &str, mut command: Command) -> Result<Self, Error> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = netns.spawn(command)?;
        let log = Log::default();
        log.lock().open = 2;
        log.read(child.stdout.take().expect("its output is a pipe"));
        log.read(child.stderr.take().expect("its error output is a pipe"));
        let lifeline = child.stdin.take().expect("its input is a pipe");
        Ok(Self {
            name: name.to_owned(),
            child,
            lifeline,
            log,
            _sandbox: netns.sandbox().clone(),
        })
    }

    /// Returns its process id, as this process sees it.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns what it writes.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Waits until a line contains `text`.
    ///
    /// # Errors
    /// When the process ends first, or [`DEADLINE`] passes.
    pub fn wait_for_line(&mut self, text: &str) -> Result<(), Error> {
        match self.log.wait_for(text, DEADLINE) {
            Heard::Yes => Ok(()),
            Heard::No => Err(Error::timed_out(
                &format!("line \"{text}\" of {}", self.name),
                DEADLINE,
                String::new(),
            )),
            Heard::Ended => {
                let status = self
                    .child
                    .wait()
                    .doing(|| format!("wait for {}", self.name))?;
                Err(Error::Ended {
                    program: self.name.clone(),
                    status,
                    awaited: format!("its line \"{text}\""),
                    log: self.log.tail(),
                })
            }
        }
    }

    /// Returns whether it is idle or has ended.
    pub(crate) fn is_asleep(&self) -> bool {
        // The state follows the name in parentheses (proc_pid_stat(5)).
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        !stat
            .rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with(['R', 'D']))
    }

    /// Returns the descriptor that hangs up when the process ends.
    pub(crate) fn lifeline(&self) -> BorrowedFd<'_> {
        self.lifeline.as_fd()
    }

    /// # Errors
    /// If it has ended; `awaited` says what we waited for.
    pub(crate) fn still_runs(&mut self, awaited: &str) -> Result<(), Error> {
        let Some(status) = self
            .child
            .try_wait()
            .doing(|| format!("wait for {}", self.name))?
        else {
            return Ok(());
        };
        self.log.wait_until_over(DEADLINE);
        let (program, awaited, log) = (self.name.clone(), awaited.to_owned(), self.log.tail());
        Err(Error::Ended {
            program,
            status,
            awaited,
            log,
        })
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, signal).doing(|| format!("send {signal} to {}", self.name))
    }

    /// Sends SIGTERM and waits for the end.
    pub fn terminate(mut self) -> Result<ExitStatus, Error> {
        self.signal(Signal::SIGTERM)?;
        self.child
            .wait()
            .doing(|| format!("wait for {}", self.name))
    }

    /// Kills it, as `kill -9` does, and waits until it is gone.
    pub fn kill(mut self) -> Result<(), Error> {
        self.end().doing(|| format!("kill {}", self.name))
    }

    fn end(&mut self) -> std::io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A process that cannot be killed has already ended.
        let _ = self.end();
        if thread::panicking() || went_wrong() {
            eprintln!("---- {} said ----\n{}", self.name, self.log.tail());
        }
    }
}

enum Heard {
    Yes,
    No,
    Ended,
}

impl Log {
    /// Returns all lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.lock().lines.clone()
    }

    /// Returns the last 60 lines as one text.
    pub fn tail(&self) -> String {
        let lines = &self.lock().lines;
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for(&self, text: &str, limit: Duration) -> Heard {
        let deadline = Instant::now() + limit;
        let (mut seen, mut lines) = (0, self.lock());
        loop {
            if lines.lines[seen..].iter().any(|line| line.contains(text)) {
                return Heard::Yes;
            }
            seen = lines.lines.len();
            if lines.open == 0 {
                return Heard::Ended;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Heard::No;
            }
            lines = self
                .0
                .1
                .wait_timeout(lines, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Waits until all output of an ended process has been read. Its children may go on writing.
    fn wait_until_over(&self, limit: Duration) {
        let over = |lines: &mut Lines| lines.open > 0;
        let _ = self
            .0
            .1
            .wait_timeout_while(self.lock(), limit, over)
            .unwrap_or_else(PoisonError::into_inner);
    }

    /// Collects the lines of a pipe until all its writers are gone.
    fn read(&self, pipe: impl Read + Send + 'static) {
        let log = self.clone();
        thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                log.lock()
                    .lines
                    .push(String::from_utf8_lossy(&line).into_owned());
                log.0.1.notify_all();
            }
            log.lock().open -= 1;
            log.0.1.notify_all();
        });
    }
}
