//! The floors of an ADD, each measured alone: the start of the shim, a write to the disk, four messages.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use netns_fixtures::BareClient;
use tempfile::TempDir;

use crate::binaries::Binaries;
use crate::client::{self, note};
use crate::ground::Place;
use crate::sample::Sample;

/// The least that a commit writes.
const PAGE: usize = 4096;
/// The pages of the file that is written to, which never grows.
const PAGES: u64 = 256;

/// The floors of an ADD.
#[derive(Debug)]
pub(crate) struct Floors {
    /// Calls that the shim answers by itself.
    pub(crate) shim: Sample,
    /// Durable writes of a page to an existing file of that size, on the disk of the stores.
    pub(crate) commit: Sample,
    /// Leases of a client that does nothing else.
    pub(crate) dora: Sample,
    disk: Disk,
    xid: u32,
}

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

impl Floors {
    /// Prepares to measure.
    pub(crate) fn new(binaries: &Binaries) -> io::Result<Self> {
        let none = Sample::default();
        Ok(Self {
            shim: none.clone(),
            commit: none.clone(),
            dora: none,
            disk: Disk::new(binaries)?,
            xid: 0,
        })
    }

    /// Measures each floor once for each of these containers, whose links are up.
    pub(crate) fn measure(
        &mut self,
        binaries: &Binaries,
        places: &[Place],
    ) -> Result<(), Box<dyn Error>> {
        let clients: Vec<_> = places
            .iter()
            .map(|place| BareClient::open(&place.container))
            .collect::<Result<_, _>>()?;
        for client in &clients {
            self.xid += 1;
            let lease = client.lease(self.xid)?;
            self.dora.add(lease.took);
            client.release(self.xid, &lease)?;
        }
        for number in 0..places.len() {
            note(&mut self.shim, client::version(&binaries.shim)?);
            self.commit.add(self.disk.commit(number as u64)?);
        }
        Ok(())
    }

    /// Returns the sum of the medians.
    pub(crate) fn sum(&self) -> Duration {
        [&self.shim, &self.commit, &self.dora]
            .map(|floor| floor.percentile(50))
            .into_iter()
            .sum()
    }
}
