//! What a seed decides about Docker.

use fastrand::Rng;
use netns_fixtures::model::Knows;

use super::{EffectKind, Plan, pick};

/// How the containers of our own network driver join their LAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wires {
    /// Macvlans of the host's link.
    Macvlan,
    /// Ports of the host's link, which is a bridge.
    Bridge,
    /// Ipvlans of the host's link.
    Ipvlan,
    /// Macvlans of a link of ours, which is in a VLAN of the host's link. The whole LAN is in it.
    Vlan,
}

/// The VLAN.
pub(crate) const VLAN: u16 = 10;

impl Plan {
    /// Gives one seed in six Docker containers: their leases are acquired over the host's link, for a container's Ethernet
    /// address. Docker's door reports no containers that run without a record.
    pub(super) fn with_docker(mut self, rng: &mut Rng) -> Self {
        // To a server that knows clients by chaddr, the next container with a name is another client.
        self.docker = rng.u32(..6) == 0 && !self.ipvlan && self.knows == Knows::ClientId;
        if self.docker {
            self.promiscuous = true;
            // A container whose interface is nowhere loses its identity to whoever asks for it.
            self.sharers = 1;
        }
        self
    }

    /// Gives three in four of the seeds with Docker containers networks of our own driver. Among the seeds with ipvlans, every
    /// second has them: there are no other Docker networks there.
    pub(super) fn with_wires(mut self, rng: &mut Rng) -> Self {
        let own = pick(
            rng,
            &[
                None,
                Some(Wires::Macvlan),
                Some(Wires::Bridge),
                Some(Wires::Vlan),
            ],
        );
        let ipvlan =
            rng.bool() && self.ipvlan && self.knows == Knows::ClientId && self.sharers == 1;
        self.wires = if ipvlan {
            Some(Wires::Ipvlan)
        } else {
            own.filter(|_| self.docker)
        };
        match self.wires {
            None => return self,
            Some(Wires::Ipvlan) => self.docker = true,
            Some(Wires::Macvlan) => {}
            // A bridge's servers are behind its ports, and a macvlan beside the link hears nothing that is tagged.
            Some(Wires::Bridge | Wires::Vlan) => self.beside = false,
        }
        for crash in &mut self.crashes {
            if rng.bool() {
                (crash.kind, crash.nth) = (pick(rng, &EffectKind::WIRED), 1 + rng.u32(..4));
            }
        }
        self
    }
}
