//! `leasehold doctor` beside a daemon with leases, on hosts with faults that only a network shows.

use std::fs;
use std::process::Command;

use netns_fixtures::{CallError, Lab, Lan, Need, binary, sandbox};
use serde_json::Value;

const BRIDGE_NF: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";

/// Returns the findings on a LAN's host, whose networks are configured in `networks`, as level and sentence.
fn found(lab: &Lab, networks: &str) -> Result<Vec<(String, String)>, CallError> {
    let mut command = Command::new(binary("leasehold")?);
    command
        .args(["doctor", "--json", "--cni-conf-dir", networks, "--socket"])
        .arg(lab.daemon().socket());
    command.arg("--state-dir").arg(lab.home().state_dir());
    let output = lab.lan.host.output(command, b"")?;
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    let findings = report["findings"].as_array().cloned().unwrap_or_default();
    Ok(findings
        .iter()
        .map(|it| {
            (
                text(it, "level"),
                text(it, "check") + ": " + &text(it, "found"),
            )
        })
        .collect())
}

fn has(found: &[(String, String)], level: &str, text: &str) {
    assert!(
        found
            .iter()
            .any(|(its, said)| its == level && said.contains(text)),
        "no {level} {text:?}: {found:#?}"
    );
}

#[test]
fn a_firewall_on_a_networks_bridge_is_told() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::Program("iptables"), Need::File(BRIDGE_NF)]);
    let lab = Lab::new(&sandbox)?;
    let networks = sandbox.dir("net.d")?.to_string_lossy().into_owned();
    fs::write(
        format!("{networks}/10-lan.conf"),
        Lan::bridge_config(&lab.daemon().socket()).to_string(),
    )
    .expect("a file in the sandbox");
    has(
        &found(&lab, &networks)?,
        "ok",
        "its first container will make bridge cni0",
    );
    lab.lan.add_host_bridge()?;
    let set = |value| lab.lan.host.sh(&format!("echo {value} > {BRIDGE_NF}"));
    set(1)?;
    has(
        &found(&lab, &networks)?,
        "warning",
        "bridge netfilter: traffic on the bridge of lan",
    );
    lab.lan.host.sh("iptables -P FORWARD DROP")?;
    has(
        &found(&lab, &networks)?,
        "failure",
        "where FORWARD drops by policy",
    );
    set(0)?;
    has(
        &found(&lab, &networks)?,
        "ok",
        "bridge netfilter: bridges do not go through iptables",
    );
    Ok(())
}
