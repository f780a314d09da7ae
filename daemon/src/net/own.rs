//! Our own links in the host's namespace: those of Docker's endpoints and of their VLANs.
//!
//! Each has an alias that names its owner and the store of the daemon that made it. The kernel accepts an alias only for an
//! existing link: a link with an endpoint's name but no alias was left half-made by a daemon killed at that moment. An endpoint's
//! link comes back from its container, which may have given it another alias: a link with the endpoint's name, of a kind that we
//! make, and down, is the endpoint's unless it has another daemon's mark.
//!
//! [`Net`](super::Net) does everything in the order of the requests: a deletion must not overtake the creation of its link.

use leasehold_core::link::LinkCause;
use leasehold_core::link::own::{LinkKind, LinkOwner, MacvlanMode, OwnLink, OwnLinks};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoIpVlan, InfoKind, InfoMacVlan, InfoVeth, InfoVlan, IpVlanMode, LinkAttribute,
    LinkInfo, MacVlanMode,
};
use nix::libc;
use tracing::debug;

use super::alias::{Mark, StoreId};
use super::netlink::{LinkAnswer, Netlink, NetlinkError, Which, link_message};
use super::port::{port_mac, without_ipv6};

/// Makes a link, unless it is there.
pub(super) fn make(netlink: &mut Netlink, store: StoreId, link: &OwnLink) -> Result<(), LinkCause> {
    let name = link.owner.ifname();
    let (on, _) = netlink.ethernet(Which::Name(&link.on))?;
    match there(netlink, &name)? {
        None => {}
        Some(found) if is_own(&found, &link.owner, store) => {
            if netlink.is_as_wanted(&found, link, &on) {
                return netlink.set_up_if_vlan(&found, link.kind);
            }
            netlink.delete(found.index)?;
        }
        // Somebody else made the requested link.
        Some(found) if is_vlan(&found, link, &on) => {
            return if found.is_up() {
                Ok(())
            } else {
                Err(LinkCause::Down)
            };
        }
        Some(_) => {
            let reason = format!(
                "{name} is the name of a link that is not leasehold's: rename or delete that"
            );
            return Err(LinkCause::refused(making(link.kind).0, reason));
        }
    }
    let asked = netlink.change(request(link, &on), NLM_F_CREATE | NLM_F_EXCL);
    asked.map_err(|error| refused(netlink, error, link, &on))?;
    let made = netlink.link(Which::Name(&name))?;
    let finished = finish(netlink, store, link, &on, &made);
    if finished.is_err() {
        // The first failure is the one to report.
        let _ = netlink.delete(made.index);
    }
    debug!(name, on = link.on, kind = ?link.kind, ok = finished.is_ok(), "made a link");
    finished
}

/// Sets on a new link what cannot be set before it exists.
fn finish(
    netlink: &mut Netlink,
    store: StoreId,
    link: &OwnLink,
    on: &LinkAnswer,
    made: &LinkAnswer,
) -> Result<(), LinkCause> {
    let failed = |doing| move |error: NetlinkError| error.at(Which::Index(made.index), doing);
    let alias = Mark::of(&link.owner, false).alias(store);
    netlink
        .set(made.index, LinkAttribute::IfAlias(alias))
        .map_err(failed("name a link"))?;
    match link.kind {
        // Docker sets it up inside the container.
        LinkKind::Macvlan(_) | LinkKind::Ipvlan => Ok(()),
        LinkKind::Port => {
            let alias = Mark::of(&link.owner, true).alias(store);
            netlink
                .set(made.other, LinkAttribute::IfAlias(alias))
                .map_err(failed("name a bridge's port"))?;
            without_ipv6(netlink, made.other);
            let port = LinkAttribute::Controller(on.index);
            netlink
                .set(made.other, port)
                .map_err(failed("make a port of the bridge"))?;
            netlink
                .set_up(made.other)
                .map_err(failed("set a bridge's port up"))
        }
        LinkKind::Vlan(_) => {
            without_ipv6(netlink, made.index);
            netlink
                .set_up(made.index)
                .map_err(failed("set the VLAN's link up"))
        }
    }
}

