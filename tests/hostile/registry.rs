//! The registry's life by the script: calls, hang-ups, outcomes, frames and kernel messages in any order, with any id.

mod docker;
mod record;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv4Net;
use leasehold_core::Core;
use leasehold_core::effect::{
    Add, Adoptee, Call, ClientIdRule, Effect, ExchangeId, FrameMeta, Input, OpId, Order, Outcome,
    RequestId, StoreCause, Verb, Which,
};
use leasehold_core::grant::policy::{OnChange, OnExpiry, Policy};
use leasehold_core::identity::{Attachment, ClientId, Lan};
use leasehold_core::link::{
    ByName, Cookie, KernelMessage, Link, LinkCause, LinkView, Place, Sought, Target,
};
use leasehold_core::profile::Profile;
use leasehold_core::record::BindingId;
use leasehold_core::registry::Config;
use leasehold_core::silence::{Firewall, Survey};
use leasehold_core::source::{ClientProfile, Wanted};
use leasehold_core::time::{BootId, Instant, Now, WallTime};
use leasehold_core::wire::Mac;
use netns_fixtures::model::{self, Server, Station};

use self::docker::{Own, of_docker};
use super::script::Script;

/// Lets a registry live through a script.
///
/// Inputs with an unknown id are only counted. A request is answered once, and always in the end. Frames leave by open sockets only,
/// and sockets are closed once. A time-out that has passed is gone once it is served. The effects of one input are bounded.
///
/// # Panics
/// If any of this does not hold.
pub fn registry(bytes: &[u8]) {
    let mut life = Life::begin(Script(bytes));
    while !life.script.is_over() {
        life.step();
    }
    life.finish();
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Socket {
    Opening,
    Open,
    Closed,
}

/// An effect waiting for its outcome.
#[derive(Clone, Debug)]
enum Doing {
    Persist,
    Open(ExchangeId),
    Inspect(Target),
    Apply(Target, usize),
    Prepare(Target, ExchangeId),
    Send,
    Survey,
    ListInside,
    Close,
    Seek(Vec<Sought>),
    Own(Own),
}

struct Life<'a> {
    script: Script<'a>,
    core: Core,
    now: Duration,
    requests: u64,
    unanswered: BTreeSet<RequestId>,
    doing: VecDeque<(OpId, Doing)>,
    sockets: BTreeMap<ExchangeId, Socket>,
    station: Station,
    /// What the server has answered.
    answers: VecDeque<(ExchangeId, Vec<u8>)>,
}

impl<'a> Life<'a> {
    fn begin(mut script: Script<'a>) -> Self {
        let config = Config {
            permits: usize::from(script.u8() % 3),
            audits: 2,
            ..Config::default()
        };
        let subnet = Ipv4Net::new(Ipv4Addr::new(192, 0, 2, 0), 24).expect("24 is a prefix length");
        let server = model::Config {
            lease: u32::from(script.u16() % 600),
            ..model::Config::new(subnet)
        };
        let station = Station::with_server(
            [2, 0, 0, 0, 0, 1],
            Ipv4Addr::new(192, 0, 2, 1),
            Server::unjudged(server),
        );
        let mut life = Self {
            core: Core::new(config, script.u8().into()),
            now: Duration::from_secs(100_000),
            requests: 0,
            unanswered: BTreeSet::new(),
            doing: VecDeque::new(),
            sockets: BTreeMap::new(),
            station,
            answers: VecDeque::new(),
            script,
        };
        let records = (0..life.script.u8() % 4)
            .map(|id| (BindingId(id.into()), life.record()))
            .collect();
        let spooled = (0..life.script.u8() % 3)
            .map(|_| (life.request_id(), life.del()))
            .collect();
        let drawn = life.script.u8();
        let adoptees = (0..drawn % 3).map(|_| life.adoptee()).collect();
        let doors = (0..drawn / 100).map(|_| life.docker_record()).collect();
        life.input(Input::Start {
            boot: BootId("now".to_owned()),
            records,
            doors,
            spooled,
            adoptees,
        });
        life
    }

