//! When clients may speak: T1, T2, and how long they wait before they repeat a message (RFC 2131 §4.1, §4.4.5).
//!
//! The rules are written down here a second time, from the RFC and the documents, not from the core.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

use netns_fixtures::model::{ClientKey, Message, Purpose, code};

/// A second, in microseconds.
const SECOND: u64 = 1_000_000;
/// Clocks are read to the microsecond; computed times may be off by one.
const GRAIN: u64 = 2;
/// The most often per minute that a client asks that has lost its lease and is refused again and again.
const MOST_DISCOVERS: usize = 30;
/// When the first message of an ADD whose link has just come up is repeated, at the earliest, and then once more; they count as one.
const SOON: u64 = SECOND / 50;
/// How late a client may be if nothing keeps it from its server: it has to open sockets and ask by ARP.
const PROMPT: u64 = 15 * SECOND;

/// The times of a lease as its client knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// When the REQUEST was sent.
    pub(crate) start: u64,
    /// T1, T2 and the end, as times.
    pub(crate) t1: u64,
    pub(crate) t2: u64,
    pub(crate) end: u64,
}

impl Times {
    /// Returns the times in an ACK to a REQUEST sent at `start`; `None` for a lease without end.
    pub(crate) fn of(ack: &Message, start: u64) -> Option<Self> {
        let seconds = ack
            .number(code::LEASE_TIME)
            .filter(|seconds| *seconds != u32::MAX)?;
        let lease = u64::from(seconds) * SECOND;
        let given = |code| ack.number(code).map(|seconds| u64::from(seconds) * SECOND);
        let (t1, t2) = match (given(code::T1), given(code::T2)) {
            (Some(t1), Some(t2)) if 3 * SECOND <= t1 && t1 < t2 && t2 < lease => (t1, t2),
            _ => (lease / 2, lease / 8 * 7),
        };
        Some(Self {
            start,
            t1: start + t1,
            t2: start + t2,
            end: start + lease,
        })
    }
}

/// What a client said last, and what it knows.
#[derive(Debug, Default)]
struct Client {
    /// The last two leases: an ACK that arrives between two phases may not have counted.
    leases: VecDeque<Times>,
    /// When it heard about the last lease.
    heard: u64,
    /// When it last asked all servers for a lease that it has, if it has said nothing else since.
    claimed: Option<u64>,
    /// The last message: its purpose, its xid and the server that it asks, when it was sent, and which of its kind in a row it
    /// was.
    last: Option<(Purpose, Asked, u64, u32)>,
    discovers: VecDeque<u64>,
    /// How often it may still repeat a first message soon: twice since somebody asked for it, and twice for the previous ADD, which may
    /// still do that too.
    fresh: u32,
    /// How often it may ask once more before it falls back to a local range: once for each ADD, also for the previous one, whose
    /// time may end later.
    once_more: u32,
    /// Whether it went on in another place: what it began to ask for in the old place counts from there.
    moved: bool,
}

/// The xid of a message, and the server whose offer it asks for.
pub(crate) type Asked = (u32, Option<Ipv4Addr>);

/// All clients, by LAN and identifier.
#[derive(Debug, Default)]
pub(crate) struct Timing {
    clients: BTreeMap<(usize, ClientKey), Client>,
    /// Since when nothing has gone wrong.
    healed: Option<u64>,
    /// Whether clients fall back to a local range.
    falls_back: bool,
    /// When the host last awoke: messages that were due before are sent then.
    awoke: u64,
}

impl Timing {
    /// Returns the state in which nobody has said anything yet. `falls_back`: clients may fall back to a local range.
    pub(crate) fn new(falls_back: bool) -> Self {
        Self {
            falls_back,
            ..Self::default()
        }
    }

    /// Forgets what clients knew, because their daemon ended.
    pub(crate) fn daemon_ended(&mut self) {
        self.clients.clear();
    }

    /// Records that from now on nothing keeps clients from their servers.
    pub(crate) fn healed(&mut self, now: u64) {
        self.healed = Some(now);
    }

