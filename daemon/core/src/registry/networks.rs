//! Calls about Docker's networks whose driver is this one: what dockerd says once, when it creates them, and never again.
//!
//! A network is kept once its host link has been looked at, the link of its VLAN is there, and the store has it. Its end is
//! answered at once, or when that link has gone with the last network in its VLAN. What its endpoints get is in `endpoints`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::Registry;
use super::timers::Key;
use crate::effect::{Answer, Failure, NetworkAnswer, NetworkCall, OpId, Outcome, RequestId, StoreCause, Why};
use crate::link::{LinkCause, LinkView, Target};
use crate::network::{DockerId, LinkOwner, Mode, NetworkFault, NetworkRecord, Networks, Wiring};
use crate::outbox::Waiter;
use crate::record::{Change, DockerKey, DockerRecord};
use crate::time::Now;

/// So many answers are remembered that their callers may not have had: they cross within a moment.
const MOST_ANSWERED: usize = 16;

/// How long a call about a network may take.
const LIMIT: Duration = Duration::from_secs(20);

/// The networks, and the calls about them that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct Wired {
    pub(super) networks: Networks,
    /// Those that are durable.
    kept: BTreeSet<DockerId>,
    /// What the store has and could not be read.
    pub(super) unread: BTreeSet<DockerKey>,
    calls: BTreeMap<RequestId, NetworkChange>,
    /// The calls that made a network and were answered last, with that. Such an answer may cross its caller's end.
    answered: VecDeque<(RequestId, DockerId)>,
}

/// A network that comes or goes.
#[derive(Debug)]
struct NetworkChange {
    record: Box<NetworkRecord>,
    step: Step,
    /// Its caller went away.
    unheard: bool,
}

/// How far that is.
#[derive(Debug)]
enum Step {
    /// Its host link is being looked at.
    Looking(OpId),
    /// The link of its VLAN is being made.
    Making(OpId),
    /// It is being written; it is known already.
    Writing(OpId),
    /// The store forgets it; it is known still.
    Forgetting,
    /// It is forgotten, and the link of its VLAN is being deleted.
    Unmaking(OpId),
}

impl Wired {
    /// Adds a network that the store holds.
    pub(super) fn recover(&mut self, record: NetworkRecord) {
        let id = record.id.clone();
        if self.networks.add(record).is_ok() {
            self.kept.insert(id);
        }
    }

    /// Returns how many calls are not answered yet.
    pub(super) fn under_way(&self) -> usize {
        self.calls.len()
    }

    /// Returns whether the store has something of Docker's that cannot be read.
    pub(super) fn is_unread(&self, key: &DockerKey) -> bool {
        self.unread.contains(key)
    }

    /// Returns whether there are endpoints of which nothing but their names could be read.
    pub(super) fn has_unread_endpoints(&self) -> bool {
        self.unread.iter().any(|key| matches!(key, DockerKey::Endpoint(_)))
    }

    /// Returns whether a network, known or about to be, is in this VLAN, or may be: not all could be read.
    pub(super) fn has_vlan(&self, on: &str, vlan: u16) -> bool {
        let comes = |call: &NetworkChange| match call.step {
            Step::Making(_) => call.record.wiring.on == on && call.record.wiring.vlan == vlan,
            Step::Looking(_) | Step::Writing(_) | Step::Forgetting | Step::Unmaking(_) => false,
        };
        let may_be = |key: &DockerKey| matches!(key, DockerKey::Network(_));
        self.networks.has_vlan(on, vlan) || self.calls.values().any(comes) || self.unread.iter().any(may_be)
    }

    /// Records that whoever made a network is answered that it is there.
    fn answered(&mut self, id: RequestId, network: DockerId) {
        self.answered.push_back((id, network));
        if self.answered.len() > MOST_ANSWERED {
            self.answered.pop_front();
        }
    }

    /// Records that Docker knows a network: it has said something of it, or has had another answer.
    fn docker_knows(&mut self, network: &DockerId) {
        self.answered.retain(|(_, answered)| answered != network);
    }
}

