//! What Docker asks for: pools, reserved addresses, endpoints, and what it gives back.

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;
use leasehold_core::docker::DockerRecord;
use leasehold_core::effect::{
    Add, Call, EndpointAddress, EndpointRequest, NetworkCall, Outcome, PoolCall, PoolRequest,
};
use leasehold_core::grant::policy::Policy;
use leasehold_core::identity::{Attachment, DoorId, Lan};
use leasehold_core::link::own::{LinkOwner, MacvlanMode, OwnLinks};
use leasehold_core::link::{
    ByName, KernelMessage, LinkView, Place, Sighting, Sightings, Sought, Target,
};
use leasehold_core::network::{Mode, NetworkRecord, Wiring};
use leasehold_core::pool::{self, PoolId, PoolRecord};
use leasehold_core::profile::Profile;
use leasehold_core::record::DoorRecord;
use leasehold_core::time::WallTime;
use leasehold_core::wire::Mac;

use super::{Life, netns, view};

impl Life<'_> {
    /// A call about a network, or the end of an endpoint.
    pub(super) fn docker_call(&mut self) -> Call {
        match self.script.u8() % 7 {
            4..=6 => Call::Network(self.network_call()),
            0 => {
                let (subnet, range) = (self.script.flag(), self.script.flag());
                let id = self.pool_id();
                Call::Pool(PoolCall::Request(Box::new(PoolRequest {
                    definition: id.definition,
                    subnet: subnet.then_some(id.subnet),
                    range: id.range.filter(|_| subnet && range),
                    ifname: "br0".to_owned(),
                    mac: mac(9),
                    lan: lan(),
                    profile: self.profile(),
                    timeout: Duration::from_secs(u64::from(self.script.u8() % 8)),
                    unclear: None,
                })))
            }
            1 => Call::Pool(PoolCall::Release { id: self.pool_id() }),
            2 => {
                let address = self.address();
                Call::Pool(PoolCall::Reserve {
                    pool: self.pool_id(),
                    address: self.script.flag().then_some(address),
                })
            }
            _ => Call::Pool(PoolCall::ReleaseAddress {
                pool: self.pool_id(),
                address: self.address(),
            }),
        }
    }

    /// A pool such as a store may hold.
    fn pool(&mut self) -> PoolRecord {
        PoolRecord {
            id: self.pool_id(),
            lan: None,
            gateway: self.script.flag().then_some(Ipv4Addr::new(192, 0, 2, 1)),
            reserved: (0..self.script.u8() % 3).map(|_| self.address()).collect(),
            automatic: self.script.flag(),
            since: WallTime::from_epoch(Duration::from_secs(u64::from(self.script.u32()))),
        }
    }

    pub(super) fn docker_record(&mut self) -> DoorRecord {
        DockerRecord::Pool(self.pool()).kept()
    }

    /// The wanted interfaces, or some of them, anywhere.
    pub(super) fn sightings(&mut self, mut sought: Vec<Sought>) -> Sightings {
        sought.retain(|_| self.script.flag());
        let found = sought.into_iter().map(|sought| {
            let netns = netns(self.script.u8());
            let view = view(&Target::Named(ByName {
                netns: netns.clone(),
                ifname: "eth0".to_owned(),
                host_too: false,
            }));
            Sighting {
                view: LinkView {
                    mac: sought.mac,
                    ..view
                },
                sought,
                netns,
            }
        });
        Sightings {
            found: found.collect(),
            seen: 1,
            whole: self.script.flag(),
            unseen: None,
        }
    }

    /// Ends a change of a link that is made for Docker, or a look at those.
    pub(super) fn own(&mut self, own: Own, well: bool) -> Outcome {
        let result = if well { Ok(()) } else { Err(self.link_cause()) };
        match own {
            Own::Make => Outcome::Made(result),
            Own::Unmake => Outcome::Unmade(result),
            Own::List => Outcome::OwnLinks(result.map(|()| OwnLinks {
                owners: self.owners(),
                strangers: Vec::new(),
            })),
        }
    }

    fn owners(&mut self) -> Vec<LinkOwner> {
        (0..self.script.u8() % 4).map(|_| self.owner()).collect()
    }

    /// The owner of a link that was made for Docker.
    fn owner(&mut self) -> LinkOwner {
        match self.script.u8() % 4 {
            3 => LinkOwner::Vlan {
                on: "br0".to_owned(),
                vlan: u16::from(self.script.u8() % 2) + 1,
            },
            number => LinkOwner::Endpoint(docker_id('e', number)),
        }
    }

    /// News of such a link, or of one that Docker moved.
    pub(super) fn news_for_docker(&mut self) -> KernelMessage {
        match self.script.flag() {
            true => KernelMessage::OwnLink {
                owner: self.owner(),
                there: self.script.flag(),
            },
            false => KernelMessage::Appeared {
                number: 1,
                mac: mac(self.script.u8() % 4),
            },
        }
    }

    /// A call about a network or an endpoint.
    fn network_call(&mut self) -> NetworkCall {
        let network = docker_id('a', self.script.u8() % 2);
        let endpoint = docker_id('e', self.script.u8() % 3);
        match self.script.u8() % 8 {
            0 | 1 => NetworkCall::Create(Box::new(self.network(network))),
            2 => NetworkCall::Delete(network),
            3 => NetworkCall::Find(network),
            4 | 5 => {
                let number = self.script.u8() % 4;
                let address = match self.script.flag() {
                    true => EndpointAddress::Ipam(Ipv4Net::new_assert(self.address(), 24)),
                    false => {
                        let (attachment, add) = (self.endpoint(number), self.add());
                        EndpointAddress::Leased(Box::new(of_docker(Add {
                            attachment,
                            limits: None,
                            ..*add
                        })))
                    }
                };
                let request = EndpointRequest {
                    id: endpoint,
                    network,
                    mac: mac(number),
                    address,
                };
                NetworkCall::CreateEndpoint(Box::new(request))
            }
            6 => NetworkCall::DeleteEndpoint(endpoint),
            _ => NetworkCall::Join {
                network,
                endpoint,
                sandbox: "s".to_owned(),
            },
        }
    }

    fn network(&mut self, id: DoorId) -> NetworkRecord {
        let mode = match self.script.u8() % 3 {
            0 => Mode::Macvlan(MacvlanMode::Bridge),
            1 => Mode::Ipvlan,
            _ => Mode::Bridge,
        };
        let vlan = u16::from(self.script.u8() % 3);
        NetworkRecord {
            id,
            definition: String::new(),
            wiring: Wiring {
                mode,
                on: "br0".to_owned(),
                vlan,
                mtu: None,
            },
            gateway: self.script.flag().then_some(Ipv4Addr::new(192, 0, 2, 1)),
            pool: Ipv4Net::default(),
            leases: self.script.flag(),
            since: WallTime::from_epoch(Duration::ZERO),
        }
    }

    /// An endpoint of one pool or another.
    pub(super) fn endpoint(&mut self, number: u8) -> Attachment {
        Attachment::Docker {
            pool: pool_id(number / 4).to_string().into(),
            endpoint: mac(number % 4).to_string().into(),
        }
    }

    fn pool_id(&mut self) -> PoolId {
        pool_id(self.script.u8())
    }

    /// The address that the server gives first, or any of its subnet.
    fn address(&mut self) -> Ipv4Addr {
        Ipv4Addr::new(192, 0, 2, self.script.u8() % 16)
    }
}

