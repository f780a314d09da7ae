//! A DHCP client's life by the script: time, sockets, good and bad answers, in any order.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use ipnet::Ipv4Net;
use leasehold_core::identity::ClientId;
use leasehold_core::source::{
    Client, ClientProfile, Lease, Output, Sender, Servers, Signal, Verdict, Wanted,
    lease::LeaseTimes,
};
use leasehold_core::time::Instant;
use leasehold_core::wire::Mac;
use leasehold_core::wire::frame::{Arp, ArpOp, Udp};
use leasehold_core::wire::message::{Message, MessageType};
use netns_fixtures::model::{self, Judge, Kind, Packet, Violation, code};

use super::script::Script;

const MAC: Mac = Mac([2, 0, 0, 0, 0, 7]);
const SERVER_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const ID: &[u8] = b"\0c1/lan/eth0";
const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 50);
/// On the link, on the link, behind a router.
const SERVERS: [Ipv4Addr; 3] = [
    Ipv4Addr::new(192, 0, 2, 1),
    Ipv4Addr::new(192, 0, 2, 2),
    Ipv4Addr::new(198, 51, 100, 1),
];

/// Lets a client live through a script.
///
/// It sends only over open sockets, and only what the model's judge allows: each message in its form of RFC 2131 table
/// 5, for what was offered or granted. The judge does not hear about answers that the client refused. A lease is taken and
/// used only while it lasts. A deadline that has passed is gone once it is served.
///
/// # Panics
/// If any of this does not hold.
pub fn client(bytes: &[u8]) {
    let mut life = Life::begin(Script(bytes));
    while !life.script.is_over() {
        life.step();
    }
    life.serve();
    life.give_up();
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Closed,
    Opening,
    Open,
}

struct Life<'a> {
    script: Script<'a>,
    client: Client,
    now: Instant,
    line: Line,
    judge: Judge,
    /// What the client said last.
    said: Option<model::Message>,
    /// What it has asked for by ARP since then, if anything.
    sought: Option<Ipv4Addr>,
    /// The addresses that it was offered, asked for, or had.
    addresses: Vec<Ipv4Addr>,
}

impl<'a> Life<'a> {
    fn begin(mut script: Script<'a>) -> Self {
        let now = Instant::from_boot(Duration::from_secs(1000)) + script.duration();
        let rng = Rng::with_seed(script.u8().into());
        let (broadcast, rapid_commit) = (script.flag(), script.flag());
        let deny = if script.flag() {
            vec![SERVERS[1]]
        } else {
            Vec::new()
        };
        let servers = Servers {
            deny,
            ..Servers::default()
        };
        let profile = ClientProfile {
            broadcast,
            rapid_commit,
            servers,
            ..ClientProfile::default()
        };
        let id = ClientId::new(ID.to_vec()).expect("long enough");
        let sender = Sender::new(MAC, &id, Arc::new(profile));
        let mut judge = Judge::default();
        let kind = script.u8() % 8;
        let mut before = || {
            let lease = lease(&mut script, now);
            granted(&mut judge, &sender, &lease);
            lease
        };
        let client = match kind {
            0 => Client::acquire(sender, None, now, rng),
            1 | 2 => {
                let wanted = Wanted {
                    address: ADDRESS,
                    preferred: kind == 1,
                };
                Client::acquire(sender, Some(wanted), now, rng)
            }
            3 => Client::seek(sender, now, rng),
            4 => Client::adopt(sender.clone(), before().address, now, rng),
            5 => Client::reacquire(sender.clone(), before().into(), now, rng),
            6 => Client::resume(sender.clone(), before().into(), now, rng),
            _ => {
                let mut client = Client::resume(sender.clone(), before().into(), now, rng);
                client.confirm(now);
                client
            }
        };
        Self {
            script,
            client,
            now,
            line: Line::Closed,
            judge,
            said: None,
            sought: None,
            addresses: vec![ADDRESS],
        }
    }

    fn step(&mut self) {
        match self.script.u8() % 15 {
            0 => self.now = self.now + self.script.duration(),
            1 => self.until_deadline(Duration::ZERO),
            2 => self.until_deadline(Duration::from_micros(1)),
            3 => self.serve(),
            4 if self.line == Line::Opening => {
                self.line = Line::Open;
                self.handle(Signal::Opened);
            }
            5 if self.line != Line::Closed => {
                self.line = Line::Closed;
                self.handle(Signal::Unopened);
            }
            6 | 7 => self.answer(),
            8 => self.noise(),
            9 => self.arp(),
            10 => self.client.not_waited_for(),
            11 => self.go_on(),
            12 => self.handle(Signal::Conflict { by: SERVER_MAC }),
            _ => {
                self.go_on();
                self.right_answer();
            }
        }
    }

