//! One installed file: what is there, putting ours in place, and restoring what was there before.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::{cannot, dpkg};
use crate::small_file;

/// The suffix of a replaced file's name.
const KEPT: &str = ".before-leasehold";

/// Where one of our files goes.
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) contents: Vec<u8>,
    /// Its permissions.
    pub(super) mode: u32,
    /// Returns the version of a file's contents, if they are ours.
    pub(super) version: fn(&[u8]) -> Option<String>,
}

/// What is at a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// The file to be put there, with its version.
    Same(String),
    /// Another version of our file.
    Ours(String),
    /// Somebody else's file. A file that a Debian package owns may be diverted: then it is not replaced, only renamed.
    Foreign {
        package: Option<String>,
    },
}

impl Place {
    /// Returns what is there.
    pub(super) fn look(&self) -> anyhow::Result<Found> {
        let file = match fs::metadata(&self.path) {
            // Somebody's, and not to be read: a pipe would never end.
            Ok(found) if !found.is_file() => Vec::new(),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                match fs::symlink_metadata(&self.path) {
                    Err(_) => return Ok(Found::Nothing),
                    // A dangling link belongs to somebody.
                    Ok(_) => Vec::new(),
                }
            }
            _ => fs::read(&self.path).with_context(|| cannot("read", &self.path))?,
        };
        Ok(match (self.version)(&file) {
            Some(version) if file == self.contents => Found::Same(version),
            Some(version) => Found::Ours(version),
            None => Found::Foreign {
                package: dpkg::owner(&self.path)?,
            },
        })
    }

    /// Puts the file there atomically, because somebody may be running the old one, and returns what was done.
    pub(super) fn put(&self, found: &Found) -> anyhow::Result<String> {
        let version = (self.version)(&self.contents).unwrap_or_default();
        let kept = self.kept();
        let done = match found {
            Found::Same(version) => return Ok(format!("is version {version} already")),
            Found::Nothing => format!("installed, version {version}"),
            Found::Ours(before) if *before == version => {
                format!("replaced by another build of version {version}")
            }
            Found::Ours(before) => format!("version {before} replaced by {version}"),
            Found::Foreign { package: None } => {
                format!(
                    "installed, version {version}; the previous file is kept as {}",
                    kept.display()
                )
            }
            Found::Foreign {
                package: Some(package),
            } => format!(
                "installed, version {version}; the file of the package {package} is diverted to {}",
                kept.display()
            ),
        };
        let new = self.write()?;
        if let Found::Foreign { package } = found {
            self.keep(&kept)?;
            if package.is_some() {
                dpkg::divert(&self.path, &kept)?;
            }
        }
        fs::rename(&new, &self.path).with_context(|| cannot("write", &self.path))?;
        let directory = self.directory();
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .with_context(|| cannot("sync", directory))?;
        Ok(done)
    }

    /// Removes the file, puts back what it replaced, and returns what was done.
    pub(super) fn take(&self) -> anyhow::Result<String> {
        let kept = self.kept();
        let done = match fs::rename(&kept, &self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs::remove_file(&self.path).with_context(|| cannot("remove", &self.path))?;
                "removed".to_owned()
            }
            renamed => {
                renamed.with_context(|| cannot("put back", &self.path))?;
                "removed, and the previous file is back".to_owned()
            }
        };
        dpkg::restore(&self.path)?;
        Ok(done)
    }

    fn kept(&self) -> PathBuf {
        with_suffix(&self.path, KEPT)
    }

    /// Gives what is there a second name, so that the first is never missing. A link is kept as a link.
    fn keep(&self, kept: &Path) -> anyhow::Result<()> {
        let new = with_suffix(kept, ".new");
        small_file::remove(&new).with_context(|| cannot("remove", &new))?;
        fs::hard_link(&self.path, &new).with_context(|| cannot("keep", &self.path))?;
        fs::rename(&new, kept).with_context(|| cannot("write", kept))
    }

    /// Writes the file beside its place, whole or not at all, and returns its path.
    fn write(&self) -> anyhow::Result<PathBuf> {
        let new = with_suffix(&self.path, ".leasehold-new");
        let directory = self.directory();
        fs::create_dir_all(directory).with_context(|| cannot("make", directory))?;
        small_file::remove(&new).with_context(|| cannot("remove", &new))?;
        small_file::write_new(&new, self.mode, &self.contents, true)
            .with_context(|| cannot("write", &new))?;
        Ok(new)
    }

    pub(super) fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