    fn step(&mut self) {
        match self.script.u8() % 16 {
            0 | 1 => {
                let call = Call::Add(self.add());
                self.request(call);
            }
            2 => {
                let call = self.del();
                self.request(call);
            }
            3 => {
                let call = self.rare_call();
                self.request(call);
            }
            4 => {
                let id = RequestId(u64::from(self.script.u8()) % (self.requests + 2));
                self.unanswered.remove(&id);
                self.input(Input::HungUp(id));
            }
            5 | 6 => {
                let any = usize::from(self.script.u8());
                self.done(any, true);
            }
            7 => {
                let any = usize::from(self.script.u8());
                self.done(any, false);
            }
            8 => self.unknown(),
            9 => self.frame(),
            10 => {
                let event = self.kernel_event();
                self.input(Input::Kernel(event));
            }
            11 => {
                let cause = self.link_cause();
                match (self.open_socket(), &cause) {
                    (Some(exchange), LinkCause::TimedOut) => {
                        self.input(Input::Unsent { exchange, cause })
                    }
                    (Some(exchange), _) => self.input(Input::Broken { exchange, cause }),
                    (None, _) => {}
                }
            }
            12 => self.now += self.script.duration().min(Duration::from_secs(1 << 20)),
            13 => self.serve(),
            14 => {
                self.until_timeout();
                self.serve();
            }
            _ => self.all_goes_well(),
        }
    }

    /// Hands in an input, and takes out its effects.
    fn input(&mut self, input: Input<'_>) {
        self.core.handle(self.at(), input);
        self.drain();
    }

    fn at(&self) -> Now {
        let wall = WallTime::from_epoch(Duration::from_secs(1 << 30) + self.now);
        Now {
            boot: Instant::from_boot(self.now),
            wall,
        }
    }

    /// Takes out the effects. They are carried out only when the script says so, except for those that report nothing.
    fn drain(&mut self) -> usize {
        let mut drained = 0;
        while let Some(effect) = self.core.poll_effect() {
            drained += 1;
            assert!(
                drained < 200,
                "one input, and no end of effects: {effect:?}"
            );
            match effect {
                Effect::Persist { op, .. } => self.doing.push_back((op, Doing::Persist)),
                Effect::Inspect { op, target, .. } => {
                    self.doing.push_back((op, Doing::Inspect(target)))
                }
                Effect::Apply { op, target, steps } => {
                    self.doing
                        .push_back((op, Doing::Apply(target, steps.len())));
                }
                Effect::Prepare {
                    op,
                    place,
                    exchange,
                    ..
                } => {
                    assert_eq!(
                        self.sockets.insert(exchange, Socket::Opening),
                        None,
                        "{exchange:?} used again"
                    );
                    self.doing
                        .push_back((op, Doing::Prepare(place.target(), exchange)));
                }
                Effect::Open { op, exchange, .. } => {
                    assert_eq!(
                        self.sockets.insert(exchange, Socket::Opening),
                        None,
                        "{exchange:?} used again"
                    );
                    self.doing.push_back((op, Doing::Open(exchange)));
                }
                Effect::Send {
                    op,
                    exchange,
                    frame,
                    ..
                } => {
                    self.send(exchange, &frame);
                    self.doing.extend(op.map(|op| (op, Doing::Send)));
                }
                Effect::Hear { exchange, .. } => {
                    assert_eq!(
                        self.sockets.get(&exchange),
                        Some(&Socket::Open),
                        "to hear over {exchange:?}"
                    );
                }
                Effect::Close { op, exchange } => {
                    self.doing.extend(op.map(|op| (op, Doing::Close)));
                    let before = self.sockets.insert(exchange, Socket::Closed);
                    assert!(
                        !matches!(before, None | Some(Socket::Closed)),
                        "{exchange:?} was {before:?}"
                    );
                }
                Effect::Publish { .. } => {}
                Effect::Seek { op, sought, .. } => self.doing.push_back((op, Doing::Seek(sought))),
                Effect::Survey { op, .. } => self.doing.push_back((op, Doing::Survey)),
                Effect::ListInside { op, .. } => self.doing.push_back((op, Doing::ListInside)),
                Effect::Make { op, .. } => self.doing.push_back((op, Doing::Own(Own::Make))),
                Effect::Unmake { op, .. } => self.doing.push_back((op, Doing::Own(Own::Unmake))),
                Effect::ListOwn { op } => self.doing.push_back((op, Doing::Own(Own::List))),
                Effect::Reply { id, answer } => {
                    assert!(
                        self.unanswered.remove(&id),
                        "{id:?} is told, though nobody waits: {answer:?}"
                    );
                }
            }
        }
        drained
    }

