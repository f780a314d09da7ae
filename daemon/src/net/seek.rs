//! Looking for interfaces by Ethernet address and LAN in the namespaces of an engine that does not say where it puts them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use leasehold_core::identity::Lan;
use leasehold_core::link::own::LinkKind;
use leasehold_core::link::{LinkCause, Sighting, Sightings, Sought, Wire};
use tracing::debug;

use super::netlink::{LinkAnswer, Which};
use super::netns::Worker;

/// Looks through the namespace with that number, or through all that have a file in the directory.
///
/// If something cannot be looked into, the rest is still searched. After a search through all, the kernel is asked whether what
/// was not found is elsewhere: a killed dockerd leaves files of dead namespaces behind, and they look like files of namespaces
/// that are mounted where this process cannot see them; and the directory may be another than the engine's.
pub(super) fn look(
    worker: &mut Worker,
    directory: &Path,
    sought: &[Sought],
    number: Option<i32>,
) -> Result<Sightings, LinkCause> {
    let mut sightings = Sightings {
        whole: number.is_none(),
        ..Sightings::default()
    };
    let mut looked = Vec::new();
    let mut left_out = Vec::new();
    for path in worker.list(directory)? {
        match through(worker, &path, sought, number, &mut sightings) {
            Ok(()) => looked.push(path),
            // It has gone since the listing, or it is the file of containers that share the host's namespace.
            Err(LinkCause::NoNetns(_) | LinkCause::HostNetns(_)) => {}
            Err(cause) => left_out.push((path, cause)),
        }
    }
    let is_found = |sought: &&Sought| sightings.found.iter().any(|found| found.sought == **sought);
    let missed: Vec<_> = sought.iter().filter(|sought| !is_found(sought)).collect();
    let asks = number.is_none() || !left_out.is_empty();
    if asks && may_be_elsewhere(worker, &looked, &missed) {
        let reason = format!(
            "the kernel knows one with such an interface to which nothing in {} leads",
            directory.display()
        );
        let elsewhere = LinkCause::refused("look through all network namespaces", reason);
        left_out.push((directory.to_owned(), elsewhere));
        left_out
            .into_iter()
            .for_each(|(path, cause)| miss(&mut sightings, &path, cause));
    }
    Ok(sightings)
}

/// Returns whether a link with one of the Ethernet addresses is, or may be, in a namespace that was not looked through.
///
/// The kernel gave the host's namespace a number for each namespace into which a link was moved from there.
fn may_be_elsewhere(worker: &mut Worker, looked: &[PathBuf], sought: &[&Sought]) -> bool {
    if sought.is_empty() {
        return false;
    }
    let looked: BTreeSet<_> = looked
        .iter()
        .filter_map(|path| worker.number_of(path).ok().flatten())
        .collect();
    let is_sought = |link: &LinkAnswer| sought.iter().any(|sought| link.mac == Some(sought.mac));
    let found = worker.numbers().and_then(|numbers| {
        let others = numbers
            .into_iter()
            .filter(|number| !looked.contains(number));
        others
            .map(|number| Ok(worker.wired_at(number)?.iter().any(is_sought)))
            .collect::<Result<Vec<_>, _>>()
    });
    match found {
        Ok(found) => found.contains(&true),
        Err(cause) => {
            debug!(%cause, "not all namespaces are known");
            true
        }
    }
}

/// Records that something could not be looked into: what is sought may be there.
fn miss(sightings: &mut Sightings, path: &Path, cause: LinkCause) {
    debug!(path = %path.display(), %cause, "not looked through");
    sightings.whole = false;
    sightings.unseen.get_or_insert(cause);
}

fn through(
    worker: &mut Worker,
    path: &Path,
    sought: &[Sought],
    number: Option<i32>,
    sightings: &mut Sightings,
) -> Result<(), LinkCause> {
    if number.is_some() && worker.number_of(path)? != number {
        return Ok(());
    }
    let links = worker.wired(path)?;
    sightings.seen += 1;
    for link in links {
        for sought in sought.iter().filter(|sought| link.mac == Some(sought.mac)) {
            // The watch reports on it from before the look.
            let view = worker.look_within(path, link.index)?;
            match is_on(worker, view.wire.as_ref(), &sought.lan) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(cause) => {
                    miss(sightings, path, cause);
                    continue;
                }
            }
            let sought = sought.clone();
            let netns = path.to_owned();
            sightings
                .found
                .extend((view.mac == sought.mac).then_some(Sighting {
                    sought,
                    netns,
                    view,
                }));
        }
    }
    Ok(())
}

/// Returns whether a link's wire is this LAN. Fails if that cannot be known, such as while the LAN's link does not exist.
fn is_on(worker: &mut Worker, wire: Option<&Wire>, lan: &Lan) -> Result<bool, LinkCause> {
    let (Some(name), Some(wire)) = (lan.parent(), wire) else {
        return Ok(false);
    };
    // The LAN may have been named by another name of its link; and VLAN 10 of `eth0` has a link of its own, under any name.
    let link = worker.host_link(Which::Name(name))?;
    let named = Lan::Link {
        parent: link.name.into(),
        vlan: lan.vlan(),
    };
    if wire.lan(&named).is(&named) {
        return Ok(true);
    }
    let own = worker.host_link(Which::Name(&wire.parent))?;
    Ok(own.other == link.index && own.made == Some(LinkKind::Vlan(lan.vlan())))
}
