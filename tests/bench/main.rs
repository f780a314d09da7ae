//! The benchmarks: `cargo bench-cni`, `cargo bench-docker` and `cargo bench-life`. Each measures all its sections, or only those
//! named, and exits with 0 only if every result is as it should be.

mod binaries;
mod client;
mod cni;
mod contender;
mod disk;
mod docker;
mod ground;
mod life;
mod processor;
mod ranges;
mod report;
mod rounds;
mod sample;
mod verdict;

use std::env;
use std::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut named = env::args().skip(1);
    let measured = match named.next().as_deref() {
        Some("cni") => sections(&cni::SECTIONS, named).and_then(|sections| cni::measure(&sections)),
        Some("docker") => {
            sections(&docker::SECTIONS, named).and_then(|sections| docker::measure(&sections))
        }
        Some("life") => {
            sections(&life::SECTIONS, named).and_then(|sections| life::measure(&sections))
        }
        _ => Err("name a benchmark: cni, docker or life".into()),
    };
    match measured {
        Ok(verdict) => {
            verdict.print();
            if verdict.all_met() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("\nThe benchmark failed: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the sections to measure, in their own order: all, or those named.
fn sections<'a>(
    all: &[&'a str],
    named: impl Iterator<Item = String>,
) -> Result<Vec<&'a str>, Box<dyn Error>> {
    let named: Vec<_> = named.collect();
    if let Some(unknown) = named.iter().find(|name| !all.contains(&name.as_str())) {
        return Err(format!("no section {unknown:?}: there are {}", all.join(", ")).into());
    }
    Ok(all
        .iter()
        .copied()
        .filter(|section| named.is_empty() || named.iter().any(|name| name == section))
        .collect())
}
