//! What a runtime says about one container in addition to its network's configuration: `CNI_ARGS`, `args` and `runtimeConfig`.

use std::net::{IpAddr, Ipv4Addr};

pub(crate) use leasehold_api::cni::Args;
use leasehold_api::cni::{Code, Config, Error, RuntimeConfig, asked};
use leasehold_core::wire::Mac;

use super::refusal::quoted;

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
