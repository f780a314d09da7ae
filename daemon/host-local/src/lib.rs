//! Takes the place of the plugin host-local: gives out addresses of local ranges, on that plugin's files and under its lock.
//!
//! No daemon, no socket, no record: the files of a network's directory are the store. [`Call`] is one call of a runtime, from its
//! configuration to its answer; [`Directory`] is where the files are. Beside each address there is a [`Note`], by which it
//! is known later whether the container still lives.
//!
//! Nothing is synced to disk, as by host-local: an address does not outlive the boot in which it was given.

mod call;
mod directory;
mod fault;
mod lock;
mod note;
mod resolv_conf;
#[cfg(test)]
mod tests;
mod usage;

pub use call::Call;
pub use directory::{Directory, Locked, Names};
pub use fault::Fault;
pub use lock::Progress;
pub use note::{Host, Life, Note};
pub use resolv_conf::parse as resolver;
pub use usage::{Usage, look};
