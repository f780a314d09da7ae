//! What programs of the host may read about leases: a file like `/etc/resolv.conf` for each attachment.
//!
//! Most main plugins drop the name servers that their IPAM plugin returns. They are published at
//! `resolv/<network>/<container>/<ifname>` in the runtime directory, Docker's at `resolv/%docker/<pool>/<endpoint>`, for anyone
//! who mounts or copies the file. A file appears whole and is replaced whole. Nothing waits for the file, and no lease fails
//! because of it: what cannot be written now is tried again.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;
use leasehold_core::grant::Dns;
use leasehold_core::identity::Attachment;
use sha2::{Digest, Sha256};
use tracing::{debug, info, warn};

use crate::small_file;

/// The longest file name used here; the kernel's limit is 255.
const LONGEST_NAME: usize = 200;
/// The pause before a file that could not be written or removed is tried again; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The directory of Docker's pools. No network's directory has that name: see [`file_name`].
const DOCKER: &str = "%docker";

/// Writes the files, one after the other, on its own thread, which ends when this is dropped and all is written.
#[derive(Debug)]
pub(crate) struct Publisher {
    jobs: Option<Sender<Job>>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Debug)]
enum Job {
    Publish(Arc<Attachment>, Option<Dns>),
    /// Removes what has not been published by now.
    Sweep,
}

impl Publisher {
    /// Starts writing below `runtime_dir`.
    pub(crate) fn start(runtime_dir: &Path) -> io::Result<Self> {
        Self::with_pause(runtime_dir, FIRST_PAUSE)
    }

