//! How long others may take: runtimes and servers, the store and the kernel.

use std::time::Duration;

/// How long a runtime may take for its next step: to put an address on after an ADD, to call DEL once a link is gone (a kubelet
/// retries for longer, but begins within seconds), or to delete a link after a DEL.
pub(crate) const NEXT_STEP: Duration = Duration::from_secs(60);

/// How long a container may take to start: up to Docker 27 its link is made before volumes are relabelled and a slow runtime is
/// started.
pub(crate) const SLOW_START: Duration = Duration::from_secs(600);

/// How long a server may take for an offer. It may ping an address for 3 s before that (dnsmasq does), and the first DISCOVER
/// that it hears may be the second.
pub(crate) const OFFER: Duration = Duration::from_secs(5);

/// How long the daemon remembers what it met on a LAN: an address that was declined, which a server keeps as long at least (dnsmasq:
/// ten minutes), a station that claims every address, ADDs that failed, whether a server is on the wire; and how long the journal says
/// nothing more of an address that is taken off again and again.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(600);

/// How long the store and the kernel may take for what follows once there is a lease, whatever time its caller gave.
pub(crate) const AFTERWARDS: Duration = Duration::from_secs(5);

/// How long what should come first may hold up what follows: the RELEASE a DEL's answer (three ARP requests take 0.6 s), the record of
/// a loss the removal of the lost address.
pub(crate) const COMES_FIRST: Duration = Duration::from_secs(1);

/// How long until a link that is down, or has no carrier, is tried again: `tuning` sets it down for a moment.
pub(crate) const LINK_DOWN: Duration = Duration::from_secs(1);
