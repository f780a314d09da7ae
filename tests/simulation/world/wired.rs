//! Docker's networks of our own driver, and their endpoints: what dockerd asks of them, and what it does with the answers.
//!
//! A link that was made for Docker only lives with its endpoint. A link in the host's namespace belongs to an endpoint that
//! dockerd has, or has been there for less than ten minutes; for less than one, if it came back from a container. A link in a
//! container belongs to Docker alone. A VLAN's link is there as long as a network is in it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipnet::Ipv4Net;
use leasehold_core::dhcpv4::lease::{Lease, Times};
use leasehold_core::effect::{
    Add, Answer, Call, EndpointAddress, EndpointRequest, Failure, NetworkAnswer, NetworkCall, RequestId,
};
use leasehold_core::grant::Grant;
use leasehold_core::identity::Attachment;
use leasehold_core::link::LinkRoute;
use leasehold_core::network::{
    DockerId, EndpointRecord, LinkOwner, MacvlanMode, Mode, NetworkFault, NetworkRecord, Source, Wiring,
};
use leasehold_core::record::{DockerKey, DockerRecord, Record, RecordState};
use leasehold_core::time::{Instant, WallTime};
use leasehold_core::wire::Mac;

use super::actor::{Act, Form, NETWORK, Phase, Role};
use super::{Event, MILLI, Micros, SECOND, World};
use crate::link::Own;
use crate::plan::{VLAN, Wires, happens};
use crate::subject::add_of;
use crate::watch::{Rule, is_of};

/// How long a link that has not been in a container yet may be in the host's namespace.
const SLOW_START: Micros = 600 * SECOND;
/// How long a link that came back from a container may be there.
const STRAY: Micros = 60 * SECOND;

/// Returns how long, at least, dockerd may leave a link where it is.
pub(super) fn may_stay(own: &Own) -> Micros {
    if own.moved { STRAY } else { SLOW_START }
}

/// What dockerd has of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing.
    Absent,
    /// It is being created.
    Coming,
    /// All.
    There,
    /// It is being deleted.
    Going,
}

/// What dockerd has of its networks.
#[derive(Debug)]
pub(super) struct Wired {
    /// By LAN, and whether the daemon may not know it.
    networks: Vec<(Stage, bool)>,
    /// How many were requested, by LAN.
    created: Vec<u32>,
    /// Networks that the daemon may have without dockerd: its call broke or was one of two, or the daemon ended before it heard
    /// that dockerd had given up, and had that written.
    forgotten: BTreeSet<DockerId>,
    /// The endpoints that were created and are not forgotten, whose they are, and whether they are ending.
    endpoints: BTreeMap<DockerId, (Attachment, bool)>,
    /// How many were requested.
    asked: u64,
    /// When the last change of such links is carried out, and when the daemon hears the last news of them.
    changes: Micros,
    news: Micros,
}

impl Wired {
    /// Returns dockerd before it has any.
    pub(super) fn new(lans: usize) -> Self {
        let (networks, created) = (vec![(Stage::Absent, false); lans], vec![0; lans]);
        let (endpoints, forgotten) = (BTreeMap::new(), BTreeSet::new());
        Self { networks, created, forgotten, endpoints, asked: 0, changes: 0, news: 0 }
    }

    /// Returns when a change that would be ready at this time is carried out: not before those that were requested earlier.
    pub(super) fn next_change(&mut self, ready: Micros) -> Micros {
        self.changes = ready.max(self.changes + 1);
        self.changes
    }

    /// Returns when news that would come at this time is heard: not before earlier news.
    pub(super) fn next_news(&mut self, ready: Micros) -> Micros {
        self.news = ready.max(self.news + 1);
        self.news
    }

    /// Returns whose an endpoint is, if dockerd has it and has not asked for its end.
    pub(super) fn has(&self, id: &DockerId) -> Option<&Attachment> {
        self.endpoints.get(id).filter(|(_, ends)| !ends).map(|(attachment, _)| attachment)
    }

    /// Returns the name of a LAN's network. Each one that is created has another name.
    fn network_id(&self, lan: usize) -> DockerId {
        DockerId::try_from(format!("{:06x}{lan:06x}{:052x}", self.created[lan], 0)).expect("64 digits are an id")
    }

    fn new_endpoint(&mut self) -> DockerId {
        self.asked += 1;
        let text = format!("{:012x}{:052x}", self.asked, 0);
        DockerId::try_from(text).expect("64 digits are an id")
    }

