//! A client whose messages go unanswered: how often it has asked, and when it asks again.

use super::state::State;
use super::{Client, SocketState};
use crate::time::Instant;

impl Client {
    /// Returns how many requests for a lease went unanswered, if the next is due; else 0.
    pub fn asked_in_vain(&self, now: Instant) -> u32 {
        self.state
            .asked_in_vain()
            .filter(|tx| now >= tx.next)
            .map_or(0, |tx| tx.sent)
    }

    /// Returns whether a message that asks for an address is about to be sent again. First messages that are repeated soon do not
    /// count.
    pub fn retransmits(&self, now: Instant) -> bool {
        match &self.state {
            State::Selecting { tx, .. }
            | State::Requesting { tx, .. }
            | State::Rebooting { tx, .. } => tx.sent > 0 && now >= tx.next,
            State::Init { .. }
            | State::InitReboot { .. }
            | State::Bound { .. }
            | State::Renewing { .. }
            | State::Rebinding { .. } => false,
        }
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
        self.sockets = SocketState::Closed;
    }
}
