//! What Docker asks for: pools, reserved addresses, and leases, which it gives back by the address that it was told.

use super::rig::*;
use crate::tenure::Tenure;

pub(super) const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);

fn net(text: &str) -> Ipv4Net {
    text.parse().unwrap()
}

pub(super) fn pool() -> PoolId {
    PoolId::new("parent=br0", net("192.0.2.0/24"), None)
}

pub(super) fn endpoint_mac(last: u8) -> Mac {
    Mac([2, 0x42, 0, 0, 0, last])
}

pub(super) fn endpoint(last: u8) -> Attachment {
    Attachment::Docker {
        pool: pool().to_string().into(),
        endpoint: endpoint_mac(last).to_string().into(),
    }
}

impl Rig {
    /// Returns Docker's request of an address for an endpoint.
    pub(super) fn endpoint_call(&self, last: u8) -> Box<crate::effect::Add> {
        let mut add = self.docker_call(endpoint(last), "docker");
        add.place = Place::Parent {
            ifname: "br0".into(),
            mac: endpoint_mac(last),
        };
        add.client_id = ClientIdRule::Mac;
        add.limits = Some(pool().limits());
        add
    }

    /// Asks for an address for an endpoint.
    pub(super) fn endpoint(&mut self, last: u8) -> u64 {
        let add = self.endpoint_call(last);
        self.request(Call::Add(add))
    }

    /// Asks for a pool with this subnet.
    pub(super) fn pool(&mut self, subnet: Option<&str>, range: Option<&str>) -> u64 {
        let call = self.pool_call(subnet, range);
        self.request(Call::Pool(PoolCall::Request(Box::new(call))))
    }

    pub(super) fn pool_call(&self, subnet: Option<&str>, range: Option<&str>) -> PoolRequest {
        PoolRequest {
            definition: "parent=br0".into(),
            subnet: subnet.map(net),
            range: range.map(net),
            ifname: "br0".into(),
            mac: endpoint_mac(0),
            lan: lan_on("br0", 0),
            profile: Profile::default(),
            timeout: Duration::from_secs(20),
            unclear: None,
        }
    }

    pub(super) fn reserve(&mut self, address: Option<Ipv4Addr>) -> u64 {
        self.request(Call::Pool(PoolCall::Reserve {
            pool: pool(),
            address,
        }))
    }

    pub(super) fn release(&mut self, address: Ipv4Addr) {
        let id = self.ask_release(address);
        // As soon as the store has it.
        assert_eq!(self.answers[&id], Answer::Released);
    }

    fn ask_release(&mut self, address: Ipv4Addr) -> u64 {
        self.request(Call::Pool(PoolCall::ReleaseAddress {
            pool: pool(),
            address,
        }))
    }

    fn release_pool(&mut self) {
        let id = self.request(Call::Pool(PoolCall::Release { id: pool() }));
        assert_eq!(self.answers[&id], Answer::PoolReleased);
    }

    /// Returns what Docker was told about the only binding, and what that has leased.
    fn believed(&mut self) -> (Option<String>, Option<Ipv4Addr>) {
        let rows = self.rows();
        let [Row { told, tenure, .. }] = &rows[..] else {
            panic!("{rows:?}")
        };
        assert_eq!(self.only_record().told, *told, "and so it is recorded");
        (
            told.map(|told| told.to_string()),
            tenure.as_ref().and_then(Tenure::v4).map(|net| net.addr()),
        )
    }

    /// Has the lease end in another address.
    pub(super) fn change_lease(&mut self) {
        let t1 = self.t1();
        self.give = OTHER;
        self.granted.clear();
        self.server = Server::NaksOnly;
        self.run_until(t1 + 1.0);
        self.server = Server::Up;
        self.run_until(t1 + 40.0);
    }
}

fn held() -> Rig {
    let mut rig = Rig::new(8);
    let add = rig.endpoint(1);
    rig.assert_leased(add);
    rig
}

