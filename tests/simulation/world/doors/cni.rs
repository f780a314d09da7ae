//! CNI's runtimes: they make the interface before they ask, say where it is, and put what they are told on it.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};
use leasehold_core::effect::{Answer, Call, Failure, RequestId};
use leasehold_core::grant::policy::Policy;
use leasehold_core::identity::Attachment;
use leasehold_core::link::{ByName, Cookie, LinkRoute, Place};
use leasehold_core::record::{Record, RecordState};
use leasehold_core::source::Lease;
use leasehold_core::wire::Mac;

use crate::plan::{HIDDEN, Plan, happens};
use crate::watch::Rule;
use crate::world::actor::{Act, Actor, Asked, Door, Phase, Role};
use crate::world::answers::attachment_of;
use crate::world::interface::routes_of;
use crate::world::seen::Seen;
use crate::world::{MILLI, SECOND, World};

/// An address outside every pool.
const WRONG: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 2, 1), 24);

/// The door of CNI.
pub(super) struct Cni;

impl Door for Cni {
    fn serves(&self, _: &Plan, _: usize) -> bool {
        true
    }

    fn equips(&self, actor: &mut Actor, plan: &Plan, index: usize) {
        if plan.hides && index % 2 == 1 {
            actor.directory = HIDDEN;
        }
        let policy = &mut actor.profile.policy;
        (policy.late_routes, policy.plain_routes) = (plan.late_routes, plan.late_routes);
    }

    fn names(&self, actor: &Actor, container: &str) -> (PathBuf, Attachment) {
        let network = format!("net{}", actor.lan);
        (
            PathBuf::from(format!("{}/{container}", actor.directory)),
            Attachment::cni(network, container, "eth0"),
        )
    }

    fn place(&self, actor: &Actor) -> Place {
        Place::InNetns(ByName {
            netns: actor.path.clone(),
            ifname: "eth0".to_owned(),
            host_too: false,
        })
    }

    fn makes(&self, world: &mut World, index: usize) {
        let actor = &world.actors[index];
        let (path, mac, lan) = (actor.path.clone(), actor.mac, actor.lan);
        let at = world.kernel.create(&path, "eth0", mac, 1500, lan);
        (world.actors[index].at, world.actors[index].netns) = (Some(at), Some(at.0));
        world.furnish(index, at);
        world.wants_what_is_kept(index);
        world.note(|| {
            format!(
                "actor {index} makes {} with {mac} at {at:?}",
                path.display()
            )
        });
    }

    fn leased(&self, world: &mut World, index: usize, lease: &Lease) {
        let Some(at) = world.actors[index]
            .at
            .filter(|at| world.kernel.link(*at).is_some())
        else {
            return world.end_by_del(index);
        };
        if world.plan.plugs_late {
            world.actors[index].meddled = true;
            world.act_after(index, 0, 60 * SECOND, Act::Plug);
        } else {
            world.configure(index, at, lease);
        }
        world.actors[index].phase = Phase::Live;
        world.stay(index);
    }

    /// Main plugins put on what they are told. Where routes come late, those are the routes without a metric whose router is in
    /// the lease's subnet.
    fn routes(&self, _: &World, actor: &Actor, lease: &Lease) -> Vec<LinkRoute> {
        let is_near = |via: IpAddr| IpNet::from(lease.address).contains(&via);
        let is_plain = |route: &LinkRoute| route.metric.is_none() && route.via.is_some_and(is_near);
        let Policy {
            metric,
            late_routes,
            ..
        } = actor.profile.policy;
        routes_of(lease, metric)
            .into_iter()
            .filter(|route| !late_routes || is_plain(route))
            .collect()
    }

    fn next(&self, world: &mut World, index: usize) {
        world.next_of_cni(index);
    }

    fn acts(&self, world: &mut World, index: usize, act: Act) {
        match act {
            Act::Again => world.ask_again(index),
            Act::Plug => world.plug_as_told(index),
            _ => {}
        }
    }

    fn ends(&self, world: &mut World, index: usize) {
        world.goes_elsewhere(index, "clients on another host");
        world.show(&Seen::Leaves(index));
        world.actors[index].phase = Phase::Ending;
        world.ask_del(index);
    }

