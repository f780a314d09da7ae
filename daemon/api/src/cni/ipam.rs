//! Our part of the network configuration: the incumbent's keys, unchanged, and ours.
//!
//! # Which keys are refused
//! * A known key whose value has the wrong type or no meaning, at any depth.
//! * In an object that only this plugin reads (`servers`, `fallback`), any key that it does not know.
//! * In `ipam` itself, an unknown key that is nearly one of ours (`clinetId`, `vendor_class`): a setting that silently does
//!   nothing is the worst fault of all.
//!
//! Any other key is ignored, as by the incumbent, in `ipam`, in entries of `routes` and in the incumbent's objects: networks in the
//! field have keys of other plugins and other versions, and must not stop working. [`ignored`] names those that look like a mistake:
//! what is nearly a key of the incumbent (`requests`), `server`, and unknown keys of `routes`. Case does not matter, as in Go.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use leasehold_range::RangeConfig;
use serde_json::Value;

use super::Route;
use super::object::{BadKey, Fault, Object, boolean, ip, ipv4, number, subnet, text, u8, u32};
use super::range::range;

/// All known keys of `ipam`.
pub const IPAM_KEYS: [&str; 23] = [
    "type",
    "daemonSocketPath",
    "priority",
    "request",
    "provide",
    "clientId",
    "hostname",
    "fqdn",
    "vendorClass",
    "userClass",
    "broadcast",
    "rapidCommit",
    "timeout",
    "routes",
    "suppressDefaultRoute",
    "servers",
    "release",
    "grace",
    "conflictDetection",
    "ipPreferred",
    "onChange",
    "onExpiry",
    "fallback",
];

/// How many of [`IPAM_KEYS`], from the first, are the incumbent's.
const INCUMBENTS: usize = 5;

/// The keys of a route, as CNI spells them.
pub(super) const ROUTE_KEYS: [&str; 7] =
    ["dst", "gw", "mtu", "advmss", "priority", "table", "scope"];

/// Returns whether a key that is nearly the known one `meant` is ignored, as by the incumbent. `server` is in published networks.
fn is_ignored(key: &str, meant: &str) -> bool {
    IPAM_KEYS[..INCUMBENTS].contains(&meant) || key.eq_ignore_ascii_case("server")
}

/// Returns the keys in the value of `ipam` that are ignored but look like a mistake.
pub(super) fn ignored(ipam: &Object<'_>) -> Vec<BadKey> {
    let mut keys = ipam.ignored(&IPAM_KEYS, is_ignored);
    keys.extend(of_routes(ipam));
    keys
}

/// Returns the unknown keys of `routes`.
pub(super) fn of_routes(ipam: &Object<'_>) -> Vec<BadKey> {
    let metric = |key: &str| key.eq_ignore_ascii_case("metric").then_some("priority");
    let routes = ipam.objects("routes", |entry| Ok(entry.others(&ROUTE_KEYS, metric)));
    routes.unwrap_or_default().concat()
}

/// Our part of the configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ipam {
    /// `priority`: the metric of all routes without one of their own. 0 means none, as for the incumbent.
    pub priority: Option<u32>,
    /// `request`: options to ask for.
    pub request: RequestList,
    /// `provide`: options to send, in the configuration's order.
    pub provide: Vec<Provide>,
    /// `clientId`.
    pub client_id: Option<ClientId>,
    /// `hostname`: a template; empty if no name is to be sent.
    pub hostname: Option<String>,
    /// `fqdn`: a template.
    pub fqdn: Option<String>,
    /// `vendorClass`.
    pub vendor_class: Option<String>,
    /// `userClass`.
    pub user_class: Option<String>,
    /// `broadcast`; `None` is `auto`.
    pub broadcast: Option<bool>,
    /// `rapidCommit`.
    pub rapid_commit: bool,
    /// `timeout`: how long an ADD may take, in seconds (see [`crate::add_timeout`]).
    pub timeout: Option<f64>,
    /// `routes`: routes in addition to the server's. One without a next hop goes through the lease's gateway, one through an
    /// unspecified address stays on the link.
    pub routes: Vec<Route>,
    /// `suppressDefaultRoute`: the server's default route and gateway are not used.
    pub suppress_default_route: bool,
    /// `servers`.
    pub servers: Servers,
    /// `release`: whether a DEL gives the lease back; `None` is true.
    pub release: Option<bool>,
    /// `grace`: how many seconds to keep a lease after DEL if its identity can return.
    pub grace: Option<u32>,
    /// `conflictDetection`.
    pub conflict_detection: ConflictDetection,
    /// `ipPreferred`: whether to take an address other than the requested one.
    pub ip_preferred: bool,
    /// `onChange` is `keep`: a changed lease leaves the interface as it is.
    pub keep_on_change: bool,
    /// `onExpiry` is `keep`: the interface keeps its address when the lease ends.
    pub keep_on_expiry: bool,
    /// `fallback`: where an address comes from if no server answers.
    pub fallback: Option<Fallback>,
}

