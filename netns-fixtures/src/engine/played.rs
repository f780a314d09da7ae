//! dockerd 25, 27, 28 and 29 as an IPAM plugin sees them: their calls in their order, and the links that they make and move.
//!
//! Only what reaches a plugin or the kernel is played. The drivers are macvlan and bridge.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::dockerd::Dockerd;
use super::plugin::Plugin;
use crate::container::Container;
use crate::error::{Doing, Error};
use crate::link::{Mac, mac, mac_text};
use crate::netns::Netns;

/// Which dockerd is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EngineVersion {
    /// 25: like 27, but it asks only once which address spaces there are.
    V25,
    /// 27: like 28, but a container's namespace is mounted, and its link moved, only after it has joined its networks.
    V27,
    /// 28: it asks for a gateway for every network, and passes no name.
    V28,
    /// 29: it asks for a gateway only for bridges, and passes the container's name.
    V29,
}

impl EngineVersion {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::V25, Self::V27, Self::V28, Self::V29];
}

/// Which of Docker's drivers makes the links, and on which link of the host.
#[derive(Clone, Debug)]
pub enum Driver {
    /// Children of this link, in bridge mode.
    Macvlan(String),
    /// veth pairs, one end a port of this bridge.
    Bridge(String),
}

/// dockerd, played on a host.
#[derive(Debug)]
pub struct Played {
    host: Netns,
    /// The plugin that it calls.
    pub plugin: Plugin,
    version: EngineVersion,
    /// The plugin's address space, if the played dockerd has learnt it since its start.
    space: Value,
}

/// The arguments of `docker network create`.
#[derive(Clone, Debug)]
pub struct NetworkPlan {
    /// The driver with its parent or bridge.
    pub driver: Driver,
    /// `--subnet`.
    pub subnet: Option<Ipv4Net>,
    /// `--gateway`.
    pub gateway: Option<Ipv4Addr>,
    /// `--aux-address`.
    pub reserved: Vec<Ipv4Addr>,
    /// `--ipam-opt`.
    pub options: Value,
}

/// A Docker network.
#[derive(Clone, Debug)]
pub struct PlayedNetwork {
    driver: Driver,
    /// The PoolID.
    pub pool_id: String,
    /// The pool.
    pub pool: Ipv4Net,
    /// The containers' router.
    pub gateway: Option<Ipv4Addr>,
    /// The addresses that are given back with the network.
    reserved: Vec<Ipv4Addr>,
}

/// The arguments of `docker run`.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunPlan {
    /// `--ip`.
    pub address: Option<Ipv4Addr>,
    /// `--mac-address`.
    pub mac: Option<Mac>,
}

/// A container's endpoint in a network.
#[derive(Debug)]
pub struct PlayedContainer {
    /// Its namespace and its interface.
    pub container: Container,
    /// The address that the plugin gave.
    pub address: Ipv4Net,
    network: PlayedNetwork,
    /// The name of its link in the host's namespace.
    link: String,
}

impl NetworkPlan {
    /// Returns a plan with only the driver and `--ipam-opt parent`.
    pub fn new(driver: Driver) -> Self {
        let options = json!({ "parent": driver.link() });
        Self {
            driver,
            subnet: None,
            gateway: None,
            reserved: Vec::new(),
            options,
        }
    }

    /// Returns the plan with a subnet.
    pub fn with_subnet(self, subnet: Ipv4Net) -> Self {
        Self {
            subnet: Some(subnet),
            ..self
        }
    }
}

impl Driver {
    fn link(&self) -> &str {
        match self {
            Self::Macvlan(link) | Self::Bridge(link) => link,
        }
    }
}

impl Played {
    /// Starts to play, with the plugin of that name in [`Dockerd::PLUGINS`].
    pub fn start(host: &Netns, version: EngineVersion, plugin: &str) -> Result<Self, Error> {
        fs::create_dir_all(Dockerd::NETNS).doing(|| format!("make {}", Dockerd::NETNS))?;
        let socket = Path::new(Dockerd::PLUGINS).join(format!("{plugin}.sock"));
        let mut played = Self {
            host: host.clone(),
            plugin: Plugin::new(&socket),
            version,
            space: Value::Null,
        };
        let manifest = played.plugin.call("Plugin.Activate", &Value::Null)?;
        if !manifest["Implements"]
            .as_array()
            .is_some_and(|all| all.contains(&json!("IpamDriver")))
        {
            return Err(Error::unreadable(
                "a plugin's manifest",
                manifest.to_string(),
            ));
        }
        played
            .plugin
            .call("IpamDriver.GetCapabilities", &Value::Null)?;
        if version < EngineVersion::V27 {
            played.space = played.address_space()?;
        }
        Ok(played)
    }

