//! Who has which address of which network: what we gave, and what others gave according to files.
//!
//! Networks on one LAN give no address twice: what one of them gave counts as taken in the others too.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use smol_str::SmolStr;

use crate::effect::{FoundFile, LONG_AGO, RangeAdd, RangeRow};
use crate::identity::{AddressHolder, Attachment, ClientId, Lan};
use crate::range::{Allocator, Given, Holding, NoAddress, Others, overlaps};
use crate::record::RangeRecord;
use crate::registry::sight::Sight;
use crate::time::WallTime;

/// The most identities whose last addresses are remembered.
const MAX_RETURNING: usize = 1024;

/// All networks with local ranges.
#[derive(Debug, Default)]
pub(in crate::registry) struct Ranges {
    networks: BTreeMap<SmolStr, Network>,
    held: BTreeMap<Arc<Attachment>, Held>,
    /// What identities had last, and whose record says so; the latest at the end.
    returning: VecDeque<Last>,
    /// What the store has not been able to delete.
    pub(super) owed: BTreeSet<Attachment>,
    pub(super) sight: Sight<Attachment>,
}

/// What an identity of a network had last.
#[derive(Debug)]
struct Last {
    network: SmolStr,
    id: ClientId,
    addresses: Vec<IpAddr>,
    attachment: Attachment,
}

/// What is to be done about the files of a network.
#[derive(Debug)]
pub(super) struct Compared {
    /// Those of containers that are gone.
    pub(super) gone: Vec<(IpAddr, Attachment)>,
    /// Our addresses that lack a file, each with the index of its set.
    pub(super) lacking: Vec<(IpAddr, Arc<Attachment>, usize)>,
}

/// What an attachment has.
#[derive(Debug)]
pub(in crate::registry) struct Held {
    pub(in crate::registry) record: RangeRecord,
    /// Whether an earlier daemon gave it, and its caller may not have heard the answer.
    pub(in crate::registry) is_recovered: bool,
    /// Whether it is being given back.
    pub(in crate::registry) is_leaving: bool,
}

#[derive(Debug, Default)]
struct Network {
    lan: Option<Lan>,
    directory: Option<PathBuf>,
    /// `None` before the first ADD, which says what the ranges are.
    allocator: Option<Allocator>,
    /// What files say.
    others: BTreeMap<IpAddr, Arc<Attachment>>,
    last: Vec<(usize, IpAddr)>,
    /// The networks whose ranges overlap, as the log says.
    overlaps: BTreeSet<String>,
}

impl Network {
    /// Returns whether its last ADD named this LAN.
    fn is_on(&self, lan: &Lan) -> bool {
        self.lan.as_ref() == Some(lan)
    }
}

impl Ranges {
    /// Returns what we gave an attachment.
    pub(in crate::registry) fn held(&self, attachment: &Attachment) -> Option<&Held> {
        self.held.get(attachment)
    }

    pub(in crate::registry) fn all_held(&self) -> impl Iterator<Item = (&Arc<Attachment>, &Held)> {
        self.held.iter()
    }

    /// Marks what an attachment has as being given back. Returns whether that is new.
    pub(in crate::registry) fn leaves(&mut self, attachment: &Attachment) -> bool {
        self.held
            .get_mut(attachment)
            .is_some_and(|held| !std::mem::replace(&mut held.is_leaving, true))
    }

    /// Returns whether an attachment has an address, given by us or by others.
    pub(in crate::registry) fn knows(&self, attachment: &Attachment) -> bool {
        self.held.contains_key(attachment) || !self.files_of(attachment).is_empty()
    }

    /// Returns the addresses that only files say an attachment has.
    pub(in crate::registry) fn files_of(
        &self,
        attachment: &Attachment,
    ) -> Vec<(IpAddr, Arc<Attachment>)> {
        let Attachment::Cni {
            network,
            container,
            ifname,
        } = attachment
        else {
            return Vec::new();
        };
        let Some(found) = self.networks.get(network) else {
            return Vec::new();
        };
        found
            .others
            .iter()
            .filter(|(_, by)| is_interface(by, container, ifname))
            .map(|(address, by)| (*address, by.clone()))
            .collect()
    }

