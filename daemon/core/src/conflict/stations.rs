//! Does any station have an address? Asked before a lease is given back whose client may live on another host by now.
//!
//! A router that does proxy ARP answers for every address that it has a route to. To recognise it, the daemon also asks for
//! an address that nobody can have (RFC 5737): a router that answers for both has neither.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::asking::{self, Asking};
use crate::time::Instant;
use crate::wire::Mac;
use crate::wire::frame::Arp;

/// How many stations are remembered at most.
const MOST: usize = 8;

/// The question of who has one address.
#[derive(Clone, Debug)]
pub struct Question {
    asking: Asking,
    control: Ipv4Addr,
    but: Option<Mac>,
    has_it: Vec<Mac>,
    has_all: Vec<Mac>,
}

/// What a question wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuestionAction {
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
    /// Asks who has an address, from the Ethernet address `from`. Nobody may have that address, not even the client: on another
    /// host, a station with the client's own would take the question for its own. An answer from `but` does not count.
    pub fn new(address: Ipv4Net, from: Mac, but: Option<Mac>, now: Instant) -> Self {
        let asking = Asking::new((from, Ipv4Addr::UNSPECIFIED), address.addr(), now);
        Self {
            asking,
            control: control(address),
            but,
            has_it: Vec::new(),
            has_all: Vec::new(),
        }
    }

    /// Does what is due by the clock.
    pub fn on_clock(&mut self, now: Instant) -> QuestionAction {
        match self.asking.on_clock(now) {
            asking::AskingAction::Ask(frame) => {
                QuestionAction::Ask(vec![frame, self.asking.question(self.control)])
            }
            asking::AskingAction::Wait => QuestionAction::Wait,
            asking::AskingAction::Over => QuestionAction::Over {
                by: self
                    .has_it
                    .iter()
                    .find(|mac| !self.has_all.contains(mac))
                    .copied(),
            },
        }
    }

    /// Handles an ARP packet.
    pub fn on_arp(&mut self, arp: &Arp) {
        let (has_it, has_all) = (
            self.asking.on_arp(arp),
            self.asking.answer(arp, self.control),
        );
        for (by, heard) in [(has_it, &mut self.has_it), (has_all, &mut self.has_all)] {
            let by = by.filter(|by| Some(*by) != self.but);
            if let Some(by) = by.filter(|by| heard.len() < MOST && !heard.contains(by)) {
                heard.push(by);
            }
        }
    }

    /// Returns when the clock next matters.
    pub fn deadline(&self) -> Instant {
        self.asking.deadline()
    }
}

/// Returns an address that nobody can have (RFC 5737), outside the subnet of another.
pub fn control(beside: Ipv4Net) -> Ipv4Addr {
    let nets = [[203, 0, 113, 253], [198, 51, 100, 253], [192, 0, 2, 253]].map(Ipv4Addr::from);
    nets.into_iter()
        .find(|address| !beside.contains(address))
        .unwrap_or(nets[0])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ROUTER: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const STATION: Mac = Mac([2, 0, 0, 0, 0, 2]);
    const OWN: Mac = Mac([2, 0, 0, 0, 0, 3]);
    const FROM: Mac = Mac([0x42, 0, 0, 0, 0, 3]);

    /// Returns who has the address, given who answered for it and who answered for the control.
    fn over(has_it: &[Mac], has_all: &[Mac], but: Option<Mac>) -> Option<Mac> {
        let at = |millis| Instant::from_boot(Duration::from_millis(millis));
        let mut question = Question::new("192.0.2.50/24".parse().unwrap(), FROM, but, at(0));
        let claim =
            |mac: &Mac, address: [u8; 4]| Arp::request(*mac, address.into(), Ipv4Addr::UNSPECIFIED);
        for millis in [0, 200, 400] {
            assert!(
                matches!(question.on_clock(at(millis)), QuestionAction::Ask(frames) if frames.len() == 2)
            );
            assert_eq!(question.on_clock(at(millis + 199)), QuestionAction::Wait);
            has_it
                .iter()
                .for_each(|mac| question.on_arp(&claim(mac, [192, 0, 2, 50])));
            has_all
                .iter()
                .for_each(|mac| question.on_arp(&claim(mac, [203, 0, 113, 253])));
            question.on_arp(&claim(&STATION, [192, 0, 2, 51]));
        }
        match question.on_clock(question.deadline()) {
            QuestionAction::Over { by } => by,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_router_that_answers_for_all_has_no_address() {
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
            assert_eq!(
                over(has_it, has_all, but),
                by,
                "{has_it:?} {has_all:?} {but:?}"
            );
        }
    }

    #[test]
    fn the_control_is_outside_of_the_subnet() {
        for (subnet, address) in [
            ("192.0.2.50/24", [203, 0, 113, 253]),
            ("203.0.113.50/24", [198, 51, 100, 253]),
            ("128.0.0.1/1", [203, 0, 113, 253]),
        ] {
            assert_eq!(
                control(subnet.parse().unwrap()).octets(),
                address,
                "{subnet}"
            );
        }
    }
}
