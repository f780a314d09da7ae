//! How often addresses are declined: three of them by an ADD, and ten on a LAN in ten minutes.

use super::*;

impl Rig {
    fn declines(&self) -> usize {
        self.kinds().iter().filter(|kind| **kind == 4).count()
    }

    /// A neighbour uses every address that the server has.
    fn all_taken(&mut self) {
        self.stations
            .extend((0..200).map(|n| (Ipv4Addr::from_bits(FIRST.to_bits() + n), NEIGHBOUR)));
    }
}

/// A LAN on which an ADD has just failed with its three conflicts.
fn hostile() -> Rig {
    let mut rig = rig(Detection::Optimistic);
    offend(&mut rig);
    rig
}

fn offend(rig: &mut Rig) {
    rig.all_taken();
    let mut call = rig.call("a", 1, "a");
    call.timeout = Duration::from_secs(100);
    let add = rig.request(Call::Add(call));
    while !rig.answers.contains_key(&add) {
        rig.wake();
    }
}

/// A server that keeps FIRST for "a", where a neighbour uses it, and offers that again whatever "a" declines.
fn with_a_squatted_reservation() -> Rig {
    let mut rig = rig(Detection::Optimistic);
    (rig.give, rig.reserved) = (SECOND, Some((Mac([2, 0, 0, 0, 1, 1]), FIRST)));
    rig.stations.insert(FIRST, NEIGHBOUR);
    rig
}

#[test]
fn an_add_ends_at_the_third_offer_of_a_used_address() {
    let mut rig = with_a_squatted_reservation();
    let add = rig.add("a", 1, "a");
    rig.run_until(1006.0);
    assert_eq!(
        rig.answers.get(&add),
        Some(&Answer::Failed(Failure::Conflict {
            address: FIRST,
            by: NEIGHBOUR
        }))
    );
    assert_eq!(rig.declines(), 1);
    rig.assert_nothing_is_left();
}

#[test]
fn a_lan_has_at_most_ten_declines_in_ten_minutes() {
    let mut rig = hostile();
    let mut last = None;
    while rig.seconds() < 1500.0 {
        let add = rig.add("a", 1, "a");
        rig.run_until(rig.seconds() + 20.0);
        last = rig.answers.remove(&add);
    }
    assert_eq!(rig.declines(), 10);
    let Some(Answer::Failed(failure)) = last else {
        panic!("{last:?}")
    };
    assert_eq!(
        failure.to_string(),
        "192.0.2.60 is in use by 02:00:00:00:09:09, and was not declined, because ten addresses on br0 were declined in the last \
         ten minutes: find out why that Ethernet address answers for it"
    );
    rig.assert_nothing_is_left();
    // Whose address nobody claims does not wait.
    rig.give = Ipv4Addr::from_bits(FIRST.to_bits() + 300);
    let (began, add) = (rig.seconds(), rig.add("b", 2, "b"));
    rig.assert_leased(add);
    assert!(rig.seconds() - began < 0.1);
    rig.give = FIRST;
    rig.run_until(1700.0);
    rig.add("c", 3, "c");
    rig.run_until(1720.0);
    assert_eq!(rig.declines(), 13, "ten minutes later");
}

#[test]
fn an_add_declines_three_addresses_at_most() {
    let mut rig = hostile();
    assert_eq!(rig.declines(), 3);
    assert!(rig.seconds() < 1005.0, "soon: {}", rig.seconds());
    let failure = rig.failure(1);
    assert_eq!(
        failure.to_string(),
        "3 addresses that were offered on br0 are in use, and were declined: 192.0.2.50 by 02:00:00:00:09:09, 192.0.2.51 by \
         02:00:00:00:09:09, 192.0.2.52 by 02:00:00:00:09:09; take them out of the server's pool, or find out why these \
         Ethernet addresses answer for them"
    );
    rig.assert_nothing_is_left();
    rig.run_until(1100.0);
    assert_eq!(rig.declines(), 3, "nothing goes on");
}
