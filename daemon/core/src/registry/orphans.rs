//! Links and namespaces that disappeared without a DEL.
//!
//! Several main plugins delete the link before they pass a DEL on, and an engine may remove the namespace first. Only if no DEL
//! follows for a while has somebody lost a container, and only then is there an event.

use std::collections::VecDeque;

use crate::event::Event;
use crate::identity::Attachment;
use crate::outbox::Outbox;
use crate::patience::NEXT_STEP;
use crate::record::BindingId;
use crate::time::{Instant, Now};

/// How many may wait. Beyond that the oldest are reported early.
const MOST: usize = 1024;

/// A link that disappeared, and the event that says so if no DEL comes.
#[derive(Debug)]
struct Orphan {
    due: Instant,
    /// Whose it was.
    binding: BindingId,
    event: Box<Event>,
}

/// Those that wait for their DEL, oldest first.
#[derive(Debug, Default)]
pub(super) struct Orphans(VecDeque<Orphan>);

impl Orphans {
    /// Adds a link that has just disappeared.
    pub(super) fn add(&mut self, binding: BindingId, event: Box<Event>, now: Instant) {
        self.0.push_back(Orphan {
            due: now + NEXT_STEP,
            binding,
            event,
        });
    }

    /// Forgets those of an attachment: its DEL has come.
    pub(super) fn claim(&mut self, attachment: &Attachment) {
        self.0
            .retain(|orphan| orphan.event.attachment != *attachment);
    }

    /// Takes out the next one whose DEL does not come.
    fn take(&mut self, now: Instant) -> Option<Orphan> {
        self.0
            .pop_front_if(|orphan| now >= orphan.due)
            .or_else(|| (self.0.len() > MOST).then(|| self.0.pop_front())?)
    }

    /// Returns when the next one is reported.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.front().map(|orphan| orphan.due)
    }

    /// Reports the links that have disappeared without a DEL by now.
    pub(super) fn tell(&mut self, now: Now, out: &mut Outbox) {
        while let Some(Orphan { binding, event, .. }) = self.take(now.boot) {
            let address = event.address.map(tracing::field::display);
            tracing::warn!(attachment = %event.attachment, address, cause = %event.cause, "no DEL came for a link that is gone");
            let wall = now.wall;
            out.note_alone(binding, Event { wall, ..*event });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::event::EventKind;
    use crate::time::WallTime;

    fn event(n: usize) -> Box<Event> {
        let attachment = Attachment::cni("lan", n.to_string(), "eth0");
        let wall = WallTime::from_epoch(Duration::ZERO);
        let kind = EventKind::OrphanFound;
        Box::new(Event {
            wall,
            attachment,
            kind,
            address: None,
            server: None,
            cause: String::new(),
            run: None,
        })
    }

    fn told(orphans: &mut Orphans, now: Instant) -> Vec<String> {
        std::iter::from_fn(|| orphans.take(now))
            .map(|orphan| orphan.event.attachment.container().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn of_very_many_at_once_the_oldest_are_told_of_early() {
        let mut orphans = Orphans::default();
        let now = Instant::from_boot(Duration::from_secs(1));
        (0..MOST + 2).for_each(|n| orphans.add(BindingId(n as u64), event(n), now));
        assert_eq!(told(&mut orphans, now), ["0", "1"]);
        orphans.claim(&event(7).attachment);
        assert_eq!(
            told(&mut orphans, now + NEXT_STEP - Duration::from_micros(1)),
            [""; 0]
        );
        assert_eq!(told(&mut orphans, now + NEXT_STEP).len(), MOST - 1);
        assert_eq!(orphans.deadline(), None);
    }
}
