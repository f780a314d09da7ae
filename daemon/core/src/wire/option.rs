//! DHCP options of a server's message (RFC 2132 and others): bytes to values.
//!
//! A bad option is dropped with its cause, and everything after it is still read. Lists and texts are bounded, and nothing
//! leaves here that a resolver's file, a log or a routing table must not see. Checks that need context are left out: the
//! user of an offer decides whether its address and times make sense.
//!
//! # What a server may send and nobody must swallow
//! | value | outcome |
//! |---|---|
//! | yiaddr 0.0.0.0, 127/8, 224/4, 255.255.255.255 | passed on in the message; refused on acceptance |
//! | yiaddr the network or broadcast address of its own mask | passed on; refused on acceptance |
//! | server identifier (54) that cannot be a host's address | dropped: as if absent |
//! | mask (1) not contiguous or 0.0.0.0 | dropped: as if absent |
//! | mask absent | `None`; what to do is decided on acceptance |
//! | router (3) outside the subnet | passed on: valid with a route on the link |
//! | 0/8, 127/8, 224/4, 240/4 in a list (3, 6) | that address is dropped, the rest stays |
//! | an address twice in a list (3, 6) | once, where it came first |
//! | more than [`MAX_ADDRESSES`] in a list (3, 6) | the first ones stay: it is in order of preference |
//! | an address list (3, 6) whose length is not a multiple of 4 | dropped whole: where it went wrong is unknown |
//! | hundreds of routes (33, 121, 249) | up to [`MAX_ROUTES`] are passed on, a longer list is dropped whole |
//! | 121 or 249 empty, cut short, or with a width over 32 | dropped whole: as if *absent*, so that option 3 is used |
//! | 121 or 249: host bits in a destination | masked off |
//! | 33, 121, 249: a router that cannot be a host, a destination that is no network of others | that route is dropped |
//! | 33: destination 0.0.0.0 | that route is dropped (RFC 2132 §5.8) |
//! | 121 or 249 without any usable route | dropped whole: as if absent |
//! | names (15) with newlines, NULs, non-ASCII or bad labels | dropped; a NUL or dot at the end is cut off |
//! | 15: several names, with blanks, tabs or commas between them, or a dot before them | each is read; one bad name drops all |
//! | 15: more than [`MAX_SEARCH`] names | the first ones stay |
//! | 119 with a loop, a pointer forward or out of it, an unknown label type, or cut short | dropped whole |
//! | 119: one name with such characters | that name is dropped, the rest stays |
//! | 119: more than [`MAX_SEARCH`] names | the first ones stay |
//! | text (56) of any bytes | ASCII, everything else escaped, cut to [`MAX_TEXT`] |
//! | MTU (26) of 4 bytes or any but 2 | dropped |
//! | MTU (26) below 68 | dropped (RFC 2132 §5.1) |
//! | MTU (26) from 68 to 1279 | passed on; too small for IPv6, which the caller handles |
//! | lease time (51) 0, or 0xffffffff for ever | passed on; decided on acceptance |
//! | T1, T2 (58, 59) reversed or past the lease | passed on; decided on acceptance |
//! | overload (52) other than 1, 2, 3, or inside `file` or `sname` | dropped: those fields hold no options |
//! | an option that reaches past its field | dropped, its other instances too; the field ends there |
//! | an option of fixed length twice, each whole | the first stays (RFC 3396 would join them; dnsmasq does it) |
//! | any other option given twice | joined to one value (RFC 3396) |

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

mod fields;
mod table;
mod value;

#[cfg(test)]
mod tests;

pub(super) use fields::Fields;
pub use table::{OPTIONS, OptionForm, REQUEST_LIST, code};
pub(crate) use value::can_be_host;

