//! What a client without a lease has tried.

use std::net::Ipv4Addr;

use super::Refused;
use crate::wire::Mac;

/// What was tried since there last was a lease, for whoever has to explain that there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// DISCOVERs sent.
    pub discovers: u32,
    /// Answers that came in, good or bad.
    pub answers: u32,
    /// Answers that were refused.
    pub refused: u32,
    /// Why the last one was.
    pub last_refusal: Option<Refused>,
    /// The last offer that was taken, and the REQUESTs sent for it.
    pub requested: Option<(Ipv4Addr, Ipv4Addr, u32)>,
    /// The last NAK: server, address, message.
    pub nak: Option<(Ipv4Addr, Ipv4Addr, Option<String>)>,
    /// The last address that was declined, and who uses it.
    pub declined: Option<(Ipv4Addr, Mac)>,
    /// NAKs in a row.
    pub(super) naks: u32,
    /// Tries in a row that ended without a word: sockets were not to be had, or an offer was never acknowledged.
    pub(super) in_vain: u32,
}

/// The tally of who has not tried anything.
pub(super) static UNTRIED: Tally = Tally {
    discovers: 0,
    answers: 0,
    refused: 0,
    last_refusal: None,
    requested: None,
    nak: None,
    declined: None,
    naks: 0,
    in_vain: 0,
};