    fn answered(&self, world: &mut World, index: usize, asked: &Asked, answer: Option<Answer>) {
        match (&asked.role, world.actors[index].phase, answer) {
            (Role::Again, Phase::Live, Some(answer)) => world.added_again(index, asked, answer),
            (Role::Again, Phase::Live, None) => {
                world.excuse_lapsed(index);
                if world.actors[index].excused {
                    world.end_by_del(index);
                }
            }
            (Role::Check, Phase::Live, Some(answer)) => world.checked(index, answer),
            (Role::WrongCheck, _, Some(Answer::Checked)) => {
                world.fail(Rule::WrongAnswer, format!("CHECK of {WRONG}"));
            }
            _ => {}
        }
    }
}

impl World {
    /// Asks for a container's end.
    pub(super) fn ask_del(&mut self, index: usize) {
        let grace = self.plan.grace.filter(|_| self.actors[index].returns());
        let attachment = self.actors[index].attachment.clone();
        self.ask(index, Role::Del, Call::Del { attachment, grace }, self.now);
    }

    /// Does something with a running container.
    fn next_of_cni(&mut self, index: usize) {
        match self.rng.u32(..100) {
            0..20 => {
                let expected = self.actors[index]
                    .told
                    .iter()
                    .map(|lease| lease.address.into())
                    .collect();
                self.ask_check(index, Role::Check, expected);
            }
            20..25 => self.ask_check(index, Role::WrongCheck, vec![WRONG.into()]),
            25..35 => {
                self.ask_again(index);
                self.stay(index);
            }
            35..40 if self.plan.flapping > 0 && self.plan.hears_all() => {
                let at = self.actors[index]
                    .at
                    .expect("a container that runs has a link");
                self.lower(at);
                self.actors[index].foreign_routes.clear();
                self.stats.count("links set down");
                self.stay(index);
            }
            35..45 if self.plan.flapping > 0 => {
                let at = self.actors[index]
                    .at
                    .expect("a container that runs has a link");
                self.carrier(at, false);
                self.stats.count("carrier lost");
                self.stay(index);
            }
            45..50 if self.plan.unruly == 0 => {
                self.intrude(index);
                self.stay(index);
            }
            50..54 if self.plan.unruly > 0 => {
                self.strip(index);
                self.stay(index);
            }
            35..55 => self.stay(index),
            55..65 if self.plan.collects.is_some() => self.end_by_collection(index),
            65..75 if self.plan.orders.is_some() => self.end_by_release(index),
            _ if !happens(&mut self.rng, self.plan.unruly) => self.end_by_del(index),
            _ => match self.rng.u32(..4) {
                0 => self.act_after(index, 0, 0, Act::Unlink),
                1 => {
                    self.end_by_del(index);
                    let id = RequestId(self.next_request - 1);
                    self.act_after(index, 0, 20 * MILLI, Act::HangUp(id));
                }
                _ => self.die(index),
            },
        }
    }

    /// Has a container take no address but one that is kept for another.
    fn wants_what_is_kept(&mut self, index: usize) {
        if !self.plan.insists || self.rng.bool() {
            return;
        }
        let actor = &self.actors[index];
        let lan = &self.segments[actor.lan].lan;
        let is_kept = |record: &&Record| {
            let kept = record.kept.is_some() && record.state == RecordState::Releasing;
            kept && record.identity.lan == *lan && record.identity.client_id != actor.client_id
        };
        let mut kept = self.store.durable.values().filter(is_kept);
        self.actors[index].wanted = kept.next().map(|record| record.lease.ip());
    }

    /// Has the main plugin put on what its container was told, if that still runs.
    fn plug_as_told(&mut self, index: usize) {
        let actor = &self.actors[index];
        let at = actor.at.filter(|at| self.kernel.link(*at).is_some());
        if let (Phase::Live, Some(at), Some(lease)) = (actor.phase, at, actor.told.clone()) {
            self.note(|| format!("actor {index} puts {} on", lease.address));
            self.configure(index, at, &lease);
            self.actors[index].meddled = false;
        }
    }

    fn ask_again(&mut self, index: usize) {
        let actor = &self.actors[index];
        if !matches!(actor.phase, Phase::Adding | Phase::Live) || self.daemon.is_none() {
            return;
        }
        let add = actor.add(
            self.segments[actor.lan].lan.clone(),
            Duration::from_secs(12),
            &self.plan,
        );
        self.stats.count("ADD again");
        self.ask(index, Role::Again, Call::Add(Box::new(add)), self.now);
    }

