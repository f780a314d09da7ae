//! An ADD: what a caller asks to get a lease, or would ask for a container that already runs.

use std::time::Duration;

use ipnet::Ipv4Net;

use crate::identity::{Attachment, ClientIdRule, Lan};
use crate::limits::Limits;
use crate::link::Place;
use crate::profile::Profile;
use crate::range::Fallback;
use crate::source::Wanted;
use crate::wire::Mac;

/// An ADD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Add {
    /// Who asks.
    pub attachment: Attachment,
    /// Where the binding should live.
    pub place: Place,
    /// The wire of this place.
    pub lan: Lan,
    /// How to make option 61.
    pub client_id: ClientIdRule,
    /// The client's hardware address, if not the interface's own.
    pub chaddr: Option<Mac>,
    /// The address to ask for.
    pub wanted: Option<Wanted>,
    /// What else the client says and wants.
    pub profile: Profile,
    /// The longest time from the request to its answer.
    pub timeout: Duration,
    /// How much less that is than was asked for, because servers were silent a moment ago. The registry sets it.
    pub hurried: Duration,
    /// The addresses that it may get; `None`: any.
    pub limits: Option<Limits>,
    /// The local ranges that give it an address if no server answers.
    pub fallback: Option<Box<Fallback>>,
}

impl Add {
    /// Returns whether the sockets of its first exchange are on the link of its place.
    pub(crate) fn opens_at_once(&self) -> bool {
        match self.place {
            Place::InNetns(_) => !self.profile.on_parent,
            Place::Parent { .. } => true,
        }
    }
}

/// A container that already ran when this daemon learned about it, with an address that somebody else gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adoptee {
    /// Its ADD, as it would be now.
    pub add: Box<Add>,
    /// The address that it was given.
    pub address: Ipv4Net,
    /// The Ethernet address that its interface had then, if that is known.
    pub mac: Option<Mac>,
}
