//! The last addresses of identities that hold no lease, to be requested when they return: with another container, or with the
//! same one, which its engine starts again.
//!
//! A server knows a client that gave its lease back, and gives it the same address again if the client asks for that and it is
//! still free (RFC 2131 §4.3.1). What is remembered is in the store, as the record that the lease had.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use crate::identity::IdentityKey;
use crate::record::BindingId;

/// How many identities are remembered. Beyond that the oldest is forgotten.
pub(super) const MOST: usize = 1024;

/// What is remembered about an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastAddress {
    /// The record that says so.
    pub(super) record: BindingId,
    /// The address.
    pub(super) address: Ipv4Addr,
}

/// Everything that is remembered.
#[derive(Debug, Default)]
pub(super) struct Past {
    last: BTreeMap<IdentityKey, (u64, LastAddress)>,
    count: u64,
}

impl Past {
    /// Remembers an identity's last address. Returns the record that is no longer needed, if there is one.
    pub(super) fn remember(&mut self, key: IdentityKey, last: LastAddress) -> Option<BindingId> {
        self.count += 1;
        let replaced = self.last.insert(key, (self.count, last));
        let replaced = replaced.map(|(_, before)| before);
        let forgotten = replaced.or_else(|| {
            let all = self.last.iter().filter(|_| self.last.len() > MOST);
            let first = all
                .min_by_key(|(_, (count, _))| *count)
                .map(|(key, _)| key.clone())?;
            self.last.remove(&first).map(|(_, last)| last)
        });
        forgotten.map(|last| last.record)
    }

    pub(super) fn of(&self, key: &IdentityKey) -> Option<LastAddress> {
        self.last.get(key).map(|(_, last)| *last)
    }

    pub(super) fn forget(&mut self, key: &IdentityKey) {
        self.last.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{ClientId, Lan};

    fn key(n: u64) -> IdentityKey {
        (
            Lan::Network("lan".into()),
            ClientId::new(format!("\0{n}").into_bytes()).unwrap(),
        )
    }

    fn last(n: u64) -> LastAddress {
        LastAddress {
            record: BindingId(n),
            address: Ipv4Addr::from_bits(n as u32),
        }
    }

    #[test]
    fn the_oldest_identity_is_forgotten_first() {
        let mut past = Past::default();
        for n in 1..=MOST as u64 {
            assert_eq!(past.remember(key(n), last(n)), None);
        }
        // Its former record.
        assert_eq!(past.remember(key(1), last(5000)), Some(BindingId(1)));
        assert_eq!(past.remember(key(6000), last(6000)), Some(BindingId(2)));
        assert_eq!(
            (past.of(&key(2)), past.of(&key(1))),
            (None, Some(last(5000)))
        );
        past.forget(&key(3));
        // There is room again.
        assert_eq!(past.remember(key(6001), last(6001)), None);
    }
}
