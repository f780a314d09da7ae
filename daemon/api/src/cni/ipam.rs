//! Our part of the network configuration: the incumbent's keys, unchanged, and ours.
//!
//! # Which keys are refused
//! * A known key with a value of the wrong type or without meaning, at any depth.
//! * In an object that only this plugin reads (`servers`, an entry of `routes`), any key that it does not know.
//! * In `ipam` itself, a key that is none of ours but one slip away from one (`clientIds`, `vendor_class`): a setting
//!   that does nothing and says nothing is the worst of faults.
//!
//! Any other key is ignored, as the incumbent does, in `ipam` and in its own objects: networks in the field carry keys of
//! other plugins and other versions, and must not stop working. Case does not matter, as it does not to Go.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use serde_json::Value;

use super::Route;
use super::object::{BadKey, Fault, Object, boolean, ip, ipv4, number, subnet, text, u8, u32};

/// All keys of `ipam` that are known.
pub const IPAM_KEYS: [&str; 22] = [
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
];

/// Our part of the configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ipam {
    /// `priority`: the metric of all routes that do not have one of their own. 0 is none, as it is to the incumbent.
    pub priority: Option<u32>,
    /// `request`: options to ask for.
    pub request: RequestList,
    /// `provide`: options to send, in the configuration's order.
    pub provide: Vec<Provide>,
    /// `clientId`.
    pub client_id: Option<ClientId>,
    /// `hostname`: a template; the empty one is to say that none is sent.
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
    /// `timeout`: how long an ADD may take, in seconds: see [`crate::add_timeout`].
    pub timeout: Option<f64>,
    /// `routes`: routes beside the server's.
    pub routes: Vec<ExtraRoute>,
    /// `suppressDefaultRoute`: no default route and no gateway of the server's.
    pub suppress_default_route: bool,
    /// `servers`.
    pub servers: Servers,
    /// `release`: whether a DEL gives the lease back; `None` is true.
    pub release: Option<bool>,
    /// `grace`: for how many seconds a lease whose identity can return is kept after its DEL.
    pub grace: Option<u32>,
    /// `conflictDetection`.
    pub conflict_detection: ConflictDetection,
    /// `ipPreferred`: whether another address than the requested one will do.
    pub ip_preferred: bool,
    /// `onChange`: `keep`, so that a lease that brings something else leaves the interface as it is; or `apply`.
    pub keep_on_change: bool,
    /// `onExpiry`: `keep`, so that the interface keeps its address without a lease; or `remove`.
    pub keep_on_expiry: bool,
}

/// The incumbent's `request`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestList {
    /// Some entry's `skipDefault`: the default list is left out.
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
    /// The key of `CNI_ARGS` whose value replaces `value`, where it is given.
    pub from_arg: Option<String>,
}

/// Whether it is looked for others that use the leased address (RFC 5227).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConflictDetection {
    /// `optimistic`: while the lease is got and used.
    #[default]
    Optimistic,
    /// `strict`: before the lease is used.
    Strict,
    /// `off`: not at all.
    Off,
}

/// What option 61 is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientId {
    /// `container`: the incumbent's, made of container, network and interface.
    Container,
    /// `mac`: the hardware address.
    Mac,
    /// `pod`: the pod's namespace and name, and the interface.
    Pod,
    /// `duid`: the host's DUID and an IAID of the attachment (RFC 4361).
    Duid,
    /// `hex:…`: these bytes, type byte first.
    Hex(Vec<u8>),
    /// `text:…`: this text, of no hardware type.
    Text(String),
}

/// A route of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtraRoute {
    /// The next hop; `None` is the lease's gateway, an unspecified address the link itself.
    pub gw: Option<IpAddr>,
    /// The rest of it. Its `via` says nothing.
    pub route: Route,
}

