//! Docker's networks: their pools, what is reserved in them, and which addresses their endpoints may have.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::Ipv4Net;
use leasehold_core::effect::{Answer, Call, PoolCall, PoolRequest};
use leasehold_core::identity::Attachment;
use leasehold_core::link::{LinkRoute, Place};
use leasehold_core::pool::PoolId;
use leasehold_core::profile::Profile;
use leasehold_core::record::{Record, RecordState};
use leasehold_core::source::{ClientProfile, Lease, Servers};
use leasehold_core::testbed::link::Wire;
use leasehold_core::wire::Mac;

use super::dockerd::{equip, named};
use crate::plan::{Plan, ROGUE, Rogue, happens};
use crate::watch::Rule;
use crate::world::actor::{Act, Actor, Asked, Door, Errand, Phase, Role};
use crate::world::seen::Seen;
use crate::world::{Event, World};

/// Docker's network on a LAN, as Docker knows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Network {
    /// The addresses that it has reserved, and not given back.
    pub(in crate::world) reserved: BTreeSet<Ipv4Addr>,
    /// The address that it gave back last.
    released: Option<Ipv4Addr>,
    /// The router that it was told with its pool, until it gives the pool back.
    told: Option<Option<Ipv4Addr>>,
}

/// Returns the pool of Docker's network on a LAN. The request describes the pool, whatever the store has lost.
pub(super) fn pool_of(lan: usize) -> PoolId {
    let subnet =
        Ipv4Net::new(Ipv4Addr::new(10, lan as u8, 0, 0), 22).expect("it is a prefix length");
    PoolId::new(format!("parent=eth{lan}"), subnet, None)
}

/// An address of the pool that nobody ever has.
const NOBODYS: u32 = 1000;

/// The door of Docker's IPAM driver: other drivers make the links of its containers.
#[derive(Debug)]
pub(super) struct Pools;

impl Door for Pools {
    fn serves(&self, plan: &Plan, index: usize) -> bool {
        plan.docker && index % 3 != 2
    }

    fn equips(&self, actor: &mut Actor, _: &Plan, _: usize) {
        equip(actor, Some(pool_of(actor.lan)));
    }

    fn knows_by_mac(&self) -> bool {
        true
    }

    fn names(&self, actor: &Actor, container: &str) -> (PathBuf, Attachment) {
        named(actor, container, &pool_of(actor.lan).to_string())
    }

    fn place(&self, actor: &Actor) -> Place {
        Place::Parent {
            ifname: format!("eth{}", actor.lan),
            mac: actor.mac,
        }
    }

    fn makes(&self, world: &mut World, index: usize) {
        world.choose_address(index);
        world.make_for_docker(index);
    }

    fn leased(&self, world: &mut World, index: usize, _: &Lease) {
        world.actors[index].phase = Phase::Live;
        world.starts(index);
        world.stay(index);
    }

    fn routes(&self, world: &World, actor: &Actor, _: &Lease) -> Vec<LinkRoute> {
        world.routes_for_docker(actor)
    }

    fn next(&self, world: &mut World, index: usize) {
        world.next_of_docker(index, Act::Appear);
    }

    fn acts(&self, world: &mut World, index: usize, act: Act) {
        match act {
            Act::Appear => world.appear(index, |world| {
                let actor = &world.actors[index];
                world.kernel.put(
                    actor.netns?,
                    Wire::new("eth0", actor.mac, 1500, actor.lan, false),
                )
            }),
            Act::Plug => world.plug_in(index),
            _ => {}
        }
    }

    fn ends(&self, world: &mut World, index: usize) {
        world.goes_elsewhere(index, "clients on another host");
        world.show(&Seen::Leaves(index));
        world.actors[index].phase = Phase::Ending;
        match world.actors[index].told.as_ref().map(Lease::ip) {
            Some(address) => world.release(index, address),
            // A container that was not told went with its call.
            None => world.ask_del(index),
        }
    }
}

impl Errand for Pools {
    fn begins(&self, world: &mut World, lan: usize) {
        world.perhaps(
            world.plan.docker.then_some(world.plan.active / 20),
            Event::Errand(lan, &Self),
        );
    }

    fn runs(&self, world: &mut World, lan: usize) {
        if world.winding_down {
            return;
        }
        world.sometime(world.plan.active / 10, Event::Errand(lan, &Self));
        if world.daemon.is_some() {
            world.network(lan);
        }
    }

    fn answered(&self, world: &mut World, lan: usize, asked: &Asked, answer: Option<Answer>) {
        answer
            .iter()
            .for_each(|answer| world.network_answered(lan, &asked.call, answer));
    }

    fn tidies(&self, attachment: &Attachment) -> bool {
        matches!(attachment, Attachment::Docker { .. })
    }

