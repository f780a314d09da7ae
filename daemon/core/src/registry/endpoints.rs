//! Endpoints of Docker's networks whose driver is this one: their addresses, and the links that are made for them.
//!
//! An address is leased over the LAN's link, as for Docker's own drivers, before there is a link of its own; that is made after it,
//! down, for Docker to move. So nothing of the host ever speaks over it, its MTU is right from the start, and a lease finds its
//! interface in one way, whoever made it.
//!
//! No link is left. What is in the host's namespace and has no endpoint goes at once, and what has been there for a minute goes with
//! its endpoint: dockerd was killed between two calls, and forgot. Links that another store's daemon made are not ours.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Registry;
use super::errands::Errand;
use super::timers::Key;
use crate::backoff::Backoff;
use crate::binding::{Binding, Leave, Life};
use crate::dhcpv4::profile::Profile;
use crate::effect::{Answer, Call, EndpointAddress, EndpointRequest, Failure, NetworkAnswer, Outcome, RequestId, Why};
use crate::grant::Grant;
use crate::identity::Attachment;
use crate::network::{DockerId, EndpointRecord, LinkOwner, MOST_ENDPOINTS, NetworkFault, OwnLinks, Source};
use crate::outbox::Waiter;
use crate::record::{BindingId, Change, DockerKey, DockerRecord};
use crate::time::{Instant, Now};
use crate::wire::Mac;

/// How long a call may take beside the lease: the store and the kernel.
const LIMIT: Duration = Duration::from_secs(5);

/// For how long an endpoint's link may be in the host's namespace: Docker moves it there and back within a moment.
const STRAY: Duration = Duration::from_secs(60);

/// The longest pause before the links are listed again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The endpoints that are known.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    by_id: BTreeMap<DockerId, Endpoint>,
    /// The calls that wait for one.
    calls: BTreeMap<RequestId, DockerId>,
    /// Links in the host's namespace that daemons with another store made.
    strangers: Vec<String>,
    listing: Listing,
}

/// The list of the links that there are.
#[derive(Debug, Default)]
struct Listing {
    under_way: bool,
    /// It is asked for again.
    again: bool,
    /// Whose links were heard of since it was asked for: of those it says nothing, for it may be older.
    heard: BTreeSet<LinkOwner>,
    failures: Backoff,
}

/// An endpoint.
#[derive(Debug)]
struct Endpoint {
    /// What is known of it once it has an address.
    record: Option<Box<EndpointRecord>>,
    stage: Stage,
    /// Who waits for it to be there.
    creating: Vec<RequestId>,
    /// Who waits for it to be gone.
    deleting: Vec<RequestId>,
    /// It goes as soon as what is under way is over.
    ends: bool,
    /// Since when its link is in the host's namespace.
    stray: Option<Instant>,
}

/// What an endpoint is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its address is being leased, by this errand.
    Leasing(RequestId),
    /// It is being written.
    Writing,
    /// Its link is being made.
    Making,
    /// All is there.
    There,
    /// Its link is being deleted.
    Unmaking,
}

impl Endpoints {
    /// Returns how many calls wait.
    pub(super) fn under_way(&self) -> usize {
        self.calls.len()
    }

    fn add(&mut self, record: EndpointRecord, stage: Stage) {
        let id = record.id.clone();
        self.by_id.entry(id).or_insert_with(|| Endpoint::new(stage)).record = Some(Box::new(record));
    }

    /// Returns the endpoints whose address was leased for this attachment.
    fn leased_by(&self, attachment: &Attachment) -> impl Iterator<Item = (&DockerId, &Endpoint)> {
        let is_its = move |record: &EndpointRecord| matches!(&record.source, Source::Leased(own) if own == attachment);
        self.by_id.iter().filter(move |(_, endpoint)| endpoint.record.as_deref().is_some_and(is_its))
    }

    /// Returns the endpoint that has been kept longest of those without a link in the host's namespace, if there are too many.
    fn one_too_many(&self) -> Option<DockerId> {
        if self.by_id.len() < MOST_ENDPOINTS {
            return None;
        }
        let idle = self.by_id.values().filter_map(Endpoint::rests);
        idle.min_by_key(|record| record.since).map(|record| record.id.clone())
    }
}

impl Endpoint {
    fn new(stage: Stage) -> Self {
        Self { record: None, stage, creating: Vec::new(), deleting: Vec::new(), ends: false, stray: None }
    }

