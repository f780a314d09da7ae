//! Docker's networks of our own driver, and their endpoints: what dockerd asks about them, and what it does with the answers.
//!
//! A link made for Docker lives only as long as its endpoint. A link in the host's namespace belongs to an endpoint that dockerd
//! has, or has been there for less than ten minutes (less than one, if it came back from a container). A link in a container
//! belongs to Docker alone. A VLAN's link exists as long as a network is in the VLAN.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::Ipv4Net;
use leasehold_core::effect::{
    Add, Answer, Call, EndpointAddress, EndpointRequest, Failure, NetworkAnswer, NetworkCall,
    RequestId,
};
use leasehold_core::grant::Grant;
use leasehold_core::identity::{Attachment, DoorId};
use leasehold_core::link::own::MacvlanMode;
use leasehold_core::link::{LinkRoute, Place};
use leasehold_core::network::{
    AddressSource, EndpointRecord, Mode, NetworkFault, NetworkRecord, Wiring, in_network,
};
use leasehold_core::pool::PoolId;
use leasehold_core::record::{Record, RecordState};
use leasehold_core::source::{Lease, lease::LeaseTimes};
use leasehold_core::testbed::link::Own;
use leasehold_core::time::{Instant, WallTime};

use super::dockerd::{equip, named};
use super::pools::{Pools, pool_of};
use super::wired::Stage;
use crate::plan::{Plan, VLAN, Wires, happens};
use crate::subject::add_of;
use crate::watch::{Rule, is_of};
use crate::world::actor::{Act, Actor, Asked, Door, Errand, Phase, Role};
use crate::world::seen::Seen;
use crate::world::{Event, MILLI, Micros, SECOND, World};

/// The prefix by which our door names the network of an endpoint for which no IPAM driver is asked.
const NETWORK: &str = "network ";

/// How long a link that has not been in a container yet may be in the host's namespace.
pub(super) const SLOW_START: Micros = 600 * SECOND;
/// How long a link that came back from a container may be there.
const STRAY: Micros = 60 * SECOND;

/// Returns how long dockerd may at least leave a link where it is.
pub(in crate::world) fn may_stay(own: &Own) -> Micros {
    if own.moved { STRAY } else { SLOW_START }
}

/// The door of our own network driver.
#[derive(Debug)]
pub(super) struct Networks;

impl Door for Networks {
    /// Returns whether this actor's containers are on its networks. With ipvlans, all of Docker's containers are.
    fn serves(&self, plan: &Plan, index: usize) -> bool {
        let all = plan.wires == Some(Wires::Ipvlan);
        Pools.serves(plan, index) && plan.wires.is_some() && (all || index % 6 != 4)
    }

    /// Some have addresses from our IPAM driver; others get a lease when their endpoint is created (`--ipam-driver null`).
    fn equips(&self, actor: &mut Actor, plan: &Plan, index: usize) {
        let is_told = plan.wires != Some(Wires::Ipvlan) && index % 3 == 1;
        equip(actor, is_told.then(|| pool_of(actor.lan)));
        actor.profile.policy.metric = None;
    }

    fn knows_by_mac(&self) -> bool {
        true
    }

    fn names(&self, actor: &Actor, container: &str) -> (PathBuf, Attachment) {
        let pool = actor.pool.as_ref().map(PoolId::to_string);
        named(
            actor,
            container,
            &pool.unwrap_or_else(|| in_network(&format!("{:012x}", actor.lan))),
        )
    }

    fn place(&self, actor: &Actor) -> Place {
        Pools.place(actor)
    }

    fn is_ready(&self, world: &World, lan: usize) -> bool {
        world.wired.networks[lan].0 == Stage::There
    }

    fn makes(&self, world: &mut World, index: usize) {
        let lan = world.actors[index].lan;
        world.actors[index].network = Some(world.wired.network_id(lan));
        Pools.makes(world, index);
    }

