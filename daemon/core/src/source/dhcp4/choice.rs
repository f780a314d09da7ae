//! Which offer a client asks for, and what it does when that comes to nothing.
//!
//! The first offer is as good as any, with two exceptions: an unwanted address, and a server that has failed the client since its
//! caller began to wait or while DECLINEs follow one another. Such a server never acknowledges, refuses what it offers, or offers
//! an address in use, and it often answers first. These offers wait a moment for a better one. An offer that comes while another is
//! being requested is kept until that one is granted.

use std::net::Ipv4Addr;
use std::sync::Arc;

use super::lease::Lease;
use super::state::{Meanwhile, State, Transaction};
use super::timing;
use super::{Client, Miss, Missed, Output};
use crate::rules::{Rule, cut};
use crate::time::Instant;

/// How many servers that failed a client are remembered: the latest ones.
const MOST_SHUNNED: usize = 8;

impl Client {
    /// Requests an offer, or keeps it for a moment.
    pub(super) fn on_offer(&mut self, now: Instant, offer: Lease, out: &mut Output) {
        let State::Selecting { tx, wanted, second } = &self.state else {
            return;
        };
        if let Some(wanted) = self.insists.filter(|wanted| *wanted != offer.ip()) {
            // The right server may first check whether anybody uses the address, for three seconds as dnsmasq does.
            out.missed = Some(Missed {
                server: offer.server,
                address: offer.ip(),
                miss: Miss::Unwanted { wanted },
            });
            return;
        }
        let tx = *tx;
        let wanted = *wanted;
        let kept = second
            .as_ref()
            .map(|(kept, until)| (self.fault(kept, wanted), *until));
        let fault = self.fault(&offer, wanted);
        if fault == Fault::None {
            // The REQUEST begins its own count of messages, under the same xid.
            return self.select(
                now,
                Transaction {
                    began: now,
                    sent: 0,
                    ..tx
                },
                Arc::new(offer),
                out,
            );
        }
        if let State::Selecting { second, .. } = &mut self.state
            && kept.is_none_or(|(kept, _)| fault < kept)
        {
            let until = kept.map_or(now + timing::CHOICE, |(_, until)| until);
            *second = Some((Box::new(offer), until));
        }
    }

    /// Keeps the best of the offers that come while another server's offer is being requested: of equal ones the latest.
    pub(super) fn keep_spare(&mut self, offer: Lease) {
        let is_wanted = self.insists.is_none_or(|wanted| wanted == offer.ip());
        let is_wanted = is_wanted && !cut(Rule::SpareOffer);
        let State::Requesting { meanwhile, .. } = &self.state else {
            return;
        };
        let fault = |offer| self.fault(offer, meanwhile.wanted);
        let kept = meanwhile.spare.as_deref();
        let is_better = kept.is_none_or(|kept| fault(&offer) <= fault(kept));
        if let State::Requesting { meanwhile, .. } = &mut self.state
            && is_wanted
            && is_better
        {
            meanwhile.spare = Some(Box::new(offer));
        }
    }

    /// Takes the offer that has waited for a better one.
    pub(super) fn choose(&mut self, now: Instant, out: &mut Output) {
        let State::Selecting { tx, second, .. } = &mut self.state else {
            return;
        };
        let tx = *tx;
        let Some((offer, _)) = second.take() else {
            return;
        };
        // Its next offers wait only if it fails once more: among many clients, one that waits loses addresses that are offered
        // to others too.
        self.count()
            .shunned
            .retain(|shunned| *shunned != offer.server);
        self.select(
            now,
            Transaction {
                began: now,
                sent: 0,
                ..tx
            },
            Arc::new(*offer),
            out,
        );
    }

