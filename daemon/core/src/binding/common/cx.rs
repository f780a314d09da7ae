//! What a binding works with, and what it may know about others.

use fastrand::Rng;

use super::Common;
use crate::binding::Holders;
use crate::conflict::departed::Departed;
use crate::effect::OpId;
use crate::interface::Interfaces;
use crate::lan::Accounts;
use crate::link::{Link, Step, Target};
use crate::outbox::{Outbox, Waiter};
use crate::time::{BootId, Now};

/// What a life works with while it handles one event.
pub(crate) struct Cx<'a> {
    /// What it shares with the other lives of its binding.
    pub(crate) own: &'a mut Common,
    pub(crate) now: Now,
    pub(crate) boot: &'a BootId,
    pub(crate) out: &'a mut Outbox,
    pub(crate) rng: &'a mut Rng,
    pub(crate) holders: &'a Holders,
    pub(crate) interfaces: &'a mut Interfaces,
    /// What is known about each LAN.
    pub(crate) lans: &'a mut Accounts,
    /// Interfaces that are about to disappear.
    pub(crate) departed: &'a Departed,
}

/// Changes a link step by step. On a container's own link no other change may be under way. Returns the effect.
pub(crate) fn change(
    out: &mut Outbox,
    interfaces: &mut Interfaces,
    waiter: Waiter,
    link: &Link,
    steps: Vec<Step>,
) -> OpId {
    let op = out.apply(waiter, Target::Known(link.clone()), steps);
    link.in_netns()
        .into_iter()
        .for_each(|at| interfaces.begin_change(at, op));
    op
}
