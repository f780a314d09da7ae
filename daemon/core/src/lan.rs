//! One account of each LAN: which servers said what and when, which stopped to answer, which are on the wire, how many addresses were
//! declined, whose claims prove nothing, and which ADDs came to nothing there.
//!
//! Rules and surfaces ask here instead of each keeping its own: whether a caller with little patience is kept waiting, whether a
//! server still extends leases, what `status` reports. What is known about a LAN grows old, and is forgotten.
//!
//! RFC 5227 §2.1.1 slows down a host that has met ten conflicts: one new address a minute. That is for a host which chooses its
//! addresses itself. Here a server chooses, and what costs the LAN something is the DECLINE, which takes an address out of the
//! pool. If tries were slowed down, one container with forged ARP would keep all others of its LAN from starting. So tries are
//! not held back, and DECLINEs are: [`MOST_DECLINES`] for a LAN in ten minutes. Without one an ADD that meets a conflict
//! ends. In the background the pauses between tries grow to ten minutes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;

use crate::identity::{Attachment, Lan};
use crate::patience::REMEMBERED;
use crate::rules::{Rule, cut};
use crate::time::{Instant, Now, WallTime};
use crate::trouble::{Subject, Trouble, TroubleKind};
use crate::wire::Mac;

/// For how long a LAN's servers count as silent after a request without an offer.
const GAVE_UP: Duration = Duration::from_secs(60);

/// How long it is known what a server said.
const SAID: Duration = Duration::from_secs(3600);

/// The most LANs, and the most servers of one, that there is an account of.
const MOST: usize = 256;
const MOST_SERVERS: usize = 16;

/// How many DECLINEs the clients of a LAN may send within ten minutes.
pub(crate) const MOST_DECLINES: usize = 10;

/// How many stations that answer for all addresses are remembered of a LAN: the latest.
const MOST_PROXIES: usize = 8;

/// The account of each LAN.
#[derive(Debug, Default)]
pub(crate) struct Accounts(BTreeMap<Lan, Account>);

/// What is known about one LAN.
#[derive(Debug, Default)]
struct Account {
    /// When a request was last given up without an offer, if no address became free since.
    gave_up: Option<Instant>,
    /// ADDs that failed since the last one that succeeded.
    failed: Option<Failed>,
    servers: BTreeMap<Ipv4Addr, Server>,
    /// When the last DECLINEs were sent.
    declines: Vec<Instant>,
    /// The stations that answer for every address, and when each was found to.
    proxies: Vec<(Mac, Instant)>,
}

/// ADDs that failed.
#[derive(Debug)]
struct Failed {
    count: usize,
    since: WallTime,
    last: Instant,
    /// Whose the last one was, and why it failed.
    whose: Attachment,
    why: String,
}

/// What is known about a server.
#[derive(Debug, Default)]
struct Server {
    /// When it was last believed, whatever it said.
    heard: Option<Instant>,
    /// When it last answered a request to extend or confirm a lease.
    extended: Option<Instant>,
    /// When it last acknowledged a lease to anybody.
    acknowledged: Option<Instant>,
    /// The subnet that it last offered.
    subnet: Option<Ipv4Net>,
    /// Since when it has not answered such requests.
    silent: Option<Now>,
    /// When it was asked whether it is on the wire, and whether it has answered. A frame sent over the macvlans' parent link leaves on
    /// the wire and reaches none of them: a server that does not answer may be in a macvlan itself.
    asked: Option<(Instant, bool)>,
}

/// What a server said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// Who said it: its identifier.
    pub server: Ipv4Addr,
    /// The subnet of the address that it offers or grants; `None`: it refuses.
    pub subnet: Option<Ipv4Net>,
    /// Whether this answers a request to extend or confirm a lease.
    pub extends: bool,
    /// Whether it acknowledges a lease.
    pub acknowledges: bool,
}

impl Account {
    /// Returns what is known about a server. Of too many, the one that was heard first is forgotten.
    fn server(&mut self, server: Ipv4Addr) -> &mut Server {
        if !self.servers.contains_key(&server) {
            make_room(&mut self.servers, MOST_SERVERS, Server::last);
        }
        self.servers.entry(server).or_default()
    }

