//! Why a call failed, for its caller.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::Ipv4Net;

use crate::identity::{AddressHolder, Attachment, ClientId, Lan};
use crate::limits::Unfit;
use crate::link::{LinkCause, LinkRoute};
use crate::network::NetworkFault;
use crate::pool::PoolFault;
use crate::range::NoAddress;
use crate::silence::Silence;
use crate::source::Tally;
use crate::wire::Mac;

/// Why the store refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreCause {
    /// No room on the device.
    #[error(
        "the disk with the state directory (usually /var/lib/leasehold) is full, so nothing can be recorded: make room there"
    )]
    Full,
    /// Anything else.
    #[error("nothing can be recorded in the state directory (usually /var/lib/leasehold): {0}")]
    Failed(String),
}

/// Why a call failed. One variant per cause; the front doors turn them into their protocols' codes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The interface could not be looked at, set up or opened.
    #[error("{target}: {cause}")]
    Link {
        /// The interface.
        target: String,
        /// Why.
        cause: LinkCause,
    },
    /// The time-out passed before the interface had carrier.
    #[error("interface {ifname} has no carrier after {waited:?}: is its parent link up?")]
    NoCarrier {
        /// The interface.
        ifname: String,
        /// How long the ADD waited for it.
        waited: Duration,
    },
    /// The time-out passed before any other offer.
    #[error("no usable DHCP offer on {lan} after {} in {waited:?}{}{}{}{}", count(*.sent, "DISCOVER"), turn(*.queued), hurried(*.cut), heard(.tally, .silence, .lan, .queued > .waited), graces(*.kept))]
    NoOffer {
        /// The wire.
        lan: Lan,
        /// DISCOVERs sent.
        sent: u32,
        /// How long the ADD waited.
        waited: Duration,
        /// How long it waited while others on the LAN went first.
        queued: Duration,
        /// What came in, and what could not be sent.
        tally: Box<Tally>,
        /// What else was found.
        silence: Option<Box<Silence>>,
        /// Whether the wait was cut shorter than requested.
        cut: bool,
        /// How many leases are kept there for identities that may return.
        kept: usize,
    },
    /// The time-out passed after an offer, before the ACK.
    #[error("server {server} offered {address} but did not acknowledge it after {} in {waited:?}{}{}", count(*.sent, "REQUEST"), turn(*.queued), unbelieved(.tally))]
    NoAck {
        /// The server.
        server: Ipv4Addr,
        /// The offered address.
        address: Ipv4Addr,
        /// REQUESTs sent.
        sent: u32,
        /// How long the ADD waited.
        waited: Duration,
        /// How long it waited while others on the LAN went first.
        queued: Duration,
        /// What came in, and what could not be sent.
        tally: Box<Tally>,
    },
    /// The time-out passed while the server kept refusing what it had offered; or it refused an earlier address, and no offer
    /// came after that.
    #[error("server {server} refused {address} with a NAK{}{}", quoted(.message), looked_on(*.in_vain))]
    Nak {
        /// The server.
        server: Ipv4Addr,
        /// The address.
        address: Ipv4Addr,
        /// The server's message (56), escaped.
        message: Option<String>,
        /// DISCOVERs sent after that, if no offer answered them; else 0.
        in_vain: u32,
    },
    /// Another station uses the only acceptable address, or the last one that was offered before the time-out.
    #[error(
        "{address} is in use by {by}, and was declined: give that station another address, or take {address} out of the \
         server's pool"
    )]
    Conflict {
        /// The address.
        address: Ipv4Addr,
        /// Who uses it, by Ethernet address.
        by: Mac,
    },
    /// Other stations use several addresses that were offered: as many as an ADD may decline.
    #[error(
        "{} addresses that were offered on {lan} are in use, and were declined: {}; take them out of the server's pool, or \
         find out why these Ethernet addresses answer for them",
        .declined.len(),
        users(.declined)
    )]
    Conflicts {
        /// The wire.
        lan: Lan,
        /// The addresses, and who uses each, by Ethernet address.
        declined: Vec<(Ipv4Addr, Mac)>,
    },
    /// A station uses the address that was granted, and the LAN has had its DECLINEs.
    #[error(
        "{address} is in use by {by}, and was not declined, because ten addresses on {lan} were declined in the last ten minutes: \
         find out why that Ethernet address answers for it"
    )]
    NotDeclined {
        /// The wire.
        lan: Lan,
        /// The address.
        address: Ipv4Addr,
        /// Who uses it, by Ethernet address.
        by: Mac,
    },
    /// The lease would end before it is known that no other station uses its address.
    #[error(
        "server {server} grants {address} for {lease:?}, and strict conflict detection takes up to {probing:?}: set \
         conflictDetection to optimistic, or let the server grant longer leases"
    )]
    TooShort {
        /// The server.
        server: Ipv4Addr,
        /// The address.
        address: Ipv4Addr,
        /// The lease time.
        lease: Duration,
        /// How long the probes may take.
        probing: Duration,
    },
    /// The time-out passed while a call waited for the daemon itself: what it waited for, and how long.
    #[error("no result after {1:?}: still waiting for {0}")]
    TimedOut(&'static str, Duration),
    /// The lease could not be made durable, so nobody may use it.
    #[error("{0}")]
    Store(StoreCause),
    /// Another live attachment holds a lease under the same client identifier.
    #[error("client identifier {} on {lan} is held by {holder}: delete that attachment first", .client_id.readable())]
    Held {
        /// The wire.
        lan: Lan,
        /// The client identifier.
        client_id: ClientId,
        /// Who holds it.
        holder: Attachment,
        /// Whether its interface is there; if not, it may be where the daemon cannot look.
        seen: bool,
    },
    /// Another live attachment, or the host itself, has the only acceptable address, or the last one that was offered.
    #[error("{}", held(*.server, *.address, .holder, *.shared))]
    AddressHeld {
        /// The server that would grant it; `None`: the container should have been adopted with it.
        server: Option<Ipv4Addr>,
        /// The address.
        address: Ipv4Addr,
        /// Who has it.
        holder: AddressHolder,
        /// The Ethernet address, if both have the same.
        shared: Option<Mac>,
    },
    /// A DEL of the same attachment came while the ADD was under way.
    #[error("the ADD of {0} was cancelled by its DEL")]
    Cancelled(Attachment),
    /// Only the requested address was acceptable, and another was offered.
    #[error("{server} offered {offered} instead of {wanted}")]
    NotWanted {
        /// The server that offered last.
        server: Ipv4Addr,
        /// The address that was asked for.
        wanted: Ipv4Addr,
        /// The address that it offered.
        offered: Ipv4Addr,
    },
    /// A call about a Docker network or an endpoint failed.
    #[error("{0}")]
    Network(NetworkFault),
    /// An ADD could not be served now.
    #[error("{0}")]
    NotReady(String),
    /// Some of what GC collects could not be given back.
    #[error("not all was given back: {}", .0.join("; "))]
    NotCollected(Vec<String>),
    /// The attachment is bound already: in another namespace, which still lives, or with an unacceptable address.
    #[error("{attachment} is already attached{}: delete it first", .netns.as_deref().map(|path| format!(" in {}", path.display())).unwrap_or_default())]
    Attached {
        /// The attachment.
        attachment: Attachment,
        /// Where, unless it lives on a link of the host.
        netns: Option<PathBuf>,
    },
    /// An endpoint of this pool may not have the offered or requested address.
    #[error("{}{address}, which is {why}{}", offers(.server), remedy(.server))]
    Unfit {
        /// The server that offered it; `None`: it was asked for.
        server: Option<Ipv4Addr>,
        /// The address.
        address: Ipv4Addr,
        /// Why not.
        why: Unfit,
    },
    /// The network's fallback had no address.
    #[error("{0}")]
    NoAddress(NoAddress),
    /// A pool could not be made, or an address could not be reserved in it.
    #[error("{0}")]
    Pool(PoolFault),
    /// CHECK of an attachment that has no lease.
    #[error("{0} holds no lease: run ADD again")]
    Unknown(Attachment),
    /// CHECK of an attachment whose lease has just changed, while its interface follows.
    #[error("the daemon is changing the interface of {0}: try again")]
    Changing(Attachment),
    /// CHECK of an attachment that holds an address other than the caller expects.
    #[error("{attachment} holds {held}, not {expected}")]
    Differs {
        /// The attachment.
        attachment: Attachment,
        /// What it holds.
        held: Ipv4Net,
        /// What the caller expects.
        expected: String,
    },
    /// CHECK of an attachment whose address is not on its interface.
    #[error("{address} is not on interface {ifname} of {attachment}")]
    NotOnLink {
        /// The attachment.
        attachment: Attachment,
        /// The leased address.
        address: Ipv4Net,
        /// The interface.
        ifname: String,
    },
    /// CHECK of an attachment without a route that the daemon has put on.
    #[error(
        "route {route} is not on interface {ifname} of {attachment}: somebody changed it, so add it again or recreate the container"
    )]
    NoRoute {
        /// The attachment.
        attachment: Attachment,
        /// The route.
        route: Box<LinkRoute>,
        /// The interface.
        ifname: String,
    },
}

