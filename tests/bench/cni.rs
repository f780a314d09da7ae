//! The benchmark: our daemon and shim against the incumbent `dhcp` of containernetworking-plugins, taking turns on the
//! same links with the same DHCP server.
//!
//! Both do everything through their real binaries, as a runtime calls them. Turns alternate, and who goes first changes
//! from round to round, so that a machine that slows down slows both. Every turn starts the same: links that are down,
//! as main plugins leave them, and a server without leases. What is promised as a ratio is judged as a ratio.

use std::error::Error;

use netns_fixtures::Sandbox;

use crate::binaries::Binaries;
use crate::ground::{Ground, Links, PER_PARENT};
use crate::verdict::Verdict;
use crate::{report, rounds};

/// What can be measured.
pub(crate) const SECTIONS: [&str; 5] = ["start", "sequential", "processor", "parallel-200", "parallel-1000"];

/// Measures these sections.
pub(crate) fn measure(sections: &[&str]) -> Result<Verdict, Box<dyn Error>> {
    let binaries = Binaries::build()?;
    let sandbox = Sandbox::enter()?;
    let mut verdict = Verdict::default();
    let largest = match sections {
        [.., "parallel-1000"] => 1000,
        [.., "parallel-200"] => 200,
        [.., "processor"] => rounds::PROCESSOR,
        _ => rounds::SEQUENTIAL,
    };
    let mut ground = Ground::new(&sandbox, largest, PER_PARENT)?;
    for section in sections {
        match *section {
            "start" => report::start(&rounds::start(&binaries)?, &binaries, &mut verdict)?,
            "sequential" => {
                for links in [Links::Up, Links::Down] {
                    let (turns, floors) = rounds::sequential(&binaries, &mut ground, links)?;
                    report::sequential(links, &turns, &floors, &mut verdict);
                }
            }
            "processor" => {
                for links in [Links::Up, Links::Down] {
                    let (turns, floor) = rounds::processor(&binaries, &mut ground, links)?;
                    report::processor(links, &turns, floor, &mut verdict);
                }
            }
            "parallel-200" => parallel(&binaries, &mut ground, 200, &mut verdict)?,
            _ => parallel(&binaries, &mut ground, 1000, &mut verdict)?,
        }
    }
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