#[test]
fn a_repeated_request_is_told_the_lease_as_it_is_now() {
    let mut rig = held();
    rig.change_lease();
    let sent = rig.sent.len();
    let again = rig.endpoint(1);
    assert_eq!(rig.leased(again), OTHER);
    let found = (rig.believed(), rig.sent.len());
    assert_eq!(found, ((Some(B.to_owned()), Some(OTHER)), sent));
}

#[test]
fn a_release_repeated_or_of_an_unknown_address_succeeds() {
    let mut rig = held();
    rig.disk = Disk::Slow;
    let [once, twice] = [(); 2].map(|()| rig.ask_release(FIRST));
    // The store goes first.
    assert_eq!((rig.sends(7), rig.answers.contains_key(&twice)), (0, false));
    rig.disk_recovers();
    let found = [once, twice].map(|id| rig.answers[&id].clone());
    assert_eq!(found, [Answer::Released, Answer::Released]);
    rig.release(FIRST);
    rig.release(OTHER);
    let stranger = PoolId::new("parent=br1", net("192.0.2.0/24"), None);
    let id = rig.request(Call::Pool(PoolCall::ReleaseAddress {
        pool: stranger,
        address: FIRST,
    }));
    assert_eq!(rig.answers[&id], Answer::Released);
    rig.run_until(1010.0);
    assert_eq!(rig.ends(), [1, 0, 0]);
}

#[test]
fn an_address_of_another_pool_is_not_taken_for_ones_own() {
    let mut rig = held();
    let other = PoolId::new("parent=br0", net("192.0.2.0/24"), Some(net("192.0.2.0/25")));
    rig.request(Call::Pool(PoolCall::ReleaseAddress {
        pool: other,
        address: FIRST,
    }));
    rig.run_until(1010.0);
    assert_eq!((rig.sends(7), rig.rows().len()), (0, 1));
}

#[test]
fn a_release_ends_with_its_time_or_its_caller() {
    for hangs_up in [false, true] {
        let mut rig = held();
        rig.disk = Disk::Slow;
        let release = rig.ask_release(FIRST);
        match hangs_up {
            true => rig.input(Input::HungUp(RequestId(release))),
            false => {
                rig.run_until(1020.1);
                assert_fails!(rig, release, Failure::TimedOut(..));
            }
        }
        rig.disk_recovers();
        rig.run_until(1040.0);
        assert_eq!(
            (
                rig.sends(7),
                rig.store.records().len(),
                rig.answers.contains_key(&release)
            ),
            (1, 0, !hangs_up)
        );
        rig.assert_no_call_is_left();
    }
}

/// With live-restore dockerd finds a container's interface by the address that it knows: after a change of the lease it leaves the
/// interface, and what we have put there, in the container.
#[test]
fn an_address_left_inside_is_taken_off_before_its_release() {
    for fails in [false, true] {
        let mut rig = held();
        rig.joins(1);
        rig.configure(A);
        rig.change_lease();
        assert_eq!(rig.on_link(), [B]);
        rig.hold_changes = !fails;
        rig.blind = fails.then_some(LinkCause::TimedOut);
        let release = rig.ask_release(FIRST);
        rig.run_for(1.5);
        assert_eq!(
            (
                rig.answers.contains_key(&release),
                rig.sends(7),
                rig.holding().len()
            ),
            (false, 0, 1),
            "{fails}"
        );
        rig.blind = None;
        rig.change_late();
        rig.run_for(10.0);
        assert_eq!(rig.answers[&release], Answer::Released, "{fails}");
        assert!(
            rig.interface.addresses().is_empty()
                && rig.sends(7) == 1
                && rig.store.records().is_empty(),
            "{fails}: {:?}",
            rig.interface.addresses()
        );
        let removed = rig.told(EventKind::AddressRemoved);
        assert_eq!(removed, 0, "that was our doing");
    }
}

