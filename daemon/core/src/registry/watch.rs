//! What the kernel tells of links and namespaces, and looking for oneself where it may have told too much at once.

use std::collections::VecDeque;

use super::Registry;
use crate::binding::{Life, Owner, Purpose};
use crate::effect::Outcome;
use crate::link::{Cookie, KernelEvent, LinkCause, Target};
use crate::record::BindingId;
use crate::time::Now;

/// Links that are still to be looked at, a few at a time.
#[derive(Debug, Default)]
pub(super) struct Audit {
    waiting: VecDeque<BindingId>,
    under_way: usize,
}

impl Registry {
    pub(super) fn kernel(&mut self, now: Now, event: KernelEvent) {
        match event {
            KernelEvent::NetnsDied { cookie } => self.gone(now, cookie, None),
            KernelEvent::LinkGone { cookie, ifindex } => self.gone(now, cookie, Some(ifindex)),
            KernelEvent::Carrier { cookie, ifindex, up } => {
                for id in self.of_link(cookie, Some(ifindex)) {
                    self.with(now, id, |binding, cx| binding.on_carrier(up, cx));
                }
                if up {
                    self.carrier_up(now, cookie, ifindex);
                }
            }
            // Whether somebody else changes our address is for the interface's keeper to see (CHECK).
            KernelEvent::AddressAdded { .. } | KernelEvent::AddressGone { .. } => {}
            KernelEvent::Missed => {
                tracing::warn!("kernel messages were lost, looking at every link");
                self.audit_all();
                self.look_for_carrier();
            }
        }
    }

    /// A link (or with `None` all links) of a namespace is gone.
    fn gone(&mut self, now: Now, cookie: Cookie, ifindex: Option<u32>) {
        for id in self.of_link(cookie, ifindex) {
            let path = self.bindings.get(&id).and_then(|binding| binding.netns_path());
            let Some(path) = path else { continue };
            let cause = match ifindex {
                Some(index) => LinkCause::NoLink(format!("{index} in {}", path.display())),
                None => LinkCause::NoNetns(path),
            };
            self.with(now, id, |binding, cx| binding.on_link_gone(cause, cx));
        }
        self.admissions_gone(now, cookie, ifindex);
    }

    fn of_link(&self, cookie: Cookie, ifindex: Option<u32>) -> Vec<BindingId> {
        let in_netns = self.by_netns.get(&cookie).into_iter().flatten().copied();
        let is_link = |id: &BindingId| {
            let link = self.bindings.get(id).and_then(|binding| binding.link.in_netns());
            link.is_some_and(|(_, index)| ifindex.is_none_or(|wanted| wanted == index))
        };
        in_netns.filter(is_link).collect()
    }

    /// Looks at the link of every binding that is held.
    pub(super) fn audit_all(&mut self) {
        let held = self.bindings.values().filter(|binding| matches!(binding.life, Life::Held(_)));
        self.audit.waiting = held.map(|binding| binding.id).collect();
        self.audit_next();
    }

    fn audit_next(&mut self) {
        while self.audit.under_way < self.config.audits.max(1) {
            let Some(id) = self.audit.waiting.pop_front() else { return };
            let Some(binding) = self.bindings.get(&id) else { continue };
            if matches!(binding.life, Life::Held(_)) {
                self.audit.under_way += 1;
                self.out.inspect(Owner::Audit(id), Purpose::Audit, Target::Known(binding.link.clone()));
            }
        }
    }

    pub(super) fn audited(&mut self, now: Now, id: BindingId, outcome: Outcome) {
        self.audit.under_way = self.audit.under_way.saturating_sub(1);
        match outcome {
            Outcome::Inspected(Err(cause)) if cause.is_gone() => {
                self.with(now, id, |binding, cx| binding.on_link_gone(cause, cx));
            }
            Outcome::Inspected(Ok(view)) => self.with(now, id, |binding, cx| binding.on_carrier(view.carrier, cx)),
            Outcome::Inspected(Err(cause)) => {
                tracing::warn!(binding = id.0, %cause, "link not looked at")
            }
            Outcome::Persisted(_) | Outcome::Opened(_) | Outcome::Applied { .. } => {}
        }
        self.audit_next();
    }
}
