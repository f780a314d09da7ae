//! The daemon as a systemd service, on a host without a package.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::place::Place;
use super::{run, say};

const UNITS: [(&str, &str); 4] = [
    (
        "leasehold.socket",
        include_str!("../../../dist/leasehold.socket"),
    ),
    (
        "leasehold-read.socket",
        include_str!("../../../dist/leasehold-read.socket"),
    ),
    (
        "leasehold.service",
        include_str!("../../../dist/leasehold.service"),
    ),
    (
        EXPORTER,
        include_str!("../../../dist/leasehold-exporter@.service"),
    ),
];

/// The units that are enabled and started. An administrator who wants a TCP port enables the exporter.
const STARTED: [&str; 3] = ["leasehold.socket", "leasehold-read.socket", SERVICE];

/// A template: its instances say where they listen.
const EXPORTER: &str = "leasehold-exporter@.service";

/// The daemon's unit.
const SERVICE: &str = "leasehold.service";

/// Where an administrator's units are.
const DIRECTORY: &str = "/etc/systemd/system";

/// Where a package puts them, with the daemon.
const PACKAGED: &str = "/usr/lib/systemd/system";

/// Where the units look for a package's daemon, and where a daemon without a package is put.
const OF_A_PACKAGE: &str = "/usr/bin/leasehold";
const PROGRAM: &str = "/usr/local/bin/leasehold";

/// The daemon's program file; empty if it is only to be removed.
#[derive(Default)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    pub(super) contents: Vec<u8>,
}

/// Returns where the program and its units go. The units come last, so that what they start is already there.
pub(super) fn places(program: &Program) -> Vec<Place> {
    if are_in(PACKAGED) {
        return Vec::new();
    }
    let copy = Place {
        path: PROGRAM.into(),
        contents: program.contents.clone(),
        mode: 0o755,
        version,
    };
    let units = UNITS.map(|(name, text)| Place {
        path: Path::new(DIRECTORY).join(name),
        contents: text.replace(OF_A_PACKAGE, PROGRAM).into(),
        mode: 0o644,
        version,
    });
    // It may be running from there.
    let copy = (program.path != Path::new(PROGRAM)).then_some(copy);
    copy.into_iter().chain(units).collect()
}

/// Only our units and the daemon's program at these places contain the name leasehold. They have no version of their own.
fn version(file: &[u8]) -> Option<String> {
    let word = b"leasehold";
    file.windows(word.len())
        .any(|window| window == word)
        .then(|| env!("CARGO_PKG_VERSION").to_owned())
}

/// Makes systemd read the units, and start them now and at each boot.
pub(super) fn start(out: &mut dyn Write) -> anyhow::Result<()> {
    control(&["daemon-reload"])?;
    // A daemon of an earlier version first: `enable` leaves one alone that runs.
    control(&["try-restart", SERVICE])?;
    let started = control(&[&["enable", "--now"], &STARTED[..]].concat())?;
    let done = if started {
        "enabled and started"
    } else {
        "there is no systemctl: enable it yourself"
    };
    say(out, Path::new(SERVICE), done)
}

/// Stops and disables the daemon. Containers keep their addresses, and the store its leases.
pub(super) fn stop(out: &mut dyn Write) -> anyhow::Result<()> {
    if (are_in(DIRECTORY) || are_in(PACKAGED))
        && control(&[&["disable", "--now"], &STARTED[..]].concat())?
    {
        control(&["disable", EXPORTER])?;
        control(&["stop", "leasehold-exporter@*.service"])?;
        say(
            out,
            Path::new(SERVICE),
            "stopped; running containers keep their addresses until their leases end",
        )?;
    }
    Ok(())
}

/// Makes systemd forget units whose files are gone.
pub(super) fn forget() -> anyhow::Result<()> {
    control(&["daemon-reload"]).map(drop)
}

fn are_in(directory: &str) -> bool {
    UNITS
        .iter()
        .any(|(name, _)| Path::new(directory).join(name).exists())
}

/// Returns whether there is a systemctl to run.
fn control(args: &[&str]) -> anyhow::Result<bool> {
    let args: Vec<&OsStr> = args.iter().map(|arg| OsStr::new(*arg)).collect();
    Ok(run("systemctl", &args)?.is_some())
}
