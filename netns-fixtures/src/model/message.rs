//! DHCPv4 messages: bytes to values and back, strictly.

use std::net::Ipv4Addr;

/// Codes of the options that the model knows (RFC 2132, RFC 3442).
pub mod code {
    /// Subnet mask.
    pub const SUBNET_MASK: u8 = 1;
    /// Routers.
    pub const ROUTERS: u8 = 3;
    /// Domain name servers.
    pub const DNS: u8 = 6;
    /// Domain name.
    pub const DOMAIN: u8 = 15;
    /// Interface MTU.
    pub const MTU: u8 = 26;
    /// Static routes.
    pub const STATIC_ROUTES: u8 = 33;
    /// Requested address.
    pub const REQUESTED: u8 = 50;
    /// Lease time.
    pub const LEASE_TIME: u8 = 51;
    /// Option overload.
    pub const OVERLOAD: u8 = 52;
    /// Message type.
    pub const TYPE: u8 = 53;
    /// Server identifier.
    pub const SERVER: u8 = 54;
    /// Parameter request list.
    pub const PARAMETERS: u8 = 55;
    /// Message, a text.
    pub const MESSAGE: u8 = 56;
    /// Maximum message size.
    pub const MAX_SIZE: u8 = 57;
    /// Renewal time, T1.
    pub const T1: u8 = 58;
    /// Rebinding time, T2.
    pub const T2: u8 = 59;
    /// Client identifier.
    pub const CLIENT_ID: u8 = 61;
    /// Classless static routes.
    pub const CLASSLESS_ROUTES: u8 = 121;
}

/// The type of a message (option 53).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the RFC's own names")]
pub enum Kind {
    Discover = 1,
    Offer,
    Request,
    Decline,
    Ack,
    Nak,
    Release,
    Inform,
}

/// The key under which a server keeps a client's lease: its client identifier, else its hardware address (RFC 2131 §4.2).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientKey {
    /// Option 61.
    Id(Vec<u8>),
    /// chaddr.
    Hardware([u8; 6]),
}

/// A message. sname and file are never written; of those that are read, only whether they were empty is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the RFC's own names")]
pub struct Message {
    pub op: u8,
    pub htype: u8,
    pub hlen: u8,
    pub hops: u8,
    pub xid: u32,
    pub secs: u16,
    pub flags: u16,
    pub ciaddr: Ipv4Addr,
    pub yiaddr: Ipv4Addr,
    pub siaddr: Ipv4Addr,
    pub giaddr: Ipv4Addr,
    pub chaddr: [u8; 16],
    /// Whether sname or file holds anything.
    pub names_used: bool,
    /// Options in their order; the parts of a long one (RFC 3396) joined.
    pub options: Vec<(u8, Vec<u8>)>,
}

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Shorter than the fixed fields and the cookie.
    #[error("{0} bytes are too few for a message")]
    Short(usize),
    /// The magic cookie is missing.
    #[error("no magic cookie")]
    NoCookie,
    /// An option runs over the end.
    #[error("option {0} runs over the end")]
    Overrun(u8),
    /// An option occurs twice and is not a long one in parts.
    #[error("option {0} comes twice")]
    Twice(u8),
    /// The end option is missing.
    #[error("no end option")]
    NoEnd,
    /// Something other than padding follows the end option.
    #[error("something follows the end option")]
    AfterEnd,
}

const FIXED: usize = 236;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// The shortest message: old relays and servers drop shorter ones (RFC 1542 §2.1).
pub(super) const LEAST: usize = 300;

impl Message {
    /// Returns a message from or to a client with this Ethernet address, with nothing else set. `op` is 1 from a client, 2 from a
    /// server.
    pub fn new(op: u8, xid: u32, mac: [u8; 6], options: Vec<(u8, Vec<u8>)>) -> Self {
        let mut chaddr = [0; 16];
        chaddr[..6].copy_from_slice(&mac);
        Self {
            op,
            htype: 1,
            hlen: 6,
            hops: 0,
            xid,
            secs: 0,
            flags: 0,
            ciaddr: Ipv4Addr::UNSPECIFIED,
            yiaddr: Ipv4Addr::UNSPECIFIED,
            siaddr: Ipv4Addr::UNSPECIFIED,
            giaddr: Ipv4Addr::UNSPECIFIED,
            chaddr,
            names_used: false,
            options,
        }
    }

    /// Returns the bare answer to `request`: its xid, flags, giaddr and chaddr (RFC 2131 table 3).
    pub fn answer_to(request: &Self, kind: Kind) -> Self {
        let Self {
            htype,
            hlen,
            flags,
            giaddr,
            chaddr,
            ..
        } = *request;
        let bare = Self::new(2, request.xid, [0; 6], vec![(code::TYPE, vec![kind as u8])]);
        Self {
            htype,
            hlen,
            flags,
            giaddr,
            chaddr,
            ..bare
        }
    }