    /// Sends the first REQUEST for an offer. An offer of another server that waited for a better one is kept.
    fn select(&mut self, now: Instant, before: Transaction, offer: Arc<Lease>, out: &mut Output) {
        let tx = self.request(now, before, &offer, out);
        let (second, wanted) = if let State::Selecting { second, wanted, .. } = &mut self.state {
            (second.take(), *wanted)
        } else {
            (None, None)
        };
        let spare = second
            .map(|(second, _)| second)
            .filter(|second| second.server != offer.server);
        let meanwhile = Box::new(Meanwhile {
            wanted,
            spare,
            nak: None,
        });
        self.state = State::Requesting {
            tx,
            offer,
            taken: None,
            meanwhile,
        };
    }

    /// Sends REQUEST for an offer, with the xid and secs of the last DISCOVER (RFC 2131 §4.4.1).
    pub(super) fn request(
        &mut self,
        now: Instant,
        before: Transaction,
        offer: &Arc<Lease>,
        out: &mut Output,
    ) -> Transaction {
        let before = Transaction { soon: 0, ..before };
        let tx = Transaction {
            secs: before.secs,
            ..self.transact(now, Some(before))
        };
        self.count().requested = Some((offer.server, offer.ip(), tx.sent));
        out.frames.push(
            self.sender
                .select(tx.xid, tx.secs, offer.ip(), offer.server),
        );
        self.asked = Some(offer.clone());
        tx
    }

    /// Gives up an offer that its server has not acknowledged. While a caller waits, the next is requested at once.
    pub(super) fn on_unacknowledged(&mut self, now: Instant, out: &mut Output) {
        let State::Requesting { tx, offer, .. } = &self.state else {
            return;
        };
        let miss = Miss::Unacknowledged { sent: tx.sent };
        out.missed = Some(Missed {
            server: offer.server,
            address: offer.ip(),
            miss,
        });
        if self.asks_another(now, out) {
            return;
        }
        if self.waited_for {
            return self.discover(now, None, None, out);
        }
        let pause = timing::acquisition_wait(self.count().tried_in_vain(), false, &mut self.rng);
        self.state = State::Init {
            at: now + pause,
            wanted: None,
        };
    }

    /// Requests the offer that was kept, after the first came to nothing. Returns whether there is one.
    pub(super) fn asks_another(&mut self, now: Instant, out: &mut Output) -> bool {
        let State::Requesting {
            tx,
            offer,
            meanwhile,
            ..
        } = &mut self.state
        else {
            return false;
        };
        let tx = *tx;
        let server = offer.server;
        // How long a server keeps what it offers is its own matter (RFC 2131 §3.1). Here an offer counts as long as messages are
        // sent under its xid: no longer after the host has slept.
        let spare = meanwhile.spare.take();
        let spare = spare.filter(|spare| now < spare.start + timing::LONGEST_WINDOW);
        self.shun(server);
        let Some(spare) = spare else { return false };
        self.select(
            now,
            Transaction {
                began: now,
                sent: 0,
                ..tx
            },
            Arc::new(*spare),
            out,
        );
        true
    }

    /// Has a server's offers wait for those of others, as long as that matters.
    pub(super) fn shun(&mut self, server: Ipv4Addr) {
        if self.minds_failures() {
            let shunned = &mut self.count().shunned;
            shunned.retain(|earlier| *earlier != server);
            if shunned.len() == MOST_SHUNNED {
                shunned.remove(0);
            }
            shunned.push(server);
        }
    }

    /// Returns whether the next try may come too late: a caller waits, or the pause has grown with DECLINEs in a row.
    pub(super) fn minds_failures(&self) -> bool {
        self.waited_for || self.declines > 0
    }

    fn fault(&self, offer: &Lease, wanted: Option<Ipv4Addr>) -> Fault {
        match self
            .tally()
            .shunned
            .iter()
            .position(|shunned| *shunned == offer.server)
        {
            Some(place) => Fault::Shunned(place),
            None if wanted.is_some_and(|wanted| wanted != offer.ip()) => Fault::OtherAddress,
            None => Fault::None,
        }
    }
}

/// Why an offer waits for a better one, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// It does not wait.
    None,
    /// It offers an unwanted address.
    OtherAddress,
    /// Its server has failed the client: the higher, the later.
    Shunned(usize),
}
