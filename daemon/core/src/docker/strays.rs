//! The links that were made for Docker and are in the host's namespace.
//!
//! No link is left behind. A link in the host's namespace without an endpoint is deleted at once. One that stays there too long is
//! deleted with its endpoint: dockerd was killed between two calls, and forgot it. How long that is depends on what is known: a
//! container may take minutes to start; a link comes back from a container because that container ended; a dockerd that has just
//! started plans no container for the links that it finds; and if a new endpoint has the link's Ethernet address, the link is
//! deleted at once. Links that another store's daemon made are not ours.

use std::time::Duration;

use super::Desk;
use super::endpoints::Endpoint;
use super::record::DockerRecord;
use crate::backoff::{Backoff, LONGEST_PAUSE};
use crate::effect::{Outcome, Why};
use crate::identity::DoorId;
use crate::link::own::{LinkOwner, MacvlanMode, OwnLinks};
use crate::network::{AddressSource, EndpointRecord, Mode, Wiring, is_in_network};
use crate::patience::{NEXT_STEP, SLOW_START};
use crate::record::{DoorKey, DoorRecord};
use crate::registry::{Binding, DoorTimer, bindings, held_by, leave};
use crate::rules::{Rule, cut};
use crate::time::Instant;

/// How long a list of the links is reused: listing leases once a second must not have the kernel list all links as often.
const LISTED: Duration = Duration::from_secs(10);

/// What is known about links besides their endpoints, and the list of those that there are.
#[derive(Debug, Default)]
pub(super) struct Strays {
    /// Links in the host's namespace that daemons with another store made.
    strangers: Vec<String>,
    /// Whether the list is under way.
    under_way: bool,
    /// Whether it is asked for again.
    again: bool,
    /// When somebody last asked what is left behind.
    asked: Option<Instant>,
    failures: Backoff,
}

impl Strays {
    /// Records that something is known about a link: a list that is under way may be older, and is asked for again.
    pub(super) fn hear(&mut self) {
        self.again = self.under_way;
    }
}

