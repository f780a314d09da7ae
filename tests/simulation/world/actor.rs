//! One runtime as its daemon sees it: its requests, the answers it got, its current activity.

use std::fmt::Debug;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv4Net;
use leasehold_core::effect::{Add, Answer, Call, ClientIdRule, Failure, RequestId};
use leasehold_core::grant::policy::Policy;
use leasehold_core::identity::{Attachment, ClientId, DoorId, Lan};
use leasehold_core::link::{Cookie, LinkRoute, Place};
use leasehold_core::pool::PoolId;
use leasehold_core::profile::Profile;
use leasehold_core::source::{ClientProfile, Lease, Servers, Wanted};
use leasehold_core::testbed::kernel::{At, host_mac};
use leasehold_core::time::WallTime;
use leasehold_core::wire::Mac;
use netns_fixtures::model::ClientKey;

use super::{Micros, World};
use crate::plan::{Plan, ROGUE, Rogue};
use crate::subject::{container, key_of};

/// The way in which a door's callers deal with a container, which is an actor's.
pub(super) trait Door: Sync {
    /// Returns whether this actor's containers ask through this door.
    fn serves(&self, plan: &Plan, index: usize) -> bool;

    /// Completes an actor that will ask through this door: what its ADDs say.
    fn equips(&self, actor: &mut Actor, plan: &Plan, index: usize);

    /// Returns whether the door tells containers apart by their Ethernet addresses.
    fn knows_by_mac(&self) -> bool {
        false
    }

    /// Returns the path of a container's namespace, and its attachment.
    fn names(&self, actor: &Actor, container: &str) -> (PathBuf, Attachment);

    /// Returns where an actor's ADD says that its interface is.
    fn place(&self, actor: &Actor) -> Place;

    /// Returns whether a container can begin on a LAN.
    fn is_ready(&self, _world: &World, _lan: usize) -> bool {
        true
    }

    /// Makes the container's namespace.
    fn makes(&self, world: &mut World, index: usize);

    /// Asks for the container's address.
    fn asks(&self, world: &mut World, index: usize, add: Add, patience: Micros) -> RequestId {
        world.ask(index, Role::Add, Call::Add(Box::new(add)), patience)
    }

    /// Goes on once the container has its address.
    fn leased(&self, world: &mut World, index: usize, lease: &Lease);

    /// Looks at why the container has no address.
    fn failed(&self, _world: &mut World, _index: usize, _failure: &Failure) {}

    /// Returns the routes that are put on the interface beside the lease's address.
    fn routes(&self, world: &World, actor: &Actor, lease: &Lease) -> Vec<LinkRoute>;

    /// Does something while the container runs.
    fn next(&self, world: &mut World, index: usize);

    /// Does what only this door's callers do.
    fn acts(&self, world: &mut World, index: usize, act: Act);

    /// Asks for the container's end.
    fn ends(&self, world: &mut World, index: usize);

    /// Returns whether only its caller can report that it died.
    fn dies_unseen(&self, _world: &World) -> bool {
        false
    }

    /// Takes the answer to a call that only this door's callers make; `None`: the connection broke.
    fn answered(&self, _world: &mut World, _index: usize, _asked: &Asked, _answer: Option<Answer>) {
    }
}

/// An occasional request through a door about a LAN.
pub(super) trait Errand: Debug + Sync {
    /// Plans the first request.
    fn begins(&self, world: &mut World, lan: usize);

    /// Makes the request, and plans the next one.
    fn runs(&self, world: &mut World, lan: usize);

    /// Takes the answer; `None`: the connection broke.
    fn answered(&self, world: &mut World, lan: usize, asked: &Asked, answer: Option<Answer>);

    /// Handles that the caller of a request about the LAN gives up; the daemon has heard it hang up. `open`: it had no answer.
    fn gives_up(&self, _world: &mut World, _lan: usize, _id: RequestId) {}
    fn hung_up(&self, _world: &mut World, _asked: &Asked, _open: bool) {}

    /// Returns whether this is how the engine of this attachment ends what it no longer has.
    fn tidies(&self, _attachment: &Attachment) -> bool {
        false
    }

