//! The callers of networks with local ranges: host-local's runtimes, which need no interface.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::effect::{Answer, Call, Failure, RangeAdd, RangeAnswer, RangeCall, RequestId};
use leasehold_core::identity::{Attachment, ClientId};
use leasehold_core::link::LinkCause;
use leasehold_core::range::NoAddress;

use crate::plan::Ranges as Plan;
use crate::subject::container;
use crate::watch::Rule;
use crate::world::actor::{Asked, Errand, Phase};
use crate::world::local::{Container, directory_of, network_name, sets_of};
use crate::world::seen::Seen;
use crate::world::{Event, MILLI, Micros, SECOND, World};

/// How long an ADD may take.
const TIMEOUT: Duration = Duration::from_secs(12);
/// How soon a dead namespace is noticed if no message is lost.
const NOTICED: Micros = SECOND;
/// How soon something that must go on does.
const SOON: Micros = 5 * SECOND;

/// Containers with addresses from local ranges.
#[derive(Debug)]
pub(super) struct Ranges;

impl Errand for Ranges {
    fn begins(&self, world: &mut World, lan: usize) {
        if world.plan.ranges.is_some() {
            world.after(MILLI, SECOND, Event::Errand(lan, &Self));
        }
    }

    fn runs(&self, world: &mut World, lan: usize) {
        let Some(plan) = world.plan.ranges.clone() else {
            return;
        };
        if world.winding_down {
            return world.finish_locals(lan);
        }
        let pause = world.plan.active.as_micros() as Micros / 100;
        let pause = if world.rng.u32(..3) == 0 {
            20 * MILLI
        } else {
            pause
        };
        world.after(MILLI, pause.max(2 * MILLI), Event::Errand(lan, &Self));
        match world.rng.u32(..20) {
            0 => world.ask_about(lan, Call::Ranges(RangeCall::List)),
            1 => world.collect_local(lan),
            2 | 3 if plan.strays => world.stray(lan, &plan),
            _ => {
                let index = lan * plan.containers + world.rng.usize(..plan.containers);
                world.act_locally(index, &plan);
            }
        }
    }

    fn answered(&self, world: &mut World, lan: usize, asked: &Asked, answer: Option<Answer>) {
        match (&asked.call, answer) {
            (Call::Ranges(RangeCall::Add(add)), answer) => world.gave(add, answer),
            (Call::Del { attachment, .. }, answer) => world.ended(attachment, answer),
            (Call::Check { attachment, .. }, Some(answer)) => {
                world.checked_local(attachment, &answer)
            }
            (Call::Collect { .. }, Some(Answer::Collected)) => {
                world.stats.count("GC of local ranges")
            }
            (Call::Collect { network, .. }, Some(answer)) if world.calm => {
                world.fail(Rule::Failed, format!("GC of {network}: {answer:?}"));
            }
            _ => {}
        }
        if world.winding_down {
            world.after(MILLI, SECOND, Event::Errand(lan, &Self));
        }
    }

    /// Handles that the caller of an ADD gives up.
    fn gives_up(&self, world: &mut World, _: usize, id: RequestId) {
        let Some(asked) = world.requests.get_mut(&id).filter(|asked| !asked.gone) else {
            return;
        };
        asked.gone = true;
        world
            .stats
            .count("ADDs from local ranges that were given up");
        world.after(10, MILLI, Event::HungUp(world.run, id));
    }

    fn hung_up(&self, world: &mut World, asked: &Asked, _: bool) {
        let Call::Ranges(RangeCall::Add(add)) = &asked.call else {
            return;
        };
        let Some(index) = world.local.of(&add.attachment) else {
            return;
        };
        world.local.containers[index].call = None;
        match world.rng.u32(..3) {
            // Nobody says DEL: the ADD goes with its caller, unless it had just been answered.
            0 => world.loses_namespace(index),
            _ => world.del_local(index),
        }
    }

