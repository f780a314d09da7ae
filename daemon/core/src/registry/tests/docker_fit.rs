//! Which addresses a Docker endpoint may have: those of its pool that are not reserved, and the one of `--ip`.

use super::docker::*;
use super::rig::*;

const NEXT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 150);

/// A pool whose range is the upper half.
fn upper_half() -> PoolId {
    PoolId {
        range: Some("192.0.2.128/25".parse().unwrap()),
        ..pool()
    }
}

fn elsewhere() -> PoolId {
    PoolId::new("parent=br0", "198.51.100.0/24".parse().unwrap(), None)
}

impl Rig {
    /// Asks for an address of a pool, for an endpoint.
    fn endpoint_of(&mut self, pool: &PoolId, wanted: Option<Wanted>) -> u64 {
        let mut add = self.endpoint_call(1);
        add.attachment = Attachment::Docker {
            pool: pool.to_string().into(),
            endpoint: endpoint_mac(1).to_string().into(),
        };
        (add.limits, add.wanted) = (Some(pool.limits()), wanted);
        self.request(Call::Add(add))
    }
}

#[test]
fn an_offer_that_is_none_of_the_pool_is_not_asked_for() {
    for (id, part) in [
        (upper_half(), "--ip-range 192.0.2.128/25"),
        (elsewhere(), "subnet 198.51.100.0/24"),
    ] {
        let mut rig = Rig::new(8);
        let add = rig.endpoint_of(&id, None);
        rig.run_until(1010.0);
        let failure = rig.failure(add);
        assert!(
            matches!(
                failure,
                Failure::Unfit {
                    server: Some(SERVER),
                    address: FIRST,
                    ..
                }
            ),
            "{failure}"
        );
        let text = failure.to_string();
        assert!(text.contains("192.0.2.50") && text.contains(part), "{text}");
        assert_eq!(rig.kinds(), [1; 3]);
        rig.assert_nothing_is_left();
    }
}

#[test]
fn what_was_granted_without_an_offer_goes_back_at_once() {
    let mut rig = Rig::new(8);
    (rig.server, rig.options) = (Server::Commits, vec![80, 0]);
    Arc::make_mut(&mut rig.profile.client).rapid_commit = true;
    let add = rig.endpoint_of(&upper_half(), None);
    assert_fails!(rig, add, Failure::Unfit { address: FIRST, .. });
    assert_eq!(rig.sent, [(1, ANY), (7, FIRST)]);
    assert!(rig.store.records().is_empty() && rig.rows().is_empty());
}

#[test]
fn an_address_that_is_asked_for_must_be_of_the_pool() {
    let wanted = Wanted {
        address: FIRST,
        preferred: false,
    };
    let mut rig = Rig::new(8);
    let add = rig.endpoint_of(&upper_half(), Some(wanted));
    assert_fails!(
        rig,
        add,
        Failure::Unfit {
            server: None,
            address: FIRST,
            ..
        }
    );
    assert!(rig.sent.is_empty());
    rig.give = NEXT;
    let preferred = rig.endpoint_of(
        &upper_half(),
        Some(Wanted {
            preferred: true,
            ..wanted
        }),
    );
    assert_eq!(rig.leased(preferred), NEXT);
    assert_eq!(rig.wished, None);
}

#[test]
fn an_error_names_the_offered_and_the_wanted_address() {
    let mut rig = Rig::new(8);
    let add = rig.endpoint_of(
        &pool(),
        Some(Wanted {
            address: NEXT,
            preferred: false,
        }),
    );
    rig.run_until(1004.9);
    // Another server may have it.
    assert!(!rig.answers.contains_key(&add));
    rig.run_until(1005.0);
    let found = rig.failure(add).to_string();
    assert_eq!(found, "192.0.2.1 offered 192.0.2.50 instead of 192.0.2.150");
    assert_eq!(rig.sends(3), 0);
}

#[test]
fn no_other_address_replaces_a_kept_one_asked_for() {
    let mut rig = Rig::new(8);
    rig.profile.grace = Some(60);
    rig.endpoint(1);
    rig.release(FIRST);
    rig.give = NEXT;
    rig.granted.clear();
    rig.server = Server::OffersOnly;
    let again = rig.endpoint_of(
        &pool(),
        Some(Wanted {
            address: FIRST,
            preferred: false,
        }),
    );
    rig.run_until(1005.0);
    rig.server = Server::Up;
    rig.run_until(1031.0);
    let said = rig.failure(again).to_string();
    assert_eq!(said, "192.0.2.1 offered 192.0.2.150 instead of 192.0.2.50");
}

#[test]
fn a_kept_lease_is_not_asked_for_once_it_is_reserved() {
    let mut rig = Rig::new(8);
    rig.profile.grace = Some(60);
    rig.endpoint(1);
    rig.release(FIRST);
    rig.reserve(Some(FIRST));
    (rig.give, rig.by_chaddr) = (NEXT, true);
    rig.granted.clear();
    rig.sent.clear();
    let again = rig.endpoint(1);
    assert_eq!(rig.leased(again), NEXT);
    assert_eq!((rig.sent[0].0, rig.wished), (1, None));
}

#[test]
fn a_repeated_request_is_told_no_address_beyond_its_pool() {
    let mut rig = Rig::new(8);
    rig.give = NEXT;
    rig.endpoint_of(&upper_half(), None);
    let t1 = rig.t1();
    rig.give = FIRST;
    rig.granted.clear();
    rig.server = Server::NaksOnly;
    rig.run_until(t1 + 1.0);
    rig.server = Server::Up;
    rig.run_until(t1 + 40.0);
    let again = rig.endpoint_of(&upper_half(), None);
    assert_fails!(rig, again, Failure::Unfit { address: FIRST, .. });
    assert_eq!(rig.rows().len(), 1);
}

#[test]
fn what_an_add_has_got_cannot_be_reserved() {
    let mut rig = Rig::new(8);
    rig.profile.policy.detection = Detection::Strict;
    let add = rig.endpoint(1);
    rig.run_until(1000.5);
    let reserved = rig.reserve(Some(FIRST));
    assert_fails!(
        rig,
        reserved,
        Failure::Pool(PoolFault::Leased { address: FIRST, .. })
    );
    rig.run_until(1010.0);
    rig.assert_leased(add);
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
    let found = (*address, holder);
    assert_eq!(found, (FIRST, &AddressHolder::Host("eth0".into())));
    // No REQUEST, no DECLINE, no RELEASE.
    assert_eq!([3, 4, 7].map(|kind| rig.sends(kind)), [0, 0, 0]);
    // In a VLAN of that link the number is another's.
    let mut tagged = rig.endpoint_call(2);
    tagged.lan = lan_on("br0", 10);
    let tagged = rig.request(Call::Add(tagged));
    assert_eq!(rig.leased(tagged), FIRST);
}
