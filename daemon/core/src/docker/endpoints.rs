//! Endpoints of networks with our driver: their addresses, and the links that are made for them.
//!
//! An address is leased over the LAN's link, as for Docker's own drivers, before its own link exists; that is made afterwards,
//! down, for Docker to move. So nothing on the host ever speaks over it, its MTU is right from the start, and every lease finds
//! its interface in the same way.
//!
//! A link is made before its endpoint is recorded, and deleted after the record is: the next daemon finds a link or a lease
//! without an endpoint, and deletes it or gives it back. If an endpoint had no link, the daemon could not tell whether a
//! container has the link. `strays` sees which links exist.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::Ipv4Net;

use super::jobs::{DockerJob, Next};
use super::record::{DockerKey, DockerRecord};
use super::{Desk, Docker};
use crate::effect::{
    Answer, EndpointAddress, EndpointRequest, Failure, NetworkAnswer, Outcome, RequestId,
};
use crate::grant::Grant;
use crate::grant::policy::Policy;
use crate::identity::{Attachment, DoorId, Identity};
use crate::link::own::LinkOwner;
use crate::network::{AddressSource, EndpointRecord, MOST_ENDPOINTS, Mode, NetworkFault};
use crate::outbox::DoorWaiter;
use crate::patience::{AFTERWARDS, NEXT_STEP, SLOW_START};
use crate::registry::{Binding, bindings, held_by, leave};
use crate::tenure::Tenure;
use crate::time::{Instant, WallTime};
use crate::wire::Mac;

/// The endpoints that are known.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    pub(super) by_id: BTreeMap<DoorId, Endpoint>,
    /// The ADDs of endpoints whose addresses are being leased.
    pub(super) leasing: BTreeMap<RequestId, Leasing>,
}

/// What is known about an endpoint while its address is being leased.
#[derive(Debug)]
pub(super) struct Leasing {
    id: DoorId,
    network: DoorId,
    mac: Mac,
}

impl Leasing {
    /// Returns what is known once it has an address.
    fn leased(self, address: Ipv4Net, source: AddressSource, since: WallTime) -> EndpointRecord {
        let Self { id, network, mac } = self;
        EndpointRecord {
            id,
            network,
            mac,
            address,
            source,
            since,
        }
    }
}

/// An endpoint.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// What is known about it once it has an address.
    record: Option<Box<EndpointRecord>>,
    /// Docker's name for its container's namespace, since it joined; empty while that is not known.
    sandbox: String,
    stage: EndpointStage,
    /// Who waits for it to be there.
    creating: Vec<RequestId>,
    /// Who waits for it to be gone.
    deleting: Vec<RequestId>,
    /// Whether it is deleted as soon as what is under way is over.
    ends: bool,
    /// When it is deleted, if its link is still in the host's namespace then, or because its deletion failed.
    pub(super) goes: Option<Instant>,
    /// Whether its link was in a container: no other container will get the link.
    moved: bool,
    /// Whether its deletion failed: then that is tried again, whatever is heard about its link.
    pub(super) left: bool,
}

/// How far an endpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndpointStage {
    /// Its address is being leased, by this ADD.
    Leasing(RequestId),
    /// Its link is being made.
    Making,
    /// It is being written.
    Writing,
    /// Everything is there.
    There,
    /// Its record is being deleted.
    Forgetting,
    /// Its link is being deleted.
    Unmaking,
}

impl Endpoints {
    /// Adds an endpoint that the store holds.
    pub(super) fn recover(&mut self, record: EndpointRecord) {
        let id = record.id.clone();
        let endpoint = self.by_id.entry(id);
        let endpoint = endpoint.or_insert_with(|| Endpoint::new(EndpointStage::There));
        endpoint.record = Some(Box::new(record));
    }

    /// Records where an endpoint goes, unless an endpoint in the same subnet is there: Docker would then fail half-way.
    fn enter(&mut self, id: &DoorId, sandbox: &str) -> Result<(), NetworkFault> {
        let Some(endpoint) = self.by_id.get_mut(id) else {
            return Ok(());
        };
        endpoint.sandbox = sandbox.to_owned();
        let Some(own) = endpoint.record.as_deref().map(|record| record.address) else {
            return Ok(());
        };
        let in_there = |other: &&Endpoint| {
            !sandbox.is_empty() && other.sandbox == sandbox && !other.is_ending()
        };
        let others = self.by_id.values().filter(in_there);
        let others = others.filter_map(|other| other.record.as_deref());
        let has_subnet = |other: &&EndpointRecord| {
            other.id != *id
                && (own.contains(&other.address.addr()) || other.address.contains(&own.addr()))
        };
        match others.into_iter().find(has_subnet) {
            Some(other) => Err(NetworkFault::Twice {
                other: other.network.clone(),
                subnet: own.trunc(),
            }),
            None => Ok(()),
        }
    }

