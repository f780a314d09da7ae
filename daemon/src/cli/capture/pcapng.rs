//! Frames as a file that Wireshark opens (pcapng, draft-ietf-opsawg-pcapng).
//!
//! Only three kinds of blocks are written. The existing crates are unfinished or bring a parser.

use std::io::{self, Write};

use leasehold_api::control::Frame;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

/// The byte order in which the rest is read (section 4.1).
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// The section's length is not known (section 4.1).
const UNKNOWN: u64 = u64::MAX;
/// Ethernet (LINKTYPE_ETHERNET).
const ETHERNET: u16 = 1;

// Options (section 3.5, 4.1, 4.2, 4.3).
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const EPB_FLAGS: u16 = 2;
const EPB_DROPCOUNT: u16 = 4;
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// A file that is complete after each write.
pub(super) struct Pcapng<W> {
    out: W,
    /// The attachments so far: each is an interface of the file.
    interfaces: Vec<String>,
    written: u64,
}

impl<W: Write> Pcapng<W> {
    /// Begins a file.
    pub(super) fn new(out: W) -> io::Result<Self> {
        let mut file = Self {
            out,
            interfaces: Vec::new(),
            written: 0,
        };
        let mut body = BYTE_ORDER.to_le_bytes().to_vec();
        body.extend([1, 0, 0, 0]); // version 1.0
        body.extend(UNKNOWN.to_le_bytes());
        option(
            &mut body,
            SHB_USERAPPL,
            concat!("leasehold ", env!("CARGO_PKG_VERSION")).as_bytes(),
        );
        end(&mut body);
        file.block(SECTION_HEADER, body)?;
        file.out.flush()?;
        Ok(file)
    }

    /// Returns how many bytes were written.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Writes a frame on the interface of its attachment. `missed` frames were lost before it.
    pub(super) fn frame(&mut self, frame: &Frame, bytes: &[u8], missed: u64) -> io::Result<()> {
        let interface = self.interface(frame.attachment.as_deref().unwrap_or("-"))?;
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let high = (frame.micros >> 32) as u32;
        let low = frame.micros as u32;
        let mut body: Vec<u8> = [interface, high, low, length, length]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        body.extend(bytes);
        pad(&mut body);
        let direction = if frame.sent { OUTBOUND } else { INBOUND };
        option(&mut body, EPB_FLAGS, &direction.to_le_bytes());
        if missed > 0 {
            option(&mut body, EPB_DROPCOUNT, &missed.to_le_bytes());
        }
        end(&mut body);
        self.block(ENHANCED_PACKET, body)
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Returns the number of an attachment's interface, which is described first if it is new.
    fn interface(&mut self, name: &str) -> io::Result<u32> {
        if let Some(known) = self.interfaces.iter().position(|known| known == name) {
            return Ok(known as u32);
        }
        let mut body = ETHERNET.to_le_bytes().to_vec();
        body.extend([0; 2]); // reserved
        body.extend([0; 4]); // no limit of a frame's length
        option(&mut body, IF_NAME, name.as_bytes());
        end(&mut body);
        self.block(INTERFACE_DESCRIPTION, body)?;
        self.interfaces.push(name.to_owned());
        Ok(self.interfaces.len() as u32 - 1)
    }

    /// Writes a block: type, length, body, length again.
    fn block(&mut self, kind: u32, body: Vec<u8>) -> io::Result<()> {
        let length = (body.len() + 12) as u32;
        let block = [
            &kind.to_le_bytes()[..],
            &length.to_le_bytes(),
            &body,
            &length.to_le_bytes(),
        ]
        .concat();
        self.written += block.len() as u64;
        self.out.write_all(&block)
    }
}

/// Adds an option. A value of more than 65,535 bytes is cut.
fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(u16::MAX.into())];
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    pad(body);
}

fn end(body: &mut Vec<u8>) {
    body.extend([0; 4]);
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(attachment: &str, sent: bool) -> Frame {
        Frame {
            number: 1,
            micros: 0x1_0000_0002,
            sent,
            attachment: Some(attachment.to_owned()),
            bytes: String::new(),
        }
    }

    #[test]
    fn a_capture_has_a_block_for_each_attachment_and_frame() {
        let mut bytes = Vec::new();
        let mut file = Pcapng::new(&mut bytes).unwrap();
        file.frame(&frame("a", true), b"12345", 0).unwrap();
        file.frame(&frame("a", false), b"1234", 3).unwrap();
        file.frame(&frame("b", true), b"", 0).unwrap();
        assert_eq!(file.written(), bytes.len() as u64);
        let word = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().unwrap());
        let mut at = 0;
        let mut kinds = Vec::new();
        while at < bytes.len() {
            let length = word(at + 4) as usize;
            assert_eq!((word(at + length - 4) as usize, length % 4), (length, 0));
            kinds.push(word(at));
            at += length;
        }
        assert_eq!(
            kinds,
            [
                SECTION_HEADER,
                INTERFACE_DESCRIPTION,
                6,
                6,
                INTERFACE_DESCRIPTION,
                6
            ]
        );
    }
}
