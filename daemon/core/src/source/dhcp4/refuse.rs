//! What a client gives up: an abandoned acquisition, and an address that, as its caller reports, another station or another
//! client of this host has.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use super::extension::{Attempt, Extension};
use super::lease::Lease;
use super::message::Hop;
use super::state::{State, Transaction, Unanswered};
use super::timing::{self, RECEIVE_WINDOW};
use super::{Client, Loss, Output, Signal};
use crate::time::Instant;
use crate::wire::Mac;

/// A lease that its server granted or extended this recently is not extended again.
pub(crate) const RECENT: Duration = Duration::from_secs(10);

impl Client {
    /// Takes no address but this one, until there is a lease.
    pub fn insist(&mut self, address: Ipv4Addr) {
        self.insists = Some(address);
    }

    /// Abandons an acquisition. Returns the RELEASE that undoes it, if a server was asked to commit an address; it must be sent
    /// on the same sockets at once.
    pub fn abort(&mut self, now: Instant) -> Option<Vec<u8>> {
        let lease = self.owed(now)?;
        let leased = lease.ip();
        let hop = Hop {
            server: lease.server,
            mac: lease.server_mac,
        };
        Some(self.sender.release(self.rng.u32(..), leased, hop))
    }

    /// Does the same if another station is known to use that address: returns its DECLINE. A RELEASE would tell the server that
    /// the address is free for others.
    pub fn abort_in_conflict(&mut self, now: Instant) -> Option<Vec<u8>> {
        let lease = self.owed(now)?;
        let address = lease.ip();
        let server = lease.server;
        self.asked = None;
        Some(self.sender.decline(self.rng.u32(..), address, server))
    }

    /// Silently gives up what a server offers, or has just granted, and sends DISCOVER after a pause. During the pause, another
    /// server's offer counts.
    pub fn refuse(&mut self, now: Instant, pause: Duration) -> Output {
        let next = now + pause;
        self.state = match &mut self.state {
            State::Requesting { tx, meanwhile, .. } => {
                // After the pause another transaction begins; until then offers to this one count.
                let tx = Transaction {
                    next,
                    until: next.min(now + RECEIVE_WINDOW),
                    sent: 0,
                    soon: 0,
                    ..*tx
                };
                let spare = meanwhile.spare.take();
                let second = spare.map(|spare| (spare, now + timing::CHOICE));
                State::Selecting {
                    tx,
                    wanted: self.insists,
                    second,
                }
            }
            State::Init { .. }
            | State::Selecting { .. }
            | State::InitReboot { .. }
            | State::Rebooting { .. }
            | State::Bound { .. }
            | State::Renewing { .. }
            | State::Rebinding { .. } => State::Init {
                at: next,
                wanted: self.insists,
            },
        };
        self.asked = None;
        self.count().requested = None;
        self.handle(now, Signal::Clock)
    }

    /// Returns the pause before the next DISCOVER when no caller waits.
    pub fn pause(&mut self) -> Duration {
        let sent = self.tally().discovers.max(1);
        timing::acquisition_wait(sent, self.waited_for, &mut self.rng)
    }

    /// Extends the lease now, even before T1 or if it never ends: its server seems to have forgotten it, and RENEW says who has
    /// its address (RFC 2131 §4.3.2: servers may believe that, and need not answer INIT-REBOOT). Does nothing if the lease was
    /// extended a moment ago. Without an answer it tries a few more times, since nothing else may tell the server for a long
    /// time.
    pub fn renew_early(&mut self, now: Instant) {
        match &mut self.state {
            State::Bound { lease }
            | State::InitReboot {
                lease,
                unanswered: Unanswered::Keep,
                ..
            } if lease.source.is_asked() && now.saturating_since(lease.start) >= RECENT => {
                let lease = lease.clone();
                let mut extension = Extension::due(now);
                extension.unconfirmed = self.is_unconfirmed();
                self.state = State::Renewing { lease, extension };
            }
            State::Renewing { extension, .. } | State::Rebinding { extension, .. } => {
                match extension.attempt {
                    Attempt::Sent { until, .. } if now >= until => extension.put_off(now),
                    // There were no sockets for the last try.
                    Attempt::Due(at) if at > now => extension.put_off(now),
                    Attempt::Due(_) | Attempt::Resolving(_) | Attempt::Sent { .. } => {}
                }
            }
            State::Init { .. }
            | State::Selecting { .. }
            | State::Requesting { .. }
            | State::InitReboot { .. }
            | State::Rebooting { .. }
            | State::Bound { .. } => {}
        }
    }

    /// Handles another station's use of the address. An address being requested is declined when it is granted (RFC 2131 figure
    /// 5), a held one at once.
    pub(super) fn on_conflict(&mut self, now: Instant, by: Mac, out: &mut Output) {
        if let State::Requesting { taken, .. } = &mut self.state {
            *taken = Some(by);
        }
        if let Some(lease) = self.state.lease().cloned() {
            self.decline(now, lease, by, out);
        }
    }

    /// Refuses an address that was granted, and goes back to INIT for a pause, which grows with each DECLINE in a row.
    pub(super) fn decline(&mut self, now: Instant, lease: Arc<Lease>, by: Mac, out: &mut Output) {
        let address = lease.ip();
        let server = lease.server;
        if lease.source.is_asked() {
            out.frames
                .push(self.sender.decline(self.rng.u32(..), address, server));
            // An address in use does not make the server a bad one.
            if self.declines > 0 {
                self.shun(server);
            }
        }
        self.lose(now, lease, Loss::Conflict { by }, out);
        self.declines = self.declines.saturating_add(1);
        let pause = timing::decline_wait(self.declines.into(), self.waited_for);
        self.state = State::Init {
            at: now + pause,
            wanted: None,
        };
        self.asked = None;
        self.count().declined = Some((address, by));
    }
}
