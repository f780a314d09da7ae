//! `GET /v1/status`: how the daemon is doing, and what is wrong. Pure, except for the host's name.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_api::control::{self, Leases, Server, Status, Store};
use leasehold_core::effect::Row;
use leasehold_core::identity::Lan;
use leasehold_core::time::WallTime;
use leasehold_core::trouble::{Subject, Trouble};

use super::control::lan;
use super::events::rfc3339;
use crate::log::Said;
use crate::metrics::Snapshot;

/// Writes how the daemon is doing now.
pub(super) fn status(
    snapshot: &Snapshot,
    rows: &[Row],
    warnings: &[Said],
    now: SystemTime,
) -> Status {
    let commits = &snapshot.commits;
    let store = &snapshot.store;
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: fs::read_to_string("/proc/sys/kernel/hostname")
            .map(|name| name.trim().to_owned())
            .unwrap_or_default(),
        since: rfc3339(WallTime::from_epoch(snapshot.since)),
        seconds_up: now
            .duration_since(UNIX_EPOCH + snapshot.since)
            .unwrap_or_default()
            .as_secs(),
        sockets: snapshot
            .sockets
            .iter()
            .map(|path| path.display().to_string())
            .collect(),
        store: Store {
            path: store.display().to_string(),
            bytes: snapshot.disk.bytes,
            free_bytes: snapshot.disk.free,
            last_commit: commits.last.map(time),
            commits: commits.done,
            failures: commits.failed,
            fault: commits.fault.as_ref().map(|fault| fault.cause.to_string()),
        },
        leases: leases(snapshot),
        servers: servers(rows, &snapshot.silent),
        warnings: warnings
            .iter()
            .map(|said| control::Warning {
                time: time(said.at),
                line: said.line.clone(),
                count: said.count,
            })
            .collect(),
        troubles: snapshot.troubles.iter().map(trouble).collect(),
        attention: snapshot.troubles.iter().map(Trouble::to_string).collect(),
    }
}

fn trouble(trouble: &Trouble) -> control::Trouble {
    let Trouble {
        kind,
        subject,
        since,
        count,
        sentence,
        remedy,
    } = trouble;
    let mut written = control::Trouble {
        kind: kind.name().to_owned(),
        grave: kind.is_grave(),
        lan: None,
        link: None,
        since: since.map(rfc3339),
        count: *count,
        sentence: sentence.clone(),
        remedy: remedy.clone(),
    };
    match subject {
        Subject::Host => {}
        Subject::Link(ifname) => written.link = Some(ifname.to_string()),
        Subject::Lan(of) => written.lan = Some(lan(of)),
    }
    written
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

fn servers(rows: &[Row], silent: &[(Lan, Ipv4Addr, Duration)]) -> Vec<Server> {
    // How many leases are of each, and for how long it has extended none.
    let mut found: BTreeMap<_, (u64, Option<Duration>)> = BTreeMap::new();
    for (lan, server, silent) in silent {
        let (_, of) = found.entry((lan, IpAddr::V4(*server))).or_default();
        *of = Some(*silent);
    }
    for row in rows {
        let (Some(tenure), Some(identity)) = (&row.tenure, &row.identity) else {
            continue;
        };
        let Some(server) = tenure.by.server() else {
            continue;
        };
        let (leases, _) = found.entry((&identity.lan, server)).or_default();
        *leases += 1;
    }
    let server = |((of, server), (leases, silent)): ((_, _), (_, Option<Duration>))| Server {
        server,
        lan: lan(of),
        leases,
        seconds_silent: silent.map(|silent| silent.as_secs()),
    };
    found.into_iter().map(server).collect()
}

#[cfg(test)]
mod tests {
    use leasehold_core::registry::{Holdings, Kind};
    use leasehold_core::trouble::TroubleKind;

    use super::super::tests::row;
    use super::*;
    use crate::store::Commits;

    fn snapshot() -> Snapshot {
        let kind = |state| Kind {
            door: "cni",
            network: "lan".to_owned(),
            source: "server",
            state,
        };
        Snapshot {
            holdings: Holdings {
                leases: [(kind("BOUND"), 2), (kind("KEPT"), 1)].into(),
                ..Holdings::default()
            },
            commits: Commits {
                done: 7,
                last: Some(UNIX_EPOCH + Duration::from_secs(60)),
                ..Commits::default()
            },
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_daemon_without_a_fault_wants_no_attention() {
        let warning = Said {
            at: UNIX_EPOCH,
            line: "WARN lease lost".to_owned(),
            count: 1,
        };
        let rows = [row(), row(), row()];
        let now = UNIX_EPOCH + Duration::from_secs(90);
        let status = status(&snapshot(), &rows, &[warning], now);
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
        assert_eq!((server.leases, server.seconds_silent), (3, None));
        assert_eq!(
            status.store.last_commit.as_deref(),
            Some("1970-01-01T00:01:00.000Z")
        );
        assert_eq!(status.warnings[0].line, "WARN lease lost");
    }

    #[test]
    fn a_trouble_names_what_it_concerns() {
        let mut snapshot = snapshot();
        let of = |subject| Trouble {
            kind: TroubleKind::AddsFail,
            subject,
            since: Some(WallTime::from_epoch(Duration::from_secs(60))),
            count: 3,
            sentence: "3 ADDs failed".to_owned(),
            remedy: "look".to_owned(),
        };
        let eth0 = Lan::Link {
            parent: "eth0".into(),
            vlan: 5,
        };
        snapshot.troubles = vec![
            of(Subject::Host),
            of(Subject::Lan(eth0)),
            of(Subject::Link("br0".into())),
        ];
        let status = status(&snapshot, &[], &[], UNIX_EPOCH);
        assert_eq!(status.attention[0], "3 ADDs failed: look");
        let written = serde_json::to_value(&status.troubles).unwrap();
        let whole = serde_json::json!({
            "kind": "adds_fail", "grave": true, "since": "1970-01-01T00:01:00.000Z", "count": 3, "sentence": "3 ADDs failed", "remedy": "look"
        });
        assert_eq!(written[0], whole);
        assert_eq!(
            (&written[1]["lan"]["parent"], &written[1]["lan"]["vlan"]),
            (&"eth0".into(), &5.into())
        );
        assert_eq!(written[2]["link"], "br0");
    }
}
