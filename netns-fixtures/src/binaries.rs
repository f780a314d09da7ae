//! The binaries of this workspace: the daemon and the shim, as a runtime and an operator meet them.

use std::env;
use std::path::{Path, PathBuf};

use crate::error::{Doing, Error};

/// Returns the path of a binary of this workspace, built in the same profile as the running executable.
///
/// # Errors
/// [`Error::NotBuilt`] when it is not there.
pub fn binary(name: &str) -> Result<PathBuf, Error> {
    let own = env::current_exe().doing(|| "find this executable".to_owned())?;
    // target/TRIPLE/debug/deps/test-hash, or target/TRIPLE/debug/demo.
    let mut dirs = own.ancestors().skip(1).take(2);
    let built = dirs.by_ref().map(|dir| dir.join(name)).find(|path| path.is_file());
    built.ok_or_else(|| Error::NotBuilt(own.parent().unwrap_or(Path::new("/")).join(name)))
}