    fn asks(&self, world: &mut World, index: usize, add: Add, patience: Micros) -> RequestId {
        match world.actors[index].pool {
            Some(_) => Pools.asks(world, index, add, patience),
            None => world.create_endpoint(index, Role::Add, Some(add), patience),
        }
    }

    /// Goes on with an endpoint that has its address: its link is made, or it is joined.
    fn leased(&self, world: &mut World, index: usize, _: &Lease) {
        match (
            &world.actors[index].pool,
            world.actors[index].endpoint.clone(),
        ) {
            (None, Some(id)) => {
                world.created(index, id);
                world.join(index);
            }
            _ => _ = world.create_endpoint(index, Role::Endpoint, None, world.now),
        }
    }

    fn routes(&self, world: &World, actor: &Actor, _: &Lease) -> Vec<LinkRoute> {
        world.routes_for_docker(actor)
    }

    fn next(&self, world: &mut World, index: usize) {
        world.next_of_docker(index, Act::Rejoin);
    }

    fn acts(&self, world: &mut World, index: usize, act: Act) {
        match act {
            Act::Appear => world.appear(index, |world| world.link_moves_in(index)),
            Act::Rejoin if world.actors[index].phase == Phase::Live => world.join(index),
            act => Pools.acts(world, index, act),
        }
    }

    fn ends(&self, world: &mut World, index: usize) {
        if world.actors[index].endpoint.is_none() {
            return Pools.ends(world, index);
        }
        world.actors[index].phase = Phase::Ending;
        if world.actors[index].pool.is_none() {
            world.goes_elsewhere(index, "clients on another host");
            world.show(&Seen::Leaves(index));
        }
        if !world.end_endpoint(index) {
            world.endpoint_gone(index, false);
        }
    }

    fn failed(&self, world: &mut World, index: usize, failure: &Failure) {
        world.no_such_network(world.actors[index].lan, failure);
    }

    fn dies_unseen(&self, world: &World) -> bool {
        world.plan.ipvlan
    }

    fn answered(&self, world: &mut World, index: usize, asked: &Asked, answer: Option<Answer>) {
        world.endpoint_answered(index, &asked.role, answer);
    }
}

impl Errand for Networks {
    fn begins(&self, world: &mut World, lan: usize) {
        if world.plan.wires.is_some() {
            world.at(MILLI, Event::Errand(lan, &Self));
        }
    }

    fn runs(&self, world: &mut World, lan: usize) {
        if !world.winding_down {
            world.wiring(lan);
        }
    }

    fn answered(&self, world: &mut World, lan: usize, asked: &Asked, answer: Option<Answer>) {
        // A caller that has given up asks anew.
        if answer.is_some() || !asked.gone {
            world.wiring_answered(lan, &asked.call, answer.as_ref());
        }
    }

    fn hung_up(&self, world: &mut World, asked: &Asked, open: bool) {
        world.heard_given_up(&asked.call, open);
    }

    fn gives_up(&self, world: &mut World, lan: usize, id: RequestId) {
        world.give_up(lan, id);
    }

    /// Begins again with all networks where the reboot has left them.
    fn rebooted(&self, world: &mut World, lan: usize) {
        if world.plan.wires.is_some() {
            world.after(SECOND, 10 * SECOND, Event::Errand(lan, &Self));
        }
    }
}

