//! Warns about refused or dropped parts of servers' answers, once each per lease, so that no server fills the log.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv4Addr;

use crate::binding::{Common, Cx, Report};
use crate::effect::ExchangeId;
use crate::link::LinkCause;
use crate::source::{Client, Output, Verdict};
use crate::wire::Mac;

/// How many different warnings there are per lease.
const MOST: usize = 16;

/// What was reported for a lease so far: the hashes, and how many there are. Boxed: few leases have anything to report.
#[derive(Debug, Default)]
pub(in crate::binding) struct Warnings(Option<Box<([u64; MOST], usize)>>);

impl Warnings {
    /// Records that something is reported; false if it was reported before, or if too much was.
    pub(in crate::binding) fn is_new(&mut self, what: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        let (seen, count) = &mut **self.0.get_or_insert_default();
        if *count == MOST || seen[..*count].contains(&hasher.finish()) {
            return false;
        }
        seen[*count] = hasher.finish();
        *count += 1;
        true
    }
}

impl Common {
    /// Counts what the client refused of an answer, or dropped from it, and reports it once.
    pub(in crate::binding) fn tell_refused(
        &mut self,
        from: Option<(Option<Ipv4Addr>, Mac)>,
        output: &Output,
        cx: &mut Cx<'_>,
    ) {
        if let Some(from) = from {
            self.tell_of(from, output, cx);
        }
        if let Some(said) = output.heard {
            cx.out.report(self.id, Report::Heard(said));
        }
        if matches!(output.verdict, Some(Verdict::Lost(..))) {
            self.warnings = Warnings::default();
        }
    }

    /// Records that the link did not take one of the client's messages, and reports it once.
    pub(in crate::binding) fn on_unsent(
        &mut self,
        client: &mut Client,
        exchange: ExchangeId,
        cause: &LinkCause,
    ) {
        if !self.exchange.is_open(exchange) {
            return;
        }
        client.on_unsent(cause.to_string());
        if self.warnings.is_new(&cause.to_string()) {
            tracing::warn!(attachment = %self.attachment, %cause, "message not sent");
        }
    }

    fn tell_of(&mut self, (from, mac): (Option<Ipv4Addr>, Mac), output: &Output, cx: &mut Cx<'_>) {
        let attachment = &self.attachment;
        let from = from.map(tracing::field::display);
        if let Some(refused) = &output.refused {
            cx.out.counts.refused(refused.name());
            if refused.is_noise() || !self.warnings.is_new(&refused.to_string()) {
                tracing::debug!(%attachment, from, %mac, cause = %refused, "answer refused");
            } else {
                tracing::warn!(%attachment, from, %mac, cause = %refused, "answer refused");
            }
        }
        for dropped in &output.dropped {
            cx.out.counts.refused(dropped.cause.name());
            if self.warnings.is_new(&dropped.to_string()) {
                tracing::warn!(%attachment, from, %mac, %dropped, "part of an answer dropped: the rest is used");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_told_once_and_so_are_sixteen_at_most() {
        let mut warnings = Warnings::default();
        assert!(
            warnings.is_new("option 6, impossible length: 5 bytes")
                && warnings.is_new("IPv4 fragment")
        );
        assert!(!warnings.is_new("option 6, impossible length: 5 bytes"));
        let new = (0..100)
            .filter(|n| warnings.is_new(&format!("yiaddr is not a host's address: 127.0.0.{n}")))
            .count();
        assert_eq!(new, MOST - 2);
    }
}
