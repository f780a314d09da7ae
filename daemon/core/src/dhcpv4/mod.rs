//! The DHCPv4 client of RFC 2131.
pub mod lease;