    /// The time that the client waits for comes, and its sockets open.
    fn go_on(&mut self) {
        self.until_deadline(Duration::ZERO);
        self.serve();
        if self.line == Line::Opening {
            self.line = Line::Open;
            self.handle(Signal::Opened);
        }
    }

    /// The intended server answers as it should.
    fn right_answer(&mut self) {
        if self.line != Line::Open {
            return;
        }
        if let Some(sender) = self.sought.take() {
            self.handle(Signal::Arp(&arp(ArpOp::Reply, SERVER_MAC, sender)));
        }
        let Some(said) = &self.said else { return };
        let kind = if said.kind() == Some(Kind::Discover) {
            Kind::Offer
        } else {
            Kind::Ack
        };
        let server = said.address(code::SERVER).unwrap_or(SERVERS[0]);
        let options = vec![
            (code::TYPE, vec![kind as u8]),
            (code::SERVER, server.octets().to_vec()),
            (code::LEASE_TIME, 600_u32.to_be_bytes().to_vec()),
        ];
        let address = [
            said.ciaddr,
            said.address(code::REQUESTED).unwrap_or(ADDRESS),
        ];
        let address = address[usize::from(said.ciaddr.is_unspecified())];
        self.hear(&reply(said.xid, address, options).encode());
    }

    /// Advances to the time that the client waits for, less `early`.
    fn until_deadline(&mut self, early: Duration) {
        if let Some((at, _)) = self.client.deadline() {
            self.now = self.now.max(at - early);
        }
    }

    /// Wakes the client until no past deadline is left.
    fn serve(&mut self) {
        self.handle(Signal::Clock);
        for _ in 0..4 {
            match self.client.deadline() {
                Some((at, _)) if at <= self.now => self.handle(Signal::Clock),
                _ => return self.is_at_rest(),
            }
        }
        panic!(
            "{:?} at {:?} has come and stays: {:?}",
            self.client.deadline(),
            self.now,
            self.client
        );
    }

    /// A client that waits for nothing has everything it wants.
    fn is_at_rest(&self) {
        let for_ever = self
            .client
            .lease()
            .is_some_and(|lease| lease.times.is_none());
        let waits = self.client.deadline().is_some() || self.line == Line::Opening;
        assert!(waits || for_ever, "nothing wakes {:?}", self.client);
    }

    fn handle(&mut self, signal: Signal<'_>) {
        let heard = match &signal {
            Signal::Udp(udp) => Some(udp.payload),
            Signal::Clock | Signal::Opened | Signal::Unopened | Signal::Arp(_) => None,
            Signal::Unreadable { .. } | Signal::Conflict { .. } => None,
        };
        // DECLINE leaves by the sockets on which the conflict was heard.
        let conflict = matches!(signal, Signal::Conflict { .. });
        let open = self.line == Line::Open;
        let out = self.client.handle(self.now, signal);
        if let Some(message) = heard
            .filter(|_| out.refused.is_none())
            .and_then(|bytes| Message::decode(bytes).ok())
        {
            let understood = understood(&message);
            self.judge.server(self.now.since_boot(), &understood);
            self.judge.heard(&understood);
            self.addresses.push(message.yiaddr);
        }
        assert!(
            open || conflict || out.frames.is_empty(),
            "sent without open sockets"
        );
        assert!(out.frames.len() <= 2, "{} frames at once", out.frames.len());
        for frame in &out.frames {
            self.sent(frame);
        }
        self.turned(&out);
        // The sockets of a lost lease are closed: the next exchange has others.
        if out.anew || matches!(out.verdict, Some(Verdict::Lost(..))) {
            self.line = Line::Closed;
        }
        self.line = match (out.listen, self.line) {
            (true, Line::Closed) => Line::Opening,
            (true, line) => line,
            (false, _) => Line::Closed,
        };
    }

