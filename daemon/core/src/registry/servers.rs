//! What servers say, and which of them stop to extend leases: one event when a server of a LAN falls silent, another when it
//! answers again.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use super::fallback::Fallbacks;
use super::tables::Tables;
use crate::binding::Binding;
use crate::event::{Event, EventKind};
use crate::identity::Lan;
use crate::lan::Said;
use crate::record::BindingId;
use crate::time::{Instant, brief};

/// Leases of one server that wait to be extended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unextended {
    /// How many wait, of how many.
    pub(super) count: usize,
    pub(super) of: usize,
    /// When the first of them ends.
    pub(super) first_end: Option<Instant>,
    /// Since when the first of them has been asking.
    pub(super) since: Option<Instant>,
}

impl Unextended {
    /// Counts a lease.
    pub(super) fn add(&mut self, binding: &Binding, now: Instant) {
        self.of += 1;
        let Some((lease, in_vain)) = binding.unextended(now) else {
            return;
        };
        self.count += 1;
        let earliest = |a: Option<Instant>, b: Option<Instant>| a.into_iter().chain(b).min();
        self.first_end = earliest(self.first_end, lease.expires());
        self.since = earliest(self.since, in_vain.since);
    }

    /// Returns how many wait, and when the first ends.
    pub(super) fn text(&self, now: Instant) -> String {
        let Self {
            count,
            of,
            first_end,
            ..
        } = self;
        let wait = match (count, of) {
            (1, 1) => "its only lease waits".to_owned(),
            (1, _) => format!("1 of its {of} leases waits"),
            _ => format!("{count} of its {of} leases wait"),
        };
        let end = first_end.map(|at| brief(at.saturating_since(now)));
        match (end, count) {
            (Some(end), 1) => format!("{wait}, and ends in {end}"),
            (Some(end), _) => format!("{wait}, and the first ends in {end}"),
            (None, _) => wait,
        }
    }
}

/// Enters what a server said in the account of its LAN.
pub(super) fn server_said(tables: &mut Tables, fallbacks: &Fallbacks, id: BindingId, said: Said) {
    let Some(binding) = tables.bindings.get(id) else {
        return;
    };
    let lan = binding.identity.lan.clone();
    let server = said.server;
    let is_awaited = fallbacks.awaits_server(tables, &lan);
    let silent = tables.lans.heard(&lan, said, tables.now.boot);
    let cause = if let Some(silent) = silent {
        let after = brief(tables.now.boot.saturating_since(silent.boot));
        tracing::info!(%lan, %server, after, "a server extends leases again");
        format!("server {server} of {lan} extends leases again, after {after}")
    } else if is_awaited {
        tracing::info!(%lan, %server, "a server answers again: it serves the next container");
        format!(
            "a server of {lan} answers again: containers keep what the fallback gave them until their DEL"
        )
    } else {
        return;
    };
    note_server(tables, id, EventKind::ServerBack, server, cause);
}

/// Notices servers that were asked in vain to extend leases, by the bindings that something has just happened to.
pub(super) fn notice_silence(tables: &mut Tables, touched: &BTreeSet<BindingId>) {
    let now = tables.now;
    for id in touched {
        let Some(binding) = tables.bindings.get(*id) else {
            continue;
        };
        let Some((lease, in_vain)) = binding.unextended(now.boot) else {
            continue;
        };
        let lan = binding.identity.lan.clone();
        let server = lease.server;
        let is_news = in_vain
            .since
            .is_some_and(|since| tables.lans.asked_in_vain(&lan, server, since, now));
        if is_news {
            let waiting = waiting_for(tables, &lan, server, now.boot).text(now.boot);
            tracing::warn!(%lan, %server, waiting, "a server does not extend leases");
            let cause = format!("server {server} of {lan} does not extend leases: {waiting}");
            note_server(tables, *id, EventKind::ServerSilent, server, cause);
        }
    }
}

/// Returns the leases of a server that wait to be extended.
fn waiting_for(tables: &Tables, lan: &Lan, server: Ipv4Addr, now: Instant) -> Unextended {
    let mut waiting = Unextended::default();
    let is_its = |it: &&Binding| {
        let lease = it.lease(now);
        it.identity.lan == *lan && lease.is_some_and(|lease| lease.server == server)
    };
    let leases = tables.bindings.iter().filter(is_its);
    leases.for_each(|binding| waiting.add(binding, now));
    waiting
}

/// Notes an event about a server, under the attachment that met it.
fn note_server(
    tables: &mut Tables,
    id: BindingId,
    kind: EventKind,
    server: Ipv4Addr,
    cause: String,
) {
    let Some(attachment) = tables.attachment(id) else {
        return;
    };
    let event = Event {
        wall: tables.now.wall,
        attachment: (*attachment).clone(),
        kind,
        address: None,
        server: Some(server.into()),
        cause,
        run: None,
    };
    tables.out.note_alone(id, event);
}
