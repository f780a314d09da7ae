//! The command line, and the operator's commands.

mod args;
mod client;
mod events;
mod list;
mod networks;
mod probe;
mod term;

pub(crate) use args::{Args, Command, DaemonArgs, LogFormat};
pub(crate) use events::events;
pub(crate) use list::list;
pub(crate) use probe::probe;
