//! How often clients look for a lease, and when they last asked all servers. When exactly a message leaves is shown by the client's
//! own tests, to the millisecond.

use std::collections::{BTreeMap, VecDeque};

use netns_fixtures::model::{ClientKey, Purpose};

/// A minute, in microseconds.
const MINUTE: u64 = 60_000_000;
/// The most often per minute that a client asks that has lost its lease and is refused again and again.
const MOST_DISCOVERS: usize = 30;

/// A client, by LAN and identifier.
type Who = (usize, ClientKey);

/// What clients said last.
#[derive(Debug, Default)]
pub(crate) struct Timing {
    /// When each client last asked all servers for a lease that it has, if it has said and heard nothing else since.
    claims: BTreeMap<Who, u64>,
    /// When each client looked for a lease, in the last minute.
    discovers: BTreeMap<Who, VecDeque<u64>>,
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
        match purpose {
            Purpose::Reboot | Purpose::Rebind => _ = self.claims.insert(who, now),
            Purpose::Discover => {
                let discovers = self.discovers.entry(who).or_default();
                discovers.retain(|at| now - at < MINUTE);
                discovers.push_back(now);
                if discovers.len() > MOST_DISCOVERS {
                    return Err(format!("{} DISCOVER in a minute", discovers.len()));
                }
            }
            Purpose::Select | Purpose::Renew | Purpose::Decline | Purpose::Release => {}
        }
        Ok(())
    }
}
