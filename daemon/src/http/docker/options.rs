//! What `docker network create` says by `--ipam-opt`, and its spelling in a PoolID.
//!
//! | option | default | |
//! |---|---|---|
//! | `parent` | | the host's link that is the LAN |
//! | `client-id` | `auto` | what servers know an endpoint by |
//! | `hostname` | the container's name | option 12 |
//! | `timeout` | 20 | seconds that an address may take |
//! | `servers-allow`, `servers-deny` | all | whose offers are believed |
//! | `release` | `true` | whether a lease is given back |
//! | `grace` | 60 | seconds to keep a lease whose endpoint may return |

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::time::Duration;

use leasehold_api::docker;
use leasehold_core::identity::ClientId;

use super::super::add::{Site, is_hostname};
use super::super::named::is_link_name;
use super::super::refusal::{cut, quoted};
use super::{Refused, refused};

/// The longest that an address may take: dockerd gives a plugin that it runs itself 30 s.
const MOST_SECONDS: u64 = 20;

/// The most servers in a list.
const MOST_SERVERS: usize = 32;

/// What a host name stands for the container's name by.
const NAME: &str = "{name}";

/// A network's options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// The host's link that is the LAN.
    pub(super) parent: String,
    pub(super) client_id: Kind,
    /// Option 12, with `{name}` for the container's name; empty: none. `None`: the name, where Docker tells it.
    pub(super) hostname: Option<String>,
    pub(super) timeout: Option<Duration>,
    pub(super) allow: BTreeSet<Ipv4Addr>,
    pub(super) deny: BTreeSet<Ipv4Addr>,
    pub(super) release: bool,
    /// In seconds.
    pub(super) grace: Option<u32>,
}

/// What option 61 is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The container's name, where Docker tells it; else the Ethernet address.
    Auto,
    /// The Ethernet address.
    Mac,
    /// The host's DUID, and an IAID of the endpoint's name or Ethernet address.
    Duid,
    /// These bytes.
    Hex(Vec<u8>),
    /// This text.
    Text(String),
}

impl Options {
    /// The options there are.
    pub(crate) const KNOWN: [&str; 8] =
        ["parent", "client-id", "hostname", "timeout", "servers-allow", "servers-deny", "release", "grace"];

    /// Reads what `--ipam-opt` says.
    pub(super) fn read(said: &docker::Options) -> Result<Self, Refused> {
        let mut options = Self {
            parent: String::new(),
            client_id: Kind::Auto,
            hostname: None,
            timeout: None,
            allow: BTreeSet::new(),
            deny: BTreeSet::new(),
            release: true,
            grace: None,
        };
        for (key, value) in said {
            options.set(key, value)?;
        }
        if options.parent.is_empty() {
            return Err(refused(
                "--ipam-opt parent=LINK is missing: name the host's link on whose LAN the DHCP server is, for macvlan and \
                 ipvlan that of `-o parent`, for bridge the bridge",
            ));
        }
        Ok(options)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), Refused> {
        let expected = |what: &str| refused(format!("--ipam-opt {key}={}: expected {what}", cut(value).escape_debug()));
        match key {
            "parent" if is_link_name(value, 127) => self.parent = value.to_owned(),
            "parent" => return Err(expected("the name of a link of the host")),
            "client-id" => self.client_id = Kind::parse(value).map_err(|what| expected(&what))?,
            "hostname" => {
                let example = value.replace(NAME, "x");
                if !(value.is_empty() || is_hostname(&example)) {
                    return Err(expected("a host name, in which {name} stands for the container's name, or nothing"));
                }
                self.hostname = Some(value.to_owned());
            }
            "timeout" => {
                let seconds = value.parse().ok().filter(|seconds| (1..=MOST_SECONDS).contains(seconds));
                let seconds = seconds.ok_or_else(|| expected(&format!("whole seconds, from 1 to {MOST_SECONDS}")))?;
                self.timeout = Some(Duration::from_secs(seconds));
            }
            "servers-allow" => self.allow = servers(value).ok_or_else(|| expected(SERVERS))?,
            "servers-deny" => self.deny = servers(value).ok_or_else(|| expected(SERVERS))?,
            "release" => self.release = value.parse().map_err(|_| expected("true or false"))?,
            "grace" => self.grace = Some(value.parse().map_err(|_| expected("a number of seconds"))?),
            _ => {
                let known = Self::KNOWN.join(", ");
                return Err(refused(format!("--ipam-opt {}: unknown; there are {known}", cut(key).escape_debug())));
            }
        }
        Ok(())
    }