    /// Records that the host has slept.
    pub(crate) fn awakes(&mut self, now: u64) {
        self.awoke = now;
    }

    /// Records that a client knows a lease, from an ACK that it hears or from its record.
    pub(crate) fn knows(&mut self, now: u64, who: (usize, ClientKey), times: Times) {
        let client = self.clients.entry(who).or_default();
        if client.leases.back() != Some(&times) {
            client.leases.push_back(times);
            client.heard = now;
            // The lease counts from its first REQUEST, maybe long before the one that was answered: its T1 may be soon.
            (client.last, client.claimed) = (None, None);
            while client.leases.len() > 2 {
                client.leases.pop_front();
            }
        }
    }

    /// Returns when a client's last lease began, as far as the client knows.
    pub(crate) fn last_start(&self, who: &(usize, ClientKey)) -> Option<u64> {
        self.clients
            .get(who)?
            .leases
            .back()
            .map(|lease| lease.start)
    }

    /// Records that a client begins anew, because somebody asked for it.
    pub(crate) fn asked(&mut self, who: &(usize, ClientKey)) {
        let falls_back = self.falls_back;
        let client = self.clients.entry(who.clone()).or_default();
        (client.last, client.claimed) = (None, None);
        client.fresh = (client.fresh + 2).min(4);
        client.once_more = (client.once_more + u32::from(falls_back)).min(2);
        client.discovers.clear();
    }

    /// Records that a server refuses what a client asked for: if it is offered and requested again, that is not a repetition.
    pub(crate) fn refused(&mut self, who: &(usize, ClientKey)) {
        if let Some(client) = self.clients.get_mut(who) {
            client.last = client
                .last
                .filter(|(purpose, ..)| *purpose != Purpose::Select);
        }
    }

    /// Records that a client begins again in another place.
    pub(crate) fn moved(&mut self, now: u64, who: &(usize, ClientKey)) {
        self.asked(who);
        // An extension that was about to leave from there is repeated later.
        self.healed = self.healed.map(|_| now);
        self.clients
            .get_mut(who)
            .into_iter()
            .for_each(|client| (client.moved, client.fresh) = (true, 0));
    }

    /// Returns when a client last asked all servers for a lease that it has, if it has said nothing else since.
    pub(crate) fn last_claim(&self, who: &(usize, ClientKey)) -> Option<u64> {
        self.clients.get(who)?.claimed
    }

    /// Judges a message that a client sends. `waited_for`: a caller waits for it. `early`: its server seems to have forgotten its
    /// lease, so it may renew before T1.
    pub(crate) fn sent(
        &mut self,
        now: u64,
        who: (usize, ClientKey),
        purpose: Purpose,
        asked: Asked,
        waited_for: bool,
        early: bool,
    ) -> Result<(), String> {
        let (healed, awoke) = (self.healed, self.awoke);
        let client = self.clients.entry(who).or_default();
        let before = client.last.filter(|(kind, ..)| *kind == purpose);
        let same_xid = before.filter(|(_, other, ..)| *other == asked);
        let nth = same_xid.map_or(1, |(.., nth)| nth + 1);
        let gap = before.map(|(_, _, at, _)| now - at);
        let is_first = matches!(purpose, Purpose::Discover | Purpose::Reboot) && nth == 2;
        let is_in_time = |gap: u64| gap + GRAIN < backoff(1, 8) || awoke > now - gap;
        let soon = is_first
            && client.fresh > 0
            && gap.is_some_and(|gap| gap + GRAIN >= SOON && is_in_time(gap));
        client.fresh -= u32::from(soon);
        client.last = Some((purpose, asked, now, if soon { 1 } else { nth }));
        client.claimed = matches!(purpose, Purpose::Reboot | Purpose::Rebind).then_some(now);
        if soon {
            return Ok(());
        }
        match purpose {
            Purpose::Renew | Purpose::Rebind | Purpose::Reboot if early => {
                client.last = None;
                Ok(())
            }
            Purpose::Renew | Purpose::Rebind => client.extends(now, purpose, gap, healed),
            Purpose::Discover => {
                client.discovers(now, nth, gap.filter(|_| same_xid.is_some()), waited_for)
            }
            Purpose::Select | Purpose::Reboot => {
                let again = gap.filter(|_| same_xid.is_some());
                // While its address is not on the interface, a client extends its lease in INIT-REBOOT form.
                let extends = |phase| {
                    purpose == Purpose::Reboot && client.extends(now, phase, again, None).is_ok()
                };
                if extends(Purpose::Renew) || extends(Purpose::Rebind) {
                    return Ok(());
                }
                let most = if purpose == Purpose::Select { 3 } else { 2 };
                let least = backoff(nth - 1, 8);
                match again {
                    _ if nth > most => Err(format!("{purpose:?} for the {nth}th time")),
                    Some(gap) if gap + GRAIN < least => {
                        Err(format!("{purpose:?} again after {gap} µs"))
                    }
                    _ => Ok(()),
                }
            }
            Purpose::Decline | Purpose::Release => {
                client.last = None;
                Ok(())
            }
        }
    }
}

