//! An address of a LAN has one live holder, whatever its server thinks.

use super::rig::*;

const OTHER_SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// A server that knows clients by chaddr alone, and interfaces that share one Ethernet address (ipvlan).
fn by_chaddr() -> Rig {
    let mut rig = Rig::new(8);
    (rig.by_chaddr, rig.mac, rig.lease) = (true, Some(SHARED), 3600);
    rig
}

/// Attachment `a` holds the first address.
fn one() -> Rig {
    let mut rig = Rig::new(8);
    rig.lease = 3600;
    rig.bind();
    rig.run_until(1020.0);
    rig.sent.clear();
    rig
}

impl Rig {
    /// Returns how many REQUESTs were sent for an offer, not for a lease.
    fn selecting_requests(&self) -> usize {
        let sent = self.sent.iter();
        sent.filter(|(kind, ip)| *kind == 3 && ip.is_unspecified())
            .count()
    }

    fn held_by(&self, add: u64) -> (Ipv4Addr, String, Option<Mac>) {
        match &self.answers[&add] {
            Answer::Failed(Failure::AddressHeld {
                address,
                holder: AddressHolder::Attachment(holder),
                shared,
                ..
            }) => (*address, container(holder), *shared),
            answer => panic!("{answer:?}"),
        }
    }

    fn insisting(&self, who: &str, netns: u64, address: Ipv4Addr) -> Box<Add> {
        let wanted = Some(Wanted {
            address,
            preferred: false,
        });
        Box::new(Add {
            wanted,
            ..*self.call(who, netns, who)
        })
    }
}

#[test]
fn an_add_names_the_holder_that_has_its_mac_and_address() {
    let mut rig = by_chaddr();
    rig.bind();
    rig.run_until(1020.0);
    rig.sent.clear();
    let add = rig.add("b", 2, "b");
    rig.run_until(1050.0);
    assert_eq!(rig.held_by(add), (FIRST, "a".to_owned(), Some(SHARED)));
    let requests = rig.selecting_requests();
    assert_eq!((requests, rig.sends(4), rig.sends(7)), (0, 0, 0));
    let said = rig.failure(add).to_string();
    for part in [
        "192.0.2.1",
        "192.0.2.50",
        "lan/a/eth0",
        "Ethernet address",
        "macvlan",
        "MAC",
        "`clientId`",
    ] {
        assert!(said.contains(part), "{said} lacks {part}");
    }
    assert_eq!(
        rig.causes(EventKind::AddressHeld),
        ["not taken from server 192.0.2.1: lan/a/eth0 has it"]
    );
    rig.del("b");
    rig.run_until(1100.0);
    let found = (rig.state("a"), rig.sends(7), rig.rows().len());
    assert_eq!(found, ("BOUND", 0, 1));
}

#[test]
fn a_cancelled_add_releases_no_address_of_another() {
    let mut rig = by_chaddr();
    rig.server = Server::OffersOnly;
    rig.add("b", 2, "b");
    rig.server = Server::Up;
    let add = rig.add("a", 1, "a");
    assert_eq!(rig.leased(add), FIRST);
    rig.server = Server::Silent;
    rig.del("b");
    rig.run_until(1050.0);
    assert_eq!((rig.sends(7), rig.rows().len()), (0, 1));
    let found = rig.causes(EventKind::AddressHeld);
    assert_eq!(found, ["no RELEASE sent: lan/a/eth0 has the address"]);
}

#[test]
fn a_lease_that_waits_after_a_reboot_gives_way() {
    let mut rig = Rig::new(8);
    (rig.by_chaddr, rig.lease) = (true, 36_000);
    rig.store.durable = [(BindingId(1), record("old", "before", 900.0))].into();
    rig.live.clear();
    rig.restart();
    rig.live.insert(2);
    rig.mac = Some(record("old", "before", 900.0).identity.chaddr);
    let add = rig.add("new", 2, "new");
    assert_eq!(rig.leased(add), FIRST);
    // What waited is gone.
    assert_eq!((rig.rows().len(), rig.store.records().len()), (1, 1));
    rig.run_until(2000.0);
    assert_eq!((rig.sends(7), rig.state("new")), (0, "BOUND"));
    let found = rig.causes(EventKind::AddressHeld);
    assert_eq!(found, ["no RELEASE sent: lan/new/eth0 has the address"]);
}

