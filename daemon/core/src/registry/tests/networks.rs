//! Networks with our driver, and their endpoints: what is kept, which links are made, and that none is left.

use super::rig::*;
use crate::effect::EndpointRequest;
use crate::identity::DoorId;
use crate::link::own::{LinkKind, MacvlanMode};

pub(super) const OWN: Mac = Mac([2, 0x42, 0, 0, 0, 7]);
/// For how long a link that has not been in a container yet may be in the host's namespace, in seconds.
pub(super) const STRAY: f64 = 600.0;
/// The same for one that has come back from there.
const BACK: f64 = 60.0;

pub(super) fn id(text: &str) -> DoorId {
    DoorId::try_from(text.to_owned()).unwrap()
}

pub(super) fn network(name: &str) -> NetworkRecord {
    NetworkRecord {
        id: id(name),
        definition: "parent=br0".into(),
        wiring: Wiring {
            mode: Mode::Macvlan(MacvlanMode::Bridge),
            on: "br0".into(),
            vlan: 0,
            mtu: None,
        },
        gateway: None,
        pool: "0.0.0.0/0".parse().unwrap(),
        leases: false,
        since: WallTime::from_epoch(Duration::ZERO),
    }
}

pub(super) fn in_vlan(name: &str) -> NetworkRecord {
    let network = network(name);
    NetworkRecord {
        wiring: Wiring {
            vlan: 10,
            ..network.wiring
        },
        ..network
    }
}

pub(super) fn vlan() -> LinkOwner {
    LinkOwner::Vlan {
        on: "br0".into(),
        vlan: 10,
    }
}

pub(super) fn endpoint() -> LinkOwner {
    LinkOwner::Endpoint(id("e1"))
}

impl Rig {
    pub(super) fn network_call(&mut self, call: NetworkCall) -> u64 {
        self.request(Call::Network(call))
    }

    pub(super) fn create(&mut self, record: NetworkRecord) -> u64 {
        self.network_call(NetworkCall::Create(Box::new(record)))
    }

    /// Asks for an endpoint with a lease.
    pub(super) fn create_endpoint(&mut self, name: &str, mac: Mac) -> u64 {
        let add = self.endpoint_add(mac);
        self.endpoint_with(name, mac, add)
    }

    /// Returns the ADD of an endpoint.
    pub(super) fn endpoint_add(&self, mac: Mac) -> Box<crate::effect::Add> {
        let attachment = Attachment::Docker {
            pool: "network n1".into(),
            endpoint: mac.to_string().into(),
        };
        let mut add = self.docker_call(attachment, "docker");
        add.place = Place::Parent {
            ifname: "br0".into(),
            mac,
        };
        add.client_id = ClientIdRule::Bytes(ClientId::ethernet(mac));
        add
    }

    /// Asks for an endpoint with a lease that this ADD gets.
    pub(super) fn endpoint_with(
        &mut self,
        name: &str,
        mac: Mac,
        add: Box<crate::effect::Add>,
    ) -> u64 {
        self.endpoint_in("n1", name, mac, EndpointAddress::Leased(add))
    }

    /// Asks for an endpoint with an address that Docker has already.
    pub(super) fn endpoint_at(&mut self, name: &str, mac: Mac, address: &str) -> u64 {
        let address = EndpointAddress::Ipam(address.parse().unwrap());
        self.endpoint_in("n1", name, mac, address)
    }

    /// Asks for an endpoint of a network.
    pub(super) fn endpoint_in(
        &mut self,
        network: &str,
        name: &str,
        mac: Mac,
        address: EndpointAddress,
    ) -> u64 {
        let request = EndpointRequest {
            id: id(name),
            network: id(network),
            mac,
            address,
        };
        self.network_call(NetworkCall::CreateEndpoint(Box::new(request)))
    }

    pub(super) fn delete_endpoint(&mut self, name: &str) -> u64 {
        self.network_call(NetworkCall::DeleteEndpoint(id(name)))
    }

    pub(super) fn delete_network(&mut self, name: &str) -> u64 {
        self.network_call(NetworkCall::Delete(id(name)))
    }

    /// A container joins the network `n1`.
    pub(super) fn join(&mut self, name: &str) -> Answer {
        self.join_from("n1", name, "")
    }

    /// A container with this sandbox joins a network.
    pub(super) fn join_from(&mut self, network: &str, name: &str, sandbox: &str) -> Answer {
        let join = self.network_call(NetworkCall::Join {
            network: id(network),
            endpoint: id(name),
            sandbox: sandbox.to_owned(),
        });
        self.answers[&join].clone()
    }

    /// Docker moves the endpoint's link into its container.
    pub(super) fn moves_in(&mut self) {
        self.inside.insert(OWN, 1);
        self.link_leaves(&endpoint());
        self.interface_appears(1, OWN);
    }

