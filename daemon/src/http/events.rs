//! `GET /v1/events`: the journal in the operator's terms.

use std::time::Duration;

use leasehold_api::control::{self, MAX_EVENTS, MAX_WAIT};
use leasehold_core::time::WallTime;
use tokio::time::{Instant, timeout_at};

use super::control::attachment;
use super::question::{Refusal, each, number};
use crate::store::journal::{Journal, JournalError, Numbered, Read};

/// What is asked of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    after: u64,
    limit: usize,
    wait: Duration,
}

impl Question {
    /// Reads a URL's query.
    pub(super) fn parse(query: &str) -> Result<Self, Refusal> {
        let mut question = Self {
            after: 0,
            limit: MAX_EVENTS,
            wait: Duration::ZERO,
        };
        let known = format_args!(
            "after=NUMBER, limit=NUMBER (1 to {MAX_EVENTS}) and wait=SECONDS (up to {MAX_WAIT})"
        );
        each(query, known, |name, value| {
            match name {
                "after" => question.after = number(value, 0..=u64::MAX)?,
                "limit" => question.limit = number(value, 1..=MAX_EVENTS as u64)? as usize,
                "wait" => question.wait = Duration::from_secs(number(value, 0..=MAX_WAIT)?),
                _ => return None,
            }
            Some(())
        })?;
        Ok(question)
    }

    /// Returns whether the answer may take long.
    pub(super) fn waits(&self) -> bool {
        !self.wait.is_zero()
    }

    /// Reads the journal; if there is nothing yet, waits as long as asked.
    pub(super) async fn answer(
        self,
        mut journal: Journal,
    ) -> Result<control::Events, JournalError> {
        let until = Instant::now() + self.wait;
        let mut after = self.after;
        loop {
            let read = journal.read(after, self.limit).await?;
            after = read.next_after;
            if !read.events.is_empty() || !self.waits() {
                return Ok(events(&read));
            }
            match timeout_at(until, journal.wait(after)).await {
                Ok(come) => come?,
                Err(_) => return Ok(events(&read)),
            }
        }
    }
}

fn events(read: &Read) -> control::Events {
    control::Events {
        events: read.events.iter().map(event).collect(),
        next_after: read.next_after,
    }
}

/// Writes an event.
pub(super) fn event(Numbered { number, event }: &Numbered) -> control::Event {
    control::Event {
        number: *number,
        time: rfc3339(event.wall),
        attachment: attachment(&event.attachment),
        kind: event.kind.to_string(),
        address: event.address,
        server: event.server,
        cause: event.cause.clone(),
        times: event.run.map(|run| run.times),
        since: event.run.map(|run| rfc3339(run.since)),
    }
}

/// Writes a wall time as RFC 3339 in UTC, to the millisecond.
pub(crate) fn rfc3339(time: WallTime) -> String {
    let seconds = time.since_epoch().as_secs();
    let millis = time.since_epoch().subsec_millis();
    let days = seconds / 86_400;
    let second = seconds % 86_400;
    let (year, month, day) = civil(days);
    let hour = second / 3600;
    let minute = second / 60 % 60;
    let second = second % 60;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Returns year, month and day of the day `days` after 1970-01-01, in the Gregorian calendar.
///
/// Counts from 0000-03-01, so that the leap day is the last of its year, in eras of 400 years.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339_says() {
        let table = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_735_689_599_001, "2024-12-31T23:59:59.001Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ];
        for (millis, text) in table {
            assert_eq!(
                rfc3339(WallTime::from_epoch(Duration::from_millis(millis))),
                text
            );
        }
    }

    #[test]
    fn a_question_may_leave_everything_out() {
        let all = Question {
            after: 0,
            limit: 1000,
            wait: Duration::ZERO,
        };
        assert_eq!(Question::parse(""), Ok(all));
        let some = Question {
            after: 7,
            limit: 20,
            wait: Duration::from_secs(60),
        };
        assert_eq!(Question::parse("limit=20&wait=60&after=7"), Ok(some));
    }

    #[test]
    fn a_bad_parameter_is_named() {
        for query in [
            "after=x",
            "after",
            "limit=0",
            "limit=1001",
            "wait=-1",
            "wait=61",
            "sinc%65=3",
        ] {
            let said = Question::parse(query).unwrap_err().to_string();
            assert!(said.starts_with(&format!("{query}: ")), "{said}");
        }
    }
}