impl Netlink {
    /// Returns whether a link of ours is as requested.
    fn is_as_wanted(&mut self, found: &LinkAnswer, link: &OwnLink, on: &LinkAnswer) -> bool {
        let is_on = match link.kind {
            LinkKind::Port => self
                .link(Which::Index(found.other))
                .is_ok_and(|port| port.master == on.index),
            LinkKind::Macvlan(_) | LinkKind::Ipvlan | LinkKind::Vlan(_) => found.other == on.index,
        };
        // A macvlan that has the parent to itself also has the parent's Ethernet address.
        let has_own = link.kind != LinkKind::Macvlan(MacvlanMode::Passthru);
        // Deleting a VLAN's link would delete the links on it, so a wrong MTU is no reason to replace it.
        let fits = matches!(link.kind, LinkKind::Vlan(_)) || found.mtu == mtu(link, on);
        let is_named = Mark::of_any(&found.alias).is_some();
        is_named
            && is_on
            && fits
            && found.made == Some(link.kind)
            && link
                .mac
                .is_none_or(|mac| !has_own || found.mac == Some(mac))
    }

    fn set_up_if_vlan(&mut self, found: &LinkAnswer, kind: LinkKind) -> Result<(), LinkCause> {
        match kind {
            LinkKind::Vlan(_) if !found.is_up() => self
                .set_up(found.index)
                .map_err(|error| error.at(Which::Index(found.index), "set the VLAN's link up")),
            LinkKind::Vlan(_) | LinkKind::Macvlan(_) | LinkKind::Ipvlan | LinkKind::Port => Ok(()),
        }
    }
}

/// Deletes the link with this owner, if there is one. It may have been renamed.
pub(super) fn unmake(
    netlink: &mut Netlink,
    store: StoreId,
    owner: &LinkOwner,
) -> Result<(), LinkCause> {
    let own = match there(netlink, &owner.ifname())? {
        Some(found) if is_own(&found, owner, store) => Some(found.index),
        Some(_) | None => marked(netlink, store, owner)?,
    };
    own.map_or(Ok(()), |index| netlink.delete(index))
}

/// Returns the index of the link whose alias names this owner, if there is one.
fn marked(
    netlink: &mut Netlink,
    store: StoreId,
    owner: &LinkOwner,
) -> Result<Option<u32>, LinkCause> {
    let wanted = Mark::of(owner, false);
    let mut own = None;
    let asked = netlink.each_link(|link| {
        own = own
            .or((Mark::read(&link.alias, store).as_ref() == Some(&wanted)).then_some(link.index));
    });
    asked
        .map(|()| own)
        .map_err(|error| LinkCause::refused("list the links", error))
}

/// Lists the owners of the links that are there.
pub(super) fn list(netlink: &mut Netlink, store: StoreId) -> Result<OwnLinks, LinkCause> {
    let mut links = OwnLinks::default();
    let asked = netlink.each_link(|link| match Mark::of_any(&link.alias) {
        Some((of, mark)) if of == store => links.owners.extend((!mark.port).then_some(mark.owner)),
        Some((_, mark)) => links.strangers.extend((!mark.port).then_some(link.name)),
        None => links.owners.extend(half_made(&link)),
    });
    asked.map_err(|error| LinkCause::refused("list the links", error))?;
    Ok(links)
}

/// Returns the owner of a link that was left half-made, as far as its name says: an endpoint whose id begins with it.
fn half_made(link: &LinkAnswer) -> Option<LinkOwner> {
    let is_one = link.alias.is_empty() && link.made.is_some() && !link.is_up();
    LinkOwner::named(&link.name).filter(|_| is_one)
}

/// Looks at a link; `None` if there is none.
fn there(netlink: &mut Netlink, name: &str) -> Result<Option<LinkAnswer>, LinkCause> {
    match netlink.link(Which::Name(name)) {
        Ok(found) => Ok(Some(found)),
        Err(LinkCause::NoLink(_)) => Ok(None),
        Err(cause) => Err(cause),
    }
}

/// Returns whether a link with the name of an owner's link belongs to that owner.
fn is_own(found: &LinkAnswer, owner: &LinkOwner, store: StoreId) -> bool {
    match (Mark::of_any(&found.alias), owner) {
        (Some((of, mark)), _) => of == store && mark == Mark::of(owner, false),
        (None, LinkOwner::Endpoint(_)) => found.made.is_some() && !found.is_up(),
        (None, LinkOwner::Vlan { .. }) => false,
    }
}