    /// No link is left, and no endpoint.
    pub(super) fn has_no_endpoint(&self) -> bool {
        self.wired.links.is_empty() && self.store.docker.endpoints.is_empty()
    }

    pub(super) fn is_done(&self, id: u64) -> bool {
        self.answers.get(&id) == Some(&Answer::Network(NetworkAnswer::Done))
    }

    pub(super) fn fault(&self, id: u64) -> &NetworkFault {
        match self.failure(id) {
            Failure::Network(fault) => fault,
            failure => panic!("{failure:?}"),
        }
    }

    pub(super) fn link_of(&self, owner: &LinkOwner) -> Option<&OwnLink> {
        self.wired.links.get(owner)
    }
}

/// A network.
pub(super) fn with_network() -> Rig {
    let mut rig = Rig::new(8);
    let create = rig.create(network("n1"));
    assert!(rig.is_done(create), "{:?}", rig.answers);
    rig
}

/// A network with an endpoint.
pub(super) fn with_endpoint() -> Rig {
    let mut rig = with_network();
    let create = rig.create_endpoint("e1", OWN);
    let Answer::Network(NetworkAnswer::Endpoint(record)) = &rig.answers[&create] else {
        panic!("{:?}", rig.answers)
    };
    let found = (record.mac, record.address.to_string());
    assert_eq!(found, (OWN, A.to_owned()));
    rig
}

#[test]
fn a_network_is_kept_and_found_again_by_the_next_daemon() {
    let mut rig = with_network();
    let mut kept = network("n1");
    kept.since = rig.now().wall;
    assert_eq!(rig.store.docker.networks[&id("n1")], kept);
    rig.run_for(100.0);
    for restarts in [false, true] {
        if restarts {
            rig.restart();
        }
        let find = rig.network_call(NetworkCall::Find(id("n1")));
        let found = Answer::Network(NetworkAnswer::Found(Box::new(kept.clone())));
        assert_eq!(rig.answers[&find], found);
        let again = rig.create(network("n1"));
        assert!(rig.is_done(again), "the same again");
        let other = rig.create(NetworkRecord {
            definition: "parent=br0,mtu=1400".into(),
            ..network("n1")
        });
        assert_eq!(*rig.fault(other), NetworkFault::Differs(id("n1")));
    }
    for _ in 0..2 {
        let delete = rig.delete_network("n1");
        assert!(rig.is_done(delete) && rig.store.docker.networks.is_empty());
    }
    let find = rig.network_call(NetworkCall::Find(id("n1")));
    assert_eq!(*rig.fault(find), NetworkFault::Unknown(id("n1")));
}

#[test]
fn a_network_on_an_unfit_host_link_is_refused() {
    let mut rig = Rig::new(8);
    let wanting = |mode| NetworkRecord {
        wiring: Wiring {
            mode,
            ..network("n1").wiring
        },
        ..network("n1")
    };
    let bridge = rig.create(wanting(Mode::Bridge));
    let unfit = |rig: &Rig, create| match rig.fault(create) {
        NetworkFault::BadLink { option, .. } => *option,
        fault => panic!("{fault:?}"),
    };
    assert_eq!(unfit(&rig, bridge), "bridge");
    rig.wired.wireless = true;
    let macvlan = rig.create(wanting(Mode::Macvlan(MacvlanMode::Bridge)));
    assert_eq!(unfit(&rig, macvlan), "parent");
    let ipvlan = rig.create(wanting(Mode::Ipvlan));
    assert!(rig.is_done(ipvlan), "all have its Ethernet address");
    rig.delete_network("n1");
    rig.blind = Some(LinkCause::NoLink("br0".into()));
    let missing = rig.create(wanting(Mode::Ipvlan));
    assert!(
        rig.failure(missing)
            .to_string()
            .starts_with("-o parent=br0: "),
        "{:?}",
        rig.answers
    );
    assert!(rig.store.docker.networks.is_empty());
}

#[test]
fn a_vlan_link_lives_as_long_as_its_networks() {
    let mut rig = Rig::new(8);
    for name in ["n1", "n2"] {
        let create = rig.create(in_vlan(name));
        assert!(rig.is_done(create));
        assert_eq!(
            rig.link_of(&vlan())
                .map(|link| (link.kind, link.on.as_str())),
            Some((LinkKind::Vlan(10), "br0"))
        );
    }
    rig.delete_network("n1");
    assert!(rig.link_of(&vlan()).is_some());
    rig.wired.hold = true;
    let delete = rig.delete_network("n2");
    assert!(!rig.is_done(delete), "its link is still to go");
    rig.end_link_ops();
    assert!(rig.is_done(delete) && rig.link_of(&vlan()).is_none());
}

