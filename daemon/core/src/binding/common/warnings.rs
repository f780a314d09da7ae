//! Warns about refused or dropped parts of servers' answers, once each per lease, so that no server fills the log.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use crate::binding::{Cx, Report};
use crate::source::{Output, Verdict};
use crate::wire::Mac;

/// How many different warnings there are per lease.
const MOST: usize = 16;

/// What was reported for a lease so far.
#[derive(Debug, Default)]
#[expect(clippy::box_collection, reason = "few leases have anything to report")]
pub(in crate::binding) struct Warnings(Option<Box<BTreeSet<String>>>);

impl Warnings {
    /// Records that something is reported; false if it was reported before, or if too much was.
    pub(in crate::binding) fn is_new(&mut self, what: &str) -> bool {
        let seen = self.0.get_or_insert_default();
        seen.len() < MOST && seen.insert(what.to_owned())
    }
}

/// Counts what the client refused of an answer, or dropped from it, and reports it once, as it does what a server said with it.
pub(in crate::binding) fn tell(
    from: Option<(Option<Ipv4Addr>, Mac)>,
    output: &Output,
    cx: &mut Cx<'_>,
) {
    let (attachment, warnings) = (&cx.own.attachment, &mut cx.own.warnings);
    if let Some((from, mac)) = from {
        let from = from.map(tracing::field::display);
        if let Some(refused) = &output.refused {
            cx.out.counts.refused(refused);
            if refused.is_noise() || !warnings.is_new(&refused.to_string()) {
                tracing::debug!(%attachment, from, %mac, cause = %refused, "answer refused");
            } else {
                tracing::warn!(%attachment, from, %mac, cause = %refused, "answer refused");
            }
        }
        for dropped in &output.dropped {
            let cause = format_args!("option, {}", dropped.cause);
            cx.out.counts.refused(cause);
            if warnings.is_new(&dropped.to_string()) {
                tracing::warn!(%attachment, from, %mac, %dropped, "part of an answer dropped: the rest is used");
            }
        }
    }
    if let Some(said) = output.heard {
        cx.out.report(cx.own.id, Report::Heard(said));
    }
    if matches!(output.verdict, Some(Verdict::Lost(..))) {
        cx.own.warnings = Warnings::default();
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
