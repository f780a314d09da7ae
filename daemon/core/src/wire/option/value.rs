//! The value of a single option, all its instances joined.
//!
//! Each function refuses the whole with an error, or drops a part of a list and notes why.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::{BadOption, LeaseRoute, MAX_ADDRESSES, MAX_NO_NAME, MAX_ROUTES, MAX_SEARCH, MAX_TEXT};
use crate::wire::name::{self, BadName};
use crate::wire::read::Reader;

/// All instances of one option, joined.
#[derive(Debug)]
pub(super) struct Value<'a> {
    pub(super) bytes: Cow<'a, [u8]>,
    /// The length of the first instance.
    pub(super) first: usize,
}

impl Value<'_> {
    /// Returns a value that always has `N` bytes.
    ///
    /// Some servers send such an option twice: dnsmasq does so with the server identifier, if it is configured and asked for.
    /// RFC 3396 would join them to a value of double length; the first instance is whole and was meant.
    pub(super) fn fixed<const N: usize>(&self) -> Result<[u8; N], BadOption> {
        let whole = match self.bytes.first_chunk() {
            Some(whole) if self.bytes.len() == N || self.first == N => Some(*whole),
            _ => None,
        };
        whole.ok_or(BadOption::Length(self.bytes.len()))
    }
}

pub(super) fn u32(value: &Value<'_>) -> Result<u32, BadOption> {
    value.fixed().map(u32::from_be_bytes)
}

/// Reads an option whose presence is its meaning.
pub(super) fn flag(value: &Value<'_>) -> Result<bool, BadOption> {
    value.fixed().map(|[]| true)
}

/// Accepts any bytes, but at least one.
pub(super) fn bytes(value: Value<'_>) -> Result<Vec<u8>, BadOption> {
    if value.bytes.is_empty() {
        Err(BadOption::Length(0))
    } else {
        Ok(value.bytes.into_owned())
    }
}

pub(super) fn mtu(value: &Value<'_>) -> Result<u16, BadOption> {
    match u16::from_be_bytes(value.fixed()?) {
        small @ 0..68 => Err(BadOption::Mtu(small)),
        mtu => Ok(mtu),
    }
}

/// Reads a subnet mask as its prefix length.
pub(super) fn mask(value: &Value<'_>) -> Result<u8, BadOption> {
    let mask = address(value)?;
    match ipnet::ipv4_mask_to_prefix(mask) {
        Ok(prefix @ 1..) => Ok(prefix),
        Ok(0) | Err(_) => Err(BadOption::Mask(mask)),
    }
}

/// Reads the address of a host.
pub(super) fn host(value: &Value<'_>) -> Result<Ipv4Addr, BadOption> {
    let address = address(value)?;
    if can_be_host(address) {
        Ok(address)
    } else {
        Err(BadOption::NotAHost(address))
    }
}

fn address(value: &Value<'_>) -> Result<Ipv4Addr, BadOption> {
    value.fixed::<4>().map(Ipv4Addr::from)
}

/// Takes the reasons for which parts of a list were dropped.
pub(super) type Note<'a> = &'a mut dyn FnMut(BadOption);

/// Reads a list of hosts, each once. Addresses that no host can have are left out, and so are those after the first
/// [`MAX_ADDRESSES`].
pub(super) fn hosts(value: &[u8], note: Note<'_>) -> Result<Vec<Ipv4Addr>, BadOption> {
    let (addresses, rest) = value.as_chunks::<4>();
    if addresses.is_empty() || !rest.is_empty() {
        return Err(BadOption::Length(value.len()));
    }
    let mut hosts = Vec::new();
    for address in addresses.iter().copied().map(Ipv4Addr::from) {
        if !can_be_host(address) {
            note(BadOption::NotAHost(address));
        } else if hosts.contains(&address) {
            // A resolver would only ask it twice.
        } else if hosts.len() == MAX_ADDRESSES {
            note(BadOption::TooMany(MAX_ADDRESSES));
            break;
        } else {
            hosts.push(address);
        }
    }
    Ok(hosts)
}

/// Returns whether a host can have the address: not of this network (0/8), loopback (127/8), multicast, reserved (240/4) or the
/// limited broadcast (RFC 6890). Private and link-local addresses are allowed.
pub(crate) fn can_be_host(address: Ipv4Addr) -> bool {
    !matches!(address.octets()[0], 0 | 127 | 224..)
}

/// Reads option 33 (RFC 2132 §5.8): pairs of destination and router.
///
/// There is no mask: the network number implies it (RFC 3442, introduction). A destination with nothing behind its class's
/// network part is that network; any other is a host. 0.0.0.0, which must not occur, is net 0.
pub(super) fn static_routes(value: &[u8], note: Note<'_>) -> Result<Vec<LeaseRoute>, BadOption> {
    let (pairs, rest) = value.as_chunks::<8>();
    if pairs.is_empty() || !rest.is_empty() {
        return Err(BadOption::Length(value.len()));
    }
    if pairs.len() > MAX_ROUTES {
        return Err(BadOption::TooMany(MAX_ROUTES));
    }
    let mut routes = Vec::with_capacity(pairs.len());
    for [a, b, c, d, router @ ..] in pairs {
        let destination = classful(Ipv4Addr::new(*a, *b, *c, *d));
        let via = Ipv4Addr::from(*router);
        if !can_be_routed_to(destination) {
            note(BadOption::Destination(destination));
        } else if !can_be_host(via) {
            note(BadOption::NotAHost(via));
        } else {
            routes.push(LeaseRoute {
                destination,
                via: Some(via),
            });
        }
    }
    Ok(routes)
}

