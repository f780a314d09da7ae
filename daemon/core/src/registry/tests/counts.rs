//! What is counted, and what is held in numbers.

use super::rig::*;
use crate::counts::AddPhase;
use crate::source::{Fate, Form};

impl Rig {
    fn counted(&self) -> Vec<(Form, Fate, u64)> {
        self.reg
            .counts()
            .messages()
            .filter(|(.., count)| *count > 0)
            .collect()
    }

    fn holdings(&self) -> Holdings {
        self.reg.holdings(self.now().boot)
    }

    /// How many leases there are, by state.
    fn states(&self) -> Vec<(&'static str, u64)> {
        self.holdings()
            .leases
            .into_iter()
            .map(|(kind, count)| (kind.state, count))
            .collect()
    }
}

use Fate::*;
use Form::*;

#[test]
fn each_message_of_a_life_counts_once_with_its_answer() {
    let mut rig = Rig::new(8);
    rig.bind();
    let found = rig.counted();
    assert_eq!(found, [(Discover, Answered, 1), (Request, Answered, 1)]);
    rig.run_until(1051.0);
    rig.run_until(1102.0);
    assert_eq!(rig.counted()[2..], [(Renew, Answered, 2)]);
    rig.del("a");
    assert_eq!(
        rig.counted()[2..],
        [(Renew, Answered, 2), (Release, Sent, 1)]
    );
    let counts = rig.reg.counts();
    let phases: Vec<_> = counts
        .phases()
        .iter()
        .map(|(phase, took)| (*phase, took.count()))
        .collect();
    assert_eq!(
        phases,
        [
            (AddPhase::Queue, 1),
            (AddPhase::Offer, 1),
            (AddPhase::Ack, 1),
            (AddPhase::Store, 1)
        ]
    );
    assert_eq!(counts.extensions()[&Renew].count(), 2);
    use EventKind::*;
    let events: Vec<_> = counts.events().filter(|(_, count)| *count > 0).collect();
    assert_eq!(events, [(Acquired, 1), (Renewed, 2), (Released, 1)]);
}

#[test]
fn an_unanswered_discover_counts_as_unanswered() {
    let mut rig = Rig::new(8);
    rig.server = Server::Silent;
    let add = rig.add("a", 1, "a");
    rig.run_until(1031.0);
    let Answer::Failed(Failure::NoOffer { sent, .. }) = rig.answers[&add].clone() else {
        panic!()
    };
    assert_eq!(rig.counted(), [(Discover, Unanswered, u64::from(sent))]);
    // Only ADDs with a lease count.
    assert!(rig.reg.counts().phases().is_empty());
}

#[test]
fn renewals_are_counted_by_form_and_outcome() {
    let mut rig = Rig::new(8);
    rig.bind();
    rig.server = Server::Silent;
    rig.run_until(1087.0);
    rig.server = Server::Up;
    rig.run_until(1099.0);
    let renews: u64 = rig
        .counted()
        .iter()
        .filter(|(form, ..)| *form == Renew)
        .map(|(.., count)| count)
        .sum();
    assert!(
        renews > 0 && rig.counted().contains(&(Renew, Unanswered, renews)),
        "{:?}",
        rig.counted()
    );
    assert!(
        rig.counted().contains(&(Rebind, Answered, 1)),
        "{:?}",
        rig.counted()
    );
    rig.server = Server::Naks;
    rig.run_until(1160.0);
    assert!(
        rig.counted()
            .iter()
            .any(|message| matches!(message, (Renew, Refused, _))),
        "{:?}",
        rig.counted()
    );
}

#[test]
fn the_next_end_counts_only_leases_asked_for_in_vain() {
    let mut rig = Rig::new(8);
    rig.bind();
    let found = (rig.states(), rig.holdings().next_end);
    assert_eq!(found, (vec![("BOUND", 1)], None));
    rig.server = Server::Silent;
    rig.run_until(1050.5);
    assert_eq!(
        (rig.states(), rig.holdings().next_end),
        (vec![("RENEWING", 1)], None),
        "asked, and not in vain yet"
    );
    rig.run_until(1080.0);
    let left = rig.holdings().next_end.expect("no server answers");
    assert!(
        left > Duration::ZERO && left < Duration::from_secs(30),
        "{left:?}"
    );
    rig.server = Server::Up;
    rig.run_until(1099.0);
    let found = (rig.states(), rig.holdings().next_end);
    assert_eq!(found, (vec![("BOUND", 1)], None));
}

#[test]
fn only_so_many_networks_are_told_apart() {
    let mut rig = Rig::new(1000);
    rig.by_chaddr = false;
    for n in 1..=150_u32 {
        let mut call = rig.call(&format!("c{n}"), 1, &format!("c{n}"));
        call.attachment = Attachment::cni(format!("net{n:03}"), format!("c{n}"), "eth0");
        rig.give = std::net::Ipv4Addr::from(0xc000_0300 + n);
        rig.request(crate::effect::Call::Add(call));
    }
    let leases = rig.holdings().leases;
    let networks: BTreeSet<_> = leases.keys().map(|kind| kind.network.as_str()).collect();
    assert_eq!((networks.len(), leases.values().sum::<u64>()), (101, 150));
    assert_eq!(
        leases
            .iter()
            .filter(|(kind, _)| kind.network == OTHER_NETWORKS)
            .map(|(_, n)| n)
            .sum::<u64>(),
        50
    );
    assert!(networks.contains("net100") && !networks.contains("net101"));
}
