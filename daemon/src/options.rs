//! The options of a server's message for people: names, and values as text.

use std::net::Ipv4Addr;

use data_encoding::HEXLOWER;
use leasehold_api::control::DhcpOption;
use leasehold_core::wire::option::{
    LeaseRoute, OPTIONS,
    OptionForm::{self, *},
    routes, search,
};

/// Returns an option as it is shown.
pub(crate) fn shown(code: u8, bytes: &[u8]) -> DhcpOption {
    let known = OPTIONS.iter().find(|(known, ..)| *known == code);
    let (name, form) = known.map_or((None, Bytes), |(_, name, form)| (Some(*name), *form));
    DhcpOption {
        code,
        name: name.map(str::to_owned),
        value: value(code, form, bytes),
        bytes: HEXLOWER.encode(bytes),
    }
}

/// Returns an option's value as text, or in hexadecimal if its bytes do not have this form.
fn value(code: u8, form: OptionForm, bytes: &[u8]) -> String {
    let read = match form {
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

fn route(LeaseRoute { destination, via }: &LeaseRoute) -> String {
    match via {
        Some(via) => format!("{destination} via {via}"),
        None => format!("{destination} on the link"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
            assert_eq!(super::shown(code, bytes).value, shown, "option {code}");
        }
        let name = |code| super::shown(code, &[]).name;
        assert_eq!((name(3), name(224)), (Some("routers".to_owned()), None));
    }

    #[test]
    fn each_option_and_each_name_is_listed_once() {
        let codes: BTreeSet<_> = OPTIONS.iter().map(|(code, ..)| code).collect();
        let names: BTreeSet<_> = OPTIONS.iter().map(|(_, name, _)| name).collect();
        assert_eq!([codes.len(), names.len()], [OPTIONS.len(); 2]);
    }
}
