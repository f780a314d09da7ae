//! The command line: what there is, and the operator's side of it.

mod args;
mod client;
mod events;
mod list;

pub(crate) use args::{Args, Command, DaemonArgs, LogFormat};
pub(crate) use events::events;
pub(crate) use list::list;