    /// Returns what is known of it where its link is not in the host's namespace, and nothing is under way.
    fn rests(&self) -> Option<&EndpointRecord> {
        self.record.as_deref().filter(|_| self.stage == Stage::There && self.stray.is_none())
    }
}

impl Registry {
    /// Takes over what the store holds, and looks which links are there.
    pub(super) fn recover_docker(&mut self, records: Vec<DockerRecord>) {
        for record in records {
            match record {
                DockerRecord::Pool(record) => self.docker.recover(record),
                DockerRecord::Network(record) => _ = self.wired.networks.add(record),
                DockerRecord::Endpoint(record) => self.endpoints.add(record, Stage::There),
            }
        }
    }

    /// Looks which links of ours are in the host's namespace.
    pub(super) fn list_own_links(&mut self) {
        let listing = &mut self.endpoints.listing;
        listing.again = listing.under_way;
        if std::mem::replace(&mut listing.under_way, true) {
            return;
        }
        listing.heard.clear();
        self.timers.set(Key::OwnLinks, None);
        self.out.list_own();
    }

    /// Goes on when it is known which links of ours are in the host's namespace.
    pub(super) fn own_links(&mut self, now: Now, outcome: Outcome) {
        let Outcome::OwnLinks(result) = outcome else { return };
        self.endpoints.listing.under_way = false;
        match result {
            Ok(OwnLinks { owners, strangers }) => {
                let Endpoints { by_id, listing, .. } = &mut self.endpoints;
                listing.failures = Backoff::default();
                let heard = std::mem::take(&mut listing.heard);
                let is_news = |owner: &LinkOwner| !heard.contains(owner);
                let silent = by_id.iter_mut().filter(|(id, _)| is_news(&LinkOwner::Endpoint((*id).clone())));
                silent.for_each(|(_, endpoint)| endpoint.stray = None);
                self.endpoints.strangers = strangers;
                owners.into_iter().filter(is_news).for_each(|owner| self.own_link(now, owner, true));
                self.time_strays();
                self.forget_those_without_lease(now);
                let known: Vec<_> = self.endpoints.by_id.keys().cloned().collect();
                known.iter().for_each(|id| self.await_inside(now, id));
            }
            Err(cause) => {
                let failures = &mut self.endpoints.listing.failures;
                failures.fail();
                let pause = failures.pause(LONGEST_PAUSE, &mut self.rng);
                tracing::warn!(%cause, ?pause, "cannot list the links that were made for Docker, trying again");
                self.timers.set(Key::OwnLinks, Some((now.boot + pause, Why::Work)));
            }
        }
        if std::mem::take(&mut self.endpoints.listing.again) {
            self.list_own_links();
        }
    }

    /// Returns the links that daemons with another store left in the host's namespace. Nobody tells when they go: they are looked
    /// for again.
    pub(super) fn strangers(&mut self) -> Vec<String> {
        if !self.endpoints.strangers.is_empty() {
            self.list_own_links();
        }
        self.endpoints.strangers.clone()
    }

    /// A link of ours is in the host's namespace, or has left it.
    pub(super) fn own_link(&mut self, now: Now, owner: LinkOwner, there: bool) {
        if self.endpoints.listing.under_way {
            self.endpoints.listing.heard.insert(owner.clone());
        }
        match &owner {
            LinkOwner::Vlan { on, vlan } if there => self.vlan_is_there(on, *vlan),
            LinkOwner::Vlan { .. } => {}
            LinkOwner::Endpoint(id) => match self.endpoints.by_id.get_mut(id) {
                Some(endpoint) => {
                    endpoint.stray = there.then(|| endpoint.stray.unwrap_or(now.boot));
                    self.time_strays();
                    self.await_inside(now, id);
                }
                None if there => _ = self.out.unmake(Waiter::Nobody, owner),
                None => {}
            },
        }
    }

    fn time_strays(&mut self) {
        let first = self.endpoints.by_id.values().filter_map(|endpoint| endpoint.stray).min();
        self.timers.set(Key::Strays, first.map(|since| (since + STRAY, Why::Orphan)));
    }

    /// Ends the endpoints whose links have been in the host's namespace for too long.
    pub(super) fn end_strays(&mut self, now: Now) {
        let due = |endpoint: &Endpoint| endpoint.stray.is_some_and(|since| now.boot >= since + STRAY);
        let strays: Vec<_> =
            self.endpoints.by_id.iter().filter(|(_, endpoint)| due(endpoint)).map(|(id, _)| id.clone()).collect();
        for id in strays {
            tracing::warn!(endpoint = %id, "Docker has left its link in the host's namespace: deleting it");
            if let Some(endpoint) = self.endpoints.by_id.get_mut(&id) {
                endpoint.stray = Some(now.boot);
            }
            self.end_endpoint(now, &id);
        }
        self.time_strays();
    }

