//! The parts of the kernel's messages about links and addresses that are used.

use std::net::Ipv4Addr;
use std::time::Duration;

use leasehold_core::link::own::{LinkKind, MacvlanMode};
use leasehold_core::wire::Mac;
use netlink_packet_core::{NLA_HEADER_SIZE, NlasIterator};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::link::{LinkFlags, LinkHeader};
use nix::libc;

use super::NetlinkError;

/// The part of a message about a link that is used.
#[derive(Debug, Default)]
pub(in crate::net) struct LinkAnswer {
    pub(in crate::net) family: AddressFamily,
    pub(in crate::net) index: u32,
    pub(super) kind: u16,
    flags: LinkFlags,
    pub(in crate::net) name: String,
    /// The alias that the link's maker gave it.
    pub(in crate::net) alias: String,
    /// Its kind, if that is one that the daemon makes.
    pub(in crate::net) made: Option<LinkKind>,
    pub(in crate::net) mac: Option<Mac>,
    pub(in crate::net) mtu: u32,
    /// For a veth: the index of the other end, in that end's namespace. For a link made on another link: the index of the latter.
    pub(in crate::net) other: u32,
    /// The number of the namespace that `other` is in, if that is not the link's own.
    pub(in crate::net) other_ns: Option<i32>,
    /// For a bridge's port: the bridge's index.
    pub(in crate::net) master: u32,
    pub(in crate::net) bridge: bool,
    /// For a bridge that filters VLANs: the VLAN of a port that was given none.
    pub(super) default_pvid: Option<u16>,
    /// For a bridge with the spanning tree protocol: how long it blocks a new port.
    pub(in crate::net) port_delay: Option<Duration>,
    pub(in crate::net) macvlan: bool,
    /// Whether it shares another link's wire: a macvlan, a macvtap, an ipvlan or an ipvtap.
    pub(super) upper: bool,
    /// Whether it is connected to no wire.
    pub(super) dummy: bool,
    /// Whether links of its kind are made in software.
    soft: bool,
    /// For a bridge's port: its state (`BR_STATE_*`).
    port_state: Option<u8>,
    pub(in crate::net) received: u64,
}

impl LinkAnswer {
    /// What is said about a bridge's port: IFLA_BRPORT_STATE.
    const PORT_STATE: u16 = 1;
    /// What is particular to a kind of link: IFLA_MACVLAN_MODE, IFLA_IPVLAN_MODE, IFLA_VLAN_ID.
    const DATA_FIRST: u16 = 1;
    /// In a bridge's: IFLA_BR_FORWARD_DELAY, in hundredths of a second, and IFLA_BR_STP_STATE.
    const BRIDGE_DELAY: u16 = 1;
    const BRIDGE_STP: u16 = 5;
    /// In a bridge's: IFLA_BR_VLAN_FILTERING, and IFLA_BR_VLAN_DEFAULT_PVID.
    const BRIDGE_FILTERS: u16 = 7;
    const BRIDGE_PVID: u16 = 39;
    const HEADER: usize = 16;

    /// Reads a `struct ifinfomsg` and its attributes.
    pub(in crate::net) fn read(payload: &[u8]) -> Result<Self, NetlinkError> {
        let header = LinkHeader::parse(payload)
            .map_err(|_| NetlinkError::Unreadable("a link without a header"))?;
        let mut link = Self {
            family: header.interface_family,
            index: header.index,
            kind: header.link_layer_type.into(),
            flags: header.flags,
            ..Self::default()
        };
        for attribute in NlasIterator::new(&payload[Self::HEADER..]) {
            let attribute = attribute
                .map_err(|_| NetlinkError::Unreadable("a link's attribute runs over its end"))?;
            let value = attribute.value();
            let number = || value.try_into().ok().map(u32::from_ne_bytes);
            match attribute.kind() {
                libc::IFLA_ADDRESS => link.mac = value.try_into().ok().map(Mac),
                libc::IFLA_IFNAME => link.name = text(value),
                libc::IFLA_IFALIAS => link.alias = text(value),
                libc::IFLA_MTU => link.mtu = number().unwrap_or(0),
                libc::IFLA_LINK => link.other = number().unwrap_or(0),
                libc::IFLA_LINK_NETNSID => link.other_ns = number().map(u32::cast_signed),
                libc::IFLA_MASTER => link.master = number().unwrap_or(0),
                libc::IFLA_LINKINFO => link.read_info(value),
                libc::IFLA_PROTINFO => link.read_port(value),
                // A `struct rtnl_link_stats64` begins with rx_packets.
                libc::IFLA_STATS64 => {
                    link.received = value
                        .first_chunk()
                        .map_or(0, |bytes| u64::from_ne_bytes(*bytes))
                }
                _ => {}
            }
        }
        Ok(link)
    }