/// Turns an ADD into one that Docker would ask for, if it is for one of its endpoints.
pub(super) fn of_docker(add: Add) -> Add {
    let Attachment::Docker { pool, endpoint } = &add.attachment else {
        return add;
    };
    let number = endpoint.bytes().last().unwrap_or_default() - b'0';
    let place = Place::Parent {
        ifname: "br0".to_owned(),
        mac: mac(number),
    };
    let pool: Option<PoolId> = pool.parse().ok();
    let prefix = pool.as_ref().map(|pool| pool.subnet.prefix_len());
    let policy = Policy {
        prefix,
        suppress_default_route: true,
        follow_router: true,
        ..add.profile.policy
    };
    let profile = Profile {
        policy,
        wants: pool::wants(pool.as_ref()),
        ..add.profile
    };
    Add {
        place,
        lan: lan(),
        chaddr: None,
        limits: pool.map(|pool| pool.limits()),
        profile,
        ..add
    }
}

fn pool_id(number: u8) -> PoolId {
    let net = |last, length| Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 2, last), length);
    match number % 3 {
        0 => PoolId::new("parent=br0", net(0, 24), None),
        1 => PoolId::new("parent=br0", net(0, 24), Some(net(128, 25))),
        _ => PoolId::new("parent=br0,client-id=mac", net(0, 25), None),
    }
}

fn lan() -> Lan {
    Lan::Link {
        parent: "br0".into(),
        vlan: 0,
    }
}

fn mac(number: u8) -> Mac {
    Mac([2, 0x42, 0, 0, 0, number])
}

fn docker_id(kind: char, number: u8) -> DoorId {
    DoorId::try_from(format!("{kind}{number}")).expect("an id")
}

/// What is done with links that are made for Docker.
#[derive(Clone, Copy, Debug)]
pub(super) enum Own {
    /// One is made.
    Make,
    /// One is deleted.
    Unmake,
    /// They are listed.
    List,
}
