//! The least that a write to the disk takes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::binaries::Binaries;

/// The least that a commit writes.
const PAGE: usize = 4096;
/// The pages of the file that is written to, which never grows.
const PAGES: u64 = 256;

/// A file on the disk of the stores.
#[derive(Debug)]
pub(crate) struct Disk {
    file: File,
    _dir: TempDir,
}

impl Disk {
    /// Makes the file.
    pub(crate) fn new(binaries: &Binaries) -> io::Result<Self> {
        let dir = binaries.state_dir()?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(dir.path().join("floor"))?;
        file.write_all_at(&vec![1; PAGE * PAGES as usize], 0)?;
        file.sync_all()?;
        Ok(Self { file, _dir: dir })
    }

    /// Makes a page durable, and returns how long that took.
    pub(crate) fn commit(&self, number: u64) -> io::Result<Duration> {
        let began = Instant::now();
        self.file
            .write_all_at(&[number as u8; PAGE], PAGE as u64 * (number % PAGES))?;
        self.file.sync_data()?;
        Ok(began.elapsed())
    }
}
