//! Looking for the reason before an ADD fails without an offer.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::{Acquire, Phase};
use crate::binding::{Common, Cx};
use crate::effect::Why;
use crate::silence::{LastServer, Silence, Survey};
use crate::time::Instant;
use crate::wire::frame::Arp;

/// How long before an ADD's limit the look begins. The host's firewall takes a few milliseconds to answer, and a busy host takes
/// seconds.
const AHEAD: Duration = Duration::from_secs(3);

/// How long after the host's boot its links count as newly up: switch ports may not forward yet.
const LATELY: Duration = Duration::from_secs(60);

/// If an ADD waited this long for carrier, not only its interface came up, but also the links below it.
const LATE: Duration = Duration::from_secs(1);

/// How long after an ADD began the frames that came in are counted first: most ADDs have their answer by then.
const COUNTS: Duration = Duration::from_secs(1);

/// How far the search for a reason is.
#[derive(Debug)]
pub(crate) enum Reason {
    /// Not begun.
    NotLookedFor,
    /// The frames that had come in soon after the ADD began, once they are counted.
    Counted(Option<u64>),
    /// Under way.
    LookedFor {
        /// The frames that had come in soon after the ADD began.
        before: Option<u64>,
        /// The last server that was heard on the LAN.
        server: Option<LastServer>,
    },
    /// There is an offer, or nothing could be found out.
    None,
    /// What was found.
    Found(Box<Silence>),
}

impl Acquire {
    /// Returns when to count frames or to look for a reason, if one may be needed.
    ///
    /// That is before the limit, so that the reason is there in time and the ADD is answered as promised.
    pub(super) fn survey_at(&self) -> Option<(Instant, Why)> {
        let half = self.limit.saturating_since(self.quest.began) / 2;
        let after = match self.reason {
            Reason::NotLookedFor => COUNTS.min(half / 2),
            Reason::Counted(_) => half.max((half * 2).saturating_sub(AHEAD)),
            Reason::LookedFor { .. } | Reason::None | Reason::Found(_) => return None,
        };
        (self.phase == Phase::Ask).then(|| (self.quest.began + after, Why::Call))
    }

    /// Looks for a reason once it is time, if there is no offer by then.
    pub(super) fn survey(&mut self, common: &Common, cx: &mut Cx<'_>) {
        while self.survey_at().is_some_and(|(at, _)| cx.now.boot >= at) {
            if self.client.tally().requested.is_some() {
                self.reason = Reason::None;
                return;
            }
            let (lan, link) = (&common.identity.lan, &common.link);
            let Reason::Counted(before) = self.reason else {
                self.reason = Reason::Counted(None);
                cx.out.survey(common.id, link.clone(), lan, true);
                continue;
            };
            let server = cx.lans.last_server(lan).map(|address| LastServer {
                address,
                is_there: false,
                acknowledged: false,
            });
            if let Some(server) = server {
                let asks = Arp::request(link.mac(), Ipv4Addr::UNSPECIFIED, server.address);
                common.exchange.send(vec![asks.encode()], cx.out);
            }
            self.reason = Reason::LookedFor { before, server };
            cx.out.survey(common.id, link.clone(), lan, false);
        }
    }

    /// Records that a station sent an ARP packet: it may be the LAN's last server.
    pub(super) fn heard_arp(&mut self, arp: &Arp) {
        let server = match &mut self.reason {
            Reason::LookedFor { server, .. } => server,
            Reason::Found(silence) => &mut silence.server,
            Reason::NotLookedFor | Reason::Counted(_) | Reason::None => return,
        };
        if let Some(server) = server
            .as_mut()
            .filter(|server| server.address == arp.sender)
        {
            server.is_there = true;
        }
    }

    /// Records what was found.
    pub(in crate::binding) fn on_surveyed(&mut self, survey: Survey) {
        match self.reason {
            Reason::Counted(_) => self.reason = Reason::Counted(survey.received),
            Reason::LookedFor { before, server } => {
                let began = self.quest.began;
                // A host that has just booted has had its own links no longer than that.
                let booted =
                    Some(Instant::BOOT).filter(|boot| began.saturating_since(*boot) < LATELY);
                let came_up = self.quest.came_up;
                let late = came_up.filter(|at| at.saturating_since(began) >= LATE);
                let up_for = late.or(booted).map(|at| self.limit.saturating_since(at));
                self.reason = Reason::Found(Box::new(Silence {
                    ifname: self.ifname.clone(),
                    before,
                    up_for,
                    survey,
                    server,
                }));
            }
            Reason::NotLookedFor | Reason::None | Reason::Found(_) => {}
        }
    }
}