/// Returns the value of option 81 for a client that lets the server update DNS (RFC 4702 §2): the flags S and E, two bytes of
/// zero, and the name in DNS wire form, ended by the root if the name is qualified. `None` if it is not a domain name.
pub fn fqdn(name: &str) -> Option<Vec<u8>> {
    const FLAGS_E_AND_S: u8 = 0b0101;
    let labels = name.strip_suffix('.').unwrap_or(name);
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.is_ascii();
    if labels.len() > 251 || !labels.split('.').all(is_label) {
        return None;
    }
    let mut value = vec![FLAGS_E_AND_S, 0, 0];
    for label in labels.split('.') {
        value.push(label.len() as u8);
        value.extend(label.bytes());
    }
    // A name of one label is a partial one (RFC 4702 §2.3.1): no root behind it.
    if labels.contains('.') || name.ends_with('.') {
        value.push(0);
    }
    Some(value)
}

/// Returns the usable names of a search list (119); `None` if it is malformed.
pub fn search(value: &[u8]) -> Option<Vec<String>> {
    value::search(value, &mut drop).ok()
}

/// Returns the usable routes of option 33, 121 or 249; `None` if they are malformed, or if none is usable.
pub fn routes(code: u8, value: &[u8]) -> Option<Vec<LeaseRoute>> {
    match code {
        code::STATIC_ROUTE => value::static_routes(value, &mut drop).ok(),
        code::CLASSLESS_ROUTES | code::MICROSOFT_ROUTES => {
            value::classless_routes(value, &mut drop).ok()
        }
        _ => None,
    }
}

/// Most addresses that a list of servers or routers keeps. Resolvers read three; nobody lists sixteen.
pub const MAX_ADDRESSES: usize = 16;
/// Most routes that an option may hold. An unfragmented message of 1,500 bytes has room for fewer. No real network has a
/// longer list, and a random half of it would be worse than the fallback.
pub const MAX_ROUTES: usize = 256;
/// Most names of a search list. The resolvers of musl and old glibc read six or fewer, new glibc any number.
pub const MAX_SEARCH: usize = 32;
/// Most bytes of a text, after escaping.
pub const MAX_TEXT: usize = 255;
/// Most bytes of a bad name, after escaping: enough to recognise it.
const MAX_NO_NAME: usize = 80;

/// Most entries of [`Options::dropped`]: enough to see what is wrong with a server.
pub const MAX_DROPPED: usize = 32;

/// The options of a server's message that were understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Prefix length of the subnet mask (1), 1 to 32.
    pub subnet_mask: Option<u8>,
    /// Routers (3), in order of preference.
    pub routers: Vec<Ipv4Addr>,
    /// Domain name servers (6), in order of preference.
    pub dns: Vec<Ipv4Addr>,
    /// Domain names (15), each with a host name's characters only: letters, digits, hyphens, underscores and dots. The option has one name, but servers send several.
    pub domains: Vec<String>,
    /// Domain search list (119, RFC 3397), each with a host name's characters only.
    pub search: Vec<String>,
    /// Interface MTU (26), 68 bytes or more.
    pub mtu: Option<u16>,
    /// Static routes (33); the router is always given.
    pub static_routes: Vec<LeaseRoute>,
    /// Classless static routes (121, RFC 3442), never empty. If present, 33 and 3 must be ignored.
    pub classless_routes: Option<Vec<LeaseRoute>>,
    /// Microsoft's number for the same (249), never empty. Used if 121 is absent.
    pub microsoft_routes: Option<Vec<LeaseRoute>>,
    /// Lease time (51) in seconds as sent; 0xffffffff means for ever.
    pub lease_time: Option<u32>,
    /// Renewal time T1 (58) in seconds as sent.
    pub t1: Option<u32>,
    /// Rebinding time T2 (59) in seconds as sent.
    pub t2: Option<u32>,
    /// Server identifier (54).
    pub server_id: Option<Ipv4Addr>,
    /// Client identifier (61) that the server echoes (RFC 6842), not empty, its type byte first.
    pub client_id: Option<Vec<u8>>,
    /// The server's message (56), escaped to ASCII.
    pub message: Option<String>,
    /// Rapid commit (80, RFC 4039).
    pub rapid_commit: bool,
    /// What was dropped, the first [`MAX_DROPPED`].
    pub dropped: Vec<DroppedOption>,
}

