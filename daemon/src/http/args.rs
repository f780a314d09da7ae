//! What a runtime says about one container in addition to its network's configuration: `CNI_ARGS`, `args` and `runtimeConfig`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use leasehold_api::cni::{Code, Config, Error, RuntimeConfig};
use leasehold_core::wire::Mac;

use super::refusal::{bad_env, quoted, refused};

/// The pairs of `CNI_ARGS`. Of several with one key the last counts, as in Go's map.
///
/// Unknown keys are ignored, with or without `IgnoreUnknown`, and so is anything that is not a pair: the incumbent does the same,
/// `fromArg` may name any key, and the other plugins of the chain get the same text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Args<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Args<'a> {
    pub(crate) fn parse(text: Option<&'a str>) -> Self {
        Self(
            text.unwrap_or_default()
                .split(';')
                .filter_map(|pair| pair.split_once('='))
                .collect(),
        )
    }

    /// Returns a value, even if it is empty.
    pub(super) fn raw(&self, key: &str) -> Option<&'a str> {
        self.0.get(key).copied()
    }

    /// Returns a value that is not empty.
    pub(super) fn get(&self, key: &str) -> Option<&'a str> {
        self.raw(key).filter(|value| !value.is_empty())
    }
}

/// Returns the IPv4 address that the runtime asks for: the first of [`asked`]. IPv6 addresses are for another protocol.
///
/// # Errors
/// As [`asked`].
pub(super) fn wanted(
    config: &Config,
    said: &RuntimeConfig,
    args: &Args<'_>,
) -> Result<Option<Ipv4Addr>, Error> {
    Ok(asked(config, said, args)?
        .into_iter()
        .find_map(|ip| match ip {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(_) => None,
        }))
}

/// Returns the addresses that the runtime asks for: those in `runtimeConfig.ips`, in `args.cni.ips`, and in `IP` of
/// `CNI_ARGS`, the newest convention first.
///
/// # Errors
/// One of them is not a host address: 7, or 4 in `CNI_ARGS`.
pub(super) fn asked(
    config: &Config,
    said: &RuntimeConfig,
    args: &Args<'_>,
) -> Result<Vec<IpAddr>, Error> {
    let by_config = |key: &'static str, ips: Vec<String>| {
        let fault = move |text: &str| {
            Error::new(Code::InvalidConfig, format!("{key}: {}", no_address(text)))
        };
        ips.into_iter()
            .map(move |ip| address(&ip).ok_or_else(|| fault(&ip)))
    };
    let by_env = |text: &'_ str| {
        address(text).ok_or_else(|| bad_env("CNI_ARGS", format!("IP={}", no_address(text))))
    };
    by_config("runtimeConfig.ips", said.ips.clone())
        .chain(by_config(
            "args.cni.ips",
            config.args_ips().map_err(refused)?,
        ))
        .chain(
            args.get("IP")
                .into_iter()
                .flat_map(|list| list.split(','))
                .map(by_env),
        )
        .collect()
}

fn no_address(text: &str) -> String {
    format!("{} is not a host address", quoted(text))
}

/// Reads an address that a host can have, with or without a prefix. An IPv4 address in IPv6 form counts as IPv4, as in Go.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let ip: IpAddr = text
        .parse()
        .ok()
        .or_else(|| text.parse::<IpNet>().ok().map(|net| net.addr()))?;
    let ip = ip.to_canonical();
    let broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    (!(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || broadcast)).then_some(ip)
}

/// Returns the hardware address that the runtime wants the interface to have. It may be set only later (`tuning`), but a server
/// that recognises clients by it must know it from the start.
pub(super) fn chaddr(said: &RuntimeConfig) -> Result<Option<Mac>, Error> {
    let Some(text) = &said.mac else {
        return Ok(None);
    };
    let mac = ethernet(text).filter(|mac: &Mac| mac.0[0] & 1 == 0 && *mac != Mac::default());
    let fault = || {
        format!(
            "runtimeConfig.mac: {} is not an Ethernet address for an interface",
            quoted(text)
        )
    };
    mac.map(Some)
        .ok_or_else(|| Error::new(Code::InvalidConfig, fault()))
}

/// Reads an Ethernet address in each form that Go reads: pairs of digits with colons or hyphens between them, or groups of four with
/// dots.
fn ethernet(text: &str) -> Option<Mac> {
    let parts = |separator, digits| {
        let parts: Vec<_> = text.split(separator).collect();
        let is_whole = parts
            .iter()
            .all(|part| part.len() == digits && part.is_ascii());
        is_whole.then_some(parts)
    };
    let pairs: Vec<&str> = match (text.contains('.'), text.contains('-')) {
        (true, _) => parts('.', 4)?
            .into_iter()
            .flat_map(|four| [&four[..2], &four[2..]])
            .collect(),
        (false, true) => parts('-', 2)?,
        (false, false) => parts(':', 2)?,
    };
    pairs.join(":").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_addresses_are_read_as_go_reads_them() {
        let mac = Mac([2, 0xab, 0xcd, 0, 0, 3]);
        for text in ["02:ab:cd:00:00:03", "02-AB-cd-00-00-03", "02ab.cd00.0003"] {
            assert_eq!(ethernet(text), Some(mac), "{text}");
        }
        for text in [
            "",
            ".",
            "02ab.cd00",
            "02ab.cd00.0003.0004",
            "02:ab:cd:00:00",
            "02:ab-cd:00:00:03",
            "02ab:cd00:0003",
            "2:ab:cd:0:0:3",
            "02abcd000003",
            "02é.cd00.0003",
        ] {
            assert_eq!(ethernet(text), None, "{text}");
        }
    }
}