    fn with_pause(runtime_dir: &Path, first_pause: Duration) -> io::Result<Self> {
        let (jobs, queue) = channel();
        let files = Files {
            root: runtime_dir.join("resolv"),
            swept: false,
            written: HashSet::new(),
            undone: BTreeMap::new(),
            first_pause,
        };
        let thread = thread::Builder::new()
            .name("publish".to_owned())
            .spawn(move || files.serve(&queue))?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Has an attachment's file written, or removed.
    pub(crate) fn publish(&self, attachment: Arc<Attachment>, dns: Option<Dns>) {
        self.order(Job::Publish(attachment, dns));
    }

    /// Has the files removed that an earlier daemon left and this one has not written: by now it has written all that should
    /// stay.
    pub(crate) fn sweep(&self) {
        self.order(Job::Sweep);
    }

    fn order(&self, job: Job) {
        let sent = self.jobs.as_ref().expect("only drop takes it").send(job);
        sent.expect("the thread ends only after the channel");
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.jobs.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The files, and which of them this daemon wrote before the sweep.
struct Files {
    root: PathBuf,
    swept: bool,
    written: HashSet<PathBuf>,
    /// The text of each file that could not be written; `None` if it could not be removed.
    undone: BTreeMap<PathBuf, Option<String>>,
    first_pause: Duration,
}

impl Files {
    fn serve(mut self, queue: &Receiver<Job>) {
        let mut pause = self.first_pause;
        let mut next_try = Instant::now();
        loop {
            let job = match self.undone.is_empty() {
                true => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => queue.recv_timeout(next_try.saturating_duration_since(Instant::now())),
            };
            match job {
                Ok(job) => {
                    if self.undone.is_empty() {
                        pause = self.first_pause;
                        next_try = Instant::now() + pause;
                    }
                    self.carry_out(job);
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.try_again();
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    next_try = Instant::now() + pause;
                }
                // The next daemon writes them all.
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn carry_out(&mut self, job: Job) {
        let (path, text) = match job {
            Job::Publish(attachment, dns) => (self.path(&attachment), dns.map(|dns| text(&dns))),
            Job::Sweep => {
                if let Err(error) = self.sweep() {
                    warn!(path = %self.root.display(), %error, "name servers of ended leases may still be published");
                }
                return;
            }
        };
        self.undone.remove(&path);
        if let Err(error) = self.put(&path, text.as_deref()) {
            warn!(path = %path.display(), %error, "name servers of a lease not published: trying again");
            self.undone.insert(path, text);
        }
    }

    fn try_again(&mut self) {
        for (path, text) in std::mem::take(&mut self.undone) {
            match self.put(&path, text.as_deref()) {
                Ok(()) => {
                    info!(path = %path.display(), "name servers of a lease published after all")
                }
                Err(error) => {
                    debug!(path = %path.display(), %error, "name servers of a lease still not published");
                    self.undone.insert(path, text);
                }
            }
        }
    }

    /// Writes the file, or removes it.
    fn put(&mut self, path: &Path, text: Option<&str>) -> io::Result<()> {
        match text {
            Some(text) => self.write(path, text),
            None => self.remove(path),
        }
    }

    fn path(&self, attachment: &Attachment) -> PathBuf {
        match attachment {
            Attachment::Cni {
                network,
                container,
                ifname,
            } => self
                .root
                .join(file_name(network))
                .join(file_name(container))
                .join(file_name(ifname)),
            Attachment::Docker { pool, endpoint } => self
                .root
                .join(DOCKER)
                .join(file_name(pool))
                .join(file_name(endpoint)),
        }
    }

    fn write(&mut self, path: &Path, text: &str) -> io::Result<()> {
        let dir = path.parent().expect("a file's path has a directory");
        // Even if it cannot be written now: what is there is better than nothing.
        if !self.swept {
            self.written.insert(path.to_owned());
        }
        make_dirs(dir)?;
        // A file that is left alone stays mounted where it is mounted.
        if fs::read(path).is_ok_and(|there| there == text.as_bytes()) {
            return Ok(());
        }
        // Docker makes an empty directory in place of a missing mount source.
        let _ = fs::remove_dir(path);
        // No lease's file has a name that begins with a dot.
        small_file::write(path, 0o644, text.as_bytes(), false)?;
        debug!(path = %path.display(), "name servers published");
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.written.remove(path);
        match fs::remove_file(path) {
            Err(error) if error.kind() == ErrorKind::IsADirectory => fs::remove_dir(path)?,
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // The directories of the container and the network go with their last file; one that is not empty stays.
        let dirs = path.ancestors().skip(1).take(2);
        dirs.take_while(|dir| fs::remove_dir(dir).is_ok())
            .for_each(drop);
        Ok(())
    }

    fn sweep(&mut self) -> io::Result<()> {
        self.swept = true;
        let written = std::mem::take(&mut self.written);
        for network in entries(&self.root)? {
            for container in entries(&network)? {
                for file in entries(&container)? {
                    if !written.contains(&file) {
                        self.remove(&file)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns what is in a directory; nothing if it is not one.
fn entries(dir: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(dir) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// Creates the missing directories on the way to `dir`, readable for all whatever the umask.
fn make_dirs(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o755).create(dir) {
        Ok(()) => fs::set_permissions(dir, Permissions::from_mode(0o755)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            make_dirs(dir.parent().ok_or(error)?)?;
            make_dirs(dir)
        }
        Err(error) => Err(error),
    }
}

/// Returns a name as a file name, one to one, whatever a caller put into it.
///
/// Letters, digits, `-`, `_` and all dots but a leading one stay; any other byte becomes `%` and its two digits. If the
/// name gets too long, its end becomes `%~` and a hash.
fn file_name(name: &str) -> String {
    let mut safe = String::with_capacity(name.len());
    for (at, byte) in name.bytes().enumerate() {
        match byte {
            b'-' | b'_' => safe.push(byte.into()),
            b'.' if at > 0 => safe.push('.'),
            byte if byte.is_ascii_alphanumeric() => safe.push(byte.into()),
            byte => write!(safe, "%{byte:02x}").expect("a string takes all"),
        }
    }
    if safe.is_empty() {
        safe.push('%');
    }
    if safe.len() > LONGEST_NAME {
        safe.truncate(LONGEST_NAME - 66);
        safe.push_str("%~");
        safe.push_str(&HEXLOWER.encode(&Sha256::digest(name)));
    }
    safe
}

/// Returns the lines of a resolver's file (resolv.conf(5)), in which the last of `domain` and `search` counts.
///
/// The core has checked the names, which come from a packet.
fn text(dns: &Dns) -> String {
    let mut text = String::new();
    for server in &dns.servers {
        text.push_str(&format!("nameserver {server}\n"));
    }
    if let Some(domain) = &dns.domain {
        text.push_str(&format!("domain {domain}\n"));
    }
    if !dns.search.is_empty() {
        text.push_str(&format!("search {}\n", dns.search.join(" ")));
    }
    text
}

#[cfg(test)]
mod tests;
