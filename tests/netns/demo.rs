//! The demo, which is the first thing that a newcomer runs.

use std::process::Command;

use netns_fixtures::{Error, Need, binary};

#[test]
fn the_demo_runs_to_its_end() -> Result<(), Error> {
    // It makes its own sandbox; `true` stands in for cargo, since everything is built.
    assert!(Need::Program("true").is_met());
    let demo = Command::new(binary("demo")?)
        .env("CARGO", "true")
        .output()
        .expect("the demo starts");
    let (said, failed) = (
        String::from_utf8_lossy(&demo.stdout),
        String::from_utf8_lossy(&demo.stderr),
    );
    assert!(demo.status.success(), "{said}\n{failed}");
    assert_eq!(failed, "");
    for awaited in [
        "\"ips\"",
        "lan/blue/eth0",
        "has renewed 10.7.0.10",
        "10.7.0.11 is back from green",
        "That was all",
    ] {
        assert!(said.contains(awaited), "no {awaited} in:\n{said}");
    }
    Ok(())
}