    /// CreateEndpoint: one that is there is answered again.
    pub(super) fn create_endpoint(&mut self, now: Now, id: RequestId, request: EndpointRequest) {
        if let Err(fault) = self.wired.networks.get(&request.network) {
            return self.answer_network(id, Err(fault));
        }
        let name = request.id.clone();
        let limit = match &request.address {
            EndpointAddress::Told(_) => LIMIT,
            EndpointAddress::Leased(add) => self.docker.time_for(add, now.boot) + LIMIT,
        };
        match self.endpoints.by_id.get(&name) {
            Some(endpoint) if endpoint.ends || endpoint.stage == Stage::Unmaking => {
                self.answer_network(id, Err(NetworkFault::Ends(name)));
            }
            Some(Endpoint { stage: Stage::There, record: Some(record), .. }) => {
                let record = record.clone();
                self.answer_network(id, Ok(NetworkAnswer::Endpoint(record)));
            }
            Some(_) => self.await_endpoint(now, id, name, limit),
            None => {
                if let Some(oldest) = self.endpoints.one_too_many() {
                    self.forget_endpoint(now, &oldest);
                }
                self.endpoints.by_id.insert(name.clone(), Endpoint::new(Stage::Writing));
                self.await_endpoint(now, id, name, limit);
                self.begin_endpoint(now, request);
            }
        }
    }

    /// Lets a call wait for an endpoint to be there.
    fn await_endpoint(&mut self, now: Now, id: RequestId, name: DockerId, limit: Duration) {
        if let Some(endpoint) = self.endpoints.by_id.get_mut(&name) {
            endpoint.creating.push(id);
            self.endpoints.calls.insert(id, name);
            self.timers.set(Key::Call(id), Some((now.boot + limit, Why::Call)));
        }
    }

    fn begin_endpoint(&mut self, now: Now, request: EndpointRequest) {
        let EndpointRequest { id, network, mac, address } = request;
        match address {
            EndpointAddress::Told(address) => {
                let record = EndpointRecord { id, network, mac, address, source: Source::Told, since: now.wall };
                self.write_endpoint(record);
            }
            EndpointAddress::Leased(add) => {
                let errand = self.errands.begin(Errand::Endpoint(id.clone(), network, mac, add.attachment.clone()));
                if let Some(endpoint) = self.endpoints.by_id.get_mut(&id) {
                    endpoint.stage = Stage::Leasing(errand);
                }
                self.call(now, add.attachment.clone(), errand, Call::Add(add));
            }
        }
    }

    /// Goes on when the lease of an endpoint is there, or is not to be had.
    pub(super) fn endpoint_leased(
        &mut self,
        now: Now,
        (id, network, mac): (DockerId, DockerId, Mac),
        attachment: Attachment,
        answer: Answer,
    ) {
        let failure = match answer {
            Answer::Leased { lease, .. } => {
                self.supersede(&attachment, &id);
                let source = Source::Leased(attachment);
                let record = EndpointRecord { id, network, mac, address: lease.address, source, since: now.wall };
                return self.write_endpoint(record);
            }
            Answer::Failed(failure) => failure,
            _ => Failure::Cancelled(attachment),
        };
        self.endpoint_over(&id, Err(failure));
    }

    /// Forgets the endpoints that had a lease before: it is another's, and does not go back with them.
    fn supersede(&mut self, attachment: &Attachment, by: &DockerId) {
        let others =
            self.endpoints.leased_by(attachment).filter(|(id, endpoint)| *id != by && endpoint.stage == Stage::There);
        let others: Vec<_> = others.map(|(id, _)| id.clone()).collect();
        for id in others {
            tracing::info!(endpoint = %id, %by, "Docker has lost an endpoint, and made it anew");
            self.drop_endpoint_record(&id);
            self.endpoint_over(&id, Ok(()));
            self.out.unmake(Waiter::Nobody, LinkOwner::Endpoint(id));
        }
    }