/// Which DHCP servers are believed, by their identifiers.
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
        ipam.nothing_misspelt(&IPAM_KEYS)?;
        // The shim's, which it reads for itself.
        ipam.read("type", text)?;
        ipam.read("daemonSocketPath", text)?;
        let said = |key| Ok(ipam.read(key, text)?.filter(|text| !text.is_empty()).map(str::to_owned));
        Ok(Self {
            priority: ipam.read("priority", u32)?.filter(|priority| *priority != 0),
            request: RequestList::read(&ipam)?,
            provide: ipam.objects("provide", Provide::read)?,
            client_id: ipam.read("clientId", ClientId::read)?,
            hostname: ipam.read("hostname", text)?.map(str::to_owned),
            fqdn: said("fqdn")?,
            vendor_class: said("vendorClass")?,
            user_class: said("userClass")?,
            broadcast: ipam.read("broadcast", broadcast)?.flatten(),
            rapid_commit: ipam.read("rapidCommit", boolean)?.unwrap_or_default(),
            timeout: ipam.read("timeout", number)?,
            routes: ipam.objects("routes", ExtraRoute::read)?,
            suppress_default_route: ipam.read("suppressDefaultRoute", boolean)?.unwrap_or_default(),
            servers: ipam.object("servers")?.map(Servers::read).transpose()?.unwrap_or_default(),
            release: ipam.read("release", boolean)?,
            grace: ipam.read("grace", u32)?,
            conflict_detection: ipam.read("conflictDetection", ConflictDetection::read)?.unwrap_or_default(),
            ip_preferred: ipam.read("ipPreferred", boolean)?.unwrap_or_default(),
            keep_on_change: ipam.read("onChange", |value| keep(value, "apply"))?.unwrap_or_default(),
            keep_on_expiry: ipam.read("onExpiry", |value| keep(value, "remove"))?.unwrap_or_default(),
        })
    }
}

impl RequestList {
    fn read(ipam: &Object<'_>) -> Result<Self, BadKey> {
        let mut request = Self::default();
        for (skips, option) in ipam.objects("request", |entry| {
            Ok((entry.read("skipDefault", boolean)?.unwrap_or_default(), entry.read("option", option)?.flatten()))
        })? {
            request.skip_default |= skips;
            request.options.extend(option);
        }
        Ok(request)
    }
}

impl Provide {
    fn read(entry: Object<'_>) -> Result<Self, BadKey> {
        let option = entry.require("option", option)?.ok_or_else(|| Fault::Missing.at(entry.path("option")))?;
        let said = |key| Ok(entry.read(key, short)?.filter(|text| !text.is_empty()).map(str::to_owned));
        Ok(Self { option, value: said("value")?, from_arg: said("fromArg")? })
    }
}

