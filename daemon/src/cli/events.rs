//! `leasehold events`: what happened to leases, one line each.

use std::collections::VecDeque;
use std::io::Write;
use std::thread;
use std::time::Duration;

use leasehold_api::control::{Attachment, EVENTS, Event};
use serde::Deserialize;
use serde_json::Value;

use super::args::EventsArgs;
use super::client::{self, ClientError};
use super::columns::or_dash;
use super::term::printable;

/// How long the daemon may wait for events, in seconds. Less than the client's own limit.
const WAIT: u64 = 20;

/// The pause between two attempts to find a daemon again.
const PAUSE: Duration = Duration::from_secs(1);

/// An answer with its events as values, so that fields that only a later daemon knows are shown too.
#[derive(Deserialize)]
struct Answer {
    events: Vec<Value>,
    next_after: u64,
}

/// Prints the requested events.
pub(crate) fn events(args: &EventsArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let wanted = Wanted::of(args)?;
    let mut after = args.after;
    let mut found = false;
    let mut silent = false;
    let mut last = args.number.map(|_| VecDeque::new());
    loop {
        // Existing events need no waiting.
        let wait = if args.follow && found && last.is_none() {
            WAIT
        } else {
            0
        };
        let answer = match ask(args, after, wait) {
            Err(error) if args.follow && found && may_come_back(&error) => {
                if !std::mem::replace(&mut silent, true) {
                    eprintln!("leasehold: {error}; waiting for it");
                }
                thread::sleep(PAUSE);
                continue;
            }
            answer => answer?,
        };
        (found, silent) = (true, false);
        let is_end = answer.events.is_empty() && answer.next_after == after;
        let mut events: Vec<_> = answer
            .events
            .into_iter()
            .filter(|event| wanted.is_one(event))
            .collect();
        if let (Some(kept), Some(most)) = (&mut last, args.number) {
            kept.extend(std::mem::take(&mut events));
            kept.drain(..kept.len().saturating_sub(most));
        }
        if is_end {
            events.extend(last.take().into_iter().flatten());
        }
        print(&events, args.json, out)?;
        if !args.follow && is_end {
            return Ok(());
        }
        after = answer.next_after;
    }
}

/// Which events are wanted.
struct Wanted<'a> {
    args: &'a EventsArgs,
    /// The attachments of leases that have the name.
    named: Vec<String>,
}

impl<'a> Wanted<'a> {
    /// Asks the daemon which leases have the name, if one is given.
    fn of(args: &'a EventsArgs) -> Result<Self, ClientError> {
        let named = match &args.name {
            Some(name) => client::called(&args.socket, name)?,
            None => Vec::new(),
        };
        Ok(Self { args, named })
    }

    fn is_one(&self, event: &Value) -> bool {
        let EventsArgs {
            name,
            network,
            kind,
            since,
            ..
        } = self.args;
        let attachment = &event["attachment"];
        let says = |value: &Value, wanted: &str| value.as_str() == Some(wanted);
        name.as_ref().is_none_or(|name| self.is_named(event, name))
            && network.as_ref().is_none_or(|network| {
                ["network", "pool"]
                    .iter()
                    .any(|key| says(&attachment[*key], network))
            })
            && (kind.is_empty() || kind.iter().any(|kind| says(&event["kind"], kind)))
            && since.as_ref().is_none_or(|since| {
                event["time"]
                    .as_str()
                    .is_some_and(|time| time >= since.as_str())
            })
    }

    /// Returns whether an event is about a lease of this name, which may be gone.
    fn is_named(&self, event: &Value, name: &str) -> bool {
        let Ok(event) = Event::deserialize(event) else {
            return false;
        };
        let attachment = event.attachment.to_string();
        let is_id = match &event.attachment {
            Attachment::Cni { container, .. } => container.starts_with(name),
            Attachment::Docker { .. } => false,
        };
        let is_address = event
            .address
            .is_some_and(|address| address.addr().to_string() == name);
        attachment == name || is_id || is_address || self.named.contains(&attachment)
    }
}

fn ask(args: &EventsArgs, after: u64, wait: u64) -> Result<Answer, ClientError> {
    let body = client::get_to_read(&args.socket, &format!("{EVENTS}?after={after}&wait={wait}"))?;
    client::read(&body)
}