    fn rebooted(&self, world: &mut World, lan: usize) {
        for one in world
            .local
            .containers
            .iter_mut()
            .filter(|one| one.lan == lan)
        {
            (one.phase, one.netns, one.call, one.died) = (Phase::Idle, None, None, Some(world.now));
        }
        if world.plan.ranges.is_some() && world.winding_down {
            world.after(MILLI, SECOND, Event::Errand(lan, &Self));
        }
    }
}

impl World {
    fn ask_about(&mut self, lan: usize, call: Call) {
        if self.daemon.is_some() {
            let id = self.file_errand(lan, &Ranges, call);
            self.after(20, 2_000, Event::Request(id));
        }
    }

    /// Asks for something about a container, in the order of its callers.
    fn ask_for(&mut self, index: usize, call: Call) -> RequestId {
        let lan = self.local.containers[index].lan;
        let id = self.file_errand(lan, &Ranges, call);
        let event = if self.daemon.is_some() {
            Event::Request(id)
        } else {
            Event::Cut(id)
        };
        self.after(20, 2_000, event);
        id
    }

    /// Lets a runtime send a GC.
    pub(in crate::world) fn collect_local(&mut self, lan: usize) {
        let networks = self.plan.ranges.as_ref().map_or(0, |plan| plan.networks);
        for network in 0..networks {
            self.ask_about(
                lan,
                Call::Collect {
                    network: network_name(lan, network),
                    keep: Vec::new(),
                },
            );
        }
    }

    /// Does something with a container.
    fn act_locally(&mut self, index: usize, plan: &Plan) {
        let one = &self.local.containers[index];
        match (one.phase, one.call, self.rng.u32(..10)) {
            (Phase::Idle, ..) => self.begin_local(index, plan),
            (Phase::Adding, Some(id), 0..2) => {
                self.local.containers[index].phase = Phase::Ending;
                self.after(0, 5 * MILLI, Event::GivesUp(id));
            }
            (Phase::Adding, Some(_), 2) => self.del_local(index),
            (Phase::Adding, None, _) => self.add_once_more(index, plan),
            (Phase::Live, _, 0..2) => {
                let attachment = one.attachment.clone();
                self.ask_for(
                    index,
                    Call::Check {
                        attachment,
                        expected: Vec::new(),
                    },
                );
            }
            (Phase::Live, _, 2) => self.ask_again_locally(index, plan),
            (Phase::Live, _, 3) => self.loses_namespace(index),
            (Phase::Live, _, 4..6) => self.del_local(index),
            (Phase::Ending, None, _) => self.del_local(index),
            _ => {}
        }
    }

    fn begin_local(&mut self, index: usize, plan: &Plan) {
        let spooled = |by: &Attachment| self.spool.iter().any(|spooled| spooled.attachment == *by);
        let again = self.local.containers[index].number > 0
            && !spooled(&self.local.containers[index].attachment);
        let again = again && self.rng.u32(..4) == 0;
        let now = self.now;
        let one = &mut self.local.containers[index];
        one.number += u32::from(!again);
        let name = format!("l{index}-{}", one.number);
        one.path = PathBuf::from(format!("/run/netns/{name}"));
        one.attachment = Attachment::cni(network_name(one.lan, one.network), &*name, "eth0");
        (one.phase, one.since) = (Phase::Adding, now);
        let path = one.path.clone();
        let cookie = self.kernel.create_empty(&path);
        self.local.containers[index].netns = Some(cookie);
        self.add_local(index, plan);
    }

    fn range_add(&self, index: usize, plan: &Plan) -> Call {
        let one = &self.local.containers[index];
        let network = network_name(one.lan, one.network);
        let identity =
            || ClientId::new(format!("\0pod-{index}").into_bytes()).expect("long enough");
        Call::Ranges(RangeCall::Add(Box::new(RangeAdd {
            attachment: one.attachment.clone(),
            netns: one.path.clone(),
            lan: self.segments[one.lan].lan.clone(),
            returns_as: plan.pods.then(identity),
            sets: sets_of(plan, one.lan, one.network),
            asked: Vec::new(),
            directory: directory_of(&network),
            detection: plan.detection,
            timeout: TIMEOUT,
        })))
    }

