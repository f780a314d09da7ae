//! What the store holds of Docker's networks whose driver is this one, and the links that were made for them.

use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::network::{DockerId, EndpointRecord, LinkOwner, NetworkRecord, OwnLink};

/// Both.
#[derive(Default)]
pub(in super::super) struct Wired {
    pub(in super::super) networks: BTreeMap<DockerId, NetworkRecord>,
    pub(in super::super) endpoints: BTreeMap<DockerId, EndpointRecord>,
    /// The links in the host's namespace.
    pub(in super::super) links: BTreeMap<LinkOwner, OwnLink>,
    /// Why links can neither be made nor deleted.
    pub(in super::super) refuses: Option<LinkCause>,
    /// Whether the ends of such changes are held back.
    pub(in super::super) hold: bool,
    held: VecDeque<(OpId, Outcome)>,
}

impl Wired {
    pub(super) fn put(&mut self, record: DockerRecord) {
        match record {
            DockerRecord::Pool(_) => unreachable!("pools are kept beside"),
            DockerRecord::Network(record) => _ = self.networks.insert(record.id.clone(), record),
            DockerRecord::Endpoint(record) => _ = self.endpoints.insert(record.id.clone(), record),
        }
    }

    pub(super) fn remove(&mut self, key: &DockerKey) {
        match key {
            DockerKey::Pool(_) => unreachable!("pools are kept beside"),
            DockerKey::Network(id) => _ = self.networks.remove(id),
            DockerKey::Endpoint(id) => _ = self.endpoints.remove(id),
        }
    }

    pub(super) fn stored(&self) -> impl Iterator<Item = DockerRecord> {
        let networks = self.networks.values().cloned().map(DockerRecord::Network);
        networks.chain(self.endpoints.values().cloned().map(DockerRecord::Endpoint))
    }

    pub(super) fn make(&mut self, link: OwnLink) -> Outcome {
        if let Some(cause) = self.refuses.clone() {
            return Outcome::Made(Err(cause));
        }
        self.links.insert(link.owner.clone(), link);
        Outcome::Made(Ok(()))
    }

    pub(super) fn unmake(&mut self, owner: &LinkOwner) -> Outcome {
        if let Some(cause) = self.refuses.clone() {
            return Outcome::Unmade(Err(cause));
        }
        self.links.remove(owner);
        Outcome::Unmade(Ok(()))
    }

    pub(super) fn list(&self) -> Outcome {
        Outcome::OwnLinks(Ok(self.links.keys().cloned().collect()))
    }
}

impl Rig {
    pub(super) fn link_op(&mut self, op: OpId, outcome: Outcome) {
        match self.wired.hold {
            true => self.wired.held.push_back((op, outcome)),
            false => self.reg.handle(self.now(), Input::Done { op, outcome }),
        }
    }

    /// Ends the changes of links that were held back.
    pub(in super::super) fn end_link_ops(&mut self) {
        while let Some((op, outcome)) = self.wired.held.pop_front() {
            self.input(Input::Done { op, outcome });
        }
    }

    /// Docker moves an endpoint's link into a container's namespace.
    pub(in super::super) fn link_leaves(&mut self, owner: &LinkOwner) {
        self.wired.links.remove(owner).expect("it is there");
        self.input(Input::Kernel(KernelEvent::OwnLink { owner: owner.clone(), there: false }));
    }

    /// Docker moves an endpoint's link back.
    pub(in super::super) fn link_returns(&mut self, link: OwnLink) {
        let owner = link.owner.clone();
        self.wired.links.insert(owner.clone(), link);
        self.input(Input::Kernel(KernelEvent::OwnLink { owner, there: true }));
    }
}
