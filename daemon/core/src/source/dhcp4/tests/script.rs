//! A client on a test bench: the test sets the time, reads frames as they would be on the wire, and builds answers from
//! bytes.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::super::lease::Lease;
use super::super::message::Sender;
use super::super::timing::Timer;
use super::super::{Client, Output, Signal, Verdict};
use crate::identity::ClientId;
use crate::time::Instant;
use crate::wire::Mac;
use crate::wire::frame::{self, Arp, ArpOp, Frame, FrameMeta, Udp};

pub(super) const MAC: Mac = Mac([2, 0, 0, 0, 0, 7]);
/// The address of an interface whose Ethernet address has changed.
pub(super) const STATION: Mac = Mac([2, 9, 9, 9, 9, 9]);
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(super) const SERVER_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
pub(super) const LEASED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 50);

pub(super) fn at(seconds: f64) -> Instant {
    Instant::from_boot(Duration::from_secs_f64(seconds))
}

pub(super) fn client_id() -> ClientId {
    ClientId::new(b"\0c1/lan/eth0".to_vec()).expect("long enough")
}

/// The sender of a client without any wishes.
pub(super) fn plain() -> Sender {
    Sender::new(MAC, &client_id(), Arc::default())
}

/// What a client sent, as a server reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) to: Mac,
    pub(super) source: Ipv4Addr,
    pub(super) destination: Ipv4Addr,
    pub(super) payload: Vec<u8>,
}

impl Sent {
    pub(super) fn xid(&self) -> u32 {
        u32::from_be_bytes(self.payload[4..8].try_into().expect("four bytes"))
    }

    pub(super) fn secs(&self) -> u16 {
        u16::from_be_bytes(self.payload[8..10].try_into().expect("two bytes"))
    }

    pub(super) fn ciaddr(&self) -> Ipv4Addr {
        <[u8; 4]>::try_from(&self.payload[12..16])
            .expect("four bytes")
            .into()
    }

    /// Returns the value of an option.
    pub(super) fn option(&self, code: u8) -> Option<&[u8]> {
        let mut rest = &self.payload[240..];
        while let [found, rest_of @ ..] = rest {
            match *found {
                0 => rest = rest_of,
                255 => return None,
                found => {
                    let (length, tail) = rest_of.split_first().expect("length");
                    let (value, after) = tail.split_at((*length).into());
                    if found == code {
                        return Some(value);
                    }
                    rest = after;
                }
            }
        }
        None
    }

    /// Returns the address that is an option's value.
    pub(super) fn address(&self, code: u8) -> Option<Ipv4Addr> {
        let value = <[u8; 4]>::try_from(self.option(code)?);
        Some(value.expect("four bytes").into())
    }

    /// Returns the message type by name.
    pub(super) fn kind(&self) -> &'static str {
        match self.option(53) {
            Some([1]) => "DISCOVER",
            Some([3]) => "REQUEST",
            Some([4]) => "DECLINE",
            Some([7]) => "RELEASE",
            other => panic!("message type {other:?}"),
        }
    }
}

/// A frame by name, for tables: `ARP`, or the message type.
pub(super) fn name(frame: &[u8]) -> &'static str {
    match frame::decode(frame, FrameMeta::default()).expect("our own frame") {
        Frame::Arp(_) => "ARP",
        Frame::Udp(_) => sent(frame).kind(),
    }
}

pub(super) fn sent(frame: &[u8]) -> Sent {
    let Frame::Udp(udp) = frame::decode(frame, FrameMeta::default()).expect("our own frame") else {
        panic!("ARP")
    };
    assert_eq!((udp.source_port, udp.destination_port), (68, 67));
    assert!(
        [MAC, STATION].contains(&udp.source_mac),
        "{}",
        udp.source_mac
    );
    let Udp {
        destination_mac: to,
        source,
        destination,
        payload,
        ..
    } = udp;
    Sent {
        to,
        source,
        destination,
        payload: payload.to_vec(),
    }
}

impl Output {
    /// Returns the first message.
    pub(super) fn sent(&self) -> Sent {
        sent(&self.frames[0])
    }

    /// Returns the names of all frames.
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.frames.iter().map(|frame| name(frame)).collect()
    }

    /// Returns the lease that the client got by this.
    pub(super) fn won(&self) -> Arc<Lease> {
        match &self.verdict {
            Some(Verdict::Granted(lease)) => lease.clone(),
            _ => panic!("{self:?}"),
        }
    }
}

