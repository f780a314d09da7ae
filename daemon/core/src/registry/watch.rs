//! What the kernel tells of links and namespaces, and looking for oneself where it may have told too much at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use super::Registry;
use super::timers::Key;
use crate::backoff::Backoff;
use crate::binding::{Binding, Life};
use crate::effect::{Outcome, Why};
use crate::interface::{Asked, At, News};
use crate::link::{Cookie, KernelEvent, LinkCause, Target};
use crate::outbox::Waiter;
use crate::record::BindingId;
use crate::time::{Instant, Now};
use crate::wire::Mac;

/// The longest pause before a look that failed is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Links that are still to be looked at, a few at a time.
#[derive(Debug, Default)]
pub(super) struct Audit {
    waiting: VecDeque<BindingId>,
    /// The looks under way, one a binding, each with when it was asked for; `None`: it is to be repeated.
    under_way: BTreeMap<BindingId, Option<Asked>>,
    /// How often the look at a link failed, for those that are tried again.
    failures: BTreeMap<BindingId, Backoff>,
    /// When messages were lost last.
    missed: Option<Instant>,
}

impl Audit {
    /// Returns how many links are to be looked at.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns how many looks are under way.
    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Returns how many links wait for another look.
    pub(super) fn failed(&self) -> usize {
        self.failures.len()
    }

    /// Has these looked at, after those that wait already.
    pub(super) fn wait(&mut self, ids: impl IntoIterator<Item = BindingId>) {
        self.waiting.extend(ids);
    }

    /// Has a look that is under way repeated. Returns whether there is one.
    fn repeat(&mut self, id: BindingId) -> bool {
        self.under_way.get_mut(&id).map(|asked| *asked = None).is_some()
    }
}

impl Registry {
    pub(super) fn kernel(&mut self, now: Now, event: KernelEvent) {
        match event {
            KernelEvent::NetnsDied { cookie } => self.gone(now, cookie, None),
            KernelEvent::PathGone { cookie } => self.hidden(now, cookie),
            KernelEvent::LinkGone { cookie, ifindex } => self.gone(now, cookie, Some(ifindex)),
            KernelEvent::Carrier { cookie, ifindex, up } => {
                let at = (cookie, ifindex);
                self.interfaces.has_news(at);
                let back = self.interfaces.on_carrier(at, up, now.boot);
                if up {
                    self.interfaces.on_up(at);
                }
                for id in self.interfaces.bindings(cookie, Some(ifindex)) {
                    self.with(now, id, |binding, cx| {
                        back.into_iter().for_each(|lost| binding.on_news(News::CarrierBack(lost), cx));
                        if up {
                            binding.on_news(News::Up, cx);
                        }
                        binding.on_news(News::Free, cx);
                    });
                    // Whoever gave the Ethernet address away may have taken the leased one off: a look decides.
                    if self.bindings.get(id).is_some_and(|binding| binding.is_to_announce(&self.interfaces)) {
                        self.audit_one(id);
                    }
                }
                if up {
                    self.carrier_up(cookie, ifindex);
                }
            }
            KernelEvent::Down { cookie, ifindex } => {
                self.interfaces.has_news((cookie, ifindex));
                for id in self.interfaces.bindings(cookie, Some(ifindex)) {
                    self.with(now, id, |binding, cx| binding.on_news(News::Down, cx));
                }
            }
            KernelEvent::Ethernet { cookie, ifindex, mac } => {
                self.interfaces.has_news((cookie, ifindex));
                self.has_ethernet(now, (cookie, ifindex), mac);
                self.appeared(mac, None);
            }
            KernelEvent::Appeared { number, mac } => self.appeared(mac, Some(number)),
            KernelEvent::OwnLink { owner, there } => self.own_link(now, owner, there),
            KernelEvent::AddressAdded { cookie, ifindex, address } => {
                self.interfaces.has_news((cookie, ifindex));
                for id in self.interfaces.bindings(cookie, Some(ifindex)) {
                    self.with(now, id, |binding, cx| binding.on_news(News::AddressAdded(address), cx));
                    // The news do not say the mask.
                    if self.bindings.get(id).is_some_and(|binding| binding.may_have_other_mask(address)) {
                        self.audit_one(id);
                    }
                }
            }
            // It may be back by now, or the whole link may be going: a look decides.
            KernelEvent::AddressGone { cookie, ifindex, address } => {
                let looked_at = self.with_address(cookie, ifindex, address);
                looked_at.into_iter().for_each(|id| self.audit_one(id));
            }
            KernelEvent::Missed => {
                tracing::warn!("kernel messages were lost, looking at every link");
                self.audit.missed = Some(now.boot);
                self.audit_all();
                self.look_for_carrier();
                self.seek_all();
                self.list_own_links();
            }
        }
    }

