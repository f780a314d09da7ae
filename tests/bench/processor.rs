//! How long processes have kept a processor busy (proc_pid_stat(5)).
//!
//! On a busy machine this says more than the clock. It includes what the kernel does for others in interrupts, but not
//! what its own threads do.

use std::fs;
use std::io;
use std::time::Duration;

/// USER_HZ, a constant of Linux's interface to programs.
const TICK: Duration = Duration::from_millis(10);

/// Returns the time of a process, `utime` and `stime`.
pub(crate) fn of(process: u32) -> io::Result<Duration> {
    fields(&format!("/proc/{process}/stat"), 14)
}

/// Returns the time of all children of this process that have been waited for, `cutime` and `cstime`.
pub(crate) fn children() -> io::Result<Duration> {
    fields("/proc/self/stat", 16)
}

/// Returns the sum of two fields, counted from 1 as in the manual.
fn fields(file: &str, first: usize) -> io::Result<Duration> {
    let stat = fs::read_to_string(file)?;
    // The second field is the name in parentheses, which may hold anything.
    let fields: Vec<_> = stat
        .rsplit_once(") ")
        .map(|(_, rest)| rest.split(' ').collect())
        .unwrap_or_default();
    let ticks = |number: usize| {
        fields
            .get(number - 3)
            .and_then(|field| field.parse::<u32>().ok())
    };
    let sum = ticks(first)
        .zip(ticks(first + 1))
        .map(|(user, system)| TICK * (user + system));
    sum.ok_or_else(|| io::Error::other(format!("cannot read {file}")))
}
