//! A registry with a whole fake shell around it: a disk that is good, full or slow, a server that answers, is silent,
//! refuses or never acknowledges, looks that can be held back. Effects are carried out at once; a request that is answered
//! twice panics.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use super::super::*;
use ipnet::Ipv4Net;

use crate::dhcpv4::lease::{Dns, Lease, Times};
use crate::dhcpv4::profile::Profile;
use crate::effect::{Add, ClientIdRule, StoreCause};
use crate::event::Event;
use crate::identity::{ClientId, Door, Identity, Lan};
pub(super) use crate::link::Cookie;
use crate::link::{Hears, KernelEvent, Link, LinkView, Sockets, Step, Target};
use crate::record::{Change, Record, RecordState};
use crate::silence::Survey;
use crate::time::WallTime;
use crate::wire::Mac;
use crate::wire::frame::{Arp, ArpOp, Frame, Udp};

const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const SERVER_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
/// What the server gives first.
const FIRST_ADDRESS: &str = "192.0.2.50/24";

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Disk {
    Good,
    Full,
    Slow,
}
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Server {
    Up,
    Silent,
    Naks,
    /// Refuses what it is asked for, and offers nothing.
    NaksOnly,
    OffersOnly,
    /// Answers DISCOVER with an ACK.
    Commits,
}

pub(super) struct Rig {
    pub(super) reg: Registry,
    pub(super) config: Config,
    pub(super) at: Duration,
    /// How far the wall clock was set, in seconds.
    pub(super) wall_set: i64,
    pub(super) disk: Disk,
    pub(super) server: Server,
    pub(super) give: Ipv4Addr,
    pub(super) lease: u32,
    /// What a survey finds; `None`: it takes too long.
    pub(super) survey: Option<Survey>,
    pub(super) surveys: u32,
    /// The host's link is a bridge.
    pub(super) bridge: bool,
    /// The name server that it gives.
    pub(super) dns: Option<Ipv4Addr>,
    pub(super) published: Vec<(String, Option<Dns>)>,
    pub(super) carrier: bool,
    /// The Ethernet address that interfaces got by hand.
    pub(super) mac: Option<Mac>,
    pub(super) addresses: Vec<Ipv4Net>,
    /// The steps that were taken, but for setting links up.
    pub(super) steps: Vec<Step>,
    /// The next changes of a link fail with these after so many steps.
    pub(super) faults: VecDeque<(usize, LinkCause)>,
    /// The next RELEASEs are not taken by their link, for these reasons.
    pub(super) unsent: VecDeque<LinkCause>,
    /// A link that takes a RELEASE does not say so.
    pub(super) hold_sends: bool,
    /// Looks fail with this.
    pub(super) blind: Option<LinkCause>,
    /// The end of the mask that the server says.
    pub(super) mask: [u8; 2],
    /// Options that the server adds to what it always says, as bytes.
    pub(super) options: Vec<u8>,
    pub(super) ifname: String,
    pub(super) profile: Profile,
    /// Changes of known links are held back before their first step.
    pub(super) hold_changes: bool,
    pub(super) changes: VecDeque<(OpId, Target, Vec<Step>)>,
    pub(super) hold_looks: bool,
    pub(super) looks: VecDeque<(OpId, Outcome)>,
    pub(super) live: BTreeSet<u64>,
    pub(super) stored: BTreeMap<BindingId, Record>,
    pub(super) slow: VecDeque<(OpId, Vec<Change>)>,
    pub(super) persists: Vec<Vec<Change>>,
    pub(super) events: Vec<Event>,
    pub(super) answers: BTreeMap<u64, Answer>,
    pub(super) open: BTreeMap<ExchangeId, Sockets>,
    pub(super) opened: Vec<Link>,
    pub(super) sent: Vec<(u8, Ipv4Addr)>,
    /// By whom.
    pub(super) chaddrs: BTreeSet<Mac>,
    /// The address (50) that the last DISCOVER asked for.
    pub(super) wished: Option<Ipv4Addr>,
    /// ARP requests, by sender and target.
    pub(super) asked: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// The container's interface has another Ethernet address by now: what is sent to the one of before is another host's.
    pub(super) readdressed: bool,
    /// The Ethernet addresses that these bore as sender.
    pub(super) asked_from: Vec<Mac>,
    /// Who answers ARP for which address.
    pub(super) stations: BTreeMap<Ipv4Addr, Mac>,
    req: u64,
}

