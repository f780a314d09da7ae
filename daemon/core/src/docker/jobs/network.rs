//! A Docker network that is created or deleted.
//!
//! It is kept once its host link has been looked at, its VLAN's link is there, and the store has it. Its deletion is answered at
//! once, or when the VLAN's link is gone if it was the last network there.

use super::{DockerJob, Next};
use crate::docker::{Desk, DockerKey, DockerRecord};
use crate::effect::{Answer, Failure, NetworkAnswer, Outcome, RequestId};
use crate::identity::DoorId;
use crate::job::LIMIT;
use crate::link::{LinkCause, LinkView, Target};
use crate::network::{MOST_NETWORKS, Mode, NetworkFault, NetworkRecord, Wiring};
use crate::outbox::{DoorWaiter, Waiter};

/// A network that is being created or deleted.
#[derive(Debug)]
pub(in crate::docker) struct NetworkChange {
    record: Box<NetworkRecord>,
    stage: NetworkStage,
}

/// How far that is.
#[derive(Debug)]
enum NetworkStage {
    /// Its host link is being looked at.
    Looking,
    /// The link of its VLAN is being made.
    Making,
    /// It is being written.
    Writing,
    /// The store is deleting it; it is still known.
    Forgetting,
    /// It is forgotten, and the link of its VLAN is being deleted.
    Unmaking,
}

impl NetworkChange {
    /// Makes a network, unless it is there.
    pub(super) fn make(desk: &mut Desk<'_>, id: RequestId, record: Box<NetworkRecord>) -> Next {
        if let Ok(known) = desk.docker.networks.get(&record.id) {
            let since = known.since;
            if *known
                != (NetworkRecord {
                    since,
                    ..(*record).clone()
                })
            {
                return Err(NetworkFault::Differs(record.id.clone())).into();
            }
            return done();
        }
        if desk.docker.networks.by_id.len() >= MOST_NETWORKS {
            return Err(NetworkFault::Full(MOST_NETWORKS)).into();
        }
        // No address could be leased for its endpoints, and Docker would only learn that when it makes one.
        if let Some(leased) = desk.docker.pools.is_elsewhere(&record) {
            let (leased, own) = (leased.clone(), record.wiring.lan());
            return Err(NetworkFault::Elsewhere { leased, own }).into();
        }
        let ifname = record.wiring.on.clone();
        let waiter = Waiter::Above(DoorWaiter::Call(id));
        desk.out().inspect(waiter, Target::Host { ifname });
        desk.time_call(id, desk.now().boot + LIMIT);
        Self {
            record,
            stage: NetworkStage::Looking,
        }
        .waits()
    }

    /// Forgets a network. dockerd deletes none that has endpoints.
    pub(super) fn forget(desk: &mut Desk<'_>, id: RequestId, network: &DoorId) -> Next {
        let change = DockerKey::Network(network.clone()).remove();
        let Ok(record) = desk.docker.networks.get(network).cloned() else {
            // The store may have one that could not be read, or that it refused to delete.
            desk.out().write_alone(change);
            return done();
        };
        desk.write(DoorWaiter::Call(id), vec![change]);
        desk.time_call(id, desk.now().boot + LIMIT);
        Self {
            record: Box::new(record),
            stage: NetworkStage::Forgetting,
        }
        .waits()
    }

    /// Returns which network it is about.
    pub(in crate::docker) fn record(&self) -> &NetworkRecord {
        &self.record
    }

    /// Returns whether it may have made the link of a VLAN for a network that is not known yet.
    pub(in crate::docker) fn is_making(&self) -> bool {
        matches!(self.stage, NetworkStage::Making | NetworkStage::Writing)
    }

    fn waits(self) -> Next {
        Next::Waits(DockerJob::Network(self))
    }

    pub(super) fn done(mut self, desk: &mut Desk<'_>, id: RequestId, outcome: Outcome) -> Next {
        let failed = |failure| Next::Answers(Answer::Failed(failure));
        match (outcome, &self.stage) {
            (Outcome::Inspected(seen), NetworkStage::Looking) => {
                match check(&self.record.wiring, seen) {
                    Ok(()) => match self.record.wiring.vlan() {
                        Some(vlan) => {
                            desk.out().make(DoorWaiter::Call(id), vlan);
                            self.stage = NetworkStage::Making;
                            self.waits()
                        }
                        None => self.keep(desk, id),
                    },
                    Err(fault) => Err(fault).into(),
                }
            }
            (Outcome::Made(Ok(())), NetworkStage::Making) => self.keep(desk, id),
            (Outcome::Made(Err(cause)), NetworkStage::Making) => {
                // A link that took too long may be there by now, or appear later.
                unmake_vlan(desk, &self.record.wiring, DoorWaiter::Nobody);
                let target = self.record.wiring.vlan().map(|link| link.owner.ifname());
                let target = target.unwrap_or_default();
                failed(Failure::Link { target, cause })
            }
            (Outcome::Persisted(Ok(())), NetworkStage::Writing) => {
                let by_id = &mut desk.docker.networks.by_id;
                by_id.insert(self.record.id.clone(), *self.record);
                done()
            }
            (Outcome::Persisted(Err(cause)), NetworkStage::Writing) => {
                unmake_vlan(desk, &self.record.wiring, DoorWaiter::Nobody);
                failed(Failure::Store(cause))
            }
            (Outcome::Persisted(Err(cause)), NetworkStage::Forgetting) => {
                failed(Failure::Store(cause))
            }
            (Outcome::Persisted(Ok(())), NetworkStage::Forgetting) => {
                desk.docker.networks.by_id.remove(&self.record.id);
                match unmake_vlan(desk, &self.record.wiring, DoorWaiter::Call(id)) {
                    true => {
                        self.stage = NetworkStage::Unmaking;
                        self.waits()
                    }
                    false => done(),
                }
            }
            (Outcome::Unmade(result), NetworkStage::Unmaking) => {
                if let Err(cause) = result {
                    tracing::warn!(network = %self.record.id, %cause, "the link of its VLAN is still there: trying again");
                    desk.list_again();
                }
                done()
            }
            _ => self.waits(),
        }
    }