    /// Has the judge read what the client sent.
    fn sent(&mut self, frame: &[u8]) {
        let found = judged(&mut self.judge, self.now, frame);
        assert!(
            found.is_empty(),
            "{found:?} at {:?}: {:?}",
            self.now,
            self.client
        );
        match model::decode(frame)
            .expect("the judge could read it")
            .packet
        {
            Packet::Udp { payload, .. } => {
                (self.said, self.sought) = (model::Message::decode(payload).ok(), None)
            }
            Packet::Arp(arp) => self.sought = Some(arp.target),
            Packet::Other(_) => {}
        }
    }

    /// Checks a turning point.
    fn turned(&self, out: &Output) {
        let held = self.client.lease();
        match &out.verdict {
            Some(Verdict::Won(lease)) => {
                assert!(out.frames.is_empty(), "used before it is durable");
                assert_eq!(held, Some(&**lease));
            }
            Some(Verdict::Kept(lease)) => assert_eq!(held, Some(&**lease)),
            Some(Verdict::Lost(..)) => assert_eq!(held, None),
            None => {}
        }
        if let Some(lease) = held {
            assert!(!lease.expired(self.now), "{lease:?} at {:?}", self.now);
            assert!(
                lease
                    .times
                    .is_none_or(|times| times.t1 < times.t2 && times.t2 < times.end),
                "{lease:?}"
            );
        }
    }

    /// A correct answer, apart from what the script changes in it.
    fn answer(&mut self) {
        if self.line != Line::Open {
            return;
        }
        let kind = self.script.one(&[2, 5, 6, 5, 2, 5, 1, 8]);
        let right = self.said.as_ref().map_or(0, |said| said.xid);
        let xid = if self.script.u8() < 240 {
            right
        } else {
            self.script.u32()
        };
        let address = self.address();
        let mut options = vec![(code::TYPE, vec![kind])];
        if self.script.u8() < 250 {
            options.push((code::SERVER, self.script.one(&SERVERS).octets().to_vec()));
        }
        if self.script.u8() < 250 {
            let seconds = self.seconds();
            options.push((code::LEASE_TIME, seconds.to_be_bytes().to_vec()));
        }
        let shape = self.script.u8();
        for (bit, code, value) in [
            (1, code::SUBNET_MASK, vec![255, 255, 255, 0]),
            (2, code::ROUTERS, SERVERS[0].octets().to_vec()),
            (4, code::CLIENT_ID, ID.to_vec()),
            (8, 80, Vec::new()),
        ] {
            if shape & bit != 0 {
                options.push((code, value));
            }
        }
        for (bit, code) in [(16, code::T1), (32, code::T2)] {
            if shape & bit != 0 {
                let seconds = self.seconds();
                options.push((code, seconds.to_be_bytes().to_vec()));
            }
        }
        let mut payload = reply(xid, address, options).encode();
        if shape & 64 != 0 {
            let damage = (
                usize::from(self.script.u16()) % payload.len(),
                self.script.u8(),
            );
            payload[damage.0] = damage.1;
        }
        self.hear(&payload);
    }

    /// Bytes, after a valid header if the script says so.
    fn noise(&mut self) {
        if self.line != Line::Open {
            return;
        }
        let mut payload = Vec::new();
        if self.script.flag() {
            let xid = self.said.as_ref().map_or(0, |said| said.xid);
            payload = reply(xid, self.address(), Vec::new()).encode();
            payload.truncate(240);
        }
        payload.extend(self.script.bytes());
        self.hear(&payload);
    }

    fn hear(&mut self, payload: &[u8]) {
        let source_mac = self.script.one(&[SERVER_MAC, Mac([2, 0, 0, 0, 0, 2]), MAC]);
        let udp = Udp {
            source_mac,
            destination_mac: MAC,
            source: SERVERS[0],
            destination: ADDRESS,
            source_port: 67,
            destination_port: 68,
            payload,
        };
        self.handle(Signal::Udp(&udp));
    }

    fn arp(&mut self) {
        if self.line != Line::Open {
            return;
        }
        let sender_mac = self.script.one(&[
            SERVER_MAC,
            Mac([2, 0, 0, 0, 0, 2]),
            MAC,
            Mac::BROADCAST,
            Mac::default(),
        ]);
        let sender = match self.script.u8() % 5 {
            4 => self.script.address(),
            known => SERVERS[usize::from(known) % SERVERS.len()],
        };
        let op = if self.script.flag() {
            ArpOp::Request
        } else {
            ArpOp::Reply
        };
        self.handle(Signal::Arp(&arp(op, sender_mac, sender)));
    }

