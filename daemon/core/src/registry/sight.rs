//! Whether a namespace that is not seen is gone, or this daemon is blind.
//!
//! A daemon with the wrong `--host-prefix`, or in a mount or PID namespace that does not show those of the containers, sees
//! none of them, and would give back the leases of running containers. So missing is not gone. A namespace whose path no
//! longer leads to it is gone if its directory shows any other ([`LinkCause::NetnsRemoved`](crate::link::LinkCause::NetnsRemoved)),
//! or if another one that holds a lease is seen there, and it is still missing after that. If none is seen, nothing is given back
//! before a DEL, a GC, a report from the kernel or the lease's end, with which its row ends; until then looks go on, and a lease
//! whose namespace is seen again goes on where it was. A namespace without a path that the kernel still knows is
//! not missing ([`LinkCause::NoPath`](crate::link::LinkCause::NoPath)).
//!
//! This holds for a single namespace too. So if a host's last container ended without a DEL while no daemon ran, it may keep its
//! address until the lease's end, or until the next ADD, which shows that this daemon can see: that hurts nobody. An address that
//! is given away under a running container costs two containers their network.
//!
//! An interface that is found by its Ethernet address, such as Docker's, needs none of this: a search through all namespaces, in
//! which the kernel is asked too, decides whether it is gone ([`seek`](super::seek)).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::index::Index;
use crate::binding::Binding;
use crate::interface::At;
use crate::link::directory_of;
use crate::record::BindingId;

/// Whose namespaces are not seen, and whether that is believed.
#[derive(Debug, Default)]
pub(super) struct Sight {
    /// Those that were not seen when they were last looked at, by directory.
    doubts: BTreeMap<PathBuf, Doubt>,
    /// Those whose next look counts: another namespace in their directory has been seen since the last.
    vouched: BTreeSet<BindingId>,
}

/// What is not seen of a directory.
#[derive(Debug, Default)]
struct Doubt {
    unseen: BTreeSet<BindingId>,
    /// Nothing in it is seen, and that was reported.
    blind: bool,
}

impl Sight {
    /// Returns whether a look counts, whatever it shows. The next one then does not.
    pub(super) fn takes_voucher(&mut self, whose: BindingId) -> bool {
        self.vouched.remove(&whose)
    }

    /// Records that a binding's namespace was not seen.
    pub(super) fn doubt(&mut self, binding: &Binding) {
        if let Some(directory) = directory(binding) {
            let doubt = self.doubts.entry(directory.to_owned()).or_default();
            doubt.unseen.insert(binding.id);
        }
    }

    /// Returns whether a namespace in a directory is not seen.
    fn doubts(&self, directory: &Path, whose: BindingId) -> bool {
        self.doubts
            .get(directory)
            .is_some_and(|doubt| doubt.unseen.contains(&whose))
    }

    /// Records that a binding's namespace was seen. Returns whose were not seen in its directory: they are looked at once more, and
    /// that counts.
    pub(super) fn saw(&mut self, binding: &Binding) -> BTreeSet<BindingId> {
        let Some(directory) = directory(binding) else {
            return BTreeSet::new();
        };
        self.vouched.remove(&binding.id);
        let Some(Doubt { mut unseen, blind }) = self.doubts.remove(directory) else {
            return BTreeSet::new();
        };
        if blind {
            tracing::info!(directory = %directory.display(), "network namespaces are seen again: looking at all of them");
        }
        unseen.remove(&binding.id);
        self.vouched.extend(&unseen);
        unseen
    }

    /// Forgets one that is no longer in doubt.
    pub(super) fn forget(&mut self, whose: BindingId) {
        self.vouched.remove(&whose);
        self.doubts.retain(|_, doubt| {
            doubt.unseen.remove(&whose);
            !doubt.unseen.is_empty()
        });
    }

    /// Returns whether a namespace that holds a lease is seen in a directory, as far as is known.
    pub(super) fn sees(&self, at: &Path, bindings: &Index) -> bool {
        let mut there = bindings.iter().filter(|binding| may_show(binding, at));
        there.any(|binding| !self.doubts(at, binding.id))
    }

    /// Returns interfaces in namespaces that show whether this daemon can see, if others are in doubt.
    pub(super) fn witnesses(&mut self, bindings: &Index) -> Vec<At> {
        let mut witnesses = Vec::new();
        for (at, doubt) in self.doubts.iter_mut().filter(|(_, doubt)| !doubt.blind) {
            let is_other =
                |binding: &&Binding| !doubt.unseen.contains(&binding.id) && may_show(binding, at);
            let others = bindings
                .iter()
                .filter(is_other)
                .filter_map(Binding::watched);
            // Usually one is enough.
            let most = if doubt.unseen.len() == 1 {
                1
            } else {
                usize::MAX
            };
            let before = witnesses.len();
            witnesses.extend(others.take(most));
            if witnesses.len() > before {
                continue;
            }
            doubt.blind = true;
            let directory = at.display();
            let leases = doubt.unseen.len();
            match leases {
                1 => tracing::warn!(
                    %directory,
                    "the only network namespace with a lease here is out of sight: it ended while no daemon ran, or \
                     this daemon does not see the containers (--host-prefix, mounts, PID namespace); its lease is kept \
                     until its end, a DEL or a GC"
                ),
                _ => tracing::error!(
                    %directory, leases,
                    "no network namespace with a lease here can be seen: is the host's directory mounted for this \
                     daemon, and is --host-prefix right? Their leases are kept until their end, a DEL or a GC, and \
                     renewed only if the kernel knows the namespace, from the host's link"
                ),
            }
        }
        witnesses
    }
}

/// Returns whether a look at a binding's namespace may show that this daemon sees a directory. A namespace without a
/// path proves nothing about a directory.
fn may_show(binding: &Binding, at: &Path) -> bool {
    binding.is_held() && !binding.is_pathless && directory(binding) == Some(at)
}

fn directory(binding: &Binding) -> Option<&Path> {
    binding.link.netns().map(directory_of)
}