    fn read_info(&mut self, info: &[u8]) {
        if let Some(port) = attribute_in(info, libc::IFLA_INFO_SLAVE_DATA) {
            self.read_port(port);
        }
        let Some(kind) = attribute_in(info, libc::IFLA_INFO_KIND) else {
            return;
        };
        let kind = kind.strip_suffix(b"\0").unwrap_or(kind);
        let data = attribute_in(info, libc::IFLA_INFO_DATA).unwrap_or_default();
        let first = attribute_in(data, Self::DATA_FIRST).unwrap_or_default();
        self.made = kind_of(kind, first);
        self.soft = true;
        self.bridge = kind == b"bridge";
        self.macvlan = kind == b"macvlan";
        self.upper = [&b"macvlan"[..], b"macvtap", b"ipvlan", b"ipvtap"].contains(&kind);
        self.dummy = kind == b"dummy";
        if self.bridge {
            let value = |kind| attribute_in(data, kind);
            let number = |kind| value(kind)?.try_into().ok().map(u32::from_ne_bytes);
            // The port listens, then learns, each for that long (802.1D-1998 §8.4).
            let delay = number(Self::BRIDGE_DELAY)
                .map(|delay| 2 * Duration::from_millis(10 * u64::from(delay)));
            let filters = value(Self::BRIDGE_FILTERS).is_some_and(|filters| filters != [0]);
            let pvid = value(Self::BRIDGE_PVID).and_then(|pvid| pvid.try_into().ok());
            self.default_pvid = pvid.map(u16::from_ne_bytes).filter(|_| filters);
            self.port_delay =
                delay.filter(|_| number(Self::BRIDGE_STP).is_some_and(|stp| stp != 0));
        }
    }

    fn read_port(&mut self, port: &[u8]) {
        let state = attribute_in(port, Self::PORT_STATE).and_then(|state| state.first().copied());
        self.port_state = state.or(self.port_state);
    }

    /// Returns whether it is a bridge's port and forwards.
    pub(in crate::net) fn forwards(&self) -> bool {
        const BR_STATE_FORWARDING: u8 = 3;
        self.port_state == Some(BR_STATE_FORWARDING)
    }

    /// Returns whether it leads out of its namespace: its other end is elsewhere, or it is hardware.
    pub(super) fn leads_out(&self) -> bool {
        self.other_ns.is_some() || !self.soft
    }

    /// Returns whether it is a port of a bridge.
    pub(super) fn is_port(&self) -> bool {
        self.master != 0
    }

    pub(in crate::net) fn is_up(&self) -> bool {
        self.flags.contains(LinkFlags::Up)
    }

    /// Returns whether a frame that is sent now can leave.
    ///
    /// `IFF_LOWER_UP` is set the moment the wire is there, while the link's queue still silently drops every frame.
    /// `IFF_RUNNING` follows when the kernel has attached the real queue (`linkwatch_do_dev`), and then a message about the link.
    /// It also stays unset while a port waits for 802.1X.
    pub(in crate::net) fn has_carrier(&self) -> bool {
        self.flags
            .contains(LinkFlags::Up | LinkFlags::LowerUp | LinkFlags::Running)
    }
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value)
        .trim_end_matches('\0')
        .to_owned()
}