#[test]
fn a_returning_identity_keeps_its_lease_for_a_while() {
    let mut rig = Rig::new(8);
    rig.profile.grace = Some(60);
    rig.endpoint(1);
    rig.release(FIRST);
    rig.run_until(1030.0);
    assert_eq!((rig.sends(7), rig.rows()[0].state.as_str()), (0, "KEPT"));
    rig.sent.clear();
    let again = rig.endpoint(1);
    assert_eq!(rig.leased(again), FIRST);
    assert_eq!(rig.kinds(), [3], "INIT-REBOOT");
    rig.release(FIRST);
    rig.run_until(1089.0);
    assert_eq!(rig.sends(7), 0);
    rig.run_until(1100.0);
    let found = (rig.sends(7), rig.rows().len(), rig.only_record().state);
    assert_eq!(found, (1, 0, RecordState::Past));
}

#[test]
fn a_pool_call_does_not_wait_for_the_store_for_ever() {
    let mut rig = Rig::new(8);
    (rig.disk, rig.server) = (Disk::Slow, Server::Silent);
    let asked = rig.pool(Some("192.0.2.0/24"), None);
    let reserved = rig.reserve(Some(ROUTER));
    rig.run_until(1030.0);
    for id in [asked, reserved] {
        assert_fails!(rig, id, Failure::TimedOut(..));
    }
    rig.disk_recovers();
    rig.assert_no_call_is_left();
}

#[test]
fn a_range_must_be_of_its_subnet() {
    let mut rig = Rig::new(8);
    let id = rig.pool(Some("192.0.2.0/24"), Some("192.0.3.0/25"));
    assert_fails!(rig, id, Failure::Pool(PoolFault::RangeBeyond { .. }));
}

#[test]
fn a_pool_is_forgotten_once_it_has_no_lease() {
    let mut rig = Rig::new(8);
    rig.server = Server::Silent;
    // Three requests to one release.
    for _ in 0..3 {
        rig.pool(Some("192.0.2.0/24"), None);
    }
    rig.run_until(1010.0);
    rig.server = Server::Up;
    rig.endpoint(1);
    rig.release_pool();
    assert_eq!(rig.store.docker.pools.len(), 1);
    rig.release(FIRST);
    rig.release_pool();
    assert!(rig.store.docker.pools.is_empty());
    rig.release_pool();
}

#[test]
fn a_reservation_outlives_other_networks_of_its_pool() {
    let mut rig = Rig::new(8);
    for address in [ROUTER, OTHER] {
        rig.pool(Some("192.0.2.0/24"), None);
        rig.reserve(Some(address));
    }
    rig.release(ROUTER);
    rig.release_pool();
    assert_eq!(rig.store.docker.pools[&pool()].reserved, [OTHER].into());
    rig.release(OTHER);
    rig.release_pool();
    assert!(rig.store.docker.pools.is_empty());
}

#[test]
fn a_caller_that_goes_leaves_no_pool_and_no_reservation() {
    let mut rig = Rig::new(8);
    (rig.disk, rig.server) = (Disk::Slow, Server::Silent);
    let asked = rig.pool(Some("192.0.2.0/24"), None);
    rig.run_until(1005.0);
    rig.input(Input::HungUp(RequestId(asked)));
    rig.disk_recovers();
    assert!(rig.store.docker.pools.is_empty() && !rig.answers.contains_key(&asked));
    rig.disk = Disk::Slow;
    let reserved = rig.reserve(Some(OTHER));
    rig.input(Input::HungUp(RequestId(reserved)));
    rig.disk_recovers();
    assert!(
        rig.store
            .docker
            .pools
            .values()
            .all(|pool| pool.reserved.is_empty()),
        "{:?}",
        rig.store.docker.pools
    );
}