    /// Returns who else has an address of an attachment, if a file says so.
    pub(in crate::registry) fn by_file(
        &self,
        attachment: &Attachment,
        address: IpAddr,
    ) -> Option<NoAddress> {
        let by = self.network_of(attachment)?.others.get(&address)?;
        Some(NoAddress::Taken {
            address,
            by: AddressHolder::Attachment(by.clone()),
        })
    }

    /// Returns the attachments of a network, given addresses by us or by others.
    pub(in crate::registry) fn attachments(&self, network: &str) -> BTreeSet<Arc<Attachment>> {
        let others = self
            .networks
            .get(network)
            .into_iter()
            .flat_map(|network| network.others.values());
        self.held
            .keys()
            .filter(|by| is_of(by, network))
            .chain(others)
            .cloned()
            .collect()
    }

    /// Returns the directory of a network's files, if it is known.
    pub(in crate::registry) fn directory(&self, attachment: &Attachment) -> Option<PathBuf> {
        self.network_of(attachment)?.directory.clone()
    }

    fn network_of(&self, attachment: &Attachment) -> Option<&Network> {
        self.networks.get(attachment.network())
    }

    /// Takes over what an ADD says about its network.
    pub(in crate::registry) fn enter(&mut self, add: &RangeAdd) {
        let name = add.attachment.network();
        let network = self.networks.entry(name.into()).or_default();
        network.directory = Some(add.directory.clone());
        let is_known = network
            .allocator
            .as_ref()
            .is_some_and(|allocator| *allocator.sets() == add.sets);
        if is_known && network.is_on(&add.lan) {
            return;
        }
        network.lan = Some(add.lan.clone());
        match &mut network.allocator {
            Some(allocator) => allocator.set_ranges(add.sets.clone()),
            None => {
                let mut allocator = Allocator::new(add.sets.clone(), 0);
                network
                    .last
                    .iter()
                    .for_each(|(set, address)| allocator.begin_after(*set, *address));
                network.allocator = Some(allocator);
            }
        }
        // Addresses that are being probed are in the others' tables alone.
        let taken: Vec<_> = self
            .taken_on(&add.lan, name)
            .chain(self.taken_beside(&add.lan, name))
            .collect();
        let network = self.networks.get_mut(name).expect("it was just entered");
        let allocator = network.allocator.as_mut().expect("it was just made");
        taken
            .into_iter()
            .for_each(|(address, holding)| _ = allocator.occupy(address, holding));
        let files = network.others.clone();
        files
            .into_iter()
            .for_each(|(address, by)| self.occupy_beside(&add.lan, name, address, &by, LONG_AGO));
        self.warn_of_overlaps(&add.lan, name);
    }

    /// Returns what is taken on a LAN, or in this network.
    fn taken_on(&self, lan: &Lan, name: &str) -> impl Iterator<Item = (IpAddr, Holding)> {
        // A network that no ADD has named since the start is on the LAN that its records name.
        let held = self
            .held
            .iter()
            .filter(move |(by, held)| held.record.lan == *lan || is_of(by, name));
        let networks = self
            .networks
            .iter()
            .filter(move |(other, network)| network.is_on(lan) || *other == name);
        taken(held, networks.map(|(_, network)| network))
    }

    /// Returns what the other networks of a LAN know to be taken.
    fn taken_beside(&self, lan: &Lan, name: &str) -> impl Iterator<Item = (IpAddr, Holding)> {
        let beside = self
            .networks
            .iter()
            .filter(move |(other, network)| *other != name && network.is_on(lan));
        let allocators = beside.filter_map(|(_, network)| network.allocator.as_ref());
        allocators
            .flat_map(Allocator::taken)
            .map(|(address, holding)| (address, holding.clone()))
    }

    /// Returns what is taken on a LAN.
    pub(in crate::registry) fn taken_on_lan(
        &self,
        lan: &Lan,
    ) -> impl Iterator<Item = (IpAddr, Holding)> {
        let held = self.held.iter().filter(|(_, held)| held.record.lan == *lan);
        taken(
            held,
            self.networks.values().filter(|network| network.is_on(lan)),
        )
    }

