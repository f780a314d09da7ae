//! CNI's words to the core's and back: what a runtime may say, and how each failure is called in CNI.
//!
//! Pure: no socket, no file, no state.

use std::path::{Path, PathBuf};

use ipnet::{IpNet, Ipv4Net};
use leasehold_api::cni::{BadKey, Code, Config, Error, PrevResult, Request, Version};
use leasehold_core::dhcpv4::profile::Profile;
use leasehold_core::effect::{Answer, Call};
use leasehold_core::identity::{Attachment, Door, Lan};

use super::add::{Site, add};
use super::result::{code, message, success};

/// The longest container id and network name, in bytes. The specification names no limit, but runtimes keep both in
/// names of files.
const MAX_NAME: usize = 255;

/// The longest path that the kernel takes (`PATH_MAX` with its NUL).
const MAX_PATH: usize = 4095;

/// A runtime's request, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// What it asks of the core.
    pub(crate) call: Call,
    /// The version in which to answer.
    version: Version,
    /// What an ADD's network says of routes.
    profile: Profile,
    /// `ADD of lan/0123/eth0`, for errors.
    about: String,
}

/// What a runtime may ask.
#[derive(Clone, Copy, Debug)]
enum Verb {
    Add,
    Del,
    Check,
    Gc,
    Status,
}

impl Verb {
    const ALL: [Self; 5] = [Self::Add, Self::Del, Self::Check, Self::Gc, Self::Status];

    fn parse(command: Option<&str>) -> Result<Self, Error> {
        let word = command.ok_or_else(|| bad_env("CNI_COMMAND", "not set"))?;
        let verb = Self::ALL.into_iter().find(|verb| verb.as_str() == word);
        verb.ok_or_else(|| bad_env("CNI_COMMAND", format!("{} is no verb that is served here", quoted(word))))
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Gc => "GC",
            Self::Status => "STATUS",
        }
    }

    /// The first version that has the verb.
    fn since(self) -> Version {
        match self {
            Self::Add | Self::Del => Version::V0_1_0,
            Self::Check => Version::V0_4_0,
            Self::Gc | Self::Status => Version::V1_1_0,
        }
    }
}

impl Asked {
    /// Reads a request.
    ///
    /// # Errors
    /// The first fault found, in CNI's words: 6 for a configuration that is no JSON, 1 for its version and for a verb that
    /// the version does not have (as Go's plugins answer), 7 for what it says, 4 for the environment.
    pub(crate) fn parse(request: &Request, site: &Site) -> Result<Self, Error> {
        let verb = Verb::parse(request.env.command.as_deref())?;
        let config = Config::parse(&request.config).map_err(|e| undecodable("the network configuration", &e))?;
        let version = config.cni_version.as_deref().map_or(Ok(Version::UNSAID), str::parse).map_err(|e| {
            let spoken = Version::ALL.map(Version::as_str).join(", ");
            Error::new(Code::IncompatibleVersion, format!("{e}: set it to one of {spoken}"))
        })?;
        Self::parse_verb(verb, request, &config, version, site).map_err(|error| error.in_version(version))
    }

    fn parse_verb(
        verb: Verb,
        request: &Request,
        config: &Config,
        version: Version,
        site: &Site,
    ) -> Result<Self, Error> {
        if version < verb.since() {
            let msg = format!("cniVersion {version} has no {}: that begins with {}", verb.as_str(), verb.since());
            return Err(Error::new(Code::IncompatibleVersion, msg));
        }
        let of = |what: &dyn std::fmt::Display| format!("{} of {what}", verb.as_str());
        let mut profile = Profile::default();
        let (about, call) = match verb {
            Verb::Add => {
                let attachment = attachment(request, config)?;
                let about = of(&attachment);
                let add = add(request, config, attachment, site)?;
                profile = add.profile.clone();
                (about, Call::Add(Box::new(add)))
            }
            // Whatever else the configuration says: a DEL follows the ADD that it made fail, and has to succeed.
            Verb::Del => {
                let attachment = attachment(request, config)?;
                (of(&attachment), Call::Del { attachment })
            }
            Verb::Check => {
                let attachment = attachment(request, config)?;
                netns(request)?;
                let expected = expected(config, &attachment.ifname)?;
                (of(&attachment), Call::Check { attachment, expected })
            }
            Verb::Gc => {
                let network = network(config)?.to_owned();
                let keep = config.valid_attachments().map_err(refused)?;
                (of(&network), Call::Collect { network, keep })
            }
            Verb::Status => {
                config.ipam().map_err(refused)?;
                (verb.as_str().to_owned(), Call::Status { parent: standing_parent(config) })
            }
        };
        Ok(Self { call, version, profile, about })
    }

    /// Returns what the shim prints: a result, nothing, or an error.
    pub(crate) fn answer(&self, answer: &Answer) -> Result<String, Error> {
        match answer {
            Answer::Leased(lease) => Ok(success(lease, &self.profile).render(self.version)),
            Answer::Deleted | Answer::Checked | Answer::Collected | Answer::Ready => Ok(String::new()),
            Answer::Failed(failure) => Err(self.error(code(failure), message(failure))),
            Answer::Bindings { .. } => Err(self.error(Code::Io, "the daemon answered another question: this is a bug")),
        }
    }

