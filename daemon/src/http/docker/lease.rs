//! What a network says about its leases to either of the two drivers.
//!
//! | option | default | |
//! |---|---|---|
//! | `client-id` | `auto` | how servers know an endpoint |
//! | `hostname` | the container's name | option 12 |
//! | `timeout` | 20 | seconds that an address may take |
//! | `servers-allow`, `servers-deny` | all | whose offers are believed |
//! | `release` | `true` | whether a lease is given back |
//! | `grace` | 60 | seconds to keep a lease whose endpoint may return |
//! | `fallback` | none | addresses for the time when no server answers |

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use ipnet::Ipv4Net;
use leasehold_core::grant::policy::Policy;
use leasehold_core::identity::ClientId;
use leasehold_core::profile::Profile;
use leasehold_core::range::{Fallback, RangeConfig, Sets};
use leasehold_core::source::{ClientProfile, Servers};

use super::super::add::{Site, is_hostname};
use super::super::client_id::MachineId;
use super::super::fallback::PROBES;
use super::super::refusal::{cut, quoted};
use super::{Refused, refused};

/// The longest time that an address may take: dockerd gives a plugin that it runs itself 30 s.
const MOST_SECONDS: u64 = 20;
/// The shortest silence of servers that counts: one may ping an address for 3 s before it offers it, and hear nothing before the
/// second DISCOVER.
const SHORTEST: Duration = Duration::from_secs(5);
/// How much longer a fallback address may take: its turn among callers that ask at the same time, and its probes.
const BESIDE: Duration = Duration::from_secs(3).saturating_add(PROBES);
/// The most servers in a list.
const MOST_SERVERS: usize = 32;

/// The placeholder for the container's name in a host name.
const NAME: &str = "{name}";

/// Where a network gives an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flag {
    /// To the IPAM driver.
    Ipam,
    /// To the network driver.
    Driver,
}

impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipam => "--ipam-opt",
            Self::Driver => "-o",
        })
    }
}

impl Flag {
    /// Refuses a value, and names what is expected instead.
    pub(super) fn expected(self, key: &str, value: &str, what: &str) -> Refused {
        refused(format!(
            "{self} {key}={}: expected {what}",
            cut(value).escape_debug()
        ))
    }

    /// Refuses a key that is neither one of `own` nor an option of leases.
    pub(super) fn unknown(self, key: &str, own: &[&str]) -> Refused {
        refused(format!(
            "{self} {}: unknown option; the options are {}",
            cut(key).escape_debug(),
            [own, &LeaseOptions::KNOWN].concat().join(", ")
        ))
    }
}

/// What a network says about its leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeaseOptions {
    /// Where it says so.
    pub(super) flag: Flag,
    pub(super) client_id: Kind,
    /// Option 12, with `{name}` for the container's name; empty: none. `None`: the name, if Docker passes it.
    pub(super) hostname: Option<String>,
    pub(super) timeout: Option<Duration>,
    pub(super) allow: BTreeSet<Ipv4Addr>,
    pub(super) deny: BTreeSet<Ipv4Addr>,
    pub(super) release: bool,
    /// In seconds.
    pub(super) grace: Option<u32>,
    /// The first and the last address for the time when no server answers.
    pub(super) fallback: Option<(Ipv4Addr, Ipv4Addr)>,
}

/// What option 61 is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The container's name, if Docker passes it; else the Ethernet address.
    Auto,
    /// The Ethernet address.
    Mac,
    /// Nothing: the option is not sent.
    None,
    /// The host's DUID, and an IAID made from the endpoint's name or Ethernet address.
    Duid,
    /// These bytes.
    Hex(Vec<u8>),
    /// This text.
    Text(String),
}

impl LeaseOptions {
    /// All options.
    pub(super) const KNOWN: [&str; 8] = [
        "client-id",
        "hostname",
        "timeout",
        "servers-allow",
        "servers-deny",
        "release",
        "grace",
        "fallback",
    ];

    /// Returns the options of a network that names none.
    pub(super) fn new(flag: Flag) -> Self {
        Self {
            flag,
            client_id: Kind::Auto,
            hostname: None,
            timeout: None,
            allow: BTreeSet::new(),
            deny: BTreeSet::new(),
            release: true,
            grace: None,
            fallback: None,
        }
    }

