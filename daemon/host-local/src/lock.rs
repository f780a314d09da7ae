//! host-local's lock: an exclusive lock of the file `lock` in the network's directory (flock(2)).

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A lock that others have, as the kernel's list of locks identifies it.
#[derive(Clone, Debug)]
pub struct Awaited {
    pub(crate) path: PathBuf,
    ino: u64,
}

impl Awaited {
    pub(crate) fn new(path: &Path, file: &File) -> Self {
        Self {
            path: path.to_owned(),
            ino: file.metadata().map(|found| found.ino()).unwrap_or_default(),
        }
    }

    /// Returns who holds the lock, for messages.
    pub(crate) fn holder(&self) -> String {
        let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
        let Some(pid) = holder(&locks, self.ino) else {
            return "a process that cannot be seen from here".to_owned();
        };
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        match name.trim() {
            "" => format!("process {pid}"),
            name => format!("process {pid} ({name})"),
        }
    }
}

/// Finds the process that has a file of this inode locked as a whole (proc_locks(5)). Waiting ones are marked by an arrow.
fn holder(locks: &str, ino: u64) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let [kind, _, _, pid, file] = [(); 5].map(|()| words.next());
        let (_, of) = file?.rsplit_once(':')?;
        let is_it = kind == Some("FLOCK") && of.parse() == Ok(ino);
        pid?.parse().ok().filter(|pid| is_it && *pid != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fd:00:77 0 EOF\n2: FLOCK  ADVISORY  WRITE 12 fd:00:76 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 13 fd:00:77 0 EOF\n3: -> FLOCK  ADVISORY  WRITE 14 fd:00:77 0 EOF\n";
        assert_eq!(holder(locks, 77), Some(13));
        assert_eq!(holder(locks, 78), None);
        assert_eq!(holder("4: FLOCK ADVISORY WRITE 0 00:30:9 0 EOF", 9), None);
    }
}
