//! What no daemon has written, no kernel would say, no server would send and no dockerd would ask: odd records, looks that do
//! not fit, damaged answers, any bytes, ids that were never given out, outcomes and calls in any order. All else that can happen
//! to a registry is in the simulation.

use fastrand::Rng;

use super::docker::{endpoint_mac, pool};
use super::networks::{OWN, id, network};
use super::rig::*;
use crate::pool::PoolRecord;

const WHO: [&str; 3] = ["a", "b", "c"];

/// A registry's random life.
struct Life {
    rig: Rig,
    rng: Rng,
    requests: Vec<u64>,
}

impl Life {
    fn begin(seed: u64) -> Self {
        let mut life = Self {
            rig: Rig::new(2),
            rng: Rng::with_seed(seed),
            requests: Vec::new(),
        };
        life.rig.lease = life.rng.u32(..600);
        let records = (0..life.rng.u64(..4)).map(|id| (BindingId(id), life.record()));
        life.rig.store.durable = records.collect();
        (0..life.rng.u8(..4)).for_each(|_| life.door_record());
        life.start();
        life
    }

    /// The daemon starts on the store's records, with calls that shims kept and containers that run.
    fn start(&mut self) {
        self.rig.reg = Core::new(self.rig.config.clone(), 9);
        self.rig.ends = self.rng.bool().then(Vec::new);
        let [spooled, adopted] = [(); 2].map(|()| self.rng.u64(..3));
        // Ids that the rig never gives to its requests.
        let spooled = (1 << 32..(1 << 32) + spooled).map(|id| (RequestId(id), self.del()));
        let spooled: Vec<_> = spooled.collect();
        self.requests = spooled.iter().map(|(id, _)| id.0).collect();
        let adoptees = (0..adopted).map(|_| {
            let (who, netns, id) = (self.one(&WHO), self.rng.u64(..4), self.one(&WHO));
            Adoptee {
                add: self.rig.call(who, netns, id),
                address: self.net(),
                mac: self.rng.bool().then(|| self.mac()),
            }
        });
        let adoptees = adoptees.collect();
        self.rig.input(Input::Start {
            boot: BootId("b".into()),
            records: self.rig.store.records(),
            doors: self.rig.store.docker.records(),
            spooled,
            adoptees,
        });
    }

    /// Something that Docker's door kept, or that no daemon can read.
    fn door_record(&mut self) {
        let (net, since) = (self.net(), self.rig.now().wall);
        let attachment = self.rig.endpoint_call(self.rng.u8(..3)).attachment;
        let source = self.one(&[AddressSource::Ipam, AddressSource::Leased(attachment)]);
        let docker = &mut self.rig.store.docker;
        let (pool, network) = (pool(), network("n1"));
        match self.rng.u8(..4) {
            0 => docker.unread.push(DockerKey::Network(network.id)),
            1 => _ = docker.networks.insert(network.id.clone(), network),
            2 => {
                let record = PoolRecord {
                    id: pool.clone(),
                    lan: None,
                    gateway: self.rng.bool().then_some(net.addr()),
                    reserved: [net.addr()].into(),
                    automatic: self.rng.bool(),
                    since,
                };
                docker.pools.insert(pool, record);
            }
            _ => {
                let record = EndpointRecord {
                    id: id("e1"),
                    network: network.id,
                    mac: endpoint_mac(self.rng.u8(..3)),
                    address: net,
                    source,
                    since,
                };
                docker.endpoints.insert(record.id.clone(), record);
            }
        }
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        self.rng.choice(of).expect("there are some").clone()
    }

    fn net(&mut self) -> Ipv4Net {
        let address = match self.rng.bool() {
            true => Ipv4Addr::new(192, 0, 2, self.rng.u8(..)),
            false => Ipv4Addr::from_bits(self.rng.u32(..)),
        };
        Ipv4Net::new(address, self.rng.u8(..=32)).expect("at most 32")
    }

    fn seconds(&mut self) -> Duration {
        let most = self.one(&[1.0, 1000.0, 1e6]);
        Duration::from_secs_f64(self.rng.f64() * most)
    }