/// Local ranges for the time when no server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// `ranges`, as host-local defines them.
    pub sets: Vec<Vec<RangeConfig>>,
    /// `after`: how many seconds servers must be silent.
    pub after: Option<u32>,
}

/// The incumbent's `request`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestList {
    /// Whether an entry has `skipDefault`: the default list is left out.
    pub skip_default: bool,
    /// The entries' options, in order.
    pub options: Vec<u8>,
}

/// An entry of the incumbent's `provide`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provide {
    /// The option's number.
    pub option: u8,
    /// The option's bytes as text.
    pub value: Option<String>,
    /// The key of `CNI_ARGS` whose value, if given, replaces `value`.
    pub from_arg: Option<String>,
}

/// Whether to probe for other users of the leased address (RFC 5227).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConflictDetection {
    /// `optimistic`: while the lease is acquired and used.
    #[default]
    Optimistic,
    /// `strict`: before the lease is used.
    Strict,
    /// `off`: not at all.
    Off,
}

/// What to send as option 61.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientId {
    /// `container`: the incumbent's, made of container, network and interface.
    Container,
    /// `mac`: the hardware address.
    Mac,
    /// `none`: option 61 is not sent.
    None,
    /// `pod`: the pod's namespace and name, and the interface.
    Pod,
    /// `duid`: the host's DUID and an IAID of the attachment (RFC 4361).
    Duid,
    /// `hex:…`: these bytes, type byte first.
    Hex(Vec<u8>),
    /// `text:…`: this template, of no hardware type.
    Text(String),
}

/// Which DHCP servers to accept, by their identifiers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Servers {
    /// Only these; empty: all.
    pub allow: Vec<Ipv4Addr>,
    /// None of these.
    pub deny: Vec<Ipv4Addr>,
}

impl Ipam {
    /// Reads the value of `ipam`.
    ///
    /// # Errors
    /// The first key that is refused.
    pub fn parse(value: &Value) -> Result<Self, BadKey> {
        if value.is_null() {
            return Ok(Self::default());
        }
        let ipam = Object::new("ipam", value)?;
        ipam.nothing_misspelt(&IPAM_KEYS, is_ignored)?;
        // The shim reads these itself.
        ipam.read("type", text)?;
        ipam.read("daemonSocketPath", text)?;
        Ok(Self {
            priority: ipam
                .read("priority", u32)?
                .filter(|priority| *priority != 0),
            request: RequestList::read(&ipam)?,
            provide: ipam.objects("provide", Provide::read)?,
            client_id: ipam.choose("clientId", ClientId::read)?,
            hostname: ipam.read("hostname", text)?.map(str::to_owned),
            fqdn: ipam.said("fqdn", text)?,
            vendor_class: ipam.said("vendorClass", text)?,
            user_class: ipam.said("userClass", text)?,
            broadcast: ipam.choose("broadcast", broadcast)?.flatten(),
            rapid_commit: ipam.read("rapidCommit", boolean)?.unwrap_or_default(),
            timeout: ipam.read("timeout", number)?,
            routes: ipam.objects("routes", extra_route)?,
            suppress_default_route: ipam
                .read("suppressDefaultRoute", boolean)?
                .unwrap_or_default(),
            servers: ipam
                .object("servers")?
                .map(Servers::read)
                .transpose()?
                .unwrap_or_default(),
            release: ipam.read("release", boolean)?,
            grace: ipam.read("grace", u32)?,
            conflict_detection: ipam
                .choose("conflictDetection", ConflictDetection::read)?
                .unwrap_or_default(),
            ip_preferred: ipam.read("ipPreferred", boolean)?.unwrap_or_default(),
            keep_on_change: ipam
                .choose("onChange", |value| keep(value, "apply"))?
                .unwrap_or_default(),
            keep_on_expiry: ipam
                .choose("onExpiry", |value| keep(value, "remove"))?
                .unwrap_or_default(),
            fallback: ipam.object("fallback")?.map(Fallback::read).transpose()?,
        })
    }
}

impl RequestList {
    fn read(ipam: &Object<'_>) -> Result<Self, BadKey> {
        let mut request = Self::default();
        for (skips, option) in ipam.objects("request", |entry| {
            Ok((
                entry.read("skipDefault", boolean)?.unwrap_or_default(),
                entry.read("option", option)?.flatten(),
            ))
        })? {
            request.skip_default |= skips;
            request.options.extend(option);
        }
        Ok(request)
    }
}

impl Provide {
    fn read(entry: Object<'_>) -> Result<Self, BadKey> {
        let option = entry
            .require("option", option)?
            .ok_or_else(|| Fault::Missing.at(entry.path("option")))?;
        Ok(Self {
            option,
            value: entry.said("value", short)?,
            from_arg: entry.said("fromArg", short)?,
        })
    }
}

