//! The command line, and the operator's commands.

mod args;
mod capture;
mod client;
mod columns;
mod doctor;
mod events;
mod exporter;
mod install;
mod list;
mod log;
mod networks;
mod order;
mod probe;
mod ranges;
mod show;
mod status;
mod term;
#[cfg(test)]
mod tests;
mod unit;

pub(crate) use args::{Args, Command, DaemonArgs};
pub(crate) use capture::capture;
pub(crate) use doctor::doctor;
pub(crate) use events::events;
pub(crate) use exporter::exporter;
pub(crate) use install::{install, uninstall};
pub(crate) use list::list;
pub(crate) use log::log;
pub(crate) use order::{release, renew};
pub(crate) use probe::probe;
pub(crate) use show::show;
pub(crate) use status::status;

pub(crate) use unit::with_unit;
