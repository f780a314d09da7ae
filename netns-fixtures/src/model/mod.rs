//! A model of a DHCPv4 server, and a judge of its clients.
//!
//! Sans-IO, with a codec of its own: it reads our client's bytes independently, and shares no code with the client. Time is an
//! argument, counted from any fixed moment.
//!
//! * [`Server`] answers payloads as servers in the field do: offers, leases, NAKs, RELEASEs that must come from
//!   the leased address, declined addresses, restarts with and without its database.
//! * [`Station`] puts a server (or just a router) on an Ethernet: whole frames in and out, ARP both ways.
//! * [`Judge`] reads what clients send against RFC 2131 table 5 and §4.4, strictly, and names each [`Violation`].
//!
//! It leaves out BOOTP, INFORM, relay agents' fields and option overload.

mod config;
mod frame;
mod judge;
mod message;
mod purpose;
mod server;
mod station;
mod table5;
mod violation;

pub use config::{Config, Knows};
pub(crate) use frame::decode_arp;
pub use frame::{Arp, BROADCAST, BadFrame, Datagram, Frame, Mac, Packet, arp, decode, udp};
pub use judge::Judge;
pub use message::{ClientKey, Kind, Malformed, Message, code};
pub use purpose::Purpose;
pub use server::{Event, Handled, Lease, Reply, Server, Silence};
pub use station::{Out, Station};
pub use violation::Violation;

#[cfg(test)]
mod tests;
