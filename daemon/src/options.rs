//! The options of a server's message for people: names, and values as text.

use std::net::Ipv4Addr;

use data_encoding::HEXLOWER;
use leasehold_core::wire::option::{WireRoute, routes, search};

use Form::*;

/// How an option's bytes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// One address or several.
    Addresses,
    /// Text of any bytes.
    Text,
    /// A number of one, two or four bytes.
    Number,
    /// A number of seconds.
    Seconds,
    /// Names in DNS wire form (RFC 3397).
    Names,
    /// Destinations and routers (33, 121, 249).
    Routes,
    /// Anything else.
    Bytes,
}

/// The options that servers send, by their numbers (IANA, BOOTP vendor extensions and DHCP options). The names are those of
/// `request` and `provide` in a network's configuration, and otherwise those that DHCP servers' own configurations share.
const OPTIONS: [(u8, &str, Form); 50] = [
    (1, "subnet-mask", Addresses),
    (2, "time-offset", Number),
    (3, "routers", Addresses),
    (4, "time-servers", Addresses),
    (6, "domain-name-servers", Addresses),
    (7, "log-servers", Addresses),
    (9, "lpr-servers", Addresses),
    (12, "host-name", Text),
    (13, "boot-size", Number),
    (15, "domain-name", Text),
    (17, "root-path", Text),
    (19, "ip-forwarding", Number),
    (23, "default-ip-ttl", Number),
    (26, "interface-mtu", Number),
    (28, "broadcast-address", Addresses),
    (31, "router-discovery", Number),
    (33, "static-routes", Routes),
    (35, "arp-cache-timeout", Seconds),
    (40, "nis-domain", Text),
    (41, "nis-servers", Addresses),
    (42, "ntp-servers", Addresses),
    (43, "vendor-encapsulated-options", Bytes),
    (44, "netbios-name-servers", Addresses),
    (46, "netbios-node-type", Number),
    (47, "netbios-scope", Text),
    (51, "dhcp-lease-time", Seconds),
    (53, "dhcp-message-type", Number),
    (54, "dhcp-server-identifier", Addresses),
    (56, "dhcp-message", Text),
    (57, "dhcp-max-message-size", Number),
    (58, "dhcp-renewal-time", Seconds),
    (59, "dhcp-rebinding-time", Seconds),
    (60, "vendor-class-identifier", Text),
    (61, "dhcp-client-identifier", Bytes),
    (66, "tftp-server-name", Text),
    (67, "bootfile-name", Text),
    (69, "smtp-servers", Addresses),
    (80, "rapid-commit", Bytes),
    (81, "fqdn", Bytes),
    (82, "relay-agent-information", Bytes),
    (100, "posix-timezone", Text),
    (101, "tzdb-timezone", Text),
    (108, "v6-only-preferred", Seconds),
    (114, "captive-portal", Text),
    (116, "auto-config", Number),
    (119, "domain-search", Names),
    (121, "classless-static-routes", Routes),
    (150, "tftp-server-addresses", Addresses),
    (249, "ms-classless-static-routes", Routes),
    (252, "wpad", Text),
];

fn known(code: u8) -> Option<(&'static str, Form)> {
    OPTIONS
        .iter()
        .find(|(known, ..)| *known == code)
        .map(|(_, name, form)| (*name, *form))
}

/// Returns an option's name, if it has one that people know.
pub(crate) fn name(code: u8) -> Option<&'static str> {
    known(code).map(|(name, _)| name)
}

/// Returns an option's value as text, or in hexadecimal if its bytes do not have the option's form.
pub(crate) fn value(code: u8, bytes: &[u8]) -> String {
    let read = match known(code).map_or(Bytes, |(_, form)| form) {
        Addresses => addresses(bytes),
        Text => Some(text(bytes)),
        Number => number(bytes).map(|number| number.to_string()),
        Seconds => number(bytes).map(seconds),
        Names => search(bytes).map(|names| names.join(" ")),
        Routes => routes(code, bytes)
            .map(|routes| routes.iter().map(route).collect::<Vec<_>>().join(", ")),
        Bytes => None,
    };
    read.unwrap_or_else(|| HEXLOWER.encode(bytes))
}

fn addresses(bytes: &[u8]) -> Option<String> {
    let (addresses, rest) = bytes.as_chunks::<4>();
    let texts: Vec<_> = addresses
        .iter()
        .map(|address| Ipv4Addr::from(*address).to_string())
        .collect();
    (rest.is_empty() && !texts.is_empty()).then(|| texts.join(" "))
}

fn number(bytes: &[u8]) -> Option<u32> {
    match *bytes {
        [a] => Some(a.into()),
        [a, b] => Some(u16::from_be_bytes([a, b]).into()),
        [a, b, c, d] => Some(u32::from_be_bytes([a, b, c, d])),
        _ => None,
    }
}

fn seconds(seconds: u32) -> String {
    match seconds {
        u32::MAX => "for ever".to_owned(),
        seconds => format!("{seconds} s"),
    }
}

/// Returns bytes as printable ASCII, everything else escaped, without the NULs that some servers put at the end.
fn text(bytes: &[u8]) -> String {
    let end = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    bytes[..end].escape_ascii().to_string()
}

fn route(WireRoute { destination, via }: &WireRoute) -> String {
    match via {
        Some(via) => format!("{destination} via {via}"),
        None => format!("{destination} on the link"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_text_in_the_form_of_their_option() {
        let table: [(u8, &[u8], &str); 14] = [
            (1, &[255, 255, 0, 0], "255.255.0.0"),
            (6, &[10, 0, 0, 1, 10, 0, 0, 2], "10.0.0.1 10.0.0.2"),
            (6, &[10, 0, 0, 1, 10], "0a0000010a"),
            (6, &[], ""),
            (15, b"lan.example\0", "lan.example"),
            (15, b"a\x1b[2J", "a\\x1b[2J"),
            (26, &[5, 220], "1500"),
            (51, &[0, 0, 14, 16], "3600 s"),
            (51, &[255; 4], "for ever"),
            (119, b"\x03lan\x07example\0", "lan.example"),
            (
                121,
                &[24, 10, 1, 2, 10, 0, 0, 9, 0, 0, 0, 0, 0],
                "10.1.2.0/24 via 10.0.0.9, 0.0.0.0/0 on the link",
            ),
            (33, &[10, 0, 0, 0, 10, 0, 0, 9], "10.0.0.0/8 via 10.0.0.9"),
            (121, &[33], "21"),
            (224, &[1, 2], "0102"),
        ];
        for (code, bytes, shown) in table {
            assert_eq!(value(code, bytes), shown, "option {code}");
        }
        assert_eq!((name(3), name(224)), (Some("routers"), None));
    }

    #[test]
    fn the_options_are_in_order_and_each_once() {
        assert!(OPTIONS.is_sorted_by(|(one, ..), (other, ..)| one < other));
    }
}
