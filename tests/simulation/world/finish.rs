//! The course of a run, and what is checked: audits on the way, and everything after a quiet time at the end.

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;
use leasehold_core::effect::{Answer, Call, Failure, RequestId, Row};
use leasehold_core::event as journal;
use leasehold_core::grant::policy::OnChange;
use leasehold_core::identity::{Attachment, ClientId, Identity};
use leasehold_core::record::{Record, RecordState};
use leasehold_core::tenure::Tenure;
use leasehold_core::testbed::kept::Kept;
use leasehold_core::wire::Mac;
use netns_fixtures::model::{self, ClientKey, Knows};

use super::actor::{Actor, Asked, Errand, Phase, Role};
use super::doors::ERRANDS;
use super::seen::Seen;
use super::{Event, Micros, SECOND, World};
use crate::subject::key_of;
use crate::watch::Rule;

/// How long it takes until all callers are done, an absent daemon is back, and pending starts have happened.
const SETTLE: Duration = Duration::from_secs(3 * 3600);
/// How long an exchange that is open after the quiet time may go on.
const EXCHANGE: u64 = 10 * SECOND;
/// Others may begin meanwhile, for containers that get no lease, but not this many times in a row.
const ROUNDS: u32 = 30;
/// How soon a server knows that something was given back: a RELEASE is tried again after at most nine minutes.
const RELEASED: u64 = 1200 * SECOND;
/// Clients that heard their server within a minute of its new configuration may have heard the old configuration.
const MINUTE: u64 = 60 * SECOND;
/// A client without a lease asks for one within this time.
const LATELY: u64 = 900 * SECOND;

impl World {
    /// Runs everything, ends the faults, waits through the quiet time, checks, ends everything, and checks again.
    pub(super) fn live(&mut self) {
        let active = self.plan.active.as_micros() as u64;
        if !self.until(active, |_| false) {
            return;
        }
        self.wind_down();
        if self.settle() && self.quiet() {
            self.examine_live();
        }
        if self.breach.is_some() {
            return;
        }
        for actor in 0..self.actors.len() {
            if self.actors[actor].phase == Phase::Live {
                self.end_by_del(actor);
            }
        }
        if self.settle() && self.come_to_rest() && self.quiet() {
            self.end_networks();
            self.examine_rest();
        }
    }

    /// Ends all faults: from now on the world is as it should be.
    fn wind_down(&mut self) {
        self.note(|| "WIND DOWN".to_owned());
        self.winding_down = true;
        self.plan.heal();
        (self.disk_full, self.disk_turned) = (false, self.now);
        self.wires_heal();
        self.see_again();
        self.elsewhere_ends();
    }

    /// Waits until every caller has its answer and every container either runs or is gone.
    pub(super) fn settle(&mut self) -> bool {
        for _ in 0..5 {
            let limit = self.now + SETTLE.as_micros() as u64;
            if !self.until(limit, Self::is_settled) && self.breach.is_some() {
                return false;
            }
            if !self.is_settled() {
                let busy = self
                    .actors
                    .iter()
                    .filter(|a| !matches!(a.phase, Phase::Live | Phase::Idle));
                let names = busy
                    .map(|actor| actor.attachment.to_string())
                    .collect::<Vec<_>>();
                self.fail(Rule::Unsettled, format!("{names:?}, {:?}", self.requests));
                return false;
            }
            if self.spool.is_empty() {
                return true;
            }
            // The next start reads what is left in the spool.
            self.crash();
        }
        self.fail(Rule::Unsettled, format!("the spool keeps {:?}", self.spool));
        false
    }

    fn is_settled(&self) -> bool {
        let rests = |phase: Phase| matches!(phase, Phase::Live | Phase::Idle);
        self.daemon.is_some()
            && self.requests.is_empty()
            && self.actors.iter().all(|actor| rests(actor.phase))
    }

    /// Lets time pass in which every lease is renewed, or ends.
    fn quiet(&mut self) -> bool {
        let lease = match self.plan.lease {
            u32::MAX => 1500,
            lease => u64::from(lease),
        };
        let end = self.now + (2 * lease + 900) * SECOND;
        self.note(|| "QUIET".to_owned());
        if !self.until(end, |_| false) || !self.comes_to_rest() {
            return false;
        }
        self.show(&Seen::Idle);
        self.breach.is_none()
    }

