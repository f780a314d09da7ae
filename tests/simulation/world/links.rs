//! Links made for Docker: the shell's part, which makes and deletes them, and dockerd's, which moves them.

use leasehold_core::identity::Attachment;
use leasehold_core::link::own::{LinkOwner, OwnLink, OwnLinks};
use leasehold_core::link::{KernelMessage, LinkCause};
use leasehold_core::testbed::kernel::{At, HOST};
use leasehold_core::testbed::link::Own;

use super::seen::Seen;
use super::shell::{Fate, LIMIT, refused};
use super::{Event, MILLI, Micros, World};
use crate::watch::Rule;

impl World {
    /// Makes a link. Returns how much later that is reported, and the result.
    pub(super) fn make(&mut self, link: &OwnLink) -> (Micros, Result<(), LinkCause>) {
        let fate = self.fate();
        if let Fate::Refused = fate {
            return (0, Err(refused("make a link")));
        }
        let made = self.kernel.make(link, self.store.number, self.now);
        if let Ok(true) = made {
            self.stats.count(match link.owner {
                LinkOwner::Endpoint(_) => "links made for endpoints",
                LinkOwner::Vlan { .. } => "links made for VLANs",
            });
            self.digest.own(self.now, true, &link.owner.ifname());
            self.tell_own(link.owner.clone(), self.store.number, true);
        }
        // An operation that takes too long is carried out nevertheless.
        match fate {
            Fate::TimedOut => (LIMIT, Err(LinkCause::TimedOut)),
            Fate::Done | Fate::Refused => (0, made.map(drop)),
        }
    }

    /// Deletes a link. Returns how much later that is reported, and the result.
    pub(super) fn unmake(&mut self, owner: &LinkOwner) -> (Micros, Result<(), LinkCause>) {
        let fate = self.fate();
        if let Fate::Refused = fate {
            return (0, Err(refused("delete a link")));
        }
        let gone = self.kernel.unmake(owner, self.store.number);
        for (nth, (at, wire)) in gone.iter().enumerate() {
            let Some(own) = &wire.own else { continue };
            self.digest.own(self.now, false, &wire.ifname);
            self.judge_unmade(own, nth > 0);
            match at.0 {
                HOST => self.tell_own(own.owner.clone(), own.store, false),
                _ => self.tell(Some(KernelMessage::LinkGone(*at))),
            }
        }
        if !gone.is_empty() {
            self.stats.count(match owner {
                LinkOwner::Endpoint(_) => "links of endpoints deleted",
                LinkOwner::Vlan { .. } => "links of VLANs deleted",
            });
        }
        match fate {
            Fate::TimedOut => (LIMIT, Err(LinkCause::TimedOut)),
            Fate::Done | Fate::Refused => (0, Ok(())),
        }
    }

    /// Lists the existing links. Returns how much later that is reported.
    pub(super) fn list_own(&mut self) -> (Micros, Result<OwnLinks, LinkCause>) {
        let links = self.kernel.list_own(self.store.number);
        self.stats
            .count_many("links of another store listed", links.strangers.len());
        // A link that has been there too long is a cause to give its lease back.
        let macs: Vec<_> = self.kernel.own().map(|(_, wire)| wire.mac).collect();
        self.causes(macs);
        // If none is ever made, the list does not matter.
        let fate = if self.plan.wires.is_some() {
            self.fate()
        } else {
            Fate::Done
        };
        match fate {
            Fate::Done => (0, Ok(links)),
            Fate::Refused => (0, Err(refused("list the links"))),
            Fate::TimedOut => (LIMIT, Err(LinkCause::TimedOut)),
        }
    }

    /// Tells the daemon that a link has appeared in the host's namespace, or has left it. The kernel reports that in order.
    fn tell_own(&mut self, owner: LinkOwner, store: u32, there: bool) {
        if store == self.store.number {
            let delay = self.rng.u64(10..5 * MILLI);
            let at = self.wired.next_news(self.now + delay);
            self.at(
                at,
                Event::Kernel(self.run, KernelMessage::OwnLink { owner, there }),
            );
        }
    }

    /// Lets dockerd move the link of an actor's endpoint into its container. Returns where it is then.
    pub(super) fn link_moves_in(&mut self, index: usize) -> Option<At> {
        let actor = &self.actors[index];
        let (id, netns) = (actor.endpoint.clone()?, actor.netns?);
        let owner = LinkOwner::Endpoint(id.clone());
        let is_it = |own: &Own| own.owner == owner && self.was_left(own);
        let too_late = self.kernel.own().any(|(own, _)| is_it(own));
        if let Some(attachment) = self.wired.has(&id).cloned().filter(|_| too_late) {
            self.left_for_too_long(&attachment);
            self.wired.end(&id);
        }
        let (at, own) = self.kernel.move_in(&owner, netns, self.now)?;
        self.stats.count("links moved into containers");
        self.tell_own(own.owner, own.store, false);
        Some(at)
    }

    /// Lets dockerd move a link back. Returns whether the link was made for dockerd.
    pub(super) fn link_moves_back(&mut self, at: At) -> bool {
        let Some(own) = self.kernel.move_back(at, self.now) else {
            return false;
        };
        self.stats.count("links moved back from containers");
        self.tell(Some(KernelMessage::LinkGone(at)));
        self.tell_own(own.owner, own.store, true);
        true
    }

    /// Checks that a link lives as long as its endpoint: none is deleted that dockerd is about to move, or that is in a
    /// container.
    fn judge_unmade(&mut self, own: &Own, with_another: bool) {
        let LinkOwner::Endpoint(id) = &own.owner else {
            return;
        };
        let Some(attachment) = self.wired.has(id).cloned() else {
            return;
        };
        if with_another {
            return self.fail(
                Rule::Wired,
                format!("the link of endpoint {id} is deleted with what it is made on"),
            );
        }
        if !self.was_left(own) {
            let detail = format!(
                "the link of endpoint {id} is deleted after {} ms, and dockerd has it",
                (self.now - own.came) / MILLI
            );
            return self.fail(Rule::Wired, detail);
        }
        self.left_for_too_long(&attachment);
    }

    /// Returns whether a link has been in the host's namespace for so long that nobody needs to expect dockerd to move it.
    fn was_left(&self, own: &Own) -> bool {
        self.now - own.came >= super::doors::may_stay(own)
    }

    /// Handles that dockerd is too slow for the link of an endpoint: its address goes back too.
    fn left_for_too_long(&mut self, attachment: &Attachment) {
        self.stats.count("links that dockerd left for too long");
        self.show(&Seen::Gone(attachment));
        let of_it = self
            .actors
            .iter_mut()
            .filter(|actor| actor.attachment == *attachment);
        of_it.for_each(|actor| actor.excused = true);
    }
}
