//! The front doors: what the caller of each asks, and what it does with the answers.
//!
//! A door is a file, and a line in [`DOORS`] or [`ERRANDS`].

mod cni;
mod collect;
mod dockerd;
mod networks;
mod networks_end;
mod operator;
mod pools;
mod status;
mod wired;

use super::actor::{Door, Errand};
use crate::plan::Plan;

pub(super) use self::networks::may_stay;
pub(super) use self::pools::Network;
pub(super) use self::wired::Wired;

/// The doors. Each comes before those that serve what it does not.
static DOORS: &[&dyn Door] = &[&networks::Networks, &pools::Pools, &cni::Cni];

/// What is asked about a LAN.
pub(super) static ERRANDS: &[&dyn Errand] = &[
    &collect::Collect,
    &status::Status,
    &pools::Pools,
    &networks::Networks,
    &operator::Operator,
];

/// Returns the door of an actor's containers.
pub(super) fn of(plan: &Plan, index: usize) -> &'static dyn Door {
    *DOORS
        .iter()
        .find(|door| door.serves(plan, index))
        .expect("CNI serves all others")
}
