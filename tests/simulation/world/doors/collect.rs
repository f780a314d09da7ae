//! GC: now and then, or as a container's way to end, runtimes name what is valid.

use leasehold_core::effect::{Answer, Call, Failure};
use leasehold_core::identity::Attachment;

use crate::subject::{container, is_in};
use crate::watch::Rule;
use crate::world::actor::{Act, Asked, Errand, Phase, Role};
use crate::world::seen::Seen;
use crate::world::{Event, SECOND, World};

/// GC of a LAN's network.
#[derive(Debug)]
pub(super) struct Collect;

impl Errand for Collect {
    fn begins(&self, world: &mut World, lan: usize) {
        world.perhaps(world.plan.collects, Event::Errand(lan, &Self));
    }

    fn runs(&self, world: &mut World, lan: usize) {
        let Some(every) = world.plan.collects.filter(|_| !world.winding_down) else {
            return;
        };
        world.sometime(every, Event::Errand(lan, &Self));
        world.collect(lan);
    }

    fn answered(&self, world: &mut World, _: usize, asked: &Asked, answer: Option<Answer>) {
        answer
            .into_iter()
            .for_each(|answer| world.collected(asked, answer));
    }

    fn tidies(&self, attachment: &Attachment) -> bool {
        attachment.container().is_some()
    }

    fn tidy(&self, world: &mut World, _: &[Attachment]) {
        (0..world.segments.len()).for_each(|lan| world.collect(lan));
    }
}

impl World {
    /// Lets a runtime send a GC.
    pub(in crate::world) fn collect(&mut self, lan: usize) {
        if self.daemon.is_some() {
            let call = Call::Collect {
                network: format!("net{lan}"),
                keep: Vec::new(),
            };
            let id = self.file_errand(lan, &Collect, call);
            self.after(20, 2_000, Event::Request(id));
        }
    }

    /// Ends a container by a GC that does not name it.
    pub(in crate::world) fn end_by_collection(&mut self, index: usize) {
        self.goes_elsewhere(index, "clients on another host that a GC ended");
        self.actors[index].phase = Phase::Ending;
        let network = format!("net{}", self.actors[index].lan);
        self.ask(
            index,
            Role::Collect,
            Call::Collect {
                network,
                keep: Vec::new(),
            },
            self.now,
        );
    }

    /// Writes what is valid into a GC that is about to be handed in. A runtime also names what it is adding, but not what it is
    /// ending.
    pub(in crate::world) fn name_the_valid(&mut self, call: &mut Call) {
        let Call::Collect { network, keep } = call else {
            return;
        };
        let lans = (0..self.segments.len()).filter(|lan| *network == format!("net{lan}"));
        for lan in lans.collect::<Vec<_>>() {
            self.show(&Seen::Collects(lan));
        }
        let valid = self
            .actors
            .iter()
            .filter(|a| matches!(a.phase, Phase::Adding | Phase::Live));
        let valid = valid
            .map(|actor| &actor.attachment)
            .filter(|attachment| is_in(attachment, network));
        *keep = valid
            .map(|attachment| (container(attachment).to_owned(), "eth0".to_owned()))
            .collect();
    }

    /// Handles the answer to a GC.
    pub(in crate::world) fn collected(&mut self, asked: &Asked, answer: Answer) {
        let ended = self.asker(asked);
        let ended = ended.filter(|index| self.actors[*index].phase == Phase::Ending);
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
                ended
                    .into_iter()
                    .for_each(|index| self.act_after(index, 0, SECOND, Act::Del));
            }
            (answer, _) => self.fail(Rule::WrongAnswer, format!("to GC: {answer:?}")),
        }
    }
}
