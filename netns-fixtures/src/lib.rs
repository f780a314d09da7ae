//! Network namespaces, links, DHCP servers and engines for tests, as values that clean up.
//!
//! Everything is real, only hidden: a [`Sandbox`] holds mounts, networks and processes that nobody outside sees and that end with
//! the process that made them. In it, a [`Lan`] has a switch, a host, a server and containers; servers and the binaries of this
//! workspace run on it as child processes. Waits are for events, and have a deadline.
//!
//! This crate imports no other crate of the workspace: it plays the world around them.

mod bare;
mod binaries;
mod browser;
mod capture;
mod cgroup;
mod container;
mod daemon;
mod debian;
pub mod engine;
mod error;
mod incumbent;
mod lab;
mod lan;
mod link;
pub mod model;
mod need;
mod netns;
mod packet;
mod process;
mod sandbox;
pub mod server;
mod shim;
mod systemd;
mod text;
mod wait;

pub use bare::{BareClient, BareLease};
pub use binaries::{binary, build};
pub use browser::Browser;
pub use capture::{Capture, Dissection};
pub use container::{Container, result_addresses};
pub use daemon::{Daemon, Home, Sight};
pub use debian::Debian13;
pub use engine::{Containerd, Cri, Dockerd, Engine, Podman, Registry, install_plugin};
pub use error::Error;
pub use incumbent::Incumbent;
pub use lab::{Lab, Member};
pub use lan::Lan;
pub use link::{Mac, mac, mac_text};
pub use need::{Need, are_met, sandbox};
pub use netns::Netns;
pub use packet::{Dhcp, Packet};
pub use process::{DEADLINE, Log, Process};
pub use sandbox::Sandbox;
pub use shim::{CallError, CniError, Shim, ShimCall};
pub use systemd::{Systemd, installed_unit};
pub use text::assert_says;
pub use wait::{until_file, until_found, until_link};