#[test]
fn a_kept_lease_gives_way_whatever_the_mac() {
    for mac in [None, Some(SHARED)] {
        let mut rig = Rig::new(8);
        (rig.lease, rig.mac) = (3600, mac);
        rig.profile.grace = Some(60);
        rig.add("a", 1, "a");
        rig.del("a");
        rig.granted.clear();
        let add = rig.add("b", 2, "b");
        assert_eq!((rig.leased(add), rig.rows().len()), (FIRST, 1), "{mac:?}");
        rig.run_until(1100.0);
        assert_eq!((rig.sends(7), rig.store.records().len()), (0, 1));
    }
}

#[test]
fn a_server_with_one_address_for_all_fails_the_next_add() {
    let mut rig = one();
    rig.one_for_all = true;
    let add = rig.add("b", 2, "b");
    rig.run_until(1100.0);
    assert_eq!(rig.held_by(add), (FIRST, "a".to_owned(), None));
    let requests = rig.selecting_requests();
    assert_eq!((rig.sends(1), requests), (10, 0), "ten offers, no REQUEST");
    let found = (rig.sends(4), rig.sends(7), rig.state("a"));
    assert_eq!(found, (0, 0, "BOUND"));
    let renewals = rig.sends(3);
    assert!(
        (1..=3).contains(&renewals),
        "renewed once in a while, not {renewals} times"
    );
}

#[test]
fn an_add_that_insists_on_a_held_address_fails_at_once() {
    let mut rig = one();
    rig.plug_all();
    rig.run_until(1040.0);
    rig.granted.clear();
    rig.sent.clear();
    let call = rig.insisting("b", 2, FIRST);
    let add = rig.request(Call::Add(call));
    assert_eq!(rig.held_by(add), (FIRST, "a".to_owned(), None));
    rig.run_until(1042.0);
    let is_told = rig.sent.contains(&(3, FIRST));
    assert!(is_told, "the server has forgotten it: {:?}", rig.sent);
}

#[test]
fn a_lease_moved_to_a_held_address_is_lost() {
    let mut rig = one();
    let b = rig.add("b", 2, "b");
    assert_eq!(rig.leased(b), Ipv4Addr::new(192, 0, 2, 51));
    rig.plug_all();
    rig.one_for_all = true;
    rig.run_until(3000.0);
    let rows = rig.rows();
    let leases: Vec<_> = rows
        .iter()
        .filter_map(|row| Some(row.tenure.as_ref()?.ip()))
        .collect();
    assert_eq!(leases, [FIRST], "{rows:?}");
    assert_eq!((rig.sends(4), rig.sends(7)), (0, 0));
    let cause = "server 192.0.2.1 granted 192.0.2.50 instead, which another attachment has";
    assert_eq!(rig.causes(EventKind::Lost), [cause]);
}

#[test]
fn a_takeover_with_another_address_releases_the_old_one() {
    let mut rig = one();
    rig.live.remove(&1);
    rig.server = Server::NaksOnly;
    let add = rig.add("b", 2, "a");
    rig.give = OTHER;
    rig.server = Server::Up;
    rig.run_until(1030.0);
    assert_eq!(rig.leased(add), OTHER);
    let released: Vec<_> = rig
        .sent
        .iter()
        .filter(|(kind, _)| *kind == 7)
        .map(|(_, ip)| *ip)
        .collect();
    let found = (released, rig.rows().len(), rig.store.records().len());
    assert_eq!(found, (vec![FIRST], 1, 1));
    assert_eq!(rig.only_record().state, RecordState::Bound);
}

