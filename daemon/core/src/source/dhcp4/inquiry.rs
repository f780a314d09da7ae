//! Asking what the servers of a LAN offer, without taking it: DISCOVER, and no REQUEST (RFC 2131 §4.4.1).

use std::net::Ipv4Addr;

use fastrand::Rng;
use ipnet::Ipv4Net;

use super::lease::Lease;
use super::message::Sender;
use super::reach::Reach;
use super::state::StateName;
use super::{Refused, Tally, accept, answer, timing};
use crate::time::Instant;
use crate::wire::frame::{Arp, BadFrame, Udp};
use crate::wire::message::{Message, MessageType};

/// An inquiry, over sockets that are open.
#[derive(Debug)]
pub struct Inquiry {
    sender: Sender,
    xid: u32,
    began: Instant,
    /// When DISCOVER leaves again.
    next: Instant,
    tally: Tally,
    rng: Rng,
    is_answered: bool,
    /// The question whether anything but broadcasts reaches this client.
    reach: Option<Reach>,
}

/// What a server's offer says about its LAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferedLan {
    /// The server.
    pub server: Ipv4Addr,
    /// The subnet, if the server named its mask.
    pub subnet: Option<Ipv4Net>,
    /// The router.
    pub router: Option<Ipv4Addr>,
}

/// A server's complete offer.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The message.
    pub message: Message,
    /// The lease that it offers.
    pub lease: Lease,
}

impl Inquiry {
    /// Begins an inquiry. The first DISCOVER is due at once.
    pub fn new(sender: Sender, now: Instant, mut rng: Rng) -> Self {
        Self {
            sender,
            xid: rng.u32(..),
            began: now,
            next: now,
            tally: Tally::default(),
            rng,
            is_answered: false,
            reach: None,
        }
    }

    /// Returns what is due: DISCOVER, and the question whether anything but broadcasts reaches this client. That is asked as soon
    /// as it arises, and with each DISCOVER.
    pub fn on_clock(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let is_due = now >= self.next;
        let asks = |reach: &&mut Reach| is_due || reach.times() == 0;
        let reach = self.reach.as_mut().filter(asks);
        let mut frames = reach.map_or_else(Vec::new, |reach| {
            reach.ask(self.sender.station, Ipv4Addr::UNSPECIFIED)
        });
        if is_due {
            frames.push(self.discover(now));
        }
        frames
    }

    fn discover(&mut self, now: Instant) -> Vec<u8> {
        self.tally.discovers += 1;
        self.sender.asks();
        self.next = now + timing::acquisition_wait(self.tally.discovers, true, &mut self.rng);
        let secs = timing::secs(self.began, now);
        self.sender.discover(self.xid, secs, None)
    }

    /// Returns whether a DISCOVER other than the first is due.
    pub fn asks_again(&self, now: Instant) -> bool {
        self.tally.discovers > 0 && now >= self.next
    }

    /// Returns when DISCOVER leaves again.
    pub fn deadline(&self) -> Instant {
        self.next
    }

    /// Returns what a datagram says about the LAN, if it is an OFFER to this inquiry and is believed.
    pub fn on_udp(&mut self, now: Instant, udp: &Udp<'_>) -> Result<OfferedLan, Refused> {
        let Offer { message, lease } = self.offer(now, udp)?;
        // The mask of an address's class would only be a guess.
        let subnet = message.options.subnet_mask.map(|_| lease.address.trunc());
        Ok(OfferedLan {
            server: lease.server,
            subnet,
            router: lease.gateway,
        })
    }

    /// Returns a datagram's complete offer, if it is an OFFER to this inquiry and is believed.
    pub fn offer(&mut self, now: Instant, udp: &Udp<'_>) -> Result<Offer, Refused> {
        let offer = self
            .believed(now, udp)
            .inspect_err(|refused| self.tally.count(refused.clone()))?;
        if !std::mem::replace(&mut self.is_answered, true) && self.sender.flag_helped() {
            self.reach = Reach::of(&offer.lease);
        }
        Ok(offer)
    }

    /// Hears an ARP packet.
    pub fn on_arp(&mut self, arp: &Arp) {
        self.reach.take_if(|reach| reach.is_answered_by(arp));
    }

    /// Returns whether only broadcasts reach this client, once the first question has had its time.
    pub fn is_unreached(&self) -> bool {
        self.reach.as_ref().is_some_and(|reach| reach.times() > 1)
    }

    /// Counts a frame that could not be read.
    pub fn on_unreadable(&mut self, cause: BadFrame) {
        self.tally.count(cause.into());
    }

    /// Records that the link did not accept a message, and why.
    pub fn on_unsent(&mut self, cause: String) {
        (self.tally.unsent, self.tally.last_unsent) = (self.tally.unsent + 1, Some(cause));
    }

    /// Returns what was tried.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    fn believed(&self, now: Instant, udp: &Udp<'_>) -> Result<Offer, Refused> {
        let message = answer::message(udp)?;
        let server = accept::addressee(&message, &self.sender, self.xid)?;
        accept::expect_kind(&message, &[MessageType::Offer], StateName::Selecting)?;
        let lease = accept::lease(&message, server, udp.source_mac, now, None)?;
        Ok(Offer { message, lease })
    }
}
