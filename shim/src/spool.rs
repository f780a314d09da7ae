//! Keeps a DEL for a daemon that is down. `leasehold_api::spool` defines the file's name and content.
//!
//! A network configuration says where the file goes, and whoever may write a configuration is not always root, as this program
//! is. So only the default directory is ever made; any other must exist and belong to root. Everything there is done through the
//! directory that was checked.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process;

use leasehold_api::cni::Request;
use leasehold_api::{DEFAULT_SOCKET, spool, to_json};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{UnlinkatFlags, fsync, geteuid, unlinkat};

/// A DEL that is kept.
pub(crate) struct Kept {
    directory: Dir,
    /// Its file.
    pub(crate) path: PathBuf,
}

/// Keeps a DEL for the daemon at `socket`. Its file appears there whole and durable, or not at all.
pub(crate) fn keep(socket: &Path, request: &Request) -> io::Result<Kept> {
    let del = spool::del(request).ok_or_else(|| io::Error::other("it names no attachment"))?;
    let mut directory = open_directory(socket, Path::new(DEFAULT_SOCKET))?;
    // Concurrent callers may exceed the limit by one each.
    if directory.iter().take(spool::MAX_CALLS).count() == spool::MAX_CALLS {
        let full = format!("{} files are there already", spool::MAX_CALLS);
        return Err(io::Error::other(full));
    }
    let path = spool::path(socket, &del);
    let unfinished = spool::unfinished(socket, &del, process::id());
    let written = write(&directory, name(&unfinished), to_json(&del).as_bytes()).and_then(|()| {
        Ok(renameat(
            &directory,
            name(&unfinished),
            &directory,
            name(&path),
        )?)
    });
    if written.is_err() {
        // It may not be there; the first error is the one to report.
        let _ = remove(&directory, name(&unfinished));
    }
    written?;
    fsync(&directory)?;
    Ok(Kept { directory, path })
}

/// Opens the directory of `socket`. The directory of the `default` socket is made if it is missing.
fn open_directory(socket: &Path, default: &Path) -> io::Result<Dir> {
    let path = socket
        .parent()
        .filter(|path| !path.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let unusable =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    if Some(path) == default.parent()
        && let Err(error) = DirBuilder::new().mode(0o700).create(path)
        && error.kind() != ErrorKind::AlreadyExists
    {
        return Err(unusable(error));
    }
    // Opens the directory itself, not a link that somebody could redirect, and uses the same directory that it checks.
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let opened = Dir::open(path, flags, Mode::empty())
        .and_then(|directory| Ok((fstat(&directory)?, directory)));
    let (found, directory) = opened.map_err(|errno| unusable(errno.into()))?;
    let ours = is_roots(found.st_uid, found.st_mode, geteuid().as_raw());
    if ours {
        Ok(directory)
    } else {
        let why = "does not belong to root, or others may write there";
        Err(io::Error::other(format!("{} {why}", path.display())))
    }
}

/// Returns whether only root, or the user `me` that this runs as, may write in a directory.
fn is_roots(owner: u32, mode: u32, me: u32) -> bool {
    let for_others = Mode::S_IWGRP | Mode::S_IWOTH;
    [0, me].contains(&owner) && !Mode::from_bits_truncate(mode).intersects(for_others)
}

fn name(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

fn write(directory: &Dir, name: &OsStr, body: &[u8]) -> io::Result<()> {
    // The file was left by a process with the same id that was killed.
    remove(directory, name)?;
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    let mut file = File::from(openat(
        directory,
        name,
        flags,
        Mode::S_IRUSR | Mode::S_IWUSR,
    )?);
    file.write_all(body)?;
    file.sync_all()
}

/// Removes a file that may not be there.
fn remove(directory: &Dir, name: &OsStr) -> nix::Result<()> {
    match unlinkat(directory, name, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::ENOENT) => Ok(()),
        removed => removed,
    }
}

impl Kept {
    /// Removes the file of a call that was answered. The daemon may have removed it first.
    pub(crate) fn forget(&self) {
        if let Err(error) = remove(&self.directory, name(&self.path)) {
            eprintln!("dhcp: cannot remove {}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn only_the_default_directory_is_made() {
        let run = tempfile::tempdir().unwrap();
        let default = run.path().join("cni/dhcp.sock");
        for other in ["etc/dhcp.sock", "cni/deeper/dhcp.sock"] {
            let refused = open_directory(&run.path().join(other), &default);
            assert!(refused.is_err(), "{other}");
        }
        assert_eq!(fs::read_dir(run.path()).unwrap().count(), 0);
        for _ in 0..2 {
            open_directory(&default, &default).unwrap();
            assert_eq!(mode(&run.path().join("cni")), 0o700);
        }
        let deep = run.path().join("no/run/cni/dhcp.sock");
        assert!(open_directory(&deep, &deep).is_err());
        assert!(!run.path().join("no").exists());
    }

    #[test]
    fn a_directory_that_others_may_write_in_is_no_spool() {
        let table = [
            (0, 0o40755, 0, true),
            (0, 0o40700, 1000, true),
            (1000, 0o40700, 1000, true),
            (1000, 0o40700, 0, false),
            (0, 0o40775, 0, false),
            (0, 0o40757, 0, false),
            (0, 0o41777, 0, false),
        ];
        for (owner, mode, me, expected) in table {
            assert_eq!(is_roots(owner, mode, me), expected, "{owner} {mode:o}");
        }
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("dhcp.sock");
        for default in [Path::new(DEFAULT_SOCKET), &socket] {
            assert!(open_directory(&socket, default).is_ok());
        }
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
        for default in [Path::new(DEFAULT_SOCKET), &socket] {
            let refused = open_directory(&socket, default).unwrap_err().to_string();
            assert!(refused.contains("does not belong to root"), "{refused}");
        }
        assert_eq!(mode(place.path()), 0o777);
    }

    #[test]
    fn a_link_to_a_directory_is_no_spool() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("real")).unwrap();
        symlink("real", place.path().join("link")).unwrap();
        let open = |name: &str| {
            open_directory(
                &place.path().join(name).join("dhcp.sock"),
                Path::new(DEFAULT_SOCKET),
            )
        };
        assert!(open("real").is_ok());
        assert!(open("link").is_err());
    }
}
