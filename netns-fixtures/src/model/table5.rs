//! Checks one message against RFC 2131 table 5, without memory of others.

use std::net::Ipv4Addr;

use super::frame::{BROADCAST, Datagram};
use super::message::{Message, code};
use super::purpose::Purpose;
use super::violation::Violation;

/// Judges the fixed fields (RFC 2131 table 5).
pub(super) fn fixed_fields(purpose: Purpose, message: &Message, found: &mut Vec<Violation>) {
    let unset = Ipv4Addr::UNSPECIFIED;
    let mut check = |bad: bool, violation: Violation| {
        if bad {
            found.push(violation);
        }
    };
    check(message.op != 1, Violation::Op(message.op));
    check(
        (message.htype, message.hlen) != (1, 6),
        Violation::Hardware(message.htype, message.hlen),
    );
    check(message.hops != 0, Violation::Hops(message.hops));
    let allowed = if purpose.gives_back() { 0 } else { 0x8000 };
    check(
        message.flags & !allowed != 0,
        Violation::Flags(purpose, message.flags),
    );
    check(
        purpose.gives_back() && message.secs != 0,
        Violation::Secs(purpose, message.secs),
    );
    check(
        purpose.speaks_as_leased() == message.ciaddr.is_unspecified(),
        Violation::Address(purpose, "ciaddr", message.ciaddr),
    );
    check(
        message.yiaddr != unset,
        Violation::Address(purpose, "yiaddr", message.yiaddr),
    );
    check(
        message.siaddr != unset,
        Violation::Address(purpose, "siaddr", message.siaddr),
    );
    check(
        message.giaddr != unset,
        Violation::Address(purpose, "giaddr", message.giaddr),
    );
    check(message.chaddr[6..] != [0; 10], Violation::ChaddrPadding);
    check(message.names_used, Violation::NamesUsed);
}

/// Judges the options and their form (RFC 2131 table 5, RFC 2132).
pub(super) fn options(purpose: Purpose, message: &Message, found: &mut Vec<Violation>) {
    use Purpose::*;
    let has = |code| message.option(code).is_some();
    for (code, must, must_not) in [
        (
            code::REQUESTED,
            &[Select, Reboot, Decline][..],
            &[Renew, Rebind, Release][..],
        ),
        (
            code::SERVER,
            &[Select, Decline, Release],
            &[Discover, Reboot, Renew, Rebind],
        ),
    ] {
        if must.contains(&purpose) && !has(code) {
            found.push(Violation::Missing(purpose, code));
        }
        if must_not.contains(&purpose) && has(code) {
            found.push(Violation::Forbidden(purpose, code));
        }
    }
    if let Some((first, _)) = message
        .options
        .first()
        .filter(|(first, _)| *first != code::TYPE)
    {
        found.push(Violation::TypeNotFirst(*first));
    }
    let given_back = [
        code::TYPE,
        code::REQUESTED,
        code::SERVER,
        code::CLIENT_ID,
        code::MESSAGE,
    ];
    for (code, value) in &message.options {
        if (purpose.gives_back() && !given_back.contains(code)) || *code == code::OVERLOAD {
            found.push(Violation::Forbidden(purpose, *code));
        }
        let right = match *code {
            code::TYPE => value.len() == 1,
            code::MAX_SIZE => value.len() == 2,
            code::REQUESTED | code::SERVER | code::LEASE_TIME => value.len() == 4,
            code::CLIENT_ID => value.len() >= 2,
            _ => !value.is_empty(),
        };
        if !right {
            found.push(Violation::Length(*code, value.len()));
        }
    }
    if let Some([high, low]) = message.option(code::MAX_SIZE) {
        let size = u16::from_be_bytes([*high, *low]);
        if size < 576 {
            found.push(Violation::MaxSize(size));
        }
    }
    let list = message.option(code::PARAMETERS).unwrap_or_default();
    for (at, code) in list.iter().enumerate() {
        if list[..at].contains(code) {
            found.push(Violation::ListTwice(*code));
        }
        if [code::ROUTERS, code::STATIC_ROUTES].contains(code)
            && list[at..].contains(&code::CLASSLESS_ROUTES)
        {
            found.push(Violation::ListOrder(*code));
        }
    }
}

/// Judges where the message comes from and goes to (RFC 2131 §4.1, §4.3.2, §4.4).
pub(super) fn envelope(
    purpose: Purpose,
    message: &Message,
    datagram: &Datagram<'_>,
    found: &mut Vec<Violation>,
) {
    let source = if purpose.speaks_as_leased() {
        message.ciaddr
    } else {
        Ipv4Addr::UNSPECIFIED
    };
    if *datagram.source.ip() != source || datagram.source.port() != 68 {
        found.push(Violation::Source(purpose, datagram.source));
    }
    if let Some(to) = datagram.destination {
        let broadcast = *to.ip() == Ipv4Addr::BROADCAST;
        if broadcast == purpose.unicast() || to.port() != 67 {
            found.push(Violation::Destination(purpose, to));
        }
    }
    if let Some((from, to)) = datagram.ethernet {
        if from != message.hardware() {
            found.push(Violation::ChaddrNotSource);
        }
        // One IP address in an Ethernet broadcast is the last resort of a client whose ARP nobody answers: servers
        // accept it.
        let one = purpose.unicast() && to[0] & 1 == 0;
        if !one && to != BROADCAST {
            found.push(Violation::EthernetDestination(purpose));
        }
    }
}
