//! Nothing is left of a network, an endpoint, its link and its lease, whatever fails at any step of their lives.

use std::collections::BTreeMap;

use super::super::*;
use super::networks::{OWN, endpoint, id, in_vlan};
use super::rig::*;
use crate::effect::{Call, NetworkAnswer, NetworkCall, RequestId};
use crate::event::EventKind;
use crate::link::own::{LinkOwner, OwnLink};
use crate::link::{KernelMessage, Place};

/// What goes wrong, once.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// The daemon is killed before its write is durable.
    Crash,
    /// The daemon is killed when its write is durable, before it hears about that.
    LateCrash,
    /// dockerd is killed, or gives up.
    HangUp,
    /// The store or the kernel refuses.
    Refusal,
}

/// The life of an endpoint, whose effects end one after the other.
struct Life {
    rig: Rig,
    fault: Option<Fault>,
    /// How many effects end before the fault.
    left: usize,
    /// The call that is under way.
    request: u64,
    links: BTreeMap<LinkOwner, OwnLink>,
}

impl Life {
    fn new(fault: Fault, left: usize, shared: bool) -> Self {
        let mut rig = Rig::new(8);
        rig.bridge = false;
        // Nobody knows which ipvlan is whose.
        rig.profile.on_parent = shared;
        Self {
            rig,
            fault: Some(fault),
            left,
            request: 0,
            links: BTreeMap::new(),
        }
    }

    fn call(&mut self, call: NetworkCall) -> Option<Answer> {
        self.hold(true);
        self.request = self.rig.network_call(call);
        self.pump();
        self.rig.answers.get(&self.request).cloned()
    }

    fn hold(&mut self, hold: bool) {
        self.rig.disk = if hold { Disk::Slow } else { Disk::Good };
        self.rig.wired.hold = hold;
    }

    /// Ends all that is under way, one after the other.
    fn pump(&mut self) {
        loop {
            self.links.extend(self.rig.wired.links.clone());
            let strikes = self.left == 0;
            let fault = if strikes { self.fault } else { None };
            if let Some((op, changes)) = self.rig.slow.pop_front() {
                match fault {
                    Some(Fault::Crash) => self.rig.restart(),
                    Some(Fault::LateCrash) => {
                        self.rig.store.commit(op, changes);
                        self.rig.restart();
                    }
                    Some(Fault::HangUp) => {
                        self.hang_up();
                        self.rig.written(op, changes);
                    }
                    Some(Fault::Refusal) => self.rig.unwritten(op),
                    None => self.rig.written(op, changes),
                }
            } else if let Some((op, outcome)) = self.rig.wired.held.pop_front() {
                match fault {
                    Some(Fault::Crash | Fault::LateCrash) => self.rig.restart(),
                    Some(Fault::HangUp) => {
                        self.hang_up();
                        self.rig.input(Input::Done { op, outcome });
                    }
                    Some(Fault::Refusal) => self.refuse(op, outcome),
                    None => self.rig.input(Input::Done { op, outcome }),
                }
            } else {
                return;
            }
            match strikes {
                true => self.fault = None,
                false => self.left -= 1,
            }
            if self.fault.is_none() {
                self.left = usize::MAX;
            }
        }
    }

    fn hang_up(&mut self) {
        if !self.rig.answers.contains_key(&self.request) {
            self.rig.input(Input::HungUp(RequestId(self.request)));
        }
    }

    /// The kernel did not do what was asked for last.
    fn refuse(&mut self, op: OpId, outcome: Outcome) {
        let cause = || LinkCause::refused("change a link", "no");
        let refused = match outcome {
            Outcome::Made(_) => {
                let last = if self.rig.wired.links.contains_key(&endpoint()) {
                    endpoint()
                } else {
                    vlan()
                };
                self.rig.wired.links.remove(&last);
                Outcome::Made(Err(cause()))
            }
            Outcome::Unmade(_) => {
                let gone: Vec<_> = self
                    .links
                    .iter()
                    .filter(|(owner, _)| !self.rig.wired.links.contains_key(owner))
                    .collect();
                let back = gone
                    .last()
                    .map(|(owner, link)| ((*owner).clone(), (*link).clone()));
                self.rig.wired.links.extend(back);
                Outcome::Unmade(Err(cause()))
            }
            _ => Outcome::OwnLinks(Err(cause())),
        };
        self.rig.input(Input::Done {
            op,
            outcome: refused,
        });
    }

    fn run(&mut self, seconds: f64) {
        self.rig.run_until(self.rig.at.as_secs_f64() + seconds);
        self.pump();
    }