    /// Records the Ethernet address of an interface, and tells the tenants that know it by another.
    fn has_ethernet(&mut self, now: Now, at: At, mac: Mac) {
        self.interfaces.on_ethernet(at, mac);
        for id in self.interfaces.bindings(at.0, Some(at.1)) {
            if self.bindings.get(id).is_some_and(|binding| binding.link.mac() != mac) {
                self.with(now, id, |binding, cx| binding.on_news(News::Ethernet(mac), cx));
            }
        }
    }

    /// A change of an interface by the daemon is over: who waited for that looks at what it left.
    pub(super) fn link_changed(&mut self, now: Now, at: At) {
        for id in self.interfaces.bindings(at.0, Some(at.1)) {
            self.with(now, id, |binding, cx| binding.on_news(News::Free, cx));
        }
        self.admissions_changed(at);
    }

    /// A link (or with `None` all links) of a namespace is gone.
    fn gone(&mut self, now: Now, cookie: Cookie, ifindex: Option<u32>) {
        for id in self.interfaces.bindings(cookie, ifindex) {
            let path = self.bindings.get(id).and_then(|binding| binding.link.netns()).map(Path::to_owned);
            let Some(path) = path else { continue };
            let cause = match ifindex {
                Some(index) => LinkCause::NoLink(format!("{index} in {}", path.display())),
                None => LinkCause::NoNetns(path),
            };
            self.with(now, id, |binding, cx| binding.on_news(News::Gone(cause), cx));
        }
        self.admissions_gone(now, cookie, ifindex);
    }

    /// No path leads to a namespace any more, which may live on. A look by the path of each binding shows that.
    fn hidden(&mut self, now: Now, cookie: Cookie) {
        for id in self.interfaces.bindings(cookie, None) {
            let path = self.bindings.get(id).and_then(|binding| binding.link.netns()).map(Path::to_owned);
            let Some(path) = path else { continue };
            self.with(now, id, |binding, cx| binding.on_news(News::Hidden(LinkCause::NoPath(path)), cx));
            self.audit_one(id);
        }
        self.admissions_gone(now, cookie, None);
    }

    /// Returns the bindings of a link that should carry an address.
    fn with_address(&self, cookie: Cookie, ifindex: u32, address: IpAddr) -> Vec<BindingId> {
        let expects = |id: &BindingId| {
            self.bindings.get(*id).and_then(|binding| binding.expected_address(&self.interfaces)).map(IpAddr::V4)
                == Some(address)
        };
        self.interfaces.bindings(cookie, Some(ifindex)).into_iter().filter(expects).collect()
    }

    /// Looks at the link of a binding.
    pub(super) fn audit_one(&mut self, id: BindingId) {
        if !self.audit.waiting.contains(&id) {
            self.audit.waiting.push_back(id);
        }
        self.audit_next();
    }

    /// Looks at the link of a binding that is held from now on, if messages were lost since its ADD began: nothing is heard of
    /// a namespace that was not looked at since.
    pub(super) fn audit_new(&mut self, id: BindingId, began: Instant) {
        if self.audit.missed.is_some_and(|at| at >= began) {
            self.audit_one(id);
        }
    }

    /// Looks at the former link of a binding no more.
    pub(super) fn audit_no_more(&mut self, id: BindingId) {
        self.audit.waiting.retain(|waiting| *waiting != id);
        self.audit.failures.remove(&id);
        self.timers.set(Key::Audit(id), None);
        self.doubt_no_more(id);
        if self.audit.under_way.remove(&id).is_some() {
            self.out.forget_all(|waiter| *waiter == Waiter::Audit(id));
            self.audit_next();
        }
    }

    pub(super) fn audit_again(&mut self, id: BindingId) {
        self.timers.set(Key::Audit(id), None);
        self.audit_one(id);
    }

    /// Looks at the link of every binding that is held. Those that wait already keep their turn: whoever floods a namespace
    /// with changes may have messages lost more often than all can be looked at.
    pub(super) fn audit_all(&mut self) {
        let waiting: BTreeSet<_> = self.audit.waiting.iter().copied().collect();
        let held = self.bindings.iter().filter(|binding| is_watched(binding));
        let others = held.map(|binding| binding.id).filter(|id| !waiting.contains(id));
        self.audit.waiting.extend(others);
        self.audit.failures.clear();
        self.audit_next();
    }

