//! What a test needs and a machine may lack.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::sandbox::Sandbox;

/// Something a test needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A program in the search path.
    Program(&'static str),
    /// A statically linked program in the search path.
    StaticProgram(&'static str),
    /// A file at a fixed place.
    File(&'static str),
    /// Something that a script installs: the need is met when the script has succeeded. Its path starts at the root of this
    /// workspace.
    Installed(&'static str),
    /// The machine's root, not that of a user namespace.
    RealRoot,
}

impl Need {
    /// Returns whether the need is met.
    pub fn is_met(self) -> bool {
        match self {
            Self::Program(name) => Self::program(name).is_some(),
            Self::StaticProgram(name) => Self::program(name).is_some_and(|file| is_static(&file)),
            Self::File(path) => Path::new(path).exists(),
            Self::Installed(script) => {
                let script = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(script);
                Command::new(script)
                    .output()
                    .is_ok_and(|output| output.status.success())
            }
            Self::RealRoot => is_real_root(),
        }
    }

    /// Returns where a program is: in the search path, or among the system's own.
    pub(crate) fn program(name: &str) -> Option<PathBuf> {
        let path = std::env::var_os("PATH")?;
        let sbin = ["/usr/sbin", "/sbin"].map(PathBuf::from);
        std::env::split_paths(&path)
            .chain(sbin)
            .map(|dir| dir.join(name))
            .find(|file| file.is_file())
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(name) => write!(f, "the program {name}"),
            Self::StaticProgram(name) => write!(f, "the program {name}, statically linked"),
            Self::File(path) => f.write_str(path),
            Self::Installed(script) => write!(f, "what {script} installs"),
            Self::RealRoot => f.write_str("root outside any user namespace"),
        }
    }
}

/// Returns whether all needs are met. Otherwise prints which are not: the test should return, and counts as skipped. If the
/// environment has `LEASEHOLD_SKIPS`, a line is added to the file that it names.
///
/// # Panics
/// If a need is not met and `CI` is `true`, where a skip is a failure.
pub fn are_met(needs: &[Need]) -> bool {
    let missing: Vec<_> = needs
        .iter()
        .filter(|need| !need.is_met())
        .map(Need::to_string)
        .collect();
    if !missing.is_empty() {
        skip(&missing.join(" and "));
    }
    missing.is_empty()
}

/// Enters a sandbox if all needs are met. Otherwise returns `None`, and the test is skipped as by [`are_met`].
///
/// # Panics
/// As [`are_met`]; or if namespaces cannot be made although they are allowed.
pub fn sandbox(needs: &[Need]) -> Option<Sandbox> {
    if !are_met(needs) {
        return None;
    }
    match Sandbox::enter() {
        Ok(sandbox) => Some(sandbox),
        Err(error @ Error::NotAllowed(_)) => {
            skip(&format!("the right to make namespaces ({error})"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Enters a namespace of the test's own, or returns from a test that lacks one of its needs.
#[macro_export]
macro_rules! sandbox {
    ($needs:expr) => {
        match $crate::sandbox($needs) {
            Some(sandbox) => sandbox,
            None => return Ok(()),
        }
    };
}

fn skip(missing: &str) {
    let thread = std::thread::current();
    let line = format!(
        "skipped: {} needs {missing}",
        thread.name().unwrap_or("a test")
    );
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "{line}; on CI a skip is a failure"
    );
    eprintln!("{line}");
    if let Some(path) = std::env::var_os("LEASEHOLD_SKIPS") {
        let file = OpenOptions::new().append(true).create(true).open(path);
        // The line was printed as well; the count is a convenience.
        let _ = file.and_then(|mut file| writeln!(file, "{line}"));
    }
}

/// Returns whether a program is static: a dynamic executable names its loader near its beginning (`PT_INTERP`).
fn is_static(program: &Path) -> bool {
    let mut start = [0; 4096];
    let read = File::open(program).and_then(|mut file| file.read(&mut start));
    read.is_ok_and(|length| !start[..length].windows(4).any(|bytes| bytes == b"/ld-"))
}

/// Returns whether this is the machine's root: a user namespace maps fewer than all ids.
fn is_real_root() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    nix::unistd::geteuid().is_root() && map.split_whitespace().eq(["0", "0", "4294967295"])
}
