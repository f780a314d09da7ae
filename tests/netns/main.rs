//! Real namespaces, real servers, real packets: they show that the shell is correct, which the simulation cannot.
//!
//! Every test makes its own LAN. Those that need a missing server or tool say which, and are skipped.

mod adopt;
mod change;
mod conflict;
mod crash;
mod demo;
mod docker;
mod docker_lost;
mod doctor;
mod exporter;
mod fallback;
mod fixtures;
mod grace;
mod hangup;
mod host_local;
mod input;
mod ipvlan;
mod loss;
mod network;
mod orders;
mod page;
mod parent;
mod probe;
mod procedures;
mod ranges;
mod readers;
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
mod troubles;
mod unit;
mod view;
mod witness;
