//! Reads the DELs that shims left beside the socket while no daemon ran.
//!
//! The names are `leasehold_api::spool`'s. Nothing that lies there can keep the daemon from starting: what is no DEL is
//! set aside, so that an operator finds it, and the oldest of that is not kept for ever.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_api::cni::Request;
use leasehold_api::{MAX_BODY, spool};
use leasehold_core::effect::Call;
use tracing::{debug, info, warn};

use super::add::Site;
use super::cni::Asked;

/// The most calls that one start takes up; the next start takes up the rest.
const MAX_CALLS: usize = 65_536;

/// The most unreadable files that are kept for an operator to look at.
const MAX_SET_ASIDE: usize = 64;

/// A shim writes its file in milliseconds: an unfinished one of this age has lost its writer.
const ABANDONED: Duration = Duration::from_secs(60);

/// Why a spooled file is no DEL.
#[derive(Debug, thiserror::Error)]
enum Unreadable {
    /// The file could not be opened or read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A directory, a FIFO, a symbolic link.
    #[error("not a regular file")]
    NotAFile,
    /// Longer than any request.
    #[error("longer than {MAX_BODY} bytes")]
    TooLong,
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

/// Returns the calls that lie beside `socket`, each with its file, in order of their names.
///
/// The caller removes a file once its call is done. Whatever is unreadable is set aside with a warning.
pub(crate) fn scan_spool(socket: &Path) -> Vec<(PathBuf, Call)> {
    let mut spooled = Vec::new();
    let mut set_aside = Vec::new();
    for name in names(socket) {
        let path = socket.with_file_name(&name);
        match spool::kind(socket, &name) {
            Some(spool::Kind::Call) if spooled.len() == MAX_CALLS => {
                warn!(taken = MAX_CALLS, "too many spooled DELs for one start: the next takes up the rest");
                break;
            }
            Some(spool::Kind::Call) => match read(&path) {
                Ok(call) => spooled.push((path, call)),
                Err(cause) => set_aside.extend(set_file_aside(socket, &name, &cause)),
            },
            Some(spool::Kind::Unfinished) => remove_abandoned(&path),
            Some(spool::Kind::SetAside) => set_aside.push(path),
            None => {}
        }
    }
    thin_out(set_aside);
    spooled
}

/// Returns the sorted names of the spool's files.
fn names(socket: &Path) -> Vec<OsString> {
    let directory = socket.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let found = std::fs::read_dir(directory).map(|entries| {
        let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
        names.filter(|name| spool::kind(socket, name).is_some()).collect()
    });
    let mut names: Vec<_> = found.unwrap_or_else(|error| {
        warn!(directory = %directory.display(), %error, "cannot look for spooled DELs");
        Vec::new()
    });
    names.sort();
    names
}

fn read(path: &Path) -> Result<Call, Unreadable> {
    // Not blocking, or a FIFO would hold up the start; and a link leads out of the directory.
    let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(Unreadable::NotAFile);
    }
    let mut text = Vec::new();
    if Read::by_ref(&mut &file).take(MAX_BODY as u64 + 1).read_to_end(&mut text)? > MAX_BODY {
        return Err(Unreadable::TooLong);
    }
    let request: Request = serde_json::from_slice(&text)?;
    let asked = Asked::parse(&request, &Site::default()).map_err(|error| Unreadable::Refused(error.msg))?;
    match asked.call {
        call @ Call::Del { .. } => Ok(call),
        Call::Add(_) | Call::Check { .. } | Call::Collect { .. } | Call::Status { .. } | Call::List => {
            Err(Unreadable::NotADel)
        }
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
            warn!(path = %path.display(), %cause, %error, "cannot read a spooled call, nor set it aside");
            None
        }
    }
}

/// Removes what a shim that was killed left half written.
fn remove_abandoned(path: &Path) {
    let age = std::fs::symlink_metadata(path).and_then(|meta| meta.modified()).map(|written| written.elapsed());
    if let Ok(Ok(age)) = age
        && age >= ABANDONED
        && std::fs::remove_file(path).is_ok()
    {
        info!(path = %path.display(), "removed an unfinished spool file");
    }
}

/// Removes unreadable files beyond what is kept.
fn thin_out(set_aside: Vec<PathBuf>) {
    for path in set_aside.iter().skip(MAX_SET_ASIDE) {
        match std::fs::remove_file(path) {
            Ok(()) => debug!(path = %path.display(), "removed an unreadable spooled call"),
            Err(error) => warn!(path = %path.display(), %error, "cannot remove an unreadable spooled call"),
        }
    }
}