    fn mac(&mut self) -> Mac {
        Mac([2, 0, 0, 0, 1, self.rng.u8(..5)])
    }

    /// A record such as a store may hold, of this boot or another.
    fn record(&mut self) -> Record {
        let (who, boot, mac) = (self.one(&WHO), self.one(&["b", "before"]), self.mac());
        let usual = record(who, boot, self.rng.f64() * 2000.0);
        let [t1, t2, end] = [(); 3].map(|()| self.seconds());
        let lease = Lease {
            address: self.net(),
            times: self.rng.bool().then_some(LeaseTimes { t1, t2, end }),
            ..usual.lease
        };
        let former = Former {
            grants: vec![lease.grant(&Policy::default())],
            bare: self.rng.bool(),
            taken: self.rng.bool(),
            mtu_due: self.rng.bool(),
            routes_due: self.rng.bool(),
            router: self.rng.bool().then(|| self.net().addr().into()),
        };
        let link = match self.rng.bool() {
            true => usual.link,
            false => Link::Parent {
                ifindex: 3,
                mac,
                vlan: self.rng.u16(..2),
                port: self.rng.bool(),
            },
        };
        Record {
            identity: crate::identity::Identity {
                client_id: ClientId::new(vec![0, b'i', self.rng.u8(..3)]).expect("long enough"),
                chaddr: mac,
                ..usual.identity
            },
            link,
            lease,
            state: self.one(&[
                RecordState::Bound,
                RecordState::Seeking,
                RecordState::Releasing,
                RecordState::Past,
            ]),
            kept: self.rng.bool().then_some(t1),
            former: self.rng.bool().then(|| Box::new(former)),
            taken_off: self.rng.bool(),
            unconfirmed: self.rng.bool(),
            elsewhere: self.rng.bool(),
            told: self.rng.bool().then(|| self.net()),
            ..usual
        }
    }

    fn any_bytes(&mut self, most: usize) -> Vec<u8> {
        let length = self.rng.usize(..most);
        std::iter::repeat_with(|| self.rng.u8(..))
            .take(length)
            .collect()
    }

    fn cause(&mut self) -> LinkCause {
        self.one(&[
            LinkCause::TimedOut,
            LinkCause::Down,
            LinkCause::NoNetns("/ns/1".into()),
            LinkCause::NetnsChanged("/ns/1".into()),
            LinkCause::NoLink("eth0".into()),
            LinkCause::NoPath("/ns/1".into()),
        ])
    }

    fn del(&mut self) -> Call {
        let (attachment, grace) = (attachment(self.one(&WHO)), self.rng.u32(..4));
        let grace = self.rng.bool().then_some(grace);
        Call::Del { attachment, grace }
    }

    fn order(&mut self) -> Call {
        let which = Which {
            name: Some(self.one(&WHO).to_owned()),
            ..Which::default()
        };
        let force = self.rng.bool();
        let verb = self.one(&[Verb::Renew, Verb::Release { force }]);
        Call::Order(Box::new(Order { verb, which }))
    }

    /// A call that changes no lease, unless it collects.
    fn question(&mut self) -> Call {
        let (attachment, expected) = (attachment(self.one(&WHO)), vec![self.net().into()]);
        let network = "lan".to_owned();
        let keep = vec![(self.one(&WHO).into(), "eth0".into())];
        let parent = Some("br0".to_owned());
        self.one(&[
            Call::Check {
                attachment,
                expected,
            },
            Call::Collect { network, keep },
            Call::Status { parent },
            Call::Ready,
            Call::List,
            Call::Ranges,
        ])
    }