    fn warn_of_overlaps(&mut self, lan: &Lan, name: &str) {
        let named = self
            .networks
            .iter()
            .filter(|(_, network)| network.is_on(lan));
        let sets = named.filter_map(|(name, network)| {
            Some((name.as_str(), network.allocator.as_ref()?.sets()))
        });
        let found: Vec<_> = overlaps(sets)
            .into_iter()
            .filter(|overlap| {
                overlap.networks.contains(&name) && overlap.networks[0] != overlap.networks[1]
            })
            .map(|overlap| {
                (
                    overlap.networks.map(str::to_owned),
                    overlap.first,
                    overlap.last,
                )
            })
            .collect();
        for ([one, other], first, last) in found {
            let beside = if one == name { &other } else { &one };
            let network = self.networks.get_mut(name).expect("it is entered");
            if network.overlaps.insert(beside.clone()) {
                tracing::warn!(%lan, one, other, %first, %last, "two networks on one LAN have these addresses in common: each is given out once");
            }
        }
    }

    /// Gives an attachment an address of each set of its network that none of the others has.
    pub(in crate::registry) fn allocate(
        &mut self,
        add: &RangeAdd,
        others: &Others<'_>,
        now: WallTime,
    ) -> Result<Vec<Given>, NoAddress> {
        let name = add.attachment.network();
        let by = self
            .held
            .get_key_value(&add.attachment)
            .map_or_else(|| Arc::new(add.attachment.clone()), |(by, _)| by.clone());
        // An attachment that has addresses already is refused others.
        let returns_as = add
            .returns_as
            .as_ref()
            .filter(|_| !self.held.contains_key(&add.attachment));
        let remembered = returns_as
            .and_then(|id| self.last_of(name, id))
            .unwrap_or_default();
        let allocator = self
            .networks
            .get_mut(name)
            .and_then(|network| network.allocator.as_mut());
        let allocator = allocator.expect("the ADD has entered its network");
        // An identity's last addresses are a wish; those that its caller asks for are not.
        let is_free = |address: &IpAddr| allocator.is_free(*address) && others(*address).is_none();
        let returns: Vec<_> = remembered
            .into_iter()
            .filter(|address| add.asked.is_empty() && is_free(address))
            .collect();
        let asked = if returns.is_empty() {
            &add.asked
        } else {
            &returns
        };
        let given = allocator.allocate(&by, asked, others, now)?;
        for given in &given {
            self.occupy_beside(&add.lan, name, given.address.addr(), &by, now);
        }
        Ok(given)
    }

    /// Records an address as taken in the other networks of the LAN.
    fn occupy_beside(
        &mut self,
        lan: &Lan,
        name: &str,
        address: IpAddr,
        by: &Arc<Attachment>,
        since: WallTime,
    ) {
        let others = self
            .networks
            .iter_mut()
            .filter(|(other, network)| *other != name && network.is_on(lan));
        for allocator in others.filter_map(|(_, network)| network.allocator.as_mut()) {
            allocator.occupy(
                address,
                Holding {
                    by: by.clone(),
                    since,
                },
            );
        }
    }

    /// Frees these addresses of an attachment.
    pub(in crate::registry) fn vacate(&mut self, by: &Attachment, addresses: &[IpAddr]) {
        for allocator in self
            .networks
            .values_mut()
            .filter_map(|network| network.allocator.as_mut())
        {
            addresses
                .iter()
                .for_each(|address| allocator.vacate(*address, by));
        }
    }

    /// Records what an attachment has, instead of what it had.
    pub(in crate::registry) fn hold(&mut self, record: RangeRecord, is_recovered: bool) {
        self.owed.remove(&record.attachment);
        let held = Held {
            record,
            is_recovered,
            is_leaving: false,
        };
        self.held
            .insert(Arc::new(held.record.attachment.clone()), held);
    }

