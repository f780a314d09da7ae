//! Local ranges in the core's terms: completed and checked, and those for an ADD that no server answers.

use std::time::Duration;

use leasehold_api::cni::{Error, Ipam};
use leasehold_core::range::{Fallback, Sets};

use super::client_id::MachineId;
use super::refusal::bad_config;

/// How long servers must be silent, if the network does not say.
const SILENCE: Duration = Duration::from_secs(20);
/// How long the probes for an address and the store may take (RFC 5227 §2.1.1).
pub(super) const PROBES: Duration = Duration::from_secs(10);

/// Returns the ranges for an ADD that no server answers, which may take `timeout`.
pub(super) fn fallback(
    ipam: &Ipam,
    timeout: Duration,
    machine: Option<MachineId>,
) -> Result<Option<Box<Fallback>>, Error> {
    let Some(said) = &ipam.fallback else {
        return Ok(None);
    };
    let after = said
        .after
        .map_or(SILENCE, |seconds| Duration::from_secs(seconds.into()));
    if after.is_zero() || after + PROBES > timeout {
        let fits = timeout.saturating_sub(PROBES).as_secs();
        let fault = format!(
            "an ADD may take {} s, the last {} of them for probes: 1 to {fits} s",
            timeout.as_secs(),
            PROBES.as_secs()
        );
        return Err(bad_config("ipam.fallback.after", fault));
    }
    let sets = Sets::new(&said.sets).map_err(|bad| bad_config("ipam.fallback.ranges", bad))?;
    let fallback = Fallback::new(sets, after, machine.map_or(0, MachineId::place));
    let one = || {
        bad_config(
            "ipam.fallback.ranges",
            "one set of IPv4 ranges: a container gets one address",
        )
    };
    Ok(Some(Box::new(fallback.ok_or_else(one)?)))
}
