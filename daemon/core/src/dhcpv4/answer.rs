//! What a client makes of an answer, by state (RFC 2131 §4.4.1 to §4.4.5).

use std::sync::Arc;

use super::accept::{self, Expect, Refusal};
use super::lease::Lease;
use super::state::{Attempt, State, Transaction};
use super::timing;
use super::{Client, Loss, Output, Refused, Verdict};
use crate::time::Instant;
use crate::wire::frame::{Arp, Udp};
use crate::wire::message::{Message, MessageType};

impl Client {
    pub(super) fn on_arp(&mut self, now: Instant, arp: &Arp, out: &mut Output) {
        let State::Renewing { attempt: Attempt::Resolving(resolver, _), .. } = &self.state else { return };
        if let Some(mac) = resolver.on_arp(arp) {
            self.send_renewal(now, Some(mac), out);
        }
    }

    pub(super) fn on_udp(&mut self, now: Instant, udp: &Udp<'_>, out: &mut Output) {
        if let Err(refused) = self.answer(now, udp, out) {
            // Another client's traffic is no answer to this one.
            if !matches!(refused, Refused::Unbelieved(Refusal::OtherXid | Refusal::OtherChaddr)) {
                let tally = self.count();
                tally.answers += 1;
                tally.refused += 1;
                tally.last_refusal = Some(refused.clone());
            }
            out.refused = Some(refused);
        }
    }

    fn answer(&mut self, now: Instant, udp: &Udp<'_>, out: &mut Output) -> Result<(), Refused> {
        let message = Message::decode(udp.payload)?;
        match &self.state {
            State::Selecting { tx, wanted, second } => {
                let (tx, wanted, waits) = (*tx, *wanted, second.is_some());
                let server = self.addressee(&message, tx.xid)?;
                if self.sender.profile.rapid_commit && message.options.rapid_commit && message.kind == MessageType::Ack
                {
                    return self.settle_rapid(now, &message, udp, tx.began, out);
                }
                accept::expect_kind(&message, &[MessageType::Offer])?;
                let offer = accept::lease(&message, server, udp.source_mac, now)?;
                self.count().answers += 1;
                self.sender.is_answered();
                if self.insists.or(wanted).is_some_and(|wanted| wanted != offer.ip()) {
                    if let (State::Selecting { second, .. }, false) = (&mut self.state, waits) {
                        *second = Some((Box::new(offer), now + timing::CHOICE));
                    }
                    return Ok(());
                }
                // The REQUEST is the first message of its own, under the same xid.
                self.select(now, Transaction { began: now, sent: 0, ..tx }, Arc::new(offer), out);
                Ok(())
            }
            State::Requesting { tx, offer, taken } => {
                let (xid, began, offer, taken) = (tx.xid, tx.began, offer.clone(), *taken);
                let server = self.addressee(&message, xid)?;
                accept::expect_kind(&message, &[MessageType::Ack, MessageType::Nak])?;
                if server != offer.server {
                    return Err(Refusal::OtherServer.into());
                }
                self.settle(now, &message, udp, began, Some(offer), out)?;
                if let (Some(by), Some(lease)) = (taken, self.state.lease().cloned()) {
                    self.decline(now, lease, by, out);
                }
                Ok(())
            }
            State::Rebooting { tx, lease, .. } => {
                let (xid, began, lease) = (tx.xid, tx.began, lease.clone());
                self.addressee(&message, xid)?;
                accept::expect_kind(&message, &[MessageType::Ack, MessageType::Nak])?;
                self.settle(now, &message, udp, began, Some(lease), out)
            }
            State::Renewing {
                lease,
                attempt: Attempt::Sent { xid, at, .. } | Attempt::Resolving(_, Some((xid, at))),
            } => {
                let (xid, at, lease) = (*xid, *at, lease.clone());
                let server = self.addressee(&message, xid)?;
                accept::expect_kind(&message, &[MessageType::Ack, MessageType::Nak])?;
                // Without the address on the interface all servers were asked; but only its own may refuse the lease yet.
                let any = !self.addressed && message.kind == MessageType::Ack;
                if server != lease.server && !any {
                    return Err(Refusal::OtherServer.into());
                }
                self.settle(now, &message, udp, at, self.confirms(lease), out)
            }
            State::Rebinding { lease, attempt: Attempt::Sent { xid, at, .. } } => {
                let (xid, at, lease) = (*xid, *at, lease.clone());
                self.addressee(&message, xid)?;
                accept::expect_kind(&message, &[MessageType::Ack, MessageType::Nak])?;
                self.settle(now, &message, udp, at, self.confirms(lease), out)
            }
            State::Init { .. }
            | State::InitReboot { .. }
            | State::Bound { .. }
            | State::Renewing { .. }
            | State::Rebinding { .. } => Err(Refusal::Unexpected.into()),
        }
    }

