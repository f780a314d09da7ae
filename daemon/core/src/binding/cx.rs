//! What a binding works with, and what it may know of others.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::Holders;
use crate::conflict::lans::Lans;
use crate::link::Cookie;
use crate::outbox::Outbox;
use crate::record::BindingId;
use crate::time::{BootId, Now};
use crate::wire::Mac;

/// What a binding works with while it handles one event.
pub(crate) struct Cx<'a> {
    pub(crate) now: Now,
    pub(crate) boot: &'a BootId,
    pub(crate) out: &'a mut Outbox,
    pub(crate) rng: &'a mut Rng,
    pub(crate) holders: &'a Holders,
    pub(crate) by_netns: &'a ByNetns,
    /// What conflicts have taught of each LAN.
    pub(crate) conflicts: &'a mut Lans,
}

/// The bindings of each namespace, with the Ethernet addresses of their interfaces.
pub(crate) type ByNetns = BTreeMap<(Cookie, BindingId), Mac>;

/// Returns those of one namespace.
pub(crate) fn of_netns(by_netns: &ByNetns, cookie: Cookie) -> impl Iterator<Item = (BindingId, Mac)> {
    let all = (cookie, BindingId(0))..=(cookie, BindingId(u64::MAX));
    by_netns.range(all).map(|((_, id), mac)| (*id, *mac))
}
