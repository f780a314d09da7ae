//! Containers that run on when no path leads to their network namespace any more.

use super::rig::*;

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
        self.kernel(KernelMessage::PathGone(Cookie(1)));
    }
}

#[test]
fn sockets_inside_are_closed_when_the_path_goes() {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "a");
    assert_eq!(rig.open.len(), 1, "it listens for conflicts");
    rig.loses_path();
    assert_eq!((rig.open.len(), rig.state("a")), (0, "BOUND"));
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
        let found = (rig.state("a"), rig.state("b"), rig.sends(7));
        assert_eq!(found, ("BOUND", "BOUND", 0), "{restarts}");
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
