//! The changes that make a binding's interface carry what it should: the same for an ADD that waits for them and for a held
//! lease.

use std::fmt;

use crate::binding::{Common, Cx, Task, Waiter};
use crate::effect::Outcome;
use crate::interface::{Act, Around, Holding, Lack, Worked};
use crate::link::Target;

/// Begins to make the interface carry what is wanted, if anything must be done for that. Returns whether nothing is left
/// to do.
pub(in crate::binding) fn go_on(common: &Common, holding: &Holding<'_>, cx: &mut Cx<'_>) -> bool {
    let now = cx.now.boot;
    let act = common
        .seat_mut(cx)
        .map_or(Act::Wait, |seat| seat.go_on(holding, now));
    let is_settled = act == Act::Settled;
    carry_out(common, act, cx);
    is_settled
}

/// Goes on after a look at the interface, or a change of it.
pub(in crate::binding) fn worked(
    common: &Common,
    outcome: Outcome,
    holding: &Holding<'_>,
    cx: &mut Cx<'_>,
) -> Worked {
    let around = Around {
        has_parent: common.identity.lan.parent().is_some(),
        is_changing: cx.is_changing(&common.link),
    };
    let Some(seat) = common.seat_mut(cx) else {
        return Worked::Again { without: None };
    };
    match outcome {
        Outcome::Inspected(result) => match seat.on_inspected(result, holding, around) {
            Ok(act) => carry_out(common, act, cx),
            Err(cause) => return Worked::Failed(cause),
        },
        Outcome::Applied { taken, result } => {
            let cause = result.as_ref().err().map(ToString::to_string);
            let worked = seat.on_applied(taken, result, holding);
            if let Worked::Again {
                without: Some(step),
            } = &worked
            {
                tracing::warn!(attachment = %common.attachment, %step, cause, "not done at the interface");
            }
            return worked;
        }
        outcome => tracing::warn!(?outcome, "outcome of another kind of effect"),
    }
    Worked::Waits
}

fn carry_out(common: &Common, act: Act, cx: &mut Cx<'_>) {
    let waiter = Waiter::Binding(common.id, Task::Work);
    match (act, common.identity.lan.parent()) {
        (Act::LookAtParent, Some(parent)) => {
            cx.out.inspect(
                waiter,
                Target::Host {
                    ifname: parent.to_owned(),
                },
            );
        }
        (Act::Look, _) => _ = cx.out.inspect(waiter, Target::Known(common.link.clone())),
        (Act::Apply(steps), _) => cx.change(waiter, &common.link, steps),
        (Act::Wait | Act::Settled | Act::LookAtParent, _) => {}
    }
}

/// Schedules another try, after a pause, of what failed or is missing.
pub(in crate::binding) fn try_later(
    common: &Common,
    cause: &dyn fmt::Display,
    lack: Option<Lack>,
    cx: &mut Cx<'_>,
) {
    let Some(seat) = cx.interfaces.seat_mut(&common.link, common.id) else {
        return;
    };
    let pause = seat.try_later(lack, cx.now.boot, cx.rng);
    tracing::warn!(attachment = %common.attachment, %cause, ?pause, "interface not changed: trying again");
}