    /// Returns the endpoints whose address was leased for this attachment.
    pub(super) fn leased_by(
        &self,
        attachment: &Attachment,
    ) -> impl Iterator<Item = (&DoorId, &Endpoint)> {
        let is_its = move |record: &EndpointRecord| matches!(&record.source, AddressSource::Leased(own) if own == attachment);
        self.by_id
            .iter()
            .filter(move |(_, endpoint)| endpoint.record.as_deref().is_some_and(is_its))
    }
}

impl Endpoint {
    fn new(stage: EndpointStage) -> Self {
        Self {
            record: None,
            sandbox: String::new(),
            stage,
            creating: Vec::new(),
            deleting: Vec::new(),
            ends: false,
            goes: None,
            moved: false,
            left: false,
        }
    }

    fn is_ending(&self) -> bool {
        self.ends
            || self.left
            || matches!(
                self.stage,
                EndpointStage::Forgetting | EndpointStage::Unmaking
            )
    }

    /// Records whether its link was in the host's namespace at a time. Returns whether it has come there.
    pub(super) fn hear(&mut self, there: bool, now: Instant) -> bool {
        let came = there && self.goes.is_none();
        self.moved |= !there && self.stage == EndpointStage::There;
        let wait = if self.moved { NEXT_STEP } else { SLOW_START };
        self.goes = (there || self.left).then(|| self.goes.unwrap_or(now + wait));
        came
    }

    /// Records that its deletion failed, and is tried again.
    fn stays(&mut self, now: Instant) {
        (self.stage, self.ends, self.left) = (EndpointStage::There, false, true);
        self.goes = Some(now + NEXT_STEP);
    }

    /// Returns what is known about it, if its link is in the host's namespace and nothing is under way.
    pub(super) fn waits(&self) -> Option<&EndpointRecord> {
        self.record
            .as_deref()
            .filter(|_| self.stage == EndpointStage::There && self.goes.is_some() && !self.left)
    }

    /// Returns what is known about it, if its link is not in the host's namespace and nothing is under way.
    pub(super) fn rests(&self) -> Option<&EndpointRecord> {
        self.record
            .as_deref()
            .filter(|_| self.stage == EndpointStage::There && self.goes.is_none())
    }
}

impl Docker {
    pub(super) fn endpoint(&self, id: &DoorId) -> Option<&Endpoint> {
        self.endpoints.by_id.get(id)
    }

    pub(super) fn endpoint_mut(&mut self, id: &DoorId) -> Option<&mut Endpoint> {
        self.endpoints.by_id.get_mut(id)
    }

    /// Returns the endpoints that are meant.
    pub(super) fn endpoints(&self, is_one: impl Fn(&Endpoint) -> bool) -> Vec<DoorId> {
        let by_id = self.endpoints.by_id.iter();
        let meant = by_id.filter(|(_, endpoint)| is_one(endpoint));
        meant.map(|(id, _)| id.clone()).collect()
    }
}

