//! The file with the daemon's process id, for service managers that want one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use crate::cannot::Cannot;
use crate::small_file;

/// Longer than any process id.
const LONGEST: usize = 32;

/// A file that holds this process's id.
#[derive(Debug)]
pub(crate) struct PidFile(PathBuf);

impl PidFile {
    /// Writes only the process id, without a newline, as the incumbent does. Replaces what was there; follows no link.
    pub(crate) fn write(path: &Path) -> Result<Self, Cannot> {
        let id = process::id().to_string();
        let written = small_file::write(path, 0o644, id.as_bytes(), false);
        written.map_err(Cannot::with("write the process id to", path))?;
        Ok(Self(path.to_owned()))
    }

    /// Removes the file, unless it belongs to another process by now.
    pub(crate) fn remove(self) {
        let is_ours = small_file::read(&self.0, LONGEST)
            .is_ok_and(|text| text == process::id().to_string().as_bytes());
        if is_ours && let Err(error) = fs::remove_file(&self.0) {
            tracing::warn!(file = %self.0.display(), %error, "cannot remove the file with the process id");
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_link_is_replaced_and_not_followed() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("pid");
        let precious = dir.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        std::os::unix::fs::symlink(&precious, &path).unwrap();
        PidFile::write(&path).unwrap().remove();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        assert!(!path.exists());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn another_process_s_file_is_left() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("pid");
        let file = PidFile::write(&path).unwrap();
        fs::write(&path, "1").unwrap();
        file.remove();
        assert_eq!(fs::read_to_string(&path).unwrap(), "1");
    }

    #[test]
    fn a_path_that_leads_nowhere_is_named() {
        let error = PidFile::write(Path::new("/nowhere/pid")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/pid"), "{error}");
    }
}