/// Returns whether a link is the requested VLAN.
fn is_vlan(found: &LinkAnswer, link: &OwnLink, on: &LinkAnswer) -> bool {
    matches!(link.kind, LinkKind::Vlan(_))
        && found.made == Some(link.kind)
        && found.other == on.index
}

/// Returns a link's MTU: longer packets than its lower link carries would be lost.
fn mtu(link: &OwnLink, on: &LinkAnswer) -> u32 {
    link.mtu.map_or(on.mtu, |mtu| mtu.min(on.mtu))
}

fn request(link: &OwnLink, on: &LinkAnswer) -> RouteNetlinkMessage {
    let mut attributes = vec![
        LinkAttribute::IfName(link.owner.ifname()),
        LinkAttribute::Mtu(mtu(link, on)),
    ];
    attributes.extend(link.mac.map(|mac| LinkAttribute::Address(mac.0.to_vec())));
    let (kind, data) = match link.kind {
        LinkKind::Macvlan(mode) => (
            InfoKind::MacVlan,
            InfoData::MacVlan(vec![InfoMacVlan::Mode(macvlan_mode(mode))]),
        ),
        LinkKind::Ipvlan => (
            InfoKind::IpVlan,
            InfoData::IpVlan(vec![InfoIpVlan::Mode(IpVlanMode::L2)]),
        ),
        LinkKind::Port => {
            let port = [
                LinkAttribute::IfName(OUTSIDE.to_owned()),
                LinkAttribute::Address(port_mac(link.mac.unwrap_or_default())),
                // A bridge takes on the smallest MTU of its ports.
                LinkAttribute::Mtu(on.mtu),
            ];
            let port = link_message(0, port);
            (InfoKind::Veth, InfoData::Veth(InfoVeth::Peer(port)))
        }
        LinkKind::Vlan(vlan) => (InfoKind::Vlan, InfoData::Vlan(vec![InfoVlan::Id(vlan)])),
    };
    if link.kind != LinkKind::Port {
        attributes.push(LinkAttribute::Link(on.index));
    }
    attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(kind),
        LinkInfo::Data(data),
    ]));
    RouteNetlinkMessage::NewLink(link_message(0, attributes))
}

/// The bridge's end of an endpoint's veth; the kernel fills in a number.
const OUTSIDE: &str = "lhp%d";

fn macvlan_mode(mode: MacvlanMode) -> MacVlanMode {
    match mode {
        MacvlanMode::Bridge => MacVlanMode::Bridge,
        MacvlanMode::Private => MacVlanMode::Private,
        MacvlanMode::Vepa => MacVlanMode::Vepa,
        MacvlanMode::Passthru => MacVlanMode::Passthrough,
    }
}

/// Returns what is done when such a link is made, and the kernel's module for it.
fn making(kind: LinkKind) -> (&'static str, &'static str) {
    match kind {
        LinkKind::Macvlan(_) => ("make a macvlan", "macvlan"),
        LinkKind::Ipvlan => ("make an ipvlan", "ipvlan"),
        LinkKind::Port => ("make a veth", "veth"),
        LinkKind::Vlan(_) => ("make a VLAN's link", "8021q"),
    }
}

/// Returns why the kernel did not make a link.
fn refused(
    netlink: &mut Netlink,
    error: NetlinkError,
    link: &OwnLink,
    on: &LinkAnswer,
) -> LinkCause {
    let (doing, module) = making(link.kind);
    let reason = match error {
        error if error.is(libc::EOPNOTSUPP) => {
            format!("{error}: is the kernel's module there (modprobe {module})?")
        }
        // Something else already takes the frames that come in on that link.
        error if error.is(libc::EBUSY) => match netlink.link(Which::Index(on.master)) {
            Ok(above) if above.bridge => {
                format!(
                    "{} is a port of bridge {}: create the network with -o bridge={1}",
                    on.name, above.name
                )
            }
            Ok(above) => format!(
                "{} belongs to {}: create the network with -o parent={1}",
                on.name, above.name
            ),
            Err(_) => format!(
                "{} has macvlans or ipvlans already, and cannot have both: keep to one -o mode",
                on.name
            ),
        },
        error if error.is(libc::EINVAL) && matches!(link.kind, LinkKind::Macvlan(_)) => {
            format!(
                "{error}: a macvlan in passthru mode has {} to itself (-o macvlan_mode=passthru)",
                on.name
            )
        }
        error => return error.at(Which::Name(&link.on), doing),
    };
    LinkCause::refused(doing, reason)
}