impl Client {
    /// Judges RENEW, which belongs between T1 and T2, and REBIND, between T2 and the end; neither may be repeated too soon. Both
    /// times may be early by a sixteenth.
    fn extends(
        &self,
        now: u64,
        purpose: Purpose,
        gap: Option<u64>,
        healed: Option<u64>,
    ) -> Result<(), String> {
        let window = |lease: &Times| match purpose {
            Purpose::Renew => ((lease.t1 - lease.start) / 16, lease.t1, lease.t2),
            _ => ((lease.t2 - lease.t1) / 16, lease.t2, lease.end),
        };
        let fits = |lease: &&Times| {
            let (early, from, until) = window(lease);
            let early = if self.moved { 2 * early } else { early };
            (from - early..until).contains(&(now + GRAIN))
        };
        let Some(lease) = self.leases.iter().rev().find(fits) else {
            return Err(format!(
                "{purpose:?} outside of its window, of {:?}",
                self.leases
            ));
        };
        let (_, from, until) = window(lease);
        let floor = ((until - from) / 16 * 15 / 8).clamp(SECOND, 60 * SECOND);
        match gap {
            Some(gap) if gap + GRAIN < floor => {
                Err(format!("{purpose:?} again after {gap} µs, least {floor}"))
            }
            None if healed.is_some_and(|healed| lease.start > healed)
                && now > from.max(self.heard) + PROMPT =>
            {
                Err(format!(
                    "{purpose:?} {} s late, of {lease:?}",
                    (now - from) / SECOND
                ))
            }
            _ => Ok(()),
        }
    }

    /// Judges DISCOVER: after 1, 2, 4, 8 s while somebody waits, up to a minute while nobody does, and never too many.
    fn discovers(
        &mut self,
        now: u64,
        nth: u32,
        gap: Option<u64>,
        waited_for: bool,
    ) -> Result<(), String> {
        let least = backoff(nth.saturating_sub(1), if waited_for { 8 } else { 60 });
        if let Some(gap) = gap.filter(|gap| gap + GRAIN < least) {
            self.once_more = self
                .once_more
                .checked_sub(1)
                .ok_or_else(|| format!("DISCOVER number {nth} after {gap} µs, least {least}"))?;
            return Ok(());
        }
        self.discovers.retain(|at| now - at < 60 * SECOND);
        self.discovers.push_back(now);
        match self.discovers.len() {
            many if many > MOST_DISCOVERS => Err(format!("{many} DISCOVER in a minute")),
            _ => Ok(()),
        }
    }
}

/// Returns the least wait after the `sent`-th message: 1, 2, 4 … s up to `cap`, less an eighth.
fn backoff(sent: u32, cap: u64) -> u64 {
    let base = (1u64 << sent.saturating_sub(1).min(6)).min(cap) * SECOND;
    if sent == 0 { 0 } else { base - base / 8 }
}
