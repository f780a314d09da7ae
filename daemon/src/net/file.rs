//! Opening files as the host sees them, and what each is: a namespace, something in `/proc`, or a file on which a namespace may be
//! mounted elsewhere.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::sys::statfs::{NSFS_MAGIC, PROC_SUPER_MAGIC, fstatfs};

/// How many files of a directory are looked at for a namespace: a runtime's directory has little else.
const MOST: usize = 256;

/// Returns whether this is the root of a proc file system, not the directory that one is mounted on.
pub(super) fn is_proc<F: AsFd>(directory: &F) -> bool {
    fstatfs(directory).is_ok_and(|stat| stat.filesystem_type() == PROC_SUPER_MAGIC)
}

/// Returns whether it is an empty file on a file system, not something in `/proc` and not a namespace.
pub(super) fn is_bare(file: &OwnedFd) -> bool {
    let is_regular = |mode| SFlag::from_bits_truncate(mode) & SFlag::S_IFMT == SFlag::S_IFREG;
    fstat(file).is_ok_and(|found| is_regular(found.st_mode) && found.st_size == 0)
        && fstatfs(file)
            .is_ok_and(|fs| ![NSFS_MAGIC, PROC_SUPER_MAGIC].contains(&fs.filesystem_type()))
}

/// Opens `relative` as if `prefix` were the root directory, absolute symbolic links included: on most hosts `/var/run`
/// is one.
///
/// In that mode the kernel follows no magic link (EXDEV), and `/proc/<pid>/ns/net` is one. Such a path is opened as it reads,
/// which is right because it contains no other link.
pub(super) fn open_under(prefix: &Path, relative: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let root = open(
        prefix,
        OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    let how = OpenHow::new()
        .flags(flags)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT);
    match openat2(root, relative, how) {
        Err(Errno::EXDEV | Errno::ENOSYS) => open(&prefix.join(relative), flags, Mode::empty()),
        opened => opened,
    }
}

/// Returns whether one of these files is a namespace.
pub(super) fn shows_namespace(
    files: &[PathBuf],
    open: impl Fn(&Path, OFlag) -> nix::Result<OwnedFd>,
) -> bool {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let is_one = |path: &PathBuf| {
        let on = open(path, flags).and_then(|file| fstatfs(&file));
        on.is_ok_and(|on| on.filesystem_type() == NSFS_MAGIC)
    };
    files.iter().take(MOST).any(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_told_from_other_files() {
        let shows = |files: &[&str]| {
            let files: Vec<_> = files.iter().map(PathBuf::from).collect();
            // A mount of a namespace has no link to follow.
            shows_namespace(&files, |path, flags| {
                open(path, flags - OFlag::O_NOFOLLOW, Mode::empty())
            })
        };
        assert!(shows(&["/nowhere", "/etc", "/proc/self/ns/net"]));
        assert!(!shows(&["/nowhere", "/etc", "/proc/self"]));
    }
}
