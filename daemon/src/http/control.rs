//! The core's bindings in the operator's terms. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_api::control;
use leasehold_core::effect::{RangeRow, Row};
use leasehold_core::identity::{Attachment, Identity, Lan};
use leasehold_core::link::Link;
use leasehold_core::pool::PoolRecord;
use leasehold_core::range::Usage;
use leasehold_core::tenure::{Grantor, Tenure};

/// Writes all bindings, the containers that could not be adopted, and counts of refusals.
pub(crate) fn bindings(
    rows: &[Row],
    pools: &[PoolRecord],
    not_adopted: &[(Attachment, String)],
    strangers: Vec<String>,
    refused: BTreeMap<String, u64>,
) -> control::Bindings {
    let not = |(of, reason): &(Attachment, String)| control::NotAdopted {
        attachment: attachment(of),
        reason: reason.clone(),
    };
    control::Bindings {
        bindings: rows.iter().map(binding).collect(),
        pools: pools.iter().map(pool).collect(),
        not_adopted: not_adopted.iter().map(not).collect(),
        strangers,
        refused,
    }
}

/// Writes the ranges of fallbacks, and their taken addresses.
pub(crate) fn ranges(rows: &[RangeRow]) -> control::Ranges {
    control::Ranges {
        ranges: rows.iter().map(range).collect(),
    }
}

fn range(row: &RangeRow) -> control::Range {
    let Usage { range, size, taken } = &row.usage;
    let taken = taken.iter().map(|(address, by)| control::Taken {
        address: *address,
        attachment: attachment(by),
        since: None,
        gone: false,
    });
    control::Range {
        network: row.network.clone(),
        lan: lan(&row.lan),
        set: 0,
        subnet: range.subnet,
        first: range.first,
        last: range.last,
        size: u64::try_from(*size).unwrap_or(u64::MAX),
        fallback: true,
        taken: taken.collect(),
    }
}

fn pool(record: &PoolRecord) -> control::Pool {
    let reserved = record.reserved.iter().copied().collect();
    control::Pool {
        id: record.id.to_string(),
        found_parent: record.id.found().map(str::to_owned),
        gateway: record.gateway,
        reserved,
    }
}

pub(super) fn binding(row: &Row) -> control::Binding {
    let seconds = |left: Option<Duration>| left.map(|left| left.as_secs());
    control::Binding {
        attachment: attachment(&row.attachment),
        name: row.name(),
        identity: row.identity.as_ref().map(identity),
        address: row.tenure.as_ref().map(Tenure::net),
        more_addresses: row
            .tenure
            .iter()
            .flat_map(|tenure| &tenure.addresses[1..])
            .map(|address| address.net)
            .collect(),
        state: row.state.as_str().to_owned(),
        source: row.tenure.as_ref().map(|tenure| match tenure.by {
            Grantor::Server(_) => control::Source::Server,
            Grantor::Range => control::Source::Range,
        }),
        server: row.tenure.as_ref().and_then(|tenure| tenure.by.server()),
        lost: row.lost,
        asked_in_vain: row.in_vain.map(|(times, _)| times),
        seconds_asking: seconds(row.in_vain.and_then(|(_, since)| since)),
        seconds_to_t1: seconds(row.extended),
        seconds_to_t2: seconds(row.rebound),
        seconds_to_expiry: seconds(row.ends),
        lease_seconds: row.tenure.as_ref().and_then(granted_for),
        seconds_to_release: seconds(row.kept),
        pathless: row.pathless,
        held_up_by: row.held_up.as_ref().map(|(_, what)| what.clone()),
        seconds_held_up: row.held_up.as_ref().map(|(since, _)| since.as_secs()),
        told: row.told,
        link: row.link.as_ref().map(link),
    }
}

/// Returns how many seconds it was granted for; `None`: for ever.
fn granted_for(tenure: &Tenure) -> Option<u64> {
    Some(tenure.times?.ends.saturating_since(tenure.start).as_secs())
}

pub(super) fn attachment(attachment: &Attachment) -> control::Attachment {
    match attachment.clone() {
        Attachment::Cni {
            network,
            container,
            ifname,
        } => control::Attachment::Cni {
            network: network.into(),
            container: container.into(),
            ifname: ifname.into(),
        },
        Attachment::Docker { pool, endpoint } => control::Attachment::Docker {
            pool: pool.into(),
            endpoint: endpoint.into(),
        },
    }
}

fn identity(identity: &Identity) -> control::Identity {
    let lan = lan(&identity.lan);
    control::Identity {
        lan,
        client_id: identity.client_id.to_string(),
        chaddr: identity.chaddr.to_string(),
    }
}

pub(super) fn lan(lan: &Lan) -> control::Lan {
    match lan.clone() {
        Lan::Link { parent, vlan } => control::Lan::Link {
            parent: parent.into(),
            vlan,
        },
        Lan::Network(network) => control::Lan::Network {
            network: network.into(),
        },
    }
}

fn link(link: &Link) -> control::Link {
    let (netns, ifindex) = match link {
        Link::InNetns { path, ifindex, .. } => (Some(path.display().to_string()), *ifindex),
        Link::Parent { ifindex, .. } => (None, *ifindex),
    };
    control::Link {
        netns,
        ifindex,
        mac: link.mac().to_string(),
    }
}
