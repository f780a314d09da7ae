//! What is wrong with LANs and leases, as every surface shows it.

use super::rig::*;

#[test]
fn a_bridge_that_takes_the_routers_address_is_a_trouble() {
    let found = |is_router_on_host| {
        let mut rig = Rig::new(8);
        rig.profile = Profile {
            is_router_on_host,
            ..Profile::default()
        };
        rig.options = vec![3, 4, 192, 0, 2, 1];
        rig.bind_slowly();
        // The next daemon knows it from the record.
        rig.restart();
        rig.run_for(5.0);
        rig.reg.troubles(rig.now())
    };
    assert_eq!(found(false), []);
    let [trouble] = &found(true)[..] else {
        panic!("one trouble")
    };
    let seen = (trouble.kind, trouble.count);
    assert_eq!(seen, (TroubleKind::HostIsRouter, 1));
    assert_says(&trouble.sentence, "the LAN's router, 192.0.2.1,");
}
