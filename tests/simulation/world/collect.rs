//! GC: runtimes name what is valid, now and then, or as a container's way to end.

use leasehold_core::effect::{Answer, Call, Failure};

use super::actor::{Asked, Phase, Role};
use super::seen::Seen;
use super::{Event, SECOND, World};
use crate::subject::{container, is_in};
use crate::watch::Rule;

impl World {
    /// A runtime collects, and does so again later.
    pub(super) fn collect_again(&mut self, lan: usize) {
        let Some(every) = self.plan.collects.filter(|_| !self.winding_down) else { return };
        self.sometime(every, Event::Collect(lan));
        self.collect(lan);
    }

    /// A runtime collects.
    pub(super) fn collect(&mut self, lan: usize) {
        if self.daemon.is_some() {
            let call = Call::Collect { network: format!("net{lan}"), keep: Vec::new() };
            let id = self.file(Role::Collect, call);
            self.after(20, 2_000, Event::Request(id));
        }
    }

    /// Ends a container by a GC that does not name it.
    pub(super) fn end_by_collection(&mut self, index: usize) {
        self.goes_elsewhere(index);
        self.actors[index].phase = Phase::Ending;
        let network = format!("net{}", self.actors[index].lan);
        self.ask(index, Role::Collect, Call::Collect { network, keep: Vec::new() }, self.now);
    }

    /// Writes what is valid into a GC that is about to be handed in. A runtime also names what it is adding, but not what it is
    /// ending.
    pub(super) fn name_the_valid(&mut self, call: &mut Call) {
        let Call::Collect { network, keep } = call else { return };
        let lans = (0..self.segments.len()).filter(|lan| *network == format!("net{lan}"));
        for lan in lans.collect::<Vec<_>>() {
            self.show(&Seen::Collects(lan));
        }
        let valid = self.actors.iter().filter(|a| matches!(a.phase, Phase::Adding | Phase::Live));
        let valid = valid.map(|actor| &actor.attachment).filter(|attachment| is_in(attachment, network));
        *keep = valid.map(|attachment| (container(attachment).to_owned(), "eth0".to_owned())).collect();
    }

    /// A GC was answered.
    pub(super) fn collected(&mut self, asked: &Asked, answer: Answer) {
        let ended = asked.by.filter(|(index, generation)| self.actors[*index].generation == *generation);
        let ended = ended.map(|(index, _)| index).filter(|index| self.actors[*index].phase == Phase::Ending);
        match (answer, ended) {
            (Answer::Collected, ended) => {
                self.stats.count("GC done");
                ended.into_iter().for_each(|index| self.clean_up(index));
            }
            (Answer::Failed(Failure::NotCollected(faults)), ended) => {
                self.stats.count("GC failed");
                if self.calm {
                    self.fail(Rule::Failed, format!("GC: {faults:?}"));
                }
                ended.into_iter().for_each(|index| self.act_after(index, 0, SECOND, super::actor::Act::Del));
            }
            (answer, _) => self.fail(Rule::WrongAnswer, format!("to GC: {answer:?}")),
        }
    }
}
