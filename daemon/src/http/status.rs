//! `GET /v1/status`: how the daemon is doing, and what needs attention. Pure, except for the store's file.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_api::control::{self, Leases, Server, Status, Store};
use leasehold_core::effect::{BindingState, Row};
use leasehold_core::identity::Attachment;
use leasehold_core::time::{Instant, WallTime};
use nix::sys::statvfs::statvfs;

use super::control::{lan, milliseconds};
use super::events::rfc3339;
use crate::log::Said;
use crate::metrics::Snapshot;

/// What a status is made from.
pub(super) struct Facts {
    /// The numbers of the daemon.
    pub(super) snapshot: Snapshot,
    /// All leases.
    pub(super) rows: Vec<Row>,
    /// The containers that could not be adopted.
    pub(super) not_adopted: Vec<(Attachment, String)>,
    /// Why no ADD could be recorded now.
    pub(super) fault: Option<String>,
    /// The size of the store's file, and the free space on its disk.
    pub(super) disk: (Option<u64>, Option<u64>),
    /// The last warnings.
    pub(super) warnings: Vec<Said>,
}

/// Looks at the store's file and its disk, which may be slow.
pub(super) fn look(store: &Path) -> (Option<u64>, Option<u64>) {
    let free = statvfs(store)
        .ok()
        .map(|disk| disk.blocks_available().saturating_mul(disk.fragment_size()));
    (store.metadata().ok().map(|file| file.len()), free)
}

/// Writes how the daemon is doing now.
pub(super) fn status(facts: &Facts, now: SystemTime) -> Status {
    let Facts {
        snapshot,
        rows,
        fault,
        disk,
        warnings,
        ..
    } = facts;
    let (commits, store) = (snapshot.commits, &snapshot.store);
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        since: time(snapshot.since),
        seconds_up: now
            .duration_since(snapshot.since)
            .unwrap_or_default()
            .as_secs(),
        sockets: snapshot
            .sockets
            .iter()
            .map(|path| path.display().to_string())
            .collect(),
        store: Store {
            path: store.display().to_string(),
            bytes: disk.0,
            free_bytes: disk.1,
            last_commit: commits.last.map(time),
            commits: commits.done,
            failures: commits.failed,
            fault: fault.clone(),
        },
        leases: leases(snapshot),
        servers: servers(rows),
        warnings: warnings
            .iter()
            .map(|said| control::Warning {
                time: time(said.at),
                line: said.line.clone(),
            })
            .collect(),
        attention: attention(facts),
    }
}

fn time(at: SystemTime) -> String {
    rfc3339(WallTime::from_epoch(
        at.duration_since(UNIX_EPOCH).unwrap_or_default(),
    ))
}

fn leases(snapshot: &Snapshot) -> Leases {
    let mut leases = Leases::default();
    for (kind, count) in &snapshot.holdings.leases {
        *leases.by_state.entry(kind.state.to_owned()).or_default() += count;
        *leases.by_door.entry(kind.door.to_owned()).or_default() += count;
        *leases.by_source.entry(kind.source.to_owned()).or_default() += count;
    }
    leases
}

fn servers(rows: &[Row]) -> Vec<Server> {
    let mut found: BTreeMap<_, Seen> = BTreeMap::new();
    for row in rows {
        let (Some(tenure), Some(identity)) = (&row.tenure, &row.identity) else {
            continue;
        };
        let Some(server) = tenure.by.server() else {
            continue;
        };
        let seen = found.entry((&identity.lan, server)).or_default();
        seen.leases += 1;
        seen.last = seen
            .last
            .max(row.answered_in.map(|took| (tenure.start, took)));
    }
    let server = |((of, server), seen): ((_, _), Seen)| Server {
        server,
        lan: lan(of),
        leases: seen.leases,
        answered_in_ms: seen.last.map(|(_, took)| milliseconds(took)),
    };
    found.into_iter().map(server).collect()
}

/// What is known about a server.
#[derive(Default)]
struct Seen {
    leases: u64,
    /// When the latest lease began, and how long the answer took.
    last: Option<(Instant, Duration)>,
}

