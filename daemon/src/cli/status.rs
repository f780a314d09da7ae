//! `leasehold status`: how the daemon is doing, and what needs attention.

use std::collections::BTreeMap;

use leasehold_api::control::{STATUS, Server, Status, Store};

use super::args::StatusArgs;
use super::client::{self, ClientError};
use super::columns::columns;
use super::term::{Paint, Term, brief, printable};

/// Asks the daemon; returns the text to print, and whether nothing needs attention.
pub(crate) fn status(args: &StatusArgs) -> Result<(String, bool), ClientError> {
    let answer = client::get(&args.socket, STATUS)?;
    let status: Status = client::read(&answer)?;
    let text = match args.json {
        true => client::pretty(&answer)?,
        false => text(&status, Term::of_stdout()),
    };
    Ok((text, status.attention.is_empty()))
}

fn text(status: &Status, term: Term) -> String {
    let Status {
        version,
        since,
        seconds_up,
        sockets,
        store,
        leases,
        servers,
        warnings,
        attention,
    } = status;
    let facts = [
        ("version", version.clone()),
        (
            "running",
            format!("for {}, since {since}", brief(*seconds_up)),
        ),
        ("sockets", sockets.join(", ")),
        ("store", of_store(store)),
        ("leases by state", counts(&leases.by_state)),
        ("by door", counts(&leases.by_door)),
        ("by source", counts(&leases.by_source)),
    ];
    let rows: Vec<_> = facts
        .into_iter()
        .map(|(what, fact)| [what.to_owned(), printable(&fact)])
        .collect();
    let mut text = columns(&rows);
    if !servers.is_empty() {
        text += "\n";
        text += &columns(
            &[["SERVER", "LAN", "LEASES", "ANSWERED IN"].map(str::to_owned)]
                .into_iter()
                .chain(servers.iter().map(of_server))
                .collect::<Vec<_>>(),
        );
    }
    if !warnings.is_empty() {
        text += "\nLast warnings:\n";
        warnings.iter().for_each(|warning| {
            text += &term.wrapped("  ", &format!("{} {}", warning.time, warning.line))
        });
    }
    text += "\n";
    match attention.is_empty() {
        true => text += &format!("{}\n", term.paint(Paint::Good, "Nothing needs attention.")),
        false => {
            text += &format!("{}\n", term.paint(Paint::Warn, "This needs attention:"));
            attention
                .iter()
                .for_each(|sentence| text += &term.wrapped("  ", sentence));
        }
    }
    text
}

fn of_store(store: &Store) -> String {
    let Store {
        path,
        bytes,
        free_bytes,
        last_commit,
        commits,
        failures,
        fault,
    } = store;
    let mut parts = vec![path.clone()];
    parts.extend(bytes.map(|bytes| mebibytes(bytes) + " MiB"));
    parts.extend(free_bytes.map(|bytes| mebibytes(bytes) + " MiB free"));
    parts.push(match last_commit {
        Some(time) => format!("last commit {time}, {commits} so far"),
        None => "no commit yet".to_owned(),
    });
    parts.extend((*failures > 0).then(|| format!("{failures} failed")));
    parts.extend(
        fault
            .as_ref()
            .map(|why| format!("cannot be written: {why}")),
    );
    parts.join(", ")
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

fn counts(of: &BTreeMap<String, u64>) -> String {
    match of.is_empty() {
        true => "none".to_owned(),
        false => of
            .iter()
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

fn of_server(
    Server {
        server,
        lan,
        leases,
        answered_in_ms,
    }: &Server,
) -> [String; 4] {
    let answered = answered_in_ms.map_or_else(|| "-".to_owned(), |took| format!("{took:.1} ms"));
    [
        server.to_string(),
        printable(&lan.to_string()),
        leases.to_string(),
        answered,
    ]
}

#[cfg(test)]
mod tests {
    use leasehold_api::control::{Lan, Leases, Warning};

    use super::*;

    fn fine() -> Status {
        let text = str::to_owned;
        let count = |kind: &str| BTreeMap::from([(kind.to_owned(), 2)]);
        Status {
            version: text("0.1.0"),
            since: text("2026-11-25T10:00:00.000Z"),
            seconds_up: 3_700,
            sockets: vec![text("/run/cni/dhcp.sock")],
            store: Store {
                path: text("/var/lib/leasehold/leases.redb"),
                bytes: Some(1 << 20),
                free_bytes: Some(10 << 30),
                last_commit: Some(text("2026-11-25T11:00:00.000Z")),
                commits: 7,
                failures: 0,
                fault: None,
            },
            leases: Leases {
                by_state: count("BOUND"),
                by_door: count("cni"),
                by_source: count("server"),
            },
            servers: vec![Server {
                server: "10.0.0.1".parse().unwrap(),
                lan: Lan::Link {
                    parent: text("eth0"),
                    vlan: 5,
                },
                leases: 2,
                answered_in_ms: Some(1.25),
            }],
            warnings: Vec::new(),
            attention: Vec::new(),
        }
    }

    #[test]
    fn a_daemon_that_fares_well_says_so() {
        let expected = "\
version          0.1.0
running          for 1h1m, since 2026-11-25T10:00:00.000Z
sockets          /run/cni/dhcp.sock
store            /var/lib/leasehold/leases.redb, 1.0 MiB, 10240.0 MiB free, last commit 2026-11-25T11:00:00.000Z, 7 so far
leases by state  2 BOUND
by door          2 cni
by source        2 server

SERVER    LAN     LEASES  ANSWERED IN
10.0.0.1  eth0.5  2       1.2 ms

Nothing needs attention.
";
        assert_eq!(text(&fine(), Term::PLAIN), expected);
    }

    #[test]
    fn what_wants_attention_comes_last_and_moves_no_cursor() {
        let warning = Warning {
            time: "2026-11-25T10:59:00.000Z".to_owned(),
            line: "WARN odd\u{1b}[2J".to_owned(),
        };
        let attention = vec!["no ADD can be recorded: store full".to_owned()];
        let text = text(
            &Status {
                warnings: vec![warning],
                attention,
                ..fine()
            },
            Term::PLAIN,
        );
        let end = "\
Last warnings:
  2026-11-25T10:59:00.000Z WARN odd\\u{1b}[2J

This needs attention:
  no ADD can be recorded: store full
";
        assert!(text.ends_with(end), "{text}");
    }
}
