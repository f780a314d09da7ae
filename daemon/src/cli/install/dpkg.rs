//! Files that Debian packages own: they are diverted, so that an upgrade of the package writes beside our file instead of over
//! it.

use std::ffi::OsStr;
use std::path::Path;

use super::run;

/// Returns the package that owns a file; `None` on hosts without dpkg.
pub(super) fn owner(path: &Path) -> anyhow::Result<Option<String>> {
    // It also fails if nobody owns the file.
    let Ok(Some(said)) = run("dpkg-query", &["--search".as_ref(), path.as_os_str()]) else {
        return Ok(None);
    };
    let owners = said
        .lines()
        .filter(|line| !line.starts_with("diversion "))
        .filter_map(|line| line.split_once(": "));
    Ok(owners.map(|(package, _)| package.to_owned()).next())
}

/// Makes packages that contain the file write it as `kept` from now on. The files themselves are not touched.
pub(super) fn divert(path: &Path, kept: &Path) -> anyhow::Result<()> {
    let how = ["--quiet", "--local", "--no-rename", "--divert"].map(OsStr::new);
    run(
        "dpkg-divert",
        &[
            &how[..],
            &[kept.as_os_str(), "--add".as_ref(), path.as_os_str()],
        ]
        .concat(),
    )
    .map(drop)
}

/// Makes packages write the file under its own name again.
pub(super) fn restore(path: &Path) -> anyhow::Result<()> {
    let diverted = run("dpkg-divert", &["--list".as_ref(), path.as_os_str()])?;
    if diverted.unwrap_or_default().is_empty() {
        return Ok(());
    }
    let how = ["--quiet", "--local", "--no-rename", "--remove"].map(OsStr::new);
    run("dpkg-divert", &[&how[..], &[path.as_os_str()]].concat()).map(drop)
}
