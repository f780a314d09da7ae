//! `leasehold probe`: what the DHCP servers of a LAN offer. It takes nothing: it sends DISCOVER, but no REQUEST. It needs no
//! daemon.

mod ask;
mod report;

use std::io::Write;
use std::path::Path;

use anyhow::{Context, anyhow};
use leasehold_api::MAX_ADD_TIMEOUT;
use leasehold_core::source::ClientProfile;

use super::args::ProbeArgs;
use super::networks::{Networks, networks, site};
use super::term::Term;
use ask::Question;
use report::{Judge, Verdict};

/// Probes, and prints each answer as it comes, then the outcome; as JSON, everything at the end.
pub(crate) fn probe(args: &ProbeArgs, mut out: impl Write) -> anyhow::Result<Verdict> {
    let network = args
        .network
        .as_deref()
        .map(|name| network(name, &args.cni_conf_dir))
        .transpose()?;
    // Whom a network's containers believe is judged by each answer.
    let mut client = network.unwrap_or_default();
    let servers = std::mem::take(&mut client.servers);
    let question = Question {
        ifname: args.link.clone(),
        netns: args.netns.clone(),
        vlan: args.vlan,
        mac: args.mac,
        client,
        wait: args.wait.min(MAX_ADD_TIMEOUT),
    };
    let term = Term::of_stdout();
    let mut written = Ok(());
    let mut judge = Judge::new(args.network.clone().map(|name| (name, servers)));
    let mut answers = Vec::new();
    let asked = question.ask(|answer| {
        let Some(heard) = judge.hears(&answer) else {
            return;
        };
        if !args.json && written.is_ok() {
            written = out
                .write_all((heard.text(term) + "\n").as_bytes())
                .and_then(|()| out.flush());
        }
        answers.push(heard);
    })?;
    written?;
    let report = judge.report(&question, &asked, answers);
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?,
        false => out.write_all(report.summary(term).as_bytes())?,
    }
    Ok(report.verdict())
}

/// Returns what a network's containers say about themselves and which servers they believe.
fn network(name: &str, dir: &Path) -> anyhow::Result<ClientProfile> {
    let Networks { ours, .. } =
        networks(dir, &site()).with_context(|| format!("cannot read {}", dir.display()))?;
    let names: Vec<_> = ours.iter().map(|network| network.name.clone()).collect();
    let found = ours.into_iter().find(|network| network.name == name);
    let network = found.ok_or_else(|| {
        let others = match &names[..] {
            [] => String::new(),
            names => format!("; these do: {}", names.join(", ")),
        };
        let dir = dir.display();
        anyhow!("no network {name} in {dir} gets its addresses from leasehold{others}")
    })?;
    let file = network.file.display();
    let add = network
        .add
        .map_err(|error| anyhow!("network {name} in {file}: {}", error.msg))?;
    // Names belong to containers, and here there is none.
    Ok(ClientProfile {
        hostname: None,
        fqdn: None,
        ..(*add.profile.client).clone()
    })
}