    /// Returns how long an address may take.
    pub(super) fn timeout(&self, site: &Site) -> Duration {
        self.timeout.unwrap_or(site.add_timeout.min(Duration::from_secs(MOST_SECONDS)))
    }

    /// Returns option 12 for a container, whose name Docker may tell.
    pub(super) fn hostname(&self, name: Option<&str>) -> Result<Option<String>, Refused> {
        match (&self.hostname, name) {
            (None, name) => Ok(name.filter(|name| is_hostname(name)).map(str::to_owned)),
            (Some(template), None) if template.contains(NAME) => Err(refused(format!(
                "--ipam-opt hostname={template}: Docker tells a container's name from version 29 on: leave {NAME} out"
            ))),
            (Some(template), name) => {
                let said = template.replace(NAME, name.unwrap_or_default());
                match said.as_str() {
                    "" => Ok(None),
                    said if is_hostname(said) => Ok(Some(said.to_owned())),
                    said => Err(refused(format!("--ipam-opt hostname: {} is not a valid host name", quoted(said)))),
                }
            }
        }
    }
}

/// What a list of servers is.
const SERVERS: &str = "IPv4 addresses of DHCP servers with commas between, 32 at most";

fn servers(list: &str) -> Option<BTreeSet<Ipv4Addr>> {
    let servers = list.split(',').map(|server| server.trim().parse().ok()).collect::<Option<BTreeSet<_>>>()?;
    (servers.len() <= MOST_SERVERS).then_some(servers)
}

impl Kind {
    /// Reads it, or returns what is expected.
    fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':').unwrap_or((text, "")) {
            ("auto", "") => Ok(Self::Auto),
            ("mac", "") => Ok(Self::Mac),
            ("duid", "") => Ok(Self::Duid),
            ("hex", digits) => {
                let id = ClientId::try_from(digits.replace(':', ""));
                let id = id.map_err(|bad| format!("hex: and the bytes of option 61, type byte first; {bad}"))?;
                Ok(Self::Hex(id.as_bytes().to_vec()))
            }
            ("text", text) if (1..=254).contains(&text.len()) => Ok(Self::Text(text.to_owned())),
            ("text", _) => Err("text: and 1 to 254 bytes".to_owned()),
            _ => Err("auto, mac, duid, hex:… or text:…".to_owned()),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Mac => f.write_str("mac"),
            Self::Duid => f.write_str("duid"),
            Self::Hex(bytes) => {
                f.write_str("hex:")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Self::Text(text) => write!(f, "text:{text}"),
        }
    }
}

/// Spells the options for a PoolID: each that is not its default as `key=value`, in one order, with commas between.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |servers: &BTreeSet<Ipv4Addr>| {
            let texts: Vec<_> = servers.iter().map(Ipv4Addr::to_string).collect();
            (!texts.is_empty()).then(|| texts.join(","))
        };
        let values = [
            Some(self.parent.clone()),
            (self.client_id != Kind::Auto).then(|| self.client_id.to_string()),
            self.hostname.clone(),
            self.timeout.map(|timeout| timeout.as_secs().to_string()),
            list(&self.allow),
            list(&self.deny),
            (!self.release).then(|| self.release.to_string()),
            self.grace.map(|grace| grace.to_string()),
        ];
        let mut between = "";
        for (key, value) in Self::KNOWN.iter().zip(values) {
            let Some(value) = value else { continue };
            write!(f, "{between}{key}=")?;
            escape(f, &value)?;
            between = ",";
        }
        Ok(())
    }
}

/// Reads them from a PoolID.
impl FromStr for Options {
    type Err = Refused;

    fn from_str(definition: &str) -> Result<Self, Refused> {
        let pairs = definition.split(',').map(|pair| {
            let (key, value) = pair.split_once('=')?;
            Some((key.to_owned(), unescape(value)?))
        });
        let said = pairs.collect::<Option<docker::Options>>();
        Self::read(&said.ok_or_else(|| refused(format!("{} are not the options of a pool", quoted(definition))))?)
    }
}

/// Writes a value so that neither a comma nor anything that cannot be seen is in it: those bytes as `%` and two digits.
fn escape(f: &mut fmt::Formatter<'_>, value: &str) -> fmt::Result {
    value.bytes().try_for_each(|byte| match byte {
        b',' | b'%' | 0..=0x20 | 0x7f.. => write!(f, "%{byte:02x}"),
        plain => f.write_char(plain.into()),
    })
}

fn unescape(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}
