//! A client whose messages have no answer: how often it has asked, and that it is to wait before it asks again.

use super::{Client, Line};
use crate::time::Instant;

impl Client {
    /// Returns how many messages have asked for a lease in vain, where the next is due; else 0.
    pub fn asked_in_vain(&self, now: Instant) -> u32 {
        self.state.asked_in_vain().filter(|tx| now >= tx.next).map_or(0, |tx| tx.sent)
    }

    /// Has the client listen on and send nothing until [`Event::Opened`](super::Event::Opened) comes: it is not its turn to ask again.
    pub fn waits(&mut self) {
        self.line = Line::Opening;
    }

    /// Has the client go on sending, as an answer has come.
    pub fn waits_no_more(&mut self) {
        self.line = Line::Open;
    }

    /// Has the client go on over other sockets: those that were open are closed.
    pub fn reopens(&mut self) {
        self.line = Line::Closed;
    }
}