    /// Ends these attachments of that engine.
    fn tidy(&self, _world: &mut World, _gone: &[Attachment]) {}

    /// Handles a reboot of the host.
    fn rebooted(&self, _world: &mut World, _lan: usize) {}
}

/// An actor, which makes one container after the other.
pub(crate) struct Actor {
    /// Its LAN.
    pub(crate) lan: usize,
    /// The door through which it asks.
    pub(super) door: &'static dyn Door,
    /// What its ADDs say to every server, and about every interface.
    pub(crate) profile: Profile,
    /// The pool from which its addresses come.
    pub(crate) pool: Option<PoolId>,
    /// Its endpoint, from its request until dockerd forgets it.
    pub(crate) endpoint: Option<DoorId>,
    /// The only address that its container may have.
    pub(crate) wanted: Option<Ipv4Addr>,
    /// The network of our own driver on which its endpoint was requested.
    pub(crate) network: Option<DoorId>,
    /// The routes that Docker was told when it joined that network.
    pub(crate) routes: Vec<LinkRoute>,
    /// Actors of one group share a client identifier.
    pub(crate) group: usize,
    /// The cluster of the group, and the group's name there, if there are several clusters.
    pub(crate) cluster: Option<(usize, usize)>,
    /// Whether the client identifier follows the container, not the group.
    pub(crate) own_ids: bool,
    /// Counts its containers; acts that were meant for an earlier one are void.
    pub(crate) generation: u32,
    pub(crate) container: u32,
    /// What it asks for.
    pub(crate) attachment: Attachment,
    pub(crate) client_id: ClientId,
    pub(crate) path: PathBuf,
    /// Where its engine keeps namespaces.
    pub(crate) directory: &'static str,
    /// Its link's Ethernet address.
    pub(crate) mac: Mac,
    /// Its namespace.
    pub(crate) netns: Option<Cookie>,
    /// Where its link is.
    pub(crate) at: Option<At>,
    /// When Docker last moved the link there.
    pub(crate) appeared: Micros,
    /// What it is doing.
    pub(crate) phase: Phase,
    /// What its ADD was answered.
    pub(crate) told: Option<Lease>,
    /// When it was told.
    pub(crate) told_at: Micros,
    /// Whether it may have lost its lease because of the world, not the daemon.
    pub(crate) excused: bool,
    /// Set if the store was lost while it lived: whether its adoption must succeed.
    pub(crate) stranded: Option<bool>,
    /// What others put on its interface.
    pub(crate) foreign: Vec<Ipv4Net>,
    pub(crate) foreign_routes: Vec<LinkRoute>,
    /// Whether the daemon cannot know everything on its interface: somebody changed it.
    pub(crate) meddled: bool,
    /// Whether the daemon has reported that somebody took its address off, after which it puts none on.
    pub(crate) stays_off: bool,
    /// When its main plugin last put an address on, by the wall clock.
    pub(crate) plugged: WallTime,
    /// When its last namespace disappeared without a DEL.
    pub(crate) died: Option<Micros>,
    /// When its container began, and when the previous container was gone.
    pub(crate) began: Micros,
    pub(crate) ended: Option<Micros>,
    /// The time before which nothing is handed to the daemon: callers' requests keep their order.
    pub(crate) order: Micros,
}

/// What an actor is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No container.
    Idle,
    /// ADD was asked.
    Adding,
    /// The container runs with its address.
    Live,
    /// It is being taken down.
    Ending,
}

/// What an actor does.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Makes a container.
    Begin,
    /// Does something with a running container.
    Next,
    /// Hangs up.
    HangUp(RequestId),
    /// Asks for DEL.
    Del,
    /// Asks for ADD again, with another caller.
    Again,
    /// Moves the link into the namespace.
    Appear,
    /// Joins the endpoint to the container again.
    Rejoin,
    /// Puts on the address that it was told, and sets the link up.
    Plug,
    /// Deletes the link.
    Unlink,
    /// Lets the namespace die.
    Die,
    /// Asks again after a refused connection.
    Retry(Box<Add>),
    /// Removes what is left of the container.
    CleanUp,
    /// The server should know of the release by now.
    Released(Ipv4Addr),
    /// The daemon should have dropped a cancelled ADD by now.
    Dropped(Attachment),
}