impl Registry {
    /// A call about a network or an endpoint.
    pub(super) fn network_call(&mut self, now: Now, id: RequestId, call: &NetworkCall) {
        match call {
            NetworkCall::Delete(network) | NetworkCall::Find(network) | NetworkCall::Join { network, .. } => {
                self.wired.docker_knows(network);
            }
            NetworkCall::CreateEndpoint(request) => self.wired.docker_knows(&request.network),
            NetworkCall::Started => {}
            NetworkCall::Create(_) | NetworkCall::DeleteEndpoint(_) => {}
        }
        match call {
            NetworkCall::Started => {
                self.abandon_strays(now);
                self.await_all_interfaces_soon(now);
                self.answer_network(id, Ok(NetworkAnswer::Done));
            }
            NetworkCall::Create(record) => self.create_network(now, id, record.clone()),
            NetworkCall::Delete(network) => self.delete_network(now, id, network),
            NetworkCall::Find(network) => self.found_network(id, self.wired.networks.get(network).cloned()),
            NetworkCall::CreateEndpoint(request) => self.create_endpoint(now, id, (**request).clone()),
            NetworkCall::DeleteEndpoint(endpoint) => self.delete_endpoint(now, id, endpoint),
            NetworkCall::Join { network, endpoint, sandbox } => self.join(now, id, (network, endpoint), sandbox),
        }
    }

    pub(super) fn answer_network(&mut self, id: RequestId, answer: Result<NetworkAnswer, NetworkFault>) {
        let answer = answer.map_or_else(|fault| Answer::Failed(Failure::Network(fault)), Answer::Network);
        self.out.reply(id, answer);
    }

    fn found_network(&mut self, id: RequestId, found: Result<NetworkRecord, NetworkFault>) {
        self.answer_network(id, found.map(|record| NetworkAnswer::Found(Box::new(record))));
    }

    fn create_network(&mut self, now: Now, id: RequestId, record: Box<NetworkRecord>) {
        if let Ok(known) = self.wired.networks.get(&record.id) {
            let same = *known == NetworkRecord { since: known.since, unused: known.unused, ..(*record).clone() };
            match same {
                true if self.wired.kept.contains(&record.id) => {
                    self.wired.docker_knows(&record.id);
                    return self.answer_network(id, Ok(NetworkAnswer::Done));
                }
                // It is on its way into the store, and may not get there.
                true => {}
                false => return self.answer_network(id, Err(NetworkFault::Differs(record.id.clone()))),
            }
        }
        if let Some(fault) = self.cannot_lease(&record) {
            return self.answer_network(id, Err(fault));
        }
        let op = self.out.inspect(Waiter::Network(id), Target::Host { ifname: record.wiring.on.clone() });
        self.wired.calls.insert(id, NetworkChange { record, step: Step::Looking(op), unheard: false });
        self.timers.set(Key::Call(id), Some((now.boot + LIMIT, Why::Call)));
    }

    /// Returns why no address could be leased for a network's endpoints, which Docker would not be told before they are made.
    fn cannot_lease(&self, network: &NetworkRecord) -> Option<NetworkFault> {
        let leased = self.docker.is_elsewhere(network)?.clone();
        Some(NetworkFault::Elsewhere { leased, own: network.wiring.lan() })
    }

    /// Forgets a network. dockerd deletes none that has endpoints.
    fn delete_network(&mut self, now: Now, id: RequestId, network: &DockerId) {
        let Ok(record) = self.wired.networks.get(network).cloned() else {
            self.forget_unread(now, DockerKey::Network(network.clone()));
            return self.answer_network(id, Ok(NetworkAnswer::Done));
        };
        self.out.write_for(Waiter::Network(id), vec![Change::RemoveDocker(DockerKey::Network(network.clone()))]);
        let change = NetworkChange { record: Box::new(record), step: Step::Forgetting, unheard: false };
        self.wired.calls.insert(id, change);
        self.timers.set(Key::Call(id), Some((now.boot + LIMIT, Why::Call)));
    }

    /// Deletes the link of a VLAN if no network is in it any more.
    fn unmake_vlan(&mut self, wiring: &Wiring, waiter: Waiter) -> Option<OpId> {
        let vlan = wiring.vlan().filter(|_| !self.wired.has_vlan(&wiring.on, wiring.vlan))?;
        Some(self.out.unmake(waiter, vlan.owner))
    }