impl World {
    /// Lets dockerd create its network on a LAN, or now and then delete it.
    fn wiring(&mut self, lan: usize) {
        let busy = self
            .actors
            .iter()
            .any(|a| a.lan == lan && a.network.is_some() && a.phase != Phase::Idle);
        let (call, next) = match self.wired.networks[lan].0 {
            Stage::Absent => {
                self.wired.created[lan] += 1;
                (
                    NetworkCall::Create(Box::new(self.network_record(lan))),
                    Stage::Coming,
                )
            }
            Stage::There if !busy => (
                NetworkCall::Delete(self.wired.network_id(lan)),
                Stage::Going,
            ),
            Stage::There => {
                return self.sometime(self.plan.active / 10, Event::Errand(lan, &Networks));
            }
            Stage::Coming | Stage::Going => return,
        };
        self.wired.networks[lan].0 = next;
        let call = Call::Network(call);
        let twice = self.twice(&call);
        let id = self.file_errand(lan, &Networks, call);
        if self.daemon.is_none() {
            return self.cut(id);
        }
        let asked = self.now + self.rng.u64(20..2 * MILLI);
        self.at(asked, Event::Request(id));
        if next == Stage::Coming && twice {
            // If there were two calls about it, the other may keep it.
            self.wired.forgotten.insert(self.wired.network_id(lan));
        } else if next == Stage::Coming && happens(&mut self.rng, self.plan.unruly) {
            let given_up = asked + self.rng.u64(1..5 * MILLI);
            self.at(given_up, Event::GivesUp(id));
        }
    }

    /// Handles that dockerd was killed, or no longer waits for a network to be created. The answer may be on its way.
    fn give_up(&mut self, lan: usize, id: RequestId) {
        let Some(asked) = self.requests.get_mut(&id).filter(|asked| !asked.gone) else {
            return;
        };
        asked.gone = true;
        self.stats.count(match asked.answered {
            true => "networks that were given up as they were answered",
            false => "networks that were given up",
        });
        self.wired.forgotten.insert(self.wired.network_id(lan));
        self.wired.networks[lan] = (Stage::Absent, false);
        self.after(10, MILLI, Event::HungUp(self.run, id));
        self.after(10 * MILLI, 10 * SECOND, Event::Errand(lan, &Networks));
    }

    /// Goes on with the end of a container whose endpoint is gone, or whose dockerd does not mention it.
    fn endpoint_gone(&mut self, index: usize, told: bool) {
        if self.actors[index].pool.is_some() {
            return Pools.ends(self, index);
        }
        if !told {
            self.actors[index].died = Some(self.now);
        }
        self.lease_is_back(index, told);
    }

    /// Returns a LAN's network as dockerd creates it.
    fn network_record(&self, lan: usize) -> NetworkRecord {
        let wires = self.plan.wires.unwrap_or(Wires::Macvlan);
        let mode = match wires {
            Wires::Macvlan | Wires::Vlan => Mode::Macvlan(MacvlanMode::Bridge),
            Wires::Bridge => Mode::Bridge,
            Wires::Ipvlan => Mode::Ipvlan,
        };
        let vlan = if wires == Wires::Vlan { VLAN } else { 0 };
        NetworkRecord {
            id: self.wired.network_id(lan),
            definition: format!("parent=eth{lan}"),
            wiring: Wiring {
                mode,
                on: format!("eth{lan}"),
                vlan,
                mtu: None,
            },
            gateway: None,
            pool: Ipv4Net::default(),
            leases: false,
            since: WallTime::from_epoch(Duration::ZERO),
        }
    }

    /// Sends the same request again now and then. Nobody waits for that answer. Returns whether it did.
    fn twice(&mut self, call: &Call) -> bool {
        let twice = self.daemon.is_some() && happens(&mut self.rng, self.plan.unruly / 4);
        if twice {
            self.stats
                .count("calls of the network driver that came twice");
            let id = self.file(Role::Echo, call.clone());
            self.after(20, 4 * MILLI, Event::Request(id));
        }
        twice
    }

    /// Returns whether a call would be sent again although dockerd has its answer, and has deleted the endpoint since.
    pub(in crate::world) fn is_late_echo(&self, asked: &Asked) -> bool {
        let Call::Network(NetworkCall::CreateEndpoint(request)) = &asked.call else {
            return false;
        };
        let mut ids = self.actors.iter().filter_map(|it| it.endpoint.as_ref());
        asked.role == Role::Echo && !ids.any(|id| *id == request.id)
    }