    /// Lets dockerd end what it no longer has, as it does when it starts.
    fn tidy(&self, world: &mut World, gone: &[Attachment]) {
        for attachment in gone {
            world.inquire(Call::Del {
                attachment: attachment.clone(),
                grace: None,
            });
        }
    }
}

impl World {
    /// Lets Docker do something with its network on a LAN, or with the network's pool.
    fn network(&mut self, lan: usize) {
        let pool = pool_of(lan);
        let network = pool.subnet.network().to_bits();
        let host = |offset: u32| Ipv4Addr::from_bits(network + offset);
        let reserved = self.networks[lan].reserved.first().copied();
        let call = match self.rng.u32(..10) {
            // Dockerd asks again when it starts, and for each network with the same definition.
            0 | 1 => self.pool_call(lan, Some(pool.subnet)),
            2 => self.pool_call(lan, None),
            3 => Call::Pool(PoolCall::Reserve {
                pool,
                address: None,
            }),
            4 => Call::Pool(PoolCall::Reserve {
                pool,
                address: Some(host(1016)),
            }),
            // An address that servers give: an endpoint that is offered this one needs another.
            5 => Call::Pool(PoolCall::Reserve {
                pool,
                address: Some(host(10 + self.rng.u32(..4))),
            }),
            6 => Call::Pool(PoolCall::ReleaseAddress {
                pool,
                address: host(NOBODYS),
            }),
            // Again, and late.
            7 if let Some(address) = self.networks[lan]
                .released
                .filter(|it| !self.may_have(lan, *it)) =>
            {
                self.stats.count("addresses that were released once more");
                Call::Pool(PoolCall::ReleaseAddress { pool, address })
            }
            _ => match reserved {
                Some(address) => {
                    self.networks[lan].reserved.remove(&address);
                    self.networks[lan].released = Some(address);
                    Call::Pool(PoolCall::ReleaseAddress { pool, address })
                }
                // Dockerd gives back what it has been given.
                None if self.awaits_pool(lan) => self.pool_call(lan, Some(pool.subnet)),
                None => {
                    self.networks[lan].told = None;
                    Call::Pool(PoolCall::Release { id: pool })
                }
            },
        };
        self.stats.count("calls about pools");
        let id = self.file_errand(lan, &Pools, call);
        self.after(20, 2_000, Event::Request(id));
    }

    /// Returns whether Docker waits for the answer to a request for its pool on a LAN.
    fn awaits_pool(&self, lan: usize) -> bool {
        let is_of = |asked: &Asked| match &asked.call {
            Call::Pool(PoolCall::Request(request)) => request.lan == self.segments[lan].lan,
            _ => false,
        };
        self.requests.values().any(is_of)
    }

    /// Lets Docker give the address of a container back.
    fn release(&mut self, index: usize, address: Ipv4Addr) {
        // If two were told one address, nobody knows whose is meant.
        let is_told = |actor: &&Actor| {
            actor.is_told_once() && actor.told.as_ref().map(Lease::ip) == Some(address)
        };
        let told: Vec<_> = self
            .actors
            .iter()
            .filter(is_told)
            .map(|actor| actor.attachment.clone())
            .collect();
        told.iter()
            .for_each(|attachment| self.show(&Seen::Gone(attachment)));
        let lan = self.actors[index].lan;
        // The daemon may take it for what a container was told that ended before, without a word of Docker (seed 8,206,640).
        let is_of = |record: &&Record| record.told.is_some_and(|told| told.addr() == address);
        self.actors[index].excused |= self.store.durable.values().filter(is_of).count() > 1;
        // The call names an address, and what was reserved since goes before a lease that may have ended.
        self.networks[lan].reserved.remove(&address);
        let call = Call::Pool(PoolCall::ReleaseAddress {
            pool: pool_of(lan),
            address,
        });
        self.ask(index, Role::Del, call.clone(), self.now);
        self.release_twice(index, &call);
    }

    /// Returns whether a Docker container may have an address, or may be getting it right now.
    fn may_have(&self, lan: usize, address: Ipv4Addr) -> bool {
        let has = |actor: &Actor| match &actor.told {
            Some(told) => told.ip() == address,
            None => actor.phase != Phase::Idle,
        };
        let mut of_docker = self
            .actors
            .iter()
            .filter(|actor| actor.is_told_once() && actor.lan == lan);
        self.networks[lan].reserved.contains(&address) || of_docker.any(has)
    }