    fn add_local(&mut self, index: usize, plan: &Plan) {
        let call = self.range_add(index, plan);
        let id = self.ask_for(index, call);
        self.local.containers[index].call = Some(id);
    }

    /// Lets a shim ask the next daemon while its ADD has time; after that its runtime sends a DEL.
    fn add_once_more(&mut self, index: usize, plan: &Plan) {
        match self.now < self.local.containers[index].since + TIMEOUT.as_micros() as Micros {
            true => self.add_local(index, plan),
            false => self.del_local(index),
        }
    }

    /// Asks a second time without a DEL, which fails while the namespace lives.
    fn ask_again_locally(&mut self, index: usize, plan: &Plan) {
        let call = self.range_add(index, plan);
        self.ask_for(index, call);
        self.stats.count("second ADDs from local ranges");
    }

    fn del_local(&mut self, index: usize) {
        let one = &mut self.local.containers[index];
        one.phase = Phase::Ending;
        let attachment = one.attachment.clone();
        let id = self.ask_for(
            index,
            Call::Del {
                attachment,
                grace: None,
            },
        );
        self.local.containers[index].call = Some(id);
    }

    /// Ends a container without a DEL.
    fn loses_namespace(&mut self, index: usize) {
        let now = self.now;
        let one = &mut self.local.containers[index];
        (one.phase, one.call, one.died) = (Phase::Idle, None, Some(now));
        self.stats.count("containers of local ranges that died");
        self.empty(index);
    }

    fn empty(&mut self, index: usize) {
        let attachment = self.local.containers[index].attachment.clone();
        self.show(&Seen::Gone(&attachment));
        let Some(cookie) = self.local.containers[index].netns.take() else {
            return;
        };
        let died = self.kernel.doom(cookie);
        self.tell(died);
    }

    /// Handles the answer to an ADD, or its broken connection.
    fn gave(&mut self, add: &RangeAdd, answer: Option<Answer>) {
        let Some(index) = self.local.of(&add.attachment) else {
            return;
        };
        let one = &mut self.local.containers[index];
        let adds = one.phase == Phase::Adding;
        if one.phase == Phase::Ending {
            // Its caller has given up, and says DEL soon.
            one.call = None;
        }
        match answer {
            Some(Answer::Ranges(RangeAnswer::Given(given))) if adds => {
                (one.phase, one.call, one.given) = (Phase::Live, None, given);
                self.stats.count("addresses of local ranges");
            }
            // The shim asks the next daemon again, mostly.
            None if adds => {
                one.call = None;
                if self.winding_down || self.rng.u32(..4) == 0 {
                    self.del_local(index);
                }
            }
            Some(Answer::Failed(failure)) => {
                self.refuses(index, adds, &failure);
                if adds && self.local.containers[index].phase == Phase::Adding {
                    self.del_local(index);
                }
            }
            _ => {}
        }
    }

