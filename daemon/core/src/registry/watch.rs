//! What the kernel reports about links and namespaces, and audits of interfaces when reports may have been lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

use super::timers::Key;
use super::{Notice, Registry};
use crate::backoff::{Backoff, LONGEST_PAUSE};
use crate::binding::{Binding, Life};
use crate::effect::{Outcome, Why};
use crate::interface::{At, Interfaces, News, NewsCount};
use crate::link::{Cookie, KernelMessage, LinkCause, LinkView, Target};
use crate::outbox::Waiter;
use crate::record::BindingId;
use crate::time::Now;
use crate::wire::Mac;

/// Interfaces that must still be looked at, a few at a time. One look serves all bindings there.
#[derive(Debug, Default)]
pub(super) struct Audit {
    waiting: VecDeque<At>,
    /// The looks under way, one for each interface, with the time of asking; `None`: it is to be repeated.
    under_way: BTreeMap<At, Option<NewsCount>>,
    /// How often the look at an interface failed, for those that are tried again.
    failures: BTreeMap<At, Backoff>,
}

impl Audit {
    /// Returns how many links must still be looked at.
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
    pub(super) fn wait(&mut self, all: impl IntoIterator<Item = At>) {
        self.waiting.extend(all);
    }

    /// Has a look that is under way repeated. Returns whether there is one.
    fn repeat(&mut self, at: At) -> bool {
        self.under_way
            .get_mut(&at)
            .map(|asked| *asked = None)
            .is_some()
    }
}

impl Registry {
    pub(crate) fn kernel(&mut self, now: Now, message: KernelMessage) {
        match message {
            KernelMessage::NetnsDied(cookie) => self.gone(now, cookie, None, LinkCause::NoNetns),
            // It may live on.
            KernelMessage::PathGone(cookie) => self.gone(now, cookie, None, LinkCause::NoPath),
            KernelMessage::LinkGone((cookie, ifindex)) => {
                let cause =
                    |path: PathBuf| LinkCause::NoLink(format!("{ifindex} in {}", path.display()));
                self.gone(now, cookie, Some(ifindex), cause)
            }
            KernelMessage::Carrier(at, up) => {
                self.tables.interfaces.has_news(at);
                let back = self.tables.interfaces.on_carrier(at, up, now.boot);
                if up {
                    self.tables.interfaces.on_up(at, now.boot);
                }
                if let Some(lost) = back {
                    self.tell_all(now, at, News::CarrierBack(lost));
                }
                self.tell_all(now, at, News::Free);
                // Whoever changed the Ethernet address may have taken the leased one off: a look decides.
                self.audit_if(at, |binding, interfaces| binding.is_to_announce(interfaces));
                if up {
                    self.look_for_carrier(|_, waits_at| waits_at == at);
                }
            }
            KernelMessage::Down(at) => {
                self.tables.interfaces.has_news(at);
                self.tell_all(now, at, News::Down);
            }
            KernelMessage::Ethernet(at, mac) => {
                self.tables.interfaces.has_news(at);
                self.has_ethernet(now, at, mac);
                self.appeared(mac, None);
            }
            KernelMessage::Appeared { number, mac } => self.appeared(mac, Some(number)),
            KernelMessage::OwnLink { owner, there } => {
                self.notices.push_back(Notice::OwnLink { owner, there })
            }
            KernelMessage::AddressAdded(at, address) => {
                self.tables.interfaces.has_news(at);
                self.tell_all(now, at, News::AddressAdded(address));
                // The kernel's report does not name the mask.
                self.audit_if(at, |binding, _| binding.may_be_outdated(address));
            }
            // It may be back by now, or the whole link may be disappearing: a look decides.
            KernelMessage::AddressGone(at, address) => self.audit_if(at, |binding, interfaces| {
                binding.expected_address(interfaces) == Some(address)
            }),
            KernelMessage::Missed => {
                tracing::warn!("kernel messages were lost: looking at every link");
                self.audit_all();
                self.look_for_carrier(|_, _| true);
                self.seek_all();
                self.notices.push_back(Notice::Missed);
            }
        }
    }

    /// Records the Ethernet address of an interface, and tells the bindings that know another.
    fn has_ethernet(&mut self, now: Now, at: At, mac: Mac) {
        self.tables.interfaces.on_ethernet(at, mac);
        for id in self.tables.interfaces.bindings(at.0, Some(at.1)) {
            let binding = self.tables.bindings.get(id);
            if binding.is_some_and(|binding| binding.link.mac() != mac) {
                let news = News::Ethernet(mac);
                self.tables
                    .with(now, id, |binding, cx| binding.on_news(news, cx));
            }
        }
    }