/// A server's answer; options are appended as they are.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) kind: u8,
    pub(super) xid: u32,
    pub(super) chaddr: Mac,
    pub(super) yiaddr: Ipv4Addr,
    pub(super) siaddr: Ipv4Addr,
    pub(super) giaddr: Ipv4Addr,
    pub(super) options: Vec<(u8, Vec<u8>)>,
    /// How many bytes are missing at its end.
    pub(super) cut: usize,
}

pub(super) const OFFER: u8 = 2;
pub(super) const ACK: u8 = 5;
pub(super) const NAK: u8 = 6;

impl Reply {
    /// Returns an answer with server identifier, a /24 and a lease time.
    pub(super) fn new(kind: u8, xid: u32, lease_time: u32) -> Self {
        let options = vec![
            (54, SERVER.octets().to_vec()),
            (1, vec![255, 255, 255, 0]),
            (51, lease_time.to_be_bytes().to_vec()),
        ];
        let (siaddr, giaddr) = (Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED);
        Self {
            kind,
            xid,
            chaddr: MAC,
            yiaddr: LEASED,
            siaddr,
            giaddr,
            options,
            cut: 0,
        }
    }

    pub(super) fn nak(xid: u32) -> Self {
        let options = vec![
            (54, SERVER.octets().to_vec()),
            (56, b"wrong \"net\"".to_vec()),
        ];
        Self {
            kind: NAK,
            yiaddr: Ipv4Addr::UNSPECIFIED,
            options,
            ..Self::new(NAK, xid, 0)
        }
    }

    pub(super) fn with(mut self, code: u8, value: &[u8]) -> Self {
        self.options.retain(|(have, _)| *have != code);
        self.options.push((code, value.to_vec()));
        self
    }

    pub(super) fn giving(self, yiaddr: Ipv4Addr) -> Self {
        Self { yiaddr, ..self }
    }

    pub(super) fn without(mut self, code: u8) -> Self {
        self.options.retain(|(have, _)| *have != code);
        self
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![2, 1, 6, 0];
        bytes.extend(self.xid.to_be_bytes());
        bytes.extend([0; 8]);
        bytes.extend(self.yiaddr.octets());
        bytes.extend(self.siaddr.octets());
        bytes.extend(self.giaddr.octets());
        bytes.extend(self.chaddr.0);
        bytes.extend([0; 10 + 64 + 128]);
        bytes.extend([99, 130, 83, 99, 53, 1, self.kind]);
        for (code, value) in &self.options {
            bytes.extend([*code, value.len() as u8]);
            bytes.extend(value);
        }
        bytes.push(255);
        bytes.truncate(bytes.len() - self.cut);
        bytes
    }
}

/// The server's datagram.
pub(super) fn from_server(payload: &[u8]) -> Udp<'_> {
    Udp {
        source_mac: SERVER_MAC,
        destination_mac: MAC,
        source: SERVER,
        destination: LEASED,
        source_port: 67,
        destination_port: 68,
        payload,
    }
}

/// The server's ARP answer, from this Ethernet address.
pub(super) fn arp_of_server(mac: Mac) -> Arp {
    Arp {
        op: ArpOp::Reply,
        source_mac: mac,
        destination_mac: MAC,
        sender_mac: mac,
        sender: SERVER,
        target_mac: MAC,
        target: LEASED,
    }
}

/// A client and its time.
#[derive(Clone)]
pub(super) struct Bench {
    pub(super) client: Client,
    pub(super) listening: bool,
}

