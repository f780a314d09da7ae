//! `leasehold probe`: what the DHCP servers of a LAN offer. It takes nothing: it sends DISCOVER, but no REQUEST. It needs no
//! daemon.

mod ask;
mod report;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use leasehold_api::MAX_ADD_TIMEOUT;
use leasehold_core::source::{ClientProfile, Servers};

use super::args::ProbeArgs;
use super::networks::{Networks, networks, site};
use super::term::Term;
use ask::{AskError, Question};
use report::{Judge, Verdict};

/// Why nothing was probed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    /// Nothing could be asked.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// The directory of networks cannot be read.
    #[error("cannot read {}", .0.display())]
    Directory(PathBuf, #[source] io::Error),
    /// The network is not configured there.
    #[error("no network {name} in {} gets its addresses from leasehold{}", .dir.display(), .others)]
    NoNetwork {
        /// Its name.
        name: String,
        /// The directory of networks.
        dir: PathBuf,
        /// Those that exist.
        others: String,
    },
    /// The network's configuration would be refused.
    #[error("network {name} in {}: {reason}", .file.display())]
    Refused {
        /// Its name.
        name: String,
        /// Its file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// The output cannot be written.
    #[error("cannot write")]
    Output(#[from] io::Error),
}

impl ProbeError {
    /// Returns whether the reader has seen enough (`| head`).
    pub(crate) fn is_end_of_reader(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Probes, and prints each answer as it comes, then the outcome; as JSON, everything at the end.
pub(crate) fn probe(args: &ProbeArgs, mut out: impl Write) -> Result<Verdict, ProbeError> {
    let network = args
        .network
        .as_deref()
        .map(|name| network(name, &args.cni_conf_dir))
        .transpose()?;
    let (client, servers) = match network {
        Some(client) => (
            ClientProfile {
                servers: Servers::default(),
                ..client.clone()
            },
            Some(client.servers),
        ),
        None => (ClientProfile::default(), None),
    };
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
    let mut judge = Judge::new(args.network.clone().zip(servers));
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
        true => writeln!(
            out,
            "{}",
            serde_json::to_string_pretty(&report).map_err(io::Error::from)?
        )?,
        false => out.write_all(report.summary(term).as_bytes())?,
    }
    Ok(report.verdict())
}

/// Returns what a network's containers say about themselves and which servers they believe.
fn network(name: &str, dir: &Path) -> Result<ClientProfile, ProbeError> {
    let Networks { ours, .. } =
        networks(dir, &site()).map_err(|error| ProbeError::Directory(dir.to_owned(), error))?;
    let names: Vec<_> = ours.iter().map(|network| network.name.clone()).collect();
    let others = if names.is_empty() {
        String::new()
    } else {
        format!("; these do: {}", names.join(", "))
    };
    let found = ours.into_iter().find(|network| network.name == name);
    let network = found.ok_or_else(|| ProbeError::NoNetwork {
        name: name.to_owned(),
        dir: dir.to_owned(),
        others,
    })?;
    match network.add {
        // Names belong to containers, and here there is none.
        Ok(add) => Ok(ClientProfile {
            hostname: None,
            fqdn: None,
            ..(*add.profile.client).clone()
        }),
        Err(error) => Err(ProbeError::Refused {
            name: name.to_owned(),
            file: network.file,
            reason: error.msg,
        }),
    }
}
