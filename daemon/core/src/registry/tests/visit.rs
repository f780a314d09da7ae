//! The visit in which an ADD's link is set up, looked at, and given sockets.

use super::rig::*;
use crate::effect::ExchangeId;
use crate::link::Hears;

impl Rig {
    /// Makes such a visit, or holds its outcome back like that of a look.
    pub(super) fn prepare(
        &mut self,
        op: OpId,
        (place, lan): (&Place, &Lan),
        exchange: ExchangeId,
        chaddr: Option<Mac>,
    ) {
        let result = match (place, self.blind.clone()) {
            (Place::InNetns(_), _) => match self.change(&place.target(), vec![Step::Up]) {
                Outcome::Applied { result, .. } => result,
                other => panic!("that of a change, not {other:?}"),
            },
            (Place::Parent { .. }, Some(cause)) => Err(cause),
            (Place::Parent { .. }, None) => self.look(&place.target()),
        };
        let mut outcome = Outcome::Prepared {
            result: result.clone(),
            exchange: None,
        };
        if let Ok(view) = &result
            && let link = place.link(view, lan)
            && view.carrier
            && !matches!(link, Link::Parent { port: true, .. })
        {
            let chaddr = chaddr.unwrap_or(link.mac());
            self.opened.push(link);
            self.open.insert(
                exchange,
                Sockets {
                    chaddr,
                    arp: Hears::Answers,
                    hold_port: None,
                },
            );
            outcome = Outcome::Prepared {
                result,
                exchange: Some(exchange),
            };
        }
        match self.hold_looks {
            true => self.looks.push_back((op, outcome)),
            false => self.reg.handle(self.now(), Input::Done { op, outcome }),
        }
    }
}

#[test]
fn sockets_that_would_wait_for_a_permit_are_not_opened() {
    let mut rig = Rig::new(1);
    rig.server = Server::Silent;
    rig.add("a", 1, "a");
    assert_eq!(rig.opened.len(), 1);
    rig.add("b", 2, "b");
    // `a` talks to the server, and `b` waits.
    assert_eq!((rig.opened.len(), rig.open.len()), (1, 1));
}

#[test]
fn an_add_waits_for_its_mac_to_be_free() {
    const OTHER: LinkCause = LinkCause::MacTaken(Mac([2, 0, 0, 0, 1, 1]));
    let mut rig = Rig::new(8);
    rig.faults = vec![(0, OTHER); 3].into();
    let add = rig.add("a", 1, "a");
    rig.run_until(1000.14);
    // Three tries.
    assert_eq!((rig.answers.get(&add), rig.faults.len()), (None, 0));
    rig.run_until(1000.2);
    rig.assert_leased(add);

    let mut rig = Rig::new(8);
    rig.faults = vec![(0, OTHER); 1000].into();
    let add = rig.add("a", 1, "a");
    rig.run_until(1029.9);
    assert_eq!(rig.answers.get(&add), None);
    rig.run_until(1030.1);
    assert!(
        matches!(&rig.answers[&add], Answer::Failed(Failure::Link { cause, .. }) if *cause == OTHER)
    );
    rig.faults.clear();
    let del = rig.del("a");
    let found = (&rig.answers[&del], rig.reg.poll_timeout());
    assert_eq!(found, (&Answer::Deleted, None));
}

#[test]
fn carrier_reported_during_a_look_leads_to_another_look() {
    let mut rig = Rig::new(8);
    (rig.interface.carrier, rig.hold_looks) = (false, true);
    let add = rig.add("a", 1, "a");
    rig.end_look();
    rig.tell_carrier(true);
    rig.tell_carrier(true);
    assert_eq!(rig.looks.len(), 1, "one look at a time");
    (rig.interface.carrier, rig.hold_looks) = (true, false);
    rig.end_look();
    rig.assert_leased(add);
}

#[test]
fn a_first_message_after_carrier_is_repeated_soon() {
    let kinds = |rig: &mut Rig, until: f64| {
        rig.run_until(until);
        rig.sent.iter().map(|(kind, _)| *kind).collect::<Vec<_>>()
    };
    for (was_down, waits) in [(false, false), (true, false), (false, true)] {
        let mut rig = Rig::new(8);
        (rig.server, rig.was_down, rig.interface.carrier) = (Server::Silent, was_down, !waits);
        rig.add("a", 1, "a");
        if waits {
            rig.interface.carrier = true;
            rig.tell_carrier(true);
        }
        let repeats = was_down || waits;
        for (until, repeated) in [
            (1000.01, 0),
            (1000.03, 1),
            (1000.19, 1),
            (1000.21, 2),
            (1000.8, 2),
        ] {
            assert_eq!(
                kinds(&mut rig, until).len(),
                if repeats { 1 + repeated } else { 1 },
                "{until}"
            );
        }
        // From there on, everything is as if that had been the first.
        assert_eq!(kinds(&mut rig, 1001.5).len(), if repeats { 4 } else { 2 });
        assert_eq!(kinds(&mut rig, 1002.7).len(), if repeats { 4 } else { 2 });
        let xids: std::collections::BTreeSet<_> = rig
            .discovers
            .iter()
            .map(|(_, frame)| &frame[46..50])
            .collect();
        assert_eq!(xids.len(), 1);
    }
    let mut rig = Rig::new(8);
    rig.profile.grace = Some(60);
    rig.add("a", 1, "pod");
    rig.del("a");
    rig.sent.clear();
    (rig.server, rig.was_down) = (Server::Silent, true);
    rig.add("b", 2, "pod");
    assert_eq!(kinds(&mut rig, 1000.3), [3, 3, 3], "INIT-REBOOT");
}

#[test]
fn a_first_message_long_after_carrier_is_not_repeated() {
    let mut rig = Rig::new(1);
    (rig.server, rig.was_down) = (Server::Silent, true);
    rig.add("a", 1, "a");
    rig.add("b", 2, "b");
    let xid = |(_, frame): &(ExchangeId, Vec<u8>)| frame[46..50].to_vec();
    let first = xid(&rig.discovers[0]);
    let later = |rig: &Rig| {
        rig.discovers
            .iter()
            .filter(|sent| xid(sent) != first)
            .count()
    };
    let turn = (1..300)
        .map(|tenth| 1000.0 + f64::from(tenth) / 10.0)
        .find(|at| {
            rig.run_until(*at);
            later(&rig) > 0
        });
    rig.run_until(turn.expect("its turn comes") + 0.5);
    assert_eq!(later(&rig), 1);
}
