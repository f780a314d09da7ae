//! An operator: has the leases of a LAN extended now and then, and gives one back as its container's way to end.

use leasehold_core::effect::{Answer, Call, Order, Upshot, Verb, Which};

use crate::watch::Rule;
use crate::world::actor::{Act, Asked, Errand, Phase};
use crate::world::{Event, SECOND, World};

/// Orders about a LAN.
#[derive(Debug)]
pub(super) struct Operator;

impl Errand for Operator {
    fn begins(&self, world: &mut World, lan: usize) {
        world.perhaps(world.plan.orders, Event::Errand(lan, &Self));
    }

    fn runs(&self, world: &mut World, lan: usize) {
        let Some(every) = world.plan.orders.filter(|_| !world.winding_down) else {
            return;
        };
        world.sometime(every, Event::Errand(lan, &Self));
        if world.daemon.is_some() {
            let which = Which {
                network: Some(format!("net{lan}")),
                ..Which::default()
            };
            let id = world.file_errand(lan, &Self, Call::Show(Box::new(which.clone())));
            world.after(20, 2_000, Event::Request(id));
            let id = world.file_errand(
                lan,
                &Self,
                Call::Order(Box::new(Order {
                    verb: Verb::Renew,
                    which,
                })),
            );
            world.after(20, 2_000, Event::Request(id));
        }
    }

    fn answered(&self, world: &mut World, _: usize, asked: &Asked, answer: Option<Answer>) {
        let (Call::Order(order), Some(answer)) = (&asked.call, answer) else {
            return world.stats.count("looks of an operator");
        };
        let Answer::Obeyed(obeyed) = answer else {
            return world.fail(Rule::WrongAnswer, format!("to {order:?}: {answer:?}"));
        };
        for of in obeyed {
            let word = match (order.verb, of.upshot) {
                (Verb::Renew, Upshot::Extended { .. }) => "leases that an operator had extended",
                (Verb::Renew, Upshot::Fresh(_)) => "leases that an operator found extended",
                (Verb::Renew, Upshot::Unanswered(_)) => {
                    "leases that no server extended for an operator"
                }
                (Verb::Renew, Upshot::Unrecorded) => {
                    "leases that were extended for an operator and not recorded"
                }
                (Verb::Renew, Upshot::Lost) => "leases that an operator saw lost",
                (Verb::Renew, Upshot::Local) => {
                    "leases of local ranges that an operator had nothing to extend of"
                }
                (Verb::Release { .. }, Upshot::Leaves) => "leases that an operator gave back",
                (Verb::Release { .. }, Upshot::Failed(_)) => {
                    "leases that an operator could not give back"
                }
                (_, Upshot::Nothing(_)) => "orders about no lease",
                (verb, upshot) => {
                    let detail = format!("to {verb:?} of {}: {upshot:?}", of.attachment);
                    return world.fail(Rule::WrongAnswer, detail);
                }
            };
            world.stats.count(word);
        }
    }
}

impl World {
    /// Ends a container by having an operator give its lease back. Its DEL comes at any time after that.
    pub(in crate::world) fn end_by_release(&mut self, index: usize) {
        self.actors[index].phase = Phase::Ending;
        let lan = self.actors[index].lan;
        let name = self.actors[index].attachment.to_string();
        let which = Which {
            name: Some(name),
            ..Which::default()
        };
        let id = self.file_errand(
            lan,
            &Operator,
            Call::Order(Box::new(Order {
                verb: Verb::Release { force: true },
                which,
            })),
        );
        self.after(20, 2_000, Event::Request(id));
        self.act_after(index, 0, 3 * SECOND, Act::Del);
    }
}
