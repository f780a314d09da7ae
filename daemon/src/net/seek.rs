//! Looking for interfaces by Ethernet address and LAN in the namespaces of an engine that does not say where it puts them.

use std::path::Path;

use leasehold_core::identity::Lan;
use leasehold_core::link::{LinkCause, Sighting, Sightings, Sought};
use tracing::debug;

use super::netlink::{LinkAnswer, Which};
use super::netns::Worker;

/// Looks through the namespace of that number, or all that have a file in the directory.
///
/// What cannot be looked into is no reason to leave out the rest, but then not all was seen.
pub(super) fn look(
    worker: &mut Worker,
    directory: &Path,
    sought: &[Sought],
    number: Option<i32>,
) -> Result<Sightings, LinkCause> {
    let mut sightings = Sightings { whole: number.is_none(), ..Sightings::default() };
    for path in worker.list(directory)? {
        match through(worker, &path, sought, number, &mut sightings) {
            // It went meanwhile, or it is the file of containers that share the host's namespace.
            Ok(()) | Err(LinkCause::NoNetns(_) | LinkCause::HostNetns(_)) => {}
            Err(cause) => miss(&mut sightings, &path, cause),
        }
    }
    Ok(sightings)
}

/// Keeps in mind that something could not be seen: what is looked for may be there.
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
            match is_on(worker, &link, &sought.lan) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(cause) => {
                    miss(sightings, path, cause);
                    continue;
                }
            }
            // Heard of from before it is looked at.
            let view = worker.look_within(path, link.index)?;
            let (sought, netns) = (sought.clone(), path.to_owned());
            sightings.found.extend((view.mac == sought.mac).then_some(Sighting { sought, netns, view }));
        }
    }
    Ok(())
}

/// Returns whether a container's link is on this LAN: made on the parent, or on a VLAN of it; or its other end is a port of
/// the bridge. Fails where that cannot be told, as while the LAN's link is not there.
fn is_on(worker: &mut Worker, link: &LinkAnswer, lan: &Lan) -> Result<bool, LinkCause> {
    let Some(name) = lan.parent().filter(|_| link.other != 0) else { return Ok(false) };
    let parent = worker.host_link(Which::Name(name))?.index;
    if link.other == parent {
        return Ok(true);
    }
    match worker.host_link(Which::Index(link.other)) {
        Ok(beneath) => Ok(beneath.master == parent || beneath.other == parent),
        Err(LinkCause::NoLink(_)) => Ok(false),
        Err(cause) => Err(cause),
    }
}