    /// Judges the answer to Docker that a container's lease is being released: this is durable, unless the lease has ended. If
    /// two containers were told one address, nobody knows whose was meant.
    pub(in crate::world) fn judge_released(&mut self, index: usize) {
        let now = self.clock().boot;
        let address = self.actors[index].told.as_ref().map(Lease::ip);
        self.networks[self.actors[index].lan]
            .reserved
            .retain(|reserved| Some(*reserved) != address);
        // An endpoint that dockerd forgot had no address of a pool.
        if self.actors[index].pool.is_none() {
            return;
        }
        let attachment = &self.actors[index].attachment;
        let told = |record: &&Record| {
            record.told.is_some() && record.told.map(|told| told.addr()) == address
        };
        let told: Vec<_> = self.store.durable.values().filter(told).collect();
        let held =
            |record: &Record| record.state == RecordState::Bound && !record.lease.expired(now);
        let was_told = |actor: &Actor| {
            actor.is_told_once()
                && actor.phase != Phase::Idle
                && actor.told.as_ref().map(Lease::ip) == address
        };
        if let [only] = told[..]
            && only.attachment == *attachment
            && held(only)
            && !self.actors[index].excused
            && self.actors.iter().filter(|actor| was_told(actor)).count() == 1
        {
            let detail = format!(
                "{attachment} was released, and the store has it as {:?}",
                only.state
            );
            return self.fail(Rule::NotDurable, detail);
        }
        let holds = |actor: &Actor| {
            told.iter()
                .any(|record| held(record) && record.attachment == actor.attachment)
        };
        for twin in self.actors.iter_mut().filter(|actor| was_told(actor)) {
            // The other's address may be given back once more, for the first.
            twin.excused = true;
            if !holds(twin) {
                twin.stranded = Some(false);
            }
        }
    }

    /// Lets Docker give a container's address back, and now and then repeat that before it has heard the first answer.
    pub(in crate::world) fn release_twice(&mut self, index: usize, call: &Call) {
        let at = self.actors[index].order + 1;
        if self.daemon.is_some() && happens(&mut self.rng, self.plan.unruly / 2) {
            self.stats.count("addresses that were released twice");
            let id = self.file(Role::Echo, call.clone());
            self.at(at, Event::Request(id));
        }
    }

    /// Makes a container ask for a certain address now and then (`--ip`).
    pub(in crate::world) fn choose_address(&mut self, index: usize) {
        let actor = &self.actors[index];
        if actor.pool.is_some() && self.rng.u32(..6) == 0 {
            let first = self.plan.pool(actor.lan, 0).0.to_bits();
            self.actors[index].wanted = Some(Ipv4Addr::from_bits(first + self.rng.u32(..12)));
        }
    }

    fn pool_call(&self, lan: usize, subnet: Option<Ipv4Net>) -> Call {
        let deny = if self.plan.rogue == Some(Rogue::Denied) {
            vec![ROGUE]
        } else {
            Vec::new()
        };
        let servers = Servers {
            deny,
            ..Servers::default()
        };
        Call::Pool(PoolCall::Request(Box::new(PoolRequest {
            definition: pool_of(lan).definition,
            subnet,
            range: None,
            ifname: format!("eth{lan}"),
            mac: Mac([2, 0xdd, 0, 0, 0, lan as u8]),
            lan: self.segments[lan].lan.clone(),
            profile: Profile::from(ClientProfile {
                servers,
                ..ClientProfile::default()
            }),
            timeout: Duration::from_secs(20),
            unclear: None,
        })))
    }

    /// Handles an answer to Docker.
    pub(in crate::world) fn network_answered(&mut self, lan: usize, call: &Call, answer: &Answer) {
        match (call, answer) {
            (Call::Pool(PoolCall::Request(request)), Answer::Pool { id, gateway }) => {
                self.stats.count("pools");
                let is_known = *id == pool_of(lan) || request.subnet.is_none() && self.may_lie();
                if !is_known || gateway.is_some_and(|router| !id.subnet.contains(&router)) {
                    let detail = format!("{id} with {gateway:?} to {request:?}");
                    self.fail(Rule::WrongAnswer, detail);
                }
                // Known pools are answered as before, whatever servers offer by now.
                if *id == pool_of(lan) && !self.store_fails {
                    let told = self.networks[lan].told.replace(*gateway);
                    self.stats
                        .count_if(told.is_some(), "pools that were asked for again");
                    // A router that was unknown may be known by now.
                    if told.flatten().is_some_and(|told| *gateway != Some(told)) {
                        let detail = format!("{id} with {gateway:?}, and with {told:?} before");
                        self.fail(Rule::WrongAnswer, detail);
                    }
                }
            }
            (Call::Pool(PoolCall::Request(request)), Answer::Failed(failure))
                if self.calm && request.subnet.is_some() =>
            {
                self.fail(Rule::Failed, format!("{request:?}: {failure}"));
            }
            (Call::Pool(PoolCall::Release { .. }), _) => self.networks[lan].told = None,
            (Call::Pool(PoolCall::Reserve { .. }), Answer::Reserved(address)) => {
                self.stats.count("addresses reserved");
                self.networks[lan].reserved.insert(*address);
            }
            _ => {}
        }
    }

    /// Returns whether the subnet that a server offers may differ from the LAN's.
    fn may_lie(&self) -> bool {
        !self.calm || self.plan.rogue.is_some()
    }
}
