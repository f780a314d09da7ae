//! Frames as the tests of the net send them.

use std::net::Ipv4Addr;

use leasehold_core::wire::Mac;

use super::lab::{MAC, PEER};

/// A DHCP answer, as far as the filter looks at it.
#[derive(Clone, Copy)]
pub(super) struct Answer {
    pub(super) to: Mac,
    pub(super) chaddr: Mac,
    pub(super) port: u16,
    pub(super) protocol: u8,
    /// Flags and fragment offset of the IP header.
    pub(super) fragment: u16,
    /// Bytes of IP options, a multiple of four.
    pub(super) options: usize,
    /// Bytes behind the BOOTP header.
    pub(super) tail: usize,
}

impl Answer {
    pub(super) const PLAIN: Self = Self {
        to: Mac::BROADCAST,
        chaddr: MAC,
        port: 68,
        protocol: 17,
        fragment: 0,
        options: 0,
        tail: 64,
    };

    /// Returns the frame of the plain answer, but for this change.
    pub(super) fn but(change: impl FnOnce(&mut Self)) -> Vec<u8> {
        let mut answer = Self::PLAIN;
        change(&mut answer);
        answer.frame()
    }

    pub(super) fn frame(self) -> Vec<u8> {
        let mut frame = Vec::new();
        frame.extend(self.to.0);
        frame.extend(PEER.0);
        frame.extend([0x08, 0x00]);
        let ip = 20 + self.options;
        let length = (ip + 8 + 236 + self.tail) as u16;
        frame.extend([0x40 | (ip / 4) as u8, 0]);
        frame.extend(length.to_be_bytes());
        frame.extend([0, 1]);
        frame.extend(self.fragment.to_be_bytes());
        frame.extend([64, self.protocol, 0, 0]);
        frame.extend(Ipv4Addr::new(192, 0, 2, 1).octets());
        frame.extend(Ipv4Addr::BROADCAST.octets());
        frame.extend(vec![1; self.options]);
        frame.extend(67_u16.to_be_bytes());
        frame.extend(self.port.to_be_bytes());
        frame.extend((length - ip as u16).to_be_bytes());
        frame.extend([0, 0]);
        let mut bootp = vec![0; 236 + self.tail];
        bootp[..4].copy_from_slice(&[2, 1, 6, 0]);
        bootp[28..34].copy_from_slice(&self.chaddr.0);
        frame.extend(bootp);
        frame
    }
}

/// What a frame of ARP says, from `PEER`, to all.
#[derive(Clone, Copy)]
pub(super) struct ArpFrame {
    /// 1 asks, 2 answers.
    pub(super) operation: u8,
    pub(super) sender: Ipv4Addr,
    pub(super) target_mac: Mac,
    pub(super) target: Ipv4Addr,
    /// The protocol whose addresses these are; IPv4's is 0x0800.
    pub(super) protocol: u16,
}

impl ArpFrame {
    /// 192.0.2.1 asks for 192.0.2.9.
    pub(super) const QUESTION: Self = Self {
        operation: 1,
        sender: Ipv4Addr::new(192, 0, 2, 1),
        target_mac: Mac([0; 6]),
        target: Ipv4Addr::new(192, 0, 2, 9),
        protocol: 0x0800,
    };

    pub(super) fn frame(self) -> Vec<u8> {
        let mut frame = Vec::new();
        frame.extend(Mac::BROADCAST.0);
        frame.extend(PEER.0);
        frame.extend([0x08, 0x06, 0, 1]);
        frame.extend(self.protocol.to_be_bytes());
        frame.extend([6, 4, 0, self.operation]);
        frame.extend(PEER.0);
        frame.extend(self.sender.octets());
        frame.extend(self.target_mac.0);
        frame.extend(self.target.octets());
        frame
    }
}

/// The same question about another address.
pub(super) fn arp_for(target: [u8; 4]) -> Vec<u8> {
    let target = target.into();
    ArpFrame {
        target,
        ..ArpFrame::QUESTION
    }
    .frame()
}

/// A question, as ARP asks it.
pub(super) fn arp() -> Vec<u8> {
    ArpFrame::QUESTION.frame()
}
