//! What `docker network create -d leasehold` says with `-o`.
//!
//! | option | default | |
//! |---|---|---|
//! | `mode` | `macvlan` | how endpoints are joined to the LAN: `macvlan`, `ipvlan`, `bridge` |
//! | `parent` | | the host's link that is the LAN |
//! | `bridge` | | the bridge that is on the LAN, for that mode |
//! | `macvlan_mode` | `bridge` | how macvlans hear each other |
//! | `vlan` | none | the VLAN of the parent |
//! | `mtu` | the lease's | the MTU of the endpoints' links |
//! | `gateway` | the lease's | the router |
//! | `addresses` | `dhcp` | whose numbers endpoints have; `docker`: those that Docker makes up |
//!
//! All options of leases can be given too.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use leasehold_api::docker;
use leasehold_core::link::own::{LONGEST_NAME, MacvlanMode};
use leasehold_core::network::{Mode, Wiring};

use super::super::named::is_link_name;
use super::lease::{Flag, LeaseOptions};
use super::options::{read, spell};
use super::{Host, Refused, parse, refused};

/// The options that are not those of leases.
const OWN: [&str; 8] = [
    "mode",
    "parent",
    "bridge",
    "macvlan_mode",
    "vlan",
    "mtu",
    "gateway",
    "addresses",
];

/// A network's options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NetworkOptions {
    pub(super) wiring: Wiring,
    /// The router, which takes precedence over the lease's.
    pub(super) gateway: Option<Ipv4Addr>,
    /// Whether Docker should assign addresses itself.
    pub(super) numbered: bool,
    pub(super) lease: LeaseOptions,
}

/// Options as they are given, each by itself.
#[derive(Default)]
struct Said {
    mode: Option<String>,
    parent: Option<String>,
    bridge: Option<String>,
    macvlan_mode: Option<MacvlanMode>,
    vlan: u16,
    mtu: Option<u16>,
    gateway: Option<Ipv4Addr>,
    numbered: bool,
}

impl NetworkOptions {
    /// Reads what `-o` says.
    pub(super) fn read(
        options: &BTreeMap<String, String>,
        host: &Host<'_>,
    ) -> Result<Self, Refused> {
        let mut said = Said::default();
        let mut lease = LeaseOptions::new(Flag::Driver);
        for (key, value) in options {
            if !lease.set(key, value)? && !said.set(key, value)? {
                return Err(Flag::Driver.unknown(key, &OWN));
            }
        }
        let gateway = said.gateway;
        let numbered = said.numbered;
        let wiring = said.wiring(host)?;
        lease.suit(&host.site, wiring.mode == Mode::Ipvlan)?;
        Ok(Self {
            wiring,
            gateway,
            numbered,
            lease,
        })
    }
}