    fn send(&mut self, exchange: ExchangeId, frame: &[u8]) {
        assert_eq!(
            self.sockets.get(&exchange),
            Some(&Socket::Open),
            "sent over {exchange:?}"
        );
        assert!(model::decode(frame).is_ok(), "{frame:02x?}");
        let (out, _) = self.station.receive(self.now, frame);
        self.answers
            .extend(out.into_iter().map(|out| (exchange, out.frame)));
        self.answers.truncate(64);
    }

    /// Ends one of the effects that are under way.
    fn done(&mut self, any: usize, well: bool) {
        if self.doing.is_empty() {
            return;
        }
        let (op, doing) = self
            .doing
            .remove(any % self.doing.len())
            .expect("one of them");
        let outcome = match (doing, well) {
            (Doing::Persist, well) => {
                Outcome::Persisted(if well { Ok(()) } else { Err(StoreCause::Full) })
            }
            (Doing::Open(exchange), well) => {
                if let Some(socket @ Socket::Opening) =
                    self.sockets.get_mut(&exchange).filter(|_| well)
                {
                    *socket = Socket::Open;
                }
                Outcome::Opened(if well { Ok(()) } else { Err(self.link_cause()) })
            }
            (Doing::Inspect(target), true) => Outcome::Inspected(Ok(view(&target))),
            (Doing::Inspect(target), false) => Outcome::Inspected(self.doubtful_view(&target)),
            (Doing::Apply(target, steps), true) => Outcome::Applied {
                taken: steps,
                result: Ok(view(&target)),
            },
            (Doing::Apply(target, steps), false) => {
                let taken = usize::from(self.script.u8()) % (steps + 1);
                Outcome::Applied {
                    taken,
                    result: self.doubtful_view(&target),
                }
            }
            (Doing::Prepare(target, exchange), true) => {
                self.sockets.insert(exchange, Socket::Open);
                Outcome::Prepared {
                    result: Ok(view(&target)),
                    exchange: Some(exchange),
                }
            }
            (Doing::Prepare(target, exchange), false) => {
                self.sockets.remove(&exchange);
                Outcome::Prepared {
                    result: self.doubtful_view(&target),
                    exchange: None,
                }
            }
            (Doing::Send, well) => {
                Outcome::Sent(if well { Ok(()) } else { Err(self.link_cause()) })
            }
            (Doing::Seek(sought), true) => Outcome::Sought(Ok(self.sightings(sought))),
            (Doing::Seek(_), false) => Outcome::Sought(Err(self.link_cause())),
            (Doing::Survey, _) => Outcome::Surveyed(self.survey()),
            (Doing::ListInside, true) => Outcome::Inside(Ok(Vec::new())),
            (Doing::ListInside, false) => Outcome::Inside(Err(self.link_cause())),
            (Doing::Own(own), well) => self.own(own, well),
            (Doing::Close, _) => Outcome::Closed,
        };
        self.input(Input::Done { op, outcome });
    }

    /// Everything under way ends well, and all answers arrive.
    fn all_goes_well(&mut self) {
        for _ in 0..16 {
            if !self.doing.is_empty() {
                self.done(0, true);
            } else if let Some((exchange, frame)) = self.answers.pop_front() {
                self.input(Input::Frame {
                    exchange,
                    bytes: &frame,
                    meta: FrameMeta::default(),
                });
            }
        }
    }

