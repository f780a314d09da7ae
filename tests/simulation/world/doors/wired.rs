//! What dockerd knows of its networks of our own driver, and of their endpoints.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::identity::{Attachment, DoorId};

use crate::world::Micros;

/// How far dockerd has created a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not at all.
    Absent,
    /// It is being created.
    Coming,
    /// It exists.
    There,
    /// It is being deleted.
    Going,
}

/// What dockerd knows of its networks.
#[derive(Debug)]
pub(in crate::world) struct Wired {
    /// The networks by LAN, each with whether the daemon may not know it.
    pub(super) networks: Vec<(Stage, bool)>,
    /// How many networks were requested, by LAN.
    pub(super) created: Vec<u32>,
    /// Networks that the daemon may have without dockerd: a call broke or was sent twice, or the daemon ended before it heard
    /// that dockerd had given up, or had not recorded that.
    pub(super) forgotten: BTreeSet<DoorId>,
    /// The endpoints that were created and are not forgotten, with their attachments, and whether they are ending.
    pub(super) endpoints: BTreeMap<DoorId, (Attachment, bool)>,
    /// How many endpoints were requested.
    asked: u64,
    /// When the last change of such links is carried out, and when the daemon hears the last report about them.
    changes: Micros,
    news: Micros,
}

impl Wired {
    /// Returns dockerd as it is before it has any networks.
    pub(in crate::world) fn new(lans: usize) -> Self {
        let (networks, created) = (vec![(Stage::Absent, false); lans], vec![0; lans]);
        let (endpoints, forgotten) = (BTreeMap::new(), BTreeSet::new());
        Self {
            networks,
            created,
            forgotten,
            endpoints,
            asked: 0,
            changes: 0,
            news: 0,
        }
    }

    /// Returns when a change that would be ready at `ready` is carried out: not before changes that were requested earlier.
    pub(in crate::world) fn next_change(&mut self, ready: Micros) -> Micros {
        self.changes = ready.max(self.changes + 1);
        self.changes
    }

    /// Returns when news that would come at `ready` is heard: not before earlier news.
    pub(in crate::world) fn next_news(&mut self, ready: Micros) -> Micros {
        self.news = ready.max(self.news + 1);
        self.news
    }

    /// Returns the attachment of an endpoint that dockerd has and has not asked to end.
    pub(in crate::world) fn has(&self, id: &DoorId) -> Option<&Attachment> {
        self.endpoints
            .get(id)
            .filter(|(_, ends)| !ends)
            .map(|(attachment, _)| attachment)
    }

    /// Records that an endpoint is ending. Returns whether it was created and is not forgotten.
    pub(in crate::world) fn end(&mut self, id: &DoorId) -> bool {
        let endpoint = self.endpoints.get_mut(id);
        endpoint.is_some_and(|(_, ends)| {
            *ends = true;
            true
        })
    }

    /// Returns the name of a LAN's network. Each network that is created has a new name.
    pub(super) fn network_id(&self, lan: usize) -> DoorId {
        DoorId::try_from(format!("{:06x}{lan:06x}{:052x}", self.created[lan], 0))
            .expect("64 digits are an id")
    }

    pub(super) fn new_endpoint(&mut self) -> DoorId {
        self.asked += 1;
        let text = format!("{:012x}{:052x}", self.asked, 0);
        DoorId::try_from(text).expect("64 digits are an id")
    }

    /// Handles the loss of the store: the daemon knows none of the networks any more.
    pub(in crate::world) fn store_lost(&mut self) {
        self.networks
            .iter_mut()
            .for_each(|(_, unsure)| *unsure = true);
    }

    /// Handles a reboot of the host.
    pub(in crate::world) fn rebooted(&mut self) {
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
