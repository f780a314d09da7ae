//! The mistakes that a client can make.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::frame::BadFrame;
use super::message::Malformed;
use super::purpose::Purpose;

/// A mistake of a client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Violation {
    #[error("frame: {0}")]
    Frame(BadFrame),
    #[error("neither DHCP nor ARP: EtherType {0:#06x}")]
    Unexpected(u16),
    #[error("ARP whose sender is not the frame's")]
    ArpSender,
    #[error("message: {0}")]
    Malformed(Malformed),
    #[error("{0} bytes: some relays and servers drop less than 300")]
    TooShort(usize),
    #[error("op {0} is not a request")]
    Op(u8),
    #[error("hardware type {0} with a length of {1} is not Ethernet")]
    Hardware(u8, u8),
    #[error("hops {0} from a client")]
    Hops(u8),
    #[error("{0:?} with flags {1:#06x}")]
    Flags(Purpose, u16),
    #[error("{0:?} with secs {1}")]
    Secs(Purpose, u16),
    #[error("{0:?} with {1} {2}")]
    Address(Purpose, &'static str, Ipv4Addr),
    #[error("chaddr goes on after the hardware address")]
    ChaddrPadding,
    #[error("the frame comes from another Ethernet address than chaddr")]
    ChaddrNotSource,
    #[error("sname or file holds something")]
    NamesUsed,
    #[error("a type, or a set of fields, that no client sends")]
    NoPurpose,
    #[error("{0:?} without option {1}")]
    Missing(Purpose, u8),
    #[error("{0:?} with option {1}")]
    Forbidden(Purpose, u8),
    #[error("option {0} with a length of {1}")]
    Length(u8, usize),
    #[error("option {0} before the message type: some servers want that first")]
    TypeNotFirst(u8),
    #[error("the parameter request list names {0} before 121 (RFC 3442)")]
    ListOrder(u8),
    #[error("the parameter request list names {0} twice")]
    ListTwice(u8),
    #[error("a maximum message size of {0}, below 576")]
    MaxSize(u16),
    #[error("{0:?} from {1}")]
    Source(Purpose, SocketAddrV4),
    #[error("{0:?} to {1}")]
    Destination(Purpose, SocketAddrV4),
    #[error("{0:?} has an Ethernet destination that is neither one station nor all")]
    EthernetDestination(Purpose),
    #[error("another client identifier or chaddr within one xid")]
    ClientChanged,
    #[error("a parameter request list unlike the one before")]
    ListChanged,
    #[error("REQUEST with secs {0}, which no DISCOVER of its xid had")]
    SecsChanged(u16),
    #[error("REQUEST for {address} of {server}, which no OFFER of its xid named")]
    NotOffered { server: Ipv4Addr, address: Ipv4Addr },
    #[error("{0:?} for {1}, which this client was never granted")]
    NeverGranted(Purpose, Ipv4Addr),
    #[error("{0:?} to {1}, which did not grant the lease")]
    WrongServer(Purpose, Ipv4Addr),
    #[error("{0:?} from {1} after its lease ended")]
    Ended(Purpose, Ipv4Addr),
    #[error("{0:?} from {1} after it was given back")]
    GivenBack(Purpose, Ipv4Addr),
    #[error("{0:?} for {1} after a server refused it with a NAK")]
    NakIgnored(Purpose, Ipv4Addr),
}