    /// A call of dockerd, whether or not one before makes sense of it.
    fn docker(&mut self) -> u64 {
        let (pool, address) = (pool(), Ipv4Addr::new(192, 0, 2, self.rng.u8(48..56)));
        let (network, name) = (network("n1"), self.one(&["e1", "e2"]));
        let (rig, last) = (&mut self.rig, self.rng.u8(..3));
        let call = match self.rng.u8(..11) {
            0 => return rig.endpoint(last),
            1 => {
                return rig.pool(
                    self.rng.choice([None, Some("192.0.2.0/24")]).flatten(),
                    None,
                );
            }
            2 => return rig.reserve(self.rng.bool().then_some(address)),
            3 => return rig.create(network),
            4 => {
                return rig
                    .create_endpoint(name, self.rng.choice([OWN, endpoint_mac(last)]).unwrap());
            }
            5 => return rig.delete_endpoint(name),
            6 => Call::Pool(PoolCall::ReleaseAddress { pool, address }),
            7 => Call::Pool(PoolCall::Release { id: pool }),
            8 => Call::Network(NetworkCall::Delete(network.id)),
            9 => Call::Network(NetworkCall::Find(network.id)),
            _ => Call::Network(NetworkCall::Join {
                network: network.id,
                endpoint: id(name),
                sandbox: "s".into(),
            }),
        };
        rig.request(call)
    }

    /// A caller hangs up: it is told nothing any more.
    fn hang_up(&mut self) {
        let id = self.rng.choice(&self.requests).copied().unwrap_or(0);
        self.rig.answers.entry(id).or_insert(Answer::Released);
        self.rig.input(Input::HungUp(RequestId(id)));
    }

    /// Some effects end, in any order.
    fn ends(&mut self, most: usize) {
        for _ in 0..most {
            let ends = self.rig.ends.as_mut().filter(|ends| !ends.is_empty());
            let Some(ends) = ends else { return };
            let (op, outcome) = ends.swap_remove(self.rng.usize(..ends.len()));
            self.rig.end(op, outcome);
        }
    }

    /// The link of an open exchange fails, or does not accept a frame.
    fn breaks(&mut self) {
        let cause = self.cause();
        if let Some(exchange) = self
            .rng
            .choice(self.rig.open.keys().copied().collect::<Vec<_>>())
        {
            self.rig.input(match self.rng.bool() {
                true => Input::Unsent { exchange, cause },
                false => Input::Broken { exchange, cause },
            });
        }
    }

    fn step(&mut self) {
        let who = self.one(&WHO);
        let most = self.rng.usize(..8);
        self.ends(most);
        match self.rng.u8(..17) {
            0 | 1 => {
                let (netns, id) = (self.rng.u64(..4), self.one(&WHO));
                self.rig.profile.on_parent = self.rng.u8(..4) == 0;
                self.rig.profile.grace = self.rng.bool().then(|| self.rng.u32(..4));
                let add = self.rig.add(who, netns, id);
                self.requests.push(add);
            }
            2 | 3 | 11 => {
                let calls = [self.del(), self.order(), self.question()];
                let call = self.one(&calls);
                self.requests.push(self.rig.request(call));
            }
            12 | 13 => {
                let id = self.docker();
                self.requests.push(id);
            }
            14 => self.hang_up(),
            15 => self.breaks(),
            4 => self.unknown(),
            5 => self.bytes(),
            6 => {
                self.rig.damage =
                    Some((self.rng.usize(..400), self.rng.u8(..))).filter(|_| self.rng.bool())
            }
            7 => self.strange_look(),
            8 => self.news(),
            9 => {
                self.rig.server = self.one(&[Server::Up, Server::Silent, Server::Naks]);
                self.rig.disk = self.one(&[Disk::Good, Disk::Full, Disk::Slow]);
                self.rig.flush();
            }
            10 => {
                let later = self.seconds();
                self.rig.at += later;
                self.rests();
            }
            _ => {
                if let Some((at, _)) = self.rig.reg.poll_timeout() {
                    self.rig.at = self.rig.at.max(at.since_boot());
                }
                self.rests();
            }
        }
    }

    /// Wakes the registry until no past time-out is left.
    fn rests(&mut self) {
        let wakes = self.rig.run_for(0.0);
        assert!(wakes < 64, "{:?} stays", self.rig.reg.poll_timeout());
    }

