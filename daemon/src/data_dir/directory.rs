//! The directory of one network: its lock, its files.

use std::fs::{self, DirBuilder, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use leasehold_api::cni::{File, Holder};
use leasehold_core::effect::FileCause;
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};

use super::wish::{Act, Wish};
use crate::cni_cache::on_host;

/// The name of host-local's lock.
const LOCK: &str = "lock";
/// The pause between two tries to lock.
const PAUSE: Duration = Duration::from_millis(2);
/// The most files that are read of a directory.
const MAX_FILES: usize = 1 << 17;
/// The longest contents that are read of a file, in bytes.
const MAX_FILE: u64 = 512;

/// A network's directory, locked while this lives, if it could be.
pub(super) struct Directory {
    /// As it is named.
    named: PathBuf,
    /// As this process sees it.
    path: PathBuf,
    lock: Result<fs::File, Unlocked>,
}

/// Why a directory is not locked.
#[derive(Debug, thiserror::Error)]
enum Unlocked {
    /// It is not there.
    #[error("{0}")]
    Missing(io::Error),
    #[error("somebody has had it locked for {0:?}")]
    Held(Duration),
    #[error("cannot lock it: {0}")]
    Failed(#[from] io::Error),
}

impl Directory {
    /// Opens a directory, and locks it. If it is locked already, waits for at most `patience`.
    pub(super) fn open(named: &Path, host_prefix: &Path, patience: Duration) -> Self {
        let path = on_host(host_prefix, named);
        let lock = lock(&path, patience);
        Self { named: named.to_owned(), path, lock }
    }

    /// Returns how it is named.
    pub(super) fn name(&self) -> &Path {
        &self.named
    }

    /// Returns whether it is this one.
    pub(super) fn is(&self, named: &Path) -> bool {
        self.named == named
    }

    /// Has the file of an address be as it should: see [`Wish::act`].
    pub(super) fn follow(&mut self, address: IpAddr, wish: &Wish, is_given: bool) -> Result<(), FileCause> {
        if matches!(self.lock, Err(Unlocked::Missing(_))) {
            if wish.wanted().is_none() {
                return Ok(());
            }
            self.lock = make_dirs(&self.path).map_err(Unlocked::Failed).and_then(|()| lock(&self.path, Duration::ZERO));
        }
        match &self.lock {
            Ok(_) => self.act(address, wish, is_given),
            Err(unlocked) => Err(FileCause::Later(unlocked.to_string())),
        }
    }

    fn act(&self, address: IpAddr, wish: &Wish, is_given: bool) -> Result<(), FileCause> {
        let path = self.path.join(address.to_string());
        let later = |error: io::Error| FileCause::Later(error.to_string());
        let there = holder_of(&path).map_err(later)?;
        let act = wish.act(there.as_ref().map(Option::as_ref), is_given);
        if matches!(act, Act::Remove | Act::Replace) {
            fs::remove_file(&path).map_err(later)?;
        }
        match (act, wish.wanted()) {
            (Act::Write | Act::Replace, Some((by, set))) => {
                let taken = File::Taken { address, by: by.clone() };
                write(&path, &taken.contents(), OpenOptions::new().create_new(true)).map_err(later)?;
                let last = File::Last { set: *set, address };
                let path = self.path.join(last.name());
                if let Err(error) = write(&path, &last.contents(), OpenOptions::new().create(true).truncate(true)) {
                    tracing::debug!(path = %path.display(), %error, "the last address given is not written");
                }
                Ok(())
            }
            (Act::Yield, _) => Err(FileCause::Taken(there.flatten().map_or_else(String::new, |by| by.container))),
            (Act::Nothing | Act::Remove | Act::Write | Act::Replace, _) => Ok(()),
        }
    }

    /// Returns what lies there, each file with the time when it was written. A directory that is locked by others is read all
    /// the same.
    pub(super) fn look(&self) -> io::Result<Vec<(File, SystemTime)>> {
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries.take(MAX_FILES) {
            let name = entry?.file_name();
            let Some(name) = name.to_str().filter(|name| *name != LOCK) else { continue };
            let Some((contents, written)) = read(&self.path.join(name))? else { continue };
            found.extend(File::read(name, &contents).map(|file| (file, written)));
        }
        Ok(found)
    }
}

/// Locks a directory as host-local does.
fn lock(path: &Path, patience: Duration) -> Result<fs::File, Unlocked> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK);
    let file = match options.open(path.join(LOCK)) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            match options.write(true).create(true).truncate(false).mode(0o600).open(path.join(LOCK)) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Err(Unlocked::Missing(error)),
                made => made?,
            }
        }
        opened => opened?,
    };
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if began.elapsed() < patience => thread::sleep(PAUSE),
            Err(TryLockError::WouldBlock) => return Err(Unlocked::Held(patience)),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
    }
}

/// Returns whose file it is; nothing if there is none.
fn holder_of(path: &Path) -> io::Result<Option<Option<Holder>>> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some((contents, _)) = read(path)? else { return Ok(None) };
    let by = match File::read(name, &contents) {
        Some(File::Taken { by, .. }) => by,
        Some(File::Last { .. }) | None => None,
    };
    Ok(Some(by))
}

/// Reads the beginning of a file, and when it was written. What is no file has no contents, and is there all the same.
fn read(path: &Path) -> io::Result<Option<(Vec<u8>, SystemTime)>> {
    let opened = OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path);
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

/// Writes a file, or leaves none that was not there before.
fn write(path: &Path, contents: &str, how: &mut OpenOptions) -> io::Result<()> {
    let mut file = how.write(true).mode(0o600).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path)?;
    file.write_all(contents.as_bytes()).inspect_err(|_| {
        // It may not be removable either; the first error is the one to report.
        let _ = fs::remove_file(path);
    })
}

fn make_dirs(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}