    /// Goes on with a network whose effect is over.
    pub(super) fn network_done(&mut self, now: Now, id: RequestId, outcome: Outcome) {
        let Some(NetworkChange { record, step, unheard }) = self.wired.calls.remove(&id) else { return };
        match (outcome, step) {
            (Outcome::Inspected(seen), Step::Looking(_)) => match check(&record.wiring, seen) {
                Ok(()) => match record.wiring.vlan() {
                    Some(vlan) => {
                        let op = self.out.make(Waiter::Network(id), vlan);
                        self.wired.calls.insert(id, NetworkChange { record, step: Step::Making(op), unheard });
                    }
                    None => self.keep_network(now, id, record),
                },
                Err(fault) => self.end_network_call(id, Err(Failure::Network(fault))),
            },
            (Outcome::Made(Ok(())), Step::Making(_)) => self.keep_network(now, id, record),
            (Outcome::Made(Err(cause)), Step::Making(_)) => {
                // What took too long may be there by now, or come yet.
                self.unmake_vlan(&record.wiring, Waiter::Nobody);
                let target = record.wiring.vlan().map(|link| link.owner.ifname()).unwrap_or_default();
                self.end_network_call(id, Err(Failure::Link { target, cause }));
            }
            (Outcome::Persisted(Ok(())), Step::Writing(_)) => {
                match self.wired.kept.insert(record.id.clone()) {
                    true => self.wired.answered(id, record.id),
                    // Another call about it was answered before.
                    false => self.wired.docker_knows(&record.id),
                }
                self.end_network_call(id, Ok(()));
            }
            (Outcome::Persisted(Err(cause)), Step::Writing(_)) => {
                self.take_back(&record);
                self.end_network_call(id, Err(Failure::Store(cause)));
            }
            (Outcome::Persisted(result), Step::Forgetting) => self.network_forgotten(id, record, result, unheard),
            (Outcome::Unmade(result), Step::Unmaking(_)) => {
                if let Err(cause) = result {
                    tracing::warn!(network = %record.id, %cause, "the link of its VLAN stays, trying again");
                    self.list_again(now);
                }
                self.end_network_call(id, Ok(()));
            }
            (_, step) => _ = self.wired.calls.insert(id, NetworkChange { record, step, unheard }),
        }
    }

    /// Makes a network known, and answers when that is durable.
    fn keep_network(&mut self, now: Now, id: RequestId, mut record: Box<NetworkRecord>) {
        (record.since, record.unused) = (now.wall, true);
        if let Err(fault) = self.wired.networks.add((*record).clone()) {
            self.unmake_vlan(&record.wiring, Waiter::Nobody);
            return self.end_network_call(id, Err(Failure::Network(fault)));
        }
        let change = Change::PutDocker(Box::new(DockerRecord::Network((*record).clone())));
        let op = self.out.write_for(Waiter::Network(id), vec![change]);
        self.wired.calls.insert(id, NetworkChange { record, step: Step::Writing(op), unheard: false });
    }

    /// Makes a network known no more that was not to be kept, unless another call about it has kept it or may yet.
    fn take_back(&mut self, record: &NetworkRecord) {
        let writes = |call: &NetworkChange| call.record.id == record.id && matches!(call.step, Step::Writing(_));
        if self.wired.kept.contains(&record.id) || self.wired.calls.values().any(writes) {
            return;
        }
        self.wired.networks.remove(&record.id);
        self.out.write_alone(Change::RemoveDocker(DockerKey::Network(record.id.clone())));
        self.unmake_vlan(&record.wiring, Waiter::Nobody);
    }

    /// Forgets a network that was made by a call whose caller went away as it was answered: Docker was never told of it. False where
    /// there is none.
    pub(super) fn take_back_unheard(&mut self, id: RequestId) -> bool {
        let Some(at) = self.wired.answered.iter().position(|(answered, _)| *answered == id) else { return false };
        let Some((_, network)) = self.wired.answered.remove(at) else { return false };
        let another = self.wired.calls.values().any(|call| call.record.id == network);
        if let Some(record) = self.wired.networks.get(&network).ok().filter(|_| !another).cloned() {
            tracing::info!(%network, "Docker gave up on a network that was just made: forgetting it");
            self.wired.kept.remove(&network);
            self.take_back(&record);
        }
        true
    }

