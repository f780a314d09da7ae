//! Free addresses as spans, so that the next one is found without looking at taken ones.
//!
//! Both families share one map: [`IpAddr`] orders all of IPv4 before all of IPv6, and each family by number. No span
//! holds addresses of both.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Free addresses: the first of each span, and its last.
#[derive(Clone, Debug, Default)]
pub(super) struct Free(BTreeMap<IpAddr, IpAddr>);

impl Free {
    /// Adds the addresses from `first` to `last`, none of which is there yet.
    pub(super) fn add(&mut self, mut first: IpAddr, mut last: IpAddr) {
        if let Some((&start, &end)) = self.0.range(..first).next_back()
            && after(end) == Some(first)
        {
            first = start;
        }
        if let Some(end) = after(last).and_then(|next| self.0.remove(&next)) {
            last = end;
        }
        self.0.insert(first, last);
    }

    /// Takes an address. Returns whether it was free.
    pub(super) fn take(&mut self, address: IpAddr) -> bool {
        let Some((first, last)) = self.span_of(address) else {
            return false;
        };
        self.0.remove(&first);
        if let Some(end) = before(address).filter(|end| first <= *end) {
            self.0.insert(first, end);
        }
        if let Some(start) = after(address).filter(|start| *start <= last) {
            self.0.insert(start, last);
        }
        true
    }

    pub(super) fn first_in(&self, from: IpAddr, to: IpAddr) -> Option<IpAddr> {
        let within = self.span_of(from).map(|_| from);
        let first = within.or_else(|| self.0.range(from..).next().map(|(first, _)| *first));
        first.filter(|address| *address <= to)
    }

    fn span_of(&self, address: IpAddr) -> Option<(IpAddr, IpAddr)> {
        let (first, last) = self.0.range(..=address).next_back()?;
        (address <= *last).then_some((*first, *last))
    }
}

pub(super) fn after(address: IpAddr) -> Option<IpAddr> {
    plus(address, 1)
}

/// Returns the address before this one, if its family has any.
pub(super) fn before(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => address
            .to_bits()
            .checked_sub(1)
            .map(|bits| Ipv4Addr::from_bits(bits).into()),
        IpAddr::V6(address) => address
            .to_bits()
            .checked_sub(1)
            .map(|bits| Ipv6Addr::from_bits(bits).into()),
    }
}

/// Returns the address `n` after this one, if its family has that many.
pub(super) fn plus(address: IpAddr, n: u128) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => {
            let bits = address.to_bits().checked_add(u32::try_from(n).ok()?)?;
            Some(Ipv4Addr::from_bits(bits).into())
        }
        IpAddr::V6(address) => address
            .to_bits()
            .checked_add(n)
            .map(|bits| Ipv6Addr::from_bits(bits).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn spans(free: &Free) -> String {
        free.0
            .iter()
            .map(|(first, last)| format!("{first}-{last}"))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn spans_part_and_join_again() {
        let mut free = Free::default();
        free.add(ip("10.0.0.1"), ip("10.0.0.5"));
        for (address, left) in [
            ("10.0.0.3", "10.0.0.1-10.0.0.2 10.0.0.4-10.0.0.5"),
            ("10.0.0.1", "10.0.0.2-10.0.0.2 10.0.0.4-10.0.0.5"),
            ("10.0.0.5", "10.0.0.2-10.0.0.2 10.0.0.4-10.0.0.4"),
            ("10.0.0.2", "10.0.0.4-10.0.0.4"),
            ("10.0.0.4", ""),
        ] {
            assert!(
                free.take(ip(address)) && !free.take(ip(address)),
                "{address}"
            );
            assert_eq!(spans(&free), left, "{address}");
        }
        for (address, left) in [
            ("10.0.0.4", "10.0.0.4-10.0.0.4"),
            ("10.0.0.2", "10.0.0.2-10.0.0.2 10.0.0.4-10.0.0.4"),
            ("10.0.0.3", "10.0.0.2-10.0.0.4"),
            ("10.0.0.1", "10.0.0.1-10.0.0.4"),
            ("10.0.0.5", "10.0.0.1-10.0.0.5"),
        ] {
            free.add(ip(address), ip(address));
            assert_eq!(spans(&free), left, "{address}");
        }
    }

    #[test]
    fn families_end_where_their_addresses_do() {
        let last_v4 = ip("255.255.255.255");
        let first_v6 = ip("::");
        let last_v6 = ip("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
        let mut free = Free::default();
        [last_v4, first_v6, last_v6]
            .into_iter()
            .for_each(|address| free.add(address, address));
        assert_eq!(free.0.len(), 3, "{free:?}");
        assert_eq!(free.first_in(ip("255.255.255.254"), last_v4), Some(last_v4));
        assert_eq!(free.first_in(ip("10.0.0.0"), ip("10.0.0.9")), None);
        assert!(
            free.take(first_v6) && free.take(last_v6) && free.take(last_v4) && free.0.is_empty()
        );
        assert_eq!(
            (
                before(ip("0.0.0.0")),
                before(first_v6),
                after(last_v4),
                after(last_v6)
            ),
            (None, None, None, None)
        );
    }

    #[test]
    fn the_next_free_address_is_not_beyond_the_end() {
        let mut free = Free::default();
        free.add(ip("10.0.0.4"), ip("10.0.0.6"));
        for (from, to, next) in [
            ("10.0.0.1", "10.0.0.9", Some("10.0.0.4")),
            ("10.0.0.5", "10.0.0.9", Some("10.0.0.5")),
            ("10.0.0.1", "10.0.0.4", Some("10.0.0.4")),
            ("10.0.0.1", "10.0.0.3", None),
            ("10.0.0.7", "10.0.0.9", None),
            ("10.0.0.6", "10.0.0.5", None),
        ] {
            assert_eq!(
                free.first_in(ip(from), ip(to)),
                next.map(ip),
                "{from} to {to}"
            );
        }
    }
}
