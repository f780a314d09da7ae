//! Debian 13, on a machine that runs something else.
//!
//! Its root directory is made once, under the target directory, by a script that downloads what is in it: systemd, Docker 26.1
//! with Compose 2.26, containerd 1.7, CNI's plugins, and Rust 1.85. Nobody writes there.
//!
//! * [`Debian13::host`] is for one program of it, or an engine: `Dockerd::start(&Debian13::host(&lan.host)?)` runs that Docker on
//!   a host, as `Dockerd::start(&lan.host)` runs the machine's.
//! * [`crate::Systemd::debian`] boots it, with systemd, on files of its own: for packages.
//!
//! A test that uses it names [`Debian13::NEED`]. `tests/run` makes it before the tests; whoever runs one test alone waits two
//! minutes, or runs `netns-fixtures/src/debian-13` first.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Doing, Error};
use crate::need::Need;
use crate::netns::Netns;

/// What makes it, and prints where it is, from the root of this workspace.
const SCRIPT: &str = "netns-fixtures/src/debian-13";

/// Makes the directory `$ROOT` the root of what runs here, read-only, with the kernel's file systems and the sandbox's `/run`.
const ENTER: &str = r#"
    mount --bind "$ROOT" "$ROOT"
    cd "$ROOT"
    mount --rbind /dev dev
    mount --rbind /sys sys
    mount --rbind /run run
    mount -t proc proc proc
    mount -t tmpfs none tmp
    pivot_root . mnt
    cd /
    umount --lazy /mnt
    mount -o remount,bind,ro /"#;

/// Debian 13, as debootstrap makes it.
#[derive(Debug)]
pub struct Debian13;

impl Debian13 {
    /// What it takes to have it: root and debootstrap, and the first time Debian's mirror.
    pub const NEED: Need = Need::Installed(SCRIPT);

    /// Returns its root directory.
    pub fn root() -> Result<PathBuf, Error> {
        let output =
            Command::new(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(SCRIPT))
                .output();
        let output = output.doing(|| format!("run {SCRIPT}"))?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().into())
    }

    /// Returns a host for processes that have it as their root directory. They see the sandbox's `/run`, and there alone they can
    /// write, and in a `/tmp` of their own. The machine's other files, such as what is built here, are not there: put a copy into
    /// a [`crate::Sandbox::dir`].
    pub fn host(host: &Netns) -> Result<Netns, Error> {
        let prepare = ENTER.replace("$ROOT", &Self::root()?.to_string_lossy());
        Ok(host.within(host.sandbox().nested(&prepare)?))
    }
}