/// Returns whether the next try may find a daemon because this one is restarting or stopping.
fn may_come_back(error: &ClientError) -> bool {
    match error {
        ClientError::NoDaemon(_) | ClientError::Io { .. } | ClientError::NotHttp { .. } => true,
        ClientError::Refused { status, .. } => *status == 503,
        ClientError::Denied(_) | ClientError::OldDaemon(_) | ClientError::Unreadable(_) => false,
    }
}

fn print(events: &[Value], json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    for event in events {
        let line = if json {
            event.to_string()
        } else {
            line(&Event::deserialize(event).map_err(ClientError::from)?)
        };
        writeln!(out, "{line}")?;
    }
    Ok(out.flush()?)
}

/// Returns an event as one line: time, attachment, kind, address, server, cause, and how often it happened.
pub(super) fn line(event: &Event) -> String {
    let address = or_dash(event.address);
    let server = or_dash(event.server);
    let Event {
        time,
        attachment,
        kind,
        cause,
        ..
    } = event;
    let run = event.times.zip(event.since.as_ref());
    let run = run
        .map(|(times, since)| format!(" ({times} times since {since})"))
        .unwrap_or_default();
    let line = format!("{time} {attachment} {kind} {address} {server} {cause}{run}");
    printable(line.trim_end())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;
    use tempfile::TempDir;

    use super::*;
    use crate::cli::tests::beside;

    fn event(number: u64, cause: &str) -> Value {
        json!({
            "number": number,
            "time": "2024-12-31T23:59:59.001Z",
            "attachment": { "door": "cni", "network": "lan", "container": "c1", "ifname": "eth0" },
            "kind": "lost",
            "address": "10.0.0.7/24",
            "server": "10.0.0.1",
            "cause": cause,
            "of_a_later_daemon": 1,
        })
    }

    fn all(socket: &Path) -> EventsArgs {
        EventsArgs {
            follow: false,
            name: None,
            network: None,
            kind: Vec::new(),
            since: None,
            number: None,
            json: false,
            after: 0,
            socket: socket.to_owned(),
        }
    }

    #[test]
    fn events_are_chosen_by_name_network_kind_and_time() {
        let is_one = |named: &[&str], change: &dyn Fn(&mut EventsArgs)| {
            let mut args = all(Path::new("/s"));
            change(&mut args);
            let named = named.iter().map(|name| (*name).to_owned()).collect();
            Wanted { args: &args, named }.is_one(&event(4, "a"))
        };
        let named = |name: &str| {
            let name = Some(name.to_owned());
            move |args: &mut EventsArgs| args.name = name.clone()
        };
        for name in ["lan/c1/eth0", "c1", "c", "10.0.0.7"] {
            assert!(is_one(&[], &named(name)), "{name}");
        }
        assert!(!is_one(&[], &named("web")) && is_one(&["lan/c1/eth0"], &named("web")));
        let network =
            |network: &'static str| is_one(&[], &|args| args.network = Some(network.to_owned()));
        assert!(network("lan") && !network("other"));
        let kind = |kind: &'static str| is_one(&[], &|args| args.kind = vec![kind.to_owned()]);
        assert!(kind("lost") && !kind("renewed"));
        let since = |since: &'static str| is_one(&[], &|args| args.since = Some(since.to_owned()));
        assert!(since("2024-12-31T23:59") && !since("2025-01-01"));
    }

    #[test]
    fn the_last_ones_are_printed_once_all_are_known() {
        let answers = [
            answer(&[event(4, "a"), event(5, "b")], 5),
            answer(&[event(6, "c")], 6),
            answer(&[], 6),
        ];
        let (text, ended, _) = ran(|args| args.number = Some(2), &answers);
        ended.unwrap();
        let causes: Vec<_> = text
            .lines()
            .filter_map(|line| line.split(' ').next_back())
            .collect();
        assert_eq!(causes, ["b", "c"]);
    }

    fn answer(events: &[Value], next_after: u64) -> String {
        let body = json!({ "events": events, "next_after": next_after }).to_string();
        format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    /// Runs the command against daemons that give these answers in turn. Returns what was printed, how it ended, and what was
    /// asked.
    fn ran(
        change: impl FnOnce(&mut EventsArgs),
        answers: &[String],
    ) -> (String, anyhow::Result<()>, Vec<String>) {
        let answers: Vec<_> = answers.iter().map(String::as_str).collect();
        let mut out = Vec::new();
        let (ended, asked) = beside(&answers, |socket| {
            let mut args = all(socket);
            args.after = 3;
            change(&mut args);
            events(&args, &mut out)
        });
        (String::from_utf8(out).unwrap(), ended, asked)
    }

    #[test]
    fn all_events_are_printed_page_by_page() {
        let pages = [
            answer(&[event(4, "a"), event(5, "b")], 5),
            answer(&[event(6, "c")], 6),
            answer(&[], 6),
        ];
        let (text, ended, asked) = ran(|_| {}, &pages);
        ended.unwrap();
        let expected = "2024-12-31T23:59:59.001Z lan/c1/eth0 lost 10.0.0.7/24 10.0.0.1 ";
        assert_eq!(text, format!("{expected}a\n{expected}b\n{expected}c\n"));
        assert_eq!(asked[1], "GET /v1/events?after=5&wait=0 HTTP/1.1");
    }

    #[test]
    fn what_happened_again_and_again_says_how_often() {
        let mut renewed = event(4, "renewal at T1");
        renewed["times"] = 37.into();
        renewed["since"] = "2024-12-30T00:00:00.000Z".into();
        let (text, ended, _) = ran(|_| {}, &[answer(&[renewed], 4), answer(&[], 4)]);
        ended.unwrap();
        assert!(
            text.ends_with("renewal at T1 (37 times since 2024-12-30T00:00:00.000Z)\n"),
            "{text}"
        );
    }

    #[test]
    fn json_is_a_line_an_event_with_all_that_the_daemon_said() {
        let answers = [answer(&[event(4, "a\nb")], 4), answer(&[], 4)];
        let (text, ended, _) = ran(|args| args.json = true, &answers);
        ended.unwrap();
        assert_eq!(text.lines().count(), 1);
        assert_eq!(
            serde_json::from_str::<Value>(&text).unwrap(),
            event(4, "a\nb")
        );
    }

    #[test]
    fn a_follower_outlives_its_daemon_and_its_journal() {
        let refused =
            "HTTP/1.1 503 Busy\r\ncontent-length: 16\r\n\r\n{\"error\":\"busy\"}".to_owned();
        let no = "HTTP/1.1 400 Bad Request\r\ncontent-length: 14\r\n\r\n{\"error\":\"no\"}";
        let answers = [
            answer(&[event(4, "a")], 4),
            String::new(),
            refused,
            answer(&[event(1, "b")], 1),
            no.to_owned(),
        ];
        let (text, ended, asked) = ran(|args| args.follow = true, &answers);
        assert!(
            matches!(
                ended.as_ref().unwrap_err().downcast_ref(),
                Some(ClientError::Refused { status: 400, .. })
            ),
            "{ended:?}"
        );
        assert_eq!(
            text.lines()
                .map(|line| line.chars().last().unwrap())
                .collect::<String>(),
            "ab"
        );
        assert_eq!(asked[0], "GET /v1/events?after=3&wait=0 HTTP/1.1");
        assert_eq!(asked[3], "GET /v1/events?after=4&wait=20 HTTP/1.1");
        assert_eq!(asked[4], "GET /v1/events?after=1&wait=20 HTTP/1.1");
    }

    #[test]
    fn a_follower_that_finds_no_daemon_at_first_says_so() {
        let dir = TempDir::new().unwrap();
        let args = EventsArgs {
            follow: true,
            ..all(&dir.path().join("s"))
        };
        let error = events(&args, &mut Vec::new()).unwrap_err();
        assert!(
            matches!(error.downcast_ref(), Some(ClientError::NoDaemon(_))),
            "{error}"
        );
    }

    #[test]
    fn text_of_a_server_cannot_move_the_cursor() {
        let event: Event = Event::deserialize(event(1, "NAK: \"\u{1b}[2J\"")).unwrap();
        assert!(
            line(&event).ends_with("lost 10.0.0.7/24 10.0.0.1 NAK: \"\\u{1b}[2J\""),
            "{}",
            line(&event)
        );
    }
}