impl ClientId {
    fn read(value: &Value) -> Result<Self, Fault> {
        const EXPECTED: &str = "container, mac, none, pod, duid, hex:… or text:…";
        match text(value)? {
            "container" => Ok(Self::Container),
            "mac" => Ok(Self::Mac),
            "none" => Ok(Self::None),
            "pod" => Ok(Self::Pod),
            "duid" => Ok(Self::Duid),
            other => match other.split_once(':') {
                Some(("hex", digits)) => hex(digits)
                    .map(Self::Hex)
                    .ok_or_else(|| Fault::value(other, "hex: and two digits per byte")),
                Some(("text", text)) => Ok(Self::Text(text.to_owned())),
                _ => Err(Fault::value(other, EXPECTED)),
            },
        }
    }
}

impl ConflictDetection {
    fn read(value: &Value) -> Result<Self, Fault> {
        match text(value)? {
            "optimistic" => Ok(Self::Optimistic),
            "strict" => Ok(Self::Strict),
            "off" => Ok(Self::Off),
            other => Err(Fault::value(other, "optimistic, strict or off")),
        }
    }
}

/// Reads the attributes of a route.
pub(super) fn route(entry: &Object<'_>, dst: IpNet, via: Option<IpAddr>) -> Result<Route, BadKey> {
    Ok(Route {
        dst,
        via,
        mtu: entry.read("mtu", u32)?,
        advmss: entry.read("advmss", u32)?,
        priority: entry.read("priority", u32)?,
        table: entry.read("table", u32)?,
        scope: entry.read("scope", u8)?,
    })
}

fn extra_route(entry: Object<'_>) -> Result<Route, BadKey> {
    let dst = entry.require("dst", subnet)?;
    let gw = entry.read("gw", ip)?;
    match gw.filter(|gw| gw.is_ipv4() != dst.addr().is_ipv4()) {
        Some(gw) => Err(Fault::value(gw, "of the same family as dst").at(entry.path("gw"))),
        None => route(&entry, dst, gw),
    }
}

impl Fallback {
    fn read(fallback: Object<'_>) -> Result<Self, BadKey> {
        fallback.only(&["ranges", "after"])?;
        Ok(Self {
            sets: fallback.lists("ranges", range)?,
            after: fallback.read("after", u32)?,
        })
    }
}

impl Servers {
    fn read(servers: Object<'_>) -> Result<Self, BadKey> {
        servers.only(&["allow", "deny"])?;
        Ok(Self {
            allow: servers.list("allow", ipv4)?,
            deny: servers.list("deny", ipv4)?,
        })
    }
}

/// Reads an option by its name or number; the empty string means none.
///
/// The incumbent documents all these names but knows all except `static-routes` and `classless-static-routes`.
fn option(value: &Value) -> Result<Option<u8>, Fault> {
    const EXPECTED: &str = "the name of an option, or a number from 1 to 254";
    let number = match text(value)? {
        "" => return Ok(None),
        "subnet-mask" => 1,
        "routers" => 3,
        "host-name" => 12,
        "static-routes" => 33,
        "vendor-class-identifier" => 60,
        "dhcp-client-identifier" => 61,
        "user-class" => 77,
        "classless-static-routes" => 121,
        other => match other.parse() {
            Ok(number @ 1..=254) => number,
            _ => return Err(Fault::value(other, EXPECTED)),
        },
    };
    Ok(Some(number))
}

/// Reads a text that fits one option.
fn short(value: &Value) -> Result<&str, Fault> {
    let text = text(value)?;
    if text.len() <= 255 {
        Ok(text)
    } else {
        Err(Fault::value(text, "at most 255 bytes long"))
    }
}

/// Reads `keep` as true and `other` as false.
fn keep(value: &Value, other: &str) -> Result<bool, Fault> {
    match text(value)? {
        "keep" => Ok(true),
        said if said == other => Ok(false),
        said if other == "apply" => Err(Fault::value(said, "apply or keep")),
        said => Err(Fault::value(said, "remove or keep")),
    }
}

fn broadcast(value: &Value) -> Result<Option<bool>, Fault> {
    match value {
        Value::Bool(said) => Ok(Some(*said)),
        Value::String(text) if text == "auto" => Ok(None),
        Value::String(text) => Err(Fault::value(text, "true, false or \"auto\"")),
        other => boolean(other).map(Some),
    }
}

/// Reads hexadecimal digits, two a byte, with colons between all bytes or none.
fn hex(digits: &str) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| match pair {
        [a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => {
            u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()
        }
        _ => None,
    };
    if digits.contains(':') {
        digits
            .split(':')
            .map(|pair| byte(pair.as_bytes()))
            .collect()
    } else {
        digits.as_bytes().chunks(2).map(byte).collect()
    }
}

#[cfg(test)]
mod tests;
