//! The properties that the simulation watches: each is an oracle, in a file of its own.
//!
//! An oracle sees what happens and looks at the world, but changes nothing in it. It reports what is broken, and counts what it
//! has looked at: an oracle that never looks proves nothing. To add an oracle, add a file, and a line in [`all`].

mod accepted;
mod asked;
mod bare;
mod carried;
mod confirmed;
mod declined;
mod expired;
mod failures;
mod fallback;
mod fit;
mod grace;
mod holders;
mod orphans;
mod pace;
mod published;
mod released;
mod removed;
mod renewed;
mod rogues;
mod shared;
mod silence;
mod sockets;
mod squatted;
mod steps;
mod ways;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use ipnet::Ipv4Net;
use leasehold_core::effect::{
    Answer, Call, Effect, ExchangeId, Failure, OpId, Outcome, RequestId, Row, Verb,
};
use leasehold_core::event::{Event, EventKind};
use leasehold_core::grant::policy::{Detection, OnChange, OnExpiry};
use leasehold_core::identity::{Attachment, ClientId, Lan};
use leasehold_core::link::{Link, Place, Step, Target};
use leasehold_core::pool::PoolId;
use leasehold_core::record::{Change, Record, RecordState};
use leasehold_core::registry::Config;
use leasehold_core::tenure::Tenure;
use leasehold_core::testbed::kernel::Applied;
use leasehold_core::testbed::link::is_route;
use leasehold_core::time::WallTime;
use leasehold_core::wire::Mac;
use netns_fixtures::model::{ClientKey, Event as Served, Kind, Knows, Message, Station, code};

use super::actor::{Actor, Asked, Phase, Role};
use super::claims::{CLAIMER, PROXY, SQUATTER};
use super::daemon::is_dhcp;
use super::interface::{default_by, routes_of};
use super::ledger::is_leaving;
use super::seen::{Seen, Who};
use super::shell::Sock;
use super::wire::is_direct;
use super::{MILLI, Micros, SECOND, World};
use crate::plan::Wires;
use crate::subject::{add_of, arp_of, granted, is_collected, is_nobodys, key_of, message_of};
use crate::watch::{Breach, Rule, breach};

/// How long strict probes take at most (RFC 5227 §1.1).
const PROBING: u64 = 7 * SECOND;

/// The verdicts of oracles.
#[derive(Default)]
pub(super) struct Says {
    breach: Option<Breach>,
    counts: Vec<(&'static str, usize)>,
    excuses: Vec<(usize, Ipv4Addr, &'static str)>,
}

impl Says {
    /// Records that a rule is broken. The first breach counts.
    fn broken(&mut self, rule: Rule, detail: impl Into<String>) {
        self.breach.get_or_insert_with(|| breach(rule, detail));
    }

    /// Counts something.
    fn count(&mut self, what: &'static str) {
        self.counts.push((what, 1));
    }

    /// Excuses the holder of an address of a LAN.
    fn excuse(&mut self, lan: usize, address: Ipv4Addr, why: &'static str) {
        self.excuses.push((lan, address, why));
    }
}

/// A property that the simulation watches.
pub(super) trait Oracle {
    /// Sees what happens, and judges it.
    fn sees(&mut self, world: &World, seen: &Seen<'_>, says: &mut Says);
}

/// An oracle that remembers nothing is a function.
impl<F: FnMut(&World, &Seen<'_>, &mut Says)> Oracle for F {
    fn sees(&mut self, world: &World, seen: &Seen<'_>, says: &mut Says) {
        self(world, seen, says);
    }
}

/// Returns all oracles.
pub(super) fn all() -> Vec<Box<dyn Oracle>> {
    vec![
        Box::<accepted::Accepted>::default(),
        Box::<asked::Asked>::default(),
        Box::<bare::Bare>::default(),
        Box::new(carried::carried),
        Box::new(confirmed::confirmed),
        Box::<declined::Declined>::default(),
        Box::new(expired::expired),
        Box::new(expired::ended),
        Box::<expired::Late>::default(),
        Box::new(failures::failures),
        Box::<fallback::Fallbacks>::default(),
        Box::new(fit::fit),
        Box::<grace::Grace>::default(),
        Box::<holders::Holders>::default(),
        Box::new(orphans::orphans),
        Box::<pace::Pace>::default(),
        Box::<pace::Flood>::default(),
        Box::new(published::published),
        Box::new(released::released),
        Box::new(removed::removed),
        Box::new(removed::misleads),
        Box::new(renewed::renewed),
        Box::<renewed::Forgotten>::default(),
        Box::<rogues::Rogues>::default(),
        Box::new(shared::shared),
        Box::<silence::Silence>::default(),
        Box::new(sockets::sockets),
        Box::<squatted::Squatted>::default(),
        Box::new(steps::steps),
        Box::new(ways::ways),
    ]
}

impl World {
    /// Lets the oracles see something.
    pub(super) fn show(&mut self, seen: &Seen<'_>) {
        let (mut oracles, mut says) = (std::mem::take(&mut self.oracles), Says::default());
        oracles
            .iter_mut()
            .for_each(|oracle| oracle.sees(self, seen, &mut says));
        self.oracles = oracles;
        says.counts
            .into_iter()
            .for_each(|(what, count)| self.stats.count_many(what, count));
        says.excuses
            .into_iter()
            .for_each(|(lan, address, why)| self.excuse(lan, address, why));
        self.breach = self.breach.take().or(says.breach);
    }

    /// Records that the Ethernet addresses of these records have a cause to send.
    pub(super) fn causes_of(&mut self, which: impl Fn(&Record) -> bool) {
        let records = self.store.durable.values();
        let records = records.filter(|record| which(record));
        let macs: Vec<_> = records.map(|record| record.link.mac()).collect();
        self.causes(macs);
    }

    /// Records that some Ethernet addresses have a cause to send.
    pub(super) fn causes(&mut self, macs: impl IntoIterator<Item = Mac>) {
        macs.into_iter()
            .for_each(|mac| self.show(&Seen::Cause(mac)));
    }
}
