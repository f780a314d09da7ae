//! The directory of one network, and its files.
//!
//! host-local locks the directory (`lock`) while it reads all files there. Nobody may wait for that here. Both create a file only
//! if there is none (`O_EXCL`), and that alone keeps an address from being given twice.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use leasehold_api::cni::{File, Holder};
use leasehold_core::effect::FileCause;
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};

use super::wish::{Act, Wish};
use crate::cni_cache::on_host;

/// The most files that are read in a directory.
const MAX_FILES: usize = 1 << 17;
/// The longest contents that are read of a file, in bytes.
const MAX_FILE: u64 = 512;

/// A network's directory.
pub(super) struct Directory {
    /// As it is named.
    named: PathBuf,
    /// As this process sees it.
    path: PathBuf,
}

impl Directory {
    pub(super) fn new(named: PathBuf, host_prefix: &Path) -> Self {
        let path = on_host(host_prefix, &named);
        Self { named, path }
    }

    /// Returns how it is named.
    pub(super) fn name(&self) -> &Path {
        &self.named
    }

    /// Makes an address's file what it should be (see [`Wish::act`]).
    pub(super) fn follow(
        &self,
        address: IpAddr,
        wish: &Wish,
        is_given: bool,
    ) -> Result<(), FileCause> {
        let path = self.path.join(address.to_string());
        let later = |error: io::Error| FileCause::Later(error.to_string());
        let there = holder_of(&path).map_err(later)?;
        let act = wish.act(there.as_ref().map(Option::as_ref), is_given);
        if matches!(act, Act::Remove | Act::Replace) {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(later(error)),
                _ => {}
            }
        }
        match (act, wish.wanted()) {
            (Act::Write | Act::Replace, Some((by, set))) => {
                let taken = File::Taken {
                    address,
                    by: by.clone(),
                };
                let mut written = write(
                    &path,
                    &taken.contents(),
                    OpenOptions::new().create_new(true),
                );
                if written
                    .as_ref()
                    .is_err_and(|error| error.kind() == ErrorKind::NotFound)
                {
                    make_dirs(&self.path).map_err(later)?;
                    written = write(
                        &path,
                        &taken.contents(),
                        OpenOptions::new().create_new(true),
                    );
                }
                match written {
                    // It was created after that look.
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                        return Err(FileCause::Taken(
                            holder_of(&path)
                                .ok()
                                .flatten()
                                .flatten()
                                .map_or_else(String::new, |by| by.container),
                        ));
                    }
                    written => written.map_err(later)?,
                }
                let last = File::Last { set: *set, address };
                let path = self.path.join(last.name());
                if let Err(error) = write(
                    &path,
                    &last.contents(),
                    OpenOptions::new().create(true).truncate(true),
                ) {
                    tracing::debug!(path = %path.display(), %error, "cannot write down the last address given");
                }
                Ok(())
            }
            (Act::Yield, _) => Err(FileCause::Taken(
                there.flatten().map_or_else(String::new, |by| by.container),
            )),
            (Act::Nothing | Act::Remove | Act::Write | Act::Replace, _) => Ok(()),
        }
    }

    /// Returns the files, each with the time when it was written.
    pub(super) fn look(&self) -> io::Result<Vec<(File, SystemTime)>> {
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries.take(MAX_FILES) {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            let Some((contents, written)) = read(&self.path.join(name))? else {
                continue;
            };
            found.extend(File::read(name, &contents).map(|file| (file, written)));
        }
        Ok(found)
    }
}

/// Returns whose file it is, or nothing if there is none.
fn holder_of(path: &Path) -> io::Result<Option<Option<Holder>>> {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let Some((contents, _)) = read(path)? else {
        return Ok(None);
    };
    let by = match File::read(name, &contents) {
        Some(File::Taken { by, .. }) => by,
        Some(File::Last { .. }) | None => None,
    };
    Ok(Some(by))
}

/// Reads the beginning of a file, and when it was written. Anything but a file counts as a file without contents.
fn read(path: &Path) -> io::Result<Option<(Vec<u8>, SystemTime)>> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(O_NOFOLLOW | O_NONBLOCK)
        .open(path);
    let mut contents = Vec::new();
    match opened {
        Ok(file) => {
            let metadata = file.metadata()?;
            if metadata.is_file() {
                file.take(MAX_FILE).read_to_end(&mut contents)?;
            }
            Ok(Some((contents, metadata.modified()?)))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => match fs::symlink_metadata(path) {
            Ok(other) if !other.is_file() => Ok(Some((contents, other.modified()?))),
            _ => Err(error),
        },
    }
}

/// Writes a file. A failure leaves no file that was not there before.
fn write(path: &Path, contents: &str, how: &mut OpenOptions) -> io::Result<()> {
    let mut file = how
        .write(true)
        .mode(0o600)
        .custom_flags(O_NOFOLLOW | O_NONBLOCK)
        .open(path)?;
    file.write_all(contents.as_bytes()).inspect_err(|_| {
        // It may not be removable either; the first error is the one to report.
        let _ = fs::remove_file(path);
    })
}

fn make_dirs(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}