    /// Reads a message, refusing anything that a careful sender would not send.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let Some((fixed, rest)) = bytes.split_at_checked(FIXED) else {
            return Err(Malformed::Short(bytes.len()));
        };
        let Some((cookie, options)) = rest.split_at_checked(4) else {
            return Err(Malformed::Short(bytes.len()));
        };
        if cookie != COOKIE {
            return Err(Malformed::NoCookie);
        }
        let address =
            |at: usize| Ipv4Addr::new(fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]);
        let mut chaddr = [0; 16];
        chaddr.copy_from_slice(&fixed[28..44]);
        Ok(Self {
            op: fixed[0],
            htype: fixed[1],
            hlen: fixed[2],
            hops: fixed[3],
            xid: u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
            secs: u16::from_be_bytes([fixed[8], fixed[9]]),
            flags: u16::from_be_bytes([fixed[10], fixed[11]]),
            ciaddr: address(12),
            yiaddr: address(16),
            siaddr: address(20),
            giaddr: address(24),
            chaddr,
            names_used: fixed[44..].iter().any(|byte| *byte != 0),
            options: decode_options(options)?,
        })
    }

    /// Writes the message, long options in parts (RFC 3396), padded to 300 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(LEAST);
        out.extend([self.op, self.htype, self.hlen, self.hops]);
        out.extend(self.xid.to_be_bytes());
        out.extend(self.secs.to_be_bytes());
        out.extend(self.flags.to_be_bytes());
        for address in [self.ciaddr, self.yiaddr, self.siaddr, self.giaddr] {
            out.extend(address.octets());
        }
        out.extend(self.chaddr);
        out.resize(FIXED, 0);
        out.extend(COOKIE);
        for (code, value) in &self.options {
            let mut parts = value.chunks(255).peekable();
            if parts.peek().is_none() {
                out.extend([*code, 0]);
            }
            for part in parts {
                out.extend([*code, part.len() as u8]);
                out.extend(part);
            }
        }
        out.push(255);
        if out.len() < LEAST {
            out.resize(LEAST, 0);
        }
        out
    }

    /// Returns an option's value.
    pub fn option(&self, code: u8) -> Option<&[u8]> {
        self.options
            .iter()
            .find(|(c, _)| *c == code)
            .map(|(_, value)| value.as_slice())
    }

    /// Returns an option that is one address.
    pub fn address(&self, code: u8) -> Option<Ipv4Addr> {
        self.option(code)?
            .try_into()
            .ok()
            .map(|octets: [u8; 4]| octets.into())
    }

    /// Returns an option that is a number of four bytes.
    pub fn number(&self, code: u8) -> Option<u32> {
        self.option(code)?.try_into().ok().map(u32::from_be_bytes)
    }

    /// Returns the message's type.
    pub fn kind(&self) -> Option<Kind> {
        use Kind::*;
        let [kind] = self.option(code::TYPE)? else {
            return None;
        };
        [Discover, Offer, Request, Decline, Ack, Nak, Release, Inform]
            .into_iter()
            .find(|k| *k as u8 == *kind)
    }

    /// Returns the hardware address: the first six bytes of chaddr.
    pub fn hardware(&self) -> [u8; 6] {
        let [a, b, c, d, e, f, ..] = self.chaddr;
        [a, b, c, d, e, f]
    }

    /// Returns what identifies the client.
    pub fn key(&self) -> ClientKey {
        match self.option(code::CLIENT_ID) {
            Some(id) => ClientKey::Id(id.to_vec()),
            None => ClientKey::Hardware(self.hardware()),
        }
    }

    /// Returns whether the client asks for its answer by broadcast.
    pub fn wants_broadcast(&self) -> bool {
        self.flags & 0x8000 != 0
    }
}

fn decode_options(mut rest: &[u8]) -> Result<Vec<(u8, Vec<u8>)>, Malformed> {
    let mut options: Vec<(u8, Vec<u8>)> = Vec::new();
    let mut last_full = None;
    loop {
        rest = match rest {
            [] => return Err(Malformed::NoEnd),
            [255, pad @ ..] if pad.iter().all(|byte| *byte == 0) => return Ok(options),
            [255, ..] => return Err(Malformed::AfterEnd),
            [0, rest @ ..] => rest,
            [code] => return Err(Malformed::Overrun(*code)),
            [code, length, rest @ ..] => {
                let split = rest.split_at_checked(usize::from(*length));
                let (value, rest) = split.ok_or(Malformed::Overrun(*code))?;
                match options.iter_mut().find(|(c, _)| c == code) {
                    None => options.push((*code, value.to_vec())),
                    Some((_, parts)) if last_full == Some(*code) => parts.extend(value),
                    Some(_) => return Err(Malformed::Twice(*code)),
                }
                last_full = (*length == 255).then_some(*code);
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Message {
        let mut message =
            Message::decode(&[&[1, 1, 6, 0][..], &[0; 232], &COOKIE, &[255]].concat()).unwrap();
        message.xid = 0x01020304;
        message.ciaddr = Ipv4Addr::new(10, 0, 0, 9);
        message
            .options
            .push((code::TYPE, vec![Kind::Request as u8]));
        message
    }

    #[test]
    fn what_is_written_reads_the_same() {
        let message = sample();
        let bytes = message.encode();
        assert_eq!(bytes.len(), 300);
        assert_eq!(Message::decode(&bytes), Ok(message));
    }

    #[test]
    fn a_long_option_goes_in_parts_and_is_joined() {
        let mut message = sample();
        message.options.push((code::CLASSLESS_ROUTES, vec![7; 600]));
        assert_eq!(Message::decode(&message.encode()), Ok(message));
    }

    #[test]
    fn every_truncation_is_refused() {
        let mut message = sample();
        message.options.push((code::CLIENT_ID, vec![1; 80]));
        let bytes = message.encode();
        let end = FIXED + 4 + 3 + 82;
        assert_eq!(bytes[end], 255);
        for length in 0..=end {
            assert!(Message::decode(&bytes[..length]).is_err(), "{length}");
        }
        assert!(Message::decode(&bytes[..=end]).is_ok());
    }

    #[test]
    fn an_option_that_comes_twice_is_refused() {
        let mut message = sample();
        message.options.push((code::TYPE, vec![1]));
        let found = Message::decode(&message.encode());
        assert_eq!(found, Err(Malformed::Twice(code::TYPE)));
    }

    #[test]
    fn something_after_the_end_is_refused() {
        let mut bytes = sample().encode();
        *bytes.last_mut().unwrap() = 9;
        assert_eq!(Message::decode(&bytes), Err(Malformed::AfterEnd));
    }
}
