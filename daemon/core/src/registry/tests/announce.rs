//! An address that the daemon puts on is announced, whatever is looked for besides.

use std::net::Ipv4Addr;

use super::super::*;
use super::rig::*;
use crate::dhcpv4::profile::{Detection, Profile};
use crate::link::KernelEvent;
use crate::wire::Mac;
use crate::wire::frame::Arp;

const A: &str = "192.0.2.50/24";
const OTHER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);

/// The lease is about to be renewed with another address.
fn changing(detection: Detection) -> Rig {
    let mut rig = Rig::new(8);
    rig.profile = Profile { detection, ..Profile::default() };
    rig.lease = 4000;
    rig.bind_slowly();
    rig.run_until(2999.0);
    rig.give = OTHER;
    rig.asked.clear();
    rig
}

impl Rig {
    /// The kernel tells of the address that was put on; returns how often it is announced, and probed for, in ten seconds.
    fn appeared(&mut self) -> (usize, usize) {
        assert_eq!(self.on_link(), ["192.0.2.77/24"]);
        let appeared = KernelEvent::AddressAdded { cookie: Cookie(1), ifindex: 2, address: OTHER };
        self.input(Input::Kernel(appeared));
        self.run_until(self.at.as_secs_f64() + 15.0);
        assert!(self.open.is_empty(), "{:?}", self.open);
        let count = |arp| self.asked.iter().filter(|asked| **asked == arp).count();
        (count((OTHER, OTHER)), count((Ipv4Addr::UNSPECIFIED, OTHER)))
    }
}

#[test]
fn a_changed_address_is_announced_twice_whatever_the_detection() {
    for (detection, probes) in [(Detection::Optimistic, 3), (Detection::Off, 0)] {
        let mut rig = changing(detection);
        rig.run_until(3000.5);
        assert_eq!(rig.appeared(), (2, probes), "{detection:?}");
    }
}

#[test]
fn a_changed_address_that_waited_for_room_is_announced_when_it_is_put_on() {
    for detection in [Detection::Optimistic, Detection::Off, Detection::Strict] {
        let mut rig = changing(detection);
        rig.disk = Disk::Full;
        rig.run_until(3060.0);
        assert_eq!(rig.on_link(), [A]);
        rig.asked.clear();
        rig.disk = Disk::Good;
        while rig.on_link() == [A] {
            rig.run_until(rig.at.as_secs_f64() + 0.1);
        }
        assert_eq!(rig.appeared(), (2, 0), "{detection:?}");
    }
}

#[test]
fn without_detection_nobody_is_listened_to_meanwhile() {
    let mut rig = changing(Detection::Off);
    rig.run_until(3000.5);
    let claim = Arp::request(Mac([2, 0, 0, 0, 9, 9]), OTHER, OTHER);
    (0..3).for_each(|_| rig.hear(&claim));
    assert_eq!((rig.state("a"), rig.appeared()), (vec!["BOUND"], (2, 0)));
}
