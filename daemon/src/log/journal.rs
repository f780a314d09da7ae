//! systemd's journal, in its own protocol (systemd.io, "Journal native protocol"): each field of a line by itself, so that
//! `journalctl LEASEHOLD_ATTACHMENT=…` finds the lines about one attachment.
//! `tracing-journald` sends from the thread that logs, which would wait whenever the journal stalls. Here a line waits in the
//! queue instead.

use std::env;
use std::fmt::{self, Write as _};
use std::fs;
use std::io::{self, Write};
use std::os::linux::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::queue::Queue;

/// Where the journal takes entries.
const SOCKET: &str = "/run/systemd/journal/socket";
/// The prefix of our own fields.
const PREFIX: &str = "LEASEHOLD_";
/// The longest value, in bytes: an entry has to fit a datagram.
const LONGEST: usize = 16 * 1024;

/// The journal's socket, as the sink of a queue whose lines are entries, each behind its length.
pub(super) struct Journal {
    socket: UnixDatagram,
    path: &'static Path,
}

/// Returns the journal, if it is what standard error leads to (systemd.exec(5), `JOURNAL_STREAM`).
pub(super) fn of_stderr() -> Option<Journal> {
    let said = env::var("JOURNAL_STREAM").ok()?;
    let stderr = fs::metadata("/proc/self/fd/2").ok()?;
    let is_it = said == format!("{}:{}", stderr.st_dev(), stderr.st_ino());
    let socket = UnixDatagram::unbound()
        .ok()
        .filter(|_| is_it && Path::new(SOCKET).exists())?;
    Some(Journal {
        socket,
        path: Path::new(SOCKET),
    })
}

impl Write for Journal {
    /// Sends the first entry. An entry that the journal refuses is lost: there is nowhere else to say so.
    fn write(&mut self, entries: &[u8]) -> io::Result<usize> {
        let Some((length, rest)) = entries.split_first_chunk() else {
            return Ok(entries.len());
        };
        let length = (u32::from_ne_bytes(*length) as usize).min(rest.len());
        let _ = self.socket.send_to(&rest[..length], self.path);
        Ok(size_of::<u32>() + length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes an entry of each event.
pub(super) struct Fields(pub(super) Queue);

impl<S: Subscriber> Layer<S> for Fields {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let entry = entry(event);
        let length = u32::try_from(entry.len()).unwrap_or_default().to_ne_bytes();
        // The queue counts entries that do not fit.
        let _ = self.0.clone().write_all(&[&length[..], &entry].concat());
    }
}

/// Returns the entry of an event: the journal's own fields, and ours.
fn entry(event: &Event<'_>) -> Vec<u8> {
    let about = event.metadata();
    let priority = match *about.level() {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        Level::DEBUG | Level::TRACE => "7",
    };
    let mut said = Said::default();
    event.record(&mut said);
    let mut entry = Vec::new();
    put(&mut entry, "MESSAGE", &(said.message + &said.fields));
    put(&mut entry, "PRIORITY", priority);
    put(&mut entry, "SYSLOG_IDENTIFIER", "leasehold");
    put(&mut entry, "LEASEHOLD_TARGET", about.target());
    entry.extend(said.own);
    entry
}

/// Writes a field in the form that allows any bytes: its name, a line feed, its length, its value, a line feed.
fn put(entry: &mut Vec<u8>, name: &str, value: &str) {
    let value = &value[..value.floor_char_boundary(LONGEST)];
    entry.extend(
        [
            name.as_bytes(),
            b"\n",
            &(value.len() as u64).to_le_bytes(),
            value.as_bytes(),
            b"\n",
        ]
        .concat(),
    );
}

/// What an event says.
#[derive(Default)]
struct Said {
    message: String,
    /// The fields as text, for readers of messages only.
    fields: String,
    /// The fields, as the journal takes them.
    own: Vec<u8>,
}

impl Visit for Said {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message = value.to_owned();
            return;
        }
        let _ = write!(self.fields, " {}={value}", field.name());
        let is_letter = |c: char| c.is_ascii_alphanumeric();
        let name: String = field
            .name()
            .chars()
            .map(|c| {
                if is_letter(c) {
                    c.to_ascii_uppercase()
                } else {
                    '_'
                }
            })
            .collect();
        put(&mut self.own, &(PREFIX.to_owned() + &name), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use tracing::subscriber::with_default;
    use tracing::{info, warn};
    use tracing_subscriber::prelude::*;
    use tracing_subscriber::registry;

    use super::super::queue;
    use super::*;

    /// Reads an entry back.
    fn fields(mut entry: &[u8]) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        while !entry.is_empty() {
            let end = entry.iter().position(|byte| *byte == b'\n').unwrap();
            let (length, rest) = entry[end + 1..].split_first_chunk().unwrap();
            let (value, rest) = rest.split_at(u64::from_le_bytes(*length) as usize);
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            fields.push((text(&entry[..end]), text(value)));
            entry = rest.strip_prefix(b"\n").unwrap();
        }
        fields
    }

    #[test]
    fn each_line_is_an_entry_with_its_fields() {
        let dir = TempDir::new().unwrap();
        let path: &'static Path = Box::leak(dir.path().join("socket").into_boxed_path());
        let journal = UnixDatagram::bind(path).unwrap();
        let sink = Journal {
            socket: UnixDatagram::unbound().unwrap(),
            path,
        };
        let (queue, flush) = queue::start(sink).unwrap();
        with_default(registry().with(Fields(queue)), || {
            info!(attachment = %"lan/c1/eth0", address = %"10.0.0.1", "lease acquired");
            warn!("two\nlines {}", "x".repeat(2 * LONGEST));
        });
        drop(flush);
        let received = || {
            let mut entry = vec![0; 1 << 17];
            let length = journal.recv(&mut entry).unwrap();
            fields(&entry[..length])
        };
        let first = received();
        let has = |name: &str| {
            first
                .iter()
                .find(|(known, _)| known == name)
                .map(|(_, value)| value.as_str())
        };
        assert_eq!(
            has("MESSAGE"),
            Some("lease acquired attachment=lan/c1/eth0 address=10.0.0.1")
        );
        assert_eq!(
            (has("PRIORITY"), has("SYSLOG_IDENTIFIER")),
            (Some("6"), Some("leasehold"))
        );
        assert_eq!(
            (has("LEASEHOLD_ATTACHMENT"), has("LEASEHOLD_ADDRESS")),
            (Some("lan/c1/eth0"), Some("10.0.0.1"))
        );
        let second = received();
        assert!(
            second[0].1.starts_with("two\nlines xx") && second[0].1.len() == LONGEST,
            "{:?}",
            second[1]
        );
    }
}
