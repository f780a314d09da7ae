//! The links in the host's namespace that were made for Docker.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::*;
use crate::link::Wire;
use crate::link::own::{LinkOwner, OwnLink, OwnLinks};

/// The links.
#[derive(Default)]
pub(in super::super) struct Wired {
    /// The links in the host's namespace.
    pub(in super::super) links: BTreeMap<LinkOwner, OwnLink>,
    /// The owners of links that a killed daemon had not named yet: no list has them.
    pub(in super::super) unnamed: BTreeSet<LinkOwner>,
    /// Those that daemons with another store made.
    pub(in super::super) strangers: Vec<String>,
    /// The host's own addresses, on the LAN's link.
    pub(in super::super) host_addresses: Vec<IpNet>,
    /// Whether host links are wireless.
    pub(in super::super) wireless: bool,
    /// Why links can neither be made nor deleted.
    pub(in super::super) refuses: Option<LinkCause>,
    /// Whether the ends of such changes are held back.
    pub(in super::super) hold: bool,
    pub(in super::super) held: VecDeque<(OpId, Outcome)>,
    /// The host's link that the containers' interfaces are macvlans on.
    pub(in super::super) lower: Option<u32>,
    /// The wire of the containers' interfaces, if their kind tells.
    pub(in super::super) wire: Option<Wire>,
    /// The Ethernet addresses of the containers' other links.
    pub(in super::super) inside: Vec<Mac>,
    /// The links of the host that ARP requests left by; `None`: the container's interface.
    pub(in super::super) asked_over: Vec<Option<u32>>,
    /// The same of messages, by their kind.
    pub(in super::super) sent_over: Vec<(u8, Option<u32>)>,
}

impl Rig {
    /// Makes a link, deletes it, or lists all.
    pub(super) fn wire(&mut self, effect: Effect) {
        let wired = &mut self.wired;
        let result = wired.refuses.clone().map_or(Ok(()), Err);
        let (op, outcome) = match effect {
            Effect::Make { op, link } => {
                let made = result.map(|()| drop(wired.links.insert(link.owner.clone(), *link)));
                (op, Outcome::Made(made))
            }
            Effect::Unmake { op, owner } => {
                let unmade = result.map(|()| {
                    wired.links.remove(&owner);
                    wired.unnamed.remove(&owner);
                });
                (op, Outcome::Unmade(unmade))
            }
            Effect::ListOwn { op } => {
                let owners = wired.links.keys().cloned().collect();
                let strangers = wired.strangers.clone();
                (op, Outcome::OwnLinks(Ok(OwnLinks { owners, strangers })))
            }
            other => panic!("{other:?}"),
        };
        match wired.hold {
            true => wired.held.push_back((op, outcome)),
            false => self.done(op, outcome),
        }
    }

    /// Carries out the changes that are held back.
    pub(in super::super) fn change_late(&mut self) {
        self.hold_changes = false;
        while let Some((op, target, steps)) = self.changes.pop_front() {
            let outcome = self.change(&target, steps);
            self.end(op, outcome);
        }
    }

    /// Ends the changes of links that were held back.
    pub(in super::super) fn end_link_ops(&mut self) {
        while let Some((op, outcome)) = self.wired.held.pop_front() {
            self.end(op, outcome);
        }
    }

    /// Docker moves an endpoint's link into a container's namespace.
    pub(in super::super) fn link_leaves(&mut self, owner: &LinkOwner) {
        self.wired.links.remove(owner).expect("it is there");
        self.input(Input::Kernel(KernelMessage::OwnLink {
            owner: owner.clone(),
            there: false,
        }));
    }

    /// Docker moves an endpoint's link back.
    pub(in super::super) fn link_returns(&mut self, link: OwnLink) {
        let owner = link.owner.clone();
        self.wired.links.insert(owner.clone(), link);
        self.input(Input::Kernel(KernelMessage::OwnLink { owner, there: true }));
    }
}
