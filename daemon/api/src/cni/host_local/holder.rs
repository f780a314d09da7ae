//! What host-local writes into the file of an address: who has it.
//!
//! The caller reads and writes the files, `<dataDir>/<network>/<address>`. host-local syncs nothing to disk, so after a power cut
//! a file may be empty.

use crate::cni::{is_link_name, is_name};

const LINE_BREAK: &str = "\r\n";

/// The longest name of an interface, in bytes.
const MAX_IFNAME: usize = 15;

/// Who has an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The container's id.
    pub container: String,
    /// The interface's name, which versions before 0.8 did not write.
    pub ifname: Option<String>,
}

impl Holder {
    /// Reads what is in an address's file. Names that no runtime may use are not believed.
    pub fn read(contents: &[u8]) -> Option<Self> {
        let text = str::from_utf8(contents).ok()?.trim();
        let (container, ifname) = match text.split_once(LINE_BREAK) {
            Some((container, ifname)) => (container, Some(ifname)),
            None => (text, None),
        };
        let is_link = |name| is_link_name(name, MAX_IFNAME);
        let is_good = is_name(container) && ifname.is_none_or(is_link);
        is_good.then(|| Self {
            container: container.to_owned(),
            ifname: ifname.map(str::to_owned),
        })
    }

    /// Returns what is in the file.
    pub fn contents(&self) -> String {
        match &self.ifname {
            Some(ifname) => format!("{}{LINE_BREAK}{ifname}", self.container),
            None => self.container.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_each_version_are_read_and_written() {
        let table = [
            ("c1\r\neth0", "c1", Some("eth0")),
            ("c1", "c1", None),
            ("c-1.a_b\r\nnet1", "c-1.a_b", Some("net1")),
            ("\n c1\r\neth0\n", "c1", Some("eth0")),
        ];
        for (contents, container, ifname) in table {
            let holder = Holder {
                container: container.to_owned(),
                ifname: ifname.map(str::to_owned),
            };
            assert_eq!(Holder::read(contents.as_bytes()), Some(holder.clone()));
            assert_eq!(holder.contents(), contents.trim());
        }
    }

    #[test]
    fn a_file_that_no_runtime_wrote_names_nobody() {
        let long = "c".repeat(256);
        for contents in [
            &b""[..],
            b"\r\n",
            b"\xff\xfe",
            b"\0\0\0\0",
            b"c1\neth0",
            b"c1\r\neth0\r\neth1",
            b"../c1\r\neth0",
            b"c1\r\n../eth0",
            b"c1\r\n..",
            b"c1\r\nan-interface-too-long",
            b"c1\r\neth0\x1b[2J",
            b"c\xc3\xa9",
            long.as_bytes(),
        ] {
            assert_eq!(Holder::read(contents), None, "{contents:?}");
        }
    }
}
