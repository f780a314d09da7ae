//! CNI's words to the core's and back: what a runtime may say, and how each failure is called in CNI.
//!
//! Pure: no socket, no file, no state.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};
use leasehold_api::cni::{Code, Config, Dns, Error, Ip, PrevResult, Request, Route, Success, Version};
use leasehold_api::{ADD_TIMEOUT, add_timeout};
use leasehold_core::dhcpv4::lease::{self, Lease};
use leasehold_core::dhcpv4::profile::Profile;
use leasehold_core::effect::{Add, Answer, Call, ClientIdRule, Failure};
use leasehold_core::identity::{Attachment, ClientId, Door, Lan};
use leasehold_core::link::LinkCause;

/// The longest container id and network name, in bytes. The specification names no limit, but runtimes keep both in
/// names of files.
const MAX_NAME: usize = 255;

/// The longest path that the kernel takes (`PATH_MAX` with its NUL).
const MAX_PATH: usize = 4095;

/// What an ADD gets where its network does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Defaults {
    /// How long it may take.
    pub(crate) timeout: Duration,
    /// Whether servers are asked to answer by broadcast.
    pub(crate) broadcast: bool,
}

impl Default for Defaults {
    fn default() -> Self {
        Self { timeout: ADD_TIMEOUT, broadcast: false }
    }
}

/// A runtime's request, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// What it asks of the core.
    pub(crate) call: Call,
    /// The version in which to answer.
    version: Version,
    /// `ADD of lan/0123/eth0`, for errors.
    about: String,
}

impl Asked {
    /// Reads a request.
    ///
    /// # Errors
    /// The first fault found, in CNI's words: 6 for a configuration that is no JSON, 1 for its version, 7 for what it
    /// says, 4 for the environment.
    pub(crate) fn parse(request: &Request) -> Result<Self, Error> {
        Self::parse_with(request, &Defaults::default())
    }

    /// Reads a request as [`Asked::parse`] does, for a daemon with defaults of its own.
    pub(crate) fn parse_with(request: &Request, defaults: &Defaults) -> Result<Self, Error> {
        let verb = match request.env.command.as_deref() {
            Some(verb @ ("ADD" | "DEL" | "CHECK")) => verb,
            Some(other) => {
                return Err(bad_env("CNI_COMMAND", format!("{} is no verb that is served here", quoted(other))));
            }
            None => return Err(bad_env("CNI_COMMAND", "not set")),
        };
        let config = Config::parse(&request.config).map_err(|e| undecodable("the network configuration", &e))?;
        let version: Version = config.cni_version.as_deref().unwrap_or(Version::UNSAID).parse().map_err(|e| {
            let spoken = Version::ALL.map(Version::as_str).join(", ");
            Error::new(Code::IncompatibleVersion, format!("{e}: set it to one of {spoken}"))
        })?;
        Self::parse_verb(verb, request, &config, version, defaults).map_err(|error| error.in_version(version))
    }

    fn parse_verb(
        verb: &str,
        request: &Request,
        config: &Config,
        version: Version,
        defaults: &Defaults,
    ) -> Result<Self, Error> {
        let attachment = attachment(request, config)?;
        let about = format!("{verb} of {attachment}");
        let call = match verb {
            "ADD" => Call::Add(Box::new(Add {
                netns: netns(request)?,
                host_netns: host_netns(request),
                lan: lan(config, &attachment.network),
                client_id: ClientIdRule::Bytes(client_id(&attachment)),
                chaddr: None,
                wanted: None,
                profile: Profile { broadcast: defaults.broadcast, ..Profile::default() },
                timeout: config.ipam.timeout.filter(|s| *s > 0.0).map_or(defaults.timeout, |s| add_timeout(Some(s))),
                attachment,
            })),
            "CHECK" => {
                netns(request)?;
                let expected = expected(config, &attachment.ifname)?;
                Call::Check { attachment, expected }
            }
            _ => Call::Del { attachment },
        };
        Ok(Self { call, version, about })
    }

    /// Returns what the shim prints: a result, nothing, or an error.
    pub(crate) fn answer(&self, answer: &Answer) -> Result<String, Error> {
        match answer {
            Answer::Leased(lease) => Ok(success(lease).render(self.version)),
            Answer::Deleted | Answer::Checked | Answer::Collected | Answer::Ready => Ok(String::new()),
            Answer::Failed(failure) => Err(self.error(code(failure), message(failure))),
            Answer::Bindings { .. } => Err(self.error(Code::Io, "the daemon answered another question: this is a bug")),
        }
    }

    /// Returns the error for a daemon that stops before it has an answer.
    pub(crate) fn unanswered(&self) -> Error {
        self.error(Code::TryAgainLater, "the leasehold daemon is stopping")
    }

    fn error(&self, code: Code, msg: impl Into<String>) -> Error {
        Error::new(code, msg).in_version(self.version).with_details(&self.about)
    }
}

fn bad_env(variable: &str, fault: impl std::fmt::Display) -> Error {
    Error::new(Code::InvalidEnvironment, format!("{variable}: {fault}"))
}