    /// Waits for a moment without an open exchange or work, because a lease that was just granted belongs to nobody until it is
    /// durable.
    fn comes_to_rest(&mut self) -> bool {
        let rests =
            |world: &Self| world.effects.open_exchanges() == 0 && world.effects.under_way() == 0;
        for _ in 0..ROUNDS {
            let from = self.now;
            if !self.until(from + EXCHANGE, rests) {
                return false;
            }
            if rests(self) || self.socks.values().any(|sock| sock.since <= from) {
                break;
            }
        }
        true
    }

    /// Checks that everything live is bound, at the daemon, at the server and on its link, and that nothing else is.
    fn examine_live(&mut self) {
        let Some(Answer::Bindings { rows, .. }) = self.inquire(Call::List) else {
            return self.fail(Rule::Unanswered, "LIST at the end of quiet");
        };
        self.show(&Seen::Quiet(&rows));
        self.examine_servers(&rows);
        self.examine_links();
        let live: Vec<_> = self
            .actors
            .iter()
            .filter(|a| a.phase == Phase::Live)
            .map(|a| a.attachment.clone())
            .collect();
        let lives = |row: &Row| live.contains(&row.attachment);
        // That a container ended unheard shows only if another one of its engine is seen.
        let mut unknown = false;
        for errand in ERRANDS {
            let of_engine: Vec<_> = rows
                .iter()
                .filter(|row| errand.tidies(&row.attachment))
                .collect();
            if !self.calm && !of_engine.is_empty() && !of_engine.iter().any(|row| lives(row)) {
                unknown = true;
                errand.tidy(
                    self,
                    &of_engine
                        .into_iter()
                        .map(|row| row.attachment.clone())
                        .collect::<Vec<_>>(),
                );
            }
        }
        if unknown {
            return self.stats.count("containers whose end nobody can know");
        }
        self.examine_kept(rows.len());
        for row in &rows {
            if !lives(row) {
                return self.fail(
                    Rule::Orphan,
                    format!(
                        "{} is {}: {:?}",
                        row.attachment,
                        row.state.as_str(),
                        row.tenure
                    ),
                );
            }
        }
        for index in 0..self.actors.len() {
            if self.actors[index].phase == Phase::Live && self.breach.is_none() {
                self.examine_actor(index, &rows);
            }
        }
    }

    fn examine_actor(&mut self, index: usize, rows: &[Row]) {
        self.excuse_lapsed(index);
        let actor = &self.actors[index];
        let (attachment, told) = (
            actor.attachment.clone(),
            actor.told.clone().expect("a live actor was told"),
        );
        let lost = |what: &str| {
            format!(
                "{attachment} was told {}, excused {}: {what}",
                told.address, actor.excused
            )
        };
        let Some(row) = rows.iter().find(|row| row.attachment == attachment) else {
            return self.not_adopted(index);
        };
        let Some(address) = row.tenure.as_ref().and_then(Tenure::v4) else {
            if actor.excused && self.is_offered_anothers(actor) {
                return self.stats.count(
                    "live at the end without an address, as it is offered what another has",
                );
            }
            if actor.excused && self.is_pool_full(actor) {
                return self
                    .stats
                    .count("live at the end without an address, as its pool is full");
            }
            return self.fail(
                Rule::LeaseLost,
                lost(&format!(
                    "the daemon holds nothing, it is {}",
                    row.state.as_str()
                )),
            );
        };
        if row.ends == Some(Duration::ZERO) {
            return self.fail(Rule::LeaseLost, lost("the daemon's lease has ended"));
        }
        // A lease without end is never renewed, so its holder cannot know that the server forgot it, or has since given another
        // address to a client that it does not distinguish.
        let of_range = self.actors[index].has_fallback();
        let forgotten =
            self.plan.lease == u32::MAX && (actor.excused || self.has_another(row, rows));
        let Some(Identity {
            client_id, chaddr, ..
        }) = &row.identity
        else {
            return;
        };
        if !of_range
            && !forgotten
            && !self.is_granted(actor.lan, address.addr(), client_id, *chaddr)
        {
            return self.fail(Rule::LeaseLost, lost(&format!("no server knows {address}")));
        }
        let same = actor.address_as_told(address) == actor.address_as_told(told.address);
        if !same && !actor.excused {
            return self.fail(
                Rule::LeaseLost,
                lost(&format!("the daemon holds {address}")),
            );
        }
        if self.actors[index].meddled {
            return self.stats.count("live at the end without its address");
        }
        // It is never asked for a CHECK.
        if self.actors[index].is_told_once() {
            return self.stats.count("live at the end with Docker");
        }
        let check = Call::Check {
            attachment: attachment.clone(),
            expected: vec![told.address.into()],
        };
        let answer = self.inquire(check);
        let kept = self.keeps_another_mask(index, told.address);
        // A route of an earlier lease that the kernel refused to remove permanently blocks this lease's route. If an adopted
        // container lacked something, somebody may have removed it.
        let may_lack = self.links_fail || self.actors[index].stranded.is_some();
        let lacks_route =
            matches!(answer, Some(Answer::Failed(Failure::NoRoute { .. }))) && may_lack;
        if matches!(answer, Some(Answer::Checked)) != (same && !kept) && !lacks_route {
            self.fail(
                Rule::LeaseLost,
                format!("CHECK of {attachment} with {}: {answer:?}", told.address),
            );
        }
        self.stats.count("live at the end");
        if self.actors[index].stranded.is_some() {
            self.stats.count("adopted");
        }
    }

