//! Real namespaces, real servers, real packets: they show that the shell is correct, which the simulation cannot.
//!
//! Every test makes its own LAN. Those that need a missing server or tool say which, and are skipped.

mod adopt;
mod bridge;
mod change;
mod clock;
mod conflict;
mod crash;
mod demo;
mod docker;
mod docker_lost;
mod doctor;
mod endurance;
mod exporter;
mod fallback;
mod fixtures;
mod grace;
mod hangup;
mod holders;
mod host_local;
mod input;
mod ipvlan;
mod loss;
mod network;
mod network_killed;
mod orders;
mod page;
mod parent;
mod played;
mod probe;
mod ranges;
mod reasons;
mod release;
mod remedies;
mod renewals;
mod resolver;
mod routes;
mod servers;
mod siege;
mod sight;
mod store;
mod tap;
mod transcripts;
mod unit;
mod view;
mod witness;