impl Rig {
    pub(super) fn new(permits: usize) -> Self {
        let mut rig = Self {
            reg: Registry::new(Config { permits, ..Config::default() }, 7),
            config: Config { permits, ..Config::default() },
            at: Duration::from_secs(1000),
            wall_set: 0,
            disk: Disk::Good,
            server: Server::Up,
            give: Ipv4Addr::new(192, 0, 2, 50),
            lease: 100,
            survey: None,
            surveys: 0,
            bridge: false,
            dns: None,
            published: Vec::new(),
            carrier: true,
            mac: None,
            addresses: Vec::new(),
            steps: Vec::new(),
            faults: VecDeque::new(),
            unsent: VecDeque::new(),
            hold_sends: false,
            blind: None,
            options: Vec::new(),
            ifname: "eth0".into(),
            profile: Profile::default(),
            mask: [255, 0],
            hold_changes: false,
            changes: VecDeque::new(),
            hold_looks: false,
            looks: VecDeque::new(),
            live: (1..10).collect(),
            stored: BTreeMap::new(),
            slow: VecDeque::new(),
            persists: vec![],
            events: vec![],
            answers: BTreeMap::new(),
            open: BTreeMap::new(),
            opened: Vec::new(),
            sent: vec![],
            chaddrs: BTreeSet::new(),
            wished: None,
            asked: Vec::new(),
            readdressed: false,
            asked_from: Vec::new(),
            stations: BTreeMap::from([(SERVER, SERVER_MAC)]),
            req: 0,
        };
        rig.input(Input::Start { boot: BootId("b".into()), records: vec![], spooled: vec![], adoptees: vec![] });
        rig
    }
    pub(super) fn now(&self) -> Now {
        let epoch = Duration::from_secs((1_u64 << 30).saturating_add_signed(self.wall_set));
        Now { boot: Instant::from_boot(self.at), wall: WallTime::from_epoch(self.at + epoch) }
    }
    pub(super) fn input(&mut self, input: Input<'_>) {
        self.reg.handle(self.now(), input);
        self.drain();
    }
    pub(super) fn request(&mut self, call: Call) -> u64 {
        self.req += 1;
        self.input(Input::Request { id: RequestId(self.req), call });
        self.req
    }
    /// Returns an ADD.
    pub(super) fn call(&self, who: &str, netns: u64, id: &str) -> Box<Add> {
        Box::new(Add {
            attachment: attachment(who),
            netns: PathBuf::from(format!("/ns/{netns}")),
            host_netns: false,
            lan: Lan::Link { parent: "br0".into(), vlan: 0 },
            client_id: ClientIdRule::Bytes(ClientId::new(format!("\0{id}").into_bytes()).unwrap()),
            chaddr: None,
            wanted: None,
            profile: self.profile.clone(),
            timeout: Duration::from_secs(30),
        })
    }

    pub(super) fn add(&mut self, who: &str, netns: u64, id: &str) -> u64 {
        let call = Call::Add(self.call(who, netns, id));
        self.request(call)
    }

    pub(super) fn not_adopted(&mut self) -> Vec<String> {
        let id = self.request(Call::List);
        let Some(Answer::Bindings { not_adopted, .. }) = self.answers.remove(&id) else { panic!() };
        not_adopted.into_iter().map(|(attachment, reason)| format!("{attachment}: {reason}")).collect()
    }

