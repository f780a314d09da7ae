//! The systemd units: what systemd itself makes of them.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use netns_fixtures::{CallError, Need, Sandbox, binary, sandbox};

/// How exposed the service may be at most, in tenths: see systemd-analyze(1).
const MOST_EXPOSED: u32 = 43;

const UNITS: [&str; 2] = ["leasehold.service", "leasehold.socket"];

/// Returns the text of a unit as it is installed.
fn unit(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../daemon/dist").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Writes the units into a directory of their own, for the daemon that is built here.
fn installed(sandbox: &Sandbox) -> Result<PathBuf, CallError> {
    let (dir, daemon) = (sandbox.dir("units")?, binary("leasehold")?);
    for name in UNITS {
        let text = unit(name).replace("/usr/local/bin/leasehold", &daemon.to_string_lossy());
        fs::write(dir.join(name), text).expect("an empty directory takes a file");
    }
    Ok(dir)
}

fn analyze(args: &[&str], units: &[PathBuf]) -> Output {
    Command::new("systemd-analyze").args(args).args(units).output().expect("systemd-analyze was looked for")
}

#[test]
fn systemd_finds_no_fault_with_the_units() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(&[Need::Program("systemd-analyze")]) else { return Ok(()) };
    let dir = installed(&sandbox)?;
    let found = analyze(&["verify", "--man=no"], &UNITS.map(|name| dir.join(name)));
    // Of a key that it does not know it only says so.
    let said = String::from_utf8_lossy(&found.stderr);
    assert!(found.status.success() && said.is_empty(), "{said}");
    Ok(())
}

#[test]
fn the_service_is_exposed_no_more_than_it_has_to_be_and_says_why() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(&[Need::Program("systemd-analyze")]) else { return Ok(()) };
    let service = [installed(&sandbox)?.join("leasehold.service")];
    let threshold = format!("--threshold={MOST_EXPOSED}");
    let found = analyze(&["security", "--offline=true", "--no-pager", &threshold], &service);
    let table = String::from_utf8_lossy(&found.stdout);
    let exposed: Vec<_> = table.lines().filter_map(|line| line.strip_prefix("✗ ")).collect();
    assert!(found.status.success(), "exposed by more than {MOST_EXPOSED} tenths: {exposed:#?}");
    assert!(exposed.len() > 10, "a table that cannot be read: {table}");
    let text = unit("leasehold.service");
    let reasons: String = text.lines().filter(|line| line.starts_with('#')).collect();
    // `ProtectHome=`, `CapabilityBoundingSet=~CAP_(A|B)`: the last word is the one that counts.
    let name = |line: &&str| {
        let point = line.split_whitespace().next().unwrap_or_default().to_owned();
        let mut words = point.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        words.next_back().unwrap_or_default().trim_start_matches("CAP_").to_owned()
    };
    let unsaid: Vec<_> = exposed.iter().map(name).filter(|name| !reasons.contains(name.as_str())).collect();
    assert!(unsaid.is_empty(), "no reason is given for {unsaid:?}");
    Ok(())
}
