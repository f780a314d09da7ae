//! How an interface gets from what it carries of a binding's grants to what it should carry.
//!
//! Look at the interface (for a larger MTU, at the LAN's link, and again) → apply the difference → forget what was there before. There is
//! one look or change at a time; a new wish waits meanwhile, and the latest wins. Each try begins with a look, so after a
//! failed or timed-out change the daemon looks before it changes anything else.
//!
//! The kernel removes others' addresses together with the first one of their subnet. The change that causes this puts them back.
//! If it is cut short, each stays as the /32 that stood in for it ([`crate::plan`]).
//!
//! Routes are put on when the address is there and the link is up. Until then they are due: after an ADD whose main plugin does
//! not get all of them, and after the link was set down, when the kernel removes all of them. A profile cannot prevent this
//! change: the interface must have what its lease gave it. A route that somebody removes from a link that is up stays away
//! until the link is set down. The daemon does not listen for changes of single routes, because a container that runs a routing
//! protocol would flood it.
//!
//! [`Holding`](super::Holding) says what is wanted, and when that may be done. The binding requests the effects ([`Act`]).

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use fastrand::Rng;
use ipnet::IpNet;

use super::Wish;
use crate::backoff::{Backoff, LONGEST_PAUSE, RARELY};
use crate::grant::Grant;
use crate::link::{LinkCause, LinkView, Step};
use crate::patience::COMES_FIRST;
use crate::plan::{self, Before};
use crate::record::Former;
use crate::time::Instant;

/// How many grants may have something on an interface. Beyond that one is forgotten, but not the oldest: that one is
/// certainly on it, while later ones may never have got there.
const MAX_FORMER: usize = 4;

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Nothing, until something happens.
    Wait,
    /// Nothing is left to do.
    Settled,
    /// Look at the LAN's link: no interface on it can have a larger MTU.
    LookAtParent,
    /// Look at the interface.
    Look,
    /// Take these steps on the interface.
    Apply(Vec<Step>),
}

/// The result of a look at the interface, or of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Worked {
    /// It goes on by itself, or when something happens.
    Waits,
    /// It goes on at once: without a dispensable step that the kernel refused, or because the link went down meanwhile.
    Again {
        /// That step.
        without: Option<Step>,
    },
    /// The interface was changed, and carries what was wanted.
    Done(Done),
    /// It failed.
    Failed(LinkCause),
}

/// The result of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    /// What the interface was changed for; `None`: to carry nothing.
    pub(crate) next: Option<Box<Grant>>,
    /// Why it must be changed again, after a pause.
    pub(crate) lacks: Option<Lack>,
    /// The MTU that it has, in bytes.
    pub(crate) mtu: u32,
}

/// Why an interface must be changed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// An address that was taken off came back.
    CameBack,
    /// The MTU could not be set.
    Mtu,
    /// The link takes no routes yet.
    Routes,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CameBack => "an address came back",
            Self::Mtu => "its MTU could not be set",
            Self::Routes => "its link takes no routes yet",
        })
    }
}

/// The work at an interface for one binding, and how far it is.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// What the interface may carry; empty and not bare if it carries what the lease says.
    former: Former,
    stage: WorkStage,
    backoff: Backoff,
    retry: Option<Instant>,
    /// Until when to wait with removals, while the store records that the lease is lost.
    patience: Option<Instant>,
    /// Dispensable steps that the kernel refused.
    refused: Vec<Step>,
    /// Whether something of a former grant came onto the interface during the change under way.
    stirred: bool,
    /// Whether to put on only those due routes that a main plugin does not get, because it is adding the others.
    only_late: bool,
}

/// How far it is.
#[derive(Debug, Default)]
enum WorkStage {
    /// Nothing is under way.
    #[default]
    Idle,
    /// The LAN's link is being looked at.
    Parent,
    /// The interface is being looked at.
    Looking(Look),
    /// The interface is being changed.
    Applying(Applying),
}

/// A look at the interface.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// The largest MTU, if it is known.
    most: Option<u32>,
    /// Whether the LAN's link was looked at for that.
    asked: bool,
    /// Whether the link came up meanwhile, which the look may have missed.
    came_up: bool,
}

/// A change of the interface.
#[derive(Debug)]
struct Applying {
    steps: Vec<Step>,
    /// What for; `None`: to carry nothing.
    next: Option<Box<Grant>>,
    /// Whether its MTU must be smaller than it could be, because the MTU of the LAN's link is unknown.
    short: bool,
    /// Whether it is changed with all routes.
    routed: bool,
}

// What it may carry.
impl Work {
    /// Returns work that a restart interrupted.
    pub(crate) fn recovered(former: Former) -> Self {
        Self {
            former,
            ..Self::default()
        }
    }

