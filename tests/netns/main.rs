//! Real namespaces, real servers, real packets: what the simulation cannot show, that the shell is true.
//!
//! Every test makes its own LAN. Those that need a server or a tool that is not there say which and are skipped.

mod adopt;
mod bad;
mod change;
mod clock;
mod conflict;
mod crash;
mod demo;
mod endurance;
mod fixtures;
mod hangup;
mod loss;
mod parent;
mod reasons;
mod release;
mod resolver;
mod servers;
mod store;
mod view;
mod witness;