/// A request as its caller sees it.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Which actor asked, and for which of its containers.
    pub(crate) by: Option<(usize, u32)>,
    /// Why.
    pub(crate) role: Role,
    /// What.
    pub(crate) call: Call,
    /// Whether the caller went away.
    pub(crate) gone: bool,
    /// Whether the answer is on its way to the caller.
    pub(crate) answered: bool,
    /// The lease in its answer, if it is about an endpoint.
    pub(crate) lease: Option<Lease>,
    /// When it was asked, and until when its caller keeps trying.
    pub(crate) since: Micros,
    pub(crate) patience: Micros,
    /// The LAN that it is about and what is asked there, if it is not about a container.
    pub(super) errand: Option<(usize, &'static dyn Errand)>,
    /// Whether it waited for another call about the same thing when it arrived.
    pub(crate) behind: bool,
}

impl Asked {
    /// Returns a request that does not belong to an actor.
    pub(crate) fn by_nobody(role: Role, call: Call) -> Self {
        Self {
            by: None,
            role,
            call,
            gone: false,
            answered: false,
            lease: None,
            since: 0,
            patience: 0,
            errand: None,
            behind: false,
        }
    }
}

/// Why something is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The container's ADD.
    Add,
    /// Another ADD of the same attachment.
    Again,
    /// The container's DEL.
    Del,
    /// CHECK.
    Check,
    /// CHECK of an address that nobody was given.
    WrongCheck,
    /// ADD of the same attachment in another namespace, which is refused while the first namespace lives.
    Intruder(Cookie),
    /// A DEL that was left while the daemon was away.
    Spool(Attachment),
    /// LIST, in which this attachment must not hold anything.
    Audit(Option<Attachment>),
    /// GC.
    Collect,
    /// The container's endpoint, whose address Docker has.
    Endpoint,
    /// The endpoint's place in the container.
    Join,
    /// The endpoint's end.
    Unmake,
    /// The same call again, whose answer nobody waits for.
    Echo,
    /// Something is asked about a LAN.
    Errand,
    /// The world asks, and waits for the answer.
    Inquiry,
}

impl Actor {
    /// Returns an actor at rest.
    pub(super) fn new(plan: &Plan, index: usize, door: &'static dyn Door) -> Self {
        let lan = index % plan.lans;
        let group = index / plan.lans / plan.sharers as usize;
        // Every second actor uses its containers' own identifiers.
        let own_ids = plan.sharers == 1 && index.is_multiple_of(2);
        let deny = if plan.rogue == Some(Rogue::Denied) {
            vec![ROGUE]
        } else {
            Vec::new()
        };
        let servers = Servers {
            deny,
            ..Servers::default()
        };
        let profile = Profile {
            client: Arc::new(ClientProfile {
                servers,
                ..ClientProfile::default()
            }),
            on_parent: plan.ipvlan,
            grace: plan.grace.filter(|_| !own_ids),
            policy: Policy {
                on_change: plan.on_change,
                on_expiry: plan.on_expiry,
                metric: plan.metric,
                detection: plan.detection,
                ..Policy::default()
            },
            ..Profile::default()
        };
        let mut actor = Self {
            lan,
            door,
            profile,
            pool: None,
            endpoint: None,
            wanted: None,
            network: None,
            routes: Vec::new(),
            group,
            cluster: (plan.clusters > 1).then_some((
                group / 2 % plan.clusters,
                group / 2 / plan.clusters * 2 + group % 2,
            )),
            own_ids,
            generation: 0,
            container: 0,
            attachment: Attachment::cni(format!("net{lan}"), "", "eth0"),
            client_id: ClientId::new(vec![0, 0]).expect("two bytes are an identifier"),
            path: PathBuf::new(),
            directory: "/run/netns",
            mac: match plan.ipvlan {
                true => host_mac(lan),
                false => Mac([2, 0, 0, 0, (index >> 8) as u8, index as u8]),
            },
            netns: None,
            at: None,
            appeared: 0,
            phase: Phase::Idle,
            told: None,
            told_at: 0,
            excused: false,
            stranded: None,
            foreign: Vec::new(),
            foreign_routes: Vec::new(),
            meddled: false,
            stays_off: false,
            plugged: WallTime::from_epoch(Duration::ZERO),
            died: None,
            began: 0,
            ended: None,
            order: 0,
        };
        door.equips(&mut actor, plan, index);
        actor
    }