    /// Returns when a server was last believed.
    fn heard(&self) -> Option<Instant> {
        self.servers
            .values()
            .filter_map(|server| server.heard)
            .max()
    }

    /// Returns when anything was last learnt that still counts.
    fn last(&self) -> Option<Instant> {
        let failed = self.failed.as_ref().map(|failed| failed.last);
        let servers = self.servers.values().flat_map(Server::last);
        let claims = self.proxies.iter().map(|(_, at)| *at);
        let learnt = servers.chain(claims).chain(self.declines.iter().copied());
        learnt.chain(failed).chain(self.gave_up).max()
    }
}

impl Server {
    fn last(&self) -> Option<Instant> {
        let asked = self.asked.map(|(at, _)| at);
        let silent = self.silent.map(|silent| silent.boot);
        self.heard.max(silent).max(asked)
    }

    /// Returns whether it is on the wire, if it was asked lately.
    fn wire(&self, now: Instant) -> Option<bool> {
        let asked = self.asked.filter(|(at, _)| counts(*at, now));
        asked.map(|(_, on_wire)| on_wire)
    }
}

impl Accounts {
    fn of(&mut self, lan: &Lan, now: Instant) -> &mut Account {
        if !self.0.contains_key(lan) {
            self.0
                .retain(|_, account| account.last().is_some_and(|last| now < last + SAID));
            make_room(&mut self.0, MOST, Account::last);
        }
        self.0.entry(lan.clone()).or_default()
    }

    pub(crate) fn no_offer(&mut self, lan: &Lan, now: Instant) {
        self.of(lan, now).gave_up = Some(now);
    }

    /// Records that an address became free: if none was left, there is one now.
    pub(crate) fn has_room(&mut self, lan: &Lan) {
        if let Some(account) = self.0.get_mut(lan) {
            account.gave_up = None;
        }
    }

    /// Returns whether a request had no offer a moment ago, and no server has been heard since.
    pub(crate) fn is_silent(&self, lan: &Lan, now: Instant) -> bool {
        let account = self.0.get(lan);
        let since = account.and_then(|account| Some((account, account.gave_up?)));
        since.is_some_and(|(account, since)| now < since + GAVE_UP && account.heard() < Some(since))
    }

    /// Returns whether any server has been heard since then.
    pub(crate) fn heard_since(&self, lan: &Lan, since: Instant) -> bool {
        let heard = self.0.get(lan).and_then(Account::heard);
        heard.is_some_and(|heard| heard >= since)
    }

    /// Records that an ADD failed for a reason of the host or the LAN.
    pub(crate) fn add_failed(&mut self, lan: &Lan, whose: &Attachment, why: String, now: Now) {
        let failed = &mut self.of(lan, now.boot).failed;
        let before = failed.take().filter(|failed| counts(failed.last, now.boot));
        let (count, since) = before.map_or((0, now.wall), |failed| (failed.count, failed.since));
        *failed = Some(Failed {
            count: count + 1,
            since,
            last: now.boot,
            whose: whose.clone(),
            why,
        });
    }

    pub(crate) fn add_succeeded(&mut self, lan: &Lan) {
        if let Some(account) = self.0.get_mut(lan) {
            account.failed = None;
        }
    }

    /// Records what a server said that is believed. Returns since when it had not answered, if it does so again.
    pub(crate) fn heard(&mut self, lan: &Lan, said: Said, now: Instant) -> Option<Now> {
        let server = self.of(lan, now).server(said.server);
        server.heard = Some(now);
        server.subnet = said.subnet.map(|net| net.trunc()).or(server.subnet);
        if said.acknowledges {
            server.acknowledged = Some(now);
        }
        if !said.extends {
            return None;
        }
        server.extended = Some(now);
        server.silent.take()
    }

    pub(crate) fn last_server(&self, lan: &Lan) -> Option<Ipv4Addr> {
        let servers = self.0.get(lan)?.servers.iter();
        let last = servers.max_by_key(|(_, server)| server.heard)?;
        last.1.heard.map(|_| *last.0)
    }