    fn write_endpoint(&mut self, record: EndpointRecord) {
        let change = Change::PutDocker(Box::new(DockerRecord::Endpoint(record.clone())));
        self.out.write_for(Waiter::Endpoint(record.id.clone()), vec![change]);
        if let Some(endpoint) = self.endpoints.by_id.get_mut(&record.id) {
            (endpoint.record, endpoint.stage) = (Some(Box::new(record)), Stage::Writing);
        }
    }

    /// Goes on with an endpoint whose effect is over.
    pub(super) fn endpoint_done(&mut self, now: Now, id: &DockerId, outcome: Outcome) {
        let Some(endpoint) = self.endpoints.by_id.get_mut(id) else { return };
        match (outcome, endpoint.stage) {
            (Outcome::Persisted(Ok(())), Stage::Writing) if endpoint.ends => self.forget_and_answer(now, id, None),
            (Outcome::Persisted(Ok(())), Stage::Writing) => self.make_link(now, id),
            (Outcome::Persisted(Err(cause)), Stage::Writing) => {
                self.forget_and_answer(now, id, Some(Failure::Store(cause)));
            }
            (Outcome::Made(Ok(())), Stage::Making) if endpoint.ends => self.unmake_link(id),
            (Outcome::Made(Ok(())), Stage::Making) => {
                (endpoint.stage, endpoint.stray) = (Stage::There, endpoint.stray.or(Some(now.boot)));
                let creating = std::mem::take(&mut endpoint.creating);
                let record = endpoint.record.clone();
                self.time_strays();
                for (call, record) in creating.into_iter().zip(std::iter::repeat(record)) {
                    let answer =
                        record.map(NetworkAnswer::Endpoint).ok_or_else(|| NetworkFault::UnknownEndpoint(id.clone()));
                    self.end_endpoint_call(call);
                    self.answer_network(call, answer);
                }
            }
            (Outcome::Made(Err(cause)), Stage::Making) => {
                // What took too long may be there by now, or come yet.
                self.out.unmake(Waiter::Nobody, LinkOwner::Endpoint(id.clone()));
                let target = LinkOwner::Endpoint(id.clone()).ifname();
                self.forget_and_answer(now, id, Some(Failure::Link { target, cause }));
            }
            (Outcome::Unmade(Ok(())), Stage::Unmaking) => self.forget_and_answer(now, id, None),
            (Outcome::Unmade(Err(cause)), Stage::Unmaking) => {
                // It is tried again when it has been there for too long.
                (endpoint.stage, endpoint.ends) = (Stage::There, false);
                let deleting = std::mem::take(&mut endpoint.deleting);
                let target = LinkOwner::Endpoint(id.clone()).ifname();
                for call in deleting {
                    self.end_endpoint_call(call);
                    let failure = Failure::Link { target: target.clone(), cause: cause.clone() };
                    self.out.reply(call, Answer::Failed(failure));
                }
            }
            _ => {}
        }
    }

    fn make_link(&mut self, now: Now, id: &DockerId) {
        let Some(endpoint) = self.endpoints.by_id.get(id) else { return };
        let Some(record) = endpoint.record.clone() else { return };
        let network = match self.wired.networks.get(&record.network) {
            Ok(network) => network.clone(),
            Err(fault) => return self.forget_and_answer(now, id, Some(Failure::Network(fault))),
        };
        let mtu = self.lease_of(&record, now.boot).and_then(|(grant, _)| grant.mtu).map(u32::from);
        let link = network.wiring.endpoint(id, record.mac, mtu);
        // dockerd tells of its networks once, and the host may have rebooted since.
        if let Some(vlan) = network.wiring.vlan() {
            self.out.make(Waiter::Nobody, vlan);
        }
        self.out.make(Waiter::Endpoint(id.clone()), link);
        if let Some(endpoint) = self.endpoints.by_id.get_mut(id) {
            endpoint.stage = Stage::Making;
        }
    }

    fn unmake_link(&mut self, id: &DockerId) {
        self.out.unmake(Waiter::Endpoint(id.clone()), LinkOwner::Endpoint(id.clone()));
        if let Some(endpoint) = self.endpoints.by_id.get_mut(id) {
            endpoint.stage = Stage::Unmaking;
        }
    }

    /// DeleteEndpoint: answered when its link is gone.
    pub(super) fn delete_endpoint(&mut self, now: Now, id: RequestId, name: &DockerId) {
        let Some(endpoint) = self.endpoints.by_id.get_mut(name) else {
            return self.answer_network(id, Ok(NetworkAnswer::Done));
        };
        endpoint.deleting.push(id);
        self.endpoints.calls.insert(id, name.clone());
        self.timers.set(Key::Call(id), Some((now.boot + LIMIT, Why::Call)));
        self.end_endpoint(now, name);
    }

