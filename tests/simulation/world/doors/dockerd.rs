//! What dockerd does with a container, whichever driver makes its link: it asks before there is a link, and moves the link in
//! later.

use std::path::PathBuf;

use leasehold_core::identity::Attachment;
use leasehold_core::link::LinkRoute;
use leasehold_core::pool::{self, PoolId};
use leasehold_core::testbed::kernel::{At, DOCKER_NETNS, host_mac};

use crate::plan::happens;
use crate::world::actor::{Act, Actor, Phase};
use crate::world::interface::default_by;
use crate::world::seen::Seen;
use crate::world::{Event, MILLI, SECOND, World};

/// Makes an actor one of Docker's, whose addresses may come from a pool.
pub(super) fn equip(actor: &mut Actor, pool: Option<PoolId>) {
    actor.profile.wants = pool::wants(pool.as_ref());
    let policy = &mut actor.profile.policy;
    (policy.suppress_default_route, policy.follow_router) = (true, true);
    (policy.on_change, policy.on_expiry) = Default::default();
    policy.prefix = pool.as_ref().map(|pool| pool.subnet.prefix_len());
    actor.pool = pool;
}

/// Returns the path of a container's namespace, and the attachment of its endpoint in a pool.
pub(super) fn named(actor: &Actor, container: &str, pool: &str) -> (PathBuf, Attachment) {
    // If all have one Ethernet address, the endpoint's name tells them apart.
    let endpoint = match actor.mac == host_mac(actor.lan) {
        true => format!("endpoint:{container}-{}", actor.generation),
        false => actor.mac.to_string(),
    };
    let attachment = Attachment::Docker {
        pool: pool.into(),
        endpoint: endpoint.into(),
    };
    (
        PathBuf::from(format!("{DOCKER_NETNS}/{container}")),
        attachment,
    )
}

impl World {
    /// Makes a container's namespace.
    pub(super) fn make_for_docker(&mut self, index: usize) {
        let (path, mac) = (self.actors[index].path.clone(), self.actors[index].mac);
        let cookie = self.kernel.create_empty(&path);
        self.actors[index].netns = Some(cookie);
        self.note(|| {
            format!(
                "actor {index} makes {} for {mac} as {cookie:?}",
                path.display()
            )
        });
    }

    /// Lets Docker start a container that has its address: usually at once, but now and then after minutes, as when it relabels
    /// volumes.
    pub(in crate::world) fn starts(&mut self, index: usize) {
        let is_slow = !self.winding_down && self.rng.u32(..12) == 0;
        self.stats
            .count_if(is_slow, "containers that started slowly");
        let most = if is_slow { 540 * SECOND } else { 200 * MILLI };
        // Until then the lease is extended from the host's link, which a server in a macvlan does not hear.
        self.actors[index].excused |= is_slow && self.plan.beside;
        self.act_after(index, 0, most, Act::Appear);
    }

    /// Lets Docker move the link of a container into its namespace, some time after it was told the address.
    pub(super) fn appear(&mut self, index: usize, link: impl FnOnce(&mut Self) -> Option<At>) {
        if self.actors[index].phase != Phase::Live || self.actors[index].netns.is_none() {
            return;
        }
        // Its link was deleted when dockerd had left it too long.
        let Some(at) = link(self) else {
            return self.end_by_del(index);
        };
        self.note(|| format!("actor {index} has its link at {at:?}"));
        self.begins_anew(index);
        (self.actors[index].at, self.actors[index].appeared) = (Some(at), self.now);
        self.show(&Seen::Appeared(&self.actors[index].attachment.clone()));
        // The address that somebody took off was on another interface.
        self.actors[index].stays_off = false;
        self.link_changed(at.0, None);
        if let Some(arrival) = self.kernel.arrival(at) {
            self.after(10, 5 * MILLI, Event::Kernel(self.run, arrival));
        }
        self.act_after(index, 0, 50 * MILLI, Act::Plug);
    }

    /// Returns the routes that Docker was told, and its default route. That leads to the network's router: nobody can tell the
    /// daemon what it was before.
    pub(super) fn routes_for_docker(&self, actor: &Actor) -> Vec<LinkRoute> {
        let router = self
            .record_of(actor)
            .and_then(|record| record.lease.gateway);
        actor
            .routes
            .iter()
            .cloned()
            .chain(router.map(default_by))
            .collect()
    }

    /// Lets Docker configure the link. It still has what Docker was told.
    pub(super) fn plug_in(&mut self, index: usize) {
        let actor = &self.actors[index];
        let (Phase::Live, Some(at), Some(told)) = (actor.phase, actor.at, actor.told.clone())
        else {
            return;
        };
        self.kernel.raise(at);
        self.after(MILLI, 300 * MILLI, Event::Carrier(at, true));
        let told = self.actors[index].as_told(&told);
        self.configure(index, at, &told);
        // Once it is up, which is also reported.
        self.after(
            MILLI,
            50 * MILLI,
            Event::Kernel(self.run, self.kernel.arrival(at).expect("it is there")),
        );
    }

    /// Does something with a running Docker container.
    pub(super) fn next_of_docker(&mut self, index: usize, back: Act) {
        let Some(at) = self.actors[index].at else {
            return self.stay(index);
        };
        match self.rng.u32(..100) {
            0..10 if self.plan.flapping > 0 => {
                self.carrier(at, false);
                self.stats.count("carrier lost");
                self.stay(index);
            }
            10..15 if self.plan.unruly > 0 => {
                self.strip(index);
                self.stay(index);
            }
            // Not while what was due during a sleep is done all at once: an interface that is nowhere then is given up.
            15..25 if self.clocks.resumed == 0 || self.now > self.clocks.resumed + 60 * SECOND => {
                self.stats.count("links that moved away and back");
                self.unlink(index);
                self.begins_anew(index);
                self.actors[index].at = None;
                self.actors[index].foreign.clear();
                self.actors[index].foreign_routes.clear();
                self.act_after(index, MILLI, 5 * SECOND, back);
                self.stay(index);
            }
            0..45 => self.stay(index),
            // Usually the link goes first, and the address is released then.
            _ if !happens(&mut self.rng, self.plan.unruly) => {
                self.unlink(index);
                self.end_by_del(index);
            }
            _ => match self.rng.u32(..3) {
                0 => self.act_after(index, 0, 0, Act::Unlink),
                1 => self.end_by_del(index),
                _ => self.die(index),
            },
        }
    }
}
