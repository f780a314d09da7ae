//! What conflicts on a LAN have taught: how soon a new address may be tried there, and whose claims prove nothing.
//!
//! RFC 5227 §2.1.1 holds a host back that has met ten conflicts: one new address a minute. Here all attachments of a LAN count
//! together, since they take from one pool: a station that claims whatever is offered would empty it by way of a crowd. An
//! address that is found free ends that.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::identity::Lan;
use crate::time::Instant;
use crate::wire::Mac;

/// Conflicts in a row before new tries are held back (RFC 5227 §1.1), and DECLINEs of one ADD at most.
pub const MAX_CONFLICTS: u32 = 10;

/// From one new try to the next while they are held back (RFC 5227 §1.1).
pub const RATE_LIMIT_INTERVAL: Duration = Duration::from_secs(60);

/// Conflicts are in a row when the next comes within this: longer than any pause between two tries.
const ROW: Duration = Duration::from_secs(1200);

/// How long a station that answers for all is known as such.
const KNOWN: Duration = Duration::from_secs(300);

/// Stations of a LAN that are known as such, at most: the latest.
const MOST: usize = 8;

/// What is known of each LAN.
#[derive(Debug, Default)]
pub struct Lans(BTreeMap<Lan, Seen>);

/// What is known of one.
#[derive(Debug, Default)]
struct Seen {
    row: Option<Row>,
    proxies: Vec<Proxy>,
}

/// Conflicts in a row.
#[derive(Debug)]
struct Row {
    count: u32,
    last: Last,
    at: Instant,
    /// Before then no new address is tried, where that is held back.
    next: Instant,
}

/// The last address that was in use, and who uses it.
pub type Last = (Ipv4Addr, Mac);

/// A station that answers for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proxy {
    mac: Mac,
    /// What it answered for that nobody can have.
    pub control: Ipv4Addr,
    until: Instant,
}

/// No new address may be tried yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooSoon {
    /// When one may be.
    pub at: Instant,
    /// Conflicts in a row.
    pub conflicts: u32,
    /// The last of them.
    pub last: Last,
}

impl Lans {
    /// Counts a conflict. Returns whether new tries are held back from here on.
    pub fn conflict(&mut self, lan: &Lan, last: Last, now: Instant) -> bool {
        let seen = self.seen(lan, now);
        let count = seen.row.as_ref().map_or(1, |row| row.count.saturating_add(1));
        seen.row = Some(Row { count, last, at: now, next: now + RATE_LIMIT_INTERVAL });
        count == MAX_CONFLICTS
    }

    /// Records that an address is free: the conflicts before were not everybody's.
    pub fn free(&mut self, lan: &Lan) {
        if let Some(seen) = self.0.get_mut(lan) {
            seen.row = None;
        }
    }

    /// Begins to try a new address, if that is not too soon.
    pub fn begin(&mut self, lan: &Lan, now: Instant) -> Result<(), TooSoon> {
        self.tidy(now);
        let row = self.0.get_mut(lan).and_then(|seen| seen.row.as_mut());
        let Some(row) = row.filter(|row| row.count >= MAX_CONFLICTS) else { return Ok(()) };
        if now < row.next {
            return Err(TooSoon { at: row.next, conflicts: row.count, last: row.last });
        }
        row.next = now + RATE_LIMIT_INTERVAL;
        Ok(())
    }

    /// Records that a station answered for an address that nobody can have.
    pub fn answers_for_all(&mut self, lan: &Lan, mac: Mac, control: Ipv4Addr, now: Instant) {
        let proxies = &mut self.seen(lan, now).proxies;
        proxies.retain(|known| known.mac != mac);
        if proxies.len() == MOST {
            proxies.remove(0);
        }
        proxies.push(Proxy { mac, control, until: now + KNOWN });
    }

    /// Returns what is known of a station that answers for all.
    pub fn proxy(&self, lan: &Lan, mac: Mac, now: Instant) -> Option<Proxy> {
        let mut proxies = self.0.get(lan)?.proxies.iter();
        proxies.find(|known| known.mac == mac && now < known.until).copied()
    }

    fn seen(&mut self, lan: &Lan, now: Instant) -> &mut Seen {
        self.tidy(now);
        self.0.entry(lan.clone()).or_default()
    }