impl Desk<'_> {
    /// Handles CreateEndpoint: an existing endpoint is answered again.
    pub(super) fn create_endpoint(&mut self, id: RequestId, request: EndpointRequest) -> Next {
        if let Err(fault) = self.docker.networks.get(&request.network) {
            return Err(fault).into();
        }
        let name = request.id.clone();
        let limit = match &request.address {
            EndpointAddress::Ipam(_) => AFTERWARDS,
            EndpointAddress::Leased(add) => self.registry.time_for(add) + AFTERWARDS,
        };
        match self.docker.endpoint(&name) {
            Some(endpoint) if endpoint.is_ending() => return Err(NetworkFault::Ends(name)).into(),
            Some(Endpoint {
                stage: EndpointStage::There,
                record: Some(record),
                ..
            }) => {
                return Ok(NetworkAnswer::Endpoint(record.clone())).into();
            }
            Some(_) => self.await_endpoint(id, name, limit),
            None if self.docker.endpoints.by_id.len() >= MOST_ENDPOINTS => {
                return Err(NetworkFault::Crowded(MOST_ENDPOINTS)).into();
            }
            None => {
                self.docker
                    .endpoints
                    .by_id
                    .insert(name.clone(), Endpoint::new(EndpointStage::Making));
                self.await_endpoint(id, name, limit);
                self.begin_endpoint(request);
            }
        }
        Next::Nothing
    }

    /// Has a call wait for an endpoint to be there.
    fn await_endpoint(&mut self, id: RequestId, name: DoorId, limit: Duration) {
        if let Some(endpoint) = self.docker.endpoint_mut(&name) {
            endpoint.creating.push(id);
            self.call_waits(id, name, limit);
        }
    }

    fn call_waits(&mut self, id: RequestId, name: DoorId, limit: Duration) {
        self.time_call(id, self.now().boot + limit);
        let job = DockerJob::Endpoint(name, limit);
        self.docker.jobs.insert(id, job);
    }

    fn begin_endpoint(&mut self, request: EndpointRequest) {
        let EndpointRequest {
            id,
            network,
            mac,
            address,
        } = request;
        let endpoint = Leasing { id, network, mac };
        match address {
            EndpointAddress::Ipam(address) => {
                let record = endpoint.leased(address, AddressSource::Ipam, self.now().wall);
                match self.leased_amiss(&record) {
                    Some(fault) => self.endpoint_over(&record.id, Err(Failure::Network(fault))),
                    None => self.make_link(record),
                }
            }
            EndpointAddress::Leased(mut add) => {
                let known = self.docker.networks.get(&endpoint.network).ok();
                add.profile.policy.mtu = known.and_then(|network| network.wiring.mtu);
                let errand = self.registry.lease(add);
                if let Some(known) = self.docker.endpoint_mut(&endpoint.id) {
                    known.stage = EndpointStage::Leasing(errand);
                }
                self.docker.endpoints.leasing.insert(errand, endpoint);
            }
        }
    }

    /// Returns why the lease behind an address of our IPAM driver does not suit the endpoint. Docker passes neither driver
    /// the other's options.
    fn leased_amiss(&self, record: &EndpointRecord) -> Option<NetworkFault> {
        let network = self.docker.networks.get(&record.network).ok();
        let network = network.filter(|network| network.leases)?;
        let leased = bindings(self.registry);
        let leased = leased.filter(|it| it.told == Some(record.address) && it.is_live());
        // All clients on an ipvlan's parent have its Ethernet address, which this network's parent need not have.
        let leased = leased.filter(|it| it.identity.chaddr == record.mac || it.profile.on_parent);
        let leased: Vec<_> = leased.collect();
        let elsewhere = |holding: &&Binding| NetworkFault::Elsewhere {
            leased: holding.identity.lan.clone(),
            own: network.wiring.lan(),
        };
        match leased
            .iter()
            .find(|holding| network.wiring.is_on(&holding.identity.lan))
        {
            Some(holding) if holding.profile.on_parent && network.wiring.mode != Mode::Ipvlan => {
                Some(NetworkFault::ForIpvlan)
            }
            Some(_) => None,
            None => leased.first().map(elsewhere),
        }
    }

    /// Goes on when an endpoint has its lease, or cannot get one.
    pub(crate) fn leased(&mut self, errand: RequestId, attachment: Attachment, answer: Answer) {
        let Some(endpoint) = self.docker.endpoints.leasing.remove(&errand) else {
            return;
        };
        let id = endpoint.id.clone();
        let failure = match answer {
            Answer::Leased { tenures }
                if let Some(address) = tenures.iter().find_map(Tenure::v4) =>
            {
                self.supersede(&attachment, &id);
                let source = AddressSource::Leased(attachment);
                return self.make_link(endpoint.leased(address, source, self.now().wall));
            }
            Answer::Failed(failure) => failure,
            _ => Failure::Cancelled(attachment),
        };
        self.endpoint_over(&id, Err(failure));
    }

    /// Ends the endpoints that had a lease before: it now belongs to another, and is not given back with them.
    fn supersede(&mut self, attachment: &Attachment, by: &DoorId) {
        let others = self
            .docker
            .endpoints
            .leased_by(attachment)
            .filter(|(id, _)| *id != by)
            .map(|(id, endpoint)| (id.clone(), endpoint.stage));
        for (id, stage) in others.collect::<Vec<_>>() {
            tracing::info!(endpoint = %id, %by, "Docker has lost an endpoint and created it again");
            if stage != EndpointStage::There {
                self.end_endpoint(&id);
                continue;
            }
            self.drop_endpoint_record(&id);
            self.endpoint_over(&id, Ok(()));
            self.unmake_alone(LinkOwner::Endpoint(id));
        }
    }

    /// Goes on with an endpoint whose effect is over.
    pub(super) fn endpoint_done(&mut self, id: &DoorId, outcome: Outcome) {
        let Some(endpoint) = self.docker.endpoint_mut(id) else {
            return;
        };
        match (outcome, endpoint.stage) {
            (Outcome::Made(Ok(())), EndpointStage::Making) if endpoint.ends => self.unmake_link(id),
            (Outcome::Made(Ok(())), EndpointStage::Making) => {
                self.docker.strays.hear();
                self.write_endpoint(id);
            }
            (Outcome::Made(Err(cause)), EndpointStage::Making) => {
                // A link that took too long may be there by now, or appear later.
                self.unmake_alone(LinkOwner::Endpoint(id.clone()));
                let target = LinkOwner::Endpoint(id.clone()).ifname();
                self.forget_and_answer(id, Some(Failure::Link { target, cause }));
            }
            (Outcome::Persisted(Ok(())), EndpointStage::Writing) => {
                endpoint.stage = EndpointStage::There;
                endpoint.hear(true, self.registry.tables.now.boot);
                match endpoint.ends {
                    true => self.end_endpoint(id),
                    false => {
                        self.await_container(id);
                        self.answer_created(id);
                    }
                }
                self.time_strays();
            }
            (Outcome::Persisted(Err(cause)), EndpointStage::Writing) => {
                self.unmake_alone(LinkOwner::Endpoint(id.clone()));
                self.forget_and_answer(id, Some(Failure::Store(cause)));
            }
            (Outcome::Persisted(Ok(())), EndpointStage::Forgetting) => self.unmake_link(id),
            (Outcome::Persisted(Err(cause)), EndpointStage::Forgetting) => {
                self.stays(id, &Failure::Store(cause))
            }
            (Outcome::Unmade(Ok(())), EndpointStage::Unmaking) => self.forget_and_answer(id, None),
            (Outcome::Unmade(Err(cause)), EndpointStage::Unmaking) => {
                let target = LinkOwner::Endpoint(id.clone()).ifname();
                self.stays(id, &Failure::Link { target, cause });
            }
            _ => {}
        }
    }

    fn make_link(&mut self, record: EndpointRecord) {
        if let Some(endpoint) = self.docker.endpoint_mut(&record.id) {
            (endpoint.record, endpoint.stage) =
                (Some(Box::new(record.clone())), EndpointStage::Making);
        }
        let network = match self.docker.networks.get(&record.network) {
            Ok(network) => network.clone(),
            Err(fault) => {
                return self.forget_and_answer(&record.id, Some(Failure::Network(fault)));
            }
        };
        self.end_strays_beside(&record, &network.wiring);
        let (mtu, holder) = self
            .lease_of(&record, self.now().boot)
            .map(|(grant, of)| (grant.mtu, of.id))
            .unzip();
        if let (Some(holder), Some(_)) = (holder, network.wiring.mtu) {
            self.registry
                .tables
                .change_profile(holder, |it| it.policy.mtu = network.wiring.mtu);
        }
        let link = network
            .wiring
            .endpoint(&record.id, record.mac, mtu.flatten());
        // dockerd describes its networks once, and the host may have rebooted since.
        if let Some(vlan) = network.wiring.vlan() {
            self.out().make(DoorWaiter::Nobody, vlan);
        }
        self.out().make(DoorWaiter::Endpoint(record.id), link);
    }

    fn write_endpoint(&mut self, id: &DoorId) {
        let Some(endpoint) = self.docker.endpoint_mut(id) else {
            return;
        };
        let Some(record) = endpoint.record.as_deref().cloned() else {
            return;
        };
        endpoint.stage = EndpointStage::Writing;
        self.write(
            DoorWaiter::Endpoint(id.clone()),
            vec![DockerRecord::Endpoint(record).put()],
        );
    }

    fn answer_created(&mut self, id: &DoorId) {
        let Some(endpoint) = self.docker.endpoint_mut(id) else {
            return;
        };
        let creating = std::mem::take(&mut endpoint.creating);
        let record = endpoint.record.clone();
        for call in creating {
            let answer = record.clone().map(NetworkAnswer::Endpoint);
            self.answer(
                call,
                answer
                    .ok_or_else(|| NetworkFault::UnknownEndpoint(id.clone()))
                    .into(),
            );
        }
    }

    /// Tells the callers that wait for an endpoint's deletion that it failed. It is tried again after a while.
    fn stays(&mut self, id: &DoorId, failure: &Failure) {
        let Some(endpoint) = self.docker.endpoint_mut(id) else {
            return;
        };
        endpoint.stays(self.registry.tables.now.boot);
        for call in std::mem::take(&mut endpoint.deleting) {
            self.answer(call, Answer::Failed(failure.clone()));
        }
        self.time_strays();
    }

    /// Has a link deleted that may be there, for nobody who waits.
    pub(super) fn unmake_alone(&mut self, owner: LinkOwner) {
        self.out().unmake(DoorWaiter::Nobody, owner);
    }

    fn unmake_link(&mut self, id: &DoorId) {
        let owner = LinkOwner::Endpoint(id.clone());
        let waiter = DoorWaiter::Endpoint(id.clone());
        self.out().unmake(waiter, owner);
        if let Some(endpoint) = self.docker.endpoint_mut(id) {
            endpoint.stage = EndpointStage::Unmaking;
        }
    }

    /// Handles DeleteEndpoint, which is answered when the endpoint's link is gone.
    pub(super) fn delete_endpoint(&mut self, id: RequestId, name: &DoorId) -> Next {
        let Some(endpoint) = self.docker.endpoint_mut(name) else {
            // Its record may be one that could not be read. Docker has moved back its link, which may belong to another store.
            let key = DockerKey::Endpoint(name.clone());
            self.out().write_alone(key.remove());
            self.list_own_links();
            return Ok(NetworkAnswer::Done).into();
        };
        endpoint.deleting.push(id);
        self.call_waits(id, name.clone(), AFTERWARDS);
        self.end_endpoint(name);
        Next::Nothing
    }

    /// Deletes an endpoint, as soon as what is under way is over.
    pub(super) fn end_endpoint(&mut self, id: &DoorId) {
        let Some(endpoint) = self.docker.endpoint_mut(id) else {
            return;
        };
        endpoint.ends = true;
        match endpoint.stage {
            EndpointStage::Leasing(errand) => {
                self.docker.endpoints.leasing.remove(&errand);
                self.registry.hung_up(errand);
                self.endpoint_over(id, Ok(()));
            }
            EndpointStage::There => {
                endpoint.stage = EndpointStage::Forgetting;
                let change = DockerKey::Endpoint(id.clone()).remove();
                self.write(DoorWaiter::Endpoint(id.clone()), vec![change]);
            }
            EndpointStage::Making
            | EndpointStage::Writing
            | EndpointStage::Forgetting
            | EndpointStage::Unmaking => {}
        }
    }

    /// Forgets an endpoint whose link is not there, gives back its lease, and answers the callers that wait.
    pub(super) fn forget_and_answer(&mut self, id: &DoorId, failure: Option<Failure>) {
        if let Some(AddressSource::Leased(attachment)) = self.drop_endpoint_record(id)
            && self
                .docker
                .endpoints
                .leased_by(&attachment)
                .next()
                .is_none()
            && let Some(holder) = held_by(self.registry, &attachment).map(|holding| holding.id)
        {
            leave(self.registry, holder, None);
        }
        self.endpoint_over(id, failure.map_or(Ok(()), Err));
    }

    /// Forgets an endpoint, and returns where its address came from.
    fn drop_endpoint_record(&mut self, id: &DoorId) -> Option<AddressSource> {
        let endpoint = self.docker.endpoint_mut(id)?;
        let record = endpoint.record.take()?;
        // Before its link is deleted, its record is.
        if endpoint.stage != EndpointStage::Unmaking {
            self.out()
                .write_alone(DockerKey::Endpoint(id.clone()).remove());
        }
        Some(record.source)
    }

    /// Answers the callers that wait for an endpoint that no longer exists.
    fn endpoint_over(&mut self, id: &DoorId, result: Result<(), Failure>) {
        let Some(endpoint) = self.docker.endpoints.by_id.remove(id) else {
            return;
        };
        self.time_strays();
        for call in endpoint.creating {
            let gone = || Failure::Network(NetworkFault::Ends(id.clone()));
            let failure = result.clone().err().unwrap_or_else(gone);
            self.answer(call, Answer::Failed(failure));
        }
        endpoint
            .deleting
            .into_iter()
            .for_each(|call| self.answer(call, Answer::Network(NetworkAnswer::Done)));
    }

    /// Removes a call that waits for an endpoint, and deletes an endpoint that no call waits for any more.
    pub(super) fn await_endpoint_no_more(&mut self, id: RequestId, name: &DoorId) {
        let Some(endpoint) = self.docker.endpoint_mut(name) else {
            return;
        };
        let was_creating = endpoint.creating.contains(&id);
        endpoint.creating.retain(|call| *call != id);
        endpoint.deleting.retain(|call| *call != id);
        if was_creating && endpoint.creating.is_empty() {
            self.end_endpoint(name);
        }
    }

    /// Handles Join: Docker is about to move the endpoint's link. Returns what it should do with the link. It gets only the routes
    /// that the default route needs: a route that is already there, or contains the subnet of another network, would keep the
    /// container from starting.
    pub(super) fn join(
        &mut self,
        network: &DoorId,
        id: &DoorId,
        sandbox: &str,
    ) -> Result<NetworkAnswer, NetworkFault> {
        self.docker.endpoints.enter(id, sandbox)?;
        let network = self.docker.networks.get(network)?;
        let is_good =
            |endpoint: &&Endpoint| endpoint.stage == EndpointStage::There && !endpoint.is_ending();
        let endpoint = self.docker.endpoint(id).filter(is_good);
        let record = endpoint.and_then(|endpoint| endpoint.record.as_ref());
        let record = record.ok_or_else(|| NetworkFault::UnknownEndpoint(id.clone()))?;
        let grant = self.lease_of(record, self.now().boot).map(|(grant, _)| {
            let gateway = network.gateway.map(IpAddr::V4).or(grant.gateway);
            Box::new(Grant {
                routes: gateway
                    .and_then(|by| grant.route_to(by))
                    .into_iter()
                    .collect(),
                gateway,
                ..grant
            })
        });
        Ok(NetworkAnswer::Joined {
            ifname: LinkOwner::Endpoint(id.clone()).ifname(),
            grant,
            gateway: network.gateway,
        })
    }

    /// Returns what the lease of an endpoint gives it, with the default router, and whose it is.
    pub(super) fn lease_of(
        &self,
        record: &EndpointRecord,
        now: Instant,
    ) -> Option<(Grant, &Binding)> {
        let holder = match &record.source {
            AddressSource::Leased(attachment) => held_by(self.registry, attachment)?,
            AddressSource::Ipam => {
                let network = self.docker.networks.get(&record.network).ok();
                let is_it = |holding: &&Binding| {
                    let Identity { lan, chaddr, .. } = &holding.identity;
                    holding.told == Some(record.address)
                        && *chaddr == record.mac
                        && network.is_none_or(|network| network.wiring.is_on(lan))
                        && holding.is_live()
                };
                bindings(self.registry).find(is_it)?
            }
        };
        // Docker chooses which network a container's default route uses: it gets each router.
        let policy = Policy {
            suppress_default_route: false,
            ..holder.profile.policy.clone()
        };
        Some((holder.lease(now)?.grant(&policy), holder))
    }

    /// Handles the end of an attachment's lease: its endpoint is gone, unless its link is in the host's namespace. A dockerd that
    /// was killed never says so.
    pub(crate) fn endpoint_without_lease(&mut self, attachment: &Attachment) {
        // That was an earlier container's lease: its own is held.
        if held_by(self.registry, attachment).is_some() {
            return;
        }
        let rests = |(_, endpoint): &(&DoorId, &Endpoint)| endpoint.rests().is_some();
        let found = self.docker.endpoints.leased_by(attachment).find(rests);
        if let Some(id) = found.map(|(id, _)| id.clone()) {
            // Whatever the attachment holds by now is its successor's.
            self.drop_endpoint_record(&id);
            self.endpoint_over(&id, Ok(()));
            // A daemon that was killed while it made the link left one without an owner's name.
            self.unmake_alone(LinkOwner::Endpoint(id));
        }
    }
}