    /// Returns whether servers have recently offered a client something, but nothing other than what another attachment has or
    /// carries, or a station uses.
    pub(super) fn is_offered_anothers(&self, actor: &Actor) -> bool {
        let holds = |record: &Record, address| {
            let held = record.state == RecordState::Bound && record.lease.ip() == address;
            held && record.attachment != actor.attachment
        };
        // By choice (`onChange: keep`) an interface may carry an address to which it has no right any more.
        let carries = |other: &Actor, address| {
            let wire = other.at.and_then(|at| self.kernel.link(at));
            (other.lan, true) == (actor.lan, wire.is_some_and(|wire| wire.has(address)))
        };
        let others = || {
            self.actors
                .iter()
                .filter(|other| other.attachment != actor.attachment)
        };
        let is_anothers = |address| {
            let is_held = self
                .store
                .durable
                .values()
                .any(|record| holds(record, address));
            let is_held = is_held || others().any(|other| carries(other, address));
            is_held || self.is_elsewhere(actor.lan, address) || self.is_claimed(actor.lan, address)
        };
        // A server that acknowledges nothing offers addresses that nobody ever has, if no other server gave them to somebody.
        let honest = self.segments[actor.lan].honest();
        let is_of_deaf = |address: &Ipv4Addr| {
            let mut configs = honest
                .iter()
                .filter_map(|station| Some(station.server()?.config()));
            configs.any(|config| config.deaf && (config.pool.0..=config.pool.1).contains(address))
        };
        let is_given = |address: &Ipv4Addr| !is_of_deaf(address) || is_anothers(*address);
        let (key, since) = (actor.client_key(), self.now.saturating_sub(LATELY));
        // The exchange in which it got the lease that it lost does not count.
        let is_lost = |address| {
            let lost = self.record_of(actor).map(|record| &record.lease);
            let lost = lost.filter(|lease| lease.ip() == address);
            let at = self.ledger.offered.get(&(actor.lan, address, key.clone()));
            lost.zip(at)
                .is_some_and(|(lost, at)| *at < self.world_time(lost.start) + EXCHANGE)
        };
        let mut offers = self
            .offers_to(actor.lan, &key, since)
            .filter(is_given)
            .peekable();
        offers.peek().is_some() && offers.all(|address| is_anothers(address) || is_lost(address))
    }

    /// Returns whether no server has an address left for an actor.
    fn is_pool_full(&self, actor: &Actor) -> bool {
        let key = self.known_as(&actor.client_id, actor.mac);
        let stations = self.segments[actor.lan].honest().iter();
        let mut servers = stations.filter_map(|station| station.server());
        !servers.any(|server| server.any_for(self.model_time(), &key).is_some())
    }