    /// Returns whether a server has acknowledged anybody's lease since then.
    pub(crate) fn acknowledged_since(&self, lan: &Lan, server: Ipv4Addr, since: Instant) -> bool {
        let account = self.0.get(lan);
        let server = account.and_then(|account| account.servers.get(&server));
        server.is_some_and(|server| server.acknowledged >= Some(since))
    }

    /// Records that a server was asked in vain to extend a lease, since then. Returns whether that is news: it has extended no other
    /// lease meanwhile, and was not known to be silent.
    pub(crate) fn asked_in_vain(
        &mut self,
        lan: &Lan,
        server: Ipv4Addr,
        since: Instant,
        now: Now,
    ) -> bool {
        let server = self.of(lan, now.boot).server(server);
        let is_news = server.silent.is_none() && server.extended < Some(since);
        if is_news {
            server.silent = Some(Now {
                boot: since,
                wall: now.wall_at(since),
            });
        }
        is_news
    }

    /// Returns since when a server has answered no request to extend a lease, if it is known to be silent.
    pub(crate) fn silent_since(&self, lan: &Lan, server: Ipv4Addr) -> Option<Now> {
        self.0.get(lan)?.servers.get(&server)?.silent
    }

    /// Returns the servers that do not extend leases any more, and for how long.
    pub(crate) fn silent(&self, now: Instant) -> Vec<(Lan, Ipv4Addr, Duration)> {
        let of_lan = |(lan, account): (&Lan, &Account)| {
            let silent = |(server, known): (&Ipv4Addr, &Server)| {
                let since = known.silent?.boot;
                Some((lan.clone(), *server, now.saturating_since(since)))
            };
            account
                .servers
                .iter()
                .filter_map(silent)
                .collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of_lan).collect()
    }

    /// Counts a DECLINE. Returns whether it may be sent.
    pub(crate) fn decline(&mut self, lan: &Lan, now: Instant) -> bool {
        let may = self.may_decline(lan, now);
        let declines = &mut self.of(lan, now).declines;
        declines.retain(|at| counts(*at, now));
        declines.extend(may.then_some(now));
        may
    }

    /// Returns whether a DECLINE may be sent.
    pub(crate) fn may_decline(&self, lan: &Lan, now: Instant) -> bool {
        let declines = self.0.get(lan).map_or(&[][..], |known| &known.declines);
        let last = declines.iter().filter(|at| counts(**at, now));
        last.count() < MOST_DECLINES || cut(Rule::DeclineLimit)
    }

    /// Records that a station answered for an address that nobody can have.
    pub(crate) fn answers_for_all(&mut self, lan: &Lan, mac: Mac, now: Instant) {
        let proxies = &mut self.of(lan, now).proxies;
        proxies.retain(|(known, _)| *known != mac);
        if proxies.len() == MOST_PROXIES {
            proxies.remove(0);
        }
        proxies.push((mac, now));
    }

    /// Returns whether a station is known to answer for every address.
    pub(crate) fn is_proxy(&self, lan: &Lan, mac: Mac, now: Instant) -> bool {
        let proxies = self.0.get(lan).map_or(&[][..], |known| &known.proxies);
        let is_it = |(known, at): &(Mac, Instant)| *known == mac && counts(*at, now);
        proxies.iter().any(is_it)
    }

    /// Returns whether all servers that clients have chosen lately are on the wire, and one of them is acceptable.
    pub(crate) fn are_on_wire(
        &self,
        lan: &Lan,
        fits: impl Fn(Ipv4Addr) -> bool,
        now: Instant,
    ) -> bool {
        let servers = self.0.get(lan).into_iter().flat_map(|known| &known.servers);
        let asked = servers.filter_map(|(server, known)| Some((*server, known.wire(now)?)));
        let asked: Vec<_> = asked.collect();
        asked.iter().all(|(_, on_wire)| *on_wire) && asked.iter().any(|(server, _)| fits(*server))
    }

    /// Returns whether a server is known to be on the wire; `None`: it is to be asked, and counts as asked now.
    pub(crate) fn is_on_wire(&mut self, lan: &Lan, server: Ipv4Addr, now: Instant) -> Option<bool> {
        let server = self.of(lan, now).server(server);
        let is_on_wire = server.wire(now);
        if is_on_wire.is_none() {
            server.asked = Some((now, false));
        }
        is_on_wire
    }