    fn audit_next(&mut self) {
        while self.audit.under_way.len() < self.config.audits.max(1) {
            let Some(id) = self.audit.waiting.pop_front() else {
                if self.audit.under_way.is_empty() && self.seek_witnesses() {
                    continue;
                }
                return;
            };
            match self.bindings.get(id).filter(|binding| is_watched(binding)) {
                // Two at once could come back in any order.
                Some(_) if self.audit.repeat(id) => {}
                Some(binding) => {
                    self.audit.under_way.insert(id, Some(self.interfaces.asked(&binding.link)));
                    let target = Target::Known(binding.link.clone());
                    self.out.inspect_with(Waiter::Audit(id), target, binding.is_settling());
                }
                None => {
                    self.audit.failures.remove(&id);
                    self.doubt_no_more(id);
                }
            }
        }
    }

    pub(super) fn audited(&mut self, now: Now, id: BindingId, outcome: Outcome) {
        let asked = self.audit.under_way.remove(&id);
        let by_now = self.bindings.get(id).map(|binding| self.interfaces.asked(&binding.link));
        // What it shows may be older than what is known by now: it counts for nothing but that the link is there.
        let outdated = asked.is_some_and(|asked| asked.is_none() || by_now.is_some_and(|now| asked != Some(now)));
        let mut backoff = self.audit.failures.remove(&id).unwrap_or_default();
        // Where no path led before, the kernel was asked, and knows it no more.
        let was_hidden = self.bindings.get(id).is_some_and(|binding| binding.is_hidden);
        let counts = !outdated && (self.sight.takes_voucher(id) || was_hidden);
        self.timers.set(Key::Audit(id), None);
        match outcome {
            Outcome::Inspected(Err(cause)) if cause.is_gone() && (counts || !cause.is_missing()) => {
                self.doubt_no_more(id);
                if !cause.is_missing() {
                    self.saw(id);
                }
                self.with(now, id, |binding, cx| binding.on_news(News::Gone(cause), cx));
            }
            Outcome::Inspected(_) if outdated => self.audit_one(id),
            // What it lacks by now is not somebody else's doing.
            Outcome::Inspected(Ok(_)) if self.is_being_cleared(id) => self.saw(id),
            Outcome::Inspected(Ok(view)) => {
                self.saw(id);
                let at = self.bindings.get(id).and_then(|binding| binding.link.in_netns());
                at.into_iter().for_each(|at| self.has_ethernet(now, at, view.mac));
                let back = at.and_then(|at| self.interfaces.on_carrier(at, view.carrier, now.boot));
                if let (Some(at), Some(lost)) = (at, back) {
                    let others = self.interfaces.bindings(at.0, Some(at.1)).into_iter().filter(|other| *other != id);
                    others.for_each(|other| {
                        self.with(now, other, |binding, cx| binding.on_news(News::CarrierBack(lost), cx))
                    });
                }
                self.with(now, id, |binding, cx| binding.on_news(News::Seen { view: &view, back }, cx));
            }
            Outcome::Inspected(Err(cause)) if self.bindings.get(id).is_some() => {
                backoff.fail();
                let pause = backoff.pause(LONGEST_PAUSE, &mut self.rng);
                let at = now.boot + pause;
                let attachment = self.attachment(id).map(tracing::field::display);
                // What nothing is seen of is told once for all in its directory.
                match cause.is_unseen() {
                    true => tracing::debug!(attachment, %cause, ?pause, "namespace not seen, looking again"),
                    false => tracing::warn!(attachment, %cause, ?pause, "link not looked at, trying again"),
                }
                if cause.is_unseen() && !counts {
                    self.doubt(id);
                }
                self.audit.failures.insert(id, backoff);
                self.timers.set(Key::Audit(id), Some((at, Why::Work)));
                if let LinkCause::NoPath(_) = cause {
                    self.with(now, id, |binding, cx| binding.on_news(News::Hidden(cause), cx));
                }
            }
            Outcome::Inspected(Err(_))
            | Outcome::Persisted(_)
            | Outcome::Opened(_)
            | Outcome::Sent(_)
            | Outcome::Applied { .. }
            | Outcome::Prepared { .. }
            | Outcome::Surveyed(_)
            | Outcome::Sought(_)
            | Outcome::Closed
            | Outcome::Made(_)
            | Outcome::Unmade(_)
            | Outcome::OwnLinks(_) => {}
        }
        self.audit_next();
    }
}

/// Returns whether a binding's link is looked at: a link of the host shows nothing of whom it is for.
fn is_watched(binding: &Binding) -> bool {
    matches!(binding.life, Life::Held(_)) && !binding.is_on_host()
}