    /// Returns the host.
    pub(super) fn host(&self) -> &Netns {
        &self.host
    }

    /// Returns whether this is the given dockerd or a later one.
    pub(super) fn is_at_least(&self, version: EngineVersion) -> bool {
        self.version >= version
    }

    /// Returns whether it passes the container's name.
    pub(super) fn says_names(&self) -> bool {
        self.is_at_least(EngineVersion::V29)
    }

    /// Returns whether a container gets its namespace only after it has joined its networks.
    pub(super) fn mounts_late(&self) -> bool {
        !self.is_at_least(EngineVersion::V28)
    }

    /// Returns a new container's namespace: at its path, or without one where the mount comes late.
    pub(super) fn sandbox(&self, name: &str, number: u32) -> Result<Netns, Error> {
        let path = Path::new(Dockerd::NETNS).join(format!("{number:012x}"));
        let netns = Netns::at(self.host.sandbox(), name, path)?;
        if self.mounts_late() {
            netns.hide()?;
        }
        Ok(netns)
    }

    /// Asks for the plugin's address space.
    fn address_space(&self) -> Result<Value, Error> {
        let spaces = self
            .plugin
            .call("IpamDriver.GetDefaultAddressSpaces", &Value::Null)?;
        Ok(spaces["LocalDefaultAddressSpace"].clone())
    }

    /// Makes a network. After a failure it gives back what it had taken.
    pub fn network_create(&self, plan: &NetworkPlan) -> Result<PlayedNetwork, Error> {
        if self.is_at_least(EngineVersion::V27) {
            self.address_space()?;
        }
        let mut network = self.request_pool(plan)?;
        match self.reserve(plan, &mut network) {
            Ok(()) => Ok(network),
            Err(error) => {
                self.network_rm(network)?;
                Err(error)
            }
        }
    }

    /// Asks only for a network's pool, as dockerd does for each of its networks when it starts.
    pub fn request_pool(&self, plan: &NetworkPlan) -> Result<PlayedNetwork, Error> {
        let space = if self.is_at_least(EngineVersion::V27) {
            self.address_space()?
        } else {
            self.space.clone()
        };
        let ask = json!({
            "AddressSpace": space,
            "Pool": plan.subnet.map_or(String::new(), |subnet| subnet.to_string()),
            "SubPool": "",
            "Options": plan.options,
            "V6": false,
        });
        let answer = self.plugin.call("IpamDriver.RequestPool", &ask)?;
        let bad = || Error::unreadable("a pool", answer.to_string());
        let from_data = match &answer["Data"]["com.docker.network.gateway"] {
            Value::Null => None,
            gateway => Some(
                gateway
                    .as_str()
                    .and_then(|text| text.parse::<Ipv4Net>().ok())
                    .ok_or_else(bad)?
                    .addr(),
            ),
        };
        Ok(PlayedNetwork {
            driver: plan.driver.clone(),
            pool_id: answer["PoolID"].as_str().ok_or_else(bad)?.to_owned(),
            pool: answer["Pool"]
                .as_str()
                .and_then(|pool| pool.parse().ok())
                .ok_or_else(bad)?,
            gateway: from_data,
            // It is given back though it was never requested.
            reserved: from_data.into_iter().collect(),
        })
    }

    /// Reserves a network's gateway and auxiliary addresses.
    fn reserve(&self, plan: &NetworkPlan, network: &mut PlayedNetwork) -> Result<(), Error> {
        let wants_gateway = match plan.driver {
            Driver::Macvlan(_) => !self.is_at_least(EngineVersion::V29),
            Driver::Bridge(_) => true,
        };
        if plan.gateway.is_some() || wants_gateway && network.gateway.is_none() {
            let options = json!({ "RequestAddressType": "com.docker.network.gateway" });
            let gateway = self.request_address(network, plan.gateway, options)?.addr();
            network.gateway = Some(gateway);
            network.reserved.push(gateway);
        }
        for address in &plan.reserved {
            self.request_address(network, Some(*address), Value::Null)?;
            network.reserved.push(*address);
        }
        Ok(())
    }