    /// Forgets what is past: of a LAN that is at peace nothing is kept.
    fn tidy(&mut self, now: Instant) {
        self.0.retain(|_, seen| {
            seen.row.take_if(|row| now >= row.at + ROW);
            seen.proxies.retain(|known| now < known.until);
            seen.row.is_some() || !seen.proxies.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: Last = (Ipv4Addr::new(192, 0, 2, 50), Mac([2, 0, 0, 0, 0, 9]));
    const CONTROL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);

    fn at(seconds: f64) -> Instant {
        Instant::from_boot(Duration::from_secs_f64(seconds))
    }

    fn lan(name: &str) -> Lan {
        Lan::Network(name.to_owned())
    }

    fn conflicts(count: u32, lans: &mut Lans, now: Instant) -> u32 {
        (0..count).filter(|_| lans.conflict(&lan("a"), LAST, now)).count() as u32
    }

    #[test]
    fn after_ten_conflicts_one_new_address_a_minute_is_tried() {
        let mut lans = Lans::default();
        assert_eq!(conflicts(9, &mut lans, at(0.0)), 0);
        assert!((0..100).all(|_| lans.begin(&lan("a"), at(0.0)).is_ok()), "nine are no reason");
        assert_eq!(conflicts(1, &mut lans, at(0.0)), 1);
        let too_soon = |at, conflicts| Err(TooSoon { at, conflicts, last: LAST });
        assert_eq!(lans.begin(&lan("a"), at(59.999)), too_soon(at(60.0), 10));
        assert_eq!(lans.begin(&lan("b"), at(0.0)), Ok(()), "each LAN has its own");
        assert_eq!(lans.begin(&lan("a"), at(60.0)), Ok(()));
        assert_eq!(lans.begin(&lan("a"), at(60.0)), too_soon(at(120.0), 10), "one for all of the LAN");
        assert_eq!(conflicts(1, &mut lans, at(61.0)), 0, "said once");
        assert_eq!(lans.begin(&lan("a"), at(120.999)), too_soon(at(121.0), 11));
    }

    #[test]
    fn an_address_that_is_free_ends_that_and_so_do_twenty_minutes() {
        let mut lans = Lans::default();
        conflicts(10, &mut lans, at(0.0));
        lans.free(&lan("a"));
        assert_eq!(lans.begin(&lan("a"), at(0.0)), Ok(()));
        conflicts(10, &mut lans, at(0.0));
        conflicts(1, &mut lans, at(1199.999));
        assert!(lans.begin(&lan("a"), at(1200.0)).is_err(), "still in a row");
        assert_eq!(lans.begin(&lan("a"), at(2400.0)), Ok(()));
        assert!(lans.0.is_empty(), "nothing is kept");
    }

    #[test]
    fn who_answers_for_all_is_known_for_five_minutes_and_eight_of_them() {
        let mut lans = Lans::default();
        let mac = |n| Mac([2, 0, 0, 0, 0, n]);
        lans.answers_for_all(&lan("a"), mac(0), CONTROL, at(0.0));
        let known = |lans: &Lans, name, n, now| lans.proxy(&lan(name), mac(n), at(now)).map(|proxy| proxy.control);
        assert_eq!(known(&lans, "a", 0, 299.999), Some(CONTROL));
        assert_eq!([known(&lans, "a", 0, 300.0), known(&lans, "b", 0, 0.0), known(&lans, "a", 1, 0.0)], [None; 3]);
        (1..=8).for_each(|n| lans.answers_for_all(&lan("a"), mac(n), CONTROL, at(1.0)));
        assert_eq!((known(&lans, "a", 0, 1.0), known(&lans, "a", 1, 1.0)), (None, Some(CONTROL)));
        lans.answers_for_all(&lan("a"), mac(1), CONTROL, at(2.0));
        lans.answers_for_all(&lan("a"), mac(9), CONTROL, at(2.0));
        assert_eq!((known(&lans, "a", 1, 2.0), known(&lans, "a", 2, 2.0)), (Some(CONTROL), None));
        assert_eq!(lans.begin(&lan("b"), at(400.0)), Ok(()));
        assert!(lans.0.is_empty());
    }
}