#[test]
fn a_container_is_not_adopted_with_the_address_of_another() {
    let mut rig = Rig::new(8);
    rig.interface.put(A.parse().unwrap());
    let adoptees = vec![rig.running_as(rig.call("b", 2, "b"))];
    let records = vec![(BindingId(1), record("a", "b", 950.0))];
    rig.start("b", records, adoptees);
    rig.run_until(1010.0);
    assert_eq!(
        rig.not_adopted(),
        ["lan/b/eth0: lan/a/eth0 has 192.0.2.50: delete that attachment first"]
    );
    assert_eq!((rig.sent.len(), rig.state("a")), (0, "BOUND"));
}

#[test]
fn an_address_being_adopted_is_not_taken() {
    let mut rig = Rig::new(8);
    (rig.lease, rig.one_for_all, rig.server) = (3600, true, Server::Silent);
    rig.interface.put(A.parse().unwrap());
    rig.profile.policy.detection = Detection::Strict;
    rig.start("b", vec![], vec![rig.running_as(rig.call("b", 2, "b"))]);
    assert_eq!(rig.kinds(), [3], "nobody confirms it yet");
    rig.server = Server::OffersOnly;
    let add = rig.add("c", 3, "c");
    assert_eq!(rig.kinds(), [3, 1], "not asked for");
    rig.server = Server::Up;
    rig.run_until(1100.0);
    let found = (rig.state("b"), rig.held_by(add));
    assert_eq!(found, ("BOUND", (FIRST, "b".to_owned(), None)));
    assert_eq!((rig.sends(4), rig.sends(7)), (0, 0));
}

#[test]
fn a_forgetful_server_is_told_what_is_held() {
    let mut rig = one();
    let b = rig.add("b", 2, "b");
    assert_eq!(rig.leased(b), Ipv4Addr::new(192, 0, 2, 51));
    rig.plug_all();
    rig.run_until(1040.0);
    rig.granted.clear();
    rig.sent.clear();
    let add = rig.add("c", 3, "c");
    rig.run_until(1042.0);
    assert_eq!(rig.leased(add), Ipv4Addr::new(192, 0, 2, 52));
    let renewed: Vec<_> = rig
        .sent
        .iter()
        .filter(|(kind, ip)| *kind == 3 && !ip.is_unspecified())
        .collect();
    assert_eq!(
        renewed,
        [&(3, FIRST), &(3, Ipv4Addr::new(192, 0, 2, 51))],
        "{:?}",
        rig.sent
    );
    assert_eq!((rig.sends(4), rig.sends(7), rig.rows().len()), (0, 0, 3));
    assert!(rig.rows().iter().all(|row| row.state == BOUND));
}

#[test]
fn a_held_address_that_another_server_offers_is_refused() {
    let mut rig = one();
    rig.granted.clear();
    (rig.server_id, rig.one_for_all) = (OTHER_SERVER, true);
    let add = rig.add("b", 2, "b");
    rig.run_until(1100.0);
    assert_eq!(rig.held_by(add), (FIRST, "a".to_owned(), None));
    let requests = rig.selecting_requests();
    assert_eq!((rig.sends(4), requests), (0, 0), "{:?}", rig.kinds());
    assert_eq!(rig.state("a"), "BOUND");
}

#[test]
fn two_networks_share_no_address_while_one_writes() {
    let mut rig = by_chaddr();
    rig.disk = Disk::Slow;
    let first = rig.add("a", 1, "a");
    let mut other = rig.call("b", 2, "b");
    other.attachment = Attachment::cni("other", "b", "eth0");
    let second = rig.request(Call::Add(other));
    rig.run_until(1005.0);
    rig.disk_recovers();
    rig.run_until(1040.0);
    assert_eq!(rig.leased(first), FIRST);
    rig.failure(second);
    assert_eq!(rig.rows().len(), 1);
}