    /// Has those who waited for a change of an interface by the daemon look at the result.
    pub(super) fn link_changed(&mut self, now: Now, at: At) {
        self.tell_all(now, at, News::Free);
        self.admissions_changed(at);
    }

    /// Handles the end of a link of a namespace, or with `None` of all, or of the way there. A look at what is held there all the
    /// same decides whether it lives.
    fn gone(
        &mut self,
        now: Now,
        cookie: Cookie,
        ifindex: Option<u32>,
        cause: impl Fn(PathBuf) -> LinkCause,
    ) {
        for id in self.tables.interfaces.bindings(cookie, ifindex) {
            let path = self.tables.bindings.get(id).and_then(|it| it.link.netns());
            if let Some(news) = path.map(|path| News::Gone(cause(path.to_owned()))) {
                self.tables
                    .with(now, id, |binding, cx| binding.on_news(news, cx));
                self.audit_one(id);
            }
        }
        self.admissions_gone(now, cookie, ifindex);
    }

    /// Tells all bindings of an interface.
    fn tell_all(&mut self, now: Now, at: At, news: News<'_>) {
        for id in self.tables.interfaces.bindings(at.0, Some(at.1)) {
            self.tables
                .with(now, id, |binding, cx| binding.on_news(news.clone(), cx));
        }
    }

    /// Looks at an interface if one of those that hold a lease there has reason to.
    fn audit_if(&mut self, at: At, has_reason: impl Fn(&Binding, &Interfaces) -> bool) {
        let mut held = self.held_at(at).into_iter();
        if held.any(|binding| has_reason(binding, &self.tables.interfaces)) {
            self.audit_at(at);
        }
    }

    /// Looks at the interface of a binding that is held, if it has one.
    pub(super) fn audit_one(&mut self, id: BindingId) {
        let at = self.tables.bindings.get(id).and_then(watched);
        at.into_iter().for_each(|at| self.audit_at(at));
    }

    /// Looks at an interface.
    fn audit_at(&mut self, at: At) {
        if !self.audit.waiting.contains(&at) {
            self.audit.waiting.push_back(at);
        }
        self.audit_next();
    }

    pub(super) fn audit_again(&mut self, at: At) {
        self.tables.timers.set(Key::Audit(at), None);
        self.audit_at(at);
    }

    /// Looks at the interface of every held binding, and of every ADD's: the kernel reports nothing about a namespace that has not
    /// been looked at since it lost messages. Those that wait already keep their turn: if somebody floods a namespace
    /// with changes, messages may be lost more often than all interfaces can be looked at.
    pub(super) fn audit_all(&mut self) {
        let mut all: BTreeSet<_> = self.tables.bindings.iter().filter_map(watched).collect();
        self.audit
            .waiting
            .iter()
            .for_each(|waits| _ = all.remove(waits));
        self.audit.waiting.extend(all);
        self.audit.failures.clear();
        self.audit_next();
    }

    fn audit_next(&mut self) {
        while self.audit.under_way.len() < self.config.audits.max(1) {
            let Some(at) = self.audit.waiting.pop_front() else {
                if self.audit.under_way.is_empty() {
                    let witnesses = self.sight.witnesses(&self.tables.bindings);
                    if !witnesses.is_empty() {
                        self.audit.wait(witnesses);
                        continue;
                    }
                }
                return;
            };
            let held = self.held_at(at);
            let settles = self.tables.interfaces.is_settling(at);
            match held.first().map(|first| Target::Known(first.link.clone())) {
                // Two at once could come back in any order.
                Some(_) if self.audit.repeat(at) => {}
                Some(target) => {
                    self.audit
                        .under_way
                        .insert(at, Some(self.tables.interfaces.asked(at)));
                    self.tables
                        .out
                        .inspect_with(Waiter::Audit(at), target, settles);
                }
                None => {
                    self.audit.failures.remove(&at);
                    self.tables
                        .interfaces
                        .bindings(at.0, Some(at.1))
                        .into_iter()
                        .for_each(|id| self.sight.forget(id));
                }
            }
        }
    }

    /// Returns the bindings of an interface that are held.
    fn held_at(&self, at: At) -> Vec<&Binding> {
        let here = self
            .tables
            .interfaces
            .bindings(at.0, Some(at.1))
            .into_iter();
        let here = here.filter_map(|id| self.tables.bindings.get(id));
        here.filter(|binding| watched(binding).is_some()).collect()
    }