impl Said {
    /// Sets an option. Returns whether it is one of these.
    fn set(&mut self, key: &str, value: &str) -> Result<bool, Refused> {
        let expected = |what: &str| Flag::Driver.expected(key, value, what);
        match key {
            "mode" => self.mode = Some(value.to_owned()),
            "parent" | "bridge" if !is_link_name(value, LONGEST_NAME) => {
                return Err(expected("the name of a host link, at most 15 bytes"));
            }
            "parent" => self.parent = Some(value.to_owned()),
            "bridge" => self.bridge = Some(value.to_owned()),
            "macvlan_mode" => {
                let mode = macvlan_mode(value)
                    .ok_or_else(|| expected("bridge, private, vepa or passthru"))?;
                self.macvlan_mode = Some(mode);
            }
            "vlan" => {
                let vlan = value.parse().ok().filter(|vlan| (1..=4094).contains(vlan));
                self.vlan = vlan.ok_or_else(|| expected("the number of a VLAN, from 1 to 4094"))?;
            }
            "mtu" => {
                let mtu = value.parse().ok().filter(|mtu| *mtu >= 68);
                self.mtu =
                    Some(mtu.ok_or_else(|| expected("a number of bytes, from 68 to 65535"))?);
            }
            "gateway" => {
                self.gateway = Some(
                    parse::address(value)
                        .map_err(|_| expected("the IPv4 address of the router"))?,
                );
            }
            "addresses" if ["dhcp", "docker"].contains(&value) => self.numbered = value == "docker",
            "addresses" => return Err(expected("dhcp or docker")),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn wiring(self, host: &Host<'_>) -> Result<Wiring, Refused> {
        let macvlan = Mode::Macvlan(self.macvlan_mode.unwrap_or_default());
        let mode = match self.mode.as_deref() {
            None if self.bridge.is_some() && self.parent.is_none() => Mode::Bridge,
            None | Some("macvlan") => macvlan,
            Some("ipvlan") => Mode::Ipvlan,
            Some("bridge") => Mode::Bridge,
            Some(other) => {
                return Err(Flag::Driver.expected("mode", other, "macvlan, ipvlan or bridge"));
            }
        };
        if self.macvlan_mode.is_some() && mode != macvlan {
            return Err(refused(
                "-o macvlan_mode is only for -o mode=macvlan: leave it out",
            ));
        }
        match mode {
            Mode::Bridge => self.of_bridge(),
            Mode::Macvlan(_) | Mode::Ipvlan => self.of_parent(mode, host),
        }
    }

    fn of_bridge(self) -> Result<Wiring, Refused> {
        if self.parent.is_some() {
            return Err(refused(
                "-o parent is not for -o mode=bridge: name the bridge by -o bridge=",
            ));
        }
        if self.vlan != 0 {
            return Err(refused(format!(
                "-o vlan={} is not for -o mode=bridge: name a bridge that is in that VLAN by -o bridge=",
                self.vlan
            )));
        }
        let on = self.bridge.ok_or_else(|| {
            refused("-o bridge=LINK is missing: name the host's bridge on the DHCP server's LAN")
        })?;
        Ok(Wiring {
            mode: Mode::Bridge,
            on,
            vlan: 0,
            mtu: self.mtu,
        })
    }

    fn of_parent(self, mode: Mode, host: &Host<'_>) -> Result<Wiring, Refused> {
        if self.bridge.is_some() {
            return Err(refused(
                "-o bridge is only for -o mode=bridge: name the LAN's link by -o parent=",
            ));
        }
        let parent = self.parent.ok_or_else(|| {
            refused("-o parent=LINK is missing: name the host's link on the DHCP server's LAN")
        })?;
        // Somebody may have made that link: it is used if it is this VLAN's; anything else is reported.
        let (on, lan) = host.lan(&parent);
        let vlan = lan.vlan();
        if vlan != 0 && self.vlan != 0 && self.vlan != vlan {
            return Err(refused(format!(
                "-o vlan={}: -o parent={parent} names VLAN {vlan}: leave one out",
                self.vlan
            )));
        }
        let wiring = Wiring {
            mode,
            on,
            vlan: vlan.max(self.vlan),
            mtu: self.mtu,
        };
        if let Some(link) = wiring
            .vlan()
            .map(|link| link.owner.ifname())
            .filter(|name| name.len() > LONGEST_NAME)
        {
            return Err(refused(format!(
                "-o vlan={}: its link would be called {link}, but a name has at most {LONGEST_NAME} bytes: give {} a \
                 shorter one (ip link set {} name …)",
                wiring.vlan, wiring.on, wiring.on
            )));
        }
        Ok(wiring)
    }
}

fn macvlan_mode(text: &str) -> Option<MacvlanMode> {
    Some(match text {
        "bridge" => MacvlanMode::Bridge,
        "private" => MacvlanMode::Private,
        "vepa" => MacvlanMode::Vepa,
        "passthru" => MacvlanMode::Passthru,
        _ => return None,
    })
}

/// Reads the options of leases in a network's definition.
pub(super) fn lease_of(definition: &str) -> Result<LeaseOptions, Refused> {
    let mut lease = LeaseOptions::new(Flag::Driver);
    for (key, value) in read(definition)? {
        lease.set(&key, &value)?;
    }
    Ok(lease)
}

/// Writes the options: each one that is not its default as `key=value`, in a fixed order, separated by commas.
impl fmt::Display for NetworkOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wiring {
            mode,
            on,
            vlan,
            mtu,
        } = &self.wiring;
        let (mode, key, macvlan) = match mode {
            Mode::Macvlan(MacvlanMode::Bridge) => (None, "parent", None),
            Mode::Macvlan(MacvlanMode::Private) => (None, "parent", Some("private")),
            Mode::Macvlan(MacvlanMode::Vepa) => (None, "parent", Some("vepa")),
            Mode::Macvlan(MacvlanMode::Passthru) => (None, "parent", Some("passthru")),
            Mode::Ipvlan => (Some("ipvlan"), "parent", None),
            Mode::Bridge => (Some("bridge"), "bridge", None),
        };
        let said = [
            mode.map(|mode| ("mode", mode.to_owned())),
            Some((key, on.clone())),
            macvlan.map(|mode| ("macvlan_mode", mode.to_owned())),
            (*vlan != 0).then(|| ("vlan", vlan.to_string())),
            mtu.map(|mtu| ("mtu", mtu.to_string())),
            self.gateway.map(|gateway| ("gateway", gateway.to_string())),
            self.numbered.then(|| ("addresses", "docker".to_owned())),
        ];
        spell(f, said.into_iter().flatten().chain(self.lease.spelled()))
    }
}

/// Returns the options given with `-o`, whatever the JSON type of each value.
pub(super) fn said(
    options: &docker::network::AnyOptions,
) -> Result<BTreeMap<String, String>, Refused> {
    use serde_json::Value;
    let Some(generic) = options.get(docker::network::GENERIC) else {
        return Ok(BTreeMap::new());
    };
    let texts = generic
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| match value {
            Value::String(text) => Ok((key.clone(), text.clone())),
            Value::Bool(_) | Value::Number(_) => Ok((key.clone(), value.to_string())),
            Value::Null | Value::Array(_) | Value::Object(_) => {
                Err(Flag::Driver.expected(key, &value.to_string(), "a text"))
            }
        });
    texts.collect()
}
