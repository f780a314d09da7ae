//! Records such as a store may hold.

use std::net::Ipv4Addr;
use std::time::Duration;

use leasehold_core::grant::policy::Policy;
use leasehold_core::identity::{Identity, Lan};
use leasehold_core::link::{Cookie, Link};
use leasehold_core::record::{Former, Record, RecordState};
use leasehold_core::source::{Lease, lease::LeaseTimes};
use leasehold_core::time::{BootId, Instant, WallTime};
use leasehold_core::wire::Mac;

use super::{Life, client_id, netns};

impl Life<'_> {
    /// A record such as a store may hold, of this boot or another, valid or not.
    pub(super) fn record(&mut self) -> Record {
        let attachment = self.attachment();
        let mac = Mac([2, 0, 0, 0, 1, self.script.u8() % 3]);
        let link = match self.script.flag() {
            true => {
                let netns_of = self.script.u8() % 3;
                Link::InNetns {
                    path: netns(netns_of),
                    cookie: Cookie(netns_of.into()),
                    ifindex: 2,
                    mac,
                }
            }
            false => Link::Parent {
                ifindex: 3,
                mac,
                vlan: self.script.u8().into(),
                port: self.script.flag(),
            },
        };
        let [t1, t2, end] = [(); 3].map(|()| self.script.duration());
        // Drawn in the corpus's order.
        let address = self.net();
        let server = self
            .script
            .one(&[Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 1)]);
        let start = Instant::from_boot(self.script.duration());
        let times = self.script.flag().then_some(LeaseTimes { t1, t2, end });
        let server_mac = Mac([2, 0, 0, 0, 0, 1]);
        let lease = Lease {
            server,
            server_mac,
            times,
            ..Lease::unknown(address, start)
        };
        let former = self.script.flag().then(|| {
            let other = Lease {
                address: self.net(),
                ..lease.clone()
            };
            Box::new(Former {
                grants: vec![
                    other.grant(&Policy::default());
                    usize::from(address.addr().octets()[3] % 2)
                ],
                bare: self.script.flag(),
                taken: self.script.flag(),
                mtu_due: address.addr().octets()[3] % 2 == 1,
                routes_due: address.addr().octets()[3] % 4 > 1,
                router: (address.addr().octets()[3] % 8 > 5).then_some(address.addr().into()),
            })
        });
        Record {
            attachment,
            identity: Identity {
                lan: Lan::Link {
                    parent: "br0".into(),
                    vlan: 0,
                },
                client_id: client_id(self.script.u8() % 3),
                chaddr: mac,
            },
            profile: self.profile(),
            link,
            lease,
            state: self.script.one(&[
                RecordState::Bound,
                RecordState::Seeking,
                RecordState::Releasing,
            ]),
            boot: BootId(self.script.one(&["now", "before"]).to_owned()),
            since: WallTime::from_epoch(Duration::from_secs(u64::from(self.script.u32()))),
            kept: (address.addr().octets()[2] % 2 == 1).then_some(t1),
            former,
            taken_off: address.addr().octets()[1] % 2 == 1,
            unconfirmed: address.addr().octets()[1] % 3 == 1,
            elsewhere: address.addr().octets()[1] % 4 == 2,
            told: (address.addr().octets()[1] % 4 > 1).then_some(address),
        }
    }
}
