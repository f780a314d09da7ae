//! The command line, and the operator's commands.

mod args;
mod client;
mod events;
mod list;

pub(crate) use args::{Args, Command, DaemonArgs, LogFormat};
pub(crate) use events::events;
pub(crate) use list::list;
