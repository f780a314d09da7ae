//! Control groups, which no sandbox hides.

use std::fs;
use std::path::{Path, PathBuf};

/// Removes a control group, named from the root, and the groups in it, whatever controllers it has. Returns whether none is left:
/// a group in use stays.
pub(crate) fn remove(name: &str) -> bool {
    let controllers = fs::read_dir("/sys/fs/cgroup")
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let roots = controllers
        .map(|entry| entry.path())
        .chain([PathBuf::from("/sys/fs/cgroup")]);
    let groups = roots
        .map(|root| root.join(name))
        .filter(|group| group.is_dir());
    groups.filter(|group| remove_all(group).is_err()).count() == 0
}

fn remove_all(group: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(group)?.filter_map(Result::ok) {
        if entry.file_type()?.is_dir() {
            remove_all(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}
