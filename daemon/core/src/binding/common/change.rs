//! A binding at its interface, and the changes that make the interface carry what it should: the same for an ADD that waits for
//! them and for a held lease.

use std::fmt;

use crate::binding::{Common, Cx, Task, Waiter};
use crate::effect::Outcome;
use crate::interface::{Act, Around, Holding, Interfaces, Lack, Presence, Seat, Work, Worked};
use crate::link::Target;
use crate::plan;
use crate::record::Former;
use crate::source::{Client, Lease};

impl Common {
    /// Returns what the binding has at its interface; on a link of the host it has nothing.
    pub(in crate::binding) fn seat<'a>(&self, interfaces: &'a Interfaces) -> Option<&'a Seat> {
        interfaces.seat(&self.link, self.id)
    }

    pub(in crate::binding) fn seat_mut<'a>(&self, cx: &'a mut Cx<'_>) -> Option<&'a mut Seat> {
        cx.interfaces.seat_mut(&self.link, self.id)
    }

    /// Returns whether the leased address is on the interface, as far as is known.
    pub(in crate::binding) fn presence(&self, interfaces: &Interfaces) -> Presence {
        interfaces.presence(&self.link, self.id)
    }

    /// Returns what the interface may carry of earlier grants, for the record.
    pub(in crate::binding) fn former(&self, interfaces: &Interfaces) -> Option<Box<Former>> {
        self.seat(interfaces)?.work().and_then(Work::recorded)
    }

    /// Records that nothing is left to do on the interface for this binding.
    pub(in crate::binding) fn has_done(&self, cx: &mut Cx<'_>) {
        self.seat_mut(cx).into_iter().for_each(Seat::has_done);
    }

    /// Returns what the interface must know of what the binding holds. `last`: the last lease in use.
    pub(in crate::binding) fn holding(&self, client: &Client, last: &Lease) -> Holding<'_> {
        let grant = client.lease().map(|lease| self.grant(lease));
        let is_same = |held: &Lease| {
            grant
                .as_ref()
                .is_some_and(|next| plan::same(&self.grant(held), next))
        };
        Holding {
            policy: &self.profile.policy,
            last: self.grant(last),
            is_durable: self.persistence.holds(is_same),
            is_writing: self.persistence.busy(),
            told: self.told.map(Into::into),
            grant,
        }
    }

    /// Begins to make the interface carry what is wanted, if anything must be done for that. Returns whether nothing is left
    /// to do.
    pub(in crate::binding) fn go_on(&self, holding: &Holding<'_>, cx: &mut Cx<'_>) -> bool {
        let now = cx.now.boot;
        let act = self
            .seat_mut(cx)
            .map_or(Act::Wait, |seat| seat.go_on(holding, now));
        let is_settled = act == Act::Settled;
        self.act(act, cx);
        is_settled
    }

    /// Goes on after a look at the interface, or a change of it.
    pub(in crate::binding) fn worked(
        &self,
        outcome: Outcome,
        holding: &Holding<'_>,
        cx: &mut Cx<'_>,
    ) -> Worked {
        let around = Around {
            has_parent: self.identity.lan.parent().is_some(),
            is_changing: cx.is_changing(&self.link),
        };
        let Some(seat) = self.seat_mut(cx) else {
            return Worked::Again { without: None };
        };
        match outcome {
            Outcome::Inspected(result) => match seat.on_inspected(result, holding, around) {
                Ok(act) => self.act(act, cx),
                Err(cause) => return Worked::Failed(cause),
            },
            Outcome::Applied { taken, result } => {
                let cause = result.as_ref().err().map(ToString::to_string);
                let worked = seat.on_applied(taken, result, holding);
                if let Worked::Again {
                    without: Some(step),
                } = &worked
                {
                    tracing::warn!(attachment = %self.attachment, %step, cause, "not done at the interface");
                }
                return worked;
            }
            outcome => tracing::warn!(?outcome, "outcome of another kind of effect"),
        }
        Worked::Waits
    }

    fn act(&self, act: Act, cx: &mut Cx<'_>) {
        let waiter = Waiter::Binding(self.id, Task::Work);
        match (act, self.identity.lan.parent()) {
            (Act::LookAtParent, Some(parent)) => {
                cx.out.inspect(
                    waiter,
                    Target::Host {
                        ifname: parent.to_owned(),
                    },
                );
            }
            (Act::Look, _) => _ = cx.out.inspect(waiter, Target::Known(self.link.clone())),
            (Act::Apply(steps), _) => cx.change(waiter, &self.link, steps),
            (Act::Wait | Act::Settled | Act::LookAtParent, _) => {}
        }
    }

    /// Schedules another try, after a pause, of what failed or is missing.
    pub(in crate::binding) fn work_later(
        &self,
        cause: &dyn fmt::Display,
        lack: Option<Lack>,
        cx: &mut Cx<'_>,
    ) {
        let Some(seat) = cx.interfaces.seat_mut(&self.link, self.id) else {
            return;
        };
        let pause = seat.try_later(lack, cx.now.boot, cx.rng);
        tracing::warn!(attachment = %self.attachment, %cause, ?pause, "interface not changed: trying again");
    }
}