    /// Returns whether its door does not say where its interface is, because the interface comes after the lease.
    pub(crate) fn is_found_later(&self) -> bool {
        self.profile.wants.is_found_later()
    }

    /// Returns whether its engine says and hears each thing only once.
    pub(crate) fn is_told_once(&self) -> bool {
        self.profile.wants.told_once
    }

    /// Returns whether its successive containers have one identity.
    pub(crate) fn returns(&self) -> bool {
        !self.own_ids
    }

    /// Returns whether it was told an address of a local range, which no server knows.
    pub(crate) fn has_fallback(&self) -> bool {
        self.told
            .as_ref()
            .is_some_and(|told| !told.source.is_asked())
    }

    /// Returns a lease in the form in which it puts it on its interface: with its pool's prefix, and without a default route if
    /// its engine chooses one.
    pub(crate) fn as_told(&self, lease: &Lease) -> Lease {
        let mut lease = lease.clone();
        lease.address = self.address_as_told(lease.address);
        if self.chooses_default_route() {
            lease
                .routes
                .retain(|route| route.destination.prefix_len() > 0);
        }
        lease
    }

    /// Returns a leased address in the form in which its runtime is told it.
    pub(crate) fn address_as_told(&self, address: Ipv4Net) -> Ipv4Net {
        let of_pool = |prefix| Ipv4Net::new(address.addr(), prefix).expect("it is a prefix length");
        self.profile.policy.prefix.map_or(address, of_pool)
    }

    /// Returns whether its engine chooses a default route, through the lease's router or another.
    pub(crate) fn chooses_default_route(&self) -> bool {
        self.profile.policy.suppress_default_route
    }

    /// Returns the name that its client uses.
    pub(crate) fn client_key(&self) -> ClientKey {
        key_of(&self.client_id)
    }

    /// Returns its ADD.
    pub(crate) fn add(&self, lan: Lan, timeout: Duration, plan: &Plan) -> Add {
        Add {
            attachment: self.attachment.clone(),
            place: self.door.place(self),
            lan,
            client_id: ClientIdRule::Bytes(self.client_id.clone()),
            chaddr: None,
            wanted: self.wanted.map(|address| Wanted {
                address,
                preferred: false,
            }),
            profile: self.profile.clone(),
            timeout,
            hurried: Duration::ZERO,
            limits: self.pool.as_ref().map(PoolId::limits),
            fallback: plan
                .fallback
                .map(|fallback| Box::new(fallback.of_add(self.lan))),
        }
    }

    /// Goes on to another container: either the same one again or a new one, with either the same Ethernet address or a new one.
    pub(crate) fn turn_to_next(&mut self, index: usize, same: bool, same_mac: bool) {
        self.generation += 1;
        if !same {
            self.container += 1;
        }
        let same_mac = same_mac || same && self.door.knows_by_mac();
        if !same_mac && self.mac != host_mac(self.lan) {
            [self.mac.0[2], self.mac.0[3]] = (self.generation as u16).to_be_bytes();
        }
        let door = self.door;
        (self.path, self.attachment) = door.names(self, &format!("c{index}-{}", self.container));
        let id = match (self.own_ids, self.cluster) {
            (true, _) => format!("\0{}/net{}/eth0", container(&self.attachment), self.lan),
            (false, Some((cluster, pod))) => format!("\0prod-{cluster}/default/db-{pod}/eth0"),
            (false, None) => format!("\0group-{}", self.group),
        };
        self.client_id = ClientId::new(id.into_bytes()).expect("longer than two bytes");
        self.foreign.clear();
        self.foreign_routes.clear();
        self.routes.clear();
        self.wanted = None;
        (self.meddled, self.stays_off) = (false, false);
        (self.phase, self.told, self.excused, self.stranded) = (Phase::Adding, None, false, None);
    }
}
