//! What the host's programs may read of leases: a file like `/etc/resolv.conf` for each attachment.
//!
//! Most main plugins drop what their IPAM plugin says of name servers; here it lies, at
//! `resolv/<network>/<container>/<ifname>` in the runtime directory, for whoever mounts or copies it. A file appears whole
//! and is replaced whole. Nothing waits for it, and no lease fails for it: what cannot be written now is tried again.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_core::dhcpv4::lease::Dns;
use leasehold_core::identity::Attachment;
use sha2::{Digest, Sha256};
use tracing::{debug, info, warn};

/// The longest name of a file here; the kernel's limit is 255.
const LONGEST_NAME: usize = 200;
/// From a file that could not be written or removed to the next try; doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The longest domain name (RFC 1035 §2.3.4).
const LONGEST_DOMAIN: usize = 253;

/// Writes the files, one after the other, on a thread of its own. It ends when this is dropped and all is written.
#[derive(Debug)]
pub(crate) struct Publisher {
    jobs: Option<Sender<Job>>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Debug)]
enum Job {
    Publish(Arc<Attachment>, Option<Dns>),
    /// Removes what was not published by now.
    Sweep,
}

impl Publisher {
    /// Starts to write below `runtime_dir`.
    pub(crate) fn start(runtime_dir: &Path) -> io::Result<Self> {
        Self::with_pause(runtime_dir, FIRST_PAUSE)
    }

