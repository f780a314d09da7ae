//! How often clients look for a lease, and when they last asked all servers. When exactly a message leaves is shown by the client's
//! own tests, to the millisecond.

use std::collections::{BTreeMap, VecDeque};

use netns_fixtures::model::{ClientKey, Purpose};

/// A minute, in microseconds.
const MINUTE: u64 = 60_000_000;
/// The most messages per minute of a client whose lease ends within seconds, or is refused again and again.
const MOST: usize = 60;

/// A client, by LAN and identifier.
type Who = (usize, ClientKey);

/// What clients said last.
#[derive(Debug, Default)]
pub(crate) struct Timing {
    /// When each client last asked all servers for a lease that it has, if it has said and heard nothing else since.
    claims: BTreeMap<Who, u64>,
    /// When each client asked for something in the last minute.
    asked: BTreeMap<Who, VecDeque<u64>>,
}

impl Timing {
    /// Forgets what clients said: their daemon ended, or a call makes some of them begin anew.
    pub(crate) fn begins_anew(&mut self) {
        *self = Self::default();
    }

    /// Forgets when a client asked: it has its answer, or goes on in another place.
    pub(crate) fn settled(&mut self, who: &Who) {
        self.claims.remove(who);
    }

    /// Returns when a client last asked all servers for a lease that it has, if it has said and heard nothing else since.
    pub(crate) fn last_claim(&self, who: &Who) -> Option<u64> {
        self.claims.get(who).copied()
    }

    /// Judges a message that a client sends.
    pub(crate) fn sent(&mut self, now: u64, who: Who, purpose: Purpose) -> Result<(), String> {
        self.settled(&who);
        if matches!(purpose, Purpose::Reboot | Purpose::Rebind) {
            self.claims.insert(who.clone(), now);
        }
        let asked = self.asked.entry(who).or_default();
        asked.retain(|at| now - at < MINUTE);
        asked.push_back(now);
        match asked.len() {
            0..=MOST => Ok(()),
            many => Err(format!(
                "{many} messages in a minute, the last a {purpose:?}"
            )),
        }
    }
}
