//! The binaries of this workspace: the daemon and the shim, as a runtime and an operator use them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Doing, Error};

/// Returns the path of a binary of this workspace, built in the same profile as the running executable.
///
/// # Errors
/// [`Error::NotBuilt`] if it is missing.
pub fn binary(name: &str) -> Result<PathBuf, Error> {
    let own = env::current_exe().doing(|| "find this executable".to_owned())?;
    // target/TRIPLE/debug/deps/test-hash, or target/TRIPLE/debug/demo.
    let mut dirs = own.ancestors().skip(1).take(2);
    let built = dirs
        .by_ref()
        .map(|dir| dir.join(name))
        .find(|path| path.is_file());
    built.ok_or_else(|| Error::NotBuilt(own.parent().unwrap_or(Path::new("/")).join(name)))
}

/// Builds the daemon and the shim into the directory of the program that calls it.
///
/// # Errors
/// [`Error::Failed`] if cargo does.
pub fn build() -> Result<(), Error> {
    let cargo = env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    let mut command = Command::new(cargo);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command.args("build --package leasehold --package leasehold-shim".split(' '));
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    match command.status().doing(|| "run cargo".to_owned())? {
        status if status.success() => Ok(()),
        status => Err(Error::Failed {
            command: "cargo build".to_owned(),
            status,
            said: "see above".to_owned(),
        }),
    }
}