    /// Judges why an ADD failed.
    fn refuses(&mut self, index: usize, is_first: bool, failure: &Failure) {
        let (one, now) = (&self.local.containers[index], self.now);
        // Nobody can know of the end of a namespace that was not seen when its ADD came.
        let unseen = || {
            self.store
                .ranges
                .values()
                .filter(|record| !record.past && record.cookie.is_none())
        };
        let explained = match failure {
            Failure::NoAddress {
                none: NoAddress::Full { .. },
                ..
            } => {
                self.stats.count("full local ranges");
                let takes = |other: &&Container| {
                    let died = other.died.is_some_and(|died| now < died + NOTICED);
                    let is_other = other.attachment != one.attachment;
                    is_other && other.lan == one.lan && (other.phase != Phase::Idle || died)
                };
                let own = 1 + usize::from(one.died.is_some_and(|died| now < died + NOTICED));
                let of_lan = unseen()
                    .filter(|record| record.lan == self.segments[one.lan].lan)
                    .count();
                let taken = self.local.containers.iter().filter(takes).count() + own + of_lan;
                // A file of a stray may be found after its DEL.
                self.plan
                    .ranges
                    .as_ref()
                    .is_some_and(|plan| plan.strays || taken > plan.size as usize)
            }
            Failure::NoAddress {
                none: NoAddress::Duplicate { .. },
                ..
            } => {
                self.stats.count("second addresses that were refused");
                let is_unseen = unseen().any(|record| record.attachment == one.attachment);
                !is_first || is_unseen || one.died.is_some_and(|died| now < died + NOTICED)
            }
            Failure::Link {
                cause: LinkCause::NoNetns(_),
                ..
            } => {
                // An ADD that came after its own DEL may look for the namespace while the next one is being made.
                !is_first
                    || one.netns.is_none()
                    || one.died.is_some_and(|died| now < died + NOTICED)
            }
            Failure::Cancelled(_) | Failure::Attached { .. } => true,
            _ => false,
        };
        if self.calm && !explained && !self.winding_down {
            let detail = format!("ADD of {} from local ranges: {failure}", one.attachment);
            self.fail(Rule::Failed, detail);
        }
    }

    /// Handles the answer to a DEL, or its way into the spool.
    fn ended(&mut self, attachment: &Attachment, answer: Option<Answer>) {
        if let Some(answer) = answer.filter(|answer| *answer != Answer::Deleted) {
            return self.fail(
                Rule::Failed,
                format!("DEL of {attachment} from local ranges: {answer:?}"),
            );
        }
        if let Some(index) = self
            .local
            .of(attachment)
            .filter(|index| self.local.containers[*index].phase == Phase::Ending)
        {
            let one = &mut self.local.containers[index];
            (one.phase, one.call) = (Phase::Idle, None);
            self.empty(index);
        }
    }

    fn checked_local(&mut self, attachment: &Attachment, answer: &Answer) {
        self.stats.count("CHECKs of local ranges");
        let lives = self
            .local
            .of(attachment)
            .is_some_and(|index| self.local.containers[index].phase == Phase::Live);
        if lives && self.calm && *answer != Answer::Checked {
            self.fail(Rule::Failed, format!("CHECK of {attachment}: {answer:?}"));
        }
    }

    /// Lets a stray host-local give an address that has no file, or end one of its containers and ask us for that.
    fn stray(&mut self, lan: usize, plan: &Plan) {
        let of_lan = self
            .local
            .strays
            .values()
            .find(|by| is_on(by, lan))
            .cloned();
        if let Some(attachment) = of_lan.filter(|_| self.daemon.is_some() && self.rng.bool()) {
            return self.end_stray(lan, attachment);
        }
        let network = self.rng.usize(..plan.networks);
        let name = network_name(lan, network);
        let range = *sets_of(plan, lan, network)
            .ranges()
            .next()
            .expect("there is one")
            .1;
        let IpAddr::V4(first) = range.first else {
            return;
        };
        let address = IpAddr::V4((first.to_bits() + self.rng.u32(..plan.size)).into());
        // It goes by the files of its network alone.
        let has_it = |one: &Container| {
            one.given
                .iter()
                .any(|given| given.address.addr() == address)
        };
        let is_given = self
            .local
            .containers
            .iter()
            .any(|one| one.lan == lan && one.phase == Phase::Live && has_it(one));
        let is_there = self.local.files.keys().any(|(_, there)| *there == address);
        if is_there || is_given {
            return;
        }
        self.local.strayed += 1;
        let by = format!("stray-{}", self.local.strayed);
        self.note(|| format!("a stray host-local gives {address} of {name} to {by}"));
        self.stats.count("addresses that a stray host-local gave");
        self.local
            .files
            .insert((directory_of(&name), address), by.clone());
        self.local
            .strays
            .insert(by.clone(), Attachment::cni(name, by, "eth0"));
    }

