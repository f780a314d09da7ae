//! Effects that the core emits, and their outcomes.

use std::collections::BTreeMap;
use std::path::Path;

use leasehold_core::effect::{Effect, ExchangeId, OpId, Outcome};
use leasehold_core::link::{Hears, Link, Place, Sockets, Target};
use leasehold_core::record::{BindingId, Change};

use super::{Breach, Rule, breach};
use crate::plan::EffectKind;

/// An effect that reports back.
#[derive(Debug)]
enum Under {
    Persist(Vec<BindingId>),
    Open(ExchangeId, Link, Sockets),
    Recalled,
    Inspect,
    Apply(Target),
    Send(ExchangeId),
    Close,
}

impl Under {
    fn recall(&mut self, exchange: ExchangeId) {
        if matches!(self, Self::Open(id, ..) if *id == exchange) {
            *self = Self::Recalled;
        }
    }
}

/// The effects of one run of the daemon: at most one of each kind is under way for each binding or link, and nothing is sent on
/// sockets that are not open.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    under_way: BTreeMap<OpId, Under>,
    /// Exchanges, and whether they are known to be open.
    exchanges: BTreeMap<ExchangeId, bool>,
}

impl Effects {
    /// Records an outcome that is handed to the core.
    pub(crate) fn done(&mut self, op: OpId, outcome: &Outcome, exchange: Option<ExchangeId>) {
        self.under_way.remove(&op);
        if let (Outcome::Opened(Ok(())), Some(exchange)) = (outcome, exchange) {
            self.exchanges
                .entry(exchange)
                .and_modify(|open| *open = true);
        }
        if let (Outcome::Prepared { .. }, Some(exchange)) = (outcome, exchange) {
            self.exchanges.insert(exchange, true);
        }
    }

    /// Ends the ADD in a namespace: what is still being done to its link belongs to nobody, and another ADD may begin.
    pub(crate) fn add_ends(&mut self, netns: &Path) {
        for under in self.under_way.values_mut() {
            if matches!(under, Under::Apply(Target::Named(at)) if at.netns == netns) {
                *under = Under::Recalled;
            }
        }
    }

    /// Returns whether the core believes an exchange to be open.
    pub(crate) fn is_open(&self, exchange: ExchangeId) -> bool {
        self.exchanges.get(&exchange) == Some(&true)
    }

    /// Returns how many exchanges the core has not closed.
    pub(crate) fn open_exchanges(&self) -> usize {
        self.exchanges.len()
    }

    /// Returns how many effects have not reported back.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Judges an effect as the core emits it.
    pub(crate) fn emitted(&mut self, effect: &Effect) -> Option<Breach> {
        match effect {
            Effect::Persist { op, changes } => {
                let puts = changes.iter().filter_map(|change| match change {
                    Change::Put(id, _) => Some(*id),
                    // Removing twice is fine: the new holder of an attachment also removes its old one's record.
                    Change::Remove(_)
                    | Change::Note(_)
                    | Change::PutDoor(_)
                    | Change::RemoveDoor(_) => None,
                });
                self.begin(*op, Under::Persist(puts.collect()))
            }
            Effect::Open {
                op,
                exchange,
                link,
                want,
            } => {
                self.exchanges.insert(*exchange, false);
                self.begin(*op, Under::Open(*exchange, link.clone(), *want))
            }
            Effect::Inspect { op, .. }
            | Effect::Survey { op, .. }
            | Effect::ListInside { op, .. }
            | Effect::Seek { op, .. }
            | Effect::Make { op, .. }
            | Effect::Unmake { op, .. }
            | Effect::ListOwn { op } => self.begin(*op, Under::Inspect),
            Effect::Apply { op, target, .. } => self.begin(*op, Under::Apply(target.clone())),
            Effect::Prepare { op, place, .. } => match place {
                Place::InNetns(at) => self.begin(*op, Under::Apply(Target::Named(at.clone()))),
                Place::Parent { .. } => self.begin(*op, Under::Inspect),
            },
            Effect::Send { op, exchange, .. } => {
                let found = self.unopened(*exchange, "Send");
                found.or(op.and_then(|op| self.begin(op, Under::Send(*exchange))))
            }
            Effect::Hear { exchange, .. } => self.unopened(*exchange, "Hear"),
            Effect::Close { op, exchange } => {
                let known = self.exchanges.remove(exchange).is_some();
                // A Close recalls an Open that is under way, and nobody may be told about frames that were still to be sent.
                self.under_way
                    .retain(|_, under| !matches!(under, Under::Send(id) if id == exchange));
                self.under_way
                    .values_mut()
                    .for_each(|under| under.recall(*exchange));
                let found = op.and_then(|op| self.begin(op, Under::Close));
                found.or((!known).then(|| {
                    breach(
                        Rule::SendUnopened,
                        format!("Close of {exchange:?}, which is closed"),
                    )
                }))
            }
            Effect::Reply { .. } | Effect::Publish { .. } => None,
        }
    }

    fn unopened(&self, exchange: ExchangeId, what: &str) -> Option<Breach> {
        (!self.is_open(exchange))
            .then(|| breach(Rule::SendUnopened, format!("{what} on {exchange:?}")))
    }

    fn begin(&mut self, op: OpId, new: Under) -> Option<Breach> {
        let clash = self.under_way.values().find_map(|old| match (old, &new) {
            (Under::Persist(a), Under::Persist(b)) => a
                .iter()
                .any(|id| b.contains(id))
                .then_some(EffectKind::Persist),
            // Two bindings can share the host's link, even with one Ethernet address. Conflict detection has its own sockets
            // besides those for DHCP.
            (Under::Open(_, a, x), Under::Open(_, b, y)) => {
                let same = a == b && a.in_netns().is_some() && !is_window(x) && !is_window(y);
                same.then_some(EffectKind::Open)
            }
            (Under::Apply(a), Under::Apply(b)) => (a == b).then_some(EffectKind::Apply),
            _ => None,
        });
        let found = clash.map(|kind| breach(Rule::Two(kind), format!("{new:?}")));
        match self.under_way.insert(op, new) {
            None => found,
            Some(_) => Some(breach(Rule::Answers, format!("{op:?} is used again"))),
        }
    }
}

/// Returns whether sockets may be those of a conflict window, which come in addition to others. The sockets of a RELEASE look the
/// same, and so do those of a renewal whose address is not on the interface.
fn is_window(want: &Sockets) -> bool {
    matches!(want.arp, Hears::About(_)) && want.hold_port.is_none()
}