fn classful(destination: Ipv4Addr) -> Ipv4Net {
    let class = match destination.octets()[0] {
        0..128 => 8,
        128..192 => 16,
        192..224 => 24,
        224.. => 32,
    };
    let network = Ipv4Net::new_assert(destination, class);
    if network.network() == destination {
        network
    } else {
        Ipv4Net::new_assert(destination, 32)
    }
}

/// Reads option 121 or 249 (RFC 3442): width, the significant bytes of the destination, router; never returns an empty list.
pub(super) fn classless_routes(value: &[u8], note: Note<'_>) -> Result<Vec<LeaseRoute>, BadOption> {
    let mut reader = Reader(value);
    let mut routes = Vec::new();
    while let Some(width) = reader.u8() {
        if width > 32 {
            return Err(BadOption::Route);
        }
        let significant = reader
            .slice(usize::from(width.div_ceil(8)))
            .ok_or(BadOption::Route)?;
        let router = reader.ipv4().ok_or(BadOption::Route)?;
        if routes.len() == MAX_ROUTES {
            return Err(BadOption::TooMany(MAX_ROUTES));
        }
        let mut destination = [0; 4];
        destination[..significant.len()].copy_from_slice(significant);
        let destination = Ipv4Net::new_assert(Ipv4Addr::from(destination), width).trunc();
        if !can_be_routed_to(destination) {
            note(BadOption::Destination(destination));
        } else if router.is_unspecified() {
            routes.push(LeaseRoute {
                destination,
                via: None,
            });
        } else if can_be_host(router) {
            routes.push(LeaseRoute {
                destination,
                via: Some(router),
            });
        } else {
            note(BadOption::NotAHost(router));
        }
    }
    if routes.is_empty() {
        Err(BadOption::NoRoute)
    } else {
        Ok(routes)
    }
}

/// Returns whether a route can lead there: not to this host itself (127/8, 0/8 and narrower), nor to the limited broadcast.
/// Multicast is allowed.
fn can_be_routed_to(destination: Ipv4Net) -> bool {
    let own = destination.prefix_len() >= 8 && matches!(destination.addr().octets()[0], 0 | 127);
    !own && !destination.addr().is_broadcast()
}

/// Reads names in text form with blanks, tabs or commas between them (15). A dot before a name is cut off.
///
/// One bad name drops all: it may be a part of something else, such as a line of a resolver's file.
pub(super) fn domains(value: &[u8], note: Note<'_>) -> Result<Vec<String>, BadOption> {
    let parts = value.split(|byte| matches!(byte, b' ' | b',' | b'\t'));
    // A NUL at the end may stand alone.
    let mut names: Vec<String> = Vec::new();
    for part in parts.filter(|part| part.iter().any(|byte| *byte != 0)) {
        let text = part.strip_prefix(b".").unwrap_or(part);
        let name = name::from_text(text).map_err(|bad| bad_name(bad, value))?;
        if names.contains(&name) {
            continue;
        }
        if names.len() == MAX_SEARCH {
            note(BadOption::TooMany(MAX_SEARCH));
            break;
        }
        names.push(name);
    }
    if names.is_empty() {
        return Err(bad_name(BadName::NotAName, value));
    }
    Ok(names)
}

/// Reads a search list (119, RFC 3397): names in DNS wire form, compressed within the option.
pub(super) fn search(value: &[u8], note: Note<'_>) -> Result<Vec<String>, BadOption> {
    if value.is_empty() {
        return Err(BadOption::Length(0));
    }
    let mut names = Vec::new();
    let mut position = 0;
    for _ in 0..MAX_SEARCH {
        if position == value.len() {
            return Ok(names);
        }
        let (labels, end) = name::read_wire(value, position).map_err(|bad| bad_name(bad, value))?;
        position = end;
        match name::from_labels(&labels) {
            Ok(name) => names.push(name),
            Err(bad) => note(bad_name(bad, &labels.join(&b'.'))),
        }
    }
    if position < value.len() {
        note(BadOption::TooMany(MAX_SEARCH));
    }
    Ok(names)
}

fn bad_name(bad: BadName, text: &[u8]) -> BadOption {
    match bad {
        BadName::NotAName => BadOption::Name(escaped(text, MAX_NO_NAME)),
        BadName::Malformed => BadOption::Compression,
    }
}

/// Reads a text for people (56): printable ASCII stays, everything else is escaped, and a long text is cut.
pub(super) fn text(value: &[u8]) -> Result<String, BadOption> {
    let end = value
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    if end == 0 {
        return Err(BadOption::Length(value.len()));
    }
    Ok(escaped(&value[..end], MAX_TEXT))
}

/// Returns bytes as printable ASCII, escaping everything else, and cut to `most`.
fn escaped(bytes: &[u8], most: usize) -> String {
    let mut text = String::new();
    for escaped in bytes.iter().map(|byte| byte.escape_ascii()) {
        if text.len() + escaped.len() > most {
            break;
        }
        text.extend(escaped.map(char::from));
    }
    text
}