    /// Writes a network, which is known once that is durable.
    fn keep(mut self, desk: &mut Desk<'_>, id: RequestId) -> Next {
        self.record.since = desk.now().wall;
        let change = DockerRecord::Network((*self.record).clone()).put();
        desk.write(DoorWaiter::Call(id), vec![change]);
        self.stage = NetworkStage::Writing;
        self.waits()
    }

    pub(super) fn time_out(self, desk: &mut Desk<'_>, id: RequestId) -> Next {
        let waiting_for = match self.stage {
            NetworkStage::Looking => "a look at the host's link",
            NetworkStage::Making => "the link of its VLAN",
            NetworkStage::Writing | NetworkStage::Forgetting => "the store to record it",
            NetworkStage::Unmaking => "the link of its VLAN to be deleted",
        };
        self.hang_up(desk, id);
        Next::Answers(Answer::Failed(Failure::TimedOut(waiting_for, LIMIT)))
    }

    /// Undoes what has been made so far.
    pub(super) fn hang_up(self, desk: &mut Desk<'_>, id: RequestId) {
        desk.forget(id);
        match self.stage {
            NetworkStage::Looking | NetworkStage::Unmaking => {}
            // The link may still appear. Its deletion comes after that.
            NetworkStage::Making => {
                unmake_vlan(desk, &self.record.wiring, DoorWaiter::Nobody);
            }
            NetworkStage::Writing => take_back(desk, &self.record),
            // Whoever heard no answer keeps the network too, and asks again.
            NetworkStage::Forgetting => {}
        }
    }
}

fn done() -> Next {
    Ok(NetworkAnswer::Done).into()
}

/// Deletes a VLAN's link if no network is in it any more. Returns whether it does.
fn unmake_vlan(desk: &mut Desk<'_>, wiring: &Wiring, waiter: DoorWaiter) -> bool {
    let has_vlan = desk.docker.has_vlan(&wiring.on, wiring.vlan);
    let Some(vlan) = wiring.vlan().filter(|_| !has_vlan) else {
        return false;
    };
    desk.out().unmake(waiter, vlan.owner);
    true
}

/// Has the store forget a network that nobody was told of, unless another call has kept it or may still do so.
fn take_back(desk: &mut Desk<'_>, record: &NetworkRecord) {
    let writes = |call: &NetworkChange| {
        call.record.id == record.id && matches!(call.stage, NetworkStage::Writing)
    };
    let is_known = desk.docker.networks.by_id.contains_key(&record.id);
    if is_known || desk.docker.changing_networks().any(writes) {
        return;
    }
    let change = DockerKey::Network(record.id.clone()).remove();
    desk.out().write_alone(change);
    unmake_vlan(desk, &record.wiring, DoorWaiter::Nobody);
}

/// Returns whether endpoints can be made on a host's link, which was looked at.
fn check(wiring: &Wiring, seen: Result<LinkView, LinkCause>) -> Result<(), NetworkFault> {
    let option = if wiring.mode == Mode::Bridge {
        "bridge"
    } else {
        "parent"
    };
    let bad = |why: String| {
        Err(NetworkFault::BadLink {
            option,
            value: wiring.on.clone(),
            why,
        })
    };
    let view = match seen {
        Ok(view) => view,
        Err(LinkCause::NoLink(_)) => return bad("the host has no such link".to_owned()),
        Err(cause) => return bad(cause.to_string()),
    };
    match wiring.mode {
        _ if !view.up => bad(format!("the link is down: set it up (ip link set {} up)", wiring.on)),
        Mode::Bridge if !view.bridge => bad("not a bridge: make one on the LAN, or leave out -o mode".to_owned()),
        Mode::Macvlan(_) if view.wireless => bad(
            "its access point accepts frames from one Ethernet address only, and each macvlan has its own: use -o mode=ipvlan"
                .to_owned(),
        ),
        Mode::Bridge | Mode::Macvlan(_) | Mode::Ipvlan => Ok(()),
    }
}