    /// Returns the error for a daemon that stops before it has an answer.
    pub(crate) fn unanswered(&self) -> Error {
        let code = if matches!(self.call, Call::Status { .. }) { Code::NotAvailable } else { Code::TryAgainLater };
        self.error(code, "the leasehold daemon is stopping")
    }

    fn error(&self, code: Code, msg: impl Into<String>) -> Error {
        Error::new(code, msg).in_version(self.version).with_details(&self.about)
    }
}

/// Returns the error for the environment (4); the specification wants the variable named.
pub(super) fn bad_env(variable: &str, fault: impl std::fmt::Display) -> Error {
    Error::new(Code::InvalidEnvironment, format!("{variable}: {fault}"))
}

/// Returns the error for a key of the configuration (7).
pub(super) fn bad_config(key: &str, fault: impl std::fmt::Display) -> Error {
    Error::new(Code::InvalidConfig, format!("{key}: {fault}"))
}

/// Returns the error for a key of the configuration that could not be read.
pub(super) fn refused(bad: BadKey) -> Error {
    bad_config(&bad.key, bad.fault)
}

/// Returns the error for JSON that is not as it should be.
pub(crate) fn undecodable(what: &str, error: &serde_json::Error) -> Error {
    Error::new(Code::Decode, format!("{what} cannot be read: {}", cut(&error.to_string())))
}

/// Quotes what came from outside.
pub(super) fn quoted(text: &str) -> String {
    format!("{:?}", cut(text))
}

/// Cuts a text that may bear a megabyte from outside.
fn cut(text: &str) -> &str {
    text.char_indices().nth(160).map_or(text, |(end, _)| &text[..end])
}

fn network(config: &Config) -> Result<&str, Error> {
    let bad_name = |fault| bad_config("the network's name", fault);
    let network = config.name.as_deref().ok_or_else(|| bad_name("missing"))?;
    if !is_name(network) {
        return Err(bad_name("it has to begin with a letter or digit and go on with these, \"_\", \".\" or \"-\""));
    }
    Ok(network)
}

fn attachment(request: &Request, config: &Config) -> Result<Attachment, Error> {
    let network = network(config)?;
    let container = set("CNI_CONTAINERID", &request.env.container_id)?;
    if !is_name(container) {
        let rule = "it has to begin with a letter or digit and go on with these, \"_\", \".\" or \"-\"";
        return Err(bad_env("CNI_CONTAINERID", rule));
    }
    let ifname = set("CNI_IFNAME", &request.env.ifname)?;
    if !is_link_name(ifname, 15) {
        return Err(bad_env("CNI_IFNAME", "1 to 15 bytes, not \".\" or \"..\", without \"/\", \":\" and white space"));
    }
    let [network, container, ifname] = [network, container, ifname].map(str::to_owned);
    Ok(Attachment { door: Door::Cni, network, container, ifname })
}

fn set<'a>(variable: &str, value: &'a Option<String>) -> Result<&'a str, Error> {
    value.as_deref().filter(|value| !value.is_empty()).ok_or_else(|| bad_env(variable, "not set"))
}

/// Tells whether `text` matches `^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$` (CNI specification, "Parameters") and is not endless.
pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
        && text.len() <= MAX_NAME
}

/// Tells whether the kernel takes `text` for a link's name of at most `max` bytes.
fn is_link_name(text: &str, max: usize) -> bool {
    (1..=max).contains(&text.len())
        && !matches!(text, "." | "..")
        && !text.contains(|c: char| matches!(c, '/' | ':') || c.is_whitespace() || c.is_control())
}

pub(super) fn netns(request: &Request) -> Result<PathBuf, Error> {
    let path = set("CNI_NETNS", &request.env.netns)?;
    if !Path::new(path).is_absolute() || path.contains('\0') || path.len() > MAX_PATH {
        return Err(bad_env("CNI_NETNS", format!("{} is not an absolute path", quoted(path))));
    }
    Ok(path.into())
}

/// Tells whether the namespace may be the host's own, in the two words for it that libcni knows.
pub(super) fn host_netns(request: &Request) -> bool {
    request.env.netns_override.as_deref().is_some_and(|said| said == "1" || said.eq_ignore_ascii_case("true"))
}

/// Returns the wire that the network is on. A name that no link can have is none, and an alternative name of a link
/// has up to 127 bytes.
pub(super) fn lan(config: &Config, network: &str) -> Lan {
    match config.parent_link().filter(|name| is_link_name(name, 127)) {
        Some(parent) => Lan::Link { parent: parent.to_owned(), vlan: config.parent_vlan() },
        None => Lan::Network(network.to_owned()),
    }
}

/// Returns the host's link that has to be there before an ADD. A bridge has not: its main plugin makes it.
fn standing_parent(config: &Config) -> Option<String> {
    let made = config.plugin.as_deref() == Some("bridge");
    config.parent_link().filter(|name| !made && is_link_name(name, 127)).map(str::to_owned)
}

/// Returns the IPv4 addresses that the runtime believes to be on our interface.
fn expected(config: &Config, ifname: &str) -> Result<Vec<Ipv4Net>, Error> {
    let Some(prev) = &config.prev_result else { return Ok(Vec::new()) };
    let prev: PrevResult =
        serde::Deserialize::deserialize(prev).map_err(|e: serde_json::Error| undecodable("prevResult", &e))?;
    let v4 = |net| match net {
        IpNet::V4(net) => Some(net),
        IpNet::V6(_) => None,
    };
    Ok(prev.addresses_on(ifname).filter_map(v4).collect())
}
