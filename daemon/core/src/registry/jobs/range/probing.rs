//! The probes for the IPv4 addresses of an ADD from local ranges, if its container has an interface by then (RFC 5227 §2.1.1).
//!
//! Some main plugins ask for addresses before they make the interface. Then there is nothing to send from, and there are no probes.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::conflict::{Action, Heard, Window};
use crate::effect::{ExchangeId, Outcome, RangeAdd, RequestId};
use crate::grant::policy::Detection;
use crate::link::{ByName, Hears, Link, LinkCause, LinkView, Sockets, Step, Target};
use crate::outbox::{Owner, Waiter};
use crate::registry::Registry;
use crate::time::{Instant, Now};
use crate::wire::Mac;
use crate::wire::frame::Arp;

/// How long to wait for an answer to the first probe, if an ADD does not wait for all probes. A station on the LAN answers within
/// milliseconds.
const ANSWER: Duration = Duration::from_millis(250);

/// When such a first probe is repeated: the port of a bridge forwards a moment after its link has carrier, so the interface's
/// first frame may be lost.
const AGAIN: Duration = Duration::from_millis(125);

/// Addresses that are being probed for.
#[derive(Debug)]
pub(super) struct Probing {
    at: ByName,
    detection: Detection,
    addresses: Vec<Ipv4Addr>,
    stage: Probe,
}

#[derive(Debug)]
enum Probe {
    /// The interface is set up and looked at.
    Raising,
    /// It has no carrier yet.
    AwaitingCarrier(LinkView),
    /// Its sockets are being opened.
    Opening(ExchangeId, Link),
    /// The addresses that are not known to be free are watched. Unless the ADD waits for all probes, the first is repeated at
    /// `again`.
    Watching {
        exchange: ExchangeId,
        since: Instant,
        again: Option<Instant>,
        windows: Vec<Window>,
    },
}

/// What the probes have found out.
#[derive(Debug)]
pub(super) enum Probed {
    /// Nothing yet.
    Waits,
    /// Nobody uses the addresses, as far as can be known.
    Free,
    /// A station uses one.
    InUse(Ipv4Addr, Mac),
    /// There can be no probes, for this reason.
    Unknown(LinkCause),
}

impl Probing {
    /// Begins to probe for the addresses of an ADD; `None` if its network wants no probes, or no address is IPv4.
    pub(super) fn begin(
        core: &mut Registry,
        id: RequestId,
        add: &RangeAdd,
        addresses: Vec<Ipv4Addr>,
    ) -> Option<Self> {
        if add.detection == Detection::Off || addresses.is_empty() {
            return None;
        }
        let at = ByName {
            netns: add.netns.clone(),
            ifname: add.ifname().to_owned(),
            host_too: false,
        };
        let probing = Self {
            at,
            detection: add.detection,
            addresses,
            stage: Probe::Raising,
        };
        probing.raise(core, id);
        Some(probing)
    }

    fn raise(&self, core: &mut Registry, id: RequestId) {
        core.out.apply(
            Waiter::Call(id),
            Target::Named(self.at.clone()),
            vec![Step::Up],
        );
    }

    /// Goes on after one of its effects is done.
    pub(super) fn done(
        &mut self,
        core: &mut Registry,
        now: Now,
        id: RequestId,
        outcome: Outcome,
    ) -> Probed {
        match (&self.stage, outcome) {
            (
                Probe::Raising,
                Outcome::Applied {
                    result: Ok(view), ..
                },
            ) => {
                if !view.carrier {
                    self.stage = Probe::AwaitingCarrier(view);
                    return Probed::Waits;
                }
                let link = Link::InNetns {
                    path: self.at.netns.clone(),
                    cookie: view.cookie,
                    ifindex: view.ifindex,
                    mac: view.mac,
                };
                // Others' probes say something about an address that is not in use yet.
                let arp = match self.addresses[..] {
                    [address] => Hears::About(address),
                    _ => Hears::Answers,
                };
                let want = Sockets {
                    chaddr: view.mac,
                    arp,
                    hold_port: None,
                };
                let (_, exchange) =
                    core.out
                        .open_for(Owner::Call, Waiter::Call(id), link.clone(), want);
                self.stage = Probe::Opening(exchange, link);
                Probed::Waits
            }
            (
                Probe::Raising,
                Outcome::Applied {
                    result: Err(cause), ..
                },
            ) => Probed::Unknown(cause),
            (Probe::Opening(exchange, link), Outcome::Opened(Ok(()))) => {
                let own = || Box::new([link.mac()]) as Box<[Mac]>;
                let window = |address: &Ipv4Addr| match self.detection {
                    Detection::Strict => Window::strict(*address, own(), now.boot, &mut core.rng),
                    Detection::Optimistic | Detection::Off => {
                        Window::optimistic(*address, own(), now.boot)
                    }
                };
                let windows = self.addresses.iter().map(window).collect();
                let again = (!self.is_strict()).then(|| now.boot + AGAIN);
                self.stage = Probe::Watching {
                    exchange: *exchange,
                    since: now.boot,
                    again,
                    windows,
                };
                self.on_clock(core, now)
            }
            (Probe::Opening(..), Outcome::Opened(Err(cause))) => Probed::Unknown(cause),
            _ => Probed::Waits,
        }
    }

