//! Two things at once, as the simulation found them.

use std::net::Ipv4Addr;

use super::super::*;
use super::rig::*;
use crate::grant::policy::OnChange;

fn refused() -> LinkCause {
    LinkCause::Refused {
        doing: "try",
        reason: "a test".to_owned(),
    }
}

#[test]
fn an_add_takes_off_what_a_lost_lease_left() {
    for on_change in [OnChange::Apply, OnChange::Keep] {
        let mut rig = Rig::new(8);
        rig.profile.policy.on_change = on_change;
        rig.add("a", 1, "a");
        rig.interface
            .carry(["192.0.2.50/24".parse().expect("an address")]);
        rig.server = Server::Naks;
        rig.faults.push_back((0, refused()));
        rig.run_until(1050.2);
        assert_eq!(
            rig.interface.addresses().len(),
            1,
            "it could not be taken off"
        );
        (rig.server, rig.give) = (Server::Up, Ipv4Addr::new(192, 0, 2, 77));
        let again = rig.add("a", 1, "a");
        assert!(
            matches!(&rig.answers[&again], Answer::Leased { tenures } if tenures[0].ip() == rig.give)
        );
        assert_eq!(rig.interface.addresses(), [], "{on_change:?}");
    }
}
