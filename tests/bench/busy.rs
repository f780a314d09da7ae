//! A machine with other things to do.

use std::error::Error;
use std::process::Command;
use std::thread;

use netns_fixtures::{Netns, Process};

/// How much else the machine has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Nothing.
    Quiet,
    /// [`FOR_EACH`] processes keep each processor busy.
    Busy,
}

/// Processes for each processor.
const FOR_EACH: usize = 4;

/// What keeps the machine busy.
#[derive(Debug)]
pub(crate) struct Busy(Vec<Process>);

impl Busy {
    /// Starts the load.
    pub(crate) fn with(load: Load, host: &Netns) -> Result<Self, Box<dyn Error>> {
        let count = match load {
            Load::Quiet => 0,
            Load::Busy => FOR_EACH * thread::available_parallelism()?.get(),
        };
        let spin = |number| {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]);
            Process::start(host, &format!("busy process {number}"), command)
        };
        Ok(Self((0..count).map(spin).collect::<Result<_, _>>()?))
    }

    /// Ends the load.
    pub(crate) fn end(self) -> Result<(), Box<dyn Error>> {
        Ok(self.0.into_iter().try_for_each(Process::kill)?)
    }
}
