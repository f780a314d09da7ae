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
mod grace;
mod hangup;
mod holders;
mod late;
mod loss;
mod parent;
mod reasons;
mod release;
mod resolver;
mod routes;
mod servers;
mod siege;
mod sight;
mod store;
mod unit;
mod view;
mod witness;