    /// Something with an id that was never given out is counted, and does nothing.
    fn unknown(&mut self) {
        self.rests();
        let (op, exchange, cause) = (OpId(1 << 40), ExchangeId(1 << 40), self.cause());
        let bytes = self.any_bytes(60);
        let meta = FrameMeta::default();
        let outcomes = [
            Outcome::Persisted(Err(StoreCause::Full)),
            Outcome::Opened(Err(cause.clone())),
            Outcome::Inspected(Err(cause.clone())),
            Outcome::Sent(Err(cause.clone())),
            Outcome::Closed,
        ];
        let done = outcomes.map(|outcome| Input::Done { op, outcome });
        let cause = cause.clone();
        let of_exchange = [
            Input::Frame {
                exchange,
                bytes: &bytes,
                meta,
            },
            Input::Unsent {
                exchange,
                cause: cause.clone(),
            },
            Input::Broken { exchange, cause },
        ];
        let now = self.rig.now();
        let reg = &mut self.rig.reg;
        for input in done.into_iter().chain(of_exchange) {
            let before = reg.poll_timeout();
            reg.handle(now, input);
            assert!(reg.poll_effect().is_none(), "an unknown id does something");
            assert_eq!(reg.poll_timeout(), before);
        }
    }

    /// Any bytes come in for an exchange.
    fn bytes(&mut self) {
        let open: Vec<_> = self.rig.open.keys().copied().collect();
        let exchange = self
            .rng
            .choice(open)
            .unwrap_or(ExchangeId(self.rng.u64(..9)));
        let bytes = self.any_bytes(400);
        let meta = FrameMeta {
            vlan: self.rng.u16(..2),
            other_host: self.rng.bool(),
            cut: self.rng.bool(),
            checksum_not_ready: self.rng.bool(),
        };
        self.rig.input(Input::Frame {
            exchange,
            bytes: &bytes,
            meta,
        });
    }

    /// From now on looks show something else, or fail.
    fn strange_look(&mut self) {
        let rig = &mut self.rig;
        rig.mac = self
            .rng
            .bool()
            .then(|| Mac([2, 0, 0, 0, 1, self.rng.u8(..5)]));
        rig.interface.mtu = self.rng.u32(..);
        (rig.interface.up, rig.interface.carrier) = (self.rng.bool(), self.rng.bool());
        rig.bridge = self.rng.bool();
        rig.survey = self.rng.bool().then(Survey::default);
        if !rig.live.remove(&self.rng.u64(..4)) {
            rig.live.extend(1..4);
        }
        let (address, cause) = (self.net(), self.cause());
        self.rig.interface.put(address.into());
        self.rig.blind = Some(cause.clone()).filter(|_| self.rng.u8(..4) == 0);
        if self.rng.bool() {
            self.rig.faults.push_back((self.rng.usize(..3), cause));
        }
    }

    fn news(&mut self) {
        let (cookie, address, mac) = (Cookie(self.rng.u64(..5)), self.net().addr(), self.mac());
        let link = (cookie, self.rng.u32(..4));
        let up = self.rng.bool();
        let message = self.one(&[
            KernelMessage::NetnsDied(cookie),
            KernelMessage::PathGone(cookie),
            KernelMessage::LinkGone(link),
            KernelMessage::Down(link),
            KernelMessage::Carrier(link, up),
            KernelMessage::AddressAdded(link, address.into()),
            KernelMessage::AddressGone(link, address.into()),
            KernelMessage::Ethernet(link, mac),
            KernelMessage::Missed,
        ]);
        self.rig.kernel(message);
    }

    /// Every wait has an end: whatever fails from now on, each request is answered.
    fn finish(mut self) {
        if self.rng.bool() {
            (self.rig.disk, self.rig.server) = (Disk::Full, Server::Silent);
            self.rig.blind = Some(LinkCause::TimedOut);
        }
        self.rig.flush();
        self.ends(10_000);
        let left = self.rig.ends.take();
        // No pause, and no end.
        assert!(left.is_none_or(|ends| ends.is_empty()));
        for _ in 0..100 {
            assert!(self.rig.run_for(10.0) <= 1000, "no pause, and no end");
        }
        let open = |request: &u64| !self.rig.answers.contains_key(request);
        assert!(!self.requests.iter().any(open), "an answer is missing");
    }
}

#[test]
fn a_registry_keeps_to_the_rules_through_any_life() {
    for seed in 0..1500 {
        println!("seed {seed}");
        let mut life = Life::begin(seed);
        (0..120).for_each(|_| life.step());
        life.finish();
    }
}
