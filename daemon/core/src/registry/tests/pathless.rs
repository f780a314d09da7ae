//! Containers that run on when no path leads to their network namespace any more.

use super::super::*;
use super::rig::*;
use crate::effect::Call;
use crate::grant::policy::Detection;
use crate::link::{KernelMessage, Link};

/// The namespace of `a` has lost its path a while after its ADD, and lives.
fn pathless() -> Rig {
    let mut rig = Rig::new(8);
    rig.profile.policy.detection = Detection::Off;
    rig.add("a", 1, "a");
    rig.run_until(1020.0);
    rig.loses_path();
    rig.opened.clear();
    rig.sent.clear();
    rig
}

impl Rig {
    fn is_pathless(&mut self) {
        self.missing = LinkCause::NoPath;
        self.live.remove(&1);
    }

    fn loses_path(&mut self) {
        self.is_pathless();
        self.input(Input::Kernel(KernelMessage::PathGone(Cookie(1))));
    }

    fn speaks_from_host(&self) -> bool {
        !self.opened.is_empty()
            && self
                .opened
                .iter()
                .all(|link| matches!(link, Link::Parent { .. }))
    }
}

#[test]
fn a_lease_without_a_path_is_extended_from_the_host() {
    let mut rig = pathless();
    assert!(rig.rows()[0].pathless);
    rig.run_until(1400.0);
    assert_eq!((rig.state("a"), rig.sends(7)), (vec!["BOUND"], 0));
    assert!(
        rig.sent.len() > 3 && rig.sent.iter().all(|sent| *sent == (3, ANY)),
        "INIT-REBOOT: {:?}",
        rig.sent
    );
    assert!(rig.speaks_from_host(), "{:?}", rig.opened);
}

#[test]
fn sockets_inside_are_closed_when_the_path_goes() {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "a");
    assert_eq!(rig.open.len(), 1, "it listens for conflicts");
    rig.loses_path();
    assert_eq!((rig.open.len(), rig.state("a")), (0, vec!["BOUND"]));
}

#[test]
fn without_a_host_link_a_pathless_lease_ends_by_its_term() {
    let mut rig = Rig::new(8);
    let mut add = rig.call("a", 1, "a");
    add.lan = Lan::Network("lan".into());
    rig.request(Call::Add(add));
    rig.run_until(1020.0);
    rig.loses_path();
    rig.sent.clear();
    rig.run_until(1099.0);
    assert_eq!(rig.state("a"), ["REBINDING"]);
    rig.run_until(1101.0);
    assert_eq!((rig.state("a"), rig.sent.len()), (vec!["INIT"], 0));
}

#[test]
fn a_del_a_gc_and_the_kernel_end_a_lease_without_a_path() {
    for end in 0..4 {
        let mut rig = pathless();
        match end {
            0 => _ = rig.del("a"),
            1 => {
                _ = rig.request(Call::Collect {
                    network: "lan".into(),
                    keep: vec![],
                })
            }
            2 => rig.input(Input::Kernel(KernelMessage::LinkGone((Cookie(1), 2)))),
            _ => rig.input(Input::Kernel(KernelMessage::NetnsDied(Cookie(1)))),
        }
        rig.run_until(1025.0);
        assert_eq!((rig.sends(7), rig.rows().len()), (1, 0), "{end}");
    }
}

#[test]
fn a_lease_without_a_path_outlives_a_restart() {
    for restarts in [false, true] {
        let mut rig = pathless();
        rig.add("b", 2, "b");
        match restarts {
            false => rig.input(Input::Kernel(KernelMessage::Missed)),
            true => rig.restart(),
        }
        rig.run_until(1400.0);
        assert_eq!(
            (rig.state("a"), rig.state("b"), rig.sends(7)),
            (vec!["BOUND"], vec!["BOUND"], 0),
            "{restarts}"
        );
        assert_eq!(rig.rows().iter().filter(|row| row.pathless).count(), 1);
    }
}

#[test]
fn a_lease_ends_when_the_kernel_forgets_its_namespace() {
    let mut rig = pathless();
    rig.missing = LinkCause::NoNetns;
    rig.run_until(1090.0);
    assert_eq!((rig.sends(7), rig.rows().len()), (1, 0));
}

#[test]
fn a_path_that_leads_there_again_is_taken() {
    let mut rig = pathless();
    rig.live.insert(1);
    rig.run_until(1090.0);
    assert!(!rig.rows()[0].pathless);
    rig.opened.clear();
    rig.run_until(1300.0);
    assert!(
        rig.opened
            .iter()
            .all(|link| matches!(link, Link::InNetns { .. }))
            && !rig.opened.is_empty()
    );
    assert_eq!(rig.state("a"), ["BOUND"]);
}

#[test]
fn a_path_that_went_unheard_is_missed_at_the_next_renewal() {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "a");
    rig.run_until(1020.0);
    rig.is_pathless();
    rig.run_until(1400.0);
    assert_eq!(
        (rig.state("a"), rig.rows()[0].pathless, rig.sends(7)),
        (vec!["BOUND"], true, 0)
    );
}

#[test]
fn a_newcomer_takes_over_what_only_our_sockets_keep() {
    let mut rig = pathless();
    let add = rig.add("b", 2, "a");
    assert!(
        matches!(rig.answers[&add], Answer::Leased { .. }),
        "{:?}",
        rig.answers[&add]
    );
    assert_eq!(
        (rig.rows().len(), rig.sends(7)),
        (1, 0),
        "nothing goes back"
    );
}
