//! What is wrong with the host, its LANs and its leases: one list, which every surface shows.
//!
//! `status`, `doctor`, the page, `/metrics` and alerts read this list, and none of them decides anything by itself.
//!
//! # A new kind of trouble
//! 1. Give [`TroubleKind`] a variant with a name, before `SubnetsDiffer` if containers are without an address, or soon may be.
//! 2. Make a [`Trouble`] where it is known: in `registry/troubles.rs` if it concerns LANs or leases, in the shell's `health.rs` if it
//!    concerns the host. Nothing else is needed to show it.
//! 3. Add a row to the table under "What `status` reports" in `operations.md`; a test compares that table with [`TroubleKind::ALL`].

use std::fmt;

use smol_str::SmolStr;

use crate::identity::Lan;
use crate::names::named;
use crate::time::WallTime;

/// Something that somebody should look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What kind of trouble it is.
    pub kind: TroubleKind,
    /// What it concerns.
    pub subject: Subject,
    /// Since when; `None`: unknown.
    pub since: Option<WallTime>,
    /// How many there are of what the sentence counts; 1 if it counts nothing.
    pub count: u64,
    /// What is wrong, and why as far as known: a sentence without a full stop.
    pub sentence: String,
    /// What to do about it.
    pub remedy: String,
}

named! {
    /// Kinds of trouble, the gravest first.
    TroubleKind {
        /// No ADD can be recorded.
        StoreFails = "store_fails",
        /// ADDs on a LAN fail for a reason of the host or the LAN.
        AddsFail = "adds_fail",
        /// Containers have no address: they lost it, and no server has given them another.
        NoAddress = "no_address",
        /// Only broadcasts reach containers.
        Unreachable = "unreachable",
        /// Leases were not extended although a server was asked.
        RenewalsUnanswered = "renewals_unanswered",
        /// A link that leases or networks use is missing, down, or without carrier.
        LinkDown = "link_down",
        /// The replaced plugin is called instead of leasehold's.
        OldPlugin = "old_plugin",
        /// Two servers offer different subnets on one LAN.
        SubnetsDiffer = "subnets_differ",
        /// A bridge of this host has the address of its LAN's router.
        HostIsRouter = "host_is_router",
        /// The disk of the store is nearly full.
        DiskFull = "disk_full",
        /// Containers that ran before the daemon could not be adopted.
        NotAdopted = "not_adopted",
        /// Leases that should be given back cannot be.
        HeldUp = "held_up",
        /// No path leads to the network namespace of a container.
        Pathless = "pathless",
        /// Events were lost.
        EventsLost = "events_lost",
    }
}

impl TroubleKind {
    /// Returns whether containers are without an address, or soon may be.
    pub const fn is_grave(self) -> bool {
        self as u8 <= Self::OldPlugin as u8
    }
}

/// What a trouble concerns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The whole host.
    Host,
    /// A link of the host.
    Link(SmolStr),
    /// A LAN.
    Lan(Lan),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("the host"),
            Self::Link(ifname) => f.write_str(ifname),
            Self::Lan(lan) => lan.fmt(f),
        }
    }
}

impl Trouble {
    /// Returns a trouble with what is wrong, and what to do about it.
    pub fn new(
        kind: TroubleKind,
        subject: Subject,
        count: usize,
        sentence: String,
        remedy: String,
    ) -> Self {
        Self {
            kind,
            subject,
            since: None,
            count: count as u64,
            sentence,
            remedy,
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.sentence, self.remedy)
    }
}

/// Puts troubles in order, the gravest first.
pub fn listed(mut troubles: Vec<Trouble>) -> Vec<Trouble> {
    troubles.sort_by(|a, b| (a.kind, &a.subject).cmp(&(b.kind, &b.subject)));
    troubles
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn kinds_have_names_of_their_own_and_are_listed_in_order() {
        let names: BTreeSet<_> = TroubleKind::ALL.map(TroubleKind::name).into();
        assert_eq!(names.len(), TroubleKind::ALL.len());
        assert!(TroubleKind::ALL.is_sorted());
    }

    #[test]
    fn the_gravest_troubles_come_first() {
        let on = |kind, link: &str| {
            let subject = Subject::Link(link.into());
            Trouble::new(kind, subject, 1, "down".to_owned(), "set it up".to_owned())
        };
        let [down, other] = ["eth0", "eth1"].map(|link| on(TroubleKind::LinkDown, link));
        let fails = on(TroubleKind::StoreFails, "eth2");
        let listed = listed(vec![other.clone(), down.clone(), fails.clone()]);
        assert_eq!(listed, [fails, down, other]);
    }
}