    /// Goes on once its interface has carrier.
    pub(super) fn on_carrier(
        &mut self,
        core: &mut Registry,
        id: RequestId,
        at: (crate::link::Cookie, u32),
    ) {
        if matches!(&self.stage, Probe::AwaitingCarrier(view) if view.at() == at) {
            self.stage = Probe::Raising;
            self.raise(core, id);
        }
    }

    /// Does what is due by the clock.
    pub(super) fn on_clock(&mut self, core: &mut Registry, now: Now) -> Probed {
        let is_hasty = !self.is_strict();
        let Probe::Watching {
            exchange,
            since,
            again,
            windows,
        } = &mut self.stage
        else {
            return Probed::Waits;
        };
        if again.take_if(|at| now.boot >= *at).is_some() {
            windows
                .iter()
                .for_each(|window| core.out.send(*exchange, window.probe_frame()));
        }
        let is_heard = is_hasty && now.boot >= *since + ANSWER;
        windows.retain_mut(|window| {
            loop {
                match window.on_clock(now.boot, &mut core.rng) {
                    Action::Send(frame) | Action::Repeat(frame) => core.out.send(*exchange, frame),
                    Action::Free | Action::Over => return false,
                    Action::Wait => return !is_heard,
                }
            }
        });
        if windows.is_empty() {
            Probed::Free
        } else {
            Probed::Waits
        }
    }

    /// Handles an ARP packet.
    pub(super) fn on_arp(
        &mut self,
        core: &Registry,
        now: Now,
        add: &RangeAdd,
        arp: &Arp,
    ) -> Probed {
        let Probe::Watching { windows, .. } = &mut self.stage else {
            return Probed::Waits;
        };
        if core
            .conflicts
            .proxy(&add.lan, arp.sender_mac, now.boot)
            .is_some()
        {
            return Probed::Waits;
        }
        let heard = windows
            .iter_mut()
            .find_map(|window| match window.on_arp(now.boot, arp) {
                Heard::Conflict { by } => Some((window.address(), by)),
                // It is not on the interface yet.
                Heard::Nothing | Heard::Defend(_) => None,
            });
        heard.map_or(Probed::Waits, |(address, by)| Probed::InUse(address, by))
    }

    /// Returns when the clock next matters.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let Probe::Watching {
            since,
            again,
            windows,
            ..
        } = &self.stage
        else {
            return None;
        };
        let answer = (!self.is_strict()).then(|| *since + ANSWER);
        windows
            .iter()
            .map(Window::deadline)
            .chain(answer)
            .chain(*again)
            .min()
    }

    /// Returns whether these are its sockets.
    pub(super) fn hears(&self, exchange: ExchangeId) -> bool {
        self.exchange() == Some(exchange)
    }

    fn exchange(&self) -> Option<ExchangeId> {
        match &self.stage {
            Probe::Raising | Probe::AwaitingCarrier(_) => None,
            Probe::Opening(exchange, _) | Probe::Watching { exchange, .. } => Some(*exchange),
        }
    }

    /// Returns whether an ADD waits for all probes, and fails if there can be none.
    pub(super) fn is_strict(&self) -> bool {
        self.detection == Detection::Strict
    }

    /// Ends the probes.
    pub(super) fn close(&self, core: &mut Registry) {
        self.exchange()
            .into_iter()
            .for_each(|exchange| core.out.close(exchange));
    }
}
