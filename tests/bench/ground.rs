//! The ground: a LAN, the host's links on it, containers on each, and a DHCP server.

use std::collections::BTreeSet;
use std::error::Error;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use netns_fixtures::server::{Kea, KeaConfig};
use netns_fixtures::{Container, Lan, Log, Mac, Sandbox, mac};

/// The most macvlans on one host link when speed is measured: a broadcast is delivered to each.
pub(crate) const PER_PARENT: usize = 250;
/// The servers' pool: many more addresses than containers, so that choosing one never takes long.
pub(crate) const POOL: RangeInclusive<Ipv4Addr> =
    Ipv4Addr::new(10, 7, 16, 0)..=Ipv4Addr::new(10, 7, 79, 255);
/// How many addresses that is.
const POOL_SIZE: usize = 16 << 10;
/// The pause between two looks at the server's leases.
const LOOK: Duration = Duration::from_millis(20);

/// The state of a container's link when its address is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// Down, as main plugins leave it. The incumbent opens its socket before it sets such a link up, so it loses its
    /// first DISCOVER and waits about two seconds.
    Down,
    /// Up, as suits the incumbent.
    Up,
}

/// A LAN with containers.
#[derive(Debug)]
pub(crate) struct Ground {
    /// The LAN.
    pub(crate) lan: Lan,
    places: Vec<Place>,
    server: Kea,
}

/// A container and its parent link.
#[derive(Debug)]
pub(crate) struct Place {
    /// The container.
    pub(crate) container: Container,
    /// `None`: it is on the host's bridge.
    parent: Option<String>,
}

impl Place {
    /// Returns the network's configuration, as a runtime passes it to a plugin whose daemon listens at `socket`.
    pub(crate) fn config(&self, socket: &Path) -> Vec<u8> {
        let mut config = Lan::bridge_config(socket);
        if let Some(parent) = &self.parent {
            config = Lan::cni_config(socket);
            config["master"] = parent.as_str().into();
        }
        config.to_string().into_bytes()
    }
}

impl Ground {
    /// Makes a LAN with `count` containers, at most `per_parent` of them on one host link.
    pub(crate) fn new(
        sandbox: &Sandbox,
        containers: usize,
        per_parent: usize,
    ) -> Result<Self, Box<dyn Error>> {
        let lan = Lan::new(sandbox)?;
        let places = places(&lan, containers, per_parent)?;
        // In memory only: both contenders would wait for what a server writes.
        let server = Kea::start(
            &lan,
            KeaConfig {
                pool: POOL,
                persist: false,
                ..KeaConfig::default()
            },
        )?;
        Ok(Self {
            lan,
            places,
            server,
        })
    }

    /// Puts as many other containers onto a bridge of the host, in place of the existing ones.
    pub(crate) fn move_to_bridge(&mut self, containers: usize) -> Result<(), Box<dyn Error>> {
        self.lan.add_host_bridge()?;
        let place = |number: usize| -> Result<Place, Box<dyn Error>> {
            Ok(Place {
                container: self.lan.bridged_container(&format!("b{number}"))?,
                parent: None,
            })
        };
        self.places = (0..containers).map(place).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Replaces the containers with others, all on one host link.
    pub(crate) fn crowd(&mut self, containers: usize) -> Result<(), Box<dyn Error>> {
        const PARENT: &str = "crowd";
        self.lan.add_uplink(PARENT)?;
        self.places.clear();
        for number in 0..containers {
            let container = self.lan.container_on(
                PARENT,
                &format!("crowd{number}"),
                address(POOL_SIZE + number),
            )?;
            self.places.push(Place {
                container,
                parent: Some(PARENT.to_owned()),
            });
        }
        Ok(())
    }

    /// Returns the containers from `first` on, `count` of them.
    pub(crate) fn places(&self, first: usize, count: usize) -> &[Place] {
        &self.places[first..first + count]
    }

    /// Prepares a turn with those containers: sets their links down, and up again if they should be, and makes the
    /// server forget all leases.
    pub(crate) fn prepare(
        &mut self,
        first: usize,
        count: usize,
        links: Links,
    ) -> Result<(), Box<dyn Error>> {
        for Place { container, .. } in &self.places[first..first + count] {
            container.netns.set_down(&container.ifname)?;
            if links == Links::Up {
                container.netns.set_up(&container.ifname)?;
            }
        }
        Ok(self.server.restart(None)?)
    }

    /// Ends a turn: sets the links down, so that they get no broadcasts from others.
    pub(crate) fn finish(&self, first: usize, count: usize) -> Result<(), Box<dyn Error>> {
        let mut places = self.places[first..first + count].iter();
        places.try_for_each(|Place { container, .. }| {
            Ok(container.netns.set_down(&container.ifname)?)
        })
    }

    /// Returns the addresses that the server has not got back, once there are none left or `patience` is over.
    pub(crate) fn leases_left(&self, patience: Duration) -> BTreeSet<String> {
        let began = Instant::now();
        loop {
            let left = held(&self.server.log().map(Log::lines).unwrap_or_default());
            if left.is_empty() || began.elapsed() >= patience {
                return left;
            }
            thread::sleep(LOOK);
        }
    }
}

/// Makes containers, at most `per_parent` of them on one host link.
pub(crate) fn places(
    lan: &Lan,
    containers: usize,
    per_parent: usize,
) -> Result<Vec<Place>, Box<dyn Error>> {
    let parents = containers.div_ceil(per_parent);
    let parent = |number: usize| format!("up{number}");
    for number in 0..parents {
        lan.add_uplink(&parent(number))?;
    }
    let mut places = Vec::with_capacity(containers);
    for number in 0..containers {
        let parent = parent(number % parents);
        let container = lan.container_on(&parent, &format!("c{number}"), address(number))?;
        places.push(Place {
            container,
            parent: Some(parent),
        });
    }
    Ok(places)
}

/// Returns the addresses that are held according to Kea's log: `DHCP4_LEASE_ALLOC …: lease 10.7.16.5 has been allocated
/// for 3600 seconds`, `DHCP4_RELEASE …: address 10.7.16.5 was released properly.`
fn held(lines: &[String]) -> BTreeSet<String> {
    let mut held = BTreeSet::new();
    for line in lines {
        let after = |word: &str| {
            line.rsplit_once(word)
                .and_then(|(_, rest)| rest.split(' ').next())
        };
        if let Some(address) = after(": lease ").filter(|_| line.contains(" DHCP4_LEASE_ALLOC ")) {
            held.insert(address.to_owned());
        } else if let Some(address) =
            after(": address ").filter(|_| line.contains(" DHCP4_RELEASE "))
        {
            held.remove(address);
        }
    }
    held
}

/// Returns a container's Ethernet address, as random as those of macvlans.
fn address(number: usize) -> Mac {
    mac((number as u32).wrapping_mul(0x9e37_79b1))
}
