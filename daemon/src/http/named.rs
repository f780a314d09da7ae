//! What a request and its configuration name: the interface, the namespace, the LAN.

use std::path::{Path, PathBuf};

use leasehold_api::cni::{Config, Error, Request};
use leasehold_core::identity::{Attachment, Lan};

use super::refusal::{bad_config, bad_env, quoted};

/// The longest container id and network name, in bytes. The specification has no limit, but runtimes put both into file
/// names.
const MAX_NAME: usize = 255;

/// The rule of [`is_name`], for messages.
const NAME_RULE: &str =
    "it must begin with a letter or digit, and hold only these, \"_\", \".\" and \"-\"";

/// The longest path that the kernel accepts (`PATH_MAX` with its NUL).
const MAX_PATH: usize = 4095;

/// Returns the network's name.
pub(super) fn network(config: &Config) -> Result<&str, Error> {
    let bad_name = |fault| bad_config("the network's name", fault);
    let network = config.name.as_deref().ok_or_else(|| bad_name("missing"))?;
    if !is_name(network) {
        return Err(bad_name(NAME_RULE));
    }
    Ok(network)
}

/// An interface of a container on a network, by the names that CNI gives them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named<'a> {
    pub(super) network: &'a str,
    pub(super) container: &'a str,
    pub(super) ifname: &'a str,
}

impl Named<'_> {
    /// Returns the core's attachment.
    pub(super) fn attachment(self) -> Attachment {
        Attachment::cni(self.network, self.container, self.ifname)
    }
}

/// Returns what a request is about.
pub(super) fn named<'a>(request: &'a Request, config: &'a Config) -> Result<Named<'a>, Error> {
    let network = network(config)?;
    let container = set("CNI_CONTAINERID", &request.env.container_id)?;
    if !is_name(container) {
        return Err(bad_env("CNI_CONTAINERID", NAME_RULE));
    }
    let ifname = set("CNI_IFNAME", &request.env.ifname)?;
    if !is_link_name(ifname, 15) {
        return Err(bad_env(
            "CNI_IFNAME",
            "1 to 15 bytes, not \".\" or \"..\", without \"/\", \":\" and white space",
        ));
    }
    Ok(Named {
        network,
        container,
        ifname,
    })
}

fn set<'a>(variable: &str, value: &'a Option<String>) -> Result<&'a str, Error> {
    value
        .as_deref()
        .filter(|value| !value.is_empty())
        .ok_or_else(|| bad_env(variable, "not set"))
}

/// Returns whether `text` matches `^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$` (CNI specification, "Parameters") and is not too
/// long.
pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
        && text.len() <= MAX_NAME
}

/// Returns whether the kernel accepts `text` as a link's name of at most `max` bytes.
pub(super) fn is_link_name(text: &str, max: usize) -> bool {
    (1..=max).contains(&text.len())
        && !matches!(text, "." | "..")
        && !text.contains(|c: char| matches!(c, '/' | ':') || c.is_whitespace() || c.is_control())
}

/// Returns the path of the container's namespace.
pub(super) fn netns(request: &Request) -> Result<PathBuf, Error> {
    let path = set("CNI_NETNS", &request.env.netns)?;
    if !Path::new(path).is_absolute() || path.contains('\0') || path.len() > MAX_PATH {
        return Err(bad_env(
            "CNI_NETNS",
            format!("{} is not an absolute path", quoted(path)),
        ));
    }
    Ok(path.into())
}

/// Returns whether the namespace may be the host's own, in either spelling that libcni knows.
pub(super) fn host_netns(request: &Request) -> bool {
    request
        .env
        .netns_override
        .as_deref()
        .is_some_and(|said| said == "1" || said.eq_ignore_ascii_case("true"))
}

/// Returns the LAN that the network is on. A name that no link can have is ignored; an alternative name of a link has
/// up to 127 bytes.
pub(super) fn lan(config: &Config, network: &str) -> Lan {
    match config.parent_link().filter(|name| is_link_name(name, 127)) {
        Some(parent) => Lan::Link {
            parent: parent.into(),
            vlan: config.parent_vlan(),
        },
        None => Lan::Network(network.into()),
    }
}

/// Returns the host's link that must exist before an ADD. A bridge may be missing: its main plugin makes it.
pub(super) fn standing_parent(config: &Config) -> Option<String> {
    let made = config.plugin.as_deref() == Some("bridge");
    config
        .parent_link()
        .filter(|name| !made && is_link_name(name, 127))
        .map(str::to_owned)
}
