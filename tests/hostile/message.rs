//! DHCP messages and their options.

use std::net::Ipv4Addr;

use leasehold_core::wire::message::{BadMessage, Message, MessageType};
use leasehold_core::wire::option::{
    LeaseRoute, MAX_ADDRESSES, MAX_DROPPED, MAX_ROUTES, MAX_SEARCH, MAX_TEXT, Options,
};
use netns_fixtures::model::{self, code};

/// Reads a server's message, a UDP payload.
///
/// Its options are bounded and hold nothing that a resolver's file, a log or a routing table must not see. What the
/// model's strict reader accepts is accepted, and means the same.
///
/// # Panics
/// If any of this does not hold.
pub fn message(bytes: &[u8]) {
    let ours = Message::decode(bytes);
    if let Ok(message) = &ours {
        assert!(
            matches!(
                message.kind,
                MessageType::Offer | MessageType::Ack | MessageType::Nak
            ),
            "{message:?}"
        );
        are_safe(&message.options);
    }
    if let Ok(modelled) = model::Message::decode(bytes) {
        is_what_the_model_reads(&ours, &modelled);
    }
}

/// Reads options after a valid header: the first byte says which fields hold them; `sname` and `file` come next if it
/// names them.
///
/// # Panics
/// As [`message`], and if a message with a type is refused.
pub fn option(bytes: &[u8]) {
    let (first, mut rest) = bytes.split_at(bytes.len().min(1));
    let overload = first.first().map_or(0, |first| first & 3);
    let mut field = |held: bool, length: usize| {
        let (taken, after) = rest.split_at(if held { length.min(rest.len()) } else { 0 });
        rest = after;
        let mut field = taken.to_vec();
        field.resize(length, 0);
        field
    };
    let sname = field(overload & 2 != 0, 64);
    let file = field(overload & 1 != 0, 128);
    let header = [[2, 1, 6, 0].as_slice(), &[0; 40]].concat();
    let overloaded: &[u8] = if overload == 0 {
        &[]
    } else {
        &[52, 1, overload]
    };
    let payload = [
        &header,
        &sname,
        &file,
        [99, 130, 83, 99].as_slice(),
        overloaded,
        &[53, 1, 5],
        rest,
    ]
    .concat();
    // A truncated second message type invalidates the first.
    let read = Message::decode(&payload).err();
    assert!(
        matches!(read, None | Some(BadMessage::NoMessageType)),
        "{read:?}"
    );
    message(&payload);
}

fn is_what_the_model_reads(ours: &Result<Message, BadMessage>, modelled: &model::Message) {
    let for_us = (modelled.op, modelled.htype, modelled.hlen) == (2, 1, 6)
        && matches!(
            modelled.kind(),
            Some(model::Kind::Offer | model::Kind::Ack | model::Kind::Nak)
        );
    if !for_us {
        // An overloaded field may hold the type; the model does not look there.
        let may_be = modelled.kind().is_none() && modelled.option(code::OVERLOAD).is_some();
        assert!(ours.is_err() || may_be, "{ours:?}");
        return;
    }
    if modelled.option(code::OVERLOAD).is_some() {
        return;
    }
    let ours = ours.as_ref().expect("what the strict reader takes");
    let found = (ours.yiaddr, ours.giaddr);
    assert_eq!(found, (modelled.yiaddr, modelled.giaddr));
    let found = (ours.xid, ours.chaddr.0);
    assert_eq!(found, (modelled.xid, modelled.hardware()));
    let options = &ours.options;
    assert_eq!(options.lease_time, modelled.number(code::LEASE_TIME));
    assert_eq!(
        (options.t1, options.t2),
        (modelled.number(code::T1), modelled.number(code::T2))
    );
    assert_eq!(
        options.server_id,
        modelled
            .address(code::SERVER)
            .filter(|server| can_be_host(*server))
    );
    assert_eq!(
        options.client_id.as_deref(),
        modelled.option(code::CLIENT_ID).filter(|id| !id.is_empty())
    );
}

/// Checks what must hold for options, whatever the bytes were.
fn are_safe(options: &Options) {
    for list in [&options.routers, &options.dns] {
        assert!(
            list.len() <= MAX_ADDRESSES && list.iter().all(|address| can_be_host(*address)),
            "{list:?}"
        );
    }
    assert!(options.server_id.is_none_or(can_be_host));
    assert!(
        options
            .subnet_mask
            .is_none_or(|prefix| (1..=32).contains(&prefix))
    );
    assert!(options.mtu.is_none_or(|mtu| mtu >= 68));
    assert!(options.client_id.as_ref().is_none_or(|id| !id.is_empty()));
    assert!(
        options.static_routes.len() <= MAX_ROUTES && options.static_routes.iter().all(is_sound)
    );
    for routes in [&options.classless_routes, &options.microsoft_routes]
        .into_iter()
        .flatten()
    {
        assert!(
            (1..=MAX_ROUTES).contains(&routes.len()) && routes.iter().all(is_sound),
            "{routes:?}"
        );
    }
    assert!(options.search.len() <= MAX_SEARCH);
    for name in options.search.iter().chain(&options.domains) {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        assert!(
            (1..=253).contains(&name.len()) && name.chars().all(plain),
            "{name:?}"
        );
        assert!(
            name.split('.')
                .all(|label| (1..=63).contains(&label.len()) && !label.starts_with('-')),
            "{name:?}"
        );
    }
    if let Some(text) = &options.message {
        assert!(
            text.len() <= MAX_TEXT && text.chars().all(|c| c == ' ' || c.is_ascii_graphic()),
            "{text:?}"
        );
    }
    assert!(options.dropped.len() <= MAX_DROPPED);
}

fn is_sound(route: &LeaseRoute) -> bool {
    route.destination == route.destination.trunc() && route.via.is_none_or(can_be_host)
}

fn can_be_host(address: Ipv4Addr) -> bool {
    (1..224).contains(&address.octets()[0]) && !address.is_loopback()
}
