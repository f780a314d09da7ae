//! Leases and losses that the store has not written yet: they count as if it had.

use std::net::IpAddr;

use super::rig::*;

impl Rig {
    /// Asks for a container of another network of the same LAN.
    fn add_to_other_network(&mut self, who: &str, netns: u64, id: &str) -> u64 {
        let mut call = self.call(who, netns, id);
        call.attachment = Attachment::cni("other", who, "eth0");
        self.request(Call::Add(call))
    }

    /// The addresses of all rows that have one, in order.
    fn addresses(&mut self) -> Vec<IpAddr> {
        let rows = self.rows();
        let mut all: Vec<_> = rows
            .iter()
            .filter_map(|row| Some(row.tenure.as_ref()?.ip()))
            .collect();
        all.sort();
        all
    }

    /// Has the store write everything from now on.
    fn writes(&mut self, until: f64) {
        self.disk_recovers();
        self.run_until(until);
    }
}

#[test]
fn two_networks_share_no_address_while_one_writes() {
    let mut rig = Rig::new(8);
    // The server knows clients by their Ethernet address alone, and both have the same.
    (rig.by_chaddr, rig.mac, rig.lease) = (true, Some(SHARED), 3600);
    rig.disk = Disk::Slow;
    let first = rig.add("a", 1, "a");
    let second = rig.add_to_other_network("b", 2, "b");
    rig.run_until(1005.0);
    rig.writes(1040.0);
    rig.assert_leased(first);
    let held = &rig.answers[&second];
    assert!(matches!(held, Answer::Failed(_)), "{held:?}");
    assert_eq!(rig.addresses(), [IpAddr::V4(FIRST)]);
}
