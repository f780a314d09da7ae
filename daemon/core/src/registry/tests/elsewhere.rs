//! Callers that want an address and an unchanged interface: the address never appears there.

use super::rig::*;

fn added(seconds: u32, profile: Profile) -> Rig {
    let mut rig = Rig::new(8);
    (rig.lease, rig.profile) = (seconds, profile);
    rig.options = vec![3, 4, 192, 0, 2, 1];
    rig.add("a", 1, "a");
    rig
}

impl Rig {
    fn check_of(&mut self) -> Answer {
        let check = self.check(&[A]);
        self.answers.remove(&check).expect("an answer")
    }
}

#[test]
fn no_later_lease_is_put_on_where_the_first_never_came() {
    for (on_change, on_expiry) in [
        (OnChange::Apply, OnExpiry::Remove),
        (OnChange::Keep, OnExpiry::Remove),
        (OnChange::Apply, OnExpiry::Keep),
    ] {
        for restarts in [false, true] {
            let mut rig = added(
                100,
                Profile::from(Policy {
                    on_change,
                    on_expiry,
                    ..Policy::default()
                }),
            );
            rig.run_for(70.0);
            assert!(rig.only_record().elsewhere && !rig.only_record().taken_off);
            if restarts {
                rig.restart();
            }
            rig.server = Server::Naks;
            rig.run_for(60.0);
            (rig.server, rig.give) = (Server::Up, OTHER);
            rig.run_for(120.0);
            let address = rig.rows()[0].tenure.as_ref().unwrap().v4().unwrap().addr();
            assert_eq!(
                (address, rig.steps.clone()),
                (OTHER, vec![]),
                "{on_change:?}, {on_expiry:?}, {restarts}"
            );
        }
    }
}

#[test]
fn a_check_misses_no_address_that_never_came() {
    let mut rig = added(1000, Profile::default());
    assert_eq!(rig.check_of(), Answer::Checked);
    rig.run_for(70.0);
    assert_eq!(rig.check_of(), Answer::Checked);
    rig.restart();
    assert_eq!(rig.check_of(), Answer::Checked);
    // An address that was there and is gone is one.
    rig.configure(A);
    assert_eq!(rig.check_of(), Answer::Checked);
    rig.take_off(A);
    assert!(matches!(rig.check_of(), Answer::Failed(_)));
}

#[test]
fn an_address_of_which_no_message_told_is_seen_before_t1() {
    for seconds in [20, 1000] {
        let mut rig = added(seconds, Profile::default());
        rig.interface.put(A.parse().unwrap());
        rig.run_until(rig.t1() + 1.0);
        assert_eq!(rig.sent.last(), Some(&(3, FIRST)), "by RENEW");
    }
}

#[test]
fn an_address_put_on_late_belongs_to_the_lease() {
    let mut rig = added(20, Profile::default());
    rig.run_until(rig.t1() + 0.5);
    assert_eq!(rig.sent.last(), Some(&(3, ANY)));
    rig.configure(A);
    rig.run_until(rig.t1() + 0.5);
    assert_eq!(rig.sent.last(), Some(&(3, FIRST)));
    rig.give = OTHER;
    rig.run_for(30.0);
    assert_eq!(rig.on_link(), [B]);
}
