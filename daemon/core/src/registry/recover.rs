//! Starts with what the store and the spool hold.
//!
//! A restart within one boot sends nothing: leases go on where they were (invariant 7). After a reboot no earlier namespace is
//! left; its lease waits a while for the container to come back under the same identity, which then takes it over by
//! INIT-REBOOT; otherwise it is given back.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use super::Registry;
use super::clocks::is_off;
use super::past::LastAddress;
use crate::binding::{Binding, Common, Cx, Hold, Release};
use crate::interface::Presence;
use crate::record::{BindingId, Record, RecordState};
use crate::rules::{Rule, cut};
use crate::time::BootId;

/// Takes over what the store holds.
pub(crate) fn recover(core: &mut Registry, boot: BootId, records: Vec<(BindingId, Record)>) {
    core.tables.boot = boot;
    records
        .iter()
        .for_each(|(id, _)| core.tables.bindings.begin_after(*id));
    let (mut past, records): (Vec<_>, Vec<_>) = records
        .into_iter()
        .partition(|(_, record)| record.state == RecordState::Past);
    past.sort_unstable_by_key(|(_, record)| record.since);
    for (id, record) in past {
        let last = LastAddress {
            record: id,
            address: record.lease.ip(),
        };
        core.remember(record.identity.key(), last);
    }
    let count = records.len();
    // The latest first: if two bindings have one identity, which our transactions never leave behind, the latest is the
    // live one.
    let mut latest_first = records;
    latest_first.sort_unstable_by_key(|(id, _)| Reverse(*id));
    latest_first
        .into_iter()
        .for_each(|(id, record)| resume(core, id, record));
    tracing::info!(leases = count, boot = %core.tables.boot, "started");
}

/// Looks at the interfaces of all held bindings, and searches for those that are sought.
pub(crate) fn look_around(core: &mut Registry) {
    core.audit.look_at_all(&mut core.tables);
    let all: Vec<_> = core.tables.bindings.iter().map(|it| it.id).collect();
    all.into_iter()
        .for_each(|id| core.seeking.wait(&mut core.tables, id));
    core.seeking.seek(&mut core.tables, None, None);
}

fn resume(core: &mut Registry, id: BindingId, mut record: Record) {
    let now = core.tables.now;
    let same_boot = record.boot == core.tables.boot;
    let was_set = same_boot && is_off(now.wall, record.wall_at(now.boot));
    record.rebase(&core.tables.boot, now);
    let presence = Presence::recorded(record.taken_off, record.elsewhere);
    core.fallbacks.recovered |= !record.lease.source.is_asked();
    let Record {
        attachment,
        identity,
        profile,
        link,
        lease,
        state,
        kept,
        former,
        unconfirmed,
        told,
        ..
    } = record;
    let attachment = Arc::new(attachment);
    // An attachment does not have two bindings either: the older one is nobody's.
    let known = core.tables.bindings.holder(&attachment).is_some();
    let taken = known || core.tables.bindings.holders().of(&identity.key()).is_some();
    if matches!(state, RecordState::Bound | RecordState::Seeking) && !taken {
        core.tables.bindings.hold(attachment.clone(), id);
    }
    let tables = &mut core.tables;
    let profile = tables.profiles.share(profile);
    let mut common = Common::new(id, attachment, identity, profile, link);
    common.told = told;
    tables.interfaces.enter(&common.link, id);
    let seat = tables.interfaces.seat_mut(&common.link, id);
    seat.into_iter().for_each(|seat| seat.was(presence));
    let mut cx = Cx {
        own: &mut common,
        now,
        boot: &tables.boot,
        out: &mut tables.out,
        rng: &mut tables.rng,
        holders: tables.bindings.holders(),
        interfaces: &mut tables.interfaces,
        lans: &mut tables.lans,
        departed: &tables.departed,
    };
    let life = match (state, same_boot) {
        (RecordState::Bound, true) if !taken => Hold::resumed(lease, unconfirmed, former, &mut cx),
        (RecordState::Seeking, true) if !taken => Hold::seeking(lease, former, &mut cx),
        (RecordState::Seeking, _) => Release::forgotten(lease, &mut cx),
        // No server keeps it for the container.
        (RecordState::Bound, _) if !lease.source.is_asked() => Release::forgotten(lease, &mut cx),
        (RecordState::Bound, false) => {
            // No container can return before there is a daemon.
            let grace = match cut(Rule::RebootGrace) {
                true => Duration::ZERO,
                false => core.config.reboot_grace,
            };
            let kept = now.boot + grace;
            Release::recorded(cx.own, lease, Some(kept), true, now.boot)
        }
        (RecordState::Bound | RecordState::Releasing | RecordState::Past, _) => {
            // A wall clock that went back across a reboot makes no wait longer than it was at first.
            let longest = Duration::from_secs(cx.own.profile.grace.unwrap_or(0).into());
            let kept = kept.map(|kept| (lease.start + kept).min(now.boot + longest));
            Release::recorded(cx.own, lease, kept, !same_boot, now.boot)
        }
    };
    core.tables.insert(Binding::of(common, life));
    if was_set {
        core.tables.with(id, |life, cx| life.on_wall_set(false, cx));
    }
}