    pub(super) fn del(&mut self, who: &str) -> u64 {
        self.request(Call::Del { attachment: attachment(who) })
    }
    /// Lets the time come that the core waits for; returns how often it woke.
    pub(super) fn run_until(&mut self, seconds: f64) -> u32 {
        let end = Duration::from_secs_f64(seconds);
        let mut wakes = 0;
        while let Some((at, _)) = self.reg.poll_timeout() {
            if at.since_boot() > end {
                break;
            }
            self.at = self.at.max(at.since_boot());
            self.reg.handle_timeout(self.now());
            self.drain();
            wakes += 1;
            if wakes > 1000 {
                return wakes;
            }
        }
        self.at = self.at.max(end);
        wakes
    }
    fn view(&self, cookie: u64) -> LinkView {
        LinkView {
            cookie: Cookie(cookie),
            ifindex: 2,
            ifname: self.ifname.clone(),
            mac: self.mac.unwrap_or(Mac([2, 0, 0, 0, 1, cookie as u8])),
            mtu: 1500,
            up: true,
            carrier: self.carrier,
            addresses: self.addresses.clone(),
            bridge: cookie == 99 && self.bridge,
            received: 0,
        }
    }
    fn look(&self, target: &Target) -> Result<LinkView, LinkCause> {
        match target {
            Target::Named { netns, .. } => {
                let n: u64 = netns.file_name().unwrap().to_str().unwrap().parse().unwrap();
                if self.live.contains(&n) { Ok(self.view(n)) } else { Err(LinkCause::NoNetns(netns.clone())) }
            }
            Target::Known(Link::InNetns { path, cookie, mac, .. }) => {
                if self.live.contains(&cookie.0) {
                    Ok(LinkView { mac: self.mac.unwrap_or(*mac), ..self.view(cookie.0) })
                } else {
                    Err(LinkCause::NoNetns(path.clone()))
                }
            }
            _ => Ok(self.view(99)),
        }
    }
    pub(super) fn change(&mut self, target: &Target, steps: Vec<Step>) -> Outcome {
        let (taken, fault) = match self.faults.pop_front() {
            Some((taken, cause)) => (taken.min(steps.len()), Some(cause)),
            None => (steps.len(), None),
        };
        for step in steps.into_iter().take(taken) {
            match &step {
                Step::Up => continue,
                Step::AddAddress(address) if !self.addresses.contains(address) => self.addresses.push(*address),
                Step::RemoveAddress(address) => self.addresses.retain(|there| there != address),
                Step::AddAddress(_) | Step::Mtu(_) | Step::AddRoute(_) | Step::RemoveRoute(_) => {}
            }
            self.steps.push(step);
        }
        Outcome::Applied { taken, result: fault.map_or_else(|| self.look(target), Err) }
    }
    fn write(&mut self, op: OpId, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Put(id, record) => {
                    self.stored.insert(id, *record);
                }
                Change::Remove(id) => {
                    self.stored.remove(&id);
                }
                Change::Note(event) => self.events.push(*event),
            }
        }
        self.reg.handle(self.now(), Input::Done { op, outcome: Outcome::Persisted(Ok(())) });
    }
    /// Ends one write badly.
    pub(super) fn unwritten(&mut self, op: OpId) {
        self.input(Input::Done { op, outcome: Outcome::Persisted(Err(StoreCause::Full)) });
    }
    /// Ends one write well.
    pub(super) fn written(&mut self, op: OpId, changes: Vec<Change>) {
        self.write(op, changes);
        self.drain();
    }
    pub(super) fn flush(&mut self) {
        while let Some((op, changes)) = self.slow.pop_front() {
            self.write(op, changes);
        }
        self.drain();
    }
    fn drain(&mut self) {
        while let Some(effect) = self.reg.poll_effect() {
            match effect {
                Effect::Persist { op, changes } => {
                    self.persists.push(changes.clone());
                    match self.disk {
                        Disk::Good => self.write(op, changes),
                        Disk::Full => self
                            .reg
                            .handle(self.now(), Input::Done { op, outcome: Outcome::Persisted(Err(StoreCause::Full)) }),
                        Disk::Slow => self.slow.push_back((op, changes)),
                    }
                }
                Effect::Open { op, exchange, link, want } => {
                    self.open.insert(exchange, want);
                    self.opened.push(link.clone());
                    let result = match &link {
                        Link::InNetns { path, cookie, .. } if !self.live.contains(&cookie.0) => {
                            Err(LinkCause::NoNetns(path.clone()))
                        }
                        _ => Ok(()),
                    };
                    self.reg.handle(self.now(), Input::Done { op, outcome: Outcome::Opened(result) });
                }
                Effect::Inspect { op, target } => {
                    let outcome = Outcome::Inspected(self.blind.clone().map_or_else(|| self.look(&target), Err));
                    if self.hold_looks {
                        self.looks.push_back((op, outcome))
                    } else {
                        self.reg.handle(self.now(), Input::Done { op, outcome })
                    }
                }
                Effect::Apply { op, target: target @ Target::Known(_), steps } if self.hold_changes => {
                    self.changes.push_back((op, target, steps));
                }
                Effect::Apply { op, target, steps } => {
                    let outcome = self.change(&target, steps);
                    if self.hold_looks {
                        self.looks.push_back((op, outcome))
                    } else {
                        self.reg.handle(self.now(), Input::Done { op, outcome })
                    }
                }
                Effect::Send { op, exchange, frame } => self.send(op, exchange, &frame),
                Effect::Close { exchange } => {
                    self.open.remove(&exchange);
                }
                Effect::Survey { op, .. } => {
                    self.surveys += 1;
                    if let Some(survey) = self.survey.clone() {
                        self.reg.handle(self.now(), Input::Done { op, outcome: Outcome::Surveyed(survey) });
                    }
                }
                Effect::Publish { attachment, dns } => self.published.push((attachment.container.clone(), dns)),
                Effect::Reply { id, answer } => {
                    assert!(self.answers.insert(id.0, answer).is_none(), "answered twice");
                }
            }
        }
    }
    /// Lets an ARP packet come in on every open exchange that hears it.
    pub(super) fn hear(&mut self, arp: &Arp) {
        let hears = |want: &Sockets| match want.arp {
            Hears::Nothing => false,
            Hears::Answers => arp.op == ArpOp::Reply && arp.target_mac == want.chaddr,
            Hears::About(address) => arp.sender == address || arp.target == address,
        };
        let hearing: Vec<_> = self.open.iter().filter(|(_, want)| hears(want)).map(|(id, _)| *id).collect();
        for exchange in hearing {
            self.input(Input::Frame { exchange, bytes: &arp.encode(), meta: FrameMeta::default() });
        }
    }
    fn arp_reply(&self, owner: Mac, question: &Arp) -> Vec<u8> {
        Arp {
            op: ArpOp::Reply,
            source_mac: owner,
            destination_mac: question.sender_mac,
            sender_mac: owner,
            sender: question.target,
            target_mac: question.sender_mac,
            target: question.sender,
        }
        .encode()
    }
    /// Lets a frame out, unless it is a RELEASE that its link does not take.
    fn send(&mut self, op: Option<OpId>, exchange: ExchangeId, bytes: &[u8]) {
        let refused = op.and_then(|_| self.unsent.pop_front());
        if refused.is_none() {
            self.serve(exchange, bytes);
        }
        if let Some(op) = op.filter(|_| !self.hold_sends) {
            let outcome = Outcome::Sent(refused.map_or(Ok(()), Err));
            self.reg.handle(self.now(), Input::Done { op, outcome });
        }
    }
    fn serve(&mut self, exchange: ExchangeId, bytes: &[u8]) {
        let meta = FrameMeta { other_host: self.readdressed, ..FrameMeta::default() };
        let reply = match frame::decode(bytes, meta).unwrap() {
            Frame::Arp(arp) => {
                self.asked.push((arp.sender, arp.target));
                self.asked_from.push(arp.sender_mac);
                let Some(owner) = self.stations.get(&arp.target).copied() else { return };
                self.arp_reply(owner, &arp)
            }
            Frame::Udp(udp) => {
                let p = udp.payload;
                let kind = p[240..].windows(3).find(|w| w[0] == 53 && w[1] == 1).unwrap()[2];
                let ciaddr = Ipv4Addr::new(p[12], p[13], p[14], p[15]);
                self.sent.push((kind, ciaddr));
                self.chaddrs.insert(Mac(p[28..34].try_into().unwrap()));
                if kind == 1 {
                    let wish = p[240..].windows(6).find(|w| w[0] == 50 && w[1] == 4);
                    self.wished = wish.map(|w| Ipv4Addr::new(w[2], w[3], w[4], w[5]));
                }
                if kind == 4 {
                    self.give = Ipv4Addr::from_bits(self.give.to_bits() + 1);
                }
                let answer = match (kind, self.server) {
                    (1, Server::Up | Server::Naks | Server::OffersOnly) => 2,
                    (3, Server::Up) | (1 | 3, Server::Commits) => 5,
                    (3, Server::Naks | Server::NaksOnly) => 6,
                    _ => return,
                };
                let mut b = vec![2, 1, 6, 0];
                b.extend(&p[4..8]);
                b.extend([0; 8]);
                b.extend(if answer == 6 { [0; 4] } else { self.give.octets() });
                b.resize(28, 0);
                b.extend(&p[28..34]);
                b.resize(236, 0);
                b.extend([99, 130, 83, 99, 53, 1, answer, 54, 4, 192, 0, 2, 1, 1, 4, 255, 255]);
                b.extend(self.mask);
                b.extend([51, 4]);
                b.extend(self.lease.to_be_bytes());
                b.extend(self.dns.iter().flat_map(|dns| [[6, 4].as_slice(), &dns.octets()].concat()));
                b.extend(&self.options);
                b.push(255);
                Udp {
                    source_mac: SERVER_MAC,
                    destination_mac: udp.source_mac,
                    source: SERVER,
                    destination: Ipv4Addr::BROADCAST,
                    source_port: 67,
                    destination_port: 68,
                    payload: &b,
                }
                .encode()
            }
        };
        self.reg.handle(self.now(), Input::Frame { exchange, bytes: &reply, meta });
    }
    /// Carries out the changes that are held back.
    pub(super) fn change_late(&mut self) {
        self.hold_changes = false;
        while let Some((op, target, steps)) = self.changes.pop_front() {
            let outcome = self.change(&target, steps);
            self.input(Input::Done { op, outcome });
        }
    }

    /// Puts the leased address on the interface, as the main plugin does after an ADD.
    pub(super) fn configure(&mut self, address: &str) {
        let address: Ipv4Net = address.parse().unwrap();
        self.addresses.push(address);
        self.input(Input::Kernel(KernelEvent::AddressAdded { cookie: Cookie(1), ifindex: 2, address: address.addr() }));
    }

    /// Adds attachment `a`, whose main plugin puts the address on at once.
    pub(super) fn bind(&mut self) {
        self.add("a", 1, "a");
        self.configure(FIRST_ADDRESS);
    }

    /// Adds attachment `a`, whose main plugin puts the address on when nobody listens for conflicts any more.
    pub(super) fn bind_slowly(&mut self) {
        self.add("a", 1, "a");
        self.run_until(1009.0);
        self.configure(FIRST_ADDRESS);
    }

    /// Takes an address off the interface, by hand.
    pub(super) fn take_off(&mut self, address: &str) {
        let address: Ipv4Net = address.parse().unwrap();
        self.addresses.retain(|there| *there != address);
        self.input(Input::Kernel(KernelEvent::AddressGone { cookie: Cookie(1), ifindex: 2, address: address.addr() }));
    }

    /// Ends the daemon and starts the next one on the same store and kernel, in the same boot.
    pub(super) fn restart(&mut self) {
        self.reg = Registry::new(self.config.clone(), 9);
        (self.open, self.slow, self.looks, self.changes) = Default::default();
        let records = self.stored.clone().into_iter().collect();
        self.input(Input::Start { boot: BootId("b".into()), records, spooled: vec![], adoptees: vec![] });
    }

    /// Returns the record of the only binding.
    pub(super) fn only_record(&self) -> &Record {
        assert_eq!(self.stored.len(), 1);
        self.stored.values().next().unwrap()
    }

    /// Returns the addresses on the interface.
    pub(super) fn on_link(&self) -> Vec<String> {
        self.addresses.iter().map(ToString::to_string).collect()
    }

    pub(super) fn state(&mut self, who: &str) -> Vec<&'static str> {
        self.rows().into_iter().filter(|r| r.attachment == attachment(who)).map(|r| r.state).collect()
    }
    pub(super) fn rows(&mut self) -> Vec<crate::effect::Row> {
        let id = self.request(Call::List);
        let Some(Answer::Bindings { rows, .. }) = self.answers.remove(&id) else { panic!() };
        rows
    }
}