impl Bench {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            listening: false,
        }
    }

    /// A client that a caller waits for, in INIT at zero.
    pub(super) fn acquiring() -> Self {
        Self::new(Client::acquire(plain(), None, at(0.0), Rng::with_seed(7)))
    }

    /// A client that has held a lease since zero, with these seconds to T1, T2 and the end.
    pub(super) fn bound(t1: u32, t2: u32, end: u32) -> Self {
        Self::holding(timed(t1, t2, end))
    }

    /// A client that has held this lease since zero.
    pub(super) fn holding(lease: Lease) -> Self {
        let rng = Rng::with_seed(7);
        Self::new(Client::resume(plain(), Arc::new(lease), at(0.0), rng))
    }

    /// A client that must confirm an endless lease.
    pub(super) fn confirming() -> Self {
        let mut client = Client::resume(plain(), Arc::new(lease()), at(0.0), Rng::with_seed(7));
        client.confirm(at(0.0));
        Self::new(client)
    }

    /// Sets the time to `now`; sockets that are wanted open at once.
    pub(super) fn clock(&mut self, now: Instant) -> Output {
        let mut output = self.signal(now, Signal::Clock);
        if output.listen && !std::mem::replace(&mut self.listening, output.listen) {
            let opened = self.signal(now, Signal::Opened);
            // Sent before the sockets were open.
            assert!(output.frames.is_empty());
            output = Output {
                verdict: output.verdict.or(opened.verdict.clone()),
                ..opened
            };
        }
        self.listening = output.listen;
        output
    }

    pub(super) fn signal(&mut self, now: Instant, signal: Signal<'_>) -> Output {
        let output = self.client.handle(now, signal);
        let closes = output.anew || matches!(output.verdict, Some(Verdict::Lost(..)));
        if !output.listen || !closes {
            return output;
        }
        // The open sockets close; those of the next exchange open at once.
        let declines = output.frames.iter().all(|frame| name(frame) == "DECLINE");
        assert!(declines, "sent over the sockets of before");
        self.listening = true;
        let Output {
            mut frames,
            verdict,
            refused,
            heard,
            dropped,
            anew,
            missed,
            settled,
            ..
        } = output;
        let opened = self.client.handle(now, Signal::Opened);
        frames.extend(opened.frames);
        Output {
            frames,
            verdict,
            refused,
            heard,
            dropped,
            anew,
            missed,
            settled,
            listen: opened.listen,
        }
    }

    /// Delivers an answer.
    pub(super) fn answer(&mut self, now: Instant, reply: &Reply) -> Output {
        let payload = reply.bytes();
        let output = self.signal(now, Signal::Udp(&from_server(&payload)));
        self.listening = output.listen;
        output
    }

    /// Delivers the server's OFFER of ten minutes.
    pub(super) fn offer(&mut self, now: Instant, xid: u32) -> Output {
        self.answer(now, &Reply::new(OFFER, xid, 600))
    }

    /// Delivers its ACK of ten minutes.
    pub(super) fn ack(&mut self, now: Instant, xid: u32) -> Output {
        self.answer(now, &Reply::new(ACK, xid, 600))
    }

    pub(super) fn nak(&mut self, now: Instant, xid: u32) -> Output {
        self.answer(now, &Reply::nak(xid))
    }

    /// Delivers the server's ARP answer.
    pub(super) fn resolved(&mut self, now: Instant) -> Output {
        self.signal(now, Signal::Arp(&arp_of_server(SERVER_MAC)))
    }

    /// Sends the first message, at zero, and returns its xid.
    pub(super) fn begin(&mut self) -> u32 {
        self.clock(at(0.0)).sent().xid()
    }

    pub(super) fn deadline(&self) -> (Instant, Timer) {
        self.client.deadline().expect("a deadline")
    }

    /// Moves to the next deadline, which is for `timer`: nothing happens just before it, and these frames (by name) leave at it.
    /// Returns the time and the output.
    pub(super) fn next(&mut self, timer: Timer, frames: &[&str]) -> (Instant, Output) {
        let (when, why) = self.deadline();
        assert_eq!(why, timer, "in {}", self.client.state());
        let before = (self.client.state(), self.listening);
        let early = self.clock(when - Duration::from_micros(1));
        assert!(
            early.frames.is_empty() && early.verdict.is_none(),
            "{timer:?}: early {early:?}"
        );
        let found = (self.client.state(), self.listening);
        assert_eq!(found, before, "{timer:?}: nothing changes early");
        let output = self.clock(when);
        assert_eq!(output.names(), frames, "{timer:?}");
        (when, output)
    }
}

/// A lease since zero with these seconds to T1, T2 and the end.
pub(super) fn timed(t1: u32, t2: u32, end: u32) -> Lease {
    Lease {
        times: super::super::timing::times(end, Some(t1), Some(t2)),
        ..lease()
    }
}

/// A lease since zero without end.
pub(super) fn lease() -> Lease {
    let unknown = Lease::unknown("192.0.2.50/24".parse().expect("an address"), at(0.0));
    Lease {
        server: SERVER,
        server_mac: SERVER_MAC,
        ..unknown
    }
}