    /// Asks for the same attachment from another namespace.
    fn intrude(&mut self, index: usize) {
        let actor = &self.actors[index];
        let lan = actor.lan;
        let mac = Mac([
            2,
            0xcc,
            actor.mac.0[2],
            actor.mac.0[3],
            actor.mac.0[4],
            actor.mac.0[5],
        ]);
        let mut add = actor.add(
            self.segments[lan].lan.clone(),
            Duration::from_secs(12),
            &self.plan,
        );
        let Place::InNetns(at) = &mut add.place else {
            unreachable!("it is in a namespace")
        };
        at.netns.as_mut_os_string().push("-too");
        let netns = at.netns.clone();
        let (cookie, _) = self.kernel.create(&netns, "eth0", mac, 1500, lan);
        self.stats.count("intruders");
        self.ask(
            index,
            Role::Intruder(cookie),
            Call::Add(Box::new(add)),
            self.now,
        );
    }

    fn ask_check(&mut self, index: usize, role: Role, expected: Vec<IpNet>) {
        let attachment = self.actors[index].attachment.clone();
        self.ask(
            index,
            role,
            Call::Check {
                attachment,
                expected,
            },
            self.now,
        );
        self.stay(index);
    }

    /// Handles an intruder's lease. The core grants one if it does not know that the attachment is held, because that was lost
    /// with the store and the container was not adopted. The container has then lost its place, even if the answer never arrives.
    pub(in crate::world) fn rob(&mut self, id: RequestId) {
        let intrudes = |asked: &&Asked| self.was_damaged && matches!(asked.role, Role::Intruder(_));
        let asked = self.requests.get(&id).filter(intrudes);
        let Some(attachment) = asked.and_then(|asked| attachment_of(&asked.call)).cloned() else {
            return;
        };
        let robbed = self
            .actors
            .iter_mut()
            .filter(|actor| actor.attachment == attachment);
        robbed.for_each(|actor| (actor.excused, actor.stranded) = (true, Some(false)));
        self.show(&Seen::Gone(&attachment));
    }

    /// Takes an intruder's namespace away. In a calm world the intruder was told where its attachment is.
    pub(in crate::world) fn intruded(&mut self, cookie: Cookie, answer: &Answer) {
        let died = self.kernel.doom(cookie);
        self.tell(died);
        match answer {
            Answer::Failed(Failure::Attached { .. } | Failure::Cancelled(_)) => {
                self.stats.count("intruders refused")
            }
            Answer::Failed(_) if !self.calm => {}
            Answer::Leased { .. } if self.was_damaged => {}
            answer => self.fail(Rule::WrongAnswer, format!("to an intruder: {answer:?}")),
        }
    }

    fn added_again(&mut self, index: usize, asked: &Asked, answer: Answer) {
        self.excuse_lapsed(index);
        let actor = &self.actors[index];
        let Some(told) = actor.told.clone() else {
            return;
        };
        match answer {
            Answer::Leased { .. }
                if let Some(lease) = asked
                    .lease
                    .as_ref()
                    .filter(|lease| lease.address == told.address || actor.excused) =>
            {
                self.stats.count("ADD again leased");
                // A lease that had ended took its address off the link; main plugins put on what they are told.
                if let Some(at) = actor.at {
                    self.actors[index].meddled |= lease.address != told.address;
                    self.plug(index, at, lease);
                }
                self.actors[index].told = Some(lease.clone());
                self.actors[index].told_at = self.now;
            }
            // A failed ADD ends with a DEL.
            Answer::Failed(_) if actor.excused => self.end_by_del(index),
            Answer::Failed(_) if !self.calm => {}
            // The first took the time of both.
            Answer::Failed(Failure::TimedOut(..)) if asked.behind => {}
            answer => self.fail(
                Rule::LeaseLost,
                format!("second ADD of {}: {answer:?}", actor.attachment),
            ),
        }
    }

    fn checked(&mut self, index: usize, answer: Answer) {
        self.excuse_lapsed(index);
        match answer {
            Answer::Checked => self.stats.count("CHECK passed"),
            Answer::Failed(Failure::NotOnLink { .. }) if self.actors[index].meddled => {
                self.stats.count("CHECK missed the address");
            }
            Answer::Failed(Failure::Changing(_)) => {
                self.stats.count("CHECK found the interface changing");
            }
            Answer::Failed(failure) => {
                self.stats.count("CHECK failed");
                if self.calm && !self.actors[index].excused {
                    let attachment = self.actors[index].attachment.clone();
                    self.fail(Rule::Failed, format!("CHECK of {attachment}: {failure}"));
                }
                if self.actors[index].excused {
                    self.end_by_del(index);
                }
            }
            _ => {}
        }
    }
}
