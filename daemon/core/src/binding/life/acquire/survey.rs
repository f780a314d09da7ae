//! Looking for the reason before an ADD fails without an offer.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::binding::{Cx, Quest};
use crate::silence::{AHEAD, LastServer, Silence, Survey};
use crate::time::Instant;
use crate::wire::frame::Arp;

/// How long after the host's boot its links count as newly up: switch ports may not forward yet.
const LATELY: Duration = Duration::from_secs(60);

/// How long after an ADD began the frames that came in are counted first: most ADDs have their answer by then. If carrier came
/// later, not only the ADD's interface came up, but also the links below it.
const COUNTS: Duration = Duration::from_secs(1);

/// How far the search for a reason is.
#[derive(Debug)]
pub(super) enum Reason {
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

impl Reason {
    /// Returns when to count frames or to look for a reason, if one may be needed, of an ADD that lasts from `began` to `limit`.
    ///
    /// That is before the limit, so that the reason is there in time and the ADD is answered as promised.
    pub(super) fn due_at(&self, began: Instant, limit: Instant) -> Option<Instant> {
        let half = limit.saturating_since(began) / 2;
        let after = match self {
            Self::NotLookedFor => COUNTS.min(half / 2),
            Self::Counted(_) => half.max((half * 2).saturating_sub(AHEAD)),
            Self::LookedFor { .. } | Self::None | Self::Found(_) => return None,
        };
        Some(began + after)
    }

    /// Counts frames, or looks for a reason, now that this is due.
    pub(super) fn look(&mut self, cx: &mut Cx<'_>) {
        let (lan, link) = (&cx.own.identity.lan, &cx.own.link);
        let Self::Counted(before) = *self else {
            *self = Self::Counted(None);
            return cx.out.survey(cx.own.id, link.clone(), lan, true);
        };
        let server = cx.lans.last_server(lan).map(|address| LastServer {
            address,
            is_there: false,
            acknowledged: false,
        });
        if let Some(server) = server {
            let asks = Arp::request(link.mac(), Ipv4Addr::UNSPECIFIED, server.address);
            cx.own.exchange.send(vec![asks.encode()], cx.out);
        }
        *self = Self::LookedFor { before, server };
        cx.out.survey(cx.own.id, link.clone(), lan, false);
    }

    /// Records that a station sent an ARP packet: it may be the LAN's last server.
    pub(super) fn hear(&mut self, arp: &Arp) {
        let server = match self {
            Self::LookedFor { server, .. } => server,
            Self::Found(silence) => &mut silence.server,
            Self::NotLookedFor | Self::Counted(_) | Self::None => return,
        };
        if let Some(server) = server
            .as_mut()
            .filter(|server| server.address == arp.sender)
        {
            server.is_there = true;
        }
    }

    /// Records what was found for an ADD at this link.
    pub(super) fn found(&mut self, survey: Survey, ifname: &str, quest: &Quest, limit: Instant) {
        match *self {
            Self::Counted(_) => *self = Self::Counted(survey.received),
            Self::LookedFor { before, server } => {
                let began = quest.began;
                // A host that has just booted has had its own links no longer than that.
                let booted =
                    Some(Instant::BOOT).filter(|boot| began.saturating_since(*boot) < LATELY);
                let came_up = quest.came_up;
                let late = came_up.filter(|at| at.saturating_since(began) >= COUNTS);
                let up_for = late.or(booted).map(|at| limit.saturating_since(at));
                *self = Self::Found(Box::new(Silence {
                    ifname: ifname.to_owned(),
                    before,
                    up_for,
                    survey,
                    server,
                }));
            }
            Self::NotLookedFor | Self::None | Self::Found(_) => {}
        }
    }
}