/// Returns the error for JSON that is not as it should be.
pub(crate) fn undecodable(what: &str, error: &serde_json::Error) -> Error {
    Error::new(Code::Decode, format!("{what} cannot be read: {}", cut(&error.to_string())))
}

/// Quotes what came from outside.
fn quoted(text: &str) -> String {
    format!("{:?}", cut(text))
}

/// Cuts a text that may bear a megabyte from outside.
fn cut(text: &str) -> &str {
    text.char_indices().nth(160).map_or(text, |(end, _)| &text[..end])
}

fn attachment(request: &Request, config: &Config) -> Result<Attachment, Error> {
    let bad_name = |fault| Error::new(Code::InvalidConfig, format!("the network's name: {fault}"));
    let network = config.name.as_deref().ok_or_else(|| bad_name("missing"))?;
    if !is_name(network) {
        return Err(bad_name("it has to begin with a letter or digit and go on with these, \"_\", \".\" or \"-\""));
    }
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
fn is_name(text: &str) -> bool {
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

fn netns(request: &Request) -> Result<PathBuf, Error> {
    let path = set("CNI_NETNS", &request.env.netns)?;
    if !Path::new(path).is_absolute() || path.contains('\0') || path.len() > MAX_PATH {
        return Err(bad_env("CNI_NETNS", format!("{} is not an absolute path", quoted(path))));
    }
    Ok(path.into())
}

/// Tells whether the namespace may be the host's own, in the two words for it that libcni knows.
fn host_netns(request: &Request) -> bool {
    request.env.netns_override.as_deref().is_some_and(|said| said == "1" || said.eq_ignore_ascii_case("true"))
}

/// Returns the wire that the network is on. A name that no link can have is none, and an alternative name of a link
/// has up to 127 bytes.
fn lan(config: &Config, network: &str) -> Lan {
    match config.parent_link().filter(|name| is_link_name(name, 127)) {
        Some(parent) => Lan::Link { parent: parent.to_owned(), vlan: config.parent_vlan() },
        None => Lan::Network(network.to_owned()),
    }
}

/// Returns the client identifier that the incumbent would send, so that a server knows its containers again: a type
/// byte of 0, then at most 254 bytes of `container/network/interface`.
fn client_id(attachment: &Attachment) -> ClientId {
    let Attachment { network, container, ifname, .. } = attachment;
    let text = format!("{container}/{network}/{ifname}");
    let bytes = std::iter::once(0).chain(text.bytes().take(254)).collect();
    ClientId::new(bytes).expect("a type byte, two slashes and at most 252 bytes more are 3 to 255 bytes")
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

fn success(lease: &Lease) -> Success {
    // Main plugins add routes one by one, and the kernel refuses one whose next hop it cannot reach yet: a next hop
    // outside the subnet wants its own on-link route first.
    let (on_link, via): (Vec<_>, Vec<_>) = lease.routes.iter().partition(|route| route.via.is_none());
    let route = |route: &lease::Route| Route { dst: route.destination.into(), via: route.via.map(IpAddr::V4) };
    Success {
        ips: vec![Ip { address: lease.address.into(), gateway: lease.gateway.map(IpAddr::V4) }],
        routes: on_link.into_iter().chain(via).map(route).collect(),
        dns: Dns {
            nameservers: lease.dns.iter().copied().map(IpAddr::V4).collect(),
            domain: lease.domain.clone(),
            search: lease.search.clone(),
        },
    }
}

/// The one table of failures and CNI's codes.
///
/// What another try may mend is 11. A wrong namespace or interface name is the environment's (4). The specification
/// has no code for a CHECK that finds a difference, so that is one of our own.
fn code(failure: &Failure) -> Code {
    match failure {
        Failure::Link { cause, .. } => match cause {
            LinkCause::NoNetns(_) | LinkCause::NotANetns(_) | LinkCause::HostNetns(_) | LinkCause::NetnsChanged(_) => {
                Code::InvalidEnvironment
            }
            LinkCause::NoLink(_) => Code::InvalidEnvironment,
            LinkCause::NotEthernet(_) => Code::InvalidConfig,
            LinkCause::Refused { .. } => Code::Io,
            LinkCause::Down | LinkCause::TimedOut => Code::TryAgainLater,
        },
        Failure::NoCarrier { .. }
        | Failure::NoOffer { .. }
        | Failure::NoAck { .. }
        | Failure::Nak { .. }
        | Failure::TimedOut { .. }
        | Failure::Store(_)
        | Failure::Held { .. }
        | Failure::Cancelled(_)
        | Failure::NotWanted { .. }
        | Failure::NotCollected(_)
        | Failure::Attached { .. } => Code::TryAgainLater,
        Failure::NotReady(_) => Code::NotAvailable,
        Failure::Unknown(_) => Code::UnknownContainer,
        Failure::Differs { .. } | Failure::NotOnLink { .. } => Code::CheckFailed,
    }
}

/// Says what happened; with code 4 the specification wants the variable named.
fn message(failure: &Failure) -> String {
    let variable = match failure {
        Failure::Link { cause: LinkCause::NoLink(_), .. } => "CNI_IFNAME: ",
        _ if code(failure) == Code::InvalidEnvironment => "CNI_NETNS: ",
        _ => "",
    };
    format!("{variable}{failure}")
}