/// A route that a server gave (33, 121 or 249).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRoute {
    /// The destination. No host bits are set.
    pub destination: Ipv4Net,
    /// The next hop; `None` when the destination is on the link itself (0.0.0.0 in RFC 3442).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<Ipv4Addr>,
}

/// An option, or a part of one, that was dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("option {code}, {cause}")]
pub struct DroppedOption {
    /// Its number.
    pub code: u8,
    /// Why.
    pub cause: BadOption,
}

/// Why an option, or a part of one, was dropped: the cause, and after a colon the value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum BadOption {
    /// It reaches past its field.
    #[error("cut short by the end of its field")]
    Truncated,
    /// Its length, all instances together, is not allowed.
    #[error("impossible length: {0} bytes")]
    Length(usize),
    /// An overload option in a place where RFC 2132 §9.3 allows none.
    #[error("overload inside an overloaded field")]
    Misplaced,
    /// An overload value other than 1, 2 and 3.
    #[error("unknown overload: {0}")]
    Overload(u8),
    /// A mask that is empty or not a prefix of ones.
    #[error("not a subnet mask: {0}")]
    Mask(Ipv4Addr),
    /// An address that no host can have.
    #[error("not a host's address: {0}")]
    NotAHost(Ipv4Addr),
    /// More entries than are kept.
    #[error("too long: more than {0} entries")]
    TooMany(usize),
    /// An MTU below IPv4's least, 68.
    #[error("MTU below IPv4's least, 68: {0}")]
    Mtu(u16),
    /// An MTU with which IPv6 would stop on the link (RFC 8200 §5).
    #[error(
        "MTU below the minimum of IPv6, which is 1280, not set (to set it anyway, use the main plugin or `tuning`): {0}"
    )]
    MtuForIpv6(u16),
    /// A name whose characters or lengths are not those of a domain name.
    #[error("not a domain name: \"{0}\"")]
    Name(String),
    /// A name in DNS wire form that does not end, loops, or has labels of an unknown type.
    #[error("malformed compressed name")]
    Compression,
    /// A list of routes that ends inside a route, or with a prefix wider than 32 bits.
    #[error("malformed route")]
    Route,
    /// A route to where no route can lead.
    #[error("destination that no route can have: {0}")]
    Destination(Ipv4Net),
    /// No route of the list was of use.
    #[error("no usable route")]
    NoRoute,
}

/// What was dropped so far.
#[derive(Debug, Default)]
struct Dropped(Vec<DroppedOption>);

impl Dropped {
    fn note(&mut self, code: u8, cause: BadOption) {
        if self.0.len() < MAX_DROPPED {
            self.0.push(DroppedOption { code, cause });
        }
    }
}

impl BadOption {
    /// Returns whether the option's meaning is unknown because it is cut short or malformed; else it is known and useless.
    fn is_unread(&self) -> bool {
        matches!(
            self,
            Self::Truncated | Self::Length(_) | Self::Compression | Self::Route
        )
    }
}

impl Options {
    /// Returns whether an option without a value may have had one that could not be read.
    pub(crate) fn is_unread(&self, code: u8) -> bool {
        // A cut hides what comes behind it, and so does a bad option 52, which should say whether other fields hold options.
        let hides = |dropped: &DroppedOption| match dropped.cause {
            BadOption::Truncated | BadOption::Overload(_) => true,
            BadOption::Length(_) => dropped.code == code::OVERLOAD,
            _ => false,
        };
        self.dropped
            .iter()
            .any(|dropped| hides(dropped) || dropped.code == code && dropped.cause.is_unread())
    }

    /// Reads the values of all fields' options.
    pub(super) fn read(fields: Fields<'_>) -> Self {
        let Fields {
            values,
            mut dropped,
            ..
        } = fields;
        let mut options = Self::default();
        for (code, value) in values {
            let read = table::read(&mut options, code, value, &mut |cause| {
                dropped.note(code, cause)
            });
            if let Err(cause) = read {
                dropped.note(code, cause);
            }
        }
        options.dropped = dropped.0;
        options
    }
}
