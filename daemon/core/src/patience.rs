//! How long others may take: runtimes and servers.

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

/// How long a server keeps a declined address at least (dnsmasq: ten minutes), and how long the daemon remembers what it learnt about
/// conflicts on a LAN.
pub(crate) const DECLINED: Duration = Duration::from_secs(600);
