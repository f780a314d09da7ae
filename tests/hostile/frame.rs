//! Frames, from their Ethernet header on.

use leasehold_core::wire::Mac;
use leasehold_core::wire::frame::{Arp, ArpOp, BadFrame, Frame, FrameMeta, Udp, decode};
use netns_fixtures::model::{self, Packet};

const META: FrameMeta = FrameMeta {
    checksum_not_ready: false,
    vlan: 0,
    other_host: false,
    cut: false,
};
const UNFINISHED: FrameMeta = FrameMeta {
    checksum_not_ready: true,
    ..META
};

/// Reads a frame.
///
/// What is read lies within the bytes, and reads the same after it is written again. What the model's strict reader
/// accepts is accepted, and means the same.
///
/// # Panics
/// If any of this does not hold.
pub fn frame(bytes: &[u8]) {
    read(bytes);
    // Few damaged bytes have a correct checksum.
    if let Some(mended) = mended(bytes) {
        read(&mended);
    }
}

fn read(bytes: &[u8]) {
    let plain = decode(bytes, META);
    let unfinished = decode(bytes, UNFINISHED);
    if plain.is_ok() {
        assert_eq!(
            unfinished, plain,
            "the unfinished checksum is not looked at"
        );
    }
    if let Ok(read) = &unfinished {
        is_sound(read, bytes);
    }
    assert_eq!(
        decode(bytes, FrameMeta { vlan: 7, ..META }),
        Err(BadFrame::Vlan(7))
    );
    assert_eq!(
        decode(
            bytes,
            FrameMeta {
                other_host: true,
                ..META
            }
        ),
        plain,
        "whose it is, is the caller's to see"
    );
    if let Ok(modelled) = model::decode(bytes) {
        is_what_the_model_reads(&plain, &modelled);
    }
}

fn is_sound(read: &Frame<'_>, bytes: &[u8]) {
    match read {
        Frame::Udp(udp) => {
            assert!(bytes.as_ptr_range().contains(&udp.payload.as_ptr()) || udp.payload.is_empty());
            assert!(udp.payload.len() + 42 <= bytes.len());
            assert_eq!(decode(&udp.encode(), META).as_ref(), Ok(read));
        }
        Frame::Arp(arp) => assert_eq!(decode(&arp.encode(), META).as_ref(), Ok(read)),
    }
}

fn is_what_the_model_reads(ours: &Result<Frame<'_>, BadFrame>, modelled: &model::Frame<'_>) {
    if let Err(BadFrame::GroupSource(mac)) = ours {
        assert_eq!(mac.0, modelled.source);
        return;
    }
    let (source_mac, destination_mac) = (Mac(modelled.source), Mac(modelled.destination));
    match &modelled.packet {
        Packet::Udp {
            source,
            destination,
            payload,
        } => {
            let expected = Udp {
                source_mac,
                destination_mac,
                source: *source.ip(),
                destination: *destination.ip(),
                source_port: source.port(),
                destination_port: destination.port(),
                payload,
            };
            assert_eq!(ours, &Ok(Frame::Udp(expected)));
        }
        Packet::Arp(arp) => {
            let expected = Arp {
                op: if arp.request {
                    ArpOp::Request
                } else {
                    ArpOp::Reply
                },
                source_mac,
                destination_mac,
                sender_mac: Mac(arp.sender_mac),
                sender: arp.sender,
                target_mac: Mac(arp.target_mac),
                target: arp.target,
            };
            assert_eq!(ours, &Ok(Frame::Arp(expected)));
        }
        Packet::Other(_) => assert!(ours.is_err(), "{ours:?}"),
    }
}

/// Gives an IPv4 packet a correct header checksum and no UDP checksum.
fn mended(bytes: &[u8]) -> Option<Vec<u8>> {
    let header_length = usize::from(bytes.get(14)? & 0x0f) * 4;
    let mut bytes = bytes.to_vec();
    bytes.get_mut(24..26)?.fill(0);
    let header = bytes.get(14..14 + header_length)?;
    let words = header
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let sum = words.sum::<u32>();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    bytes
        .get_mut(14 + header_length + 6..14 + header_length + 8)?
        .fill(0);
    Some(bytes)
}