/// Returns what needs attention.
fn attention(
    Facts {
        snapshot,
        rows,
        not_adopted,
        fault,
        ..
    }: &Facts,
) -> Vec<String> {
    let count = |is_one: fn(&Row) -> bool| rows.iter().filter(|row| is_one(row)).count();
    let without = count(|row| row.tenure.is_none() && matches!(row.state, BindingState::Client(_)));
    let held_up = count(|row| row.held_up.is_some());
    let pathless = count(|row| row.pathless);
    let some = |count: usize, sentence: &str| {
        (count > 0).then(|| sentence.replace("{}", &leases_of(count)))
    };
    let end = snapshot.holdings.next_end;
    [
        fault.as_ref().map(|why| format!("no ADD can be recorded: {why}")),
        some(
            without,
            "without an address: {}; `leasehold list` shows which, `leasehold probe LINK` whether a server answers",
        ),
        end.map(|left| {
            format!("a lease ends in {} s that no server has extended although one was asked", left.as_secs())
        }),
        some(held_up, "being given back, but held up: {}; `leasehold list` says why"),
        some(pathless, "in a namespace without a path: {}"),
        (!not_adopted.is_empty()).then(|| {
            format!(
                "{} not adopted, so no lease is renewed there: `leasehold list` says why",
                containers(not_adopted.len())
            )
        }),
        (snapshot.events_dropped > 0)
            .then(|| format!("{} events were lost, because the store did not accept them", snapshot.events_dropped)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn leases_of(count: usize) -> String {
    if count == 1 {
        "one lease".to_owned()
    } else {
        format!("{count} leases")
    }
}

fn containers(count: usize) -> String {
    if count == 1 {
        "one container was".to_owned()
    } else {
        format!("{count} containers were")
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::counts::Counts;
    use leasehold_core::dhcpv4::StateName;
    use leasehold_core::registry::{Holdings, Kind};

    use super::super::tests::row;
    use super::*;
    use crate::metrics::Meter;
    use crate::net::Watched;
    use crate::store::Commits;

    fn facts(rows: Vec<Row>) -> Facts {
        let kind = |state| Kind {
            door: "cni",
            network: "lan".to_owned(),
            source: "server",
            state,
        };
        let snapshot = Snapshot {
            counts: Counts::default(),
            holdings: Holdings {
                leases: [(kind("BOUND"), 2), (kind("KEPT"), 1)].into(),
                ..Holdings::default()
            },
            events_dropped: 0,
            meter: Meter::default(),
            commits: Commits {
                done: 7,
                last: Some(UNIX_EPOCH + Duration::from_secs(60)),
                ..Commits::default()
            },
            watched: Watched {
                namespaces: 0,
                lost: 0,
            },
            connections: BTreeMap::new(),
            since: UNIX_EPOCH,
            sockets: vec!["/run/cni/dhcp.sock".into()],
            store: "/var/lib/leasehold/leases.redb".into(),
        };
        let (not_adopted, warnings) = (
            Vec::new(),
            vec![Said {
                at: UNIX_EPOCH,
                line: "WARN lease lost".to_owned(),
            }],
        );
        Facts {
            snapshot,
            rows,
            not_adopted,
            fault: None,
            disk: (Some(4096), None),
            warnings,
        }
    }

    #[test]
    fn a_daemon_without_a_fault_wants_no_attention() {
        let answered = |millis| Row {
            answered_in: Some(Duration::from_millis(millis)),
            ..row()
        };
        let status = status(
            &facts(vec![answered(3), row(), answered(2)]),
            UNIX_EPOCH + Duration::from_secs(90),
        );
        assert_eq!(
            (status.attention.as_slice(), status.seconds_up),
            (&[][..], 90)
        );
        assert_eq!(
            status.leases.by_state,
            [("BOUND".to_owned(), 2), ("KEPT".to_owned(), 1)].into()
        );
        assert_eq!(status.leases.by_source, [("server".to_owned(), 3)].into());
        let [server] = &status.servers[..] else {
            panic!("{:?}", status.servers)
        };
        assert_eq!((server.leases, server.answered_in_ms), (3, Some(3.0)));
        assert_eq!(
            status.store.last_commit.as_deref(),
            Some("1970-01-01T00:01:00.000Z")
        );
        assert_eq!(status.warnings[0].line, "WARN lease lost");
    }

    #[test]
    fn each_fault_wants_attention_in_a_sentence() {
        let without = Row {
            tenure: None,
            state: BindingState::Client(StateName::Selecting),
            ..row()
        };
        let held_up = Row {
            held_up: Some((
                Duration::from_secs(9),
                "host link eth0 is not there".to_owned(),
            )),
            ..row()
        };
        let mut facts = facts(vec![
            without.clone(),
            without,
            held_up,
            Row {
                pathless: true,
                ..row()
            },
        ]);
        facts.fault = Some("store full".to_owned());
        facts.snapshot.holdings.next_end = Some(Duration::from_secs(42));
        facts.snapshot.events_dropped = 3;
        facts.not_adopted = vec![(row().attachment, "no DHCP offer".to_owned())];
        let expected = [
            "no ADD can be recorded: store full",
            "without an address: 2 leases; `leasehold list` shows which, `leasehold probe LINK` whether a server answers",
            "a lease ends in 42 s that no server has extended although one was asked",
            "being given back, but held up: one lease; `leasehold list` says why",
            "in a namespace without a path: one lease",
            "one container was not adopted, so no lease is renewed there: `leasehold list` says why",
            "3 events were lost, because the store did not accept them",
        ];
        assert_eq!(attention(&facts), expected);
    }
}