    pub(super) fn audited(&mut self, now: Now, at: At, outcome: Outcome) {
        let asked = self.audit.under_way.remove(&at);
        // What it shows may be older than what is known by now: it only proves that the link is there.
        let outdated = asked != Some(Some(self.tables.interfaces.asked(at)));
        self.tables.timers.set(Key::Audit(at), None);
        let held: Vec<_> = self.held_at(at).iter().map(|binding| binding.id).collect();
        let Outcome::Inspected(result) = outcome else {
            return self.audit_next();
        };
        match result {
            Ok(_) if outdated => self.audit_at(at),
            Ok(view) => self.saw_interface(now, (at, held), &view),
            Err(cause) => self.missed_interface(now, at, held, cause, outdated),
        }
        self.audit_next();
    }

    /// Records that a binding's namespace was not seen.
    fn doubt(&mut self, id: BindingId) {
        let binding = self
            .tables
            .bindings
            .get(id)
            .filter(|binding| binding.is_held());
        binding
            .into_iter()
            .for_each(|binding| self.sight.doubt(binding));
    }

    /// Records that a binding's namespace was seen. What was not seen in its directory is looked at once more.
    pub(super) fn saw(&mut self, id: BindingId) {
        let Some(binding) = self.tables.bindings.get(id) else {
            return;
        };
        self.sight
            .saw(binding)
            .into_iter()
            .for_each(|other| self.audit_one(other));
    }

    /// Tells the bindings of an interface what a look showed there.
    fn saw_interface(&mut self, now: Now, (at, mut held): (At, Vec<BindingId>), view: &LinkView) {
        self.audit.failures.remove(&at);
        for id in &held {
            self.saw(*id);
        }
        // If something is missing there, nobody else removed it.
        held.retain(|id| !self.is_being_cleared(*id));
        if held.is_empty() {
            return;
        }
        self.has_ethernet(now, at, view.mac);
        let back = self
            .tables
            .interfaces
            .on_carrier(at, view.carrier, now.boot);
        if view.up {
            self.tables.interfaces.on_up(at, now.boot);
        }
        for id in held {
            self.tables.with(now, id, |binding, cx| {
                binding.on_news(News::Seen { view, back }, cx)
            });
        }
    }

    /// Tells the bindings of an interface that it is gone, if the look that failed shows that; else it is tried again.
    fn missed_interface(
        &mut self,
        now: Now,
        at: At,
        held: Vec<BindingId>,
        cause: LinkCause,
        outdated: bool,
    ) {
        let mut backoff = self.audit.failures.remove(&at).unwrap_or_default();
        for id in held {
            // If no path led there before, the kernel was asked, and no longer knows it.
            let binding = self.tables.bindings.get(id);
            let was_pathless = binding.is_some_and(|binding| binding.is_pathless);
            let is_pathless = matches!(cause, LinkCause::NoPath(_));
            let counts = !outdated && (self.sight.takes_voucher(id) || was_pathless);
            // Whether or not this daemon is blind: without a lease there is nothing to give back, and an interface that is found
            // by its Ethernet address is searched for in all namespaces first.
            let is_over = !outdated
                && cause.is_unseen()
                && !is_pathless
                && self.tables.bindings.get(id).is_some_and(|binding| {
                    binding.lacks_lease(now.boot) || binding.profile.wants.is_found_later()
                });
            let is_gone = cause.is_gone() && (counts || !cause.is_missing()) || is_over;
            if is_gone {
                self.sight.forget(id);
                if !cause.is_unseen() {
                    self.saw(id);
                }
            } else if !outdated && cause.is_unseen() && !counts {
                self.doubt(id);
            }
            if is_gone || is_pathless && !outdated {
                self.tables.with(now, id, |binding, cx| {
                    binding.on_news(News::Gone(cause.clone()), cx)
                });
            }
        }
        let held = self.held_at(at);
        let Some(attachment) = held.first().map(|binding| binding.attachment.clone()) else {
            return;
        };
        if outdated {
            return self.audit_at(at);
        }
        backoff.fail();
        let pause = backoff.pause(LONGEST_PAUSE, &mut self.tables.rng);
        // If nothing in a directory is seen, that is reported once for all of it.
        match cause.is_unseen() {
            true => {
                tracing::debug!(%attachment, %cause, ?pause, "namespace not seen: looking again")
            }
            false => {
                tracing::warn!(%attachment, %cause, ?pause, "link could not be looked at: trying again")
            }
        }
        self.audit.failures.insert(at, backoff);
        self.tables
            .timers
            .set(Key::Audit(at), Some((now.boot + pause, Why::Work)));
    }
}

/// Returns the interface of a binding that can be looked at: a host link shows nothing about the binding's container.
pub(super) fn watched(binding: &Binding) -> Option<At> {
    let is_leaving = matches!(binding.life, Life::Releasing(_));
    binding.link.in_netns().filter(|_| !is_leaving)
}