    /// Ends the client as a DEL would; what it holds is given back.
    fn give_up(&mut self) {
        if let Some(release) = self.client.abort(self.now) {
            self.sent(&release);
        }
    }

    /// The address that the client speaks of, an earlier one, or any.
    fn address(&mut self) -> Ipv4Addr {
        let asked = self.said.as_ref().and_then(|said| match said.ciaddr {
            Ipv4Addr::UNSPECIFIED => said.address(code::REQUESTED),
            leased => Some(leased),
        });
        match self.script.u8() {
            0..160 => asked.unwrap_or(ADDRESS),
            160..240 => self.addresses[usize::from(self.script.u8()) % self.addresses.len()],
            240..250 => Ipv4Addr::new(192, 0, 2, self.script.u8()),
            250.. => self.script.address(),
        }
    }

    fn seconds(&mut self) -> u32 {
        match self.script.u8() {
            0..200 => u32::from(self.script.u16()) % 7200,
            200..250 => self.script.u32(),
            250.. => u32::MAX,
        }
    }
}

fn arp(op: ArpOp, sender_mac: Mac, sender: Ipv4Addr) -> Arp {
    Arp {
        op,
        source_mac: SERVER_MAC,
        destination_mac: MAC,
        sender_mac,
        sender,
        target_mac: MAC,
        target: ADDRESS,
    }
}

/// An earlier lease: it began some time ago.
fn lease(script: &mut Script<'_>, now: Instant) -> Lease {
    let server = script.one(&SERVERS);
    let seconds = u32::from(script.u16()).max(1);
    let end = Duration::from_secs(seconds.into());
    let times = LeaseTimes {
        t1: end / 2,
        t2: end * 7 / 8,
        end,
    };
    // Drawn in the corpus's order.
    let start = now - Duration::from_secs(u64::from(script.u16()) % 1000);
    Lease {
        server,
        server_mac: SERVER_MAC,
        times: (seconds != 0xffff).then_some(times),
        gateway: script.flag().then_some(SERVERS[0]),
        ..Lease::unknown(
            Ipv4Net::new(ADDRESS, 24).expect("24 is a prefix length"),
            start,
        )
    }
}

/// Lets the judge see how an earlier lease was granted.
fn granted(judge: &mut Judge, sender: &Sender, lease: &Lease) {
    const XID: u32 = 1;
    let at = lease.start;
    let seconds = lease
        .times
        .map_or(u32::MAX, |times| times.end.as_secs() as u32);
    let options = |kind| {
        let server = (code::SERVER, lease.server.octets().to_vec());
        vec![
            (code::TYPE, vec![kind]),
            server,
            (code::LEASE_TIME, seconds.to_be_bytes().to_vec()),
        ]
    };
    for (frame, kind) in [
        (sender.discover(XID, 0, None), Kind::Offer),
        (sender.select(XID, 0, lease.ip(), lease.server), Kind::Ack),
    ] {
        assert_eq!(judged(judge, at, &frame), []);
        judge.server(
            at.since_boot(),
            &reply(XID, lease.ip(), options(kind as u8)).encode(),
        );
    }
}

fn judged(judge: &mut Judge, now: Instant, frame: &[u8]) -> Vec<Violation> {
    let mut found = judge.client_frame(now.since_boot(), frame);
    // Rapid commit (80, RFC 4039) has no value.
    found.retain(|violation| !matches!(violation, Violation::Length(80, 0)));
    found
}

/// How the client reads an answer, without what the judge's strict reader would refuse.
fn understood(message: &Message) -> Vec<u8> {
    let kind = match message.kind {
        MessageType::Offer => Kind::Offer,
        MessageType::Ack => Kind::Ack,
        _ => Kind::Nak,
    };
    let mut options = vec![(code::TYPE, vec![kind as u8])];
    options.extend(
        message
            .options
            .server_id
            .map(|server| (code::SERVER, server.octets().to_vec())),
    );
    options.extend(
        message
            .options
            .lease_time
            .map(|seconds| (code::LEASE_TIME, seconds.to_be_bytes().to_vec())),
    );
    reply(message.xid, message.yiaddr, options).encode()
}

fn reply(xid: u32, yiaddr: Ipv4Addr, options: Vec<(u8, Vec<u8>)>) -> model::Message {
    model::Message {
        yiaddr,
        ..model::Message::new(2, xid, MAC.0, options)
    }
}