    /// Returns whether another attachment that servers do not distinguish from this one has the address that they would give to
    /// this one.
    fn has_another(&self, row: &Row, rows: &[Row]) -> bool {
        let known = |row: &Row| {
            let Identity {
                lan,
                client_id,
                chaddr,
            } = row.identity.as_ref()?;
            Some((lan.clone(), self.known_as(client_id, *chaddr)))
        };
        let has = |other: &Row| other.attachment != row.attachment && other.tenure.is_some();
        rows.iter()
            .any(|other| has(other) && known(other) == known(row))
    }

    /// Returns whether a server that has one address for everybody has given another one since an actor was told its own.
    fn has_given_another(&self, index: usize) -> bool {
        let actor = &self.actors[index];
        let told = actor.told.as_ref().map(|lease| lease.ip());
        let is_later = |((lan, address, _), at): (&(usize, Ipv4Addr, ClientKey), &Micros)| {
            *lan == actor.lan && Some(*address) != told && *at >= actor.told_at
        };
        self.plan.knows == Knows::Nothing && self.ledger.offered.iter().any(is_later)
    }

    /// Returns whether an interface has an address with another mask on purpose (`onChange: keep`): a lease after the ADD put it
    /// there, and the daemon has reported a change of its mask since.
    fn keeps_another_mask(&self, index: usize, told: Ipv4Net) -> bool {
        let actor = &self.actors[index];
        let Some(wire) = actor.at.and_then(|at| self.kernel.link(at)) else {
            return false;
        };
        let (on, there) = (self.plan.on_change, wire.addresses());
        let Some(kept) = there.iter().find(|there| there.addr() == told.addr()) else {
            return false;
        };
        let was = format!("address was {kept}");
        let tells = |event: &journal::Event| {
            event.attachment == actor.attachment && event.cause.contains(&was)
        };
        on == OnChange::Keep && !there.contains(&told) && self.store.events.iter().any(tells)
    }

    /// Excuses an actor whose lease has ended at its server, if that can happen.
    pub(super) fn excuse_lapsed(&mut self, index: usize) {
        let actor = &self.actors[index];
        let told = actor.told.as_ref();
        let lapsed =
            told.is_some_and(|lease| self.has_lapsed(actor.lan, lease.ip(), &actor.client_id));
        // A lease told while all servers are silent was granted long before.
        let said = told.map_or(actor.told_at, |lease| {
            actor.told_at.min(self.world_time(lease.start))
        });
        let changed = self.segments[actor.lan]
            .changed
            .is_some_and(|changed| changed + MINUTE > said);
        let robbed = self.was_robbed(index) || self.has_given_another(index);
        self.actors[index].excused |= lapsed && self.may_lapse || changed || robbed;
    }

    /// Returns whether another station claimed the fallback address that an actor was told. No server keeps that address for the
    /// actor.
    fn was_robbed(&self, index: usize) -> bool {
        let actor = &self.actors[index];
        let (Some(told), Some(fallback)) = (&actor.told, self.plan.fallback) else {
            return false;
        };
        let is_it = |event: &journal::Event| {
            event.attachment == actor.attachment && event.kind == journal::EventKind::Conflict
        };
        fallback.has(actor.lan, told.ip()) && self.store.events.iter().any(is_it)
    }

    /// Returns whether an address was granted to a client until a time that has passed.
    pub(super) fn has_lapsed(&self, lan: usize, address: Ipv4Addr, client_id: &ClientId) -> bool {
        let key = (lan, address, Some(key_of(client_id)));
        let over = |until: Option<&Option<u64>>| {
            until.is_some_and(|until| until.is_some_and(|until| until <= self.now))
        };
        over(self.ledger.granted.get(&key)) || over(self.ledger.heard.get(&key))
    }

    /// Returns whether a server has, as far as it knows, granted an address to a client whose lease has not ended.
    pub(super) fn is_granted(
        &self,
        lan: usize,
        address: Ipv4Addr,
        client_id: &ClientId,
        mac: Mac,
    ) -> bool {
        let key = self.known_as(client_id, mac);
        self.leases_of(lan, address)
            .any(|lease| lease.client == key)
    }

    /// Returns the servers' leases of an address.
    pub(super) fn leases_of(
        &self,
        lan: usize,
        address: Ipv4Addr,
    ) -> impl Iterator<Item = &model::Lease> {
        let (now, stations) = (self.model_time(), self.segments[lan].honest().iter());
        stations
            .filter_map(|station| station.server())
            .filter_map(move |server| server.lease(now, address))
    }