    /// Sets an option. Returns whether it is one of these.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<bool, Refused> {
        let expected = |what: &str| self.flag.expected(key, value, what);
        match key {
            "client-id" => self.client_id = Kind::parse(value).map_err(|what| expected(&what))?,
            "hostname" => {
                let example = value.replace(NAME, "x");
                if !(value.is_empty() || is_hostname(&example)) {
                    return Err(expected(
                        "a host name, in which {name} stands for the container's name, or nothing",
                    ));
                }
                self.hostname = Some(value.to_owned());
            }
            "timeout" => {
                let seconds = value
                    .parse()
                    .ok()
                    .filter(|seconds| (1..=MOST_SECONDS).contains(seconds));
                let seconds = seconds
                    .ok_or_else(|| expected(&format!("whole seconds, from 1 to {MOST_SECONDS}")))?;
                self.timeout = Some(Duration::from_secs(seconds));
            }
            "servers-allow" => self.allow = servers(value).ok_or_else(|| expected(SERVERS))?,
            "servers-deny" => self.deny = servers(value).ok_or_else(|| expected(SERVERS))?,
            "release" => self.release = value.parse().map_err(|_| expected("true or false"))?,
            "grace" => {
                self.grace = Some(value.parse().map_err(|_| expected("a number of seconds"))?)
            }
            "fallback" => {
                let ends = value
                    .split_once('-')
                    .and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
                let what =
                    "the first and the last address of a range, as in 192.168.1.200-192.168.1.220";
                self.fallback = Some(
                    ends.filter(|(first, last)| first <= last)
                        .ok_or_else(|| expected(what))?,
                );
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns each option that is not its default, in the order of [`Self::KNOWN`].
    pub(super) fn spelled(&self) -> impl Iterator<Item = (&'static str, String)> {
        let list = |servers: &BTreeSet<Ipv4Addr>| {
            let texts: Vec<_> = servers.iter().map(Ipv4Addr::to_string).collect();
            (!texts.is_empty()).then(|| texts.join(","))
        };
        let values = [
            (self.client_id != Kind::Auto).then(|| self.client_id.to_string()),
            self.hostname.clone(),
            self.timeout.map(|timeout| timeout.as_secs().to_string()),
            list(&self.allow),
            list(&self.deny),
            (!self.release).then(|| self.release.to_string()),
            self.grace.map(|grace| grace.to_string()),
            self.fallback.map(|(first, last)| format!("{first}-{last}")),
        ];
        Self::KNOWN
            .into_iter()
            .zip(values)
            .filter_map(|(key, value)| Some((key, value?)))
    }

    /// Returns what any client of the network says and wants. `shared`: all have their parent's Ethernet address.
    pub(super) fn profile(&self, site: &Site, shared: bool, hostname: Option<String>) -> Profile {
        let servers = Servers {
            allow: self.allow.iter().copied().collect(),
            deny: self.deny.iter().copied().collect(),
        };
        let broadcast = site.broadcast || shared;
        let client = ClientProfile {
            hostname,
            broadcast,
            servers,
            without_client_id: self.client_id == Kind::None,
            ..ClientProfile::default()
        };
        // Docker chooses once which of its networks a container's default route uses.
        let policy = Policy {
            suppress_default_route: true,
            follow_router: true,
            ..Policy::default()
        };
        Profile {
            client: Arc::new(client),
            on_parent: shared,
            release: self.release,
            policy,
            ..Profile::default()
        }
    }

    /// Refuses what no endpoint of the network could have. `shared`: all have their parent's Ethernet address.
    pub(super) fn suit(&self, site: &Site, shared: bool) -> Result<(), Refused> {
        let Self {
            flag, client_id, ..
        } = self;
        if shared && matches!(client_id, Kind::Mac | Kind::None) {
            return Err(refused(format!(
                "{flag} client-id={client_id}: on ipvlan all containers have the parent's Ethernet address: leave it out"
            )));
        }
        let wants_host = *client_id == Kind::Duid || (shared && *client_id == Kind::Auto);
        if wants_host && site.machine_id.is_none() {
            return Err(refused(format!(
                "{flag} client-id={client_id} needs the host's /etc/machine-id: run systemd-machine-id-setup and restart leasehold"
            )));
        }
        Ok(())
    }

    /// Returns the ranges for the fallback, in a subnet or a part of it.
    pub(super) fn fallback(
        &self,
        subnet: Ipv4Net,
        part: Option<Ipv4Net>,
        site: &Site,
    ) -> Result<Option<Box<Fallback>>, Refused> {
        let Some((first, last)) = self.fallback else {
            return Ok(None);
        };
        let bad = |why: String| refused(format!("{} fallback={first}-{last}: {why}", self.flag));
        if let Some(part) = part.filter(|part| !part.contains(&first) || !part.contains(&last)) {
            return Err(bad(format!("outside the network's --ip-range {part}")));
        }
        let after = self.timeout(site).saturating_sub(BESIDE);
        if after < SHORTEST {
            let [least, beside] = [BESIDE + SHORTEST, BESIDE].map(|time| time.as_secs());
            return Err(bad(format!(
                "timeout must be at least {least} s, of which {beside} are for its turn and for probes"
            )));
        }
        let said = RangeConfig {
            subnet: subnet.into(),
            start: Some(first.into()),
            end: Some(last.into()),
            gateway: None,
        };
        let sets = Sets::new(&[vec![said]]).map_err(|why| bad(why.to_string()))?;
        let offset = site.machine_id.map_or(0, MachineId::place);
        Ok(Fallback::new(sets, after, offset).map(Box::new))
    }

    /// Returns how long an address may take.
    pub(super) fn timeout(&self, site: &Site) -> Duration {
        self.timeout
            .unwrap_or(site.add_timeout.min(Duration::from_secs(MOST_SECONDS)))
    }

    /// Returns option 12 for a container, whose name Docker may pass.
    pub(super) fn hostname(&self, name: Option<&str>) -> Result<Option<String>, Refused> {
        let flag = self.flag;
        match (&self.hostname, name) {
            (None, name) => Ok(name.filter(|name| is_hostname(name)).map(str::to_owned)),
            (Some(template), None) if template.contains(NAME) => Err(refused(format!(
                "{flag} hostname={template}: the container's name is not known here; Docker passes it from version 29 \
                 on, and only to --ipam-driver leasehold: leave {NAME} out"
            ))),
            (Some(template), name) => {
                let said = template.replace(NAME, name.unwrap_or_default());
                match said.as_str() {
                    "" => Ok(None),
                    said if is_hostname(said) => Ok(Some(said.to_owned())),
                    said => Err(refused(format!(
                        "{flag} hostname: {} is not a valid host name",
                        quoted(said)
                    ))),
                }
            }
        }
    }
}

/// What a list of servers is.
const SERVERS: &str = "comma-separated IPv4 addresses of DHCP servers, 32 at most";

fn servers(list: &str) -> Option<BTreeSet<Ipv4Addr>> {
    let servers = list
        .split(',')
        .map(|server| server.trim().parse().ok())
        .collect::<Option<BTreeSet<_>>>()?;
    (servers.len() <= MOST_SERVERS).then_some(servers)
}

impl Kind {
    /// Reads it, or returns what is expected.
    fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':').unwrap_or((text, "")) {
            ("auto", "") => Ok(Self::Auto),
            ("mac", "") => Ok(Self::Mac),
            ("none", "") => Ok(Self::None),
            ("duid", "") => Ok(Self::Duid),
            ("hex", digits) => {
                let id = ClientId::try_from(digits.replace(':', ""));
                let id = id.map_err(|bad| {
                    format!("hex: and the bytes of option 61, type byte first; {bad}")
                })?;
                Ok(Self::Hex(id.as_bytes().to_vec()))
            }
            ("text", text) if (1..=254).contains(&text.len()) => Ok(Self::Text(text.to_owned())),
            ("text", _) => Err("text: and 1 to 254 bytes".to_owned()),
            _ => Err("auto, mac, none, duid, hex:… or text:…".to_owned()),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Mac => f.write_str("mac"),
            Self::None => f.write_str("none"),
            Self::Duid => f.write_str("duid"),
            Self::Hex(bytes) => write!(f, "hex:{}", HEXLOWER.encode(bytes)),
            Self::Text(text) => write!(f, "text:{text}"),
        }
    }
}
