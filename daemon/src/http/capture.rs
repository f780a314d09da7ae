//! `GET /v1/capture`: frames, for whoever asks.

use std::time::Duration;

use data_encoding::BASE64;
use leasehold_api::control::{self, MAX_FRAMES, MAX_WAIT};
use tokio::time::Instant;

use super::question::{Refusal, each, number};
use crate::capture::{Frames, Read, Seen};

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    after: Option<u64>,
    wait: Duration,
    /// The one attachment whose frames are wanted.
    attachment: Option<String>,
}

impl Question {
    /// Reads a URL's query.
    pub(super) fn parse(query: &str) -> Result<Self, Refusal> {
        let mut question = Self {
            after: None,
            wait: Duration::ZERO,
            attachment: None,
        };
        let known =
            format_args!("after=NUMBER, wait=SECONDS (up to {MAX_WAIT}) and attachment=NAME");
        each(query, known, |name, value| {
            match name {
                "after" => question.after = Some(number(value, 0..=u64::MAX)?),
                "wait" => question.wait = Duration::from_secs(number(value, 0..=MAX_WAIT)?),
                "attachment" => question.attachment = Some(control::from_url(value)?),
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

    /// Reads what is kept; if there is nothing yet, waits as long as asked.
    pub(super) async fn answer(self, frames: &Frames) -> control::Frames {
        let wanted = |seen: &Seen| match (&self.attachment, &seen.attachment) {
            (None, _) => true,
            (Some(wanted), Some(attachment)) => attachment.to_string() == *wanted,
            (Some(_), None) => false,
        };
        let Read {
            frames,
            next_after,
            missed,
        } = frames
            .read(self.after, MAX_FRAMES, Instant::now() + self.wait, wanted)
            .await;
        control::Frames {
            frames: frames.iter().map(frame).collect(),
            next_after,
            missed,
        }
    }
}

fn frame(seen: &Seen) -> control::Frame {
    control::Frame {
        number: seen.number,
        micros: seen.time.since_epoch().as_micros() as u64,
        sent: seen.sent,
        attachment: seen.attachment.as_ref().map(ToString::to_string),
        bytes: BASE64.encode(&seen.bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_names_what_it_wants() {
        let all = Question {
            after: None,
            wait: Duration::ZERO,
            attachment: None,
        };
        assert_eq!(Question::parse(""), Ok(all));
        let one = Question {
            after: Some(7),
            wait: Duration::from_secs(60),
            attachment: Some("docker/a b/c".to_owned()),
        };
        assert_eq!(
            Question::parse("after=7&wait=60&attachment=docker%2Fa%20b%2Fc"),
            Ok(one)
        );
        for bad in [
            "after",
            "after=x",
            "wait=61",
            "attachment=%",
            "attachment=%zz",
            "other=1",
        ] {
            assert!(Question::parse(bad).is_err(), "{bad}");
        }
    }
}
