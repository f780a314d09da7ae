//! A client whose messages go unanswered: how often it has asked, and that it must wait before it asks again.

use super::state::State;
use super::{Client, Line};
use crate::time::Instant;

impl Client {
    /// Returns how many requests for a lease went unanswered, if the next is due; else 0.
    pub fn asked_in_vain(&self, now: Instant) -> u32 {
        self.state
            .asked_in_vain()
            .filter(|tx| now >= tx.next)
            .map_or(0, |tx| tx.sent)
    }

    /// Has the client listen but send nothing until [`Signal::Opened`](super::Signal::Opened): it must wait for its turn.
    pub fn waits(&mut self) {
        self.line = Line::Opening;
    }

    /// Lets the client send again, because an answer has come.
    pub fn waits_no_more(&mut self) {
        self.line = Line::Open;
    }

    /// Makes a DISCOVER that is due later leave at once.
    pub fn hurry(&mut self, now: Instant) {
        if let State::Selecting {
            tx, second: None, ..
        } = &mut self.state
        {
            tx.next = tx.next.min(now);
        }
    }

    /// Has the client go on over other sockets: those that were open are closed.
    pub fn reopens(&mut self) {
        self.line = Line::Closed;
    }
}