impl ClientId {
    fn read(value: &Value) -> Result<Self, Fault> {
        const EXPECTED: &str = "container, mac, pod, duid, hex:… or text:…";
        match text(value)? {
            "container" => Ok(Self::Container),
            "mac" => Ok(Self::Mac),
            "pod" => Ok(Self::Pod),
            "duid" => Ok(Self::Duid),
            other => match other.split_once(':') {
                Some(("hex", digits)) => {
                    hex(digits).map(Self::Hex).ok_or_else(|| Fault::value(other, "hex: and two digits a byte"))
                }
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

impl ExtraRoute {
    fn read(entry: Object<'_>) -> Result<Self, BadKey> {
        entry.only(&["dst", "gw", "mtu", "advmss", "priority", "table", "scope"])?;
        let route = Route {
            dst: entry.require("dst", subnet)?,
            via: None,
            mtu: entry.read("mtu", u32)?,
            advmss: entry.read("advmss", u32)?,
            priority: entry.read("priority", u32)?,
            table: entry.read("table", u32)?,
            scope: entry.read("scope", u8)?,
        };
        let gw = entry.read("gw", ip)?;
        let is_v4 = matches!(route.dst, IpNet::V4(_));
        match gw {
            Some(gw) if gw.is_ipv4() != is_v4 => {
                Err(Fault::value(gw, "of the same family as dst").at(entry.path("gw")))
            }
            _ => Ok(Self { gw, route }),
        }
    }
}

impl Servers {
    fn read(servers: Object<'_>) -> Result<Self, BadKey> {
        servers.only(&["allow", "deny"])?;
        Ok(Self { allow: servers.list("allow", ipv4)?, deny: servers.list("deny", ipv4)? })
    }
}

/// Reads an option by its name or number; the empty string is none.
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
    if text.len() <= 255 { Ok(text) } else { Err(Fault::value(text, "at most 255 bytes long")) }
}

/// Reads `keep`, or `other`, which is not to keep.
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
        digits.split(':').map(|pair| byte(pair.as_bytes())).collect()
    } else {
        digits.as_bytes().chunks(2).map(byte).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(ipam: Value) -> Ipam {
        Ipam::parse(&ipam).unwrap_or_else(|bad| panic!("{bad}"))
    }

    #[test]
    fn nothing_said_is_the_default() {
        for nothing in
            [json!(null), json!({}), json!({"type": "dhcp"}), json!({"routes": null, "fqdn": "", "priority": 0})]
        {
            assert_eq!(parse(nothing), Ipam::default());
        }
    }

    #[test]
    fn every_key_is_read() {
        let ipam = parse(json!({
            "type": "dhcp", "daemonSocketPath": "/run/x.sock", "priority": 10,
            "request": [{"skipDefault": true}, {"option": "routers"}, {"option": "43"}],
            "provide": [{"option": "host-name", "value": "web", "fromArg": "K8S_POD_NAME"}],
            "clientId": "text:web-1", "hostname": "{pod}", "fqdn": "{pod}.example.net",
            "vendorClass": "printer", "userClass": "lab", "broadcast": true, "rapidCommit": true, "timeout": 4.5,
            "routes": [{"dst": "10.1.2.3/8", "gw": "192.0.2.9", "mtu": 1400, "advmss": 1360, "priority": 5, "table": 7,
                        "scope": 253}],
            "suppressDefaultRoute": true, "servers": {"allow": ["192.0.2.1"], "deny": ["192.0.2.2"]},
            "release": false, "grace": 5, "ipPreferred": true, "onChange": "keep", "onExpiry": "keep",
            "conflictDetection": "strict",
        }));
        let route = Route {
            dst: "10.0.0.0/8".parse().unwrap(),
            via: None,
            mtu: Some(1400),
            advmss: Some(1360),
            priority: Some(5),
            table: Some(7),
            scope: Some(253),
        };
        let expected = Ipam {
            priority: Some(10),
            request: RequestList { skip_default: true, options: vec![3, 43] },
            provide: vec![Provide { option: 12, value: Some("web".into()), from_arg: Some("K8S_POD_NAME".into()) }],
            client_id: Some(ClientId::Text("web-1".into())),
            hostname: Some("{pod}".into()),
            fqdn: Some("{pod}.example.net".into()),
            vendor_class: Some("printer".into()),
            user_class: Some("lab".into()),
            broadcast: Some(true),
            rapid_commit: true,
            timeout: Some(4.5),
            routes: vec![ExtraRoute { gw: Some("192.0.2.9".parse().unwrap()), route }],
            suppress_default_route: true,
            servers: Servers { allow: vec![Ipv4Addr::new(192, 0, 2, 1)], deny: vec![Ipv4Addr::new(192, 0, 2, 2)] },
            release: Some(false),
            grace: Some(5),
            conflict_detection: ConflictDetection::Strict,
            ip_preferred: true,
            keep_on_change: true,
            keep_on_expiry: true,
        };
        assert_eq!(ipam, expected);
    }

    #[test]
    fn conflict_detection_has_three_kinds() {
        for (name, kind) in [
            ("optimistic", ConflictDetection::Optimistic),
            ("strict", ConflictDetection::Strict),
            ("off", ConflictDetection::Off),
        ] {
            assert_eq!(parse(json!({"conflictDetection": name})).conflict_detection, kind);
        }
        assert!(Ipam::parse(&json!({"conflictDetection": "on"})).is_err());
    }

    #[test]
    fn options_have_names_or_numbers() {
        let table = [
            ("dhcp-client-identifier", 61),
            ("subnet-mask", 1),
            ("routers", 3),
            ("host-name", 12),
            ("user-class", 77),
            ("vendor-class-identifier", 60),
            ("static-routes", 33),
            ("classless-static-routes", 121),
            ("1", 1),
            ("254", 254),
        ];
        for (name, number) in table {
            assert_eq!(parse(json!({"request": [{"option": name}]})).request.options, [number], "{name}");
            assert_eq!(parse(json!({"provide": [{"option": name}]})).provide[0].option, number, "{name}");
        }
        assert_eq!(parse(json!({"request": [{"option": ""}]})).request, RequestList::default());
    }

    #[test]
    fn client_identifiers_have_kinds() {
        let table = [
            ("container", ClientId::Container),
            ("mac", ClientId::Mac),
            ("pod", ClientId::Pod),
            ("duid", ClientId::Duid),
            ("hex:00ffA0", ClientId::Hex(vec![0, 255, 160])),
            ("hex:01:02:0a", ClientId::Hex(vec![1, 2, 10])),
            ("hex:", ClientId::Hex(Vec::new())),
            ("text:a:b", ClientId::Text("a:b".into())),
        ];
        for (text, expected) in table {
            assert_eq!(parse(json!({"clientId": text})).client_id, Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_refused_is_named() {
        let table = [
            (json!([]), "ipam: it has to be an object, not a list"),
            (json!({"type": 1}), "ipam.type: it has to be a string, not a number"),
            (json!({"daemonSocketPath": {}}), "ipam.daemonSocketPath: it has to be a string, not an object"),
            (json!({"priority": "10"}), "ipam.priority: it has to be a number, not a string"),
            (json!({"priority": -1}), "ipam.priority: \"-1\" is not a whole number from 0 to 4294967295"),
            (json!({"priority": 1.5}), "ipam.priority: \"1.5\" is not a whole number from 0 to 4294967295"),
            (json!({"request": {}}), "ipam.request: it has to be a list, not an object"),
            (json!({"request": ["routers"]}), "ipam.request[0]: it has to be an object, not a string"),
            (
                json!({"request": [{"skipDefault": 1}]}),
                "ipam.request[0].skipDefault: it has to be true or false, not a number",
            ),
            (json!({"request": [{}, {"option": 3}]}), "ipam.request[1].option: it has to be a string, not a number"),
            (
                json!({"request": [{"option": "gateway"}]}),
                "ipam.request[0].option: \"gateway\" is not the name of an option, or a number from 1 to 254",
            ),
            (
                json!({"request": [{"option": "255"}]}),
                "ipam.request[0].option: \"255\" is not the name of an option, or a number from 1 to 254",
            ),
            (json!({"provide": [{"value": "x"}]}), "ipam.provide[0].option: missing"),
            (
                json!({"provide": [{"option": "60", "value": 1}]}),
                "ipam.provide[0].value: it has to be a string, not a number",
            ),
            (
                json!({"provide": [{"option": "60", "fromArg": []}]}),
                "ipam.provide[0].fromArg: it has to be a string, not a list",
            ),
            (json!({"clientId": "Mac"}), "ipam.clientId: \"Mac\" is not container, mac, pod, duid, hex:… or text:…"),
            (json!({"clientId": "hex:0"}), "ipam.clientId: \"hex:0\" is not hex: and two digits a byte"),
            (json!({"clientId": "hex:+1"}), "ipam.clientId: \"hex:+1\" is not hex: and two digits a byte"),
            (json!({"clientId": "hex:01:2"}), "ipam.clientId: \"hex:01:2\" is not hex: and two digits a byte"),
            (json!({"clientId": "hex:é0"}), "ipam.clientId: \"hex:é0\" is not hex: and two digits a byte"),
            (json!({"hostname": true}), "ipam.hostname: it has to be a string, not a boolean"),
            (json!({"fqdn": 1}), "ipam.fqdn: it has to be a string, not a number"),
            (json!({"vendorClass": []}), "ipam.vendorClass: it has to be a string, not a list"),
            (json!({"userClass": {}}), "ipam.userClass: it has to be a string, not an object"),
            (json!({"broadcast": "yes"}), "ipam.broadcast: \"yes\" is not true, false or \"auto\""),
            (json!({"broadcast": 1}), "ipam.broadcast: it has to be true or false, not a number"),
            (json!({"rapidCommit": "true"}), "ipam.rapidCommit: it has to be true or false, not a string"),
            (json!({"timeout": "30s"}), "ipam.timeout: it has to be a number, not a string"),
            (json!({"routes": [{"gw": "10.0.0.1"}]}), "ipam.routes[0].dst: missing"),
            (
                json!({"routes": [{"dst": "10.0.0.1"}]}),
                "ipam.routes[0].dst: \"10.0.0.1\" is not a subnet, such as 10.0.0.0/8",
            ),
            (json!({"routes": [{"dst": "10.0.0.0/8", "via": "10.0.0.1"}]}), "ipam.routes[0].via: unknown key"),
            (
                json!({"routes": [{"dst": "10.0.0.0/8", "gw": "fd00::1"}]}),
                "ipam.routes[0].gw: \"fd00::1\" is not of the same family as dst",
            ),
            (
                json!({"routes": [{"dst": "10.0.0.0/8", "scope": 256}]}),
                "ipam.routes[0].scope: \"256\" is not a whole number from 0 to 255",
            ),
            (json!({"suppressDefaultRoute": 0}), "ipam.suppressDefaultRoute: it has to be true or false, not a number"),
            (json!({"servers": ["10.0.0.1"]}), "ipam.servers: it has to be an object, not a list"),
            (json!({"servers": {"allowed": []}}), "ipam.servers.allowed: unknown key"),
            (json!({"servers": {"denies": []}}), "ipam.servers.denies: unknown key"),
            (json!({"servers": {"allow": "10.0.0.1"}}), "ipam.servers.allow: it has to be a list, not a string"),
            (json!({"servers": {"deny": ["fd00::1"]}}), "ipam.servers.deny[0]: \"fd00::1\" is not an IPv4 address"),
            (json!({"release": "no"}), "ipam.release: it has to be true or false, not a string"),
            (json!({"ipPreferred": "yes"}), "ipam.ipPreferred: it has to be true or false, not a string"),
            (json!({"onChange": "remove"}), "ipam.onChange: \"remove\" is not apply or keep"),
            (json!({"onExpiry": "apply"}), "ipam.onExpiry: \"apply\" is not remove or keep"),
            (json!({"onExpiry": true}), "ipam.onExpiry: it has to be a string, not a boolean"),
            (json!({"client_id": "mac"}), "ipam.client_id: unknown key: is clientId meant?"),
            (
                json!({"suppressDefaultRoutes": true}),
                "ipam.suppressDefaultRoutes: unknown key: is suppressDefaultRoute meant?",
            ),
        ];
        for (ipam, fault) in table {
            assert_eq!(Ipam::parse(&ipam).map_err(|bad| bad.to_string()), Err(fault.to_owned()), "{ipam}");
        }
    }

    #[test]
    fn keys_of_others_are_ignored() {
        let others = json!({
            "subnet": "10.0.0.0/8", "ranges": [], "gateway": 1, "dataDir": null, "log_level": "debug", "suppress": ["gateway"],
            "request": [{"option": "routers", "optional": false}], "provide": [{"option": "60", "comment": 1}],
        });
        let expected = Ipam {
            request: RequestList { skip_default: false, options: vec![3] },
            provide: vec![Provide { option: 60, value: None, from_arg: None }],
            ..Ipam::default()
        };
        assert_eq!(parse(others), expected);
    }

    #[test]
    fn a_value_fits_one_option() {
        let of = |length| Ipam::parse(&json!({"provide": [{"option": "43", "value": "x".repeat(length)}]}));
        assert!(of(255).is_ok());
        let bad = of(256).unwrap_err().to_string();
        assert!(bad.ends_with("is not at most 255 bytes long") && bad.len() < 200, "{bad}");
    }
}