    /// Ends an endpoint, as soon as what is under way is over.
    fn end_endpoint(&mut self, now: Now, id: &DockerId) {
        let Some(endpoint) = self.endpoints.by_id.get_mut(id) else { return };
        endpoint.ends = true;
        match endpoint.stage {
            Stage::Leasing(errand) => {
                self.hung_up(now, errand);
                self.endpoint_over(id, Ok(()));
            }
            Stage::There => self.unmake_link(id),
            Stage::Writing | Stage::Making | Stage::Unmaking => {}
        }
    }

    /// Forgets an endpoint whose link is not there, gives back what was leased for it, and answers who waits.
    fn forget_and_answer(&mut self, now: Now, id: &DockerId, failure: Option<Failure>) {
        self.forget_endpoint_record(now, id);
        self.endpoint_over(id, failure.map_or(Ok(()), Err));
    }

    fn forget_endpoint(&mut self, now: Now, id: &DockerId) {
        self.forget_and_answer(now, id, None);
    }

    fn forget_endpoint_record(&mut self, now: Now, id: &DockerId) {
        if let Some(Source::Leased(attachment)) = self.drop_endpoint_record(id)
            && self.endpoints.leased_by(&attachment).next().is_none()
            && let Some(holder) = self.slots.holder(&attachment)
        {
            self.give_back(now, holder);
        }
    }

    /// Forgets what is known of an endpoint, and returns where its address came from.
    fn drop_endpoint_record(&mut self, id: &DockerId) -> Option<Source> {
        let record = self.endpoints.by_id.get_mut(id).and_then(|endpoint| endpoint.record.take())?;
        self.out.write_alone(Change::RemoveDocker(DockerKey::Endpoint(id.clone())));
        Some(record.source)
    }

    /// Answers who waits for an endpoint that is no more.
    fn endpoint_over(&mut self, id: &DockerId, result: Result<(), Failure>) {
        let Some(endpoint) = self.endpoints.by_id.remove(id) else { return };
        self.time_strays();
        for call in endpoint.creating {
            self.end_endpoint_call(call);
            let gone = || Failure::Network(NetworkFault::Ends(id.clone()));
            let failure = result.clone().err().unwrap_or_else(gone);
            self.out.reply(call, Answer::Failed(failure));
        }
        for call in endpoint.deleting {
            self.end_endpoint_call(call);
            self.answer_network(call, Ok(NetworkAnswer::Done));
        }
    }

    fn end_endpoint_call(&mut self, id: RequestId) {
        self.endpoints.calls.remove(&id);
        self.timers.set(Key::Call(id), None);
    }

    /// A call about an endpoint waits no longer; false where it is none.
    pub(super) fn endpoint_call_timed_out(&mut self, now: Now, id: RequestId) -> bool {
        if !self.forget_endpoint_call(now, id) {
            return false;
        }
        let failure = Failure::TimedOut { waiting_for: "the store and the kernel", waited: LIMIT };
        self.out.reply(id, Answer::Failed(failure));
        true
    }

    /// Drops a call about an endpoint whose caller went away: what nobody waits for ends. False where it is none.
    pub(super) fn forget_endpoint_call(&mut self, now: Now, id: RequestId) -> bool {
        let Some(name) = self.endpoints.calls.remove(&id) else { return false };
        self.timers.set(Key::Call(id), None);
        if let Some(endpoint) = self.endpoints.by_id.get_mut(&name) {
            let was_creating = endpoint.creating.contains(&id);
            endpoint.creating.retain(|call| *call != id);
            endpoint.deleting.retain(|call| *call != id);
            if was_creating && endpoint.creating.is_empty() {
                self.end_endpoint(now, &name);
            }
        }
        true
    }

    /// Join: Docker is about to move the endpoint's link.
    pub(super) fn join(&mut self, now: Now, id: RequestId, network: &DockerId, endpoint: &DockerId) {
        let answer = self.joined(now, network, endpoint);
        if let Ok((_, Some(holder))) = &answer {
            self.with(now, *holder, |binding, _| {
                if let Life::Held(hold) = &mut binding.life {
                    hold.tell_routes();
                }
            });
        }
        self.answer_network(id, answer.map(|(answer, _)| answer));
    }