    /// Runs the whole life. `forgets`: dockerd does not report the endpoint's end.
    fn live(&mut self, forgets: bool) {
        self.call(NetworkCall::Create(Box::new(in_vlan("n1"))));
        self.hold(true);
        self.request = self.rig.create_endpoint("e1", OWN);
        self.pump();
        let joined = self.call(NetworkCall::Join {
            network: id("n1"),
            endpoint: id("e1"),
            sandbox: String::new(),
        });
        if matches!(joined, Some(Answer::Network(NetworkAnswer::Joined { .. }))) {
            self.move_there_and_back();
        }
        if !forgets {
            self.call(NetworkCall::DeleteEndpoint(id("e1")));
        }
        self.run(100.0);
        self.call(NetworkCall::Delete(id("n1")));
        // dockerd requests again what a failed call left, when the user does.
        self.call(NetworkCall::Delete(id("n1")));
        self.hold(false);
        self.rig.flush();
        self.rig.end_link_ops();
        // A daemon that comes does not know for how long a link has waited for its container.
        self.rig.run_until(self.rig.at.as_secs_f64() + 700.0);
    }

    fn move_there_and_back(&mut self) {
        let Some(link) = self.rig.wired.links.get(&endpoint()).cloned() else {
            return;
        };
        self.rig.inside.insert(OWN, 1);
        self.rig.link_leaves(&endpoint());
        self.rig.input(Input::Kernel(KernelMessage::Appeared {
            number: 1,
            mac: OWN,
        }));
        self.run(30.0);
        self.rig.inside.remove(&OWN);
        self.rig.input(Input::Kernel(KernelMessage::LinkGone {
            cookie: Cookie(1),
            ifindex: 2,
        }));
        self.rig.link_returns(link);
        self.pump();
    }
}

fn vlan() -> LinkOwner {
    LinkOwner::Vlan {
        on: "br0".into(),
        vlan: 10,
    }
}

#[test]
fn nothing_is_left_whatever_fails_at_whichever_step() {
    for fault in [
        Fault::Crash,
        Fault::LateCrash,
        Fault::HangUp,
        Fault::Refusal,
    ] {
        // dockerd does not report the endpoint's end, or an ipvlan is in its container, whose end nothing else reports.
        for (forgets, shared) in [(false, false), (true, false), (false, true)] {
            let mut struck = 0;
            for step in 0.. {
                let mut life = Life::new(fault, step, shared);
                life.live(forgets);
                if life.fault.is_some() {
                    break;
                }
                struck += 1;
                let at = format!("{fault:?} at {step}, forgotten: {forgets}, shared: {shared}");
                // A VLAN's link that the kernel did not delete is told to the operator, and goes at the next start.
                life.rig.restart();
                assert!(
                    life.rig.wired.links.is_empty(),
                    "{at}: {:?}",
                    life.rig.wired.links
                );
                let docker = &life.rig.store.docker;
                assert!(
                    docker.endpoints.is_empty() && docker.networks.is_empty(),
                    "{at}: {:?}",
                    docker.endpoints
                );
                assert!(
                    life.rig.store.records().is_empty() && life.rig.rows().is_empty(),
                    "{at}: {:?}",
                    life.rig.store.durable
                );
            }
            assert!(struck > 6, "{fault:?} struck at {struck} steps");
        }
    }
}

#[test]
fn an_address_without_an_endpoint_is_given_up_in_time() {
    // Docker's own drivers refuse a pool of all addresses, and ours is asked for an endpoint at once.
    for (pool, until) in [
        ("0.0.0.0/0;;grace=0", 1070.0),
        ("192.0.2.0/24;;parent=br0", 1600.0),
    ] {
        let mut rig = Rig::new(8);
        rig.lease = 10_000;
        let attachment = Attachment::Docker {
            pool: pool.into(),
            endpoint: OWN.to_string().into(),
        };
        let mut add = rig.docker_call(attachment, "a");
        add.place = Place::Parent {
            ifname: "br0".into(),
            mac: OWN,
        };
        rig.request(Call::Add(add));
        rig.run_until(until - 0.1);
        assert_eq!((rig.rows().len(), rig.sends(7)), (1, 0), "{pool}");
        rig.run_until(until + 0.1);
        let orphans = rig
            .store
            .events
            .iter()
            .filter(|event| event.kind == EventKind::OrphanFound)
            .count();
        assert_eq!((rig.sends(7), orphans), (1, 1), "{pool}");
    }
}
