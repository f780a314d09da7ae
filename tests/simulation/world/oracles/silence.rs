//! Messages after a start.

use super::*;

/// A restart sends nothing before T1 without a cause. Holds, for each Ethernet address, until when it must be silent.
#[derive(Default)]
pub(super) struct Silence(BTreeMap<Mac, Micros>);

impl Oracle for Silence {
    fn sees(&mut self, world: &World, seen: &Seen<'_>, says: &mut Says) {
        match seen {
            Seen::Started => self.started(world),
            Seen::Cause(mac) => _ = self.0.remove(mac),
            Seen::CauseForAll | Seen::Ended => self.0.clear(),
            Seen::Emitted(Effect::Send {
                exchange, frame, ..
            }) => {
                let Some(source) = frame
                    .get(6..12)
                    .and_then(|mac| Some(Mac(mac.try_into().ok()?)))
                else {
                    return;
                };
                if self.0.get(&source).is_some_and(|until| world.now < *until) {
                    let detail = format!("a frame from {source} on {exchange:?} after a restart");
                    says.broken(Rule::Chatty, detail);
                }
            }
            _ => {}
        }
    }
}

impl Silence {
    /// Demands silence of every holder of an unexpired lease on an unchanged link; after a reboot there are none.
    fn started(&mut self, world: &World) {
        let mut loud = Vec::new();
        for record in world.store.durable.values() {
            let wire = world
                .kernel
                .locate(&record.link)
                .ok()
                .and_then(|at| world.kernel.link(at));
            let intact =
                wire.is_some_and(|wire| wire.mac == record.link.mac() && wire.up && wire.carrier);
            // A mutation may have added to its name.
            let this_boot =
                record.boot.0.split(',').next() == Some(&format!("boot-{}", world.clocks.boot));
            // A lease for an endpoint that is not known goes back at once.
            let is_good = record.state == RecordState::Bound
                && !record.unconfirmed
                && record.lease.source.is_asked();
            if is_good && intact && this_boot && !world.lacks_endpoint(&record.attachment) {
                let t1 = record
                    .lease
                    .t1()
                    .map_or(Micros::MAX, |t1| world.world_time(t1));
                self.hush(record.link.mac(), t1);
            } else {
                // After a reboot, the link of another container may have the number of its own.
                loud.extend([record.link.mac(), record.identity.chaddr]);
            }
        }
        // One Ethernet address may have been used twice in a row.
        self.0.retain(|mac, _| !loud.contains(mac));
    }

    /// Demands silence of an Ethernet address until a time; if several clients have the address, until the earliest.
    fn hush(&mut self, mac: Mac, until: u64) {
        self.0
            .entry(mac)
            .and_modify(|before| *before = until.min(*before))
            .or_insert(until);
    }
}
