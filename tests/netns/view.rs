//! A server's view: a lease's whole life as tshark reads it, with each field checked against RFC 2131 table 5.

use std::collections::BTreeSet;
use std::time::Duration;

use netns_fixtures::model::Kind;
use netns_fixtures::server::{Grants, Kea};
use netns_fixtures::{
    CallError, Capture, DEADLINE, Dhcp, Dissection, Lab, Lan, Member, Need, sandbox,
};

use crate::witness;

const T1: Duration = Duration::from_secs(12);
const T2: Duration = Duration::from_secs(18);

/// tshark's names for what table 5 covers, and for the headers around it.
const FIELDS: &str = "eth.src eth.dst ip.src ip.dst ip.ttl ip.checksum.status udp.srcport udp.dstport udp.checksum.status udp.length \
    dhcp.type dhcp.hw.type dhcp.hw.len dhcp.hops dhcp.id dhcp.secs dhcp.flags dhcp.ip.client dhcp.ip.your \
    dhcp.ip.server dhcp.ip.relay dhcp.hw.mac_addr dhcp.hw.addr_padding dhcp.server dhcp.file dhcp.cookie \
    dhcp.option.type dhcp.option.end dhcp.option.dhcp dhcp.option.requested_ip_address dhcp.option.dhcp_server_id \
    dhcp.option.request_list_item dhcp.option.dhcp_max_message_size dhcp.client_id.type dhcp.client_id.undef \
    _ws.malformed _ws.expert.message";

/// What distinguishes the messages of a lease's life in table 5 (RFC 2131 §4.3.6, §4.4.1): where the address is, whether the
/// server is named, and who should hear the message.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row<'a> {
    kind: &'a str,
    source: &'a str,
    destination: &'a str,
    ciaddr: &'a str,
    requested: &'a str,
    server: &'a str,
}

#[test]
fn a_whole_life_is_as_table_5_has_it() -> Result<(), CallError> {
    let needs = [Need::Program("kea-dhcp4"), Need::Program("tshark")];
    let lab = Lab::new(&sandbox!(&needs))?;
    let grants = Grants {
        lease_time: Duration::from_secs(30),
        timers: Some((T1, T2)),
        ..Grants::default()
    };
    let mut server = Kea::start(&lab.lan, grants)?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let member = live(&lab, &mut server, &mut seen)?;
    let all = seen.dissect(&lab.lan.server, FIELDS)?;

    let (ours, theirs): (Vec<_>, Vec<_>) = all
        .iter()
        .partition(|message| message["eth.src"] == member.mac());
    ours.iter()
        .for_each(|message| is_well_formed(message, &member));
    let own = member.address.to_string();
    let server = "10.7.0.1";
    let all = "255.255.255.255";
    let none = "0.0.0.0";
    let own = own.as_str();
    let row = |kind, source, destination, ciaddr, requested, server| Row {
        kind,
        source,
        destination,
        ciaddr,
        requested,
        server,
    };
    let mut rows: Vec<_> = ours.iter().map(|message| Row::of(message)).collect();
    rows.dedup();
    let table_5 = [
        row(DISCOVER, none, all, none, "", ""),
        // SELECTING
        row(REQUEST, none, all, none, own, server),
        // RENEWING
        row(REQUEST, own, server, own, "", ""),
        // REBINDING
        row(REQUEST, own, all, own, "", ""),
        // INIT-REBOOT
        row(REQUEST, none, all, none, own, ""),
        row(RELEASE, own, server, own, "", server),
    ];
    assert_eq!(rows, table_5);

    // One transaction is one xid, and the REQUEST of a choice has the DISCOVER's secs (RFC 2131 §4.4.1).
    let choice = ours
        .iter()
        .position(|message| message["dhcp.option.dhcp"] == REQUEST)
        .expect("one of the rows");
    assert_eq!(ours[choice - 1]["dhcp.id"], ours[choice]["dhcp.id"]);
    assert_eq!(ours[choice - 1]["dhcp.secs"], ours[choice]["dhcp.secs"]);
    let xids: BTreeSet<_> = ours.iter().map(|message| &message["dhcp.id"]).collect();
    assert!(
        theirs
            .iter()
            .all(|answer| xids.contains(&answer["dhcp.id"]))
    );
    Ok(())
}

const DISCOVER: &str = "1";
const REQUEST: &str = "3";
const RELEASE: &str = "7";

