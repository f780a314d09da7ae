//! What Docker asks for: pools, reserved addresses, endpoints, and what comes back of them.

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;
use leasehold_core::effect::{Add, Call, PoolRequest};
use leasehold_core::identity::{Attachment, Lan};
use leasehold_core::link::Place;
use leasehold_core::pool::{PoolId, PoolRecord};
use leasehold_core::time::WallTime;
use leasehold_core::wire::Mac;

use super::Life;

impl Life<'_> {
    /// A call of a network's, or the end of an endpoint.
    pub(super) fn docker_call(&mut self) -> Call {
        match self.script.u8() % 4 {
            0 => {
                let (subnet, range) = (self.script.flag(), self.script.flag());
                let id = self.pool_id();
                Call::RequestPool(Box::new(PoolRequest {
                    definition: id.definition,
                    subnet: subnet.then_some(id.subnet),
                    range: id.range.filter(|_| subnet && range),
                    place: Place::Parent { ifname: "br0".to_owned(), mac: mac(9) },
                    lan: lan(),
                    profile: self.profile(),
                    timeout: Duration::from_secs(u64::from(self.script.u8() % 8)),
                }))
            }
            1 => Call::ReleasePool { id: self.pool_id() },
            2 => {
                let address = self.address();
                Call::Reserve { pool: self.pool_id(), address: self.script.flag().then_some(address) }
            }
            _ => Call::ReleaseAddress { pool: self.pool_id(), address: self.address() },
        }
    }

    /// A pool such as a store may hold.
    pub(super) fn pool(&mut self) -> PoolRecord {
        PoolRecord {
            id: self.pool_id(),
            gateway: self.script.flag().then_some(Ipv4Addr::new(192, 0, 2, 1)),
            reserved: (0..self.script.u8() % 3).map(|_| self.address()).collect(),
            automatic: self.script.flag(),
            since: WallTime::from_epoch(Duration::from_secs(u64::from(self.script.u32()))),
        }
    }

    /// An endpoint of one pool or another.
    pub(super) fn endpoint(&mut self, number: u8) -> Attachment {
        Attachment::Docker { pool: pool_id(number / 4).to_string(), endpoint: mac(number % 4).to_string() }
    }

    fn pool_id(&mut self) -> PoolId {
        pool_id(self.script.u8())
    }

    /// One that the server gives first, or any of its subnet.
    fn address(&mut self) -> Ipv4Addr {
        Ipv4Addr::new(192, 0, 2, self.script.u8() % 16)
    }
}

/// Makes of an ADD what Docker would ask for, if it is for one of its endpoints.
pub(super) fn of_docker(add: Add) -> Add {
    let Attachment::Docker { pool, endpoint } = &add.attachment else { return add };
    let number = endpoint.bytes().last().unwrap_or_default() - b'0';
    let place = Place::Parent { ifname: "br0".to_owned(), mac: mac(number) };
    let pool: Option<PoolId> = pool.parse().ok();
    let prefix = pool.as_ref().map(|pool| pool.subnet.prefix_len());
    let profile = leasehold_core::dhcpv4::profile::Profile { prefix, suppress_default_route: true, ..add.profile };
    Add { place, lan: lan(), chaddr: None, pool, profile, ..add }
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
    Lan::Link { parent: "br0".to_owned(), vlan: 0 }
}

fn mac(number: u8) -> Mac {
    Mac([2, 0x42, 0, 0, 0, number])
}
