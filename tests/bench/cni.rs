//! The benchmark: our daemon and shim against the incumbent `dhcp` of containernetworking-plugins, taking turns on the
//! same links with the same DHCP server.
//!
//! Both do everything through their real binaries, as a runtime calls them. Turns alternate, and the contender that goes first
//! changes from round to round, so that a machine that slows down slows both. Every turn starts the same: with links that are
//! down, as main plugins leave them, and a server without leases. What is promised as a ratio is judged as a ratio.

use std::error::Error;

use netns_fixtures::Sandbox;

use crate::binaries::Binaries;
use crate::ground::{Ground, Links, PER_PARENT};
use crate::verdict::Verdict;
use crate::{ranges, report, rounds};

/// What can be measured.
pub(crate) const SECTIONS: [&str; 7] = [
    "start",
    "ranges",
    "sequential",
    "parallel-200",
    "parallel-1000",
    "crowd-1000",
    "bridge",
];

/// Measures these sections.
pub(crate) fn measure(sections: &[&str]) -> Result<Verdict, Box<dyn Error>> {
    let binaries = Binaries::build()?;
    let sandbox = Sandbox::enter()?;
    let mut verdict = Verdict::default();
    // No LAN is needed for it.
    let (ranges, sections): (Vec<_>, Vec<_>) = sections
        .iter()
        .copied()
        .partition(|section| *section == "ranges");
    if !ranges.is_empty() {
        ranges::measure(&binaries, &sandbox, &mut verdict)?;
    }
    if sections.is_empty() {
        return Ok(verdict);
    }
    let in_turn: Vec<_> = sections
        .iter()
        .copied()
        .filter(|section| !["crowd-1000", "bridge"].contains(section))
        .collect();
    let largest = match &in_turn[..] {
        [.., "parallel-1000"] => 1000,
        [.., "parallel-200"] => 200,
        _ => rounds::SEQUENTIAL,
    };
    let mut ground = Ground::new(&sandbox, largest, PER_PARENT)?;
    for section in &sections {
        match *section {
            "start" => report::start(&rounds::start(&binaries)?, &binaries, &mut verdict)?,
            "sequential" => {
                for links in [Links::Up, Links::Down] {
                    let turns = rounds::sequential(&binaries, &mut ground, links)?;
                    report::sequential(links, &turns, &mut verdict);
                }
            }
            // The last: after it there are no macvlans any more.
            "bridge" => {
                ground.move_to_bridge(rounds::SEQUENTIAL)?;
                report::bridge(&rounds::bridge(&binaries, &mut ground)?, &mut verdict);
            }
            "parallel-200" => parallel(&binaries, &mut ground, 200, &mut verdict)?,
            "parallel-1000" => parallel(&binaries, &mut ground, 1000, &mut verdict)?,
            _ => {
                ground.crowd(1000)?;
                for links in [Links::Up, Links::Down] {
                    let turns = rounds::parallel(&binaries, &mut ground, 1000, links)?;
                    report::parallel((1000, " on one parent"), links, &turns, &mut verdict);
                }
            }
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
        report::parallel(
            (
                count,
                if count <= PER_PARENT {
                    " on one parent"
                } else {
                    ""
                },
            ),
            links,
            &rounds::parallel(binaries, ground, count, links)?,
            verdict,
        );
    }
    Ok(())
}
