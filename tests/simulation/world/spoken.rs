//! The messages of clients and servers, judged where clients send them and where clients hear them.

use std::net::Ipv4Addr;
use std::time::Duration;

use leasehold_core::effect::{Call, PoolCall};
use leasehold_core::identity::Attachment;
use leasehold_core::record::RecordState;
use netns_fixtures::model::{ClientKey, Kind, Message, Packet, Purpose, code, decode};

use super::actor::Actor;
use super::seen::Seen;
use super::{Micros, SECOND, World};
use crate::subject::{is_in, key_of};
use crate::timing::Times;
use crate::trace::Brief;
use crate::watch::Rule;

/// How long after another client was offered its address a client may renew its lease at any time.
const OFFERED: u64 = 30 * SECOND;

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
        let key = message.key();
        // A question, which an oracle of its own judges.
        if self.plan.fallback.is_some() && self.has_fallback(&(lan, key.clone())) {
            return;
        }
        let waited_for = purpose == Purpose::Discover && self.calls.waits_for(self.now, &key);
        let address = if message.ciaddr.is_unspecified() {
            message.address(code::REQUESTED)
        } else {
            Some(message.ciaddr)
        };
        let offers = address
            .into_iter()
            .flat_map(|address| self.offers_of(lan, address));
        let offered = offers.filter(|(to, _)| **to != key).map(|(_, at)| at).max();
        // A try that did not reach its server is made again later.
        let again = |at| {
            self.may_lapse
                && self
                    .timing
                    .last_start(&(lan, key.clone()))
                    .is_none_or(|start| at >= start)
        };
        let offered = offered.is_some_and(|at| self.now < at + OFFERED || again(at));
        let early = offered || self.now < self.segments[lan].ordered;
        if offered && purpose == Purpose::Renew {
            self.stats
                .count("renewed as another was offered the address");
        }
        let asked = (message.xid, message.address(code::SERVER));
        if let Err(how) = self
            .timing
            .sent(self.now, (lan, key), purpose, asked, waited_for, early)
        {
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

    /// Makes a client for which a caller asks begin anew.
    pub(super) fn asked_anew(&mut self, call: &Call) {
        let is_told = |attachment: &Attachment, address| {
            let actor = self
                .actors
                .iter()
                .find(|actor| actor.is_told_once() && actor.attachment == *attachment);
            actor
                .and_then(|actor| actor.told.as_ref())
                .is_some_and(|told| told.ip() == address)
        };
        let concerned = if let Call::Network(call) = call {
            self.concerned(call)
        } else {
            None
        };
        let concerns = |attachment: &Attachment| match call {
            Call::Add(add) => add.attachment == *attachment,
            Call::Del {
                attachment: deleted,
                ..
            } => deleted == attachment,
            Call::Collect { network, .. } => is_in(attachment, network),
            Call::Order(order) => order.which.name == Some(attachment.to_string()),
            Call::Check { .. }
            | Call::Status { .. }
            | Call::Ready
            | Call::List
            | Call::Show(_)
            | Call::Ranges => false,
            Call::Pool(PoolCall::ReleaseAddress { address, .. }) => is_told(attachment, *address),
            Call::Pool(
                PoolCall::Request(_) | PoolCall::Release { .. } | PoolCall::Reserve { .. },
            ) => false,
            Call::Network(_) => concerned.as_ref() == Some(attachment),
        };
        for actor in self
            .actors
            .iter()
            .filter(|actor| concerns(&actor.attachment))
        {
            self.timing.asked(&(actor.lan, actor.client_key()));
        }
    }

    /// Gives clients that know no lease the times in their records: their daemon starts, or a lease from an earlier boot is used
    /// unconfirmed.
    pub(super) fn remember_times(&mut self) {
        let boot = format!("boot-{}", self.clocks.boot);
        let bound = self
            .store
            .durable
            .values()
            .filter(|r| r.state == RecordState::Bound && r.boot.0 == boot);
        let known = bound.filter_map(|record| {
            let lan = self
                .segments
                .iter()
                .position(|segment| segment.lan == record.identity.lan)?;
            let (start, times) = (self.world_time(record.lease.start), record.lease.times?);
            let at = |after: Duration| start + after.as_micros() as u64;
            let times = Times {
                start,
                t1: at(times.t1),
                t2: at(times.t2),
                end: at(times.end),
            };
            Some(((lan, key_of(&record.identity.client_id)), times))
        });
        for (who, times) in known.collect::<Vec<_>>() {
            let known = self.timing.last_start(&who);
            if known.is_some_and(|known| known >= times.start) {
                continue;
            }
            self.timing.knows(self.now, who, times);
        }
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
        // A NAK through a relay may not be the last word.
        if is_nak && message.giaddr.is_unspecified() {
            self.timing.refused(&(lan, key.clone()));
        }
        if message.kind() == Some(Kind::Ack) {
            // Others that were offered the same address no longer ask for it, and ask anew if it is offered again.
            let others = self
                .offers_of(lan, message.yiaddr)
                .map(|(to, _)| to.clone())
                .filter(|to| *to != key);
            for other in others.collect::<Vec<_>>() {
                self.timing.refused(&(lan, other));
            }
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
                if let Some(times) = Times::of(&message, sent) {
                    self.timing.knows(self.now, (lan, message.key()), times);
                }
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
