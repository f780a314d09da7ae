//! No lease stays at its server when its binding is gone: each way on which one could.

use super::super::*;
use super::rig::*;
use crate::effect::{Failure, StoreCause};
use crate::link::Link;
use crate::record::RecordState;

impl Rig {
    fn releases(&self) -> usize {
        self.sent.iter().filter(|(kind, _)| *kind == 7).count()
    }

    /// The sockets that are open fail.
    fn break_sockets(&mut self) {
        for exchange in self.open.keys().copied().collect::<Vec<_>>() {
            self.input(Input::Broken { exchange, cause: LinkCause::refused("receive", "the network is down") });
        }
    }

    /// Ends the write under way badly.
    fn refuse_write(&mut self) {
        let (op, _) = self.slow.pop_front().unwrap();
        self.input(Input::Done { op, outcome: Outcome::Persisted(Err(StoreCause::Full)) });
    }
}

#[test]
fn a_lease_that_the_store_refused_goes_back_though_its_sockets_broke() {
    let mut rig = Rig::new(8);
    rig.disk = Disk::Slow;
    let add = rig.add("a", 1, "a");
    rig.break_sockets();
    rig.disk = Disk::Full;
    rig.refuse_write();
    assert_eq!(rig.answers[&add], Answer::Failed(Failure::Store(StoreCause::Full)));
    assert_eq!((rig.state("a"), rig.releases()), (vec!["RELEASING"], 0));
    rig.disk = Disk::Good;
    rig.run_until(1010.0);
    assert_eq!(rig.releases(), 1, "{:?}", rig.sent);
    assert!(rig.rows().is_empty() && rig.stored.is_empty());
}

#[test]
fn what_a_refused_add_owes_is_tried_until_the_lease_ends_and_over_a_restart() {
    let mut rig = Rig::new(8);
    rig.lease = 1000;
    rig.disk = Disk::Slow;
    rig.add("a", 1, "a");
    rig.break_sockets();
    // Neither from inside nor from the host is there a way now.
    rig.live.remove(&1);
    rig.blind = Some(LinkCause::NoLink("br0".into()));
    rig.disk = Disk::Good;
    rig.refuse_write();
    rig.run_until(1100.0);
    assert_eq!((rig.state("a"), rig.releases()), (vec!["RELEASING"], 0));
    assert_eq!(rig.only_record().state, RecordState::Releasing);
    rig.restart();
    rig.run_until(1200.0);
    rig.blind = None;
    rig.run_until(1900.0);
    assert_eq!(rig.releases(), 1, "{:?}", rig.sent);
    assert!(matches!(rig.opened.last(), Some(Link::Parent { .. })) && rig.stored.is_empty());
}

#[test]
fn the_next_add_takes_over_what_a_refused_one_owes() {
    let mut rig = Rig::new(8);
    rig.disk = Disk::Slow;
    rig.add("a", 1, "a");
    rig.break_sockets();
    rig.disk = Disk::Full;
    rig.refuse_write();
    rig.disk = Disk::Good;
    let again = rig.add("a", 1, "a");
    assert!(matches!(rig.answers[&again], Answer::Leased(_)));
    rig.run_until(1040.0);
    assert_eq!((rig.releases(), rig.state("a"), rig.stored.len()), (0, vec!["BOUND"], 1));
}

#[test]
fn an_add_that_took_a_lease_over_gives_its_own_back_though_its_sockets_broke() {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "same");
    rig.live.remove(&1);
    // The server has another address for the successor, whose ACK is on its way.
    rig.server = Server::Naks;
    let add = rig.add("b", 2, "same");
    rig.server = Server::OffersOnly;
    rig.give = "192.0.2.60".parse().unwrap();
    rig.run_until(1005.0);
    assert_eq!(rig.state("b"), ["REQUESTING"]);
    rig.break_sockets();
    assert!(matches!(&rig.answers[&add], Answer::Failed(_)));
    rig.run_until(1050.0);
    let released: Vec<_> = rig.sent.iter().filter(|(kind, _)| *kind == 7).map(|(_, ip)| ip.to_string()).collect();
    assert!(released.contains(&"192.0.2.60".to_owned()), "{released:?}");
    assert!(rig.rows().is_empty() && rig.stored.is_empty());
}