    /// Removes a network: gives its reserved addresses and its pool back.
    pub fn network_rm(&self, network: PlayedNetwork) -> Result<(), Error> {
        for address in &network.reserved {
            self.release_address(&network, *address)?;
        }
        self.plugin
            .call(
                "IpamDriver.ReleasePool",
                &json!({ "PoolID": network.pool_id }),
            )
            .map(drop)
    }

    /// Runs a container in a network.
    pub fn run(
        &self,
        network: &PlayedNetwork,
        name: &str,
        plan: RunPlan,
    ) -> Result<PlayedContainer, Error> {
        let endpoint = self.request(network, name, plan)?;
        match self.join(&endpoint) {
            Ok(()) => Ok(endpoint),
            Err(error) => {
                self.release(endpoint)?;
                Err(error)
            }
        }
    }

    /// Asks for a container's address. It has no interface yet, and up to version 27 no namespace.
    pub fn request(
        &self,
        network: &PlayedNetwork,
        name: &str,
        plan: RunPlan,
    ) -> Result<PlayedContainer, Error> {
        let number = self.host.sandbox().number();
        let mac = plan.mac.unwrap_or_else(|| mac(number));
        let netns = self.sandbox(name, number)?;
        let mut options = json!({ "com.docker.network.endpoint.macaddress": mac_text(mac) });
        if self.says_names() {
            options["com.docker.network.endpoint.name"] = name.into();
        }
        let address = self.request_address(network, plan.address, options)?;
        let container = Container::new(name, netns, "eth0", mac);
        Ok(PlayedContainer {
            container,
            address,
            network: network.clone(),
            link: format!("veth{number:07x}"),
        })
    }

    /// Gives a container its interface. Docker makes a macvlan in the host's namespace, but the end of a veth pair in the
    /// container's.
    pub fn join(&self, endpoint: &PlayedContainer) -> Result<(), Error> {
        let Container {
            netns, ifname, mac, ..
        } = &endpoint.container;
        let (link, made_up) = (
            &endpoint.link,
            crate::link::mac(self.host.sandbox().number()),
        );
        let show = || {
            if self.mounts_late() {
                netns.show()
            } else {
                Ok(())
            }
        };
        match &endpoint.network.driver {
            Driver::Macvlan(parent) => {
                self.host.add_macvlan(parent, &self.host, link, made_up)?;
                show()?;
                self.host.move_link(link, netns)?;
            }
            Driver::Bridge(bridge) => {
                show()?;
                netns.add_veth(link, made_up, &self.host, link)?;
                self.host.add_port(bridge, link)?;
            }
        }
        netns.rename(link, ifname)?;
        netns.set_mac_of_down(ifname, *mac)?;
        netns.add_address(ifname, endpoint.address)?;
        netns.set_up(ifname)?;
        endpoint
            .network
            .gateway
            .map_or(Ok(()), |router| netns.add_default_route(router))
    }

    /// Takes a container's interface away, as when its last process has ended.
    pub fn leave(&self, endpoint: &PlayedContainer) -> Result<(), Error> {
        let Container { netns, ifname, .. } = &endpoint.container;
        netns.set_down(ifname)?;
        netns.rename(ifname, &endpoint.link)?;
        if let Driver::Macvlan(_) = endpoint.network.driver {
            netns.move_link(&endpoint.link, &self.host)?;
        }
        self.host.delete_link(&endpoint.link)
    }

    /// Gives a container's address back.
    pub fn release(&self, endpoint: PlayedContainer) -> Result<(), Error> {
        self.release_address(&endpoint.network, endpoint.address.addr())
    }

    /// Stops a container.
    pub fn stop(&self, endpoint: PlayedContainer) -> Result<(), Error> {
        self.leave(&endpoint)?;
        self.release(endpoint)
    }

    fn request_address(
        &self,
        network: &PlayedNetwork,
        address: Option<Ipv4Addr>,
        options: Value,
    ) -> Result<Ipv4Net, Error> {
        let address = address.map_or(String::new(), |address| address.to_string());
        let ask = json!({ "PoolID": network.pool_id, "Address": address, "Options": options });
        let answer = self.plugin.call("IpamDriver.RequestAddress", &ask)?;
        let address = answer["Address"]
            .as_str()
            .and_then(|text| text.parse().ok());
        address.ok_or_else(|| Error::unreadable("an address", answer.to_string()))
    }

    fn release_address(&self, network: &PlayedNetwork, address: Ipv4Addr) -> Result<(), Error> {
        let ask = json!({ "PoolID": network.pool_id, "Address": address.to_string() });
        self.plugin
            .call("IpamDriver.ReleaseAddress", &ask)
            .map(drop)
    }
}