    /// Records that a station has answered by ARP.
    pub(crate) fn answered(&mut self, lan: &Lan, address: Ipv4Addr) {
        let account = self.0.get_mut(lan);
        let server = account.and_then(|known| known.servers.get_mut(&address));
        if let Some((_, on_wire)) = server.and_then(|server| server.asked.as_mut()) {
            *on_wire = true;
        }
    }

    /// Returns what is wrong with LANs. `held`: the server and the subnet of each lease.
    pub(crate) fn troubles<'a>(
        &'a self,
        held: impl Iterator<Item = (&'a Lan, Ipv4Addr, Ipv4Net)>,
        now: Instant,
    ) -> Vec<Trouble> {
        let failed = self.0.iter().filter_map(|(lan, account)| {
            let failed = account.failed.as_ref()?;
            counts(failed.last, now).then(|| failed.trouble(lan))
        });
        let mut subnets: BTreeMap<&Lan, BTreeMap<Ipv4Addr, Ipv4Net>> = BTreeMap::new();
        for (lan, server, subnet) in held {
            subnets
                .entry(lan)
                .or_default()
                .insert(server, subnet.trunc());
        }
        for (lan, account) in &self.0 {
            for (server, said) in &account.servers {
                let lately = said.heard.is_some_and(|heard| now < heard + SAID);
                if let Some(subnet) = said.subnet.filter(|_| lately) {
                    subnets.entry(lan).or_default().insert(*server, subnet);
                }
            }
        }
        let differ = subnets
            .into_iter()
            .filter_map(|(lan, subnets)| differ(lan, &subnets));
        failed.chain(differ).collect()
    }
}

/// Forgets what was learnt longest ago, if there is no room for more.
fn make_room<K: Ord + Clone, V>(
    known: &mut BTreeMap<K, V>,
    most: usize,
    last: impl Fn(&V) -> Option<Instant>,
) {
    if known.len() < most {
        return;
    }
    let oldest = known.iter().min_by_key(|(_, it)| last(it));
    if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
        known.remove(&oldest);
    }
}

/// Returns whether what happened at a time still counts.
fn counts(at: Instant, now: Instant) -> bool {
    now < at + REMEMBERED
}

impl Failed {
    fn trouble(&self, lan: &Lan) -> Trouble {
        let Self {
            count,
            since,
            whose,
            why,
            ..
        } = self;
        let adds = if *count == 1 {
            format!("the ADD of {whose} on {lan} failed")
        } else {
            format!("{count} ADDs on {lan} failed, the last that of {whose}")
        };
        let probe = lan.parent().map_or_else(
            || "the log names each".to_owned(),
            |parent| format!("`leasehold probe {parent}` asks the servers there"),
        );
        let kind = TroubleKind::AddsFail;
        let on_lan = Subject::Lan(lan.clone());
        let remedy = format!("{probe}; `leasehold doctor` checks the host");
        Trouble {
            since: Some(*since),
            ..Trouble::new(kind, on_lan, *count, format!("{adds}: {why}"), remedy)
        }
    }
}

fn differ(lan: &Lan, subnets: &BTreeMap<Ipv4Addr, Ipv4Net>) -> Option<Trouble> {
    let different: BTreeSet<_> = subnets.values().collect();
    if different.len() < 2 {
        return None;
    }
    let each: Vec<_> = subnets
        .iter()
        .map(|(server, subnet)| format!("{server} offers {subnet}"))
        .collect();
    let each = each.join(", ");
    let sentence = format!("servers on {lan} offer different subnets: {each}");
    let remedy =
        "stop the server that does not belong there, or have leasehold ignore it (`servers.deny`)";
    let on_lan = Subject::Lan(lan.clone());
    let kind = TroubleKind::SubnetsDiffer;
    Some(Trouble::new(
        kind,
        on_lan,
        subnets.len(),
        sentence,
        remedy.to_owned(),
    ))
}

#[cfg(test)]
mod tests;
