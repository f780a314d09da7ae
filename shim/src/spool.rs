//! Keeps a DEL for a daemon that is down: see `leasehold_api::spool` for the names.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;

use leasehold_api::cni::Request;
use leasehold_api::spool;

/// Writes `body` to the spool file of `request`'s attachment, and returns the file. It appears there whole and durable,
/// or not at all.
pub(crate) fn keep(socket: &Path, request: &Request, body: &[u8]) -> io::Result<PathBuf> {
    let directory = socket.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let unfinished = spool::unfinished(socket, request, process::id());
    let path = spool::path(socket, request);
    let written = write(&unfinished, body).and_then(|()| fs::rename(&unfinished, &path));
    if written.is_err() {
        // It may not be there; the first error is the one to tell.
        let _ = fs::remove_file(&unfinished);
    }
    written?;
    File::open(directory)?.sync_all()?;
    Ok(path)
}

fn write(path: &Path, body: &[u8]) -> io::Result<()> {
    // Left by a process of the same id that was killed.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(body)?;
    file.sync_all()
}

/// Removes a spool file whose call was answered. The daemon may have been quicker.
pub(crate) fn forget(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        eprintln!("dhcp: cannot remove {}: {error}", path.display());
    }
}
