//! What an endpoint should have although somebody else holds it: its name, by a container that is gone or not, and one of the
//! host's addresses.

use super::docker::*;
use super::rig::*;

impl Rig {
    /// Asks for an address for the container `web`, whose Ethernet address is made up at each start.
    fn web(&mut self, last: u8) -> u64 {
        let mut add = self.endpoint_call(last);
        add.client_id = ClientIdRule::Bytes(ClientId::new(b"\0web".to_vec()).unwrap());
        self.request(Call::Add(add))
    }

    fn comes_into(&mut self, last: u8, netns: u64) {
        self.inside.insert(endpoint_mac(last), netns);
        self.interface_appears(netns as i32, endpoint_mac(last));
    }
}

/// The container `web` runs, in the only namespace.
fn running() -> Rig {
    let mut rig = Rig::new(8);
    rig.lease = 10_000;
    rig.web(1);
    rig.comes_into(1, 1);
    rig.configure(A);
    rig
}

/// dockerd has ended the host's only container while no daemon ran, and gave up: nobody says that it is gone.
fn ended_unheard() -> Rig {
    let mut rig = running();
    rig.inside.clear();
    rig.interface.carry([]);
    rig.live.remove(&1);
    rig
}

/// The next daemon has just looked for it.
fn missed() -> Rig {
    let mut rig = ended_unheard();
    rig.restart();
    rig.run_until(1050.0);
    assert_eq!(
        (rig.rows().len(), rig.sends(7)),
        (1, 0),
        "Docker may give it back"
    );
    rig
}

#[test]
fn the_only_container_that_ended_unheard_keeps_no_lease() {
    for while_down in [0, 20_000] {
        let mut rig = ended_unheard();
        rig.at += Duration::from_secs(while_down);
        rig.restart();
        let began = rig.at.as_secs_f64();
        rig.run_until(began + 62.0);
        assert_eq!(
            (rig.rows().len(), rig.store.records().len()),
            (0, 0),
            "{while_down}"
        );
        assert_eq!(
            (rig.sends(1), rig.sends(7)),
            (1, usize::from(while_down == 0)),
            "none is acquired for nobody, {while_down}"
        );
    }
}

#[test]
fn a_name_whose_container_ended_unheard_is_free() {
    let mut rig = missed();
    let again = rig.web(2);
    assert_eq!(rig.leased(again), FIRST);
    rig.run_until(1200.0);
    let rows = rig.rows();
    assert_eq!(
        (
            rows.len(),
            &rows[0].attachment,
            rig.sends(7),
            rig.store.records().len()
        ),
        (1, &endpoint(2), 0, 1)
    );
}

#[test]
fn an_address_of_the_host_is_not_taken() {
    let mut rig = Rig::new(8);
    (rig.one_for_all, rig.wired.host_addresses) = (true, vec![A.parse().unwrap()]);
    let add = rig.endpoint(1);
    rig.run_until(1031.0);
    let Failure::AddressHeld {
        address, holder, ..
    } = rig.failure(add)
    else {
        panic!("{:?}", rig.answers)
    };
    assert_eq!(
        (*address, holder),
        (FIRST, &AddressHolder::Host("eth0".into()))
    );
    assert_eq!(
        [3, 4, 7].map(|kind| rig.sends(kind)),
        [0, 0, 0],
        "no REQUEST, no DECLINE, no RELEASE"
    );
    // In a VLAN of that link the number is another's.
    let mut tagged = rig.endpoint_call(2);
    tagged.lan = lan_on("br0", 10);
    let tagged = rig.request(Call::Add(tagged));
    assert_eq!(rig.leased(tagged), FIRST);
}