impl Desk<'_> {
    /// Takes over what the store holds, and lists the links.
    ///
    /// A record that does not parse stays as it is. This daemon then takes no link and no lease for one that nobody knows, so that
    /// no container loses anything because of it. A pool goes on without its reserved addresses.
    pub(crate) fn recover(&mut self, records: Vec<DoorRecord>) {
        for kept in records {
            match DockerRecord::read(&kept) {
                Ok(DockerRecord::Pool(record)) => _ = self.docker.pools.add(record),
                Ok(DockerRecord::Network(record)) => {
                    let by_id = &mut self.docker.networks.by_id;
                    by_id.insert(record.id.clone(), record);
                }
                Ok(DockerRecord::Endpoint(record)) => self.docker.endpoints.recover(record),
                Err(error) => {
                    let DoorKey { table, name } = &kept.key;
                    tracing::error!(table, name, %error, "does not parse: left as it is, with everything that may belong to it");
                    self.docker.networks.is_unread = true;
                }
            }
        }
    }

    /// Lists our links in the host's namespace.
    pub(crate) fn list_own_links(&mut self) {
        self.set_timer(DoorTimer::OwnLinks, None);
        self.docker.strays.hear();
        if !std::mem::replace(&mut self.docker.strays.under_way, true) {
            self.out().list_own();
        }
    }

    /// Lists them again after a while: leftovers are deleted then.
    pub(super) fn list_again(&mut self) {
        let failures = &mut self.docker.strays.failures;
        failures.fail();
        let pause = failures.pause(LONGEST_PAUSE, &mut self.registry.tables.rng);
        self.set_timer(
            DoorTimer::OwnLinks,
            Some((self.now().boot + pause, Why::Work)),
        );
    }

    /// Goes on with the list of our links in the host's namespace.
    pub(super) fn own_links(&mut self, outcome: Outcome) {
        let now = self.now();
        let Outcome::OwnLinks(result) = outcome else {
            return;
        };
        self.docker.strays.under_way = false;
        if std::mem::take(&mut self.docker.strays.again) {
            return self.list_own_links();
        }
        match result {
            Ok(OwnLinks { owners, strangers }) => {
                // A link that should have been deleted, and is there, could not be.
                if owners.iter().all(|owner| self.has_owner(owner)) {
                    self.docker.strays.failures = Backoff::default();
                }
                let by_id = self.docker.endpoints.by_id.iter_mut();
                let by_id = by_id.filter(|(_, endpoint)| !endpoint.left);
                // A link that is still there has been there since it was first heard about.
                let has_left = |id: &DoorId| !owners.contains(&LinkOwner::Endpoint(id.clone()));
                let gone = by_id.filter(|(id, _)| has_left(id));
                gone.for_each(|(_, endpoint)| _ = endpoint.hear(false, now.boot));
                self.docker.strays.strangers = strangers;
                owners
                    .into_iter()
                    .for_each(|owner| self.own_link(owner, true));
                self.time_strays();
                self.forget_those_without_lease();
                let known: Vec<_> = self.docker.endpoints.by_id.keys().cloned().collect();
                known.iter().for_each(|id| self.await_inside(id));
            }
            Err(cause) => {
                tracing::warn!(%cause, "cannot list the links that were made for Docker: trying again");
                self.list_again();
            }
        }
    }

    /// Returns whether a link's owner is known.
    fn has_owner(&self, owner: &LinkOwner) -> bool {
        match owner {
            LinkOwner::Endpoint(id) => self.docker.endpoints.by_id.contains_key(id),
            LinkOwner::Vlan { on, vlan } => self.docker.has_vlan(on, *vlan),
        }
    }

    /// Returns the links that daemons with another store left in the host's namespace. Nobody reports when they come or go: the
    /// daemon lists them again now and then.
    pub(super) fn strangers(&mut self) -> Vec<String> {
        let now = self.now().boot;
        let strays = &mut self.docker.strays;
        if strays.asked.is_none_or(|asked| now >= asked + LISTED) {
            strays.asked = Some(now);
            self.list_own_links();
        }
        self.docker.strays.strangers.clone()
    }

    /// Records that a link of ours is in the host's namespace, or has left it.
    pub(crate) fn own_link(&mut self, owner: LinkOwner, there: bool) {
        self.docker.strays.hear();
        let is_unread = self.docker.networks.is_unread;
        match &owner {
            LinkOwner::Vlan { on, vlan } if there && !self.docker.has_vlan(on, *vlan) => {
                self.unmake_alone(owner)
            }
            LinkOwner::Vlan { .. } => {}
            LinkOwner::Endpoint(id) => match self.docker.endpoint_mut(id) {
                Some(endpoint) => {
                    let came = endpoint.hear(there, self.registry.tables.now.boot);
                    self.time_strays();
                    match came {
                        true => self.await_container(id),
                        false => self.await_inside(id),
                    }
                }
                None if there && !is_unread => self.unmake_alone(owner),
                None => {}
            },
        }
    }

    pub(super) fn time_strays(&mut self) {
        let endpoints = self.docker.endpoints.by_id.values();
        let first = endpoints.filter_map(|endpoint| endpoint.goes).min();
        self.set_timer(DoorTimer::Strays, first.map(|at| (at, Why::Orphan)));
    }

    /// Deletes the endpoints whose links have been in the host's namespace for too long.
    pub(super) fn end_strays(&mut self) {
        let due = |endpoint: &Endpoint| endpoint.goes.is_some_and(|at| self.now().boot >= at);
        for id in self.docker.endpoints(due) {
            tracing::warn!(endpoint = %id, "Docker has left its link in the host's namespace: deleting it");
            if let Some(endpoint) = self.docker.endpoint_mut(&id) {
                endpoint.goes = Some(self.registry.tables.now.boot + NEXT_STEP);
            }
            self.end_endpoint(&id);
        }
        self.time_strays();
    }

    /// Handles a restart of dockerd: links that wait for a container of the previous dockerd wait one minute more.
    pub(super) fn abandon_strays(&mut self) {
        for endpoint in self.docker.endpoints.by_id.values_mut() {
            endpoint.goes = endpoint
                .goes
                .min(Some(self.registry.tables.now.boot + NEXT_STEP));
        }
        self.time_strays();
    }

    /// Deletes the endpoints whose links wait for a container, if a new endpoint has their Ethernet address, or wants their parent
    /// to itself: dockerd has forgotten them.
    pub(super) fn end_strays_beside(&mut self, new: &EndpointRecord, wiring: &Wiring) {
        let is_beside = |record: &EndpointRecord| {
            let other = self
                .docker
                .networks
                .get(&record.network)
                .ok()
                .map(|network| &network.wiring);
            let on_same =
                other.is_some_and(|other| (&other.on, other.vlan) == (&wiring.on, wiring.vlan));
            let is_same = record.mac == new.mac && wiring.mode != Mode::Ipvlan;
            record.id != new.id
                && on_same
                && (is_same || wiring.mode == Mode::Macvlan(MacvlanMode::Passthru))
        };
        let by_id = self
            .docker
            .endpoints
            .by_id
            .iter()
            .filter(|(_, endpoint)| endpoint.waits().is_some_and(is_beside));
        let found: Vec<_> = by_id.map(|(id, _)| id.clone()).collect();
        for id in found {
            tracing::warn!(endpoint = %id, by = %new.id, "Docker has replaced an endpoint by another: deleting its link");
            self.end_endpoint(&id);
        }
    }

    /// Forgets the endpoints whose lease was over before they were known here.
    fn forget_those_without_lease(&mut self) {
        let is_over = |record: &EndpointRecord| {
            matches!(&record.source, AddressSource::Leased(of) if held_by(self.registry, of).is_none())
                && !cut(Rule::EndpointWithoutLease)
        };
        for id in self
            .docker
            .endpoints(|endpoint| endpoint.rests().is_some_and(is_over))
        {
            self.forget_and_answer(&id, None);
        }
    }

    /// Gives an endpoint's interface as long to be found as its link may stay in the host's namespace.
    pub(super) fn await_container(&mut self, id: &DoorId) {
        let now = self.now();
        let record = self.docker.endpoint(id).and_then(Endpoint::waits);
        let lease = record.and_then(|record| Some(self.lease_of(record, now.boot)?.1.id));
        lease.into_iter().for_each(|lease| {
            self.registry
                .seeking
                .wait_for(&mut self.registry.tables, lease, SLOW_START)
        });
    }

    /// Gives the interface of an endpoint without a link in the host's namespace a minute to be found: it is inside a container by
    /// now, or gone.
    fn await_inside(&mut self, id: &DoorId) {
        let Some(record) = self.docker.endpoint(id).and_then(Endpoint::rests) else {
            return;
        };
        // An endpoint that dockerd forgot says nothing about the container for which the same lease waits under another
        // endpoint.
        let has_its_lease =
            |other: &EndpointRecord| (other.mac, &other.source) == (record.mac, &record.source);
        let mut waiting = self.docker.endpoints.by_id.values();
        if waiting.any(|endpoint| endpoint.waits().is_some_and(has_its_lease)) {
            return;
        }
        let lease = self.lease_of(record, self.now().boot).map(|(_, of)| of.id);
        lease.into_iter().for_each(|lease| {
            self.registry
                .seeking
                .wait_less(&mut self.registry.tables, lease)
        });
    }

    /// Gives back the leases of unknown endpoints: the previous daemon was killed before it had recorded them, so that Docker never
    /// heard about them, or after it had deleted them.
    pub(crate) fn give_back_those_without_endpoint(&mut self) {
        // Such a lease may belong to an endpoint that could not be read.
        if self.docker.networks.is_unread {
            return;
        }
        let is_one = |holding: &&Binding| {
            is_in_network(&holding.attachment)
                && holding.holds_on_host()
                && self
                    .docker
                    .endpoints
                    .leased_by(&holding.attachment)
                    .next()
                    .is_none()
        };
        let found = bindings(self.registry).filter(is_one);
        let found: Vec<_> = found.map(|holding| holding.id).collect();
        found
            .into_iter()
            .for_each(|id| leave(self.registry, id, None));
    }
}
