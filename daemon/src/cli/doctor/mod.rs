//! `leasehold doctor`: checks a host as an installer would. It changes nothing and needs no daemon.
//!
//! Each part of the host has a file, which looks at it and judges it. Whatever may hang has a time limit.

mod directory;
mod docker;
mod finding;
mod host;
mod kernel;
mod networks;
mod plugins;
mod processes;
mod socket;

use std::io::{self, Write};

use serde::Serialize;

use super::args::DoctorArgs;
use super::networks::site;
use super::term::{Paint, Term};
use crate::store::check_version;
use finding::{Finding, Level};

/// All findings. `leasehold doctor --json` prints it.
#[derive(Debug, Serialize)]
struct Report {
    /// The worst level of all.
    worst: Level,
    findings: Vec<Finding>,
}

/// Checks this host, prints what is found, and returns the exit code for it.
pub(crate) fn doctor(args: &DoctorArgs, mut out: impl Write) -> io::Result<u8> {
    let findings = examine(args);
    let worst = findings
        .iter()
        .map(|finding| finding.level)
        .max()
        .unwrap_or(Level::Ok);
    let report = Report { worst, findings };
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?,
        false => out.write_all(text(&report, Term::of_stdout()).as_bytes())?,
    }
    Ok(match worst {
        Level::Ok | Level::Unseen => 0,
        Level::Warning => 3,
        Level::Failure => 4,
    })
}

/// Returns what is found on this host, in the order in which an installer would look.
fn examine(args: &DoctorArgs) -> Vec<Finding> {
    let processes = processes::all();
    let answer = socket::ask(&args.socket);
    let process = socket::peer(&args.socket);
    let daemon = process.filter(|_| answer.is_ok());
    let daemon = processes::daemon(&processes, daemon);
    let mut incumbents = processes::incumbents(&processes);
    incumbents.retain(|id| Some(*id) != process);
    let in_container = processes::are_of_a_container(&processes);

    let mut findings = kernel::kernel(daemon);
    findings.push(host::incumbent(&incumbents, in_container));
    findings.extend(socket::socket(&args.socket, &answer, process));
    if answer.is_ok() {
        findings.extend(socket::troubles(&args.socket));
    }
    for (check, path) in [
        ("state directory", &args.state_dir),
        ("runtime directory", &args.runtime_dir),
    ] {
        findings.extend(directory::directory(check, path));
    }
    let later_store = check_version(&args.state_dir).err();
    findings.extend(later_store.as_ref().and_then(directory::later_store));
    let plugins = plugins::look(&args.cni_bin_dir);
    findings.extend(plugins::plugins(&plugins, in_container));
    let as_host_local = plugins.iter().any(|it| it.has_our_host_local);
    findings.extend(networks::networks(&args.cni_conf_dir, as_host_local));
    findings.extend(docker::docker(args, &processes));
    findings.push(host::identity(site().machine_id.is_some()));
    let leases = answer.map_or(0, |of| of.bindings.len() as u64);
    findings.extend(host::most_neighbours().map(|most| host::neighbours(most, leases)));
    findings
}

/// Returns a line for each finding, wrapped, with what to do below it.
fn text(report: &Report, term: Term) -> String {
    let mut text = String::new();
    for Finding {
        check,
        level,
        found,
        way_out,
    } in &report.findings
    {
        let (word, paint) = match level {
            Level::Ok => ("ok", Paint::Good),
            Level::Unseen => ("unseen", Paint::Warn),
            Level::Warning => ("warning", Paint::Warn),
            Level::Failure => ("failure", Paint::Bad),
        };
        let line = term.wrapped(&format!("{word:7}  "), &format!("{check}: {found}"));
        text += &line.replacen(word, &term.paint(paint, word), 1);
        text.extend(
            way_out
                .iter()
                .map(|way_out| term.wrapped("         -> ", way_out)),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_is_a_line_with_the_way_out_below() {
        let findings = vec![
            Finding::ok("kernel", "Linux 6.1"),
            Finding::failure("socket", "there is none", "start it"),
        ];
        let report = Report {
            worst: Level::Failure,
            findings,
        };
        let expected =
            "ok       kernel: Linux 6.1\nfailure  socket: there is none\n         -> start it\n";
        assert_eq!(text(&report, Term::PLAIN), expected);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["worst"], "failure");
        assert_eq!(
            json["findings"][0],
            serde_json::json!({"check": "kernel", "level": "ok", "found": "Linux 6.1"})
        );
    }
}
