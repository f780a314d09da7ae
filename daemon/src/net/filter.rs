//! Programs for the kernel that pick out what an exchange wants (bpf(4)).
//!
//! The kernel compiles a program whenever one is attached, which takes longer than almost everything else in an exchange. So a
//! program contains nothing that its socket does not need, and none is loaded twice. Programs never see this host's own frames
//! (`PACKET_IGNORE_OUTGOING`).

use leasehold_core::link::Hears;
use leasehold_core::wire::Mac;
use nix::libc;
use socket2::SockFilter;

/// The longest frame that is taken, in bytes: a DHCP message of 1500 bytes with all its headers, and room to spare.
pub(super) const LONGEST: usize = 2048;

/// The UDP port of a DHCP client (RFC 2131 §4.1).
pub(super) const CLIENT_PORT: u16 = 68;
/// The UDP port of a DHCP server.
const SERVER_PORT: u16 = 67;

// Offsets in a frame; those of UDP are without the IP header, whose length X holds.
const DESTINATION: u32 = 0;
const TYPE: u32 = 12;
const IP: u32 = 14;
const PIECE_AND_PROTOCOL: u32 = IP + 6;
const UDP_PORT: u32 = IP + 2;
const CHADDR: u32 = IP + 8 + 28;
const ARP_KIND: u32 = 16;
const ARP_OPERATION: u32 = 20;
const ARP_SENDER: u32 = 28;
const ARP_TARGET_MAC: u32 = 32;
const ARP_TARGET: u32 = 38;

/// IPv4 in addresses of 6 and 4 bytes (RFC 826: ptype, hlen, plen).
const ARP_FOR_IPV4: u32 = 0x0800_0604;
const REPLY: u32 = 2;
/// Fragment offset, time to live and protocol without the time to live (RFC 791 §3.1).
const WITHOUT_TTL: u32 = 0x1fff_00ff;

/// What tells our frames from others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ours {
    /// The client's hardware address in answers (chaddr).
    pub(super) chaddr: Mac,
    /// The link's Ethernet address.
    pub(super) own: Mac,
    /// Whether the link is in a container's namespace.
    pub(super) inside: bool,
}

/// Returns a program that picks out UDP to port 68 with `chaddr`, and the ARP for IPv4 that `hears` names.
///
/// The core also sees wrong answers, so that it can say what is wrong: an answer to port 67; the first fragment of an answer;
/// and, inside a namespace, where no others arrive, an answer to the link's own address with another chaddr.
pub(super) fn exchange(ours: &Ours, hears: Hears) -> Vec<SockFilter> {
    let mut program = Program::default();
    let accept = program.end(LONGEST + 1);
    let drop = program.end(0);
    let arp = match program.arp(ours.own, hears, accept, drop) {
        nothing if nothing == drop => drop,
        heard => program.equal(None, libc::ETH_P_ARP.cast_unsigned(), heard, drop),
    };
    let chaddr = program.mac(libc::BPF_IND, CHADDR, ours.chaddr, accept, drop);
    let to_client = match ours.inside {
        true => program.mac(libc::BPF_ABS, DESTINATION, ours.own, accept, chaddr),
        false => chaddr,
    };
    let to_server = program.equal(None, SERVER_PORT.into(), chaddr, drop);
    program.equal(
        Some((libc::BPF_H | libc::BPF_IND, UDP_PORT)),
        CLIENT_PORT.into(),
        to_client,
        to_server,
    );
    let udp = program.put(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, IP);
    program.equal(None, libc::IPPROTO_UDP.cast_unsigned(), udp, drop);
    program.put(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, WITHOUT_TTL);
    let ip = program.load(libc::BPF_W | libc::BPF_ABS, PIECE_AND_PROTOCOL);
    program.equal(
        Some((libc::BPF_H | libc::BPF_ABS, TYPE)),
        libc::ETH_P_IP.cast_unsigned(),
        ip,
        arp,
    );
    program.finish()
}

/// Returns a program that picks out the ARP for IPv4 that `hears` names, and nothing else.
pub(super) fn arp(ours: &Ours, hears: Hears) -> Vec<SockFilter> {
    let mut program = Program::default();
    let accept = program.end(LONGEST + 1);
    let drop = program.end(0);
    let heard = program.arp(ours.own, hears, accept, drop);
    program.equal(
        Some((libc::BPF_H | libc::BPF_ABS, TYPE)),
        libc::ETH_P_ARP.cast_unsigned(),
        heard,
        drop,
    );
    program.finish()
}

/// A program, written from its end because all jumps lead forward.
#[derive(Debug, Default)]
struct Program(Vec<SockFilter>);

/// Where an instruction stands, counted from the program's end.
type Place = usize;

impl Program {
    /// Adds an instruction that goes on with the next one.
    fn put(&mut self, code: u32, value: u32) -> Place {
        self.jump(code, value, 0, 0)
    }

    fn jump(&mut self, code: u32, value: u32, yes: u8, no: u8) -> Place {
        self.0.push(SockFilter::new(code as u16, yes, no, value));
        self.0.len()
    }

    /// Ends the program and takes this many bytes of the frame.
    fn end(&mut self, keep: usize) -> Place {
        self.put(libc::BPF_RET | libc::BPF_K, keep as u32)
    }

    /// Loads what is at an offset.
    fn load(&mut self, size_and_mode: u32, at: u32) -> Place {
        self.put(libc::BPF_LD | size_and_mode, at)
    }

    /// Goes to one of two places, depending on what is at an offset, or on what was loaded last.
    fn equal(&mut self, what: Option<(u32, u32)>, value: u32, yes: Place, no: Place) -> Place {
        let over = |to: Place| u8::try_from(self.0.len() - to).expect("a program is short");
        let code = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        let [yes, no] = [yes, no].map(over);
        let here = self.jump(code, value, yes, no);
        what.map_or(here, |(size_and_mode, at)| self.load(size_and_mode, at))
    }

    /// Goes to one of two places, depending on the Ethernet address at an offset.
    fn mac(
        &mut self,
        mode: u32,
        at: u32,
        Mac([a, b, c, d, e, f]): Mac,
        yes: Place,
        no: Place,
    ) -> Place {
        let first = u32::from_be_bytes([a, b, c, d]);
        let last = u32::from_be_bytes([0, 0, e, f]);
        let rest = self.equal(Some((libc::BPF_H | mode, at + 4)), last, yes, no);
        self.equal(Some((libc::BPF_W | mode, at)), first, rest, no)
    }

    /// Goes to one of two places, depending on whether an ARP frame should be heard.
    fn arp(&mut self, own: Mac, hears: Hears, yes: Place, no: Place) -> Place {
        const WORD: u32 = libc::BPF_W | libc::BPF_ABS;
        let to_us = self.mac(libc::BPF_ABS, ARP_TARGET_MAC, own, yes, no);
        let answers = self.equal(
            Some((libc::BPF_H | libc::BPF_ABS, ARP_OPERATION)),
            REPLY,
            to_us,
            no,
        );
        let heard = match hears {
            Hears::Answers => answers,
            Hears::About(address) => {
                let target = self.equal(Some((WORD, ARP_TARGET)), address.into(), yes, answers);
                self.equal(Some((WORD, ARP_SENDER)), address.into(), yes, target)
            }
        };
        self.equal(Some((WORD, ARP_KIND)), ARP_FOR_IPV4, heard, no)
    }

    fn finish(mut self) -> Vec<SockFilter> {
        self.0.reverse();
        self.0
    }
}