    pub(crate) fn former(&self) -> &Former {
        &self.former
    }

    /// Returns the same for the record; `None`: there is nothing to record.
    pub(crate) fn recorded(&self) -> Option<Box<Former>> {
        (self.former != Former::default()).then(|| Box::new(self.former.clone()))
    }

    pub(crate) fn may_carry(&self, address: IpAddr) -> bool {
        self.former.grants.iter().any(|grant| grant.has(address))
    }

    /// Returns whether what the interface carries, besides its MTU, may differ from what the lease says.
    pub(crate) fn differs(&self) -> bool {
        self.former.bare || !self.former.grants.is_empty()
    }

    /// Records that something of a grant may be on the interface.
    pub(crate) fn leave_behind(&mut self, grant: Grant, bare: bool) {
        let grants = &mut self.former.grants;
        if !grants.iter().any(|was| plan::same(was, &grant)) {
            grants.push(grant);
        }
        if grants.len() > MAX_FORMER {
            grants.remove(1);
        }
        self.expect_bare(bare);
    }

    /// Records that another station has the address of a former grant: it is removed, whatever the profile keeps.
    pub(crate) fn is_taken(&mut self) {
        self.former.taken = true;
    }

    /// Records whether nothing may be on the interface although there is a lease.
    pub(crate) fn expect_bare(&mut self, bare: bool) {
        self.former.bare |= bare;
        (self.backoff, self.retry) = (Backoff::default(), None);
        self.refused.clear();
    }

    /// Records the router of a lost grant: somebody else's default route may use it and outlive the address.
    pub(crate) fn leave_router(&mut self, grant: &Grant) {
        self.former.router = grant.router;
    }

    /// Records that something of a former grant came onto the interface, perhaps during a change.
    pub(crate) fn stir(&mut self) {
        self.stirred |= matches!(self.stage, WorkStage::Applying(_));
    }

    pub(crate) fn size_later(&mut self) {
        self.former.mtu_due = true;
    }

    /// Records that routes are missing, including those that a change under way has put on, and those that the kernel refused
    /// while the link was down. `only_late`: a main plugin adds the routes that it gets.
    pub(crate) fn lacks_routes(&mut self, only_late: bool) {
        self.only_late = only_late;
        self.route_later();
    }

    pub(crate) fn route_no_more(&mut self) {
        self.former.routes_due = false;
    }

    /// Records that the link is up. A look under way may have seen it down, and nothing else would report it again.
    pub(crate) fn on_up(&mut self) {
        if let WorkStage::Looking(look) = &mut self.stage {
            look.came_up = true;
        }
    }

    fn route_later(&mut self) {
        self.former.routes_due = true;
        self.refused
            .retain(|step| !matches!(step, Step::AddRoute(_)));
        if let WorkStage::Applying(change) = &mut self.stage {
            change.routed = false;
        }
    }

    /// Returns the MTU to set for `next`, before the link's own bounds.
    fn mtu(&self, next: Option<&Grant>) -> Option<u16> {
        let wanted = next?.mtu?;
        let Former {
            grants,
            bare,
            mtu_due,
            ..
        } = &self.former;
        let has_it = !bare && !mtu_due && grants.iter().all(|grant| grant.mtu == Some(wanted));
        (!has_it).then_some(wanted)
    }

    /// Returns the former grants of which something came back while the interface was changed for `next`.
    fn back(&mut self, next: Option<&Grant>, addresses: &[IpNet]) -> Vec<Grant> {
        let stirred = std::mem::take(&mut self.stirred);
        let is_next = |grant: &Grant| next.is_some_and(|next| next.addresses == grant.addresses);
        let is_there = |grant: &Grant| {
            grant
                .addresses
                .iter()
                .any(|address| addresses.contains(address))
        };
        let is_back = |grant: &&Grant| !is_next(grant) && (stirred || is_there(grant));
        self.former.grants.iter().filter(is_back).cloned().collect()
    }
}

// How far it is.
impl Work {
    /// Returns whether a look at the interface or a change of it is under way.
    pub(crate) fn busy(&self) -> bool {
        !matches!(self.stage, WorkStage::Idle)
    }

    /// Records that a daemon starting now would hold the lost lease again: what the lease left waits for the store.
    pub(crate) fn await_note(&mut self, now: Instant) {
        self.patience = Some(now + COMES_FIRST);
    }

    pub(crate) fn is_patient(&self) -> bool {
        self.patience.is_some()
    }

