//! The journal of events: the latest ones, numbered in order for as long as the file lives.
//!
//! Successive events that say the same about an attachment ([`Event::continuing`]) form a run, in which the last stands for all;
//! the numbers of the others stay unused.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::mpsc;

use leasehold_core::event::Event;
use leasehold_core::identity::Attachment;
use redb::{
    Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, Table, TableDefinition,
    TableError, WriteTransaction,
};
use tokio::sync::{oneshot, watch};

use super::Job;

/// Number to event as JSON. A file older than this table is read as one without events, and an older leasehold ignores the table,
/// so it needs no format of its own.
const EVENTS: TableDefinition<u64, &[u8]> = TableDefinition::new("events");
/// How many events are kept.
pub(crate) const KEPT: u64 = 10_000;
/// The most events read at once, so that a reader holds up no transaction for more than a millisecond or two.
pub(crate) const MOST: usize = 1_000;

/// An event with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbered {
    /// From 1 on.
    pub(crate) number: u64,
    /// The event.
    pub(crate) event: Event,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Read {
    /// The events, in order.
    pub(crate) events: Vec<Numbered>,
    /// The number of the last event looked at: the next read starts after it.
    pub(crate) next_after: u64,
}

/// What to read.
#[derive(Debug)]
pub(super) struct Reading {
    after: u64,
    limit: usize,
    answer: oneshot::Sender<Result<Read, String>>,
}

/// The journal as its readers see it.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    jobs: mpsc::Sender<Job>,
    last: watch::Receiver<u64>,
}

/// Why the journal cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum JournalError {
    /// The store is closed.
    #[error("the leasehold daemon is stopping")]
    Closed,
    /// The file cannot be read.
    #[error("the journal cannot be read: {0}")]
    Failed(String),
}

impl Journal {
    pub(super) fn new(jobs: mpsc::Sender<Job>, last: watch::Receiver<u64>) -> Self {
        Self { jobs, last }
    }

    /// Reads the oldest events after number `after`, at most `limit` and [`MOST`].
    ///
    /// Numbers only grow, unless the file was set aside; then they begin again, and a reader that asks for events after the last
    /// one gets everything from the first.
    pub(crate) async fn read(&self, after: u64, limit: usize) -> Result<Read, JournalError> {
        let (answer, read) = oneshot::channel();
        let reading = Reading {
            after,
            limit: limit.min(MOST),
            answer,
        };
        self.jobs
            .send(Job::Read(reading))
            .map_err(|_| JournalError::Closed)?;
        read.await
            .map_err(|_| JournalError::Closed)?
            .map_err(JournalError::Failed)
    }

    /// Waits until there is an event after number `after`; returns at once if there is one, or if numbers began again.
    pub(crate) async fn wait(&mut self, after: u64) -> Result<(), JournalError> {
        self.last
            .wait_for(|last| *last != after)
            .await
            .map(|_| ())
            .map_err(|_| JournalError::Closed)
    }
}

/// The last event of each attachment, if this process wrote it and the next one may stand for it: the hash of the attachment to
/// the event's number. After a restart a new run begins.
#[derive(Debug, Default)]
pub(super) struct Runs(HashMap<u64, u64>);

impl Runs {
    fn hash(attachment: &Attachment) -> u64 {
        let mut hasher = DefaultHasher::new();
        attachment.hash(&mut hasher);
        hasher.finish()
    }
}

/// Adds events, and drops the oldest beyond [`KEPT`]. Returns the number of the last.
///
/// If it or the transaction fails, `runs` is no longer valid.
pub(super) fn append(
    txn: &WriteTransaction,
    events: &[&Event],
    runs: &mut Runs,
) -> Result<u64, redb::Error> {
    let mut table = txn.open_table(EVENTS)?;
    let mut number = table.last()?.map_or(0, |(number, _)| number.value());
    for &event in events {
        let attachment = Runs::hash(&event.attachment);
        // Anything else that happens to a lease ends its run.
        let earlier = runs.0.remove(&attachment);
        let continued = match earlier {
            Some(earlier) => stored(&table, earlier)?.and_then(|before| event.continuing(&before)),
            None => None,
        };
        if let (Some(earlier), Some(_)) = (earlier, &continued) {
            table.remove(earlier)?;
        }
        number += 1;
        table.insert(
            number,
            encode(continued.as_ref().unwrap_or(event)).as_slice(),
        )?;
        if event.may_run() {
            runs.0.insert(attachment, number);
        }
    }
    while table.len()? > KEPT {
        table.pop_first()?;
    }
    Ok(number)
}

/// Drops the older half of the events, and returns how many that is. The last one always stays, for its number.
pub(super) fn forget_half(database: &Database) -> Result<u64, redb::Error> {
    let txn = database.begin_write()?;
    let dropped = {
        let mut table = txn.open_table(EVENTS)?;
        let dropped = table.len()? / 2;
        for _ in 0..dropped {
            table.pop_first()?;
        }
        dropped
    };
    txn.commit()?;
    Ok(dropped)
}

fn stored(table: &Table<'_, u64, &[u8]>, number: u64) -> Result<Option<Event>, redb::Error> {
    Ok(table
        .get(number)?
        .and_then(|json| serde_json::from_slice(json.value()).ok()))
}

fn encode(event: &Event) -> Vec<u8> {
    serde_json::to_vec(event).expect("an event has neither a path nor a map: it always is JSON")
}

/// Returns the number of the last event, 0 when there is none.
pub(super) fn last(database: &Database) -> Result<u64, redb::Error> {
    match database.begin_read()?.open_table(EVENTS) {
        Ok(table) => Ok(table.last()?.map_or(0, |(number, _)| number.value())),
        Err(TableError::TableDoesNotExist(_)) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

impl Reading {
    pub(super) fn is_wanted(&self) -> bool {
        !self.answer.is_closed()
    }

    pub(super) fn answer(self, result: Result<Read, String>) {
        let _ = self.answer.send(result);
    }

    /// Reads what is asked for. Leaves out an event that a later leasehold wrote, or that is damaged.
    pub(super) fn carry_out(&self, database: &Database) -> Result<Read, redb::Error> {
        let table = match database.begin_read()?.open_table(EVENTS) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(Read::default()),
            Err(error) => return Err(error.into()),
        };
        let last = table.last()?.map_or(0, |(number, _)| number.value());
        let after = if self.after > last { 0 } else { self.after };
        let mut read = Read {
            events: Vec::new(),
            next_after: after,
        };
        for row in table.range(after + 1..)?.take(self.limit) {
            let (number, json) = row?;
            read.next_after = number.value();
            match serde_json::from_slice(json.value()) {
                Ok(event) => read.events.push(Numbered {
                    number: number.value(),
                    event,
                }),
                Err(error) => {
                    tracing::debug!(number = number.value(), %error, "event does not parse")
                }
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests;
