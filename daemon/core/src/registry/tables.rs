//! The bindings, and what they share: effects, interfaces, LANs, profiles, deadlines. A binding decides what concerns
//! it alone; the parts of the registry, which are given these tables, decide what concerns several.

use std::sync::Arc;

use fastrand::Rng;

use super::index::Index;
use super::profiles::Profiles;
use super::timers::Timers;
use crate::binding::{Binding, Cx, Hold, Life, Release};
use crate::conflict::departed::Departed;
use crate::effect::ExchangeId;
use crate::identity::{Attachment, Lan};
use crate::interface::{At, Interfaces, News};
use crate::lan::Accounts;
use crate::outbox::{Outbox, Owner};
use crate::profile::Profile;
use crate::record::BindingId;
use crate::time::{BootId, Now};
use crate::wire::Mac;

/// The bindings, and what they work with.
#[derive(Debug)]
pub(crate) struct Tables {
    /// What both clocks read when the current input arrived.
    pub(crate) now: Now,
    pub(super) boot: BootId,
    pub(crate) rng: Rng,
    pub(crate) out: Outbox,
    pub(super) bindings: Index,
    pub(super) interfaces: Interfaces,
    pub(super) departed: Departed,
    /// What is known about each LAN.
    pub(crate) lans: Accounts,
    pub(super) profiles: Profiles,
    pub(crate) timers: Timers,
}

impl Tables {
    /// Returns empty tables. All their randomness comes from `seed`.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            now: Now::default(),
            boot: BootId(String::new()),
            rng: Rng::with_seed(seed),
            out: Outbox::default(),
            bindings: Index::default(),
            interfaces: Interfaces::default(),
            departed: Departed::default(),
            lans: Accounts::default(),
            profiles: Profiles::default(),
            timers: Timers::default(),
        }
    }

    /// Has a binding handle something, and keeps the tables in step.
    pub(super) fn with(&mut self, id: BindingId, f: impl FnOnce(&mut Life, &mut Cx<'_>)) {
        let now = self.now;
        self.bindings.with(id, now.boot, |own, life, holders| {
            let mut cx = Cx {
                own,
                now,
                boot: &self.boot,
                out: &mut self.out,
                rng: &mut self.rng,
                holders,
                interfaces: &mut self.interfaces,
                lans: &mut self.lans,
                departed: &self.departed,
            };
            f(life, &mut cx);
        });
    }

    /// Lets a release go on with what happened, if the binding is one.
    pub(super) fn at_release(
        &mut self,
        id: BindingId,
        what: impl FnOnce(&mut Release, &mut Cx<'_>),
    ) {
        self.with(id, |life, cx| life.gives_back(cx, what));
    }

    /// Adds a binding.
    pub(super) fn insert(&mut self, binding: Binding) {
        if binding.resolver().is_some() {
            self.out.resolvers.insert(binding.attachment.clone());
        }
        self.bindings.insert(binding, self.now.boot);
    }

    /// Removes a binding that is closed.
    pub(super) fn remove(&mut self, id: BindingId) {
        self.with(id, |_, cx| cx.close());
        self.departs(id);
        let Some(binding) = self.bindings.remove(id) else {
            return;
        };
        self.interfaces.leave(&binding.link, id);
        if binding.resolver().is_some() {
            self.out.resolvers.insert(binding.attachment.clone());
        }
    }

    /// Records that a binding's interface may be about to disappear, with an address that another may have by now.
    pub(super) fn departs(&mut self, id: BindingId) {
        let now = self.now;
        let binding = self.bindings.get(id);
        let binding = binding.filter(|it| it.link.in_netns().is_some());
        if let Some((binding, lease)) = binding.and_then(|it| Some((it, it.lease(now.boot)?))) {
            let (lan, mac) = (&binding.identity.lan, binding.link.mac());
            self.departed.add(lan, lease.ip(), mac, now.boot);
        }
    }

    /// Returns whose lease an exchange is about; `None` if it is about none, or closed.
    pub(crate) fn whose(&self, exchange: ExchangeId) -> Option<Arc<Attachment>> {
        match self.out.exchange(exchange)? {
            Owner::Binding(id) => self.attachment(id),
            Owner::Above(_) => None,
        }
    }

    pub(super) fn lan(&self, id: BindingId) -> Option<Lan> {
        Some(self.bindings.get(id)?.identity.lan.clone())
    }

    pub(super) fn attachment(&self, id: BindingId) -> Option<Arc<Attachment>> {
        Some(self.bindings.get(id)?.attachment.clone())
    }

    /// Records the Ethernet address of an interface, and tells the bindings that know another.
    pub(super) fn has_ethernet(&mut self, at: At, mac: Mac) {
        self.interfaces.on_ethernet(at, mac);
        for id in self.interfaces.bindings(at.0, Some(at.1)) {
            let binding = self.bindings.get(id);
            if binding.is_some_and(|binding| binding.link.mac() != mac) {
                let news = News::Ethernet(mac);
                self.with(id, |life, cx| life.on_news(news, cx));
            }
        }
    }

    /// Tells all bindings of an interface.
    pub(super) fn tell_all(&mut self, at: At, news: News<'_>) {
        for id in self.interfaces.bindings(at.0, Some(at.1)) {
            self.with(id, |life, cx| life.on_news(news.clone(), cx));
        }
    }

    /// Returns the bindings of an interface that are held.
    pub(super) fn held_at(&self, at: At) -> Vec<&Binding> {
        let here = self.interfaces.bindings(at.0, Some(at.1)).into_iter();
        let here = here.filter_map(|id| self.bindings.get(id));
        here.filter(|binding| binding.watched().is_some()).collect()
    }

    /// Has the interface of a binding that lives inside its container carry nothing of the lease, before that is given back.
    /// Returns whether it lives there.
    pub(super) fn vacates(&mut self, id: BindingId) -> bool {
        let binding = self.bindings.get(id);
        let is_inside = binding.is_some_and(Binding::is_inside);
        if is_inside {
            self.with(id, |life, cx| life.keeps(cx, Hold::vacate));
        }
        is_inside
    }

    /// Changes what is asked for a binding, and how its lease is used.
    pub(crate) fn change_profile(&mut self, id: BindingId, change: impl FnOnce(&mut Profile)) {
        let Some(binding) = self.bindings.get(id) else {
            return;
        };
        let mut profile = (*binding.profile).clone();
        change(&mut profile);
        if profile != *binding.profile {
            let profile = self.profiles.share(profile);
            self.with(id, |life, cx| {
                cx.own.profile = profile;
                life.keeps(cx, |hold, _| hold.record_again());
            });
        }
    }
}
