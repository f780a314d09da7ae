//! `leasehold status`: how the daemon is doing, and what needs attention.

use std::collections::BTreeMap;

use leasehold_api::control::{STATUS, Server, Status, Store, Trouble, Warning};

use super::args::StatusArgs;
use super::client::{self, ClientError};
use super::columns::{columns, or_dash};
use super::term::{Paint, Term, brief, printable};

/// Asks the daemon; returns the text to print, and whether nothing needs attention.
pub(crate) fn status(args: &StatusArgs) -> Result<(String, bool), ClientError> {
    let answer = client::get_to_read(&args.socket, STATUS)?;
    let status: Status = client::read(&answer)?;
    let text = match args.json {
        true => client::pretty(&answer)?,
        false => text(&status, Term::of_stdout()),
    };
    Ok((text, status.troubles.is_empty()))
}

fn text(status: &Status, term: Term) -> String {
    let Status {
        version,
        host: _,
        since,
        seconds_up,
        sockets,
        store,
        leases,
        servers,
        warnings,
        troubles,
        attention: _,
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
        ("by caller", counts(&leases.by_door)),
        ("granted by", counts(&leases.by_source)),
    ];
    let rows: Vec<_> = facts
        .into_iter()
        .map(|(what, fact)| [what.to_owned(), printable(&fact)])
        .collect();
    let mut text = columns(&rows);
    if !servers.is_empty() {
        text += "\n";
        text += &columns(
            &[["SERVER", "LAN", "LEASES", "SILENT FOR"].map(str::to_owned)]
                .into_iter()
                .chain(servers.iter().map(of_server))
                .collect::<Vec<_>>(),
        );
    }
    if !warnings.is_empty() {
        text += "\nLast warnings:\n";
        warnings
            .iter()
            .for_each(|warning| text += &term.wrapped("  ", &of_warning(warning)));
    }
    text += "\n";
    text += &of_troubles(troubles, term);
    text
}

/// Returns what is wrong, in the words that every surface uses, each with what to do below it.
fn of_troubles(troubles: &[Trouble], term: Term) -> String {
    if troubles.is_empty() {
        return format!("{}\n", term.paint(Paint::Good, "Nothing needs attention."));
    }
    let mut text = format!("{}\n", term.paint(Paint::Warn, "This needs attention:"));
    for Trouble {
        since,
        sentence,
        remedy,
        ..
    } in troubles
    {
        let since = since.as_ref().map(|since| format!(" (since {since})"));
        text += &term.wrapped("  ", &format!("{sentence}{}", since.unwrap_or_default()));
        text += &term.wrapped("    -> ", remedy);
    }
    text
}

fn of_warning(Warning { time, line, count }: &Warning) -> String {
    match count {
        0 | 1 => format!("{time} {line}"),
        _ => format!("{time} {line} ({count} of this kind)"),
    }
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
        seconds_silent,
    }: &Server,
) -> [String; 4] {
    [
        server.to_string(),
        printable(&lan.to_string()),
        leases.to_string(),
        or_dash(seconds_silent.map(brief)),
    ]
}

#[cfg(test)]
mod tests {
    use leasehold_api::control::{Lan, Leases};

    use super::*;

    fn fine() -> Status {
        let text = str::to_owned;
        let count = |kind: &str| BTreeMap::from([(kind.to_owned(), 2)]);
        Status {
            version: text("0.1.0"),
            host: text("node1"),
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
                seconds_silent: None,
            }],
            warnings: Vec::new(),
            troubles: Vec::new(),
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
by caller        2 cni
granted by       2 server

SERVER    LAN     LEASES  SILENT FOR
10.0.0.1  eth0.5  2       -

Nothing needs attention.
";
        assert_eq!(text(&fine(), Term::PLAIN), expected);
    }

    #[test]
    fn what_wants_attention_comes_last_and_moves_no_cursor() {
        let warning = Warning {
            time: "2026-11-25T10:59:00.000Z".to_owned(),
            line: "WARN odd\u{1b}[2J".to_owned(),
            count: 3,
        };
        let trouble = Trouble {
            kind: "store_fails".to_owned(),
            grave: true,
            lan: None,
            link: None,
            since: Some("2026-11-25T10:58:00.000Z".to_owned()),
            count: 1,
            sentence: "no ADD can be recorded".to_owned(),
            remedy: "make room".to_owned(),
        };
        let text = text(
            &Status {
                warnings: vec![warning],
                troubles: vec![trouble],
                ..fine()
            },
            Term::PLAIN,
        );
        let end = "\
Last warnings:
  2026-11-25T10:59:00.000Z WARN odd\\u{1b}[2J (3 of this kind)

This needs attention:
  no ADD can be recorded (since 2026-11-25T10:58:00.000Z)
    -> make room
";
        assert!(text.ends_with(end), "{text}");
    }
}