impl Failure {
    /// Returns whether an ADD failed for a reason of the host or its LAN. What a configuration or a caller asks for is not one.
    pub(crate) fn is_of_host_or_lan(&self) -> bool {
        match self {
            Self::NoCarrier { .. }
            | Self::NoOffer { .. }
            | Self::NoAck { .. }
            | Self::Nak { .. }
            | Self::Conflict { .. }
            | Self::Conflicts { .. }
            | Self::NotDeclined { .. }
            | Self::TooShort { .. }
            | Self::TimedOut(..)
            | Self::Store(_)
            | Self::AddressHeld { .. }
            | Self::NoAddress(_) => true,
            Self::Unfit { server, .. } => server.is_some(),
            Self::Link { .. }
            | Self::Held { .. }
            | Self::Cancelled(_)
            | Self::NotWanted { .. }
            | Self::Network(_)
            | Self::NotReady(_)
            | Self::NotCollected(_)
            | Self::Attached { .. }
            | Self::Pool(_)
            | Self::Unknown(_)
            | Self::Changing(_)
            | Self::Differs { .. }
            | Self::NotOnLink { .. }
            | Self::NoRoute { .. } => false,
        }
    }
}

fn held(
    server: Option<Ipv4Addr>,
    address: Ipv4Addr,
    holder: &AddressHolder,
    shared: Option<Mac>,
) -> String {
    match (server, shared) {
        (Some(server), Some(mac)) => format!(
            "server {server} gives this client {address}, which {holder} has: it seems to recognise clients by their \
             Ethernet address, and both have {mac}; use macvlan instead of ipvlan, give this one its own MAC, or, if \
             it replaces the other, the same `clientId`"
        ),
        (Some(server), None) if matches!(holder, AddressHolder::Host(_)) => {
            format!(
                "server {server} offers {address}, which {holder} has: take it out of the server's pool"
            )
        }
        (Some(server), None) => format!(
            "server {server} offers {address}, which {holder} has: it has lost its leases, shares its pool with another server, or gives everybody that address; check its lease records"
        ),
        (None, _) => format!("{holder} has {address}: delete that attachment first"),
    }
}

