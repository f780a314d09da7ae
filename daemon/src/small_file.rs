//! Small files in directories in which others may write too. Reading one has a bound and waits for nobody; a file is written whole
//! or not at all.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::libc;

/// Reads a regular file of at most `most` bytes.
pub(crate) fn read(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    // Opening a FIFO would wait for its other end, and a link leads out of the directory.
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(io::Error::other(format!("longer than {most} bytes")));
    }
    Ok(bytes)
}

/// Writes a file under another name beside it, which begins with a dot, and then moves it to `path`. If it is `durable`, its contents
/// are on disk before.
pub(crate) fn write(path: &Path, mode: u32, bytes: &[u8], durable: bool) -> io::Result<()> {
    let mut name = OsString::from(".new-");
    name.push(path.file_name().unwrap_or_default());
    let new = path.with_file_name(name);
    write_new(&new, mode, bytes, durable)?;
    fs::rename(&new, path).inspect_err(|_| drop(remove(&new)))
}

/// Writes a file in place of any of that name, or leaves none.
pub(crate) fn write_new(new: &Path, mode: u32, bytes: &[u8], durable: bool) -> io::Result<()> {
    remove(new)?;
    let write = || {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(mode).open(new)?;
        // Whatever the umask.
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(bytes)?;
        if durable { file.sync_all() } else { Ok(()) }
    };
    // The first error is the one to report.
    write().inspect_err(|_| drop(remove(new)))
}

/// Creates the missing directories on the way to `path`, and `path` itself.
pub(crate) fn make_directories(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(mode).create(path)
}

/// Removes a file that may not be there.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