    /// The daemon has heard that dockerd gave up on a network, and forgets it if it had not answered. The store may not be told
    /// about that.
    pub(in crate::world) fn heard_given_up(&mut self, call: &Call, open: bool) {
        let stored = open && !self.store_fails && self.plan.crashes.is_empty();
        if let (Call::Network(NetworkCall::Create(record)), true) = (call, stored) {
            self.wired.forgotten.remove(&record.id);
        }
    }

    /// Handles an answer to dockerd about a network; `None`: the connection broke.
    pub(in crate::world) fn wiring_answered(
        &mut self,
        lan: usize,
        call: &Call,
        answer: Option<&Answer>,
    ) {
        let creates = matches!(call, Call::Network(NetworkCall::Create(_)));
        let done = matches!(answer, Some(Answer::Network(NetworkAnswer::Done)));
        let id = self.wired.network_id(lan);
        match (creates && done, creates && answer.is_none()) {
            (true, _) => _ = self.wired.forgotten.remove(&id),
            (false, true) => _ = self.wired.forgotten.insert(id),
            (false, false) => {}
        }
        self.wired.networks[lan] = match (creates, done) {
            (true, true) => (Stage::There, false),
            (true, false) => (Stage::Absent, false),
            (false, true) => (Stage::Absent, false),
            // Whoever wants it deleted asks again.
            (false, false) => (Stage::There, true),
        };
        self.stats.count(match (creates, done) {
            (true, true) => "networks created",
            (true, false) => "networks not created",
            (false, true) => "networks deleted",
            (false, false) => "networks not deleted",
        });
        if self.calm && !done {
            self.fail(Rule::Failed, format!("{call:?}: {answer:?}"));
        }
        match self.wired.networks[lan].0 {
            Stage::There => self.sometime(self.plan.active / 10, Event::Errand(lan, &Networks)),
            // A repeated answer is about the previous network: dockerd gives each its own name.
            _ => self.after(10 * MILLI, 10 * SECOND, Event::Errand(lan, &Networks)),
        }
    }

    /// Requests an actor's endpoint: with a lease that this ADD gets, or with the address that its IPAM driver gave.
    pub(in crate::world) fn create_endpoint(
        &mut self,
        index: usize,
        role: Role,
        add: Option<Add>,
        patience: Micros,
    ) -> RequestId {
        let id = self.wired.new_endpoint();
        let actor = &mut self.actors[index];
        actor.endpoint = Some(id.clone());
        let told = actor.told.as_ref().map(|told| actor.as_told(told).address);
        let address = match add {
            Some(add) => EndpointAddress::Leased(Box::new(add)),
            None => EndpointAddress::Ipam(told.unwrap_or_default()),
        };
        let network = actor.network.clone().expect("its container was put on one");
        let request = EndpointRequest {
            id,
            network,
            mac: actor.mac,
            address,
        };
        let call = Call::Network(NetworkCall::CreateEndpoint(Box::new(request)));
        self.twice(&call);
        self.ask(index, role, call, patience)
    }

    fn created(&mut self, index: usize, id: DoorId) {
        self.stats.count("endpoints created");
        let attachment = self.actors[index].attachment.clone();
        self.wired.endpoints.insert(id, (attachment, false));
    }

    /// Joins an actor's endpoint to its container.
    pub(in crate::world) fn join(&mut self, index: usize) {
        let actor = &self.actors[index];
        let (Some(endpoint), Some(network)) = (actor.endpoint.clone(), actor.network.clone())
        else {
            return;
        };
        let call = Call::Network(NetworkCall::Join {
            network,
            endpoint,
            sandbox: String::new(),
        });
        self.twice(&call);
        self.ask(index, Role::Join, call, self.now);
    }