    /// Something with an id that was never given out.
    fn unknown(&mut self) {
        // What time alone brings is done before.
        self.serve();
        let op = OpId(1 << 40);
        let exchange = ExchangeId(1 << 40);
        let bytes = self.script.bytes();
        let cause = self.link_cause();
        let before = (self.core.unknown_ids(), self.core.poll_timeout());
        let input = match self.script.u8() % 7 {
            0 => Input::Done {
                op,
                outcome: Outcome::Persisted(Ok(())),
            },
            1 => Input::Done {
                op,
                outcome: Outcome::Opened(Err(cause)),
            },
            2 => Input::Done {
                op,
                outcome: Outcome::Inspected(Err(cause)),
            },
            3 => Input::Done {
                op,
                outcome: Outcome::Applied {
                    taken: 9,
                    result: Err(cause),
                },
            },
            4 => Input::Frame {
                exchange,
                bytes,
                meta: FrameMeta::default(),
            },
            5 => Input::Unsent { exchange, cause },
            _ => Input::Broken { exchange, cause },
        };
        self.core.handle(self.at(), input);
        assert_eq!(self.drain(), 0, "an unknown id does something");
        assert_eq!(
            (self.core.unknown_ids(), self.core.poll_timeout()),
            (before.0 + 1, before.1)
        );
    }

    /// A frame: the server's answer, whole or damaged, or any bytes.
    fn frame(&mut self) {
        let (checksum_not_ready, vlan, other) =
            (self.script.flag(), self.script.u8() / 250, self.script.u8());
        let meta = FrameMeta {
            checksum_not_ready,
            vlan: vlan.into(),
            other_host: other > 250,
            cut: other == 250,
        };
        let answer = self.answers.pop_front();
        match (answer, self.script.u8() % 4) {
            (Some((exchange, frame)), 0 | 1) => self.input(Input::Frame {
                exchange,
                bytes: &frame,
                meta,
            }),
            (Some((exchange, mut frame)), 2) => {
                let at = usize::from(self.script.u16()) % frame.len();
                frame[at] = self.script.u8();
                self.input(Input::Frame {
                    exchange,
                    bytes: &frame,
                    meta,
                });
            }
            _ => {
                let bytes = self.script.bytes();
                let exchange = self
                    .open_socket()
                    .unwrap_or(ExchangeId(self.script.u8().into()));
                self.input(Input::Frame {
                    exchange,
                    bytes,
                    meta,
                });
            }
        }
    }

    fn until_timeout(&mut self) {
        if let Some((at, _)) = self.core.poll_timeout() {
            self.now = self.now.max(at.since_boot());
        }
    }

    /// Wakes the registry until no past time-out is left.
    fn serve(&mut self) {
        for _ in 0..64 {
            self.core.handle_timeout(self.at());
            self.drain();
            match self.core.poll_timeout() {
                Some((at, _)) if at.since_boot() <= self.now => {}
                _ => return,
            }
        }
        panic!(
            "{:?} at {:?} has come and stays",
            self.core.poll_timeout(),
            self.now
        );
    }

    /// Every wait has an end: whatever fails from now on, each request is answered.
    fn finish(&mut self) {
        let well = self.script.flag();
        for _ in 0..2000 {
            let mut at_once = 0;
            while !self.doing.is_empty() {
                at_once += 1;
                assert!(at_once < 3000, "no pause, and no end: {:?}", self.doing);
                self.done(0, well);
            }
            if self.unanswered.is_empty() {
                return;
            }
            self.until_timeout();
            self.serve();
        }
        panic!(
            "never answered: {:?}, next {:?}",
            self.unanswered,
            self.core.poll_timeout()
        );
    }

    fn open_socket(&mut self) -> Option<ExchangeId> {
        let any = usize::from(self.script.u8());
        let open: Vec<_> = self
            .sockets
            .iter()
            .filter(|(_, socket)| **socket == Socket::Open)
            .collect();
        (!open.is_empty()).then(|| *open[any % open.len()].0)
    }

    fn request(&mut self, call: Call) {
        let id = self.request_id();
        self.input(Input::Request { id, call });
    }