#[test]
fn an_endpoint_has_a_stored_lease_before_its_link() {
    let mut rig = with_network();
    rig.disk = Disk::Slow;
    let create = rig.create_endpoint("e1", OWN);
    // The lease is not written.
    assert!(rig.link_of(&endpoint()).is_none());
    rig.flush();
    let link = rig.link_of(&endpoint()).cloned().expect("its link");
    // The endpoint is not written.
    assert!(!rig.answers.contains_key(&create));
    rig.flush();
    assert_eq!(
        (link.kind, link.on.as_str(), link.mac),
        (LinkKind::Macvlan(MacvlanMode::Bridge), "br0", Some(OWN))
    );
    assert!(matches!(
        rig.answers[&create],
        Answer::Network(NetworkAnswer::Endpoint(_))
    ));
    let again = rig.create_endpoint("e1", OWN);
    assert_eq!(
        rig.answers[&again], rig.answers[&create],
        "dockerd asks again"
    );
    assert_eq!((rig.sends(1), rig.wired.links.len()), (1, 1));
}

#[test]
fn an_endpoint_of_an_unknown_network_is_refused() {
    let mut rig = Rig::new(8);
    let create = rig.create_endpoint("e1", OWN);
    assert_eq!(*rig.fault(create), NetworkFault::Unknown(id("n1")));
    assert!(rig.failure(create).to_string().contains("create it again"));
    let delete = rig.delete_endpoint("e1");
    assert!(rig.is_done(delete) && rig.sent.is_empty());
}

#[test]
fn an_endpoint_with_an_address_gets_its_lease_and_a_link() {
    let mut rig = with_network();
    for (name, address, leased) in [("e1", A, true), ("e2", "192.0.2.99/24", false)] {
        let last = OWN.0[5];
        if leased {
            rig.endpoint(last);
        }
        let create = rig.endpoint_at(name, OWN, address);
        let Answer::Network(NetworkAnswer::Endpoint(record)) = &rig.answers[&create] else {
            panic!()
        };
        assert_eq!(record.source, AddressSource::Ipam);
        let Answer::Network(NetworkAnswer::Joined { grant, .. }) = rig.join(name) else {
            panic!()
        };
        assert_eq!(grant.is_some(), leased, "{name}");
    }
    // An address of another IPAM driver needs no DHCP.
    assert_eq!(rig.sends(1), 1);
    rig.delete_endpoint("e1");
    rig.run_until(10.0);
    // Docker gives that back itself.
    assert_eq!((rig.rows().len(), rig.sends(7)), (1, 0));
}

#[test]
fn an_endpoints_end_is_answered_once_its_link_is_gone() {
    let mut rig = with_endpoint();
    rig.wired.hold = true;
    let delete = rig.delete_endpoint("e1");
    assert!(!rig.answers.contains_key(&delete));
    let create = rig.create_endpoint("e1", OWN);
    assert_eq!(*rig.fault(create), NetworkFault::Ends(id("e1")));
    rig.end_link_ops();
    assert!(rig.is_done(delete) && rig.has_no_endpoint());
    let again = rig.delete_endpoint("e1");
    rig.run_until(10.0);
    assert!(rig.is_done(again) && rig.sends(7) == 1 && rig.store.records().is_empty());
}

#[test]
fn a_link_left_on_the_host_goes_after_ten_minutes() {
    for restarts in [false, true] {
        let mut rig = with_endpoint();
        let mut from = rig.at.as_secs_f64();
        if restarts {
            rig.run_until(from + 50.0);
            from = rig.at.as_secs_f64();
            rig.restart();
        }
        rig.run_until(from + STRAY - 0.1);
        assert!(rig.link_of(&endpoint()).is_some(), "{restarts}");
        rig.run_until(from + STRAY + 0.1);
        assert!(rig.has_no_endpoint(), "{restarts}");
        rig.run_until(from + STRAY + 10.0);
        let found = (rig.sends(7), rig.store.records().len());
        assert_eq!(found, (1, 0), "{restarts}");
    }
}

#[test]
fn a_link_back_from_a_container_goes_after_a_minute() {
    let mut rig = with_endpoint();
    rig.inside.insert(OWN, 1);
    let link = rig.link_of(&endpoint()).cloned().unwrap();
    rig.link_leaves(&endpoint());
    rig.interface_appears(1, OWN);
    rig.run_until(200.0);
    assert_eq!(rig.store.docker.endpoints.len(), 1);
    rig.inside.remove(&OWN);
    rig.kernel(KernelMessage::LinkGone((Cookie(1), 2)));
    let back = rig.at.as_secs_f64();
    rig.link_returns(link);
    rig.run_until(back + BACK - 0.1);
    assert!(rig.link_of(&endpoint()).is_some());
    rig.run_until(back + BACK + 0.1);
    assert!(rig.has_no_endpoint());
}

