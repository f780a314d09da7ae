//! The benchmark: our daemon and shim against the incumbent `dhcp` of containernetworking-plugins, in turn on the same
//! links, with the same DHCP server.
//!
//! Both do everything by their real binaries, as a runtime calls them. Turns alternate, and who goes first changes from
//! round to round, so that a machine that slows down meanwhile slows both. Every turn meets the same: links that are
//! down, as main plugins leave them, and a server without leases. What is promised as a ratio is judged as one.
//!
//! `cargo bench-cni` measures all; `cargo bench-cni start sequential parallel-200 parallel-1000` what is named. It
//! ends with 0 only if all that it measured is as it should be.

mod binaries;
mod client;
mod contender;
mod ground;
mod processor;
mod report;
mod rounds;
mod sample;

use std::env;
use std::error::Error;
use std::process::ExitCode;

use netns_fixtures::Sandbox;

use binaries::Binaries;
use ground::{Ground, Links};
use report::Verdict;

/// What can be measured.
const SECTIONS: [&str; 4] = ["start", "sequential", "parallel-200", "parallel-1000"];

fn main() -> ExitCode {
    let named: Vec<String> = env::args().skip(1).collect();
    if let Some(unknown) = named.iter().find(|name| !SECTIONS.contains(&name.as_str())) {
        eprintln!("no section {unknown:?}: there are {}", SECTIONS.join(", "));
        return ExitCode::FAILURE;
    }
    let wanted: Vec<&str> = SECTIONS.into_iter().filter(|s| named.is_empty() || named.iter().any(|n| n == s)).collect();
    match measure(&wanted) {
        Ok(verdict) if verdict.all_met() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("\nThe benchmark failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(sections: &[&str]) -> Result<Verdict, Box<dyn Error>> {
    let binaries = Binaries::build()?;
    let sandbox = Sandbox::enter()?;
    let mut verdict = Verdict::default();
    let largest = match sections {
        [.., "parallel-1000"] => 1000,
        [.., "parallel-200"] => 200,
        _ => rounds::SEQUENTIAL,
    };
    let mut ground = Ground::new(&sandbox, largest)?;
    for section in sections {
        match *section {
            "start" => report::start(&rounds::start(&binaries)?, &binaries, &mut verdict)?,
            "sequential" => {
                for links in [Links::Up, Links::Down] {
                    report::sequential(links, &rounds::sequential(&binaries, &mut ground, links)?, &mut verdict);
                }
            }
            "parallel-200" => parallel(&binaries, &mut ground, 200, &mut verdict)?,
            _ => parallel(&binaries, &mut ground, 1000, &mut verdict)?,
        }
    }
    verdict.print();
    Ok(verdict)
}

fn parallel(
    binaries: &Binaries,
    ground: &mut Ground,
    count: usize,
    verdict: &mut Verdict,
) -> Result<(), Box<dyn Error>> {
    for links in [Links::Up, Links::Down] {
        report::parallel(count, links, &rounds::parallel(binaries, ground, count, links)?, verdict);
    }
    Ok(())
}
