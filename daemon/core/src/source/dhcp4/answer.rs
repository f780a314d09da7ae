//! What a client does with an answer, by state (RFC 2131 §4.4.1 to §4.4.5); which offer it asks for, and what it does when that comes
//! to nothing.
//!
//! The first offer is as good as any, with two exceptions: an unwanted address, and a server that has failed the client since its
//! caller began to wait or while DECLINEs follow one another. Such a server never acknowledges, refuses what it offers, or offers
//! an address in use, and it often answers first. These offers wait a moment for a better one. An offer that comes while another is
//! being requested is kept until that one is granted.

use std::net::Ipv4Addr;
use std::sync::Arc;

use super::accept::{self, Refusal};
use super::extension::{Attempt, Nak};
use super::lease::Lease;
use super::message::CLIENT_PORT;
use super::state::{Meanwhile, State, Transaction};
use super::timing;
use super::{Client, Loss, Miss, Missed, Output, StateName, Verdict};
use crate::lan::Said;
use crate::rules::{Rule, cut};
use crate::time::Instant;
use crate::wire::frame::{Arp, BadFrame, Udp};
use crate::wire::message::{BadMessage, Message, MessageType};

/// How many servers that failed a client are remembered: the latest ones.
const MOST_SHUNNED: usize = 8;

