//! The demo, which is the first thing that a newcomer runs, and the pictures that README shows.

use std::fs;
use std::process::Command;

use netns_fixtures::{Error, Need, are_met, binary};

#[test]
fn the_demo_runs_to_its_end() -> Result<(), Error> {
    // It makes its own sandbox; `true` stands in for cargo, since everything is built.
    assert!(Need::Program("true").is_met());
    let demo = Command::new(binary("demo")?)
        .env("CARGO", "true")
        .output()
        .expect("the demo starts");
    let said = String::from_utf8_lossy(&demo.stdout);
    let failed = String::from_utf8_lossy(&demo.stderr);
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

#[test]
fn the_pictures_of_readme_are_drawn_from_a_real_run() -> Result<(), Error> {
    let needs = ["chromium", "dnsmasq", "script", "true"].map(Need::Program);
    if !are_met(&needs) {
        return Ok(());
    }
    let dir = tempfile::tempdir().expect("a directory");
    let pictures = Command::new(binary("pictures")?)
        .arg(dir.path())
        .env("CARGO", "true")
        .output()
        .expect("it starts");
    let failed = String::from_utf8_lossy(&pictures.stderr);
    assert!(pictures.status.success(), "{failed}");
    for name in ["page.png", "terminal.png"] {
        let drawn = fs::read(dir.path().join(name)).expect("it is there");
        assert!(drawn.starts_with(b"\x89PNG"), "{name}");
    }
    Ok(())
}
