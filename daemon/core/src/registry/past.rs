//! The last address of identities that hold no lease, to be asked for when they return.
//!
//! A server knows a client that gave its lease back, and gives the same address again where that is asked for and still free
//! (RFC 2131 §4.3.1). What is remembered stands in the store, as the record that the lease had.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use crate::identity::IdentityKey;
use crate::record::BindingId;

/// So many identities are remembered; of more, those that were here last.
pub(super) const MOST: usize = 1024;

/// What is remembered of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Last {
    /// The record that says so.
    pub(super) record: BindingId,
    /// The address.
    pub(super) address: Ipv4Addr,
}

/// All that is remembered.
#[derive(Debug, Default)]
pub(super) struct Past {
    last: BTreeMap<IdentityKey, (u64, Last)>,
    count: u64,
}

impl Past {
    /// Remembers an identity's last address. Returns the record that is of no use any more, if there is one.
    pub(super) fn remember(&mut self, key: IdentityKey, last: Last) -> Option<BindingId> {
        self.count += 1;
        let replaced = self.last.insert(key, (self.count, last)).map(|(_, before)| before);
        let forgotten = replaced.or_else(|| {
            let oldest = self.last.iter().filter(|_| self.last.len() > MOST).min_by_key(|(_, (count, _))| *count);
            let oldest = oldest.map(|(key, _)| key.clone())?;
            self.last.remove(&oldest).map(|(_, last)| last)
        });
        forgotten.map(|last| last.record).filter(|record| *record != last.record)
    }

    /// Returns what is remembered of an identity.
    pub(super) fn of(&self, key: &IdentityKey) -> Option<Last> {
        self.last.get(key).map(|(_, last)| *last)
    }

    /// Forgets an identity.
    pub(super) fn forget(&mut self, key: &IdentityKey) {
        self.last.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{ClientId, Lan};

    fn key(n: u64) -> IdentityKey {
        (Lan::Network("lan".into()), ClientId::new(format!("\0{n}").into_bytes()).unwrap())
    }

    fn last(n: u64) -> Last {
        Last { record: BindingId(n), address: Ipv4Addr::from_bits(n as u32) }
    }

    #[test]
    fn the_identity_that_was_here_longest_ago_is_forgotten_first() {
        let mut past = Past::default();
        for n in 1..=MOST as u64 {
            assert_eq!(past.remember(key(n), last(n)), None);
        }
        assert_eq!(past.remember(key(1), last(5000)), Some(BindingId(1)), "its former record");
        assert_eq!(past.remember(key(6000), last(6000)), Some(BindingId(2)));
        assert_eq!((past.of(&key(2)), past.of(&key(1))), (None, Some(last(5000))));
        past.forget(&key(3));
        assert_eq!(past.remember(key(6001), last(6001)), None, "there is room again");
    }
}