pub(super) fn attachment(who: &str) -> Attachment {
    Attachment { door: Door::Cni, network: "lan".into(), container: who.into(), ifname: "eth0".into() }
}

pub(super) fn record(who: &str, boot: &str, at: f64) -> Record {
    Record {
        attachment: attachment(who),
        identity: Identity {
            lan: Lan::Link { parent: "br0".into(), vlan: 0 },
            client_id: ClientId::new(b"\0id".to_vec()).unwrap(),
            chaddr: Mac([2, 0, 0, 0, 1, 1]),
        },
        profile: Profile::default(),
        link: Link::InNetns { path: "/ns/1".into(), cookie: Cookie(1), ifindex: 2, mac: Mac([2, 0, 0, 0, 1, 1]) },
        lease: Lease {
            server: SERVER,
            server_mac: SERVER_MAC,
            times: Some(Times {
                t1: Duration::from_secs(20000),
                t2: Duration::from_secs(30000),
                end: Duration::from_secs(40000),
            }),
            ..Lease::unknown("192.0.2.50/24".parse().unwrap(), Instant::from_boot(Duration::from_secs_f64(at)))
        },
        state: RecordState::Bound,
        boot: BootId(boot.into()),
        since: WallTime::from_epoch(Duration::from_secs_f64(at) + Duration::from_secs(1 << 30)),
        former: None,
    }
}
