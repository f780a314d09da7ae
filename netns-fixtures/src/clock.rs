//! A wall clock for one process, provided by a library between it and the system's own.
//!
//! Not libfaketime, because that also moves timers of the boot clock, on which leases depend.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::binaries::dynamic_binary;
use crate::error::{Doing, Error};
use crate::netns::Netns;

const SOURCE: &str = include_str!("clock.c");

/// Builds the library, and makes a clock in `file` that shows the system's time.
pub(crate) fn make(netns: &Netns, file: &Path) -> Result<(), Error> {
    let library = file.with_extension("so");
    let library = library.to_string_lossy();
    netns.run_command(
        "cc",
        &["-O1", "-shared", "-fPIC", "-x", "c", "-o", &library, "-"],
        SOURCE,
    )?;
    set(file, 0)
}

/// Sets the clock this many seconds ahead of the system's, for every program that reads it from `file`.
pub(crate) fn set(file: &Path, ahead: i64) -> Result<(), Error> {
    let doing = || format!("set the clock {}", file.display());
    let next = file.with_extension("next");
    fs::write(&next, ahead.to_string()).doing(doing)?;
    fs::rename(&next, file).doing(doing)
}

/// Returns a program that reads its wall clock from `file`.
pub(crate) fn command(program: &str, file: &Path) -> Result<Command, Error> {
    let mut command = Command::new(dynamic_binary(program)?);
    command
        .env("LD_PRELOAD", file.with_extension("so"))
        .env("WALL_CLOCK", file);
    Ok(command)
}