    fn request_id(&mut self) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.unanswered.insert(id);
        id
    }

    fn container(&mut self) -> String {
        format!("c{}", self.script.u8() % 4)
    }

    fn attachment(&mut self) -> Attachment {
        match self.script.u8() {
            number @ 0xf0.. => self.endpoint(number - 0xf0),
            number => Attachment::cni("lan", format!("c{}", number % 4), "eth0"),
        }
    }

    fn add(&mut self) -> Box<Add> {
        let attachment = self.attachment();
        let client_id = match self.script.u8() % 3 {
            0 => ClientIdRule::Mac,
            1 => ClientIdRule::Bytes(client_id(0)),
            _ => ClientIdRule::Bytes(client_id(self.script.u8() % 4)),
        };
        let lan = match self.script.flag() {
            true => Lan::Link {
                parent: "br0".into(),
                vlan: 0,
            },
            false => Lan::Network("lan".into()),
        };
        let wanted = Wanted {
            address: Ipv4Addr::new(192, 0, 2, self.script.u8()),
            preferred: self.script.flag(),
        };
        Box::new(of_docker(Add {
            attachment,
            place: Place::InNetns(ByName {
                netns: netns(self.script.u8() % 3),
                ifname: "eth0".to_owned(),
                host_too: false,
            }),
            lan,
            client_id,
            chaddr: self.script.flag().then_some(Mac([2, 9, 9, 9, 9, 9])),
            wanted: self.script.flag().then_some(wanted),
            profile: self.profile(),
            timeout: Duration::from_secs(u64::from(self.script.u8()) + 1),
            hurried: Duration::ZERO,
            limits: None,
            fallback: None,
        }))
    }

    fn profile(&mut self) -> Profile {
        let (broadcast, on_parent, rapid_commit) = (
            self.script.flag(),
            self.script.u8() > 200,
            self.script.flag(),
        );
        let end = self.script.u8();
        Profile {
            client: Arc::new(ClientProfile {
                broadcast,
                rapid_commit,
                ..ClientProfile::default()
            }),
            on_parent,
            release: end < 200,
            grace: (end % 2 == 1).then_some(u32::from(end % 4)),
            policy: Policy {
                on_change: if self.script.flag() {
                    OnChange::Apply
                } else {
                    OnChange::Keep
                },
                on_expiry: if self.script.flag() {
                    OnExpiry::Remove
                } else {
                    OnExpiry::Keep
                },
                ..Policy::default()
            },
            ..Profile::default()
        }
    }

    fn del(&mut self) -> Call {
        let grace = Some(self.script.u8())
            .filter(|grace| grace.is_multiple_of(2))
            .map(u32::from);
        Call::Del {
            attachment: self.attachment(),
            grace,
        }
    }

    fn rare_call(&mut self) -> Call {
        let which = self.script.u8();
        match which % 4 {
            0 => {
                let expected = (0..self.script.u8() % 3)
                    .map(|_| self.net().into())
                    .collect();
                Call::Check {
                    attachment: self.attachment(),
                    expected,
                }
            }
            1 => {
                let keep = (0..self.script.u8() % 3)
                    .map(|_| (self.container(), "eth0".to_owned()))
                    .collect();
                Call::Collect {
                    network: "lan".to_owned(),
                    keep,
                }
            }
            2 => Call::Status {
                parent: self.script.flag().then(|| "br0".to_owned()),
            },
            _ if which > 64 => self.docker_call(),
            _ if which > 32 => self.order(),
            _ => Call::List,
        }
    }

    fn order(&mut self) -> Call {
        if self.script.flag() {
            return Call::Show(Box::new(Which {
                name: Some(self.container()),
                ..Which::default()
            }));
        }
        let verb = if self.script.flag() {
            Verb::Renew
        } else {
            Verb::Release {
                force: self.script.flag(),
            }
        };
        let name = self.script.flag().then(|| self.container());
        Call::Order(Box::new(Order {
            verb,
            which: Which {
                name,
                ..Which::default()
            },
        }))
    }

    fn net(&mut self) -> Ipv4Net {
        let prefix = self.script.u8() % 33;
        Ipv4Net::new(self.script.address(), prefix).expect("at most 32")
    }

    fn adoptee(&mut self) -> Adoptee {
        Adoptee {
            add: self.add(),
            address: self.net(),
            mac: None,
        }
    }

    /// A look at a link with something wrong.
    fn doubtful_view(&mut self, target: &Target) -> Result<LinkView, LinkCause> {
        if self.script.flag() {
            return Err(self.link_cause());
        }
        let right = view(target);
        Ok(LinkView {
            cookie: if self.script.flag() {
                right.cookie
            } else {
                Cookie(self.script.u8().into())
            },
            ifindex: if self.script.flag() {
                right.ifindex
            } else {
                self.script.u8().into()
            },
            mac: if self.script.flag() {
                right.mac
            } else {
                Mac([2, 0, 0, 0, 1, self.script.u8()])
            },
            mtu: self.script.u32(),
            up: self.script.flag(),
            carrier: self.script.flag(),
            addresses: (0..self.script.u8() % 3)
                .map(|_| self.net().into())
                .collect(),
            bridge: self.script.flag(),
            received: self.script.u32().into(),
            ..right
        })
    }

    fn survey(&mut self) -> Survey {
        let mut perhaps = || self.script.flag().then(|| self.script.flag());
        let (carrier, bridge_nf, forward_drop) = (perhaps(), perhaps(), perhaps());
        let received = self.script.flag().then(|| self.script.u32().into());
        let (server_on_host, parent_is_bridge) = (self.script.flag(), self.script.flag());
        Survey {
            carrier,
            received,
            firewall: Firewall {
                bridge_nf,
                forward_drop,
                docker_user: false,
            },
            server_on_host,
            parent_is_bridge,
            ..Survey::default()
        }
    }

    fn link_cause(&mut self) -> LinkCause {
        match self.script.u8() % 7 {
            0 => LinkCause::TimedOut,
            1 => LinkCause::Down,
            2 => LinkCause::NoNetns(netns(0)),
            3 => LinkCause::NetnsChanged(netns(1)),
            4 => LinkCause::NoLink("eth0".to_owned()),
            5 => LinkCause::NoPath(netns(0)),
            _ => LinkCause::Refused {
                doing: "open a packet socket",
                reason: "no".to_owned(),
            },
        }
    }

    fn kernel_event(&mut self) -> KernelMessage {
        let (cookie, ifindex) = (
            Cookie((self.script.u8() % 5).into()),
            u32::from(self.script.u8() % 4),
        );
        match self.script.u8() % 7 {
            0 if ifindex == 3 => KernelMessage::PathGone(cookie),
            0 => KernelMessage::NetnsDied(cookie),
            1 => KernelMessage::LinkGone((cookie, ifindex)),
            2 if ifindex == 3 => KernelMessage::Down((cookie, ifindex)),
            2 => KernelMessage::Carrier((cookie, ifindex), self.script.flag()),
            3 => KernelMessage::AddressAdded((cookie, ifindex), self.script.address().into()),
            4 => KernelMessage::AddressGone((cookie, ifindex), self.script.address().into()),
            5 => KernelMessage::Ethernet((cookie, ifindex), Mac([2, 0, 0, 0, 1, self.script.u8()])),
            _ if cookie.0 > 2 => self.news_for_docker(),
            _ => KernelMessage::Missed,
        }
    }
}

