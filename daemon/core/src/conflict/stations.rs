//! Does any station have an address? To be asked before it is given back for a client that may live on another host by now.
//!
//! A router that does proxy ARP answers for all that it has a route to. It is told from a station by an address that nobody
//! can have (RFC 5737), which is asked for beside: who answers for that too has neither.

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;

use crate::time::Instant;
use crate::wire::Mac;
use crate::wire::frame::Arp;

/// How often is asked.
const TRIES: u32 = 3;

/// From one question to the next, and from the last to the end.
const INTERVAL: Duration = Duration::from_millis(200);

/// Stations that are told apart, at most.
const MOST: usize = 8;

/// One address that is asked for.
#[derive(Clone, Debug)]
pub struct Question {
    from: Mac,
    address: Ipv4Addr,
    control: Ipv4Addr,
    but: Option<Mac>,
    asked: u32,
    next: Instant,
    has_it: Vec<Mac>,
    has_all: Vec<Mac>,
}

/// What a question wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Send these frames, then wait.
    Ask(Vec<Vec<u8>>),
    /// Wait until the deadline, or for an ARP packet.
    Wait,
    /// It is over.
    Over {
        /// The Ethernet address of a station that has the address.
        by: Option<Mac>,
    },
}

impl Question {
    /// Asks who has an address, from the Ethernet address `from`. That is to be nobody's, not even the client's own: a station
    /// on another host that has the client's would take the question for its own. An answer of `but` is none.
    pub fn new(address: Ipv4Net, from: Mac, but: Option<Mac>, now: Instant) -> Self {
        let (control, address) = (control(address), address.addr());
        Self { from, address, control, but, asked: 0, next: now, has_it: Vec::new(), has_all: Vec::new() }
    }

    /// Goes on as the clock says.
    pub fn on_clock(&mut self, now: Instant) -> Turn {
        if now < self.next {
            return Turn::Wait;
        }
        if self.asked == TRIES {
            return Turn::Over { by: self.has_it.iter().find(|mac| !self.has_all.contains(mac)).copied() };
        }
        self.asked += 1;
        self.next = now + INTERVAL;
        let ask = |target| Arp::request(self.from, Ipv4Addr::UNSPECIFIED, target).encode();
        Turn::Ask(vec![ask(self.address), ask(self.control)])
    }

    /// Takes an ARP packet in.
    pub fn on_arp(&mut self, arp: &Arp) {
        let by = arp.sender_mac;
        let somebody = by.0[0] & 1 == 0 && by != Mac::default() && by != self.from && Some(by) != self.but;
        let heard = match arp.sender {
            sender if sender == self.address => &mut self.has_it,
            sender if sender == self.control => &mut self.has_all,
            _ => return,
        };
        if somebody && heard.len() < MOST && !heard.contains(&by) {
            heard.push(by);
        }
    }

    /// Returns when the clock next matters.
    pub fn deadline(&self) -> Instant {
        self.next
    }
}

/// Returns an address that nobody can have (RFC 5737), outside of the subnet of another.
pub fn control(beside: Ipv4Net) -> Ipv4Addr {
    let nets = [[203, 0, 113, 253], [198, 51, 100, 253], [192, 0, 2, 253]].map(Ipv4Addr::from);
    nets.into_iter().find(|address| !beside.contains(address)).unwrap_or(nets[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTER: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const STATION: Mac = Mac([2, 0, 0, 0, 0, 2]);
    const OWN: Mac = Mac([2, 0, 0, 0, 0, 3]);
    const FROM: Mac = Mac([0x42, 0, 0, 0, 0, 3]);

    /// Who answered for the address when these have answered for it, and those for the control.
    fn over(has_it: &[Mac], has_all: &[Mac], but: Option<Mac>) -> Option<Mac> {
        let at = |millis| Instant::from_boot(Duration::from_millis(millis));
        let mut question = Question::new("192.0.2.50/24".parse().unwrap(), FROM, but, at(0));
        let claim = |mac: &Mac, address: [u8; 4]| Arp::request(*mac, address.into(), Ipv4Addr::UNSPECIFIED);
        for millis in [0, 200, 400] {
            assert!(matches!(question.on_clock(at(millis)), Turn::Ask(frames) if frames.len() == 2));
            assert_eq!(question.on_clock(at(millis + 199)), Turn::Wait);
            has_it.iter().for_each(|mac| question.on_arp(&claim(mac, [192, 0, 2, 50])));
            has_all.iter().for_each(|mac| question.on_arp(&claim(mac, [203, 0, 113, 253])));
            question.on_arp(&claim(&STATION, [192, 0, 2, 51]));
        }
        match question.on_clock(question.deadline()) {
            Turn::Over { by } => by,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_station_has_the_address_and_a_router_that_answers_for_all_has_not() {
        for (has_it, has_all, but, by) in [
            (&[][..], &[][..], None, None),
            (&[STATION], &[], None, Some(STATION)),
            (&[ROUTER], &[ROUTER], None, None),
            (&[ROUTER, STATION], &[ROUTER], None, Some(STATION)),
            (&[OWN], &[], None, Some(OWN)),
            (&[OWN], &[], Some(OWN), None),
            (&[FROM], &[], None, None),
            (&[Mac::BROADCAST], &[], None, None),
        ] {
            assert_eq!(over(has_it, has_all, but), by, "{has_it:?} {has_all:?} {but:?}");
        }
    }

    #[test]
    fn the_control_is_outside_of_the_subnet() {
        for (subnet, address) in [
            ("192.0.2.50/24", [203, 0, 113, 253]),
            ("203.0.113.50/24", [198, 51, 100, 253]),
            ("128.0.0.1/1", [203, 0, 113, 253]),
        ] {
            assert_eq!(control(subnet.parse().unwrap()).octets(), address, "{subnet}");
        }
    }
}