#[test]
fn a_link_without_an_endpoint_goes_at_once() {
    let mut rig = with_endpoint();
    let mut stranger = rig.link_of(&endpoint()).cloned().unwrap();
    stranger.owner = LinkOwner::Endpoint(id("e9"));
    rig.link_returns(stranger.clone());
    assert!(rig.link_of(&stranger.owner).is_none(), "as it is heard of");
    rig.wired
        .links
        .insert(stranger.owner.clone(), stranger.clone());
    rig.restart();
    assert!(
        rig.link_of(&stranger.owner).is_none() && rig.link_of(&endpoint()).is_some(),
        "at the start"
    );
    rig.wired.refuses = Some(LinkCause::TimedOut);
    let delete = rig.delete_endpoint("e1");
    assert_fails!(rig, delete, Failure::Link { .. });
    assert_eq!(rig.wired.links.len(), 1);
    rig.wired.refuses = None;
    rig.run_for(BACK + 0.1);
    assert!(rig.has_no_endpoint());
}

#[test]
fn links_of_another_store_are_listed_until_deleted() {
    let mut rig = Rig::new(8);
    let left = |rig: &mut Rig| {
        rig.run_for(10.0);
        let list = rig.request(Call::List);
        let Some(Answer::Bindings { strangers, .. }) = rig.answers.remove(&list) else {
            panic!()
        };
        strangers
    };
    assert!(left(&mut rig).is_empty());
    rig.wired.strangers = vec!["lh0123".into()];
    rig.restart();
    assert_eq!(left(&mut rig), ["lh0123"]);
    rig.wired.strangers.clear();
    assert_eq!(left(&mut rig), ["lh0123"], "as it was known");
    assert!(left(&mut rig).is_empty(), "it was looked at since");
    rig.wired.strangers.push("lh4567".into());
    // It has come since, and none was there.
    assert!(left(&mut rig).is_empty());
    assert_eq!(left(&mut rig), ["lh4567"]);
    rig.wired.strangers.push("lh89ab".into());
    rig.delete_endpoint("e7");
    // Docker has ended an endpoint that the lost store had.
    assert_eq!(left(&mut rig), ["lh4567", "lh89ab"]);
}

/// The daemon was killed before it had made the endpoint's link, while it made it, or when it had deleted it.
#[test]
fn an_endpoint_without_a_link_goes_after_a_restart() {
    for is_inside in [false, true] {
        let mut rig = with_endpoint();
        rig.wired.links.remove(&endpoint());
        rig.wired.unnamed.extend((!is_inside).then(endpoint));
        rig.restart();
        if is_inside {
            rig.inside.insert(OWN, 1);
        }
        rig.run_for(59.0);
        assert_eq!((rig.store.docker.endpoints.len(), rig.sends(7)), (1, 0));
        rig.run_for(3.0);
        let left = usize::from(is_inside);
        assert_eq!(rig.endpoint_ends(), [left, left, 1 - left], "{is_inside}");
        // One that was half made is gone too.
        assert!(rig.wired.unnamed.is_empty());
    }
}

#[test]
fn an_address_without_an_endpoint_is_given_up_in_time() {
    // Docker's own drivers refuse a pool of all addresses, and ours is asked for an endpoint at once.
    for (pool, until) in [
        ("0.0.0.0/0;;grace=0", 1060.0),
        ("192.0.2.0/24;;parent=br0", 1600.0),
    ] {
        let mut rig = Rig::new(8);
        rig.lease = 10_000;
        let attachment = Attachment::Docker {
            pool: pool.into(),
            endpoint: OWN.to_string().into(),
        };
        let mut add = rig.docker_call(attachment, "a");
        add.place = Place::Parent {
            ifname: "br0".into(),
            mac: OWN,
        };
        rig.request(Call::Add(add));
        rig.run_until(until - 0.1);
        assert_eq!((rig.rows().len(), rig.sends(7)), (1, 0), "{pool}");
        rig.run_until(until + 0.1);
        let orphans = rig.told(EventKind::OrphanFound);
        assert_eq!((rig.sends(7), orphans), (1, 1), "{pool}");
    }
}

#[test]
fn an_endpoint_without_an_offer_leaves_nothing_behind() {
    let mut rig = with_network();
    rig.server = Server::Silent;
    let create = rig.create_endpoint("e1", OWN);
    rig.run_for(120.0);
    assert_fails!(rig, create, Failure::NoOffer { .. });
    assert!(
        rig.wired.links.is_empty()
            && rig.store.docker.endpoints.is_empty()
            && rig.rows().is_empty()
    );
}
