//! The command line: what there is, and the operator's side of it.

mod args;

pub(crate) use args::{Args, Command, DaemonArgs, LogFormat};