/// Why an answer was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Its frame cannot be read.
    #[error(transparent)]
    Unreadable(#[from] BadFrame),
    /// It is not a well-formed answer.
    #[error(transparent)]
    Malformed(#[from] BadMessage),
    /// It is not believed.
    #[error(transparent)]
    Unbelieved(#[from] Refusal),
}

impl Refused {
    /// Returns whether it is refused in the ordinary course of things: a second server's offer, a late answer, or a client's
    /// message.
    pub(crate) const fn is_noise(&self) -> bool {
        matches!(
            self,
            Self::Unbelieved(Refusal::OtherXid | Refusal::OtherChaddr | Refusal::Unexpected { .. })
                | Self::Malformed(BadMessage::NotAReply(_))
        )
    }
}

/// Reads a datagram, if it is for a client's port.
pub(super) fn message(udp: &Udp<'_>) -> Result<Message, Refused> {
    let message = Message::decode(udp.payload)?;
    match udp.destination_port {
        CLIENT_PORT => Ok(message),
        other => Err(Refusal::OtherPort(other).into()),
    }
}

impl Client {
    pub(super) fn on_arp(&mut self, now: Instant, arp: &Arp, out: &mut Output) {
        let State::Extending { extension, .. } = &mut self.state else {
            return;
        };
        let Attempt::Resolving(resolver) = &mut extension.attempt else {
            return;
        };
        if let Some(mac) = resolver.on_arp(arp) {
            self.send_renewal(now, Some(mac), out);
        }
    }

    pub(super) fn on_udp(&mut self, now: Instant, udp: &Udp<'_>, out: &mut Output) {
        if let Err(refused) = self.answer(now, udp, out) {
            self.on_refused(refused, out);
        }
    }

    pub(super) fn on_refused(&mut self, refused: Refused, out: &mut Output) {
        self.count().count(refused.clone());
        out.refused = Some(refused);
    }

    fn answer(&mut self, now: Instant, udp: &Udp<'_>, out: &mut Output) -> Result<(), Refused> {
        let message = message(udp)?;
        let (state, kind) = (self.state.name(), message.kind);
        if let State::Selecting { tx, .. } = &self.state {
            let began = tx.began;
            let server = accept::addressee(&message, &self.sender, tx.xid)?;
            let is_rapid = self.sender.profile.rapid_commit && message.options.rapid_commit;
            if is_rapid && kind == MessageType::Ack {
                return self.settle(now, &message, udp, began, None, out);
            }
            accept::expect_kind(&message, &[MessageType::Offer], state)?;
            let offer = self.offer(now, &message, server, udp, out)?;
            self.sender.is_answered();
            self.on_offer(now, offer, out);
            return Ok(());
        }
        let Some((xid, start, asked)) = self.state.asked() else {
            return Err(Refusal::Unexpected { kind, state }.into());
        };
        let asked = asked.clone();
        let server = accept::addressee(&message, &self.sender, xid)?;
        let is_foreign = server != asked.server;
        if state == StateName::Requesting && kind == MessageType::Offer && is_foreign {
            let spare = self.offer(now, &message, server, udp, out)?;
            self.keep_spare(spare);
            return Ok(());
        }
        accept::expect_kind(&message, &[MessageType::Ack, MessageType::Nak], state)?;
        let is_nak = kind == MessageType::Nak;
        // Either server of a pair may extend a lease (RFC 2131 §4.4.5 goes by the xid). In RENEWING only its own may refuse it.
        let is_anothers = match state {
            StateName::Requesting => true,
            StateName::Renewing => is_nak,
            _ => false,
        };
        if is_foreign && is_anothers {
            let asked = asked.server;
            return Err(Refusal::OtherServer { server, asked }.into());
        }
        let is_relayed = !message.giaddr.is_unspecified() && !cut(Rule::RelayedNak);
        if is_nak && (is_relayed || is_foreign && !cut(Rule::ForeignNak)) {
            if is_relayed && self.out_of_sight {
                return Err(Refusal::NakOutOfSight.into());
            }
            self.keep_nak(server, &message);
            return Ok(());
        }
        // An extension from the address may bring another.
        let asked = Some(asked).filter(|_| !self.addressed || self.acquires());
        let taken = match self.state {
            State::Requesting { taken, .. } => taken,
            _ => None,
        };
        self.settle(now, &message, udp, start, asked, out)?;
        if let (Some(by), Some(lease)) = (taken, self.state.lease().cloned()) {
            self.decline(now, lease, by, out);
        }
        Ok(())
    }

    /// Returns the lease that a server offers.
    fn offer(
        &mut self,
        now: Instant,
        message: &Message,
        server: Ipv4Addr,
        udp: &Udp<'_>,
        out: &mut Output,
    ) -> Result<Lease, Refusal> {
        let offer = accept::lease(message, server, udp.source_mac, now, None)?;
        out.heard = Some(self.said(server, Some(&offer), false));
        self.count().answers += 1;
        Ok(offer)
    }

    /// Returns what a server said with a lease, or with a NAK. If the network's configuration names servers, another server's subnet is
    /// nobody's mistake.
    fn said(&self, server: Ipv4Addr, lease: Option<&Lease>, acknowledges: bool) -> Said {
        let is_named = !self.sender.profile.servers.allow.is_empty();
        Said {
            server,
            subnet: lease.filter(|_| !is_named).map(|lease| lease.address),
            extends: self.state.lease().is_some(),
            acknowledges,
        }
    }

    /// Handles an ACK or NAK to a message sent at `start`, from a server that may send it. `asked` is the lease whose very
    /// address was asked for; an extension may bring another address.
    fn settle(
        &mut self,
        now: Instant,
        message: &Message,
        udp: &Udp<'_>,
        start: Instant,
        asked: Option<Arc<Lease>>,
        out: &mut Output,
    ) -> Result<(), Refused> {
        let server = message.options.server_id.ok_or(Refusal::NoServerId)?;
        self.sender.is_answered();
        if message.kind == MessageType::Nak {
            self.count().answers += 1;
            out.heard = Some(self.said(server, None, false));
            self.on_nak(now, server, message.options.message.clone(), asked, out);
            return Ok(());
        }
        let before = asked.as_ref().or(self.state.lease());
        let mut lease = accept::lease(
            message,
            server,
            udp.source_mac,
            start,
            before.map(|lease| &**lease),
        )?;
        out.heard = Some(self.said(server, Some(&lease), true));
        if let Some(asked) = asked
            .as_ref()
            .map(|asked| asked.ip())
            .filter(|asked| *asked != lease.ip())
        {
            return Err(Refusal::OtherAddress {
                acknowledged: lease.ip(),
                asked,
            }
            .into());
        }
        if lease.expired(now) {
            self.state.forget_xid();
            return Err(Refusal::Ended.into());
        }
        lease.times = lease
            .times
            .map(|times| timing::spread(times, &mut self.rng));
        (self.asked, self.insists) = (None, None);
        out.dropped.clone_from(&message.options.dropped);
        out.dropped
            .extend(accept::dropped(&message.options, &lease));
        let lease = Arc::new(lease);
        self.begin_tally(0);
        self.state = State::Bound {
            lease: lease.clone(),
        };
        out.verdict = Some(Verdict::Granted(lease));
        Ok(())
    }

    /// Keeps a NAK that may not be final.
    ///
    /// A NAK from a server other than the lease's is right if the client has moved to another LAN (RFC 2131 §3.2), out of reach
    /// of its own server; otherwise it comes from a stray server, and often arrives first. A NAK through a relay may be
    /// followed by an ACK: where two relays for different subnets serve one LAN, the server refuses what one of them forwards.
    fn keep_nak(&mut self, server: Ipv4Addr, message: &Message) {
        let Some(kept) = self.state.kept_nak() else {
            return;
        };
        *kept = Some(Box::new(Nak {
            server,
            message: message.options.message.clone(),
        }));
        self.sender.is_answered();
    }

    /// Obeys a kept NAK, if the lease's own server has had its time to answer.
    pub(super) fn obey_kept_nak(&mut self, now: Instant, out: &mut Output) {
        if !self.state.has_heard_out(now) {
            return;
        }
        let Some((.., lease)) = self.state.asked() else {
            return;
        };
        let lease = lease.clone();
        if let Some(nak) = self.state.kept_nak().and_then(Option::take) {
            self.on_nak(now, nak.server, nak.message, Some(lease), out);
        }
    }

    /// Goes back to INIT (RFC 2131 §3.1 step 4, §3.2 step 3): the first time at once; a server that refuses what it has just
    /// offered is asked again after a growing pause.
    fn on_nak(
        &mut self,
        now: Instant,
        server: Ipv4Addr,
        message: Option<String>,
        asked: Option<Arc<Lease>>,
        out: &mut Output,
    ) {
        let held = self.state.lease().cloned();
        let address = held.as_ref().or(asked.as_ref()).map(|lease| lease.ip());
        let naks = self.tally().naks + 1;
        let miss = Miss::Nak {
            message: message.clone(),
        };
        out.missed = address.map(|address| Missed {
            server,
            address,
            miss,
        });
        if self.asks_another(now, out) {
            self.count().naks = naks;
            return;
        }
        if let Some(lease) = held {
            self.lose(now, lease, Loss::Nak { server, message }, out);
        }
        let pause = match naks {
            1 => std::time::Duration::ZERO,
            n => timing::acquisition_wait(n - 1, self.waited_for, &mut self.rng),
        };
        self.state = State::Init {
            at: now + pause,
            wanted: None,
        };
        self.asked = None;
        self.count().naks = naks;
    }

    /// Requests an offer, or keeps it for a moment.
    pub(super) fn on_offer(&mut self, now: Instant, offer: Lease, out: &mut Output) {
        let State::Selecting {
            tx,
            wanted,
            ref second,
        } = self.state
        else {
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
        let kept = second
            .as_ref()
            .map(|(kept, until)| (self.fault(kept, wanted), *until));
        let fault = self.fault(&offer, wanted);
        if fault == Fault::None {
            return self.select(now, tx, Arc::new(offer), out);
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
        self.select(now, tx, Arc::new(*offer), out);
    }

    /// Sends the first REQUEST for an offer. An offer of another server that waited for a better one is kept.
    fn select(&mut self, now: Instant, before: Transaction, offer: Arc<Lease>, out: &mut Output) {
        // It begins its own count of messages, under the same xid.
        let before = Transaction {
            began: now,
            sent: 0,
            ..before
        };
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
        let State::Requesting { offer, .. } = &self.state else {
            return;
        };
        let miss = Miss::Unacknowledged;
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
        self.select(now, tx, Arc::new(*spare), out);
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
