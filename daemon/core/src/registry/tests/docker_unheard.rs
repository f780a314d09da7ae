//! dockerd ended the host's only container while no daemon ran, and gave up: nobody says that it is gone.

use super::docker::*;
use super::rig::*;

impl Rig {
    /// Asks for an address for the container `web`, whose Ethernet address is made up at each start.
    fn web(&mut self, last: u8) -> u64 {
        let mut add = self.endpoint_call(last);
        add.client_id = ClientIdRule::Bytes(ClientId::new(b"\0web".to_vec()).unwrap());
        self.request(Call::Add(add))
    }
}

fn ended_unheard() -> Rig {
    let mut rig = Rig::new(8);
    rig.lease = 10_000;
    rig.web(1);
    rig.joins(1);
    rig.configure(A);
    rig.inside.clear();
    rig.interface.carry([]);
    rig.live.remove(&1);
    rig
}

#[test]
fn the_only_container_that_ended_unheard_keeps_no_lease() {
    for while_down in [0, 20_000] {
        let mut rig = ended_unheard();
        rig.at += Duration::from_secs(while_down);
        rig.restart();
        rig.run_for(62.0);
        let found = (rig.rows().len(), rig.store.records().len());
        assert_eq!(found, (0, 0), "{while_down}");
        assert_eq!(
            (rig.sends(1), rig.sends(7)),
            (1, usize::from(while_down == 0)),
            "none is acquired for nobody, {while_down}"
        );
    }
}

#[test]
fn a_name_whose_container_ended_unheard_is_free() {
    let mut rig = ended_unheard();
    rig.restart();
    rig.run_until(1050.0);
    assert_eq!((rig.rows().len(), rig.sends(7)), (1, 0));
    let again = rig.web(2);
    assert_eq!(rig.leased(again), FIRST);
    rig.run_until(1200.0);
    let holders: Vec<_> = rig.rows().into_iter().map(|row| row.attachment).collect();
    let found = (holders, rig.sends(7), rig.store.records().len());
    assert_eq!(found, (vec![endpoint(2)], 0, 1));
}
