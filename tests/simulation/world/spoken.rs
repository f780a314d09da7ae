//! The messages of clients and servers, judged where clients send them and where clients hear them.

use std::net::Ipv4Addr;

use netns_fixtures::model::{ClientKey, Kind, Message, Packet, Purpose, code, decode};

use super::actor::Actor;
use super::seen::Seen;
use super::{Micros, SECOND, World};
use crate::trace::Brief;
use crate::watch::Rule;

impl World {
    /// Judges a frame that a client sends. `strays` means that nobody has the Ethernet address that it goes to.
    pub(super) fn spoken(&mut self, lan: usize, frame: &[u8], strays: bool) {
        let now = self.model_time();
        if let Some((to, message)) = addressed(frame) {
            self.client_spoke(lan, &message, strays);
            self.judge_timing(lan, to, &message);
            if message.kind() == Some(Kind::Request) {
                let asked = (message.xid, message.address(code::SERVER));
                let latest = self
                    .ledger
                    .latest
                    .entry((lan, message.key()))
                    .or_insert((asked, self.now));
                if latest.0 != asked {
                    *latest = (asked, self.now);
                    self.show(&Seen::Requests(lan, &message));
                }
            }
        }
        if let Some(violation) = self.segments[lan]
            .judge
            .client_frame(now, frame)
            .into_iter()
            .next()
        {
            self.fail(Rule::Client(Box::new(violation)), Brief(frame).to_string());
        }
    }

    fn judge_timing(&mut self, lan: usize, to: Ipv4Addr, message: &Message) {
        let Some(purpose) = Purpose::of(message, Some(to)) else {
            return;
        };
        if let Err(how) = self.timing.sent(self.now, (lan, message.key()), purpose) {
            self.fail(Rule::Timing, how);
        }
    }

    /// Returns the clients that were offered or granted an address, and when each was last.
    pub(super) fn offers_of(
        &self,
        lan: usize,
        address: Ipv4Addr,
    ) -> impl Iterator<Item = (&ClientKey, Micros)> {
        let offers = self
            .ledger
            .offered
            .range((lan, address, ClientKey::Id(Vec::new()))..);
        let of_address = offers.take_while(move |((l, a, _), _)| (*l, *a) == (lan, address));
        of_address.map(|((.., to), at)| (to, *at))
    }

    /// Returns what a client has been offered or granted since `since`.
    pub(super) fn offers_to(
        &self,
        lan: usize,
        key: &ClientKey,
        since: Micros,
    ) -> impl Iterator<Item = Ipv4Addr> {
        let is_its = move |((at, _, to), when): &(&(usize, Ipv4Addr, ClientKey), &Micros)| {
            (*at, to) == (lan, key) && **when >= since
        };
        self.ledger
            .offered
            .iter()
            .filter(is_its)
            .map(|((_, address, _), _)| *address)
    }

    /// Records that a server's message reached its client.
    pub(super) fn heard(&mut self, lan: usize, bytes: &[u8]) {
        let payload = bytes.get(42..).unwrap_or_default();
        let Ok(message) = Message::decode(payload) else {
            return;
        };
        let (key, is_nak) = (message.key(), message.kind() == Some(Kind::Nak));
        self.show(&Seen::Heard(lan, bytes, &message));
        if self.segments[lan].is_of_rogue(bytes) {
            return;
        }
        // A lease is confirmed once the wall clock was set: what answers an earlier question comes too late.
        if !is_nak || self.now > self.clocks.wall_set + SECOND || self.clocks.wall_set == 0 {
            self.segments[lan].judge.heard(payload);
        }
        if matches!(message.kind(), Some(Kind::Offer | Kind::Ack)) {
            self.ledger
                .offered
                .insert((lan, message.yiaddr, key.clone()), self.now);
            // Its holder may say so, after a restart too.
            let (name, address) = (self.segments[lan].lan.clone(), message.yiaddr);
            self.causes_of(|record| record.identity.lan == name && record.lease.ip() == address);
        }
        if message.kind() == Some(Kind::Ack) {
            // An ACK after the end comes too late.
            let was_told = |actor: &Actor| {
                actor
                    .told
                    .as_ref()
                    .is_some_and(|lease| lease.ip() == message.yiaddr)
            };
            let concerned = (0..self.actors.len()).filter(|index| was_told(&self.actors[*index]));
            concerned
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|index| self.excuse_lapsed(index));
            let Some(((xid, _), sent)) = self.ledger.latest.get(&(lan, message.key())).copied()
            else {
                return;
            };
            if xid == message.xid {
                self.timing.settled(&(lan, message.key()));
                let seconds = message
                    .number(code::LEASE_TIME)
                    .filter(|seconds| *seconds != u32::MAX);
                let until = seconds.map(|seconds| sent + u64::from(seconds) * SECOND);
                self.ledger
                    .heard
                    .insert((lan, message.yiaddr, Some(message.key())), until);
            }
        }
    }
}

/// Returns the DHCP message in a frame, and the IP address that it goes to.
fn addressed(frame: &[u8]) -> Option<(Ipv4Addr, Message)> {
    match decode(frame).ok()?.packet {
        Packet::Udp {
            destination,
            payload,
            ..
        } => Some((*destination.ip(), Message::decode(payload).ok()?)),
        Packet::Arp(_) | Packet::Other(_) => None,
    }
}
