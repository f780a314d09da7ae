//! The changes that make a binding's interface carry what it should: the same for an ADD that waits for them and for a held
//! lease.

use std::fmt;

use crate::binding::{Cx, Task, Waiter};
use crate::effect::Outcome;
use crate::interface::{Act, Holding, Lack, Worked};
use crate::link::Target;

/// Begins to make the interface carry what is wanted, if anything must be done for that. Returns whether nothing is left
/// to do.
pub(in crate::binding) fn go_on(holding: &Holding, cx: &mut Cx<'_>) -> bool {
    let now = cx.now.boot;
    let act = cx
        .own
        .seat_mut(cx.interfaces)
        .map_or(Act::Wait, |seat| seat.go_on(holding, now));
    let is_settled = act == Act::Settled;
    carry_out(act, cx);
    is_settled
}

/// Goes on after a look at the interface, or a change of it.
pub(in crate::binding) fn worked(outcome: Outcome, holding: &Holding, cx: &mut Cx<'_>) -> Worked {
    let is_changing = cx.is_changing();
    let Some(seat) = cx.own.seat_mut(cx.interfaces) else {
        return Worked::Again { without: None };
    };
    match outcome {
        Outcome::Inspected(result) => match seat.on_inspected(result, holding, is_changing) {
            Ok(act) => carry_out(act, cx),
            Err(cause) => return Worked::Failed(cause),
        },
        Outcome::Applied { taken, result } => {
            let cause = result.as_ref().err().map(ToString::to_string);
            let worked = seat.on_applied(taken, result, holding);
            if let Worked::Again {
                without: Some(step),
            } = &worked
            {
                tracing::warn!(attachment = %cx.own.attachment, %step, cause, "not done at the interface");
            }
            return worked;
        }
        outcome => tracing::warn!(?outcome, "outcome of another kind of effect"),
    }
    Worked::Waits
}

fn carry_out(act: Act, cx: &mut Cx<'_>) {
    let waiter = Waiter::Binding(cx.own.id, Task::Work);
    match (act, cx.own.identity.lan.parent()) {
        (Act::LookAtParent, Some(parent)) => {
            cx.out.inspect(
                waiter,
                Target::Host {
                    ifname: parent.to_owned(),
                },
            );
        }
        (Act::Look, _) => _ = cx.out.inspect(waiter, Target::Known(cx.own.link.clone())),
        (Act::Apply(steps), _) => cx.change(waiter, steps),
        (Act::Wait | Act::Settled | Act::LookAtParent, _) => {}
    }
}

/// Schedules another try, after a pause, of what failed or is missing.
pub(in crate::binding) fn try_later(cause: &dyn fmt::Display, lack: Option<Lack>, cx: &mut Cx<'_>) {
    let Some(seat) = cx.interfaces.seat_mut(&cx.own.link, cx.own.id) else {
        return;
    };
    let pause = seat.due().try_later(lack, cx.now.boot, cx.rng);
    tracing::warn!(attachment = %cx.own.attachment, %cause, ?pause, "interface not changed: trying again");
}
