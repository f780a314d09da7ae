//! STATUS: runtimes ask now and then whether an ADD could be served, and must be told the truth.

use leasehold_core::effect::{Answer, Call, Failure};

use super::actor::{Expected, Role};
use super::{Event, World};
use crate::plan::pick;
use crate::watch::Rule;

impl World {
    /// A runtime asks, and does so again later.
    pub(super) fn ask_status(&mut self, lan: usize) {
        if self.winding_down {
            return;
        }
        self.sometime(self.plan.active / 4, Event::Status(lan));
        if self.daemon.is_none() {
            return;
        }
        let parent = pick(&mut self.rng, &[Some(format!("eth{lan}")), None, Some("gone0".to_owned())]);
        let faulty = self.plan.link_faults > 0 || self.plan.store_faults > 0;
        let there = parent.as_deref() != Some("gone0");
        let role = Role::Status(Expected { asked: self.now, parent: there, faulty });
        let id = self.file(role, Call::Status { parent });
        self.after(20, 2_000, Event::Request(id));
    }

    /// A runtime has its answer.
    pub(super) fn status_answered(&mut self, expected: Expected, answer: &Answer) {
        let steady = self.disk_turned < expected.asked && self.resumed <= expected.asked;
        let good = match answer {
            Answer::Ready => expected.parent && !(steady && self.disk_full),
            Answer::Failed(Failure::NotReady(why)) => match (expected.parent, self.disk_full) {
                _ if expected.faulty || !steady => true,
                (true, true) => why == "store full",
                (false, true) => why.contains("store full") && why.contains("gone0"),
                (false, false) => why.contains("parent link") && why.contains("gone0"),
                (true, false) => false,
            },
            _ => false,
        };
        self.stats.count(if *answer == Answer::Ready { "STATUS ready" } else { "STATUS not ready" });
        if !good {
            self.fail(Rule::WrongAnswer, format!("to STATUS, {expected:?}, full {}: {answer:?}", self.disk_full));
        }
    }
}
