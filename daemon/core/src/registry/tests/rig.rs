//! A registry with a complete fake shell around it: a disk that is good, full or slow; a server that answers, is silent,
//! refuses or never acknowledges; looks that can be held back. Effects are carried out at once; a request that is answered
//! twice panics.

mod plugin;
mod server;
mod told;
mod values;
mod wired;

pub(super) use std::collections::{BTreeMap, BTreeSet, VecDeque};
pub(super) use std::net::Ipv4Addr;
use std::path::PathBuf;
pub(super) use std::sync::Arc;
pub(super) use std::time::Duration;

use ipnet::IpNet;
pub(super) use ipnet::Ipv4Net;

pub(super) use self::told::*;
pub(super) use self::values::*;
use self::wired::Wired;
pub(super) use super::super::*;
pub(super) use crate::core::Core;
pub(super) use crate::docker::DockerKey;
pub(super) use crate::effect::{
    Add, Adoptee, Answer, BindingState, Call, ClientIdRule, EndpointAddress, Failure, Input,
    NetworkAnswer, NetworkCall, Order, PoolCall, PoolRequest, RequestId, Row, StoreCause, Verb,
    Which,
};
pub(super) use crate::event::{Event, EventKind};
pub(super) use crate::grant::Dns;
pub(super) use crate::grant::policy::{Detection, OnChange, OnExpiry, Policy};
use crate::identity::Identity;
pub(super) use crate::identity::{AddressHolder, Attachment, ClientId, Lan};
pub(super) use crate::link::own::{LinkOwner, OwnLink};
use crate::link::{ByName, LinkView, Sighting, Sightings, Sought};
pub(super) use crate::link::{Cookie, Target};
pub(super) use crate::link::{KernelMessage, Link, LinkCause, LinkRoute, Place, Sockets, Step};
pub(super) use crate::network::{
    AddressSource, EndpointRecord, Mode, NetworkFault, NetworkRecord, Wiring,
};
pub(super) use crate::pool;
pub(super) use crate::pool::{PoolFault, PoolId};
pub(super) use crate::profile::Profile;
pub(super) use crate::range::Fallback;
pub(super) use crate::record::{Change, Former, Record, RecordState};
pub(super) use crate::silence::Survey;
pub(super) use crate::source::lease::LeaseTimes;
pub(super) use crate::source::{Lease, StateName, Wanted};
use crate::testbed::lan;
use crate::testbed::link::Wire;
use crate::testbed::store::Store;
pub(super) use crate::time::{BootId, Instant, WallTime};
pub(super) use crate::trouble::TroubleKind;
pub(super) use crate::wire::Mac;
pub(super) use crate::wire::frame::Arp;
use crate::wire::frame::ArpOp;

pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(super) const ANY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
pub(super) const BOUND: BindingState = BindingState::Client(StateName::Bound);
const SERVER_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