    /// Returns the answer, and who holds the lease that it is about.
    fn joined(
        &self,
        now: Now,
        network: &DockerId,
        id: &DockerId,
    ) -> Result<(NetworkAnswer, Option<BindingId>), NetworkFault> {
        let network = self.wired.networks.get(network)?;
        let endpoint = self.endpoints.by_id.get(id).filter(|endpoint| endpoint.stage == Stage::There);
        let record = endpoint.and_then(|endpoint| endpoint.record.as_ref());
        let record = record.ok_or_else(|| NetworkFault::UnknownEndpoint(id.clone()))?;
        let (grant, holder) = self.lease_of(record, now.boot).map(|(grant, of)| (Box::new(grant), of.id)).unzip();
        let ifname = LinkOwner::Endpoint(id.clone()).ifname();
        Ok((NetworkAnswer::Joined { ifname, grant, gateway: network.gateway }, holder))
    }

    /// Returns what the lease of an endpoint gives it, with the default router, and whose it is.
    fn lease_of(&self, record: &EndpointRecord, now: Instant) -> Option<(Grant, &Binding)> {
        let holder = match &record.source {
            Source::Leased(attachment) => self.bindings.get(self.slots.holder(attachment)?)?,
            Source::Told => {
                let is_it = |binding: &&Binding| {
                    binding.answered == Some(record.address)
                        && binding.identity.chaddr == record.mac
                        && binding.is_live()
                };
                self.bindings.iter().find(is_it)?
            }
        };
        let lease = holder.lease(now)?;
        // Which network a container's default route leads over is Docker's choice: it hears of each.
        let profile = Profile { suppress_default_route: false, ..(*holder.profile).clone() };
        Some((Grant::v4(lease, &profile), holder))
    }

    /// The lease of an attachment is over: an endpoint of it that has no link in the host's namespace is none any more. dockerd that
    /// was killed never says so.
    pub(super) fn endpoint_without_lease(&mut self, attachment: &Attachment) {
        let found = self.endpoints.leased_by(attachment).find(|(_, endpoint)| endpoint.rests().is_some());
        if let Some(id) = found.map(|(id, _)| id.clone()) {
            // What the attachment may hold by now is its successor's.
            self.drop_endpoint_record(&id);
            self.endpoint_over(&id, Ok(()));
            // A daemon that was killed while it made the link left one that does not say whose it is.
            self.out.unmake(Waiter::Nobody, LinkOwner::Endpoint(id));
        }
    }

    /// Forgets the endpoints whose lease was over before they were known here.
    fn forget_those_without_lease(&mut self, now: Now) {
        let is_over =
            |record: &EndpointRecord| matches!(&record.source, Source::Leased(of) if self.slots.holder(of).is_none());
        let over = self.endpoints.by_id.iter().filter(|(_, endpoint)| endpoint.rests().is_some_and(is_over));
        let over: Vec<_> = over.map(|(id, _)| id.clone()).collect();
        over.into_iter().for_each(|id| self.forget_endpoint(now, &id));
    }

    /// Gives the interface of an endpoint without a link in the host's namespace a minute to be found: it is inside a container by now,
    /// or went with that; or a daemon was killed before it had made it, or when it had deleted it.
    fn await_inside(&mut self, now: Now, id: &DockerId) {
        let record = self.endpoints.by_id.get(id).and_then(Endpoint::rests);
        let lease = record.and_then(|record| Some(self.lease_of(record, now.boot)?.1.id));
        lease.into_iter().for_each(|lease| self.await_interface_soon(now, lease));
    }

    /// Gives back the leases of endpoints that are not known: the previous daemon was killed before it had kept them, so that Docker
    /// never heard of them, or when it had forgotten them.
    pub(super) fn give_back_those_without_endpoint(&mut self, now: Now) {
        let is_one = |binding: &&Binding| {
            binding.attachment.is_in_network()
                && binding.holds_on_host()
                && self.endpoints.leased_by(&binding.attachment).next().is_none()
        };
        let found: Vec<_> = self.bindings.iter().filter(is_one).map(|binding| binding.id).collect();
        found.into_iter().for_each(|id| self.give_back(now, id));
    }

    /// Gives back the lease of an endpoint, whose identity may return.
    pub(super) fn give_back(&mut self, now: Now, id: BindingId) {
        let Some(attachment) = self.attachment(id) else { return };
        self.with(now, id, |binding, cx| binding.give_back(Leave::Released, cx));
        self.slots.vacate(&attachment, id);
        self.await_interface_no_more(id);
        self.next_call(now, &attachment);
    }
}