    fn with_pause(runtime_dir: &Path, first_pause: Duration) -> io::Result<Self> {
        let (jobs, queue) = channel();
        let files = Files {
            root: runtime_dir.join("resolv"),
            swept: false,
            hasher: RandomState::new(),
            written: HashSet::new(),
            undone: BTreeMap::new(),
            first_pause,
        };
        let thread = thread::Builder::new().name("publish".to_owned()).spawn(move || files.serve(&queue))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Has the file of an attachment written, or removed.
    pub(crate) fn publish(&self, attachment: Arc<Attachment>, dns: Option<Dns>) {
        self.order(Job::Publish(attachment, dns));
    }

    /// Has the files removed that an earlier daemon left and this one has not written: all that are to stay have been.
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
    hasher: RandomState,
    /// By hash: a start with ten thousand leases need not keep as many paths.
    written: HashSet<u64>,
    /// What each file that could not be written is to say; `None`: it could not be removed.
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
            Job::Publish(attachment, dns) => (self.path(&attachment), dns.map(|dns| text(&attachment, &dns))),
            Job::Sweep => {
                if let Err(error) = self.sweep() {
                    warn!(path = %self.root.display(), %error, "name servers of leases that ended may still be published");
                }
                return;
            }
        };
        self.undone.remove(&path);
        if let Err(error) = self.put(&path, text.as_deref()) {
            warn!(path = %path.display(), %error, "name servers of a lease not published; tried again");
            self.undone.insert(path, text);
        }
    }

    fn try_again(&mut self) {
        for (path, text) in std::mem::take(&mut self.undone) {
            match self.put(&path, text.as_deref()) {
                Ok(()) => info!(path = %path.display(), "name servers of a lease published after all"),
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
        let Attachment { door: _, network, container, ifname } = attachment;
        self.root.join(file_name(network)).join(file_name(container)).join(file_name(ifname))
    }

    fn write(&mut self, path: &Path, text: &str) -> io::Result<()> {
        let dir = path.parent().expect("a file's path has a directory");
        // Also where it cannot be written now: what lies there is better than nothing.
        self.note(path);
        make_dirs(dir)?;
        // Nobody who mounted it loses it over a restart.
        if fs::read(path).is_ok_and(|there| there == text.as_bytes()) {
            return Ok(());
        }
        // No file's name begins with a dot.
        let new = dir.join(".new");
        let written = replace(path, &new, text);
        if written.is_err() {
            // It may not be there; the first error is the one to tell.
            let _ = fs::remove_file(&new);
        }
        written?;
        debug!(path = %path.display(), "name servers published");
        Ok(())
    }

    fn note(&mut self, path: &Path) {
        if !self.swept {
            self.written.insert(self.hasher.hash_one(path));
        }
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.written.remove(&self.hasher.hash_one(path));
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Those of the container and the network go with their last file; one that is not empty stays.
        let dirs = path.ancestors().skip(1).take(2);
        dirs.take_while(|dir| fs::remove_dir(dir).is_ok()).for_each(drop);
        Ok(())
    }

    fn sweep(&mut self) -> io::Result<()> {
        self.swept = true;
        let written = std::mem::take(&mut self.written);
        for network in entries(&self.root)? {
            for container in entries(&network)? {
                for file in entries(&container)? {
                    if !written.contains(&self.hasher.hash_one(&*file)) {
                        self.remove(&file)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Writes `text` to the file `new`, and moves that to `path`.
fn replace(path: &Path, new: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(new)?;
    file.set_permissions(Permissions::from_mode(0o644))?;
    file.write_all(text.as_bytes())?;
    fs::rename(new, path)
}

/// Returns what is in a directory; nothing where that is none.
fn entries(dir: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(dir) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Makes the directories on the way to `dir` that are missing, for all to read whatever the umask.
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

/// Returns a name as a file's name: one to one, whatever a caller put into it.
///
/// Letters, digits, `-`, `_` and dots but the first stay; any other byte becomes `%` and its two digits. Of a name that gets
/// too long the end becomes `%~` and a hash.
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
        let hash = Sha256::digest(name.as_bytes());
        hash.iter().for_each(|byte| write!(safe, "{byte:02x}").expect("a string takes all"));
    }
    safe
}

/// Returns the lines of a resolver's file (resolv.conf(5)). Of `domain` and `search` the last one counts there.
///
/// The core has checked the names. They come from a packet, though, and end in a file: so they are checked once more here.
fn text(attachment: &Attachment, dns: &Dns) -> String {
    let checked = |name: &String| {
        let good = is_domain(name);
        if !good {
            warn!(%attachment, ?name, "a domain name with other characters is left out");
        }
        good
    };
    let mut text = String::new();
    for server in &dns.servers {
        text.push_str(&format!("nameserver {server}\n"));
    }
    if let Some(domain) = dns.domain.as_ref().filter(|name| checked(name)) {
        text.push_str(&format!("domain {domain}\n"));
    }
    let search: Vec<&str> = dns.search.iter().filter(|name| checked(name)).map(String::as_str).collect();
    if !search.is_empty() {
        text.push_str(&format!("search {}\n", search.join(" ")));
    }
    text
}

fn is_domain(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=LONGEST_DOMAIN).contains(&name.len()) && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use leasehold_core::identity::Door;

    use super::*;

    fn attachment(container: &str) -> Arc<Attachment> {
        let [network, ifname] = ["lan", "eth0"].map(str::to_owned);
        Arc::new(Attachment { door: Door::Cni, network, container: container.to_owned(), ifname })
    }

    fn dns(domain: &str) -> Option<Dns> {
        let servers = vec![[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        let search = vec!["a.example".to_owned(), "b.example".to_owned()];
        Some(Dns { servers, domain: Some(domain.to_owned()), search })
    }

    fn files(root: &Path) -> Vec<String> {
        let mut found = Vec::new();
        let mut dirs = vec![root.to_owned()];
        while let Some(dir) = dirs.pop() {
            for path in entries(&dir).unwrap() {
                let name = path.strip_prefix(root).unwrap().display().to_string();
                if path.is_dir() { dirs.push(path) } else { found.push(name) }
            }
        }
        found.sort();
        found
    }

    #[test]
    fn a_lease_has_its_file_until_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let publisher = Publisher::start(dir.path()).unwrap();
        publisher.publish(attachment("c1"), dns("old.example"));
        publisher.publish(attachment("c1"), dns("site.example"));
        publisher.publish(attachment("c2"), dns("site.example"));
        drop(publisher);
        let file = dir.path().join("resolv/lan/c1/eth0");
        assert_eq!(
            fs::read_to_string(&file).unwrap(),
            "nameserver 192.0.2.1\nnameserver 192.0.2.2\ndomain site.example\nsearch a.example b.example\n"
        );
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o644);
        assert_eq!(file.parent().unwrap().metadata().unwrap().mode() & 0o777, 0o755);
        assert_eq!(files(dir.path()), ["resolv/lan/c1/eth0", "resolv/lan/c2/eth0"]);

        let publisher = Publisher::start(dir.path()).unwrap();
        publisher.publish(attachment("c1"), None);
        publisher.publish(attachment("c3"), None);
        drop(publisher);
        assert_eq!(files(dir.path()), ["resolv/lan/c2/eth0"]);
        assert!(!dir.path().join("resolv/lan/c1").exists());
    }

    #[test]
    fn a_file_that_cannot_be_written_is_tried_again_and_leaves_nothing_half() {
        let dir = tempfile::tempdir().unwrap();
        // A directory where a file is to be: it can be written, but not put there.
        let (late, gone) = (dir.path().join("resolv/lan/late/eth0"), dir.path().join("resolv/lan/gone/eth0"));
        for path in [&late, &gone] {
            fs::create_dir_all(path.join("full")).unwrap();
        }
        let publish = |pause| {
            let publisher = Publisher::with_pause(dir.path(), pause).unwrap();
            publisher.publish(attachment("late"), dns("old.example"));
            publisher.publish(attachment("gone"), dns("old.example"));
            publisher.publish(attachment("late"), dns("site.example"));
            publisher.publish(attachment("gone"), None);
            publisher.publish(attachment("good"), dns("site.example"));
            publisher
        };
        drop(publish(Duration::from_secs(3600)));
        assert_eq!(files(dir.path()), ["resolv/lan/good/eth0"], "no .new");

        let publisher = publish(Duration::from_millis(1));
        for path in [&late, &gone] {
            fs::remove_dir_all(path).unwrap();
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while !fs::read_to_string(&late).is_ok_and(|text| text.contains("site.example")) {
            assert!(Instant::now() < deadline, "{:?}", files(dir.path()));
            thread::yield_now();
        }
        drop(publisher);
        assert_eq!(files(dir.path()), ["resolv/lan/good/eth0", "resolv/lan/late/eth0"]);
    }

    #[test]
    fn a_start_removes_what_an_earlier_daemon_left_and_leaves_alone_what_is_as_it_should_be() {
        let dir = tempfile::tempdir().unwrap();
        let publisher = Publisher::start(dir.path()).unwrap();
        for container in ["kept", "gone", "other"] {
            publisher.publish(attachment(container), dns("site.example"));
        }
        drop(publisher);
        let kept = dir.path().join("resolv/lan/kept/eth0");
        let before = kept.metadata().unwrap().ino();
        fs::write(dir.path().join("resolv/lan/other/.new"), "half").unwrap();

        let publisher = Publisher::start(dir.path()).unwrap();
        publisher.publish(attachment("kept"), dns("site.example"));
        publisher.sweep();
        publisher.publish(attachment("new"), dns("site.example"));
        drop(publisher);
        assert_eq!(files(dir.path()), ["resolv/lan/kept/eth0", "resolv/lan/new/eth0"]);
        assert_eq!(kept.metadata().unwrap().ino(), before);
    }

    #[test]
    fn no_name_leads_out_of_its_directory_or_to_anothers_file() {
        let dir = tempfile::tempdir().unwrap();
        let long = "x".repeat(300);
        let longer = "x".repeat(301);
        let names = ["..", ".", "", "a/b", "a%2fb", "../../../etc/passwd", ".new", "a\nb", "ü", &long, &longer];
        let publisher = Publisher::start(dir.path()).unwrap();
        for name in names {
            publisher.publish(attachment(name), dns("site.example"));
        }
        drop(publisher);
        let found = files(&dir.path().join("resolv/lan"));
        assert_eq!(found.len(), names.len(), "{found:?}");
        assert!(found.iter().all(|path| path.matches('/').count() == 1 && !path.starts_with('.')), "{found:?}");
        assert_eq!(file_name("a1-b_c.d"), "a1-b_c.d");
        assert_eq!(file_name("../x"), "%2e.%2fx");
    }

    #[test]
    fn a_name_that_is_none_does_not_reach_the_file() {
        let bad = ["a b", "a\nnameserver 203.0.113.1", "", "a;b", "ü.example", &"x".repeat(254)].map(str::to_owned);
        for domain in &bad {
            let search = bad.to_vec();
            let dns = Dns { servers: vec![[192, 0, 2, 1].into()], domain: Some(domain.clone()), search };
            assert_eq!(text(&attachment("c"), &dns), "nameserver 192.0.2.1\n");
        }
    }
}