    /// The daemon knows none of the networks any more.
    pub(super) fn store_lost(&mut self) {
        self.networks.iter_mut().for_each(|(_, unsure)| *unsure = true);
    }

    /// The host rebooted.
    pub(super) fn rebooted(&mut self) {
        self.endpoints.clear();
        for lan in (0..self.networks.len()).filter(|lan| self.networks[*lan].0 == Stage::Coming) {
            self.forgotten.insert(self.network_id(lan));
        }
        for (stage, unsure) in &mut self.networks {
            *unsure |= *stage == Stage::Going;
            *stage = match stage {
                Stage::Absent | Stage::Coming => Stage::Absent,
                Stage::There | Stage::Going => Stage::There,
            };
        }
    }
}

impl World {
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
            wiring: Wiring { mode, on: format!("eth{lan}"), vlan, mtu: None },
            gateway: None,
            pool: Ipv4Net::default(),
            leases: false,
            since: WallTime::from_epoch(Duration::ZERO),
            unused: false,
        }
    }

    /// Dockerd creates its network on a LAN, or deletes it now and then.
    pub(super) fn wiring(&mut self, lan: usize) {
        if self.winding_down {
            return;
        }
        let busy = self.actors.iter().any(|a| a.lan == lan && a.form.is_some() && a.phase != Phase::Idle);
        let (call, next) = match self.wired.networks[lan].0 {
            Stage::Absent => {
                self.wired.created[lan] += 1;
                (NetworkCall::Create(Box::new(self.network_record(lan))), Stage::Coming)
            }
            Stage::There if !busy => (NetworkCall::Delete(self.wired.network_id(lan)), Stage::Going),
            Stage::There => return self.sometime(self.plan.active / 10, Event::Wiring(lan)),
            Stage::Coming | Stage::Going => return,
        };
        self.wired.networks[lan].0 = next;
        let call = Call::Network(call);
        let twice = self.twice(&call);
        let id = self.file(Role::Wiring(lan), call);
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
            self.at(given_up, Event::GivenUp(lan, id));
        }
    }

    /// Asks the same again, now and then. Nobody waits for that answer. Returns whether it did.
    fn twice(&mut self, call: &Call) -> bool {
        let twice = self.daemon.is_some() && happens(&mut self.rng, self.plan.unruly / 4);
        if twice {
            self.stats.count("calls of the network driver that came twice");
            let id = self.file(Role::Echo, call.clone());
            self.after(20, 4 * MILLI, Event::Request(id));
        }
        twice
    }

    /// Dockerd was killed, or no longer waits for a network to be created. The answer may be on its way.
    pub(super) fn give_up(&mut self, lan: usize, id: RequestId) {
        let Some(asked) = self.requests.get_mut(&id).filter(|asked| !asked.gone) else { return };
        asked.gone = true;
        self.stats.count(match asked.answered {
            true => "networks that were given up as they were answered",
            false => "networks that were given up",
        });
        self.wired.forgotten.insert(self.wired.network_id(lan));
        self.wired.networks[lan] = (Stage::Absent, false);
        self.after(10, MILLI, Event::HungUp(self.run, id));
        self.after(10 * MILLI, 10 * SECOND, Event::Wiring(lan));
    }

    /// The daemon has heard that dockerd gave up on a network, and forgets it. The store may not hear of that.
    pub(super) fn heard_given_up(&mut self, call: &Call) {
        let stored = !self.store_fails && self.plan.crashes.is_empty();
        if let (Call::Network(NetworkCall::Create(record)), true) = (call, stored) {
            self.wired.forgotten.remove(&record.id);
        }
    }

    /// Dockerd has its answer about a network; `None`: the connection broke.
    pub(super) fn wiring_answered(&mut self, lan: usize, call: &Call, answer: Option<&Answer>) {
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
            // Whoever wants it gone asks again.
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
            Stage::There => self.sometime(self.plan.active / 10, Event::Wiring(lan)),
            // A repeated answer is about the previous network: dockerd gives each its own name.
            _ => self.after(10 * MILLI, 10 * SECOND, Event::Wiring(lan)),
        }
    }

    /// Returns whether a LAN's network is there for containers.
    pub(super) fn has_network(&self, lan: usize) -> bool {
        self.wired.networks[lan].0 == Stage::There
    }

    /// All networks begin again where the host's reboot has left them.
    pub(super) fn wiring_goes_on(&mut self) {
        if self.plan.wires.is_some() {
            (0..self.segments.len()).for_each(|lan| self.after(SECOND, 10 * SECOND, Event::Wiring(lan)));
        }
    }

    /// Puts an actor's container on the network that its LAN has now, if it is on one of ours.
    pub(super) fn choose_network(&mut self, index: usize) {
        let (form, lan) = (self.actors[index].form, self.actors[index].lan);
        self.actors[index].network = form.map(|_| self.wired.network_id(lan));
    }

    /// Asks for an actor's endpoint: with a lease that this ADD gets, or with the address that its IPAM driver told.
    pub(super) fn create_endpoint(
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
            None => EndpointAddress::Told(told.unwrap_or_default()),
        };
        let network = actor.network.clone().expect("its container was put on one");
        let request = EndpointRequest { id, network, mac: actor.mac, address };
        let call = Call::Network(NetworkCall::CreateEndpoint(Box::new(request)));
        self.twice(&call);
        self.ask(index, role, call, patience)
    }

    /// Dockerd goes on with an actor's endpoint that has its address: its link is made, or it is joined.
    pub(super) fn goes_on(&mut self, index: usize) {
        match (self.actors[index].form, self.actors[index].endpoint.clone()) {
            (Some(Form::Leased), Some(id)) => {
                self.created(index, id);
                self.join(index);
            }
            _ => _ = self.create_endpoint(index, Role::Endpoint, None, self.now),
        }
    }

    fn created(&mut self, index: usize, id: DockerId) {
        self.stats.count("endpoints created");
        let attachment = self.actors[index].attachment.clone();
        self.wired.endpoints.insert(id, (attachment, false));
    }

    /// Joins an actor's endpoint to its container.
    pub(super) fn join(&mut self, index: usize) {
        let actor = &self.actors[index];
        let (Some(endpoint), Some(network)) = (actor.endpoint.clone(), actor.network.clone()) else { return };
        let call = Call::Network(NetworkCall::Join { network, endpoint, sandbox: String::new() });
        self.twice(&call);
        self.ask(index, Role::Join, call, self.now);
    }

    /// Dockerd has its answer about an actor's endpoint; `None`: the connection broke.
    pub(super) fn endpoint_answered(&mut self, index: usize, role: &Role, answer: Option<Answer>) {
        let phase = self.actors[index].phase;
        let endpoint = self.actors[index].endpoint.clone();
        match (role, phase, answer) {
            (Role::Endpoint, Phase::Adding, Some(Answer::Network(NetworkAnswer::Endpoint(_)))) => {
                endpoint.into_iter().for_each(|id| self.created(index, id));
                self.join(index);
            }
            (Role::Join, Phase::Adding, Some(Answer::Network(NetworkAnswer::Joined { grant, .. }))) => {
                self.actors[index].routes = told_routes(grant.as_deref());
                self.actors[index].phase = Phase::Live;
                self.starts(index);
                self.stay(index);
            }
            (Role::Join, Phase::Live, Some(Answer::Network(NetworkAnswer::Joined { grant, .. }))) => {
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

    /// Handles a network that the daemon does not know, which only a lost store or a broken call may cause: it is made anew.
    pub(super) fn no_such_network(&mut self, lan: usize, failure: &Failure) {
        let Failure::Network(NetworkFault::Unknown(id)) = failure else { return };
        if *id != self.wired.network_id(lan) {
            return self.stats.count("networks that were made anew while containers were on them");
        }
        let (stage, unsure) = self.wired.networks[lan];
        if !unsure && !self.docker_was_lost {
            return self.fail(Rule::Wired, format!("the network of LAN {lan} is not known, and is {stage:?}"));
        }
        if stage == Stage::There {
            self.wired.networks[lan] = (Stage::Absent, false);
            self.after(MILLI, 10 * SECOND, Event::Wiring(lan));
        }
    }

    /// Ends the endpoint of an actor whose container ends. Returns whether there is anything to wait for: dockerd does not always
    /// ask for the end of one that was not created.
    pub(super) fn end_endpoint(&mut self, index: usize) -> bool {
        let Some(id) = self.actors[index].endpoint.clone() else { return false };
        match self.wired.endpoints.get_mut(&id) {
            Some((_, ends)) => *ends = true,
            None if self.rng.bool() => {
                self.forget_endpoint(index);
                return false;
            }
            None => {}
        }
        self.watch.holders.remove(&self.actors[index].attachment);
        let call = Call::Network(NetworkCall::DeleteEndpoint(id.clone()));
        self.twice(&call);
        self.ask(index, Role::Unmake, call, self.now);
        true
    }

    /// Dockerd has no endpoint for an actor any more.
    pub(super) fn forget_endpoint(&mut self, index: usize) {
        if let Some(id) = self.actors[index].endpoint.take() {
            self.wired.endpoints.remove(&id);
        }
    }

    /// Returns what was leased for an endpoint, by the answer that it was created.
    pub(super) fn lease_of(&self, answer: &Answer) -> Option<Lease> {
        let Answer::Network(NetworkAnswer::Endpoint(record)) = answer else { return None };
        let Source::Leased(attachment) = &record.source else { return None };
        // It may have ended since it was given.
        let is_its = |binding: &&Record| binding.attachment == *attachment && binding.state != RecordState::Releasing;
        let binding = self.store.durable.values().find(is_its)?;
        Some(Lease { address: record.address, ..binding.lease.clone() })
    }

    /// Keeps what was leased for an endpoint until its caller has the answer.
    pub(super) fn note_lease(&mut self, id: RequestId, answer: &Answer) {
        let lease = self.lease_of(answer).or_else(|| self.lease_told(id, answer));
        if let Some(asked) = self.requests.get_mut(&id) {
            asked.lease = lease;
        }
    }

    /// Returns the lease of which the caller of an ADD is told.
    fn lease_told(&self, id: RequestId, answer: &Answer) -> Option<Lease> {
        let Answer::Leased { tenures } = answer else { return None };
        let (add, told) = (add_of(&self.requests.get(&id)?.call)?, tenures.first()?);
        let mut bound = self.store.known().filter(|record| record.state == RecordState::Bound);
        let lease = &bound.find(|record| record.attachment == add.attachment && is_of(record, add, told))?.lease;
        let from_start = |at: Instant| at.saturating_since(told.start);
        let times = told.times.map(|times| Times {
            t1: from_start(times.extended),
            t2: from_start(times.rebound),
            end: from_start(times.ends),
        });
        Some(Lease { start: told.start, times, ..lease.clone() })
    }

    /// Returns whether an attachment is an endpoint leased by our network driver that the store does not have.
    pub(super) fn lacks_endpoint(&self, attachment: &Attachment) -> bool {
        let is_its = |record: &DockerRecord| match record {
            DockerRecord::Endpoint(record) => record.source == Source::Leased(attachment.clone()),
            DockerRecord::Network(_) | DockerRecord::Pool(_) | DockerRecord::Unread(_) => false,
        };
        let leased = matches!(attachment, Attachment::Docker { pool, .. } if pool.starts_with(NETWORK));
        leased && !self.store.docker.values().any(is_its)
    }

    /// Returns whose lease a call is about.
    pub(super) fn concerned(&self, call: &NetworkCall) -> Option<Attachment> {
        match call {
            NetworkCall::CreateEndpoint(request) => match &request.address {
                EndpointAddress::Leased(add) => Some(add.attachment.clone()),
                EndpointAddress::Told(_) => None,
            },
            NetworkCall::DeleteEndpoint(id) => match self.record_of_endpoint(id)?.source.clone() {
                Source::Leased(attachment) => Some(attachment),
                Source::Told => None,
            },
            NetworkCall::Create(_)
            | NetworkCall::Delete(_)
            | NetworkCall::Find(_)
            | NetworkCall::Started
            | NetworkCall::Join { .. } => None,
        }
    }

    fn record_of_endpoint(&self, id: &DockerId) -> Option<&EndpointRecord> {
        match self.store.docker.get(&DockerKey::Endpoint(id.clone()))? {
            DockerRecord::Endpoint(record) => Some(record),
            DockerRecord::Pool(_) | DockerRecord::Network(_) | DockerRecord::Unread(_) => None,
        }
    }

    /// Checks that in quiet each link in the host's namespace belongs to an endpoint that dockerd has and is about to move, or
    /// to a network; and each running container has its endpoint.
    pub(super) fn examine_links(&mut self) {
        if self.plan.wires.is_none() {
            return;
        }
        // Dockerd may have been told that a network was not created, though another call about it has kept it.
        let has_vlan = self.store.docker.keys().any(|key| matches!(key, DockerKey::Network(_)));
        let left =
            self.kernel.own().filter(|(own, _)| own.store == self.store.number).find(|(own, _)| match &own.owner {
                LinkOwner::Endpoint(id) => self.wired.has(id).is_none() || own.came + SLOW_START < self.now,
                LinkOwner::Vlan { .. } => !has_vlan,
            });
        if let Some((own, wire)) = left {
            let detail =
                format!("{} has been there for {} s, of {}", wire.ifname, (self.now - own.came) / SECOND, own.owner);
            return self.fail(Rule::Wired, detail);
        }
        self.stats.count("looks for links without an endpoint");
        for actor in self.actors.iter().filter(|actor| actor.phase == Phase::Live && actor.form.is_some()) {
            let known = actor.endpoint.as_ref().is_some_and(|id| self.record_of_endpoint(id).is_some());
            if !known && actor.stranded.is_none() {
                let detail = format!("{} runs, and its endpoint {:?} is not known", actor.attachment, actor.endpoint);
                return self.fail(Rule::Wired, detail);
            }
            self.stats.count("live at the end with our network driver");
        }
    }

    /// Checks that LIST names the links that a daemon with another store has left, as they were when last listed.
    pub(super) fn examine_strangers(&mut self) {
        self.inquire(Call::List);
        if !self.until(self.now + SECOND, |_| false) {
            return;
        }
        let there = self.kernel.list_own(self.store.number).strangers;
        let listed = self.inquire(Call::List);
        let Some(Answer::Bindings { strangers, .. }) = listed else {
            return self.fail(Rule::Unanswered, "LIST of links in quiet");
        };
        self.stats.count_many("links of another store at the end", there.len());
        if strangers != there {
            self.fail(Rule::Wired, format!("another store has left {there:?}, listed {strangers:?}"));
        }
    }

    /// Lets an operator delete the networks that Docker has forgotten. None of them was ever used.
    fn delete_forgotten(&mut self) {
        for id in std::mem::take(&mut self.wired.forgotten) {
            let Some(DockerRecord::Network(record)) = self.store.docker.get(&DockerKey::Network(id.clone())) else {
                continue;
            };
            if !record.unused {
                return self.fail(Rule::Wired, format!("dockerd never had network {}, which was used", id.as_str()));
            }
            self.stats.count("networks that only the daemon knew");
            self.inquire(Call::Network(NetworkCall::Delete(id)));
        }
    }

    /// Checks that each network still has endpoints to give, whatever has happened to it. Then dockerd deletes it.
    pub(super) fn delete_networks(&mut self) {
        self.delete_forgotten();
        let lans = if self.plan.wires.is_some() { self.segments.len() } else { 0 };
        for lan in 0..lans {
            if self.wired.networks[lan] == (Stage::There, false) {
                self.try_network(lan);
            }
            let call = Call::Network(NetworkCall::Delete(self.wired.network_id(lan)));
            let answer = self.inquire(call);
            if answer != Some(Answer::Network(NetworkAnswer::Done)) {
                return self.fail(Rule::Wired, format!("DeleteNetwork in quiet: {answer:?}"));
            }
            self.wired.networks[lan] = (Stage::Absent, false);
        }
    }

    fn try_network(&mut self, lan: usize) {
        let (id, mac) = (self.wired.new_endpoint(), Mac([2, 0xab, 0, 0, 0, lan as u8]));
        let address = EndpointAddress::Told("192.0.2.7/24".parse().expect("an address with a prefix"));
        let request = EndpointRequest { id: id.clone(), network: self.wired.network_id(lan), mac, address };
        let create = NetworkCall::CreateEndpoint(Box::new(request));
        for call in [create, NetworkCall::DeleteEndpoint(id)] {
            let answer = self.inquire(Call::Network(call.clone()));
            if !matches!(answer, Some(Answer::Network(_))) {
                return self.fail(Rule::Wired, format!("{call:?} in quiet: {answer:?}"));
            }
        }
        self.stats.count("networks that are good to the end");
    }

    /// Checks that nothing is left in the store of networks and of endpoints that had a lease.
    pub(super) fn examine_kept_of_networks(&mut self) {
        let is_left = |record: &&DockerRecord| match record {
            DockerRecord::Network(_) => true,
            DockerRecord::Endpoint(record) => matches!(record.source, Source::Leased(_)),
            DockerRecord::Pool(_) | DockerRecord::Unread(_) => false,
        };
        if let Some(left) = self.store.docker.values().find(is_left) {
            self.fail(Rule::Residue, format!("in the store {left:?}"));
        }
    }
}

/// Returns the routes that dockerd is told, as it adds them: without the default route, and without a metric.
fn told_routes(grant: Option<&Grant>) -> Vec<LinkRoute> {
    let routes = grant.map(|grant| grant.routes.as_slice()).unwrap_or_default().iter();
    let told = routes.filter(|route| route.destination.prefix_len() > 0);
    told.map(|route| LinkRoute { destination: route.destination, via: route.via, ..LinkRoute::default() }).collect()
}
