//! The rig's networks with local ranges: each container is in a namespace that lives, and files are written at once.

use super::*;
use crate::effect::{RangeAdd, RangeAnswer, RangeCall};
use crate::grant::policy::Detection;
use crate::range::{Said, Sets};

impl Rig {
    pub(super) fn serve_range(&mut self, effect: Effect) {
        let (op, outcome) = match effect {
            Effect::Watch { op, netns } => {
                let n: u64 = netns
                    .file_name()
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .parse()
                    .unwrap();
                let seen = if self.live.contains(&n) {
                    Ok(Cookie(n))
                } else {
                    Err(LinkCause::NoNetns(netns))
                };
                (op, Outcome::Watched(seen))
            }
            Effect::File {
                op: Some(op),
                address,
                ..
            } => (
                op,
                Outcome::Filed {
                    address,
                    result: Ok(()),
                },
            ),
            _ => return,
        };
        self.reg.handle(self.now(), Input::Done { op, outcome });
    }

    /// Returns an ADD of a network on the rig's LAN that has the addresses from `.first` to `.last`.
    pub(in crate::registry::tests) fn range_call(
        &self,
        who: &str,
        netns: u64,
        first: u8,
        last: u8,
    ) -> RangeAdd {
        let end = |n| Some(Ipv4Addr::new(192, 0, 2, n).into());
        let subnet = "192.0.2.0/24".parse().unwrap();
        let said = Said {
            subnet,
            start: end(first),
            end: end(last),
            gateway: None,
        };
        RangeAdd {
            attachment: Attachment::cni("pods", who, "eth0"),
            netns: format!("/ns/{netns}").into(),
            lan: self.call(who, netns, who).lan,
            returns_as: None,
            sets: Sets::new(&[vec![said]]).unwrap(),
            asked: vec![],
            directory: "/data/pods".into(),
            detection: Detection::Off,
            timeout: Duration::from_secs(30),
        }
    }

    /// Asks for an address of a local range.
    pub(in crate::registry::tests) fn ask_range(&mut self, add: RangeAdd) -> u64 {
        self.request(Call::Ranges(RangeCall::Add(Box::new(add))))
    }

    /// Returns the address that an ADD was given of a local range.
    pub(in crate::registry::tests) fn of_range(&self, add: u64) -> String {
        match self.answers.get(&add) {
            Some(Answer::Ranges(RangeAnswer::Given(given))) => given[0].address.to_string(),
            other => panic!("{other:?}"),
        }
    }
}