    /// Goes on when the store has forgotten a network, or refused to.
    fn network_forgotten(
        &mut self,
        id: RequestId,
        record: Box<NetworkRecord>,
        result: Result<(), StoreCause>,
        unheard: bool,
    ) {
        if result.is_ok() {
            self.wired.networks.remove(&record.id);
            self.wired.kept.remove(&record.id);
            let waiter = if unheard { Waiter::Nobody } else { Waiter::Network(id) };
            let op = self.unmake_vlan(&record.wiring, waiter);
            if let Some(op) = op.filter(|_| !unheard) {
                self.wired.calls.insert(id, NetworkChange { record, step: Step::Unmaking(op), unheard });
                return;
            }
        }
        if !unheard {
            self.end_network_call(id, result.map_err(Failure::Store));
        }
    }

    fn end_network_call(&mut self, id: RequestId, result: Result<(), Failure>) {
        self.timers.set(Key::Call(id), None);
        self.out.reply(id, result.map_or_else(Answer::Failed, |()| Answer::Network(NetworkAnswer::Done)));
    }

    /// A call about a network waits no longer; false where it is none.
    pub(super) fn network_call_timed_out(&mut self, id: RequestId) -> bool {
        let Some(waiting_for) = self.forget_network_call(id) else { return false };
        self.out.reply(id, Answer::Failed(Failure::TimedOut { waiting_for, waited: LIMIT }));
        true
    }

    /// Drops a call about a network whose caller went away, and what came of it; what is forgotten is forgotten. Returns what it
    /// waited for, if it is one.
    pub(super) fn forget_network_call(&mut self, id: RequestId) -> Option<&'static str> {
        let NetworkChange { record, step, .. } = self.wired.calls.remove(&id)?;
        self.timers.set(Key::Call(id), None);
        match step {
            Step::Looking(op) => {
                self.out.forget(op);
                Some("a look at the host's link")
            }
            // The link may come yet. What deletes it comes after that.
            Step::Making(op) => {
                self.out.forget(op);
                self.unmake_vlan(&record.wiring, Waiter::Nobody);
                Some("the link of its VLAN")
            }
            Step::Writing(op) => {
                self.out.forget(op);
                self.take_back(&record);
                Some("the store to write it down")
            }
            Step::Forgetting => {
                self.wired.calls.insert(id, NetworkChange { record, step, unheard: true });
                Some("the store to write it down")
            }
            Step::Unmaking(op) => {
                self.out.forget(op);
                Some("the end of the link of its VLAN")
            }
        }
    }

    /// A VLAN's link is there: without a network it goes.
    pub(super) fn vlan_is_there(&mut self, on: &str, vlan: u16) {
        if !self.wired.has_vlan(on, vlan) {
            self.out.unmake(Waiter::Nobody, LinkOwner::Vlan { on: on.to_owned(), vlan });
        }
    }
}

/// Returns whether endpoints can be made on a host's link, which was looked at.
fn check(wiring: &Wiring, seen: Result<LinkView, LinkCause>) -> Result<(), NetworkFault> {
    let option = if wiring.mode == Mode::Bridge { "bridge" } else { "parent" };
    let bad = |why: String| Err(NetworkFault::BadLink { option, value: wiring.on.clone(), why });
    let view = match seen {
        Ok(view) => view,
        Err(LinkCause::NoLink(_)) => return bad("the host has no such link".to_owned()),
        Err(cause) => return bad(cause.to_string()),
    };
    match wiring.mode {
        _ if !view.up => bad(format!("the link is down: set it up (ip link set {} up)", wiring.on)),
        Mode::Bridge if !view.bridge => bad("not a bridge: make one that is on the LAN, or leave -o mode out".to_owned()),
        Mode::Macvlan(_) if view.wireless => bad(
            "its access point takes frames of one Ethernet address only, and each macvlan has its own: use -o mode=ipvlan"
                .to_owned(),
        ),
        Mode::Bridge | Mode::Macvlan(_) | Mode::Ipvlan => Ok(()),
    }
}
