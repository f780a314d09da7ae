//! The checks: from facts to findings. Pure.

mod directory;
mod docker;
mod host;
mod kernel;
mod networks;
mod plugins;
mod socket;

use super::facts::Facts;
use super::finding::Finding;

/// Returns what is found on a host, in the order in which an installer would look.
pub(super) fn all(facts: &Facts) -> Vec<Finding> {
    let mut findings = kernel::kernel(&facts.kernel);
    findings.push(host::incumbent(&facts.incumbents, facts.in_container));
    findings.extend(socket::socket(&facts.socket));
    findings.extend(socket::troubles(&facts.troubles));
    findings.extend(directory::directory("state directory", &facts.state));
    findings.extend(directory::directory("runtime directory", &facts.runtime));
    findings.extend(facts.later_store.as_ref().and_then(directory::later_store));
    findings.extend(plugins::plugins(&facts.plugins, facts.in_container));
    findings.extend(networks::networks(&facts.networks));
    let as_host_local = facts.plugins.iter().any(|it| it.has_our_host_local);
    findings.extend(networks::host_local(&facts.networks).filter(|_| as_host_local));
    findings.extend(docker::docker(&facts.docker));
    findings.push(host::identity(facts.has_machine_id));
    findings.extend(host::neighbours(facts.most_neighbours, facts.leases));
    findings
}
