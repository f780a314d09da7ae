//! The decisions of leasehold, without any I/O.
pub mod dhcpv4;
pub mod effect;
pub mod identity;
pub mod link;
pub mod record;
pub mod time;
pub mod wire;