    fn end_stray(&mut self, lan: usize, attachment: Attachment) {
        self.local.strays.remove(container(&attachment));
        if let Attachment::Cni { network, .. } = &attachment {
            self.look_into(&network.clone(), true);
        }
        self.ask_about(
            lan,
            Call::Del {
                attachment,
                grace: None,
            },
        );
    }

    /// Ends what has begun to end, while nothing else begins.
    fn finish_locals(&mut self, lan: usize) {
        let plan = self.plan.ranges.clone().expect("there are local ranges");
        for index in
            (0..self.local.containers.len()).filter(|index| *index / plan.containers == lan)
        {
            let one = &self.local.containers[index];
            match (one.phase, one.call) {
                (Phase::Ending, None) => self.del_local(index),
                (Phase::Adding, None) => self.add_once_more(index, &plan),
                _ => {}
            }
        }
        if !self.local.is_settled() {
            self.after(SECOND, SOON, Event::Errand(lan, &Ranges));
        }
    }

    /// Asks for the end of everything that runs.
    pub(in crate::world) fn end_locals(&mut self) {
        for index in (0..self.local.containers.len())
            .filter(|index| self.local.containers[*index].phase == Phase::Live)
            .collect::<Vec<_>>()
        {
            self.del_local(index);
        }
        for attachment in self.local.strays.values().cloned().collect::<Vec<_>>() {
            let lan = (0..self.segments.len())
                .find(|lan| is_on(&attachment, *lan))
                .unwrap_or(0);
            self.end_stray(lan, attachment);
        }
    }

    /// Looks at all ranges. A GC gives back what belongs to nobody that runs.
    pub(in crate::world) fn examine_ranges(&mut self) {
        let Some(plan) = self.plan.ranges.clone() else {
            return;
        };
        let leaked = self.leaked();
        // Nobody hears of the end of a namespace that was not seen when its ADD came.
        let was_seen = |by: &&Attachment| {
            self.store
                .ranges
                .get(by)
                .is_none_or(|record| record.cookie.is_some())
        };
        if let Some(leaked) = leaked.iter().find(was_seen).filter(|_| self.calm) {
            return self.fail(
                Rule::Orphan,
                format!("{leaked} has an address of a local range"),
            );
        }
        self.stats.count_many(
            "addresses of local ranges that only a GC gave back",
            leaked.len(),
        );
        for (lan, network) in
            (0..self.segments.len()).flat_map(|lan| (0..plan.networks).map(move |of| (lan, of)))
        {
            let name = network_name(lan, network);
            self.look_into(&name, true);
            self.inquire(Call::Collect {
                network: name,
                keep: Vec::new(),
            });
        }
        self.until(self.now + SOON, |_| false);
        if let Some(leaked) = self.leaked().first() {
            return self.fail(
                Rule::Orphan,
                format!("{leaked} has an address of a local range after a GC"),
            );
        }
        let nobodys = self
            .local
            .files
            .iter()
            .find(|(_, by)| !self.local.lives(by));
        if let Some(((directory, address), by)) = nobodys {
            let detail = format!("{by} has the file {address} in {}", directory.display());
            self.fail(Rule::Orphan, detail);
        }
    }

    /// Returns the holders of addresses from local ranges that do not run.
    fn leaked(&mut self) -> Vec<Attachment> {
        let Some(Answer::Ranges(RangeAnswer::Rows(rows))) =
            self.inquire(Call::Ranges(RangeCall::List))
        else {
            self.fail(Rule::Unanswered, "a list of ranges");
            return Vec::new();
        };
        let taken = rows
            .iter()
            .filter(|row| !row.is_fallback)
            .flat_map(|row| &row.taken);
        taken
            .filter(|taken| !self.local.lives(container(&taken.by)))
            .map(|taken| (*taken.by).clone())
            .collect()
    }
}

fn is_on(attachment: &Attachment, lan: usize) -> bool {
    matches!(attachment, Attachment::Cni { network, .. } if network.starts_with(&format!("local{lan}-")))
}
