//! STATUS: runtimes ask now and then whether an ADD could be served, and must be told the truth.

use leasehold_core::effect::{Answer, Call, Failure, StoreCause};

use crate::plan::pick;
use crate::watch::Rule;
use crate::world::actor::{Asked, Errand};
use crate::world::{Event, World};

/// A link that no host has.
const GONE: &str = "gone0";

/// STATUS of a LAN's network.
#[derive(Debug)]
pub(super) struct Status;

impl Errand for Status {
    fn begins(&self, world: &mut World, lan: usize) {
        world.sometime(world.plan.active / 4, Event::Errand(lan, &Self));
    }

    fn runs(&self, world: &mut World, lan: usize) {
        if world.winding_down {
            return;
        }
        world.sometime(world.plan.active / 4, Event::Errand(lan, &Self));
        if world.daemon.is_none() {
            return;
        }
        let parent = pick(
            &mut world.rng,
            &[Some(format!("eth{lan}")), None, Some(GONE.to_owned())],
        );
        let id = world.file_errand(lan, &Self, Call::Status { parent });
        world.after(20, 2_000, Event::Request(id));
    }

    fn answered(&self, world: &mut World, _: usize, asked: &Asked, answer: Option<Answer>) {
        let (Call::Status { parent }, Some(answer)) = (&asked.call, answer) else {
            return;
        };
        let is_there = parent.as_deref() != Some(GONE);
        // Anything may fail at any time.
        let faulty =
            world.winding_down || world.plan.link_faults > 0 || world.plan.store_faults > 0;
        let steady = world.disk_turned < asked.since && world.clocks.resumed <= asked.since;
        let good = match &answer {
            Answer::Ready => is_there && !(steady && world.disk_full),
            Answer::Failed(Failure::NotReady(why)) => match (is_there, world.disk_full) {
                _ if faulty || !steady => true,
                (true, true) => *why == StoreCause::Full.to_string(),
                (false, true) => why.contains(&StoreCause::Full.to_string()) && why.contains(GONE),
                (false, false) => why.contains("parent link") && why.contains(GONE),
                (true, false) => false,
            },
            _ => false,
        };
        world
            .stats
            .count_which(answer == Answer::Ready, "STATUS ready", "STATUS not ready");
        if !good {
            let detail = format!(
                "to STATUS of {parent:?}, steady {steady}, full {}: {answer:?}",
                world.disk_full
            );
            world.fail(Rule::WrongAnswer, detail);
        }
    }
}
