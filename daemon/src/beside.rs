//! The directory of the control socket: whether what lies there beside it can be believed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::geteuid;

/// What to do about a directory in which others may write, for warnings.
pub(crate) const REMEDY: &str =
    "others may write in its directory: give that to root, and run `chmod go-w` on it";

pub(crate) fn directory(path: &Path) -> &Path {
    let parent = path.parent().filter(|path| !path.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Returns whether only root and this user may write in a directory. Whatever is in another could be from anybody, and end leases.
pub(crate) fn is_trusted(directory: &Path) -> bool {
    const OF_OTHERS: u32 = 0o022;
    // Of one that cannot be looked at, nothing can be read either.
    fs::metadata(directory).map_or(true, |found| {
        [0, geteuid().as_raw()].contains(&found.uid()) && found.mode() & OF_OTHERS == 0
    })
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_directory_that_others_may_write_is_not_trusted() {
        let dir = TempDir::new().unwrap();
        for (mode, trusted) in [
            (0o700, true),
            (0o755, true),
            (0o711, true),
            (0o775, false),
            (0o777, false),
            (0o1777, false),
        ] {
            fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_trusted(dir.path()), trusted, "{mode:o}");
        }
        assert_eq!(directory(Path::new("dhcp.sock")), Path::new("."));
    }
}
