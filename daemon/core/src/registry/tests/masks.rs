//! A lease whose mask changes before Docker puts its address on: Docker only knows the first mask.

use super::networks::{OWN, endpoint, with_network};
use super::rig::*;

/// The same address with its later mask.
const LATER: &str = "192.0.2.50/25";

/// An endpoint whose lease has had another mask since Docker was told about it, and whose link is being moved into its
/// container.
fn masked_anew() -> Rig {
    let mut rig = with_network();
    rig.profile.policy.suppress_default_route = true;
    rig.create_endpoint("e1", OWN);
    rig.mask = [255, 128];
    rig.run_until(rig.t1() + 1.0);
    assert_eq!(rig.only_record().lease.address.to_string(), LATER);
    rig.link_leaves(&endpoint());
    rig
}

fn comes_in(rig: &mut Rig) {
    rig.inside.insert(OWN, 1);
    rig.interface_appears(1, OWN);
}

#[test]
fn an_address_with_an_old_mask_gets_the_leases() {
    for comes_late in [true, false] {
        let mut rig = masked_anew();
        if comes_late {
            comes_in(&mut rig);
            rig.configure(A);
        } else {
            rig.interface.carry([A.parse().unwrap()]);
            comes_in(&mut rig);
        }
        rig.run_for(10.0);
        let found = (rig.on_link(), rig.only_record().former.clone());
        assert_eq!(found, (vec![LATER.to_owned()], None), "{comes_late}");
        let steps = rig.steps.len();
        rig.kernel(KernelMessage::Missed);
        rig.run_for(20.0);
        assert_eq!(rig.steps.len(), steps, "it is as it should be");
    }
}

#[test]
fn an_old_mask_put_on_without_a_daemon_is_replaced() {
    let mut rig = masked_anew();
    comes_in(&mut rig);
    rig.run_for(10.0);
    assert_eq!(rig.on_link(), [LATER]);
    rig.interface.put(A.parse().unwrap());
    rig.restart();
    rig.run_for(10.0);
    let found = (rig.on_link(), rig.only_record().former.clone());
    assert_eq!(found, (vec![LATER.to_owned()], None));
}