    /// Forgets what an attachment has. Its addresses are free already.
    pub(in crate::registry) fn drop_held(&mut self, attachment: &Attachment) {
        self.held.remove(attachment);
        self.sight.forget(attachment);
    }

    /// Forgets what an attachment has, and returns it. Its addresses are free.
    pub(in crate::registry) fn release(&mut self, attachment: &Attachment) -> Option<RangeRecord> {
        let Held { record, .. } = self.held.remove(attachment)?;
        self.sight.forget(attachment);
        let addresses: Vec<_> = record
            .given
            .iter()
            .map(|given| given.address.addr())
            .collect();
        self.vacate(attachment, &addresses);
        self.remember(&record);
        Some(record)
    }

    /// Remembers what an identity had, if it may return. An earlier record that says what it had is of no use any more.
    pub(in crate::registry) fn remember(&mut self, record: &RangeRecord) {
        let Some(id) = &record.returns_as else { return };
        let network = record.attachment.network();
        let before = self
            .returning
            .iter()
            .position(|last| last.network == network && last.id == *id);
        let before = before.and_then(|at| self.returning.remove(at));
        let addresses = record
            .given
            .iter()
            .map(|given| given.address.addr())
            .collect();
        let (network, id, attachment) = (network.into(), id.clone(), record.attachment.clone());
        self.returning.push_back(Last {
            network,
            id,
            addresses,
            attachment,
        });
        let oldest = if self.returning.len() > MAX_RETURNING {
            self.returning.pop_front()
        } else {
            None
        };
        for last in before.into_iter().chain(oldest) {
            let is_of_use = self.held.contains_key(&last.attachment)
                || self
                    .returning
                    .iter()
                    .any(|other| other.attachment == last.attachment);
            if !is_of_use {
                self.owed.insert(last.attachment);
            }
        }
    }

    fn last_of(&self, network: &str, id: &ClientId) -> Option<Vec<IpAddr>> {
        let last = self
            .returning
            .iter()
            .find(|last| last.network == network && last.id == *id)?;
        Some(last.addresses.clone())
    }

    /// Forgets that a file says that an address is taken.
    pub(in crate::registry) fn forget_file(&mut self, network: &str, address: IpAddr) {
        let Some(found) = self.networks.get_mut(network) else {
            return;
        };
        if let Some(by) = found.others.remove(&address) {
            self.vacate(&by, &[address]);
        }
    }

    /// Records that somebody else's file claims an address.
    pub(in crate::registry) fn found_file(
        &mut self,
        network: &str,
        address: IpAddr,
        by: Attachment,
    ) {
        let by = Arc::new(by);
        self.forget_file(network, address);
        let Some(found) = self.networks.get_mut(network) else {
            return;
        };
        found.others.insert(address, by.clone());
        if let Some(allocator) = &mut found.allocator {
            allocator.occupy(
                address,
                Holding {
                    by: by.clone(),
                    since: LONG_AGO,
                },
            );
        }
        if let Some(lan) = found.lan.clone() {
            self.occupy_beside(&lan, network, address, &by, LONG_AGO);
        }
    }

    /// Takes over the contents of a network's directory.
    pub(super) fn on_files(
        &mut self,
        name: &str,
        directory: PathBuf,
        found: Vec<FoundFile>,
        last: Vec<(usize, IpAddr)>,
    ) -> Compared {
        // After a restart, two attachments may have one address: a full store could not forget that the first had it.
        let mut ours: BTreeMap<IpAddr, Vec<(Arc<Attachment>, usize)>> = BTreeMap::new();
        for (by, held) in self.held.iter().filter(|(by, _)| is_of(by, name)) {
            for (set, given) in held.record.given.iter().enumerate() {
                ours.entry(given.address.addr())
                    .or_default()
                    .push((by.clone(), set));
            }
        }
        let there: BTreeSet<_> = found.iter().map(|file| file.address).collect();
        let lacking = ours.iter().filter(|(address, _)| !there.contains(address));
        let lacking = lacking
            .flat_map(|(address, of)| of.iter().map(|(by, set)| (*address, by.clone(), *set)))
            .collect();
        let before: Vec<_> = self
            .networks
            .get(name)
            .into_iter()
            .flat_map(|network| network.others.keys().copied())
            .collect();
        before
            .into_iter()
            .for_each(|address| self.forget_file(name, address));
        let network = self.networks.entry(name.into()).or_default();
        network.directory = Some(directory);
        if network.allocator.is_none() {
            network.last = last;
        }
        let mut gone = Vec::new();
        for file in found {
            let by = Attachment::cni(
                name,
                file.container.unwrap_or_default(),
                file.ifname.unwrap_or_default(),
            );
            // A file that names nobody may be ours too.
            let may_be_of = |(of, _): &(Arc<Attachment>, usize)| ["", of.id()].contains(&by.id());
            if ours
                .get(&file.address)
                .is_some_and(|of| of.iter().any(may_be_of))
            {
                continue;
            }
            if file.gone {
                gone.push((file.address, by));
            } else {
                self.found_file(name, file.address, by);
            }
        }
        Compared { gone, lacking }
    }

