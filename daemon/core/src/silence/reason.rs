//! Looking for the reason before somebody fails without an offer.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::{AHEAD, LastServer, Silence, Survey};
use crate::time::Instant;
use crate::wire::frame::Arp;

/// How long after the host's boot its links count as newly up: switch ports may not forward yet.
const LATELY: Duration = Duration::from_secs(60);

/// How long after the asking began the frames that came in are counted first: most ADDs have their answer by then. If carrier came
/// later, not only the ADD's interface came up, but also the links below it.
const COUNTS: Duration = Duration::from_secs(1);

/// How far the search for a reason is.
#[derive(Debug, Default)]
pub(crate) enum Reason {
    /// Not begun.
    #[default]
    NotLookedFor,
    /// The frames that had come in soon after the asking began, once they are counted.
    Counted(Option<u64>),
    /// Under way.
    LookedFor {
        /// The frames that had come in soon after the asking began.
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
    /// Returns when to count frames or to look for a reason, if one may be needed, by whoever asks from `began` to `limit`.
    ///
    /// That is before the limit, so that the reason is there in time and the caller is answered as promised.
    pub(crate) fn due_at(&self, began: Instant, limit: Instant) -> Option<Instant> {
        let half = limit.saturating_since(began) / 2;
        let after = match self {
            Self::NotLookedFor => COUNTS.min(half / 2),
            Self::Counted(_) => half.max((half * 2).saturating_sub(AHEAD)),
            Self::LookedFor { .. } | Self::None | Self::Found(_) => return None,
        };
        Some(began + after)
    }

    /// Records that frames are counted now, or the reason is looked for, since this is due. Returns whether they are counted. `server`:
    /// the last that was heard on the LAN, which is to be asked by ARP.
    pub(crate) fn look(&mut self, server: Option<Ipv4Addr>) -> bool {
        let Self::Counted(before) = *self else {
            *self = Self::Counted(None);
            return true;
        };
        let server = server.map(|address| LastServer {
            address,
            is_there: false,
            acknowledged: false,
        });
        *self = Self::LookedFor { before, server };
        false
    }

    /// Records that a station sent an ARP packet: it may be the LAN's last server.
    pub(crate) fn hear(&mut self, arp: &Arp) {
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

    /// Records what was found for somebody who asks at this link from `began` to `limit`. `came_up`: when the link got carrier, if it had
    /// none before.
    pub(crate) fn found(
        &mut self,
        survey: Survey,
        ifname: &str,
        (began, limit): (Instant, Instant),
        came_up: Option<Instant>,
    ) {
        let count = Survey {
            received: survey.received,
            ..Survey::default()
        };
        match *self {
            Self::Counted(_) => *self = Self::Counted(survey.received),
            // The count, which took so long that the search has begun.
            Self::LookedFor {
                before: ref mut before @ None,
                ..
            } if survey == count && count != Survey::default() => *before = count.received,
            Self::LookedFor { before, server } => {
                // A host that has just booted has had its own links no longer than that.
                let booted =
                    Some(Instant::BOOT).filter(|boot| began.saturating_since(*boot) < LATELY);
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

    /// Returns what was found.
    pub(crate) fn silence(&self) -> Option<Box<Silence>> {
        match self {
            Self::Found(silence) => Some(silence.clone()),
            Self::NotLookedFor | Self::Counted(_) | Self::LookedFor { .. } | Self::None => None,
        }
    }
}