    /// Handles an answer to dockerd about an actor's endpoint; `None`: the connection broke.
    pub(in crate::world) fn endpoint_answered(
        &mut self,
        index: usize,
        role: &Role,
        answer: Option<Answer>,
    ) {
        let phase = self.actors[index].phase;
        let endpoint = self.actors[index].endpoint.clone();
        match (role, phase, answer) {
            (Role::Endpoint, Phase::Adding, Some(Answer::Network(NetworkAnswer::Endpoint(_)))) => {
                endpoint.into_iter().for_each(|id| self.created(index, id));
                self.join(index);
            }
            (
                Role::Join,
                Phase::Adding,
                Some(Answer::Network(NetworkAnswer::Joined { grant, .. })),
            ) => {
                self.actors[index].routes = told_routes(grant.as_deref());
                self.actors[index].phase = Phase::Live;
                self.starts(index);
                self.stay(index);
            }
            (
                Role::Join,
                Phase::Live,
                Some(Answer::Network(NetworkAnswer::Joined { grant, .. })),
            ) => {
                self.actors[index].routes = told_routes(grant.as_deref());
                self.act_after(index, 0, 50 * MILLI, Act::Appear);
            }
            (Role::Unmake, Phase::Ending, Some(Answer::Network(NetworkAnswer::Done))) => {
                self.stats.count("endpoints deleted");
                self.forget_endpoint(index);
                self.endpoint_gone(index, true);
            }
            (Role::Unmake, Phase::Ending, answer) => {
                self.not_done(index, "DeleteEndpoint", answer.as_ref());
                // An ipvlan that goes with its namespace shows to nobody: dockerd has to say so, as it does when it next starts.
                if self.plan.ipvlan || self.rng.bool() {
                    return self.act_after(index, SECOND, 10 * SECOND, Act::Del);
                }
                self.stats.count("endpoints that dockerd forgot");
                self.forget_endpoint(index);
                self.endpoint_gone(index, false);
            }
            (Role::Endpoint, Phase::Adding, answer) => {
                self.not_done(index, "CreateEndpoint", answer.as_ref());
                self.end_by_del(index);
            }
            (Role::Join, Phase::Adding | Phase::Live, answer) => {
                self.not_done(index, "Join", answer.as_ref());
                self.unlink(index);
                self.end_by_del(index);
            }
            _ => {}
        }
    }

    fn not_done(&mut self, index: usize, what: &str, answer: Option<&Answer>) {
        if let Some(Answer::Failed(failure)) = answer {
            self.no_such_network(self.actors[index].lan, failure);
        }
        if self.calm {
            let attachment = self.actors[index].attachment.clone();
            self.fail(Rule::Failed, format!("{what} of {attachment}: {answer:?}"));
        }
    }

    /// Handles a network that the daemon does not know, which only a lost store or a broken call may cause: it is created again.
    pub(in crate::world) fn no_such_network(&mut self, lan: usize, failure: &Failure) {
        let Failure::Network(NetworkFault::Unknown(id)) = failure else {
            return;
        };
        if *id != self.wired.network_id(lan) {
            return self
                .stats
                .count("networks that were made anew while containers were on them");
        }
        let (stage, unsure) = self.wired.networks[lan];
        if stage != Stage::There {
            return;
        }
        if !unsure && !self.docker_was_lost {
            return self.fail(
                Rule::Wired,
                format!("dockerd has the network of LAN {lan}, and the daemon does not know it"),
            );
        }
        self.wired.networks[lan] = (Stage::Absent, false);
        self.after(MILLI, 10 * SECOND, Event::Errand(lan, &Networks));
    }

    /// Ends the endpoint of an actor whose container ends. Returns whether there is anything to wait for: dockerd does not always
    /// delete an endpoint that was not created.
    pub(in crate::world) fn end_endpoint(&mut self, index: usize) -> bool {
        let Some(id) = self.actors[index].endpoint.clone() else {
            return false;
        };
        if !self.wired.end(&id) && self.rng.bool() {
            self.forget_endpoint(index);
            return false;
        }
        self.nobody_has(index);
        let call = Call::Network(NetworkCall::DeleteEndpoint(id.clone()));
        self.twice(&call);
        self.ask(index, Role::Unmake, call, self.now);
        true
    }