pub(super) struct Rig {
    pub(super) reg: Core,
    pub(super) config: Config,
    pub(super) at: Duration,
    /// How far the wall clock was set, in seconds.
    pub(super) wall_set: i64,
    pub(super) disk: Disk,
    pub(super) server: Server,
    /// The only clients that it answers, by chaddr, where it does not answer all.
    pub(super) known: Option<Vec<Mac>>,
    /// The messages that a slow server has not answered yet.
    pub(super) backlog: Option<VecDeque<(ExchangeId, Vec<u8>)>>,
    pub(super) give: Ipv4Addr,
    /// Who has which address, as far as the server remembers. If another client has the address it would give, it gives the
    /// next one.
    pub(super) granted: BTreeMap<Ipv4Addr, Vec<u8>>,
    /// The server knows clients by chaddr alone.
    pub(super) by_chaddr: bool,
    /// It gives everybody the same address.
    pub(super) one_for_all: bool,
    /// The address that it keeps for one client, by chaddr, and offers again after a DECLINE.
    pub(super) reserved: Option<(Mac, Ipv4Addr)>,
    /// The identifier that it states when it was not addressed by it.
    pub(super) server_id: Ipv4Addr,
    pub(super) lease: u32,
    /// What a survey finds; `None`: it takes too long.
    pub(super) survey: Option<Survey>,
    pub(super) surveys: u32,
    /// The host's link is a bridge.
    pub(super) bridge: bool,
    /// The name server that it gives.
    pub(super) dns: Option<Ipv4Addr>,
    pub(super) published: Vec<(String, Option<Dns>)>,
    /// The interface, which all containers have alike. The host's link has its carrier.
    pub(super) interface: Wire,
    /// It was down until the visit set it up.
    pub(super) was_down: bool,
    /// The Ethernet address that interfaces got by hand.
    pub(super) mac: Option<Mac>,
    /// The steps that were taken, except setting links up.
    pub(super) steps: Vec<Step>,
    /// The next changes of a link fail with these after so many steps.
    pub(super) faults: VecDeque<(usize, LinkCause)>,
    /// No macvlan can be made as a port of the host's link, for this reason.
    pub(super) no_port: Option<LinkCause>,
    /// Links do not accept the next RELEASEs, for these reasons.
    pub(super) unsent: VecDeque<LinkCause>,
    /// A link that accepts a RELEASE does not report that.
    pub(super) hold_sends: bool,
    /// Looks fail with this.
    pub(super) blind: Option<LinkCause>,
    /// What any other namespace looks like.
    pub(super) missing: fn(PathBuf) -> LinkCause,
    /// What a look shows if no namespace is visible at any path.
    pub(super) unseen: Option<fn(PathBuf) -> LinkCause>,
    /// The last octet of the server's subnet mask.
    pub(super) mask: [u8; 2],
    /// Options that the server adds to what it always says, as bytes.
    pub(super) options: Vec<u8>,
    /// A byte of each answer that is another one, by its place.
    pub(super) damage: Option<(usize, u8)>,
    pub(super) ifname: String,
    pub(super) profile: Profile,
    /// The ranges that an ADD names for when no server answers.
    pub(super) fallback: Option<Fallback>,
    /// Changes of known links are held back before their first step.
    pub(super) hold_changes: bool,
    pub(super) changes: VecDeque<(OpId, Target, Vec<Step>)>,
    /// Where the wanted interfaces are, by the cookies of their namespaces.
    pub(super) inside: BTreeMap<Mac, u64>,
    /// Some namespaces cannot be looked through.
    pub(super) sees_part: bool,
    /// The searches so far, by the number of the namespace.
    pub(super) seeks: Vec<Option<i32>>,
    pub(super) hold_seeks: bool,
    pub(super) held_seeks: VecDeque<(OpId, Outcome)>,
    pub(super) hold_looks: bool,
    pub(super) looks: VecDeque<(OpId, Outcome)>,
    pub(super) live: BTreeSet<u64>,
    pub(super) store: Store,
    /// The links that were made for Docker.
    pub(super) wired: Wired,
    pub(super) slow: VecDeque<(OpId, Vec<Change>)>,
    pub(super) persists: Vec<Vec<Change>>,
    pub(super) answers: BTreeMap<u64, Answer>,
    pub(super) open: BTreeMap<ExchangeId, Sockets>,
    pub(super) opened: Vec<Link>,
    /// Links that were made for exchanges stay for a while. The current ones: `ports`.
    pub(super) hold_closes: bool,
    pub(super) closes: Vec<(OpId, ExchangeId)>,
    pub(super) ports: BTreeSet<ExchangeId>,
    /// The server is in a macvlan: frames from the host's link do not reach it.
    pub(super) beside: bool,
    pub(super) sent: Vec<(u8, Ipv4Addr)>,
    /// Each DISCOVER, and over which exchange.
    pub(super) discovers: Vec<(ExchangeId, Vec<u8>)>,
    /// By whom.
    pub(super) chaddrs: BTreeSet<Mac>,
    /// The address (50) that the last DISCOVER asked for.
    pub(super) wished: Option<Ipv4Addr>,
    /// ARP requests, by sender and target.
    pub(super) asked: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// The container's interface has another Ethernet address by now: frames to the previous one are another host's.
    pub(super) readdressed: bool,
    /// Their sender Ethernet addresses.
    pub(super) asked_from: Vec<Mac>,
    /// Who answers ARP for which address; for [`ANY`]: for all others.
    pub(super) stations: BTreeMap<Ipv4Addr, Mac>,
    /// The outcomes of effects, where a test ends these in an order of its own.
    pub(super) ends: Option<Vec<(OpId, Outcome)>>,
    req: u64,
}