/// Returns a link's kind by its name and the first attribute particular to that kind.
fn kind_of(name: &[u8], first: &[u8]) -> Option<LinkKind> {
    const MACVLAN_PRIVATE: u32 = 1;
    const MACVLAN_VEPA: u32 = 2;
    const MACVLAN_BRIDGE: u32 = 4;
    const MACVLAN_PASSTHRU: u32 = 8;
    const IPVLAN_L2: u16 = 0;
    let short = || first.try_into().ok().map(u16::from_ne_bytes);
    match name {
        b"macvlan" => Some(LinkKind::Macvlan(
            match first.try_into().ok().map(u32::from_ne_bytes)? {
                MACVLAN_PRIVATE => MacvlanMode::Private,
                MACVLAN_VEPA => MacvlanMode::Vepa,
                MACVLAN_BRIDGE => MacvlanMode::Bridge,
                MACVLAN_PASSTHRU => MacvlanMode::Passthru,
                _ => return None,
            },
        )),
        b"ipvlan" => short()
            .filter(|mode| *mode == IPVLAN_L2)
            .map(|_| LinkKind::Ipvlan),
        b"veth" | b"netkit" => Some(LinkKind::Port),
        b"vlan" => short().map(LinkKind::Vlan),
        _ => None,
    }
}

/// The part of a message about an IPv4 address that is used.
#[derive(Debug)]
pub(in crate::net) struct AddressAnswer {
    pub(in crate::net) index: u32,
    pub(in crate::net) address: Ipv4Addr,
    pub(super) prefix: u8,
}

impl AddressAnswer {
    const HEADER: usize = 8;

    /// Reads a `struct ifaddrmsg` and its attributes; `None` if it is not about IPv4.
    pub(in crate::net) fn read(payload: &[u8]) -> Result<Option<Self>, NetlinkError> {
        let Some(&[family, prefix, _, _, i0, i1, i2, i3]) =
            payload.first_chunk::<{ Self::HEADER }>()
        else {
            return Err(NetlinkError::Unreadable("an address without a header"));
        };
        if i32::from(family) != libc::AF_INET {
            return Ok(None);
        }
        let mut local = None;
        let mut peer = None;
        for attribute in NlasIterator::new(&payload[Self::HEADER..]) {
            let attribute = attribute.map_err(|_| {
                NetlinkError::Unreadable("an address's attribute runs over its end")
            })?;
            let address = || {
                <[u8; 4]>::try_from(attribute.value())
                    .ok()
                    .map(Ipv4Addr::from)
            };
            match attribute.kind() {
                libc::IFA_LOCAL => local = address(),
                libc::IFA_ADDRESS => peer = address(),
                _ => {}
            }
        }
        // On a point-to-point link IFA_ADDRESS is the other end's (linux/if_addr.h).
        let address = local.or(peer).ok_or(NetlinkError::Unreadable(
            "an address message without an address",
        ))?;
        Ok(Some(Self {
            index: u32::from_ne_bytes([i0, i1, i2, i3]),
            address,
            prefix,
        }))
    }
}

/// Returns the number (nsid) in a message about a namespace's number.
pub(in crate::net) fn nsid_in(payload: &[u8]) -> Option<i32> {
    const HEADER: usize = 4;
    const NETNSA_NSID: u16 = 1;
    let number = attribute_in(payload.get(HEADER..)?, NETNSA_NSID)?;
    number.try_into().ok().map(i32::from_ne_bytes)
}

/// Returns the value of the first attribute of a kind.
pub(in crate::net) fn attribute_in(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    let mut attributes = NlasIterator::new(attributes).flatten();
    let found = attributes.find(|attribute| attribute.kind() == kind)?;
    let end = found.length().into();
    found.into_inner().get(NLA_HEADER_SIZE..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).expect("a short value");
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn the_vlan_of_a_bridges_ports_counts_if_it_filters() {
        for (filters, default_pvid) in [(1, Some(3)), (0, None)] {
            let data = [
                attribute(LinkAnswer::BRIDGE_FILTERS, &[filters]),
                attribute(LinkAnswer::BRIDGE_PVID, &3_u16.to_ne_bytes()),
            ];
            let info = [
                attribute(libc::IFLA_INFO_KIND, b"bridge\0"),
                attribute(libc::IFLA_INFO_DATA, &data.concat()),
            ];
            let message = [
                vec![0; LinkAnswer::HEADER],
                attribute(libc::IFLA_LINKINFO, &info.concat()),
            ];
            let link = LinkAnswer::read(&message.concat()).expect("a link");
            assert_eq!((link.bridge, link.default_pvid), (true, default_pvid));
        }
    }
}
