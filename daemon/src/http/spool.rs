//! Carries out the DELs that shims left beside the socket while no daemon answered. Looks at the start and also later, because
//! the socket's file may vanish, or a shim may have given up just before the start.
//!
//! `leasehold_api::spool` defines the names. Whatever is in a directory in which others may write is left alone. Nothing there can
//! keep the daemon from starting: a file that is not a DEL is set aside for an operator to find, and the oldest of these files
//! are eventually deleted.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold_api::cni::Request;
use leasehold_api::{MAX_BODY, spool};
use leasehold_core::effect::{Answer, Call};
use tracing::{debug, info, warn};

use super::add::Site;
use super::cni::Asked;
use crate::{beside, small_file};

/// How long a failed call waits before it is tried again.
const REST: Duration = Duration::from_secs(60);

/// The most unreadable files kept for an operator to look at.
const MAX_SET_ASIDE: usize = 64;

/// A shim writes its file in milliseconds: the writer of an unfinished file of this age is gone.
const ABANDONED: Duration = Duration::from_secs(60);

/// Why a spooled file is not a DEL.
#[derive(Debug, thiserror::Error)]
enum Unreadable {
    /// The file could not be opened or read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Not what a shim writes.
    #[error("not a request: {0}")]
    NotARequest(#[from] serde_json::Error),
    /// A request that cannot be understood.
    #[error("{0}")]
    Refused(String),
    /// Another verb.
    #[error("not a DEL")]
    NotADel,
}

/// The spool of one socket, and the progress of its calls.
#[derive(Debug)]
pub(crate) struct Spool {
    socket: PathBuf,
    /// The files under way or waiting: when to try each again, `None` while it is under way.
    taken: HashMap<PathBuf, Option<Instant>>,
    /// Whether the directory could not be read last time.
    blind: bool,
    /// Whether a warning has said that calls are left alone because others may write in the directory.
    distrusts: bool,
}

impl Spool {
    /// Returns the spool beside `socket`.
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self {
            socket,
            taken: HashMap::new(),
            blind: false,
            distrusts: false,
        }
    }

    /// Returns the calls that are there, each with its file, in the order of the files' names.
    ///
    /// The caller ends each with [`Self::done`]. Whatever is unreadable is set aside with a warning.
    pub(crate) fn take_up(&mut self) -> Vec<(PathBuf, Call)> {
        let now = Instant::now();
        self.taken
            .retain(|_, again| again.is_none_or(|again| now < again));
        let mut calls = Vec::new();
        let mut set_aside = Vec::new();
        for name in self.names() {
            let path = self.socket.with_file_name(&name);
            match spool::kind(&self.socket, &name) {
                Some(spool::Kind::Call) if self.taken.contains_key(&path) => {}
                Some(spool::Kind::Call) if self.taken.len() >= spool::MAX_CALLS => {
                    debug!(
                        taken = spool::MAX_CALLS,
                        "too many spooled DELs at once: the others come later"
                    );
                    break;
                }
                Some(spool::Kind::Call) => match read(&path) {
                    Ok(call) => {
                        self.taken.insert(path.clone(), None);
                        calls.push((path, call));
                    }
                    Err(cause) => match set_file_aside(&self.socket, &name, &cause) {
                        Some(aside) => set_aside.push(aside),
                        None => drop(self.taken.insert(path, Some(now + REST))),
                    },
                },
                Some(spool::Kind::Unfinished) => remove_abandoned(&path),
                Some(spool::Kind::SetAside) => set_aside.push(path),
                None => {}
            }
        }
        thin_out(set_aside);
        calls
    }

    /// Ends a call: removes its file, unless the call failed; then the call is tried again after a while.
    pub(crate) fn done(&mut self, file: PathBuf, answer: &Answer) {
        if let Answer::Failed(failure) = answer {
            warn!(file = %file.display(), %failure, again = ?REST, "spooled call failed: keeping it");
            self.taken.insert(file, Some(Instant::now() + REST));
            return;
        }
        match std::fs::remove_file(&file) {
            // The shim that left the file has repeated its call.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                warn!(file = %file.display(), %error, "spooled call done, but its file cannot be removed");
                self.taken.insert(file, Some(Instant::now() + REST));
                return;
            }
            Ok(()) => debug!(file = %file.display(), "spooled call done"),
        }
        self.taken.remove(&file);
    }

    /// Returns the sorted names of the spool's files.
    fn names(&mut self) -> Vec<OsString> {
        let directory = beside::directory(&self.socket);
        let found = std::fs::read_dir(directory).map(|entries| {
            let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
            names
                .filter(|name| spool::kind(&self.socket, name).is_some())
                .collect()
        });
        if let Err(error) = &found
            && !self.blind
        {
            warn!(directory = %directory.display(), %error, "cannot look for spooled DELs");
        }
        self.blind = found.is_err();
        let mut names: Vec<_> = found.unwrap_or_default();
        if !names.is_empty() && !beside::is_trusted(directory) {
            if !std::mem::replace(&mut self.distrusts, true) {
                warn!(directory = %directory.display(), files = names.len(), "DELs beside the socket are not believed: {}", beside::REMEDY);
            }
            return Vec::new();
        }
        self.distrusts = false;
        names.sort();
        names
    }
}

fn read(path: &Path) -> Result<Call, Unreadable> {
    let text = small_file::read(path, MAX_BODY)?;
    let request: Request = serde_json::from_slice(&text)?;
    let asked =
        Asked::parse(&request, &Site::default()).map_err(|error| Unreadable::Refused(error.msg))?;
    match asked.call {
        call @ Call::Del { .. } => Ok(call),
        Call::Add(_)
        | Call::Ranges
        | Call::Check { .. }
        | Call::Collect { .. }
        | Call::Status { .. }
        | Call::List
        | Call::Show(_)
        | Call::Order(_)
        | Call::Pool(_)
        | Call::Network(_)
        | Call::Ready => Err(Unreadable::NotADel),
    }
}

/// Renames the file, and returns its new path.
fn set_file_aside(socket: &Path, name: &OsStr, cause: &Unreadable) -> Option<PathBuf> {
    let aside = spool::set_aside(socket, name)?;
    let path = socket.with_file_name(name);
    match std::fs::rename(&path, &aside) {
        Ok(()) => {
            warn!(path = %aside.display(), %cause, "set a spooled call aside: its lease, if any, stays until it expires");
            Some(aside)
        }
        Err(error) => {
            warn!(path = %path.display(), %cause, %error, "cannot read a spooled call or set it aside");
            None
        }
    }
}

/// Removes a file that a killed shim left half-written.
fn remove_abandoned(path: &Path) {
    let age = std::fs::symlink_metadata(path)
        .and_then(|meta| meta.modified())
        .map(|written| written.elapsed());
    if let Ok(Ok(age)) = age
        && age >= ABANDONED
        && std::fs::remove_file(path).is_ok()
    {
        info!(path = %path.display(), "removed an unfinished spool file");
    }
}

/// Removes the unreadable files beyond those that are kept.
fn thin_out(set_aside: Vec<PathBuf>) {
    for path in set_aside.iter().skip(MAX_SET_ASIDE) {
        match std::fs::remove_file(path) {
            Ok(()) => debug!(path = %path.display(), "removed an unreadable spooled call"),
            Err(error) => {
                warn!(path = %path.display(), %error, "cannot remove an unreadable spooled call")
            }
        }
    }
}