impl Rig {
    pub(super) fn new(permits: usize) -> Self {
        let mut rig = Self {
            reg: Core::new(
                Config {
                    permits,
                    ..Config::default()
                },
                7,
            ),
            config: Config {
                permits,
                ..Config::default()
            },
            at: Duration::from_secs(1000),
            wall_set: 0,
            disk: Disk::Good,
            server: Server::Up,
            known: None,
            backlog: None,
            give: FIRST,
            granted: BTreeMap::new(),
            by_chaddr: false,
            reserved: None,
            one_for_all: false,
            server_id: SERVER,
            lease: 100,
            survey: None,
            surveys: 0,
            bridge: false,
            dns: None,
            published: Vec::new(),
            interface: Wire::new("eth0", Mac::default(), 1500, 0, true),
            was_down: false,
            mac: None,
            steps: Vec::new(),
            faults: VecDeque::new(),
            no_port: None,
            unsent: VecDeque::new(),
            hold_sends: false,
            blind: None,
            missing: LinkCause::NoNetns,
            unseen: None,
            options: Vec::new(),
            damage: None,
            ifname: "eth0".into(),
            profile: Profile::default(),
            fallback: None,
            mask: [255, 0],
            hold_changes: false,
            changes: VecDeque::new(),
            inside: BTreeMap::new(),
            sees_part: false,
            seeks: Vec::new(),
            hold_seeks: false,
            held_seeks: VecDeque::new(),
            hold_looks: false,
            looks: VecDeque::new(),
            live: (1..10).collect(),
            store: Store::default(),
            wired: Wired::default(),
            slow: VecDeque::new(),
            persists: vec![],
            answers: BTreeMap::new(),
            open: BTreeMap::new(),
            opened: Vec::new(),
            hold_closes: false,
            closes: Vec::new(),
            ports: BTreeSet::new(),
            beside: false,
            sent: vec![],
            discovers: vec![],
            chaddrs: BTreeSet::new(),
            wished: None,
            asked: Vec::new(),
            readdressed: false,
            asked_from: Vec::new(),
            stations: BTreeMap::from([(SERVER, SERVER_MAC)]),
            ends: None,
            req: 0,
        };
        rig.start("b", vec![], vec![]);
        rig
    }
    pub(super) fn now(&self) -> Now {
        let epoch = Duration::from_secs((1_u64 << 30).saturating_add_signed(self.wall_set));
        Now {
            boot: Instant::from_boot(self.at),
            wall: WallTime::from_epoch(self.at + epoch),
        }
    }
    pub(super) fn input(&mut self, input: Input<'_>) {
        self.reg.handle(self.now(), input);
        self.drain();
    }
    /// Reports the outcome of an effect, and leaves what follows to whoever drains.
    pub(super) fn done(&mut self, op: OpId, outcome: Outcome) {
        match &mut self.ends {
            Some(ends) => ends.push((op, outcome)),
            None => self.reg.handle(self.now(), Input::Done { op, outcome }),
        }
    }
    /// Ends an effect that was held back.
    pub(super) fn end(&mut self, op: OpId, outcome: Outcome) {
        self.input(Input::Done { op, outcome });
    }
    /// Ends all looks and changes that are held back.
    pub(super) fn look_up(&mut self) {
        self.hold_looks = false;
        while let Some((op, outcome)) = self.looks.pop_front() {
            self.end(op, outcome);
        }
    }
    /// The daemon starts in this boot.
    pub(super) fn start(
        &mut self,
        boot: &str,
        records: Vec<(BindingId, Record)>,
        adoptees: Vec<Adoptee>,
    ) {
        self.input(Input::Start {
            boot: BootId(boot.into()),
            records,
            doors: vec![],
            spooled: vec![],
            adoptees,
        });
    }
    /// Returns how many events of a kind are stored.
    pub(super) fn told(&self, kind: EventKind) -> usize {
        let events = self.store.events.iter();
        events.filter(|event| event.kind == kind).count()
    }
    #[track_caller]
    pub(super) fn assert_leased(&self, id: u64) {
        self.leased(id);
    }
    pub(super) fn assert_no_call_is_left(&self) {
        let mut kept = self.reg.kept();
        kept.retain(|kept| !kept.of_bindings && kept.count > 0);
        assert!(kept.is_empty(), "{kept:?}");
    }
    /// Collects what a network has that no container uses.
    pub(super) fn collect(&mut self) -> u64 {
        self.request(Call::Collect {
            network: "lan".to_owned(),
            keep: Vec::new(),
        })
    }
    pub(super) fn kernel(&mut self, message: KernelMessage) {
        self.input(Input::Kernel(message));
    }
    /// An interface appears in the namespace with this number.
    pub(super) fn interface_appears(&mut self, number: i32, mac: Mac) {
        self.kernel(KernelMessage::Appeared { number, mac });
    }
    /// The link of an exchange fails.
    pub(super) fn breaks(&mut self, exchange: ExchangeId, cause: LinkCause) {
        self.input(Input::Broken { exchange, cause });
    }
    /// Advances by some seconds; returns how often the core woke.
    pub(super) fn run_for(&mut self, seconds: f64) -> u32 {
        self.run_until(self.at.as_secs_f64() + seconds)
    }
    pub(super) fn request(&mut self, call: Call) -> u64 {
        self.req += 1;
        self.input(Input::Request {
            id: RequestId(self.req),
            call,
        });
        self.req
    }
    pub(super) fn call(&self, who: &str, netns: u64, id: &str) -> Box<Add> {
        Box::new(Add {
            attachment: attachment(who),
            place: Place::InNetns(ByName {
                netns: PathBuf::from(format!("/ns/{netns}")),
                ifname: "eth0".into(),
                host_too: false,
            }),
            lan: lan_on("br0", 0),
            client_id: ClientIdRule::Bytes(ClientId::new(format!("\0{id}").into_bytes()).unwrap()),
            chaddr: None,
            wanted: None,
            profile: self.profile.clone(),
            timeout: Duration::from_secs(30),
            hurried: Duration::ZERO,
            limits: None,
            fallback: self.fallback.clone().map(Box::new),
        })
    }