#[test]
fn a_reservation_that_the_store_does_not_take_is_an_error() {
    let mut rig = Rig::new(8);
    rig.disk = Disk::Full;
    let id = rig.reserve(Some(OTHER));
    assert_eq!(*rig.failure(id), Failure::Store(StoreCause::Full));
    rig.disk = Disk::Good;
    rig.reserve(Some(ROUTER));
    assert_eq!(rig.store.docker.pools[&pool()].reserved, [ROUTER].into());
}

#[test]
fn a_lease_is_given_back_though_its_address_is_reserved() {
    let mut rig = Rig::new(8);
    rig.reserve(Some(FIRST));
    rig.disk = Disk::Full;
    let id = rig.ask_release(FIRST);
    assert_eq!(*rig.failure(id), Failure::Store(StoreCause::Full));
    rig.disk = Disk::Good;
    let add = rig.endpoint(1);
    assert_eq!(rig.leased(add), FIRST);
    rig.reg = Core::new(rig.config.clone(), 9);
    rig.input(Input::Start {
        boot: BootId("b".into()),
        records: rig.store.records(),
        doors: rig.store.docker.records(),
        spooled: vec![],
        adoptees: vec![],
    });
    rig.release(FIRST);
    rig.run_until(1030.0);
    let reserved = &rig.store.docker.pools[&pool()].reserved;
    assert!(reserved.is_empty() && rig.rows().is_empty());
}

#[test]
fn a_reboot_keeps_the_lease_until_docker_gives_it_back() {
    let mut rig = held();
    rig.reg = Core::new(rig.config.clone(), 9);
    let records = rig.store.records();
    rig.at = Duration::from_secs(20);
    rig.wall_set = 990;
    rig.start("next", records, vec![]);
    assert_eq!(rig.rows()[0].state.as_str(), "KEPT");
    rig.release(FIRST);
    rig.run_until(30.0);
    assert_eq!((rig.sends(7), rig.rows().len()), (1, 0));
}

/// Two endpoints of which Docker was told one address: the lease of the first has changed, and the second got what it had.
fn two_of_one_address() -> Rig {
    let mut rig = held();
    rig.change_lease();
    rig.give = FIRST;
    let second = rig.endpoint(2);
    assert_eq!(rig.leased(second), FIRST);
    rig
}

#[test]
fn an_address_told_to_an_endpoint_cannot_be_reserved() {
    let mut rig = held();
    rig.change_lease();
    for address in [FIRST, OTHER] {
        let reserved = rig.reserve(Some(address));
        assert!(
            matches!(
                rig.failure(reserved),
                Failure::Pool(PoolFault::Leased { .. })
            ),
            "{address}"
        );
    }
    rig.release(FIRST);
    assert_eq!(rig.holding(), []);
    let reserved = rig.reserve(Some(FIRST));
    assert_eq!(rig.answers[&reserved], Answer::Reserved(FIRST));
}

impl Rig {
    /// The interface of an endpoint is found in a namespace.
    pub(super) fn joins(&mut self, last: u8) {
        self.inside.insert(endpoint_mac(last), last.into());
        self.interface_appears(last.into(), endpoint_mac(last));
    }

    fn holding(&mut self) -> Vec<Attachment> {
        let rows = self.rows().into_iter().filter(|row| row.state == BOUND);
        rows.map(|row| row.attachment).collect()
    }
}

#[test]
fn of_two_endpoints_the_one_without_an_interface_goes() {
    for (inside, left) in [(1, endpoint(1)), (2, endpoint(2))] {
        let mut rig = two_of_one_address();
        rig.joins(inside);
        rig.release(FIRST);
        assert_eq!(rig.holding(), [left]);
        rig.release(FIRST);
        assert_eq!(rig.holding(), []);
    }
    let mut nowhere = two_of_one_address();
    nowhere.release(FIRST);
    // The first has another address by now.
    assert_eq!(nowhere.holding(), [endpoint(2)]);
}
