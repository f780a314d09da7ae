//! A LAN: a switch and machines on it, one of them the host whose containers ask for addresses.
//!
//! ```text
//!  server netns           switch netns             host netns              container netns
//!  eth0 10.7.0.1/16 ───── port ─ br0 ─ port ────── eth0 ── macvlan ─────── eth0
//! ```

use std::net::Ipv4Addr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use crate::container::Container;
use crate::error::Error;
use crate::link::{Mac, mac};
use crate::netns::Netns;
use crate::sandbox::Sandbox;

/// A broadcast domain with a server's machine and a host on it.
#[derive(Debug)]
pub struct Lan {
    /// Where the daemon runs. Its link [`Lan::IFNAME`] has no address, because a parent of macvlans needs none.
    pub host: Netns,
    /// Where the DHCP server runs, with [`Lan::SERVER`] on [`Lan::IFNAME`].
    pub server: Netns,
    switch: Netns,
    sandbox: Sandbox,
}

impl Lan {
    /// The name of every machine's link on the LAN.
    pub const IFNAME: &str = "eth0";
    /// The name of the host's bridge, if it has one.
    pub const BRIDGE: &str = "cni0";
    /// The server's address.
    pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 1);
    /// The subnet.
    pub const SUBNET: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 7, 0, 0), 16);
    /// The name of the host's link on the second LAN, if it is on one.
    pub const SECOND_IFNAME: &str = "eth1";
    /// The address of the second LAN's server. Its subnet has the same prefix length as the first.
    pub const SECOND_SERVER: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 1);
    /// A loss of carrier too long for a daemon to ignore: it waits three seconds, and the kernel may report the loss a
    /// second late.
    pub const LONG: Duration = Duration::from_secs(10);

    /// Makes a LAN whose host and server are up.
    pub fn new(sandbox: &Sandbox) -> Result<Self, Error> {
        let switch = Netns::new(sandbox, "switch")?;
        switch.add_bridge("br0", mac(sandbox.number()))?;
        let (host, server) = (Netns::new(sandbox, "host")?, Netns::new(sandbox, "server")?);
        let lan = Self {
            host,
            server,
            switch,
            sandbox: sandbox.clone(),
        };
        lan.plug_in(&lan.host)?;
        lan.plug_in(&lan.server)?;
        lan.server
            .add_address(Self::IFNAME, Self::on_lan(Self::SERVER))?;
        Ok(lan)
    }

    /// Adds a machine with its own address, such as a second server.
    pub fn machine(&self, name: &str, address: Ipv4Addr) -> Result<Netns, Error> {
        let netns = Netns::new(&self.sandbox, name)?;
        self.plug_in(&netns)?;
        netns.add_address(Self::IFNAME, Self::on_lan(address))?;
        Ok(netns)
    }

    /// Adds a machine in a macvlan on the host's link, with its own address, such as a server in a container. The other macvlans
    /// and the wire reach it, but the host does not through that link itself.
    pub fn sibling(&self, name: &str, address: Ipv4Addr) -> Result<Netns, Error> {
        let netns = self.container(name)?.netns;
        netns.add_address(Self::IFNAME, Self::on_lan(address))?;
        netns.set_up(Self::IFNAME)?;
        Ok(netns)
    }

    /// Pulls a machine's cable out of the switch: it loses its carrier.
    pub fn unplug(&self, machine: &Netns) -> Result<(), Error> {
        self.switch.set_down(machine.name())
    }

    /// Puts the cable back.
    pub fn replug(&self, machine: &Netns) -> Result<(), Error> {
        self.switch.set_up(machine.name())
    }

    /// Pulls a machine's cable for a while.
    pub fn interrupt(&self, machine: &Netns, duration: Duration) -> Result<(), Error> {
        self.unplug(machine)?;
        thread::sleep(duration);
        self.replug(machine)
    }

    /// Gives the host another link on the LAN, for more macvlans than one parent should have. The switch keeps such
    /// links apart: each reaches the servers, and none reaches the other's containers.
    pub fn add_uplink(&self, ifname: &str) -> Result<(), Error> {
        let port = format!("host-{ifname}");
        self.host
            .add_veth(ifname, mac(self.sandbox.number()), &self.switch, &port)?;
        self.switch.add_port("br0", &port)?;
        self.switch
            .sh(&format!("bridge link set dev {port} isolated on"))?;
        self.host.set_up(ifname)
    }

    /// Puts the host on a second LAN too, and returns the machine of that LAN's server. A cable joins the two; nobody else is on
    /// that LAN.
    pub fn add_second(&self) -> Result<Netns, Error> {
        let server = Netns::new(&self.sandbox, "server2")?;
        self.host.add_veth(
            Self::SECOND_IFNAME,
            mac(self.sandbox.number()),
            &server,
            Self::IFNAME,
        )?;
        self.host.set_up(Self::SECOND_IFNAME)?;
        server.set_mac(Self::IFNAME, mac(self.sandbox.number()))?;
        server.add_address(Self::IFNAME, Self::on_lan(Self::SECOND_SERVER))?;
        Ok(server)
    }

    /// Makes a container as a runtime and the `macvlan` plugin do: a namespace, and in it `eth0`, which is down.
    pub fn container(&self, id: &str) -> Result<Container, Error> {
        self.container_on(Self::IFNAME, id, mac(self.sandbox.number()))
    }

    /// Makes a container as [`Lan::container`] does, but on a host link and with an Ethernet address of the caller's choice.
    pub fn container_on(&self, parent: &str, id: &str, address: Mac) -> Result<Container, Error> {
        let netns = Netns::new(&self.sandbox, id)?;
        self.host.add_macvlan(parent, &netns, "eth0", address)?;
        Ok(Container::new(id, netns, "eth0", address))
    }

    /// Puts the host's link into a bridge, [`Lan::BRIDGE`], as on hosts whose containers are on a bridge. From then on
    /// the link cannot be a parent of macvlans.
    pub fn add_host_bridge(&self) -> Result<(), Error> {
        self.host
            .add_bridge(Self::BRIDGE, mac(self.sandbox.number()))?;
        self.host.add_port(Self::BRIDGE, Self::IFNAME)
    }

    /// Makes a container as a runtime and the `bridge` plugin do: a veth pair from the host's bridge to `eth0`, which is
    /// down.
    pub fn bridged_container(&self, id: &str) -> Result<Container, Error> {
        let netns = Netns::new(&self.sandbox, id)?;
        let address = mac(self.sandbox.number());
        netns.add_veth("eth0", address, &self.host, id)?;
        self.host.add_port(Self::BRIDGE, id)?;
        Ok(Container::new(id, netns, "eth0", address))
    }

    /// Returns the CNI configuration of a network on the host's bridge, otherwise as [`Lan::cni_config`].
    pub fn bridge_config(socket: &Path) -> Value {
        let mut config = Self::cni_config(socket);
        config["type"] = "bridge".into();
        config["bridge"] = Self::BRIDGE.into();
        config.as_object_mut().map(|keys| keys.remove("master"));
        config
    }

    /// Returns the CNI configuration of a network of veth pairs from the host to its containers, otherwise as
    /// [`Lan::cni_config`].
    pub fn ptp_config(socket: &Path) -> Value {
        let mut config = Self::cni_config(socket);
        config["type"] = "ptp".into();
        config.as_object_mut().map(|keys| keys.remove("master"));
        config
    }

    /// Returns the CNI configuration of a network of macvlans on this LAN whose addresses come from the daemon that
    /// listens at `socket`.
    pub fn cni_config(socket: &Path) -> Value {
        json!({
            "cniVersion": "1.0.0",
            "name": "lan",
            "type": "macvlan",
            "master": Self::IFNAME,
            "ipam": { "type": "dhcp", "daemonSocketPath": socket },
        })
    }

    /// Returns an address with the LAN's prefix.
    pub fn on_lan(address: Ipv4Addr) -> Ipv4Net {
        Ipv4Net::new_assert(address, Self::SUBNET.prefix_len())
    }

    fn plug_in(&self, machine: &Netns) -> Result<(), Error> {
        machine.add_veth(
            Self::IFNAME,
            mac(self.sandbox.number()),
            &self.switch,
            machine.name(),
        )?;
        self.switch.add_port("br0", machine.name())?;
        machine.set_up(Self::IFNAME)
    }
}
