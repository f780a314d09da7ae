//! Links, addresses and routes of a namespace, through rtnetlink.

use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

use ipnet::Ipv4Net;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use rtnetlink::packet_route::link::{InfoData, InfoKind, InfoVeth, MacVlanMode};
use rtnetlink::packet_route::neighbour::NeighbourState;
use rtnetlink::{
    Handle, LinkBridge, LinkMacVlan, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder,
};

use crate::error::{Doing, Error};
use crate::netns::Netns;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Returns a locally administered unicast address that ends in `number`.
pub fn mac(number: u32) -> Mac {
    let [a, b, c, d] = number.to_be_bytes();
    [0x02, 0x6c, a, b, c, d]
}

/// Writes an Ethernet address as `02:6c:00:00:00:01`.
pub fn mac_text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Reads an Ethernet address.
pub(crate) fn parse_mac(text: &str) -> Option<Mac> {
    let bytes: Option<Vec<u8>> = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).ok())
        .collect();
    bytes?.try_into().ok()
}

impl Netns {
    /// Makes a veth pair: `ifname` here, `peer_ifname` in `peer`. Both are down.
    pub fn add_veth(
        &self,
        ifname: &str,
        address: Mac,
        peer: &Netns,
        peer_ifname: &str,
    ) -> Result<(), Error> {
        let far = LinkMessageBuilder::<LinkUnspec>::new()
            .name(peer_ifname)
            .setns_by_fd(peer.fd().as_raw_fd())
            .build();
        let near = LinkMessageBuilder::<LinkVeth>::new_with_info_kind(InfoKind::Veth)
            .name(ifname)
            .address(address.to_vec())
            .set_info_data(InfoData::Veth(InfoVeth::Peer(far)))
            .build();
        self.netlink(async |h| h.link().add(near).execute().await)
            .doing(|| format!("make veth {ifname}"))
    }

    /// Makes a macvlan in bridge mode on `parent`, which is here, and puts it into `into` as `ifname`. It is down.
    pub fn add_macvlan(
        &self,
        parent: &str,
        into: &Netns,
        ifname: &str,
        address: Mac,
    ) -> Result<(), Error> {
        let message = LinkMacVlan::new(ifname, self.index(parent)?, MacVlanMode::Bridge)
            .address(address.to_vec())
            .setns_by_fd(into.fd().as_raw_fd())
            .build();
        self.netlink(async |h| h.link().add(message).execute().await)
            .doing(|| format!("make macvlan on {parent}"))
    }

    /// Moves a link to another namespace.
    pub fn move_link(&self, ifname: &str, into: &Netns) -> Result<(), Error> {
        let message = LinkUnspec::new_with_name(ifname)
            .setns_by_fd(into.fd().as_raw_fd())
            .build();
        self.set_link(message, || format!("move {ifname} to {}", into.name()))
    }

    /// Gives a link another name.
    pub fn rename(&self, ifname: &str, new: &str) -> Result<(), Error> {
        let message = LinkUnspec::new_with_index(self.index(ifname)?)
            .name(new)
            .build();
        self.set_link(message, || format!("rename {ifname} to {new}"))
    }

    /// Makes a bridge that is up.
    pub fn add_bridge(&self, ifname: &str, address: Mac) -> Result<(), Error> {
        let message = LinkBridge::new(ifname).address(address.to_vec()).build();
        self.netlink(async |h| h.link().add(message).execute().await)
            .doing(|| format!("make bridge {ifname}"))
    }

    /// Makes `ifname` a port of `bridge` and sets it up.
    pub fn add_port(&self, bridge: &str, ifname: &str) -> Result<(), Error> {
        let message = LinkUnspec::new_with_name(ifname)
            .controller(self.index(bridge)?)
            .up()
            .build();
        self.set_link(message, || format!("make {ifname} a port of {bridge}"))
    }

    /// Sets a link up.
    pub fn set_up(&self, ifname: &str) -> Result<(), Error> {
        self.set_link(LinkUnspec::new_with_name(ifname).up().build(), || {
            format!("set {ifname} up")
        })
    }

    /// Sets a link down.
    pub fn set_down(&self, ifname: &str) -> Result<(), Error> {
        self.set_link(LinkUnspec::new_with_name(ifname).down().build(), || {
            format!("set {ifname} down")
        })
    }

    /// Gives a link another Ethernet address, setting it down for a moment, as the plugin `tuning` does.
    pub fn set_mac(&self, ifname: &str, mac: Mac) -> Result<(), Error> {
        self.set_down(ifname)?;
        self.set_mac_of_down(ifname, mac)?;
        self.set_up(ifname)
    }