    /// Returns when it is tried again, or stops waiting.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        self.retry.into_iter().chain(self.patience).min()
    }

    /// Tries again, or stops waiting, when the time has come. Returns whether it has.
    pub(crate) fn take_retry(&mut self, now: Instant) -> bool {
        let is_due = |at: &mut Instant| now >= *at;
        let retries = self.retry.take_if(is_due);
        let hurries = self.patience.take_if(is_due);
        retries.or(hurries).is_some()
    }

    pub(crate) fn may_go_on(&self, now: Instant) -> bool {
        !self.busy() && self.retry.is_none_or(|at| now >= at)
    }

    /// Tries again after a pause. Returns how long the pause is.
    pub(crate) fn try_later(
        &mut self,
        lack: Option<Lack>,
        now: Instant,
        rng: &mut Rng,
    ) -> Duration {
        let only_mtu = lack.map_or(!self.differs(), |lack| lack == Lack::Mtu);
        self.backoff.fail();
        let pause = self
            .backoff
            .pause(if only_mtu { RARELY } else { LONGEST_PAUSE }, rng);
        self.retry = Some(now + pause);
        pause
    }

    /// Returns whether nothing is left to do or to remember. `kept`: the lease's grant, if the interface keeps what it carries;
    /// `has_lease`: there is one.
    pub(crate) fn is_settled(&self, wish: &Wish, kept: Option<&Grant>, has_lease: bool) -> bool {
        if self.former.routes_due && has_lease {
            return false;
        }
        let next = match wish {
            Wish::Nothing => return self.former.grants.is_empty(),
            Wish::Carry(grant) => Some(&**grant),
            Wish::AsIs => kept,
        };
        next.is_some_and(|next| {
            let same = self.former.grants.iter().all(|was| plan::same(was, next));
            let kept_too = kept.is_none_or(|kept| plan::same(kept, next));
            !self.former.bare && same && kept_too && self.mtu(Some(next)).is_none()
        })
    }

    /// Goes on with what is wanted. `is_there`: the address was seen on the interface.
    pub(crate) fn go_on(&mut self, wish: &Wish, is_there: bool) -> Act {
        if *wish == Wish::AsIs {
            return Act::Wait;
        }
        let resizes = self.mtu(wish.grant()).is_some();
        if !(self.differs() || resizes || is_there) {
            return Act::Wait;
        }
        self.look(None, false)
    }

    fn look(&mut self, most: Option<u32>, asked: bool) -> Act {
        let came_up = false;
        self.stage = WorkStage::Looking(Look {
            most,
            asked,
            came_up,
        });
        Act::Look
    }

    /// Goes on after a look. Fails if the interface could not be looked at. `has_parent`: the LAN is named by a host link.
    pub(crate) fn on_inspected(
        &mut self,
        result: Result<LinkView, LinkCause>,
        wish: Wish,
        has_parent: bool,
    ) -> Result<Act, LinkCause> {
        match (std::mem::take(&mut self.stage), result) {
            (WorkStage::Parent, parent) => Ok(self.look(parent.ok().map(|view| view.mtu), true)),
            (WorkStage::Looking(look), Ok(view)) if look.came_up && !view.up => {
                Ok(self.look(look.most, look.asked))
            }
            (WorkStage::Looking(look), Ok(view)) => Ok(self.change(&view, look, wish, has_parent)),
            (WorkStage::Looking(_), Err(cause)) => Err(cause),
            (stage @ (WorkStage::Idle | WorkStage::Applying(_)), result) => {
                tracing::warn!(?stage, ?result, "a look that was not asked for");
                Ok(Act::Wait)
            }
        }
    }

    /// Changes the interface from what was seen there. For a larger MTU the LAN's link must be looked at first.
    fn change(&mut self, view: &LinkView, look: Look, wish: Wish, has_parent: bool) -> Act {
        let Look { most, asked, .. } = look;
        let next = match wish {
            Wish::Carry(grant) => Some(grant),
            Wish::Nothing => None,
            Wish::AsIs => return Act::Wait,
        };
        let addresses = &view.addresses;
        let mtu = self.mtu(next.as_deref());
        let grows = mtu.is_some_and(|mtu| u32::from(mtu) > view.mtu);
        if grows && has_parent && !asked {
            self.stage = WorkStage::Parent;
            return Act::LookAtParent;
        }
        let short = grows && asked && most.is_none();
        let mtu = mtu.map(|mtu| u32::from(mtu).min(most.unwrap_or(view.mtu)));
        let resize = mtu.filter(|mtu| *mtu != view.mtu).map(Step::Mtu);
        let differs = self.differs();
        let is_there = |next: &Grant| {
            next.addresses
                .iter()
                .all(|address| addresses.contains(address))
        };
        let is_on = next
            .as_deref()
            .is_some_and(|next| differs || is_there(next));
        let bare = self.former.bare;
        let unrouted = self.former.routes_due;
        let Former { grants, router, .. } = &self.former;
        let before = Before {
            grants,
            bare,
            unrouted,
            router: *router,
            addresses,
        };
        let mut steps = match differs || (unrouted && is_on && view.up) {
            true => plan::difference(&before, next.as_deref()),
            false => Vec::new(),
        };
        if let (Some(grant), false, true) = (&next, differs, self.only_late) {
            let late = plan::late_routes(grant);
            steps.retain(|step| !matches!(step, Step::AddRoute(route) if !late.contains(route)));
        }
        // The kernel takes no route on a link that is down.
        let routes = steps.len();
        steps.retain(|step| view.up || !matches!(step, Step::AddRoute(_)));
        let put_off = steps.len() < routes;
        let routed = view.up && (is_on || next.is_none());
        let steps = resize.into_iter().chain(steps);
        let steps: Vec<_> = steps.filter(|step| !self.refused.contains(step)).collect();
        // What is missing waits for an event, not for a look.
        if steps.is_empty() && !differs && !routed && !self.former.mtu_due {
            return Act::Wait;
        }
        if put_off {
            self.route_later();
        }
        self.stage = WorkStage::Applying(Applying {
            steps: steps.clone(),
            next,
            short,
            routed,
        });
        Act::Apply(steps)
    }

    /// Goes on after a change in which this many steps were taken. `current`: the grant of the current lease.
    pub(crate) fn on_applied(
        &mut self,
        taken: usize,
        result: Result<LinkView, LinkCause>,
        current: Option<&Grant>,
    ) -> Worked {
        match (std::mem::take(&mut self.stage), result) {
            (WorkStage::Applying(change), Ok(view)) => {
                Worked::Done(self.applied(change, &view, current))
            }
            (WorkStage::Applying(change), Err(cause)) => {
                let step = change.steps.into_iter().nth(taken);
                let without = match step.filter(|step| is_dispensable(step, &cause)) {
                    Some(Step::AddRoute(_)) if !change.routed => None,
                    Some(step) => Some(step),
                    None => return Worked::Failed(cause),
                };
                self.refused.extend(without.clone());
                Worked::Again { without }
            }
            (stage @ (WorkStage::Idle | WorkStage::Parent | WorkStage::Looking(_)), result) => {
                tracing::warn!(?stage, ?result, "a change that was not asked for");
                Worked::Again { without: None }
            }
        }
    }

    fn applied(&mut self, change: Applying, view: &LinkView, current: Option<&Grant>) -> Done {
        let Applying {
            next,
            short,
            routed,
            ..
        } = change;
        // If a lease was lost meanwhile, it is not known whether another station uses its address.
        let of_both = |is_like: fn(&Grant, &Grant) -> bool| matches!((&next, current), (Some(next), Some(current)) if is_like(next, current));
        let still = of_both(|next, current| {
            next.addresses
                .iter()
                .all(|address| current.has(address.addr()))
        });
        let agrees = of_both(plan::same);
        let refused = self
            .refused
            .extract_if(.., |step| matches!(step, Step::Mtu(_)))
            .count()
            > 0;
        let bare = next.is_none();
        let mtu_due = next.is_some() && (short || refused);
        let routes_due = self.former.routes_due && !routed;
        let again = self.back(next.as_deref(), &view.addresses);
        let comes_back = !again.is_empty();
        let taken = self.former.taken && (comes_back || next.is_some() && !still);
        let left = next.as_deref().filter(|_| !agrees).cloned();
        let grants = again.into_iter().chain(left).collect();
        // Until another grant is carried, somebody else's default route may still use it.
        let router = self.former.router.filter(|_| next.is_none());
        self.former = Former {
            grants,
            bare,
            taken,
            mtu_due,
            routes_due,
            router,
        };
        let lacks = match (comes_back, mtu_due) {
            (true, _) => Some(Lack::CameBack),
            (false, true) => Some(Lack::Mtu),
            (false, false) => routes_due.then_some(Lack::Routes),
        };
        Done {
            next,
            lacks,
            mtu: view.mtu,
        }
    }
}

/// Returns whether a step that the kernel refused is dispensable: one bad route from a server is no reason to keep an old
/// address.
fn is_dispensable(step: &Step, cause: &LinkCause) -> bool {
    let refused = matches!(cause, LinkCause::Refused { doing, .. } if *doing == step.doing());
    refused
        && match step {
            Step::Mtu(_)
            | Step::AddRoute(_)
            | Step::RemoveRoute(_)
            | Step::ReplaceDefault { .. } => true,
            Step::Up | Step::AddAddress(_) | Step::RemoveAddress(_) | Step::Abandon => false,
        }
}

#[cfg(test)]
mod tests;