    /// Records that dockerd has no endpoint for an actor any more.
    pub(in crate::world) fn forget_endpoint(&mut self, index: usize) {
        if let Some(id) = self.actors[index].endpoint.take() {
            self.wired.endpoints.remove(&id);
        }
    }

    /// Returns the lease of an endpoint from the answer to its creation.
    pub(in crate::world) fn lease_of(&self, answer: &Answer) -> Option<Lease> {
        let Answer::Network(NetworkAnswer::Endpoint(record)) = answer else {
            return None;
        };
        let AddressSource::Leased(attachment) = &record.source else {
            return None;
        };
        // It may have ended since it was given.
        let is_its = |binding: &&Record| {
            binding.attachment == *attachment && binding.state != RecordState::Releasing
        };
        let binding = self.store.durable.values().find(is_its)?;
        Some(Lease {
            address: record.address,
            ..binding.lease.clone()
        })
    }

    /// Keeps an endpoint's lease until its caller has the answer.
    pub(in crate::world) fn note_lease(&mut self, id: RequestId, answer: &Answer) {
        let lease = self
            .lease_of(answer)
            .or_else(|| self.lease_told(id, answer));
        if let Some(asked) = self.requests.get_mut(&id) {
            asked.lease = lease;
        }
    }

    /// Returns the lease that the caller of an ADD is told.
    fn lease_told(&self, id: RequestId, answer: &Answer) -> Option<Lease> {
        let Answer::Leased { tenures } = answer else {
            return None;
        };
        let (add, told) = (add_of(&self.requests.get(&id)?.call)?, tenures.first()?);
        let mut bound = self
            .store
            .known()
            .filter(|record| record.state == RecordState::Bound);
        let lease = &bound
            .find(|record| record.attachment == add.attachment && is_of(record, add, told))?
            .lease;
        let from_start = |at: Instant| at.saturating_since(told.start);
        let times = told.times.map(|times| LeaseTimes {
            t1: from_start(times.extended),
            t2: from_start(times.rebound),
            end: from_start(times.ends),
        });
        Some(Lease {
            start: told.start,
            times,
            ..lease.clone()
        })
    }

    /// Returns whether an attachment is an endpoint leased by our network driver that the store does not have.
    pub(in crate::world) fn lacks_endpoint(&self, attachment: &Attachment) -> bool {
        let is_its =
            |record: &EndpointRecord| record.source == AddressSource::Leased(attachment.clone());
        let leased =
            matches!(attachment, Attachment::Docker { pool, .. } if pool.starts_with(NETWORK));
        leased && !self.store.docker.endpoints.values().any(is_its)
    }

    /// Returns whose lease a call is about.
    pub(in crate::world) fn concerned(&self, call: &NetworkCall) -> Option<Attachment> {
        match call {
            NetworkCall::CreateEndpoint(request) => match &request.address {
                EndpointAddress::Leased(add) => Some(add.attachment.clone()),
                EndpointAddress::Ipam(_) => None,
            },
            NetworkCall::DeleteEndpoint(id) => match self.record_of_endpoint(id)?.source.clone() {
                AddressSource::Leased(attachment) => Some(attachment),
                AddressSource::Ipam => None,
            },
            NetworkCall::Create(_)
            | NetworkCall::Delete(_)
            | NetworkCall::Find(_)
            | NetworkCall::Started
            | NetworkCall::Join { .. } => None,
        }
    }

    pub(super) fn record_of_endpoint(&self, id: &DoorId) -> Option<&EndpointRecord> {
        self.store.docker.endpoints.get(id)
    }
}

/// Returns the routes that dockerd is told, as it adds them: without the default route, and without a metric.
fn told_routes(grant: Option<&Grant>) -> Vec<LinkRoute> {
    let routes = grant
        .map(|grant| grant.routes.as_slice())
        .unwrap_or_default()
        .iter();
    let told = routes.filter(|route| route.destination.prefix_len() > 0);
    told.map(|route| LinkRoute {
        destination: route.destination,
        via: route.via,
        ..LinkRoute::default()
    })
    .collect()
}