    /// Returns an ADD from Docker.
    pub(super) fn docker_call(&self, attachment: Attachment, id: &str) -> Box<Add> {
        let mut add = self.call("", 1, id);
        add.profile.wants = pool::wants(attachment.network().parse().ok().as_ref());
        add.attachment = attachment;
        add
    }

    pub(super) fn add(&mut self, who: &str, netns: u64, id: &str) -> u64 {
        let call = Call::Add(self.call(who, netns, id));
        self.request(call)
    }

    pub(super) fn del(&mut self, who: &str) -> u64 {
        self.request(Call::Del {
            attachment: attachment(who),
            grace: None,
        })
    }
    /// Advances to the time that the core waits for; returns how often it woke.
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
        let carried = self
            .interface
            .addresses()
            .into_iter()
            .map(Into::into)
            .collect();
        LinkView {
            cookie: Cookie(cookie),
            ifindex: 2,
            ifname: self.ifname.clone(),
            mac: self.mac.unwrap_or(Mac([2, 0, 0, 0, 1, cookie as u8])),
            mtu: self.interface.mtu,
            up: self.interface.up,
            carrier: self.interface.carrier,
            was_down: self.was_down,
            addresses: if cookie == 99 {
                self.wired.host_addresses.clone()
            } else {
                carried
            },
            routes: Some(self.interface.routes.clone()),
            bridge: cookie == 99 && self.bridge,
            macvlan: self.wired.lower.is_some(),
            lower: self.wired.lower,
            wire: self.wired.wire.clone(),
            wireless: self.wired.wireless,
            received: 0,
        }
    }
    pub(super) fn look(&self, target: &Target) -> Result<LinkView, LinkCause> {
        match (target, self.unseen) {
            (
                Target::Named(ByName { netns: path, .. })
                | Target::OfServer(ByName { netns: path, .. }, _)
                | Target::Known(Link::InNetns { path, .. }),
                Some(cause),
            ) => {
                return Err(cause(path.clone()));
            }
            (
                Target::Named(_) | Target::OfServer(..) | Target::Known(_) | Target::Host { .. },
                _,
            ) => {}
        }
        match target {
            Target::Named(ByName { netns, .. }) | Target::OfServer(ByName { netns, .. }, _) => {
                let n: u64 = netns
                    .file_name()
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .parse()
                    .unwrap();
                if self.live.contains(&n) {
                    Ok(self.view(n))
                } else {
                    Err((self.missing)(netns.clone()))
                }
            }
            Target::Known(Link::InNetns {
                path, cookie, mac, ..
            }) => {
                if self.live.contains(&cookie.0) {
                    Ok(LinkView {
                        mac: self.mac.unwrap_or(*mac),
                        ..self.view(cookie.0)
                    })
                } else {
                    Err((self.missing)(path.clone()))
                }
            }
            _ => Ok(self.view(99)),
        }
    }
    fn search(&self, sought: Vec<Sought>) -> Outcome {
        let find = |sought: Sought| {
            let n = *self.inside.get(&sought.mac)?;
            let mut view = self.view(n);
            view.mac = sought.mac;
            Some(Sighting {
                sought,
                netns: format!("/ns/{n}").into(),
                view,
            })
        };
        let found = sought.into_iter().filter_map(find).collect();
        Outcome::Sought(Ok(Sightings {
            found,
            seen: self.live.len(),
            whole: !self.sees_part,
            unseen: None,
        }))
    }
    pub(super) fn change(&mut self, target: &Target, steps: Vec<Step>) -> Outcome {
        let (taken, fault) = match self.faults.pop_front() {
            Some((taken, cause)) => (taken.min(steps.len()), Some(cause)),
            None => (steps.len(), None),
        };
        for (at, step) in steps.into_iter().take(taken).enumerate() {
            if let Err(reason) = self.interface.step(&step) {
                return Outcome::Applied {
                    taken: at,
                    result: Err(LinkCause::refused(step.doing(), reason)),
                };
            }
            if step != Step::Up {
                self.steps.push(step);
            }
        }
        Outcome::Applied {
            taken,
            result: fault.map_or_else(|| self.look(target), Err),
        }
    }
    fn write(&mut self, op: OpId, changes: Vec<Change>) {
        let ahead = self.store.commit(op, changes);
        assert!(
            ahead.is_none(),
            "the store does not have what it reports: {ahead:?}"
        );
        self.store.heard(op);
        self.done(op, Outcome::Persisted(Ok(())));
    }
    fn refuse(&mut self, op: OpId) {
        self.done(op, Outcome::Persisted(Err(StoreCause::Full)));
    }
    /// Ends one write badly.
    pub(super) fn unwritten(&mut self, op: OpId) {
        self.refuse(op);
        self.drain();
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
    pub(super) fn drain(&mut self) {
        let mut effects = 0;
        while let Some(effect) = self.reg.poll_effect() {
            effects += 1;
            let is_bounded = self.ends.is_none() || effects < 200;
            assert!(is_bounded, "one input, and no end of effects: {effect:?}");
            match effect {
                Effect::Persist { op, changes } => {
                    self.persists.push(changes.clone());
                    match self.disk {
                        Disk::Slow => self.slow.push_back((op, changes)),
                        disk if disk.takes() => self.write(op, changes),
                        _ => self.refuse(op),
                    }
                }
                Effect::Open {
                    op,
                    exchange,
                    link,
                    want,
                } => {
                    self.open.insert(exchange, want);
                    self.opened.push(link.clone());
                    self.ports.extend(
                        matches!(link, Link::Parent { port: true, .. }).then_some(exchange),
                    );
                    let result = match &link {
                        Link::InNetns { path, .. } if let Some(cause) = self.unseen => {
                            Err(cause(path.clone()))
                        }
                        Link::InNetns { path, cookie, .. } if !self.live.contains(&cookie.0) => {
                            Err((self.missing)(path.clone()))
                        }
                        Link::Parent { port: true, .. } if !self.bridge => {
                            self.no_port.clone().map_or(Ok(()), Err)
                        }
                        _ => Ok(()),
                    };
                    self.done(op, Outcome::Opened(result));
                }
                Effect::Inspect { op, target, .. } => {
                    let outcome = Outcome::Inspected(
                        self.blind.clone().map_or_else(|| self.look(&target), Err),
                    );
                    if self.hold_looks {
                        self.looks.push_back((op, outcome))
                    } else {
                        self.done(op, outcome)
                    }
                }
                Effect::Apply {
                    op,
                    target: target @ Target::Known(_),
                    steps,
                } if self.hold_changes => {
                    self.changes.push_back((op, target, steps));
                }
                Effect::Apply { op, target, steps } => {
                    let outcome = self.change(&target, steps);
                    if self.hold_looks {
                        self.looks.push_back((op, outcome))
                    } else {
                        self.done(op, outcome)
                    }
                }
                Effect::Send {
                    op,
                    exchange,
                    frame,
                    over,
                } => self.send(op, exchange, &frame, over),
                Effect::Prepare {
                    op,
                    place,
                    lan,
                    exchange,
                    chaddr,
                } => {
                    self.prepare(op, (&place, &lan), exchange, chaddr);
                }
                Effect::Hear { exchange, arp } => {
                    self.open.get_mut(&exchange).expect("it is open").arp = arp
                }
                Effect::Close { op, exchange } => self.close(op, exchange),
                Effect::Survey { op, counts, .. } => {
                    self.surveys += u32::from(!counts);
                    let counted = Survey {
                        received: Some(0),
                        ..Survey::default()
                    };
                    let survey = match counts {
                        true => Some(counted),
                        false => self.survey.clone(),
                    };
                    if let Some(survey) = survey {
                        self.done(op, Outcome::Surveyed(survey));
                    }
                }
                Effect::ListInside { op, link } => {
                    let macs = [&[link.mac()], &self.wired.inside[..]].concat();
                    let outcome = Outcome::Inside(Ok(macs));
                    self.done(op, outcome);
                }
                Effect::Seek { op, sought, number } => {
                    self.seeks.push(number);
                    let outcome = self.search(sought);
                    match self.hold_seeks {
                        true => self.held_seeks.push_back((op, outcome)),
                        false => self.done(op, outcome),
                    }
                }
                effect @ (Effect::Make { .. } | Effect::Unmake { .. } | Effect::ListOwn { .. }) => {
                    self.wire(effect)
                }
                Effect::Publish { attachment, dns } => {
                    self.published.push((container(&attachment), dns))
                }
                Effect::Reply { id, answer } => {
                    let before = self.answers.insert(id.0, answer);
                    assert!(before.is_none(), "answered twice");
                }
            }
        }
    }
    /// Lets an ARP packet come in on every open exchange that hears it.
    pub(super) fn hear(&mut self, arp: &Arp) {
        let hears = |want: &Sockets| {
            let answers = arp.op == ArpOp::Reply && arp.target_mac == want.chaddr;
            lan::hears(want.arp, answers, arp.sender, arp.target)
        };
        for exchange in self
            .open
            .iter()
            .filter(|(_, want)| hears(want))
            .map(|(id, _)| *id)
            .collect::<Vec<_>>()
        {
            self.input(Input::Frame {
                exchange,
                bytes: &arp.encode(),
                meta: FrameMeta::default(),
            });
        }
    }
    /// Sends a frame, unless it is a RELEASE that its link does not accept.
    fn send(&mut self, op: Option<OpId>, exchange: ExchangeId, bytes: &[u8], over: Option<u32>) {
        let refused = op.and_then(|_| self.unsent.pop_front());
        if refused.is_none() {
            self.serve(exchange, bytes, over);
        }
        if let Some(op) = op.filter(|_| !self.hold_sends) {
            let outcome = Outcome::Sent(refused.map_or(Ok(()), Err));
            self.done(op, outcome);
        }
    }

    /// the kernel reports whether the interface has carrier; what a look shows is [`Rig::interface`].
    pub(super) fn tell_carrier(&mut self, up: bool) {
        self.kernel(KernelMessage::Carrier((Cookie(1), 2), up));
    }

    /// Sets the interface down, or up again, by hand.
    pub(super) fn set_down(&mut self, down: bool) {
        (self.interface.up, self.interface.carrier) = (true, true);
        if down {
            self.interface.lower();
            self.kernel(KernelMessage::Down((Cookie(1), 2)));
        }
        self.tell_carrier(!down);
    }

    /// Lets the next deadline come, and returns what it is for.
    pub(super) fn wake(&mut self) -> Why {
        let (at, why) = self.reg.poll_timeout().expect("a deadline");
        self.run_until(at.since_boot().as_secs_f64());
        why
    }

    /// Ends the daemon and starts the next one on the same store and kernel, in the same boot.
    pub(super) fn restart(&mut self) {
        self.reg = Core::new(self.config.clone(), 9);
        (self.open, self.slow, self.looks, self.changes) = Default::default();
        self.wired.held.clear();
        let (records, doors) = (self.store.records(), self.store.docker.records());
        self.input(Input::Start {
            boot: BootId("b".into()),
            records,
            doors,
            spooled: vec![],
            adoptees: vec![],
        });
    }

    /// Returns the record of the only binding.
    pub(super) fn only_record(&self) -> &Record {
        let mut records = self.store.all();
        let only = records.next().unwrap();
        assert!(records.next().is_none());
        only
    }

    /// Returns how many messages of this kind were sent.
    pub(super) fn sends(&self, kind: u8) -> usize {
        self.sent.iter().filter(|(sent, _)| *sent == kind).count()
    }

    /// Returns how many RELEASEs were sent, and how many rows and records are left.
    pub(super) fn ends(&mut self) -> [usize; 3] {
        [self.sends(7), self.rows().len(), self.store.records().len()]
    }

    /// Returns how many of Docker's endpoints and how many leases are left, and how many RELEASEs were sent.
    pub(super) fn endpoint_ends(&mut self) -> [usize; 3] {
        let leases = self.rows().len().max(self.store.records().len());
        [self.store.docker.endpoints.len(), leases, self.sends(7)]
    }

    /// Returns when the only lease is renewed.
    pub(super) fn t1(&self) -> f64 {
        self.only_record()
            .lease
            .t1()
            .unwrap()
            .since_boot()
            .as_secs_f64()
    }

    /// Returns the addresses on the interface.
    pub(super) fn on_link(&self) -> Vec<String> {
        self.interface
            .addresses()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    /// Returns the state of an attachment's only binding; empty if there is none.
    pub(super) fn state(&mut self, who: &str) -> &'static str {
        let mut rows = self.rows();
        rows.retain(|row| row.attachment == attachment(who));
        assert!(rows.len() < 2, "{rows:?}");
        rows.first().map_or("", |row| row.state.as_str())
    }
    pub(super) fn rows(&mut self) -> Vec<crate::effect::Row> {
        let id = self.request(Call::List);
        let Some(Answer::Bindings { rows, .. }) = self.answers.remove(&id) else {
            panic!()
        };
        rows
    }
}