impl<'a> Row<'a> {
    fn of(message: &'a Dissection) -> Self {
        Self {
            kind: &message["dhcp.option.dhcp"],
            source: &message["ip.src"],
            destination: &message["ip.dst"],
            ciaddr: &message["dhcp.ip.client"],
            requested: &message["dhcp.option.requested_ip_address"],
            server: &message["dhcp.option.dhcp_server_id"],
        }
    }
}

/// Checks what table 5 and the layers below require of every message.
fn is_well_formed(message: &Dissection, member: &Member) {
    let mac = member.mac();
    let good = "1";
    let broadcast = message["ip.dst"] == "255.255.255.255";
    for (field, expected) in [
        ("_ws.malformed", ""),
        ("_ws.expert.message", ""),
        ("ip.checksum.status", good),
        ("udp.checksum.status", good),
        ("udp.srcport", "68"),
        ("udp.dstport", "67"),
        ("dhcp.type", "1"),
        ("dhcp.hw.type", "0x01"),
        ("dhcp.hw.len", "6"),
        ("dhcp.hops", "0"),
        ("dhcp.flags", "0x0000"),
        ("dhcp.ip.your", "0.0.0.0"),
        ("dhcp.ip.server", "0.0.0.0"),
        ("dhcp.ip.relay", "0.0.0.0"),
        ("dhcp.hw.mac_addr", &mac),
        ("dhcp.hw.addr_padding", "00000000000000000000"),
        ("dhcp.server", ""),
        ("dhcp.file", ""),
        ("dhcp.cookie", "99.130.83.99"),
        ("dhcp.option.end", "255"),
        ("dhcp.client_id.type", "0"),
        ("dhcp.client_id.undef", "c1/lan/eth0"),
    ] {
        assert_eq!(message[field], expected, "{field} of {message:#?}");
    }
    assert_eq!(
        message["eth.dst"] == "ff:ff:ff:ff:ff:ff",
        broadcast,
        "{message:#?}"
    );
    // BOOTP's size, which old relays require: 300 bytes and the header (RFC 1542 §2.1).
    assert!(
        message["udp.length"]
            .parse::<usize>()
            .is_ok_and(|length| length >= 308),
        "{message:#?}"
    );
    if message["dhcp.option.dhcp"] == RELEASE {
        assert_eq!(message["dhcp.secs"], "0", "{message:#?}");
        // MUST NOT: all others. A message (56) it SHOULD have.
        assert_eq!(options(message), ["53", "61", "54", "56"], "{message:#?}");
    } else {
        assert_eq!(
            message["dhcp.option.request_list_item"],
            "1,121,249,3,33,6,15,26,51,54,58,59,119"
        );
        assert!(
            message["dhcp.option.dhcp_max_message_size"]
                .parse::<u16>()
                .is_ok_and(|size| size >= 576)
        );
        let of_others = |code: &&str| !["50", "53", "54", "55", "57", "61"].contains(code);
        assert!(!options(message).iter().any(of_others), "{message:#?}");
        assert_eq!(options(message)[0], "53", "{message:#?}");
    }
}

/// Returns the codes of a message's options. To tshark, both padding and the end option are 0.
fn options(message: &Dissection) -> Vec<&str> {
    message["dhcp.option.type"]
        .split(',')
        .filter(|code| *code != "0")
        .collect()
}

/// DISCOVER, REQUEST, RENEW, REBIND, INIT-REBOOT, RELEASE.
fn live(lab: &Lab, server: &mut Kea, seen: &mut Capture) -> Result<Member, CallError> {
    let member = lab.attach("c1")?;
    let ack = |m: &Dhcp| m.yiaddr == member.address;
    seen.wait_for_dhcp(Kind::Ack, DEADLINE, ack)?;
    witness::renewal(seen, &member, DEADLINE)?;
    seen.wait_for_dhcp(Kind::Ack, DEADLINE, ack)?;
    server.stop()?;
    witness::rebinding(seen, &member, DEADLINE)?;
    server.restart(None)?;
    witness::rebinding(seen, &member, DEADLINE)?;
    seen.wait_for_dhcp(Kind::Ack, DEADLINE, ack)?;
    lab.lan.interrupt(&lab.lan.host, Lan::LONG)?;
    witness::init_reboot(seen, &member, DEADLINE)?;
    seen.wait_for_dhcp(Kind::Ack, DEADLINE, ack)?;
    lab.detach(&member)?;
    witness::release(seen, &member, DEADLINE)?;
    Ok(member)
}