    /// Returns every known range, and its taken addresses.
    pub(in crate::registry) fn rows(&self) -> Vec<RangeRow> {
        let rows_of = |(name, network): (&SmolStr, &Network)| {
            let (lan, allocator) = (network.lan.clone()?, network.allocator.as_ref()?);
            let row = |usage| RangeRow::of(name, &lan, usage, false);
            Some(allocator.usage().map(row).collect::<Vec<_>>())
        };
        self.networks.iter().filter_map(rows_of).flatten().collect()
    }

    /// Returns how many addresses the ranges of each network have, and how many of these are taken.
    pub(in crate::registry) fn sizes(&self) -> impl Iterator<Item = (&str, (u64, u64))> {
        let sizes = |network: &Network| {
            let of = |usage: crate::range::Usage<'_>| {
                (
                    u64::try_from(usage.size).unwrap_or(u64::MAX),
                    usage.taken.len() as u64,
                )
            };
            let usage = network.allocator.as_ref()?.usage().map(of);
            Some(usage.fold((0_u64, 0), |sum, range| {
                (sum.0.saturating_add(range.0), sum.1 + range.1)
            }))
        };
        self.networks
            .iter()
            .filter_map(move |(name, network)| Some((name.as_str(), sizes(network)?)))
    }

    /// Returns how many of a network's addresses belong to containers whose namespace lives.
    pub(in crate::registry) fn running(&self, attachment: &Attachment) -> usize {
        let name = attachment.network();
        let runs = |(by, held): &(&Arc<Attachment>, &Held)| {
            is_of(by, name) && held.record.cookie.is_some() && !held.is_leaving
        };
        self.held
            .iter()
            .filter(runs)
            .map(|(_, held)| held.record.given.len())
            .sum()
    }
}

/// Returns the addresses that these attachments have, and those that only the files of these networks say are taken.
fn taken<'a>(
    held: impl Iterator<Item = (&'a Arc<Attachment>, &'a Held)>,
    networks: impl Iterator<Item = &'a Network>,
) -> impl Iterator<Item = (IpAddr, Holding)> {
    let held = held.flat_map(|(by, held)| {
        let holding = Holding {
            by: by.clone(),
            since: held.record.since,
        };
        held.record
            .given
            .iter()
            .map(move |given| (given.address.addr(), holding.clone()))
    });
    let others = networks.flat_map(|network| &network.others);
    held.chain(others.map(|(address, by)| {
        (
            *address,
            Holding {
                by: by.clone(),
                since: LONG_AGO,
            },
        )
    }))
}

/// Returns whether an attachment is of this network.
pub(super) fn is_of(attachment: &Attachment, network: &str) -> bool {
    attachment.network() == network
}

/// Returns whether an attachment is this interface of this container. One that is known only from a file may lack the interface:
/// before 0.8, host-local wrote only the container.
pub(super) fn is_interface(attachment: &Attachment, container: &str, ifname: &str) -> bool {
    let Attachment::Cni {
        container: of,
        ifname: on,
        ..
    } = attachment
    else {
        return false;
    };
    of == container && (on == ifname || on.is_empty())
}