/// A look at a link with everything in order.
fn view(target: &Target) -> LinkView {
    let number = |path: &PathBuf| path.to_string_lossy().bytes().last().unwrap_or_default() - b'0';
    let inside = |netns| (number(netns), 2, Mac([2, 0, 0, 0, 1, number(netns)]));
    let (cookie, ifindex, mac) = match target {
        Target::Named(ByName { netns, .. }) | Target::OfServer(ByName { netns, .. }, _) => {
            inside(netns)
        }
        Target::Known(Link::InNetns {
            path, ifindex, mac, ..
        }) => (number(path), *ifindex, *mac),
        Target::Known(Link::Parent { ifindex, mac, .. }) => (99, *ifindex, *mac),
        Target::Host { .. } => (99, 3, Mac([2, 0, 0, 0, 9, 9])),
    };
    LinkView {
        cookie: Cookie(cookie.into()),
        ifindex,
        ifname: "eth0".to_owned(),
        mac,
        mtu: 1500,
        up: true,
        carrier: true,
        was_down: false,
        addresses: [10, 50]
            .map(|host| Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 2, host), 24).into())
            .to_vec(),
        routes: Some(Vec::new()),
        bridge: false,
        macvlan: false,
        lower: None,
        wire: None,
        wireless: false,
        received: 0,
    }
}

fn netns(number: u8) -> PathBuf {
    PathBuf::from(format!("/run/netns/{number}"))
}

fn client_id(number: u8) -> ClientId {
    ClientId::new(vec![0, b'c', number]).expect("long enough")
}
