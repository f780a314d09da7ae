//! An operator wants everything about one lease, and what is on its interface now.

use super::{Job, Next};
use crate::effect::{Answer, Outcome, RequestId, Shown, Which};
use crate::job::LIMIT;
use crate::link::{LinkCause, Target};
use crate::outbox::Waiter;
use crate::registry::Registry;
use crate::registry::orders::chosen;

/// A lease that is shown once its interface has been looked at.
#[derive(Debug)]
pub(in crate::registry) struct Showing(Box<Shown>);

impl Showing {
    /// Shows the leases that are meant: one in full, several by their rows.
    pub(super) fn begin(core: &mut Registry, id: RequestId, which: &Which) -> Next {
        let now = core.tables.now;
        let mut chosen: Vec<_> = chosen(core, which);
        let only = match (chosen.len(), chosen.pop()) {
            (1, Some(only)) => only,
            (_, last) => {
                let rows = chosen
                    .into_iter()
                    .chain(last)
                    .map(|(_, row)| Shown::of(row));
                return Next::Answers(Answer::Shown(rows.collect()));
            }
        };
        let (of, row) = only;
        let mut shown = Shown::of(row);
        let binding = core.tables.bindings.get(of);
        shown.lease = binding
            .and_then(|binding| binding.lease(now.boot))
            .cloned()
            .map(Box::new);
        let inside = binding
            .filter(|binding| !binding.is_on_host())
            .map(|binding| binding.link.clone());
        let Some(link) = inside else {
            return Next::Answers(Answer::Shown(vec![shown]));
        };
        core.tables
            .out
            .inspect_with(Waiter::Call(id), Target::Known(link), true);
        core.time_call(id, now.boot + LIMIT);
        Next::Waits(Job::Showing(Self(Box::new(shown))))
    }

    pub(super) fn done(mut self, outcome: Outcome) -> Next {
        if let Outcome::Inspected(result) = outcome {
            self.0.interface = Some(result.map(Box::new));
        }
        self.end()
    }

    pub(super) fn time_out(mut self) -> Next {
        self.0.interface = Some(Err(LinkCause::TimedOut));
        self.end()
    }

    fn end(self) -> Next {
        Next::Answers(Answer::Shown(vec![*self.0]))
    }
}