    /// Waits until the daemon has given back everything that it can; then no server has a lease of ours.
    fn come_to_rest(&mut self) -> bool {
        let limit = self.now + RELEASED;
        let rests = |world: &Self| world.store.durable.is_empty() && world.timer.is_none();
        self.until(limit, |world| {
            rests(world) && world.effects.under_way() == 0
        });
        // What was sent last is on its way.
        self.until(self.now + SECOND, |_| false);
        self.examine_servers(&[]);
        self.breach.is_none()
    }

    /// Checks that the core keeps only what its bindings need. A renewal may begin at any moment, and may be half done.
    fn examine_kept(&mut self, bindings: usize) {
        let rests = self.effects.under_way() == 0 && self.effects.open_exchanges() == 0;
        let Some(daemon) = self.daemon.as_ref().filter(|_| rests) else {
            return;
        };
        let more = |kept: &Kept| kept.count > if kept.of_bindings { bindings } else { 0 };
        let kept = daemon
            .subject
            .kept()
            .into_iter()
            .filter(more)
            .collect::<Vec<_>>();
        if !kept.is_empty() {
            self.fail(Rule::Kept, format!("for {bindings} bindings: {kept:?}"));
        }
    }

    /// Checks that nothing is left of anything.
    fn examine_rest(&mut self) {
        let rows = self.inquire(Call::List);
        // The daemon has looked for links of another store since.
        self.until(self.now + SECOND, |_| false);
        let empty = matches!(&rows, Some(Answer::Bindings { rows, .. }) if rows.is_empty());
        // The daemon goes on looking for a container that is not seen, even if nothing else is left.
        let adopts =
            matches!(&rows, Some(Answer::Bindings { not_adopted, .. }) if !not_adopted.is_empty());
        let left = if !empty {
            format!("{rows:?}")
        } else if let Some((at, _)) = self.timer.filter(|_| !adopts) {
            format!("a timer for {at:?}")
        } else if self.effects.under_way() > 0 || self.calls.is_asked() {
            "effects under way, or requests".to_owned()
        } else if !self.store.durable.is_empty() {
            format!("in the store {:?}", self.store.durable)
        } else {
            self.show(&Seen::Rest);
            return self.examine_kept(0);
        };
        self.fail(Rule::Residue, left);
    }

    /// Asks the daemon, and waits for its answer.
    pub(super) fn inquire(&mut self, call: Call) -> Option<Answer> {
        let id = self.file(Role::Inquiry, call);
        self.request(id);
        self.until(self.now + 60 * SECOND, |world| {
            world.findings.contains_key(&id)
        });
        self.findings.remove(&id)
    }

    /// Files a request about a LAN.
    pub(super) fn file_errand(
        &mut self,
        lan: usize,
        errand: &'static dyn Errand,
        call: Call,
    ) -> RequestId {
        let id = self.file(Role::Errand, call);
        self.requests
            .entry(id)
            .and_modify(|asked| (asked.since, asked.errand) = (self.now, Some((lan, errand))));
        id
    }

    pub(super) fn file(&mut self, role: Role, call: Call) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        self.requests.insert(id, Asked::by_nobody(role, call));
        id
    }

    /// Looks at all bindings, and does so again later.
    pub(super) fn audit_again(&mut self) {
        if !self.winding_down {
            self.sometime(self.plan.active / 10, Event::Audit);
            self.ask_audit(None);
        }
    }

    /// Looks at all bindings; `absent` must hold nothing.
    pub(super) fn ask_audit(&mut self, absent: Option<Attachment>) {
        if self.daemon.is_some() {
            let id = self.file(Role::Audit(absent), Call::List);
            self.request(id);
        }
    }

    /// Records the findings of an audit or an inquiry.
    pub(super) fn found(&mut self, id: RequestId, role: &Role, answer: Answer) {
        if *role == Role::Inquiry {
            self.findings.insert(id, answer);
            return;
        }
        let Answer::Bindings { rows, .. } = answer else {
            return;
        };
        self.show(&Seen::Listed(&rows));
        if let Role::Audit(Some(attachment)) = role {
            self.show(&Seen::Dropped(attachment, &rows));
        }
    }
}
