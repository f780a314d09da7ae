//! Carries out the DELs that shims left beside the socket while no daemon answered. Looks at the start and also later, because
//! the socket's file may vanish, or a shim may have given up just before the start.
//!
//! `leasehold_api::spool` defines the names. Whatever is in a directory in which others may write is left alone. Nothing there can
//! keep the daemon from starting: a file that is not a DEL is removed, with a warning.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use leasehold_api::cni::Request;
use leasehold_api::{MAX_BODY, spool};
use leasehold_core::effect::{Answer, Call};
use tracing::{debug, warn};

use super::add::Site;
use super::cni::Asked;
use crate::{beside, small_file};

/// How long a failed call waits before it is tried again.
const REST: Duration = Duration::from_secs(60);

/// The spool of one socket, and the progress of its calls.
#[derive(Debug)]
pub(crate) struct Spool {
    socket: PathBuf,
    /// The files under way or waiting: when to try each again, `None` while it is under way.
    taken: HashMap<PathBuf, Option<Instant>>,
    /// Whether a warning has said that calls are left alone because others may write in the directory.
    distrusts: bool,
}

impl Spool {
    /// Returns the spool beside `socket`.
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self {
            socket,
            taken: HashMap::new(),
            distrusts: false,
        }
    }

    /// Returns the calls that are there, each with its file, in the order of the files' names.
    ///
    /// The caller ends each with [`Self::done`]. A file that cannot be read is tried again after a while.
    pub(crate) fn take_up(&mut self) -> Vec<(PathBuf, Call)> {
        let now = Instant::now();
        self.taken
            .retain(|_, again| again.is_none_or(|again| now < again));
        let mut calls = Vec::new();
        for name in self.names() {
            let path = self.socket.with_file_name(&name);
            if self.taken.contains_key(&path) {
                continue;
            }
            if self.taken.len() >= spool::MAX_CALLS {
                debug!(
                    taken = spool::MAX_CALLS,
                    "too many spooled DELs at once: the others come later"
                );
                break;
            }
            let text = match small_file::read(&path, MAX_BODY) {
                Ok(text) => text,
                Err(error) => {
                    warn!(path = %path.display(), %error, "cannot read a spooled DEL: trying again in a minute");
                    self.taken.insert(path, Some(now + REST));
                    continue;
                }
            };
            match del(&text) {
                Ok(call) => {
                    self.taken.insert(path.clone(), None);
                    calls.push((path, call));
                }
                Err(cause) => {
                    warn!(path = %path.display(), %cause, "a spooled call is no DEL: its lease, if any, stays until it expires");
                    if small_file::remove(&path).is_err() {
                        self.taken.insert(path, Some(now + REST));
                    }
                }
            }
        }
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
                .filter(|name| spool::is_call(&self.socket, name))
                .collect()
        });
        if let Err(error) = &found {
            debug!(directory = %directory.display(), %error, "cannot look for spooled DELs");
        }
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

/// Reads a DEL, or says why it is none.
fn del(text: &[u8]) -> Result<Call, String> {
    let request: Request = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let asked = Asked::parse(&request, &Site::default()).map_err(|error| error.msg)?;
    match asked.call {
        call @ Call::Del { .. } => Ok(call),
        other => Err(format!("it asks for {}", other.name())),
    }
}
