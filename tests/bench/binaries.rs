//! What is measured: our release build, and Debian's plugin.

use std::env;
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// The plugin and daemon of Debian's package containernetworking-plugins.
const INCUMBENT: &str = "/usr/lib/cni/dhcp";

/// The programs of both sides.
#[derive(Debug)]
pub(crate) struct Binaries {
    /// Our daemon.
    pub(crate) daemon: PathBuf,
    /// Our shim.
    pub(crate) shim: PathBuf,
    /// The incumbent, daemon and plugin in one.
    pub(crate) incumbent: PathBuf,
    /// The build's output directory, which is on a disk, like a store.
    dir: PathBuf,
}

impl Binaries {
    /// Builds our programs and finds the incumbent.
    pub(crate) fn build() -> Result<Self, Box<dyn Error>> {
        let incumbent = PathBuf::from(INCUMBENT);
        if !incumbent.is_file() {
            return Err(format!(
                "{INCUMBENT} is not there: install Debian's containernetworking-plugins"
            )
            .into());
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .unwrap_or(Path::new("."));
        let cargo = env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
        let packages = ["--package", "leasehold", "--package", "leasehold-shim"];
        let status = Command::new(cargo)
            .current_dir(root)
            .args(["build", "--release"])
            .args(packages)
            .status()?;
        if !status.success() {
            return Err(format!("cargo build ended with {status}").into());
        }
        // This program is target/TRIPLE/PROFILE/bench.
        let own = env::current_exe()?;
        let dir = own
            .ancestors()
            .nth(2)
            .ok_or("this program lies nowhere")?
            .to_owned();
        let release = dir.join("release");
        Ok(Self {
            daemon: release.join("leasehold"),
            shim: release.join("dhcp"),
            incumbent,
            dir,
        })
    }

    /// Makes an empty directory for a daemon's store.
    pub(crate) fn state_dir(&self) -> io::Result<TempDir> {
        TempDir::with_prefix_in("bench-", &self.dir)
    }
}

/// Returns the size of a file in bytes.
pub(crate) fn size(path: &Path) -> io::Result<u64> {
    fs::metadata(path).map(|file| file.len())
}
