//! The front doors: what the caller of each asks, and what it does with the answers.
//!
//! A door is a file, and a line in [`of`] or [`ERRANDS`].

mod cni;
mod collect;
mod dockerd;
mod networks;
mod networks_end;
mod operator;
mod pools;
mod ranges;
mod status;

use super::actor::{Door, Errand};

pub(super) use self::networks::{Wired, may_stay};
pub(super) use self::pools::Network;

/// Returns the door of an actor's containers.
pub(super) fn of(docker: bool, is_wired: bool) -> &'static dyn Door {
    match (docker, is_wired) {
        (false, _) => &cni::Cni,
        (true, false) => &pools::Pools,
        (true, true) => &networks::Networks,
    }
}

/// What is asked about a LAN.
pub(super) static ERRANDS: [&dyn Errand; 6] =
    [&collect::Collect, &status::Status, &pools::Pools, &networks::Networks, &operator::Operator, &ranges::Ranges];