/// Returns the declined addresses, each with its user.
fn users(declined: &[(Ipv4Addr, Mac)]) -> String {
    declined
        .iter()
        .map(|(address, by)| format!("{address} by {by}"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns how long the ADD waited for its turn. A wait of less than a second is not why it failed.
fn turn(queued: Duration) -> String {
    match queued.as_secs() {
        0 => String::new(),
        _ => format!(", after waiting {queued:?} for its turn among others"),
    }
}

fn heard(tally: &Tally, silence: &Option<Box<Silence>>, lan: &Lan, was_queued: bool) -> String {
    let found = silence
        .as_ref()
        .map(|silence| silence.reasons(lan))
        .filter(|reasons| !reasons.is_empty());
    match (tally.reason(), tally.answers, found) {
        (Some(reason), ..) => format!(": {reason}"),
        // Such a short time says nothing about the server.
        (None, 0, _) if was_queued => {
            ": it spent most of its time in that queue, because others there got no answer: try again, or raise `timeout`"
                .to_owned()
        }
        (None, 0, Some(reasons)) => format!(": no answer came; {}", reasons.join("; ")),
        (None, 0, None) => ": no answer came; is a DHCP server on that wire?".to_owned(),
        (None, answers, _) => format!(": {answers} answers came, none of them an offer"),
    }
}

fn hurried(cut: bool) -> &'static str {
    if cut {
        ", given up early because the last request there got none either"
    } else {
        ""
    }
}

/// Returns what to do if the LAN is too small for the graces in use.
fn graces(kept: usize) -> String {
    let leases = match kept {
        0 => return String::new(),
        1 => "1 lease there is".to_owned(),
        _ => format!("{kept} leases there are"),
    };
    format!(
        "; {leases} kept for containers that may return (`grace`): if the server has no other address left, give it more \
         or shorten `grace`"
    )
}

fn unbelieved(tally: &Tally) -> String {
    tally
        .reason()
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default()
}

fn offers(server: &Option<Ipv4Addr>) -> String {
    server.map_or_else(
        || "asked for ".to_owned(),
        |server| format!("server {server} offers "),
    )
}

fn remedy(server: &Option<Ipv4Addr>) -> &'static str {
    match server {
        Some(_) => ": have the server offer another, or recreate the network for what it offers",
        None => "",
    }
}

fn looked_on(discovers: u32) -> String {
    match discovers {
        0 => String::new(),
        sent => format!(
            ", and no offer came after {}: are its addresses used up?",
            count(sent, "DISCOVER")
        ),
    }
}

fn count(sent: u32, message: &str) -> String {
    format!("{sent} {message}{}", if sent == 1 { "" } else { "s" })
}

fn quoted(message: &Option<String>) -> String {
    message
        .as_ref()
        .map(|m| format!(": \"{m}\""))
        .unwrap_or_default()
}
