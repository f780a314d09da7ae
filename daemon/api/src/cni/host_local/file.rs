//! The files in which host-local records what it has given: `<dataDir>/<network>/<address>` and `last_reserved_ip.<set>`.
//!
//! The caller reads and writes them. host-local syncs nothing to disk, so after a power cut a file may be empty.

use std::net::IpAddr;

const LAST: &str = "last_reserved_ip.";
const LINE_BREAK: &str = "\r\n";

/// The longest container id that is believed, in bytes.
const MAX_ID: usize = 255;

/// The longest name of an interface, in bytes.
const MAX_IFNAME: usize = 15;

/// A file of host-local.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum File {
    /// `<address>`: an address is taken, because the file is there.
    Taken {
        /// The address.
        address: IpAddr,
        /// By whom, if the file says.
        by: Option<Holder>,
    },
    /// `last_reserved_ip.<set>`: the last address that was given from a range set.
    Last {
        /// The set's index.
        set: usize,
        /// The address.
        address: IpAddr,
    },
}

/// Who has an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The container's id.
    pub container: String,
    /// The interface's name, which versions before 0.8 did not write.
    pub ifname: Option<String>,
}

impl File {
    /// Reads a file from its name in the network's directory and its contents. `None` if it says nothing, such as `lock`.
    pub fn read(name: &str, contents: &[u8]) -> Option<Self> {
        let text = str::from_utf8(contents).ok();
        if let Some(index) = name.strip_prefix(LAST) {
            let set = index
                .parse()
                .ok()
                .filter(|set: &usize| set.to_string() == index)?;
            return Some(Self::Last {
                set,
                address: text?.parse::<IpAddr>().ok()?.to_canonical(),
            });
        }
        // host-local looks for an address only under this spelling.
        let address = name
            .parse()
            .ok()
            .filter(|address: &IpAddr| address.to_canonical().to_string() == name)?;
        Some(Self::Taken {
            address,
            by: text.and_then(Holder::read),
        })
    }

    /// Returns the file's name. IPv6 addresses are spelt as in RFC 5952, which is also how Go spells them.
    pub fn name(&self) -> String {
        match self {
            Self::Taken { address, .. } => address.to_string(),
            Self::Last { set, .. } => format!("{LAST}{set}"),
        }
    }

    /// Returns what is in the file.
    pub fn contents(&self) -> String {
        match self {
            Self::Taken { by: None, .. } => String::new(),
            Self::Taken {
                by:
                    Some(Holder {
                        container,
                        ifname: None,
                    }),
                ..
            } => container.clone(),
            Self::Taken {
                by:
                    Some(Holder {
                        container,
                        ifname: Some(ifname),
                    }),
                ..
            } => {
                format!("{container}{LINE_BREAK}{ifname}")
            }
            Self::Last { address, .. } => address.to_string(),
        }
    }
}

impl Holder {
    /// Reads the contents of an address's file. Names that no runtime may use are not believed.
    fn read(text: &str) -> Option<Self> {
        let (container, ifname) = match text.trim().split_once(LINE_BREAK) {
            Some((container, ifname)) => (container, Some(ifname)),
            None => (text.trim(), None),
        };
        let is_id = (1..=MAX_ID).contains(&container.len())
            && container.starts_with(|c: char| c.is_ascii_alphanumeric())
            && container
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'));
        let is_link = |name: &str| {
            (1..=MAX_IFNAME).contains(&name.len())
                && !matches!(name, "." | "..")
                && !name.contains(|c: char| {
                    matches!(c, '/' | ':') || c.is_whitespace() || c.is_control()
                })
        };
        let is_good = is_id && ifname.is_none_or(is_link);
        is_good.then(|| Self {
            container: container.to_owned(),
            ifname: ifname.map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(address: &str, by: Option<(&str, Option<&str>)>) -> Option<File> {
        let by = by.map(|(container, ifname)| Holder {
            container: container.to_owned(),
            ifname: ifname.map(str::to_owned),
        });
        Some(File::Taken {
            address: address.parse().expect("an address"),
            by,
        })
    }

    #[test]
    fn files_of_each_version_are_read_and_written() {
        let table = [
            (
                "10.0.0.2",
                "c1\r\neth0",
                taken("10.0.0.2", Some(("c1", Some("eth0")))),
            ),
            ("10.0.0.2", "c1", taken("10.0.0.2", Some(("c1", None)))),
            (
                "fd00::1:0:0:2",
                "c-1.a_b\r\nnet1",
                taken("fd00::1:0:0:2", Some(("c-1.a_b", Some("net1")))),
            ),
            ("fd00::", "", taken("fd00::", None)),
            (
                "last_reserved_ip.0",
                "10.0.0.2",
                Some(File::Last {
                    set: 0,
                    address: [10, 0, 0, 2].into(),
                }),
            ),
        ];
        for (name, contents, file) in table {
            let read = File::read(name, contents.as_bytes());
            assert_eq!(read, file, "{name}");
            let read = read.expect("a file");
            assert_eq!(
                (read.name(), read.contents()),
                (name.to_owned(), contents.to_owned())
            );
        }
    }

    #[test]
    fn white_space_around_a_holder_does_not_count() {
        assert_eq!(
            File::read("10.0.0.2", b"\n c1\r\neth0\n"),
            taken("10.0.0.2", Some(("c1", Some("eth0"))))
        );
        assert_eq!(
            File::read("last_reserved_ip.0", b"10.0.0.2\n"),
            None,
            "host-local does not read it either"
        );
    }

    #[test]
    fn names_that_host_local_does_not_write_say_nothing() {
        for name in [
            "lock",
            "",
            ".",
            "010.0.0.2",
            "10.0.0.2~",
            "10.0.0",
            "FD00::1",
            "fd00:0::1",
            "::ffff:10.0.0.2",
            "fe80::1%eth0",
            "last_reserved_ip.",
            "last_reserved_ip.00",
            "last_reserved_ip.-1",
            "last_reserved_ip.+1",
            "last_reserved_ip.99999999999999999999999",
        ] {
            assert_eq!(File::read(name, b"10.0.0.2"), None, "{name}");
        }
    }

    #[test]
    fn an_address_is_taken_whatever_its_file_holds() {
        let long = "c".repeat(MAX_ID + 1);
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
            assert_eq!(
                File::read("10.0.0.2", contents),
                taken("10.0.0.2", None),
                "{contents:?}"
            );
        }
    }
}
