//! What a runtime says about one container in addition to its network's configuration: `CNI_ARGS`, `args` and `runtimeConfig`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use super::{Code, Config, Error, RuntimeConfig, bad_env, quoted, refused};

/// The pairs of `CNI_ARGS`. Of several with one key the last counts, as in Go's map.
///
/// Unknown keys are ignored, with or without `IgnoreUnknown`, and so is anything that is not a pair: the incumbent does the same,
/// `fromArg` may name any key, and the other plugins of the chain get the same text.
#[derive(Clone, Debug, Default)]
pub struct Args<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Args<'a> {
    /// Reads the pairs.
    pub fn parse(text: Option<&'a str>) -> Self {
        Self(
            text.unwrap_or_default()
                .split(';')
                .filter_map(|pair| pair.split_once('='))
                .collect(),
        )
    }

    /// Returns a value, even if it is empty.
    pub fn raw(&self, key: &str) -> Option<&'a str> {
        self.0.get(key).copied()
    }

    /// Returns a value that is not empty.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.raw(key).filter(|value| !value.is_empty())
    }
}

/// Returns the addresses that the runtime asks for: those in `runtimeConfig.ips`, in `args.cni.ips`, and in `IP` of
/// `CNI_ARGS`, the newest convention first.
///
/// # Errors
/// One of them is not a host address: 7, or 4 in `CNI_ARGS`.
pub fn asked(config: &Config, said: &RuntimeConfig, args: &Args<'_>) -> Result<Vec<IpAddr>, Error> {
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
