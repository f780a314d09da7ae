//! The wire of leasehold: what its front doors and the daemon exchange, as serde types.
//!
//! Shared by the daemon and by the programs that talk to it, so it does not know the core, and stays small: the shim links it. What
//! a value *means* is decided elsewhere; this is only how it is written and read, and how the daemon is asked ([`client`]).

pub mod client;
pub mod cni;
pub mod control;
pub mod docker;
pub mod spool;

use std::time::Duration;

use serde::Serialize;

/// Where the daemon listens unless told otherwise: the incumbent's path, so networks in the field work unchanged.
pub const DEFAULT_SOCKET: &str = "/run/cni/dhcp.sock";

/// A text in the shim's program file, followed by its version and a line feed, by which the shim can be told from other plugins
/// without being run.
pub const SHIM_MARK: &str = "leasehold's CNI plugin, version ";

/// The longest body of a request or of a spooled call, in bytes. A network configuration takes a few kilobytes, or some
/// tens with the `prevResult` of a long chain.
pub const MAX_BODY: usize = 1 << 20;

/// How long an ADD may take if the configuration does not say.
pub const ADD_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest time that a configuration can give an ADD, so that every wait has an end. A kubelet allows four minutes for a
/// whole sandbox.
pub const MAX_ADD_TIMEOUT: Duration = Duration::from_secs(600);

/// Returns how long an ADD may take when its configuration says `ipam.timeout` seconds: anything but a positive number
/// counts as absent.
pub fn add_timeout(seconds: Option<f64>) -> Duration {
    let said = seconds.filter(|s| *s > 0.0);
    said.map_or(ADD_TIMEOUT, |s| {
        Duration::try_from_secs_f64(s)
            .unwrap_or(MAX_ADD_TIMEOUT)
            .min(MAX_ADD_TIMEOUT)
    })
}

/// Writes a value as JSON.
pub fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value)
        .expect("the types of the wire have string keys only, so they always are JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a table: a case a line, its columns apart by arrows.
    pub(crate) fn rows<const N: usize>(table: &str) -> impl Iterator<Item = [&str; N]> {
        let lines = table.lines().filter(|line| !line.trim().is_empty());
        lines.map(|line| {
            let columns: Vec<_> = line.split("=>").map(str::trim).collect();
            columns.try_into().expect("each row has all columns")
        })
    }

    #[test]
    fn an_add_has_a_time_out_whatever_the_configuration_says() {
        let table = [
            (None, ADD_TIMEOUT),
            (Some(0.0), ADD_TIMEOUT),
            (Some(-1.0), ADD_TIMEOUT),
            (Some(f64::NAN), ADD_TIMEOUT),
            (Some(0.25), Duration::from_millis(250)),
            (Some(90.0), Duration::from_secs(90)),
            (Some(1e300), MAX_ADD_TIMEOUT),
            (Some(f64::INFINITY), MAX_ADD_TIMEOUT),
        ];
        for (seconds, expected) in table {
            assert_eq!(add_timeout(seconds), expected, "{seconds:?}");
        }
    }
}
