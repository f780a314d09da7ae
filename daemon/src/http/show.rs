//! `GET /v1/show`: everything about one lease. Pure, except that it reads the journal for the lease's history.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_api::control::{self, Interface, Lease, Story};
use leasehold_core::effect::{Row, Shown};
use leasehold_core::identity::{Attachment, ClientId};
use leasehold_core::link::LinkView;
use leasehold_core::source::Lease as Granted;
use leasehold_core::tenure::Times;
use leasehold_core::time::{Instant, WallTime};
use leasehold_core::wire::Mac;

use super::control::binding;
use super::events::{event, rfc3339};
use crate::options;
use crate::store::journal::{Journal, JournalError, MOST};

/// How many of the last events are shown.
const EVENTS: usize = 20;

/// Writes what is known about a lease now, or which leases match the name.
pub(super) fn story(shown: &[Shown], events: Vec<control::Event>, now: SystemTime) -> Story {
    match shown {
        [only] => Story {
            lease: Some(Box::new(lease(only, events, now))),
            candidates: Vec::new(),
        },
        several => Story {
            lease: None,
            candidates: several.iter().map(|shown| binding(&shown.row)).collect(),
        },
    }
}

/// Reads the last events of an attachment.
pub(super) async fn events_of(
    journal: &Journal,
    of: &Attachment,
) -> Result<Vec<control::Event>, JournalError> {
    let mut after = 0;
    let mut last = VecDeque::new();
    loop {
        let read = journal.read(after, MOST).await?;
        for numbered in read
            .events
            .iter()
            .filter(|numbered| numbered.event.attachment == *of)
        {
            last.push_back(event(numbered));
            if last.len() > EVENTS {
                last.pop_front();
            }
        }
        if read.next_after == after {
            return Ok(last.into());
        }
        after = read.next_after;
    }
}

fn lease(shown: &Shown, events: Vec<control::Event>, now: SystemTime) -> Lease {
    let Shown {
        row,
        lease,
        interface,
    } = shown;
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    // They are counted from when the lease began, so that one that has passed stays where it was.
    let tenure = row.tenure.as_ref();
    let at = |of: fn(&Times) -> Instant| {
        let tenure = tenure?;
        let after = of(tenure.times.as_ref()?).saturating_since(tenure.start);
        let wall = (now + after).saturating_sub(row.age);
        Some(rfc3339(WallTime::from_epoch(wall)))
    };
    let (interface, interface_unseen) = match interface {
        None => (None, None),
        Some(Ok(view)) => (Some(seen(view)), None),
        Some(Err(cause)) => (None, Some(cause.to_string())),
    };
    Lease {
        binding: binding(row),
        client: client(row),
        server_mac: lease.as_ref().map(|lease| lease.server_mac.to_string()),
        renews: at(|times| times.extended),
        rebinds: at(|times| times.rebound),
        expires: at(|times| times.ends),
        options: lease
            .iter()
            .flat_map(|lease| remembered(lease))
            .map(|(code, bytes)| options::shown(code, &bytes))
            .collect(),
        interface,
        interface_unseen,
        events,
    }
}

fn seen(view: &LinkView) -> Interface {
    Interface {
        name: view.ifname.clone(),
        mac: view.mac.to_string(),
        mtu: view.mtu,
        up: view.up,
        carrier: view.carrier,
        addresses: view.addresses.clone(),
        routes: view
            .routes
            .iter()
            .flatten()
            .map(ToString::to_string)
            .collect(),
    }
}

/// Returns the options that the daemon remembers of the lease, as a server would send them.
fn remembered(lease: &Granted) -> Vec<(u8, Vec<u8>)> {
    let addresses = |all: &[std::net::Ipv4Addr]| {
        all.iter()
            .flat_map(|address| address.octets())
            .collect::<Vec<_>>()
    };
    let seconds = |time: Duration| (time.as_secs() as u32).to_be_bytes().to_vec();
    let text = |text: &Option<String>| text.clone().unwrap_or_default().into_bytes();
    let times = lease.times;
    let all = [
        (1, lease.address.netmask().octets().to_vec()),
        (3, addresses(lease.gateway.as_slice())),
        (6, addresses(&lease.dns)),
        (15, text(&lease.domain)),
        (
            26,
            lease
                .mtu
                .map(|mtu| mtu.get().to_be_bytes().to_vec())
                .unwrap_or_default(),
        ),
        (51, times.map_or(vec![0xff; 4], |times| seconds(times.end))),
        (54, lease.server.octets().to_vec()),
        (58, times.map(|times| seconds(times.t1)).unwrap_or_default()),
        (59, times.map(|times| seconds(times.t2)).unwrap_or_default()),
    ];
    all.into_iter()
        .filter(|(_, bytes)| !bytes.is_empty())
        .collect()
}

/// Returns how servers recognise a lease's holder, in words.
fn client(row: &Row) -> String {
    let Some(identity) = &row.identity else {
        return "no server knows it".to_owned();
    };
    let id: &ClientId = &identity.client_id;
    match (row.pod(), id.as_bytes()) {
        (Some((namespace, pod)), _) => format!("pod {namespace}/{pod}"),
        (None, &[1, a, b, c, d, e, f]) => format!("hardware address {}", Mac([a, b, c, d, e, f])),
        (None, [255, ..]) => format!("DUID {id}"),
        (None, _) if row.is_named_by_container() => "its container".to_owned(),
        (None, _) => id.readable(),
    }
}
