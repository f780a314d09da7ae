//! A binding's interface on its way to what it should carry: the same for an ADD that waits for it and for a lease that is held.

use std::fmt;

use crate::binding::{Common, Cx, Task, Waiter};
use crate::interface::{Act, Around, Interfaces, Lack, Presence, Wish, Work};
use crate::link::{LinkCause, LinkView, Target};
use crate::record::Former;

impl Common {
    /// Returns what the interface may carry of earlier grants, for the record.
    pub(in crate::binding) fn former(&self, interfaces: &Interfaces) -> Option<Box<Former>> {
        self.work(interfaces).and_then(Work::recorded)
    }

    /// Begins to make the interface carry what is wanted, if anything has to be done for that.
    pub(in crate::binding) fn begin_work(&self, wish: &Wish, cx: &mut Cx<'_>) {
        let is_there = self.presence(cx.interfaces) == Presence::There;
        let has_parent = self.identity.lan.parent().is_some();
        let act = self.work_mut(cx).map(|work| work.go_on(wish, is_there, has_parent));
        act.into_iter().for_each(|act| self.act(act, cx));
    }

    /// Returns what to do after a look, or why that failed.
    pub(in crate::binding) fn looked(
        &self,
        result: Result<LinkView, LinkCause>,
        wish: Wish,
        cx: &mut Cx<'_>,
    ) -> Result<Act, LinkCause> {
        let around =
            Around { has_parent: self.identity.lan.parent().is_some(), is_changing: cx.is_changing(&self.link) };
        self.work_mut(cx).map_or(Ok(Act::Wait), |work| work.on_inspected(result, wish, around))
    }

    /// Does the next thing.
    pub(in crate::binding) fn act(&self, act: Act, cx: &mut Cx<'_>) {
        let waiter = Waiter::Binding(self.id, Task::Work);
        match (act, self.identity.lan.parent()) {
            (Act::LookAtParent, Some(parent)) => {
                cx.out.inspect(waiter, Target::Host { ifname: parent.to_owned() });
            }
            (Act::Look, _) => _ = cx.out.inspect(waiter, Target::Known(self.link.clone())),
            (Act::Apply(steps), _) => cx.change(waiter, &self.link, steps),
            (Act::Wait | Act::LookAtParent, _) => {}
        }
    }

    /// Has what failed, or what is lacking, tried again after a pause.
    pub(in crate::binding) fn work_later(&self, cause: &dyn fmt::Display, lack: Option<Lack>, cx: &mut Cx<'_>) {
        let Some(seat) = cx.interfaces.seat(&self.link, self.id) else { return };
        let pause = seat.due().try_later(lack, cx.now.boot, cx.rng);
        tracing::warn!(attachment = %self.attachment, %cause, ?pause, "interface not changed, trying again");
    }
}