    /// Returns the lease whose very address an extension asks for: in INIT-REBOOT form it does.
    fn confirms(&self, lease: Arc<Lease>) -> Option<Arc<Lease>> {
        (!self.addressed).then_some(lease)
    }

    /// Carries an ACK out that answers a DISCOVER (RFC 4039). One of another address than the only one that will do is not
    /// wanted, but its server holds it.
    fn settle_rapid(
        &mut self,
        now: Instant,
        message: &Message,
        udp: &Udp<'_>,
        start: Instant,
        out: &mut Output,
    ) -> Result<(), Refused> {
        let Some(wanted) = self.insists.filter(|wanted| *wanted != message.yiaddr) else {
            return self.settle(now, message, udp, start, None, out);
        };
        let server = message.options.server_id.ok_or(Refusal::NoServerId)?;
        let lease = accept::lease(message, server, udp.source_mac, start)?;
        out.verdict = Some(Verdict::Unwanted { wanted, offered: lease.ip() });
        self.asked = Some(Arc::new(lease));
        Ok(())
    }

    /// Carries an ACK or NAK out, from a server that may send it, to a REQUEST sent at `start`. `asked` is the lease
    /// whose very address was asked for; an extension may bring another address.
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
            self.on_nak(now, server, message.options.message.clone(), asked, out);
            return Ok(());
        }
        let lease = accept::lease(message, server, udp.source_mac, start)?;
        if asked.as_ref().is_some_and(|a| a.ip() != lease.ip()) {
            return Err(Refusal::OtherAddress.into());
        }
        if lease.expired(now) {
            return Err(Refusal::Ended.into());
        }
        (self.asked, self.insists) = (None, None);
        let lease = Arc::new(lease);
        let extended = self.state.lease().is_some() && asked.is_none();
        self.tally = None;
        self.state = State::Bound { lease: lease.clone() };
        out.verdict = Some(if extended { Verdict::Kept(lease) } else { Verdict::Won(lease) });
        Ok(())
    }

    /// Goes back to INIT (RFC 2131 §3.1 step 4, §3.2 step 3). The first time at once; a server that refuses what it
    /// has just offered is asked again after a growing pause.
    fn on_nak(
        &mut self,
        now: Instant,
        server: std::net::Ipv4Addr,
        message: Option<String>,
        asked: Option<Arc<Lease>>,
        out: &mut Output,
    ) {
        let held = self.state.lease().cloned();
        let address = held.as_ref().or(asked.as_ref()).map(|lease| lease.ip());
        let naks = self.tally().naks + 1;
        if let Some(lease) = held {
            self.lose(now, lease, Loss::Nak { server, message: message.clone() }, out);
        }
        let pause = match naks {
            1 => std::time::Duration::ZERO,
            n => timing::acquisition_wait(n - 1, self.waited_for, &mut self.rng),
        };
        self.state = State::Init { at: now + pause, wanted: None };
        self.asked = None;
        let tally = self.count();
        tally.naks = naks;
        tally.nak = address.map(|address| (server, address, message));
    }

    fn addressee(&self, message: &Message, xid: u32) -> Result<std::net::Ipv4Addr, Refusal> {
        let expect = Expect { xid, chaddr: self.sender.chaddr, client_id: self.sender.client_id.as_bytes() };
        let server = accept::addressee(message, &expect)?;
        if self.sender.profile.trusts(server) { Ok(server) } else { Err(Refusal::Untrusted) }
    }
}
