//! A station claims the address under watch. Before that has any effect, two questions are asked:
//!
//! 1. Is it the container itself? The kernel answers ARP on each interface for the addresses of all (`arp_ignore` is 0), and
//!    sends requests from any of them. So the namespace is asked which links it has: a claim of one of them is none
//!    (RFC 5227 §2.4).
//! 2. Does it claim every address? It is asked for an address that nobody can have: if it answers for that, its claims are
//!    ignored. An address in use is defended without that question.
//!
//! Meanwhile an ADD is not answered; a lease that no ADD waits for is used. If a question cannot be asked, the claim stands.

use std::net::Ipv4Addr;
use std::ops::ControlFlow;

use super::{Found, Guard};
use crate::binding::{Common, Cx};
use crate::event::EventKind;
use crate::link::LinkCause;
use crate::question::{self, Question, QuestionAction};
use crate::rules::{Rule, cut};
use crate::source::Client;
use crate::wire::Mac;
use crate::wire::frame::Arp;

impl Common {
    /// Returns whether a station claims the address under watch, and it is not known yet whether the claim counts.
    pub(in crate::binding) fn is_in_doubt(&self) -> bool {
        self.guard
            .as_ref()
            .is_some_and(|guard| guard.control.is_some() || !guard.claims.is_empty())
    }

    /// Returns whether the claim in doubt is to this address.
    pub(in crate::binding) fn doubts(&self, address: Ipv4Addr) -> bool {
        self.is_in_doubt() && self.guards(address)
    }

    /// Returns the address under watch and who uses or claims it, as far as is known.
    pub(in crate::binding) fn claim(&self) -> Option<(Ipv4Addr, Mac)> {
        let guard = self.guard.as_ref()?;
        let held = || guard.claims.first().map(|claim| claim.sender_mac);
        let asked = || guard.control.as_ref()?.by();
        let by = guard.heard.or_else(asked).or_else(held)?;
        Some((guard.window.address(), by))
    }

    /// Acts on a claim: the control is over, or impossible.
    pub(super) fn believe_claim(&mut self) -> Option<Found> {
        let (_, by) = self.claim()?;
        if let Some(guard) = &mut self.guard {
            (guard.control, guard.heard) = (None, Some(by));
            guard.claims.clear();
        }
        Some(Found::Conflict { by })
    }

    /// Goes on after it became known that no claim counts. A strict window goes on to the end of its probes.
    fn let_go(&self) -> Option<Found> {
        let is_over = |guard: &&Guard| !guard.window.is_pending();
        self.guard
            .as_deref()
            .filter(is_over)
            .map(|_| Found::Cleared)
    }
}

impl Cx<'_> {
    /// Asks the container's namespace which links it has. The claim counts only if its sender is none of them.
    pub(super) fn ask_inside(&mut self, claim: &Arp) {
        let Some(guard) = &mut self.own.guard else {
            return;
        };
        if guard.claims.is_empty() {
            self.out.list_inside(self.own.id, self.own.link.clone());
        }
        let is_known = |known: &Arp| known.sender_mac == claim.sender_mac;
        if guard.claims.len() < question::MOST && !guard.claims.iter().any(is_known) {
            guard.claims.push(*claim);
        }
    }

    /// Goes on once it is known which links the container's namespace has, or cannot be.
    pub(in crate::binding) fn heard_inside(
        &mut self,
        client: &Client,
        macs: Result<Vec<Mac>, LinkCause>,
    ) -> Option<Found> {
        let guard = self.own.guard.as_mut()?;
        let claims = std::mem::take(&mut guard.claims);
        guard.window.disregard(macs.unwrap_or_default());
        for claim in &claims {
            if let Some(found) = self.count(client, claim) {
                return Some(found);
            }
        }
        if claims.is_empty() || self.own.is_in_doubt() {
            return None;
        }
        self.own.let_go()
    }

    /// Goes on with the control when it is time. `Break` if it waits, or has found something out.
    pub(super) fn control_on_clock(
        &mut self,
        can_send: bool,
        client: &Client,
    ) -> ControlFlow<Option<Found>> {
        let Some(control) = self
            .own
            .guard
            .as_mut()
            .and_then(|guard| guard.control.as_mut())
        else {
            return ControlFlow::Continue(());
        };
        let found = match control.on_clock(self.now.boot, can_send) {
            QuestionAction::Ask(frames) => {
                self.guard_send(frames);
                None
            }
            QuestionAction::Wait => return ControlFlow::Break(None),
            QuestionAction::Over if control.by().is_some() => self.own.believe_claim(),
            QuestionAction::Over => self.clear(client),
        };
        match found {
            Some(found) => ControlFlow::Break(Some(found)),
            None => ControlFlow::Continue(()),
        }
    }

    /// Handles a claim. The first one begins a control.
    pub(super) fn doubt(&mut self, by: Mac, client: &Client, arp: &Arp) -> Option<Found> {
        let guard = self.own.guard.as_mut()?;
        if let Some(control) = &mut guard.control {
            control.claims(by);
            return None;
        }
        let attachment = &self.own.attachment;
        let address = guard.window.address();
        let Some(lease) = client
            .claimed(self.now.boot)
            .filter(|lease| lease.ip() == address && !cut(Rule::ProxyControl))
        else {
            guard.heard = Some(by);
            return Some(Found::Conflict { by });
        };
        let control = question::control(lease.address, lease.server, self.rng);
        tracing::info!(%attachment, %address, %by, claim = ?arp.op, %control, "another station claims the address: asking for one that nobody can have");
        let question = Question::of_claim(by, control, guard.window.from(), self.now.boot);
        guard.control = Some(Box::new(question));
        self.watch(client)
    }

    /// Returns whether an ARP packet that claims the address under watch comes from a station that claims every address.
    /// Also records answers to a control.
    pub(super) fn is_of_proxy(&mut self, arp: &Arp) -> bool {
        let Some(guard) = self
            .own
            .guard
            .as_mut()
            .filter(|guard| guard.window.is_of_another(arp))
        else {
            return false;
        };
        if let Some(control) = &mut guard.control {
            control.on_arp(arp);
        }
        let lan = &self.own.identity.lan;
        arp.sender == guard.window.address()
            && self.lans.is_proxy(lan, arp.sender_mac, self.now.boot)
    }

    /// Goes on after every station that claims the address was found to claim every address.
    fn clear(&mut self, client: &Client) -> Option<Found> {
        let guard = self.own.guard.as_mut()?;
        let question = guard.control.take()?;
        let control = question.control()?;
        let address = guard.window.address();
        let lan = self.own.identity.lan.clone();
        for by in question.claimants() {
            tracing::warn!(attachment = %self.own.attachment, %lan, %address, %by, %control, "a station answers for an address that nobody can have: its claims are ignored");
            self.lans.answers_for_all(&lan, *by, self.now.boot);
            if let Some(lease) = client.claimed(self.now.boot) {
                let cause = format_args!(
                    "{by} claims {address}, and answered for {control} too, which nobody can have: its claims are ignored"
                );
                self.note(EventKind::DetectionOff, lease, cause);
            }
        }
        self.own.let_go()
    }
}
