//! Bytes for the tests of this module, written from the RFCs and not with the code under test.

/// Returns the bytes of a text of hexadecimal digits and white space.
pub(super) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).unwrap() as u8)
        .collect();
    digits
        .chunks_exact(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

/// Returns one instance of an option: code, length, value.
pub(super) fn option(code: u8, value: &[u8]) -> Vec<u8> {
    [&[code, u8::try_from(value.len()).unwrap()], value].concat()
}

/// A server's message (RFC 2131 §2, figure 1), field by field.
pub(super) struct Reply {
    pub(super) op: u8,
    pub(super) htype: u8,
    pub(super) hlen: u8,
    pub(super) sname: Vec<u8>,
    pub(super) file: Vec<u8>,
    pub(super) cookie: [u8; 4],
    pub(super) options: Vec<u8>,
}

impl Reply {
    /// Returns an ACK with these options behind its type, and an end marker.
    pub(super) fn ack(options: &[u8]) -> Self {
        let options = [&option(53, &[5]), options, &[255]].concat();
        Self {
            options,
            ..Self::bare()
        }
    }

    /// Returns a message without any option, the end marker included.
    pub(super) fn bare() -> Self {
        Self {
            op: 2,
            htype: 1,
            hlen: 6,
            sname: vec![],
            file: vec![],
            cookie: [0x63, 0x82, 0x53, 0x63],
            options: vec![],
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.op, self.htype, self.hlen, 0];
        bytes.extend(0x1234_5678_u32.to_be_bytes()); // xid
        bytes.extend([0, 7, 0x80, 0]); // secs, flags
        bytes.extend([192, 0, 2, 10]); // ciaddr
        bytes.extend([192, 0, 2, 11]); // yiaddr
        bytes.extend([192, 0, 2, 12]); // siaddr
        bytes.extend([192, 0, 2, 13]); // giaddr
        bytes.extend([2, 0, 0, 0, 0, 1]); // chaddr
        bytes.extend([0xaa; 10]); // what follows it
        bytes.extend(&self.sname);
        bytes.resize(108, 0);
        bytes.extend(&self.file);
        bytes.resize(236, 0);
        bytes.extend(self.cookie);
        bytes.extend(&self.options);
        bytes
    }
}