    /// Gives a link that is down another Ethernet address.
    pub(crate) fn set_mac_of_down(&self, ifname: &str, mac: Mac) -> Result<(), Error> {
        let message = LinkUnspec::new_with_name(ifname)
            .address(mac.to_vec())
            .build();
        self.set_link(message, || {
            format!("give {ifname} the Ethernet address {}", mac_text(mac))
        })
    }

    /// Deletes a link.
    pub fn delete_link(&self, ifname: &str) -> Result<(), Error> {
        let index = self.index(ifname)?;
        self.netlink(async |h| h.link().del(index).execute().await)
            .doing(|| format!("delete {ifname}"))
    }

    /// Gives a link an address.
    pub fn add_address(&self, ifname: &str, address: Ipv4Net) -> Result<(), Error> {
        let index = self.index(ifname)?;
        let (ip, prefix) = (address.addr().into(), address.prefix_len());
        self.netlink(async |h| h.address().add(index, ip, prefix).execute().await)
            .doing(|| format!("give {ifname} the address {address}"))
    }

    /// Adds a route through `ifname`, via the next hop `via` or directly onto the link.
    pub fn add_route(&self, ifname: &str, to: Ipv4Net, via: Option<Ipv4Addr>) -> Result<(), Error> {
        let to_subnet = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(to.network(), to.prefix_len())
            .output_interface(self.index(ifname)?);
        let message = match via {
            Some(router) => to_subnet.gateway(router).onlink().build(),
            None => to_subnet
                .scope(rtnetlink::packet_route::route::RouteScope::Link)
                .build(),
        };
        self.netlink(async |h| h.route().add(message).execute().await)
            .doing(|| format!("route {to} by {ifname}"))
    }

    /// Adds a default route via a router that is on a link's subnet.
    pub(crate) fn add_default_route(&self, router: Ipv4Addr) -> Result<(), Error> {
        let message = RouteMessageBuilder::<Ipv4Addr>::new()
            .gateway(router)
            .build();
        self.netlink(async |h| h.route().add(message).execute().await)
            .doing(|| format!("route all by {router}"))
    }

    /// Sets a neighbour's Ethernet address in the kernel, in place of ARP.
    pub fn set_neighbour(&self, ifname: &str, address: Ipv4Addr, mac: Mac) -> Result<(), Error> {
        let index = self.index(ifname)?;
        self.netlink(async |h| {
            let request = h
                .neighbours()
                .add(index, address.into())
                .link_layer_address(&mac);
            request
                .state(NeighbourState::Stale)
                .replace()
                .execute()
                .await
        })
        .doing(|| format!("set the neighbour {address} on {ifname}"))
    }

    /// Returns the IPv4 addresses of a link.
    pub fn addresses(&self, ifname: &str) -> Result<Vec<Ipv4Net>, Error> {
        let of_link = |a: &InterfaceAddress| a.interface_name == ifname;
        let network = |a: InterfaceAddress| {
            let (ip, mask) = (
                a.address?.as_sockaddr_in()?.ip(),
                a.netmask?.as_sockaddr_in()?.ip(),
            );
            Ipv4Net::with_netmask(ip, mask).ok()
        };
        self.run(|| getifaddrs().map(|all| all.filter(of_link).filter_map(network).collect()))
            .doing(|| format!("read the addresses of {ifname}"))
    }

    /// Returns whether a link is there and set up.
    pub fn is_up(&self, ifname: &str) -> Result<bool, Error> {
        let up = |a: InterfaceAddress| {
            a.interface_name == ifname && a.flags.contains(InterfaceFlags::IFF_UP)
        };
        self.run(|| getifaddrs().map(|mut all| all.any(up)))
            .doing(|| format!("read the flags of {ifname}"))
    }

    /// Returns the index of a link.
    pub fn index(&self, ifname: &str) -> Result<u32, Error> {
        self.run(|| if_nametoindex(ifname))
            .doing(|| format!("find {ifname} in {}", self.name()))
    }

    fn set_link(
        &self,
        message: rtnetlink::packet_route::link::LinkMessage,
        doing: impl FnOnce() -> String,
    ) -> Result<(), Error> {
        self.netlink(async |h| h.link().set(message).execute().await)
            .doing(doing)
    }

    fn netlink<F>(&self, request: F) -> Result<(), rtnetlink::Error>
    where
        F: AsyncFnOnce(Handle) -> Result<(), rtnetlink::Error> + Send,
    {
        self.run(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_io()
                .build();
            let runtime = runtime.map_err(|e| rtnetlink::Error::NamespaceError(e.to_string()))?;
            runtime.block_on(async {
                let (connection, handle, _) = rtnetlink::new_connection()
                    .map_err(|e| rtnetlink::Error::NamespaceError(e.to_string()))?;
                tokio::spawn(connection);
                request(handle).await
            })
        })
    }
}
