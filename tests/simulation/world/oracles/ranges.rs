//! Addresses of local ranges.

use leasehold_core::effect::{RangeAdd, RangeAnswer, RangeCall, RangeRow, TakenRow};

use super::*;

/// An attachment that was told addresses of local ranges, and still has them.
struct Holder {
    lan: Lan,
    addresses: Vec<IpAddr>,
    /// Whether the store forgot it. Its network's files name the holder, but not the LAN.
    is_forgotten: bool,
}

/// Each address has one live holder on its LAN, whoever gave it, and has a file by the time of the answer. What live holders have
/// is listed.
#[derive(Default)]
pub(super) struct Ranges(BTreeMap<Attachment, Holder>);

impl Oracle for Ranges {
    fn sees(&mut self, world: &World, seen: &Seen<'_>, says: &mut Says) {
        match seen {
            Seen::Emitted(Effect::Reply {
                id,
                answer: Answer::Ranges(RangeAnswer::Given(given)),
            }) => {
                let Some(Call::Ranges(RangeCall::Add(add))) =
                    world.requests.get(id).map(|asked| &asked.call)
                else {
                    return;
                };
                self.given(
                    world,
                    add,
                    given.iter().map(|given| given.address.addr()).collect(),
                    says,
                );
            }
            Seen::Emitted(Effect::Reply {
                answer: Answer::Ranges(RangeAnswer::Rows(rows)),
                ..
            }) => self.listed(world, rows, says),
            Seen::Requested(Call::Del { attachment, .. }) => _ = self.0.remove(attachment),
            Seen::Requested(Call::Collect { network, keep }) => {
                self.0
                    .retain(|attachment, _| !is_collected(attachment, network, keep));
            }
            Seen::Gone(attachment) => _ = self.0.remove(*attachment),
            Seen::Rebooted => self.0.clear(),
            // What went with its store is known by its files, if these were there.
            Seen::Started if world.was_damaged => self.0.retain(|attachment, holder| {
                let record = world
                    .store
                    .ranges
                    .get(attachment)
                    .filter(|record| !record.past);
                holder.is_forgotten |= record.is_none();
                !holder.is_forgotten || world.local.has_files(attachment, &holder.addresses)
            }),
            _ => {}
        }
    }
}

impl Ranges {
    fn given(&mut self, world: &World, add: &RangeAdd, addresses: Vec<IpAddr>, says: &mut Says) {
        let lives = world
            .local
            .of(&add.attachment)
            .map(|index| &world.local.containers[index]);
        let Some(one) = lives.filter(|one| one.netns.is_some()) else {
            return;
        };
        let Attachment::Cni { network, .. } = &add.attachment else {
            return;
        };
        let same = |(by, other): &(&Attachment, &Holder)| {
            let is_near = other.lan == add.lan && (!other.is_forgotten || is_in(by, network));
            **by != add.attachment
                && is_near
                && other.addresses.iter().any(|it| addresses.contains(it))
        };
        if let Some((by, _)) = self.0.iter().find(same) {
            return says.broken(
                Rule::Twice,
                format!("{} was given what {by} has: {addresses:?}", add.attachment),
            );
        }
        let is_on_time = world
            .plan
            .ranges
            .as_ref()
            .is_some_and(|plan| plan.slow == 0);
        let is_late = addresses
            .iter()
            .any(|address| world.local.writes.contains_key(address));
        if is_on_time && !is_late && !world.local.has_files(&add.attachment, &addresses) {
            return says.broken(
                Rule::Twice,
                format!(
                    "{} has no file of {addresses:?}, or others have",
                    add.attachment
                ),
            );
        }
        if one.phase == Phase::Adding {
            self.0.insert(
                add.attachment.clone(),
                Holder {
                    lan: add.lan.clone(),
                    addresses,
                    is_forgotten: false,
                },
            );
        }
    }

    fn listed(&self, world: &World, rows: &[RangeRow], says: &mut Says) {
        for (attachment, holder) in &self.0 {
            let Attachment::Cni { network, .. } = attachment else {
                continue;
            };
            let of_network = rows
                .iter()
                .filter(|row| row.network == *network)
                .flat_map(|row| &row.taken);
            // What only a file says, another network of the LAN that did not know the file may have given to somebody. And a
            // full store may have kept the record of one that is gone, which is listed first.
            let is_gone = |by: &Attachment| !world.local.lives(container(by));
            let is_its = |taken: &&TakenRow| {
                *taken.by == *attachment || holder.is_forgotten || is_gone(&taken.by)
            };
            let has: Vec<_> = of_network
                .filter(is_its)
                .map(|taken| taken.address)
                .collect();
            let known = rows.iter().any(|row| row.network == *network);
            // An ADD does not wait for long for its files: those of others may turn out to be there.
            let is_sure = known
                && world
                    .plan
                    .ranges
                    .as_ref()
                    .is_some_and(|plan| plan.slow == 0);
            if is_sure && !holder.addresses.iter().all(|address| has.contains(address)) {
                let detail = format!(
                    "{attachment} was given {:?}, but has {has:?}",
                    holder.addresses
                );
                return says.broken(Rule::LeaseLost, detail);
            }
        }
        says.count("looks at local ranges");
    }
}
