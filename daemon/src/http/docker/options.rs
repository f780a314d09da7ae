//! What `docker network create` says with `--ipam-opt`, and its spelling in a PoolID: `parent`, the host's link on the LAN,
//! and the lease options.

use std::fmt::{self, Write};
use std::str::FromStr;

use leasehold_api::control::from_url;
use leasehold_api::docker;
use leasehold_core::pool::FOUND;

use super::super::named::is_link_name;
use super::super::refusal::quoted;
use super::lease::{Flag, LeaseOptions};
use super::{Refused, refused};

/// A network's options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// The host's link on the LAN.
    pub(super) parent: String,
    /// Whether it was found by the subnet, and not named.
    pub(super) found: bool,
    pub(super) lease: LeaseOptions,
}

impl Options {
    /// Reads the options given with `--ipam-opt`. `subnet_link` is the link that has an address of the network's subnet, if it has one.
    pub(super) fn read(
        said: &docker::Options,
        subnet_link: impl FnOnce() -> Option<String>,
    ) -> Result<Self, Refused> {
        let mut parent = None;
        let mut lease = LeaseOptions::new(Flag::Ipam);
        for (key, value) in said {
            match key.as_str() {
                "parent" if is_link_name(value, 127) => parent = Some(value.to_owned()),
                "parent" => return Err(Flag::Ipam.expected(key, value, "the name of a host link")),
                _ if lease.set(key, value)? => {}
                _ => return Err(Flag::Ipam.unknown(key, &["parent"])),
            }
        }
        let found = parent.is_none();
        // When Docker asks for a pool or an address, it names no network.
        let parent = parent.or_else(subnet_link).ok_or_else(|| {
            refused(
                "--ipam-opt parent=LINK is missing: name the host's link on the DHCP server's LAN, the one of `-o \
                 parent` or the bridge, as in: docker network create -d leasehold -o parent=eth0 --ipam-driver \
                 leasehold --ipam-opt parent=eth0 lan; or pass --subnet, if one link of this host has an address with \
                 that very prefix",
            )
        })?;
        Ok(Self {
            parent,
            found,
            lease,
        })
    }
}

/// Writes the options for a PoolID: each one that is not its default as `key=value`, in a fixed order, separated by commas.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parent = if self.found { FOUND } else { "parent" };
        spell(
            f,
            [(parent, self.parent.clone())]
                .into_iter()
                .chain(self.lease.spelled()),
        )
    }
}

/// Reads them from a PoolID.
impl FromStr for Options {
    type Err = Refused;

    fn from_str(definition: &str) -> Result<Self, Refused> {
        let mut said = read(definition)?;
        let found = said.remove(FOUND);
        Self::read(&said, || found)
    }
}

/// Writes options as `key=value`, separated by commas.
pub(super) fn spell(
    f: &mut fmt::Formatter<'_>,
    mut options: impl Iterator<Item = (&'static str, String)>,
) -> fmt::Result {
    let mut between = "";
    options.try_for_each(|(key, value)| {
        write!(f, "{between}{key}=")?;
        between = ",";
        escape(f, &value)
    })
}

/// Reads options in that form.
pub(super) fn read(definition: &str) -> Result<docker::Options, Refused> {
    let pairs = definition
        .split(',')
        .filter(|_| !definition.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=')?;
            Some((key.to_owned(), from_url(value)?))
        });
    let said = pairs.collect::<Option<docker::Options>>();
    said.ok_or_else(|| {
        refused(format!(
            "{} are not the options of a network",
            quoted(definition)
        ))
    })
}

/// Writes a value so that it contains neither a comma nor anything invisible: such bytes become `%` and two digits.
fn escape(f: &mut fmt::Formatter<'_>, value: &str) -> fmt::Result {
    value.bytes().try_for_each(|byte| match byte {
        b',' | b'%' | 0..=0x20 | 0x7f.. => write!(f, "%{byte:02x}"),
        plain => f.write_char(plain.into()),
    })
}
