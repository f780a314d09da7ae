//! The directory of a network: host-local's files, and our notes beside them.
//!
//! A caller that is killed between two changes leaves either a free address with a stray beside it, or a taken address that the
//! container's DEL finds. Whoever has the lock next removes strays.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use leasehold_api::cni::Holder;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use crate::fault::Fault;
use crate::lock::Progress;
use crate::note::{self, Host, Life, Note};

/// The beginning of the name of a file that says in which boot the directory was swept.
const SWEPT: &str = "swept.";
/// The end of an unfinished file's name.
const UNFINISHED: &str = ".new";
/// How much of an address's file is read. What host-local writes is shorter.
const MOST: u64 = 512;

/// The directory of a network. It need not exist.
#[derive(Clone, Debug)]
pub struct Directory(PathBuf);

/// The directory, and its lock.
#[derive(Debug)]
pub struct Locked<'a> {
    directory: &'a Directory,
    _lock: File,
}

/// What the names in a directory say.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// The addresses that have a file, and the marks of the notes beside each.
    taken: HashMap<IpAddr, Vec<u64>>,
    /// Notes without an address, and what was not finished.
    strays: Vec<String>,
    /// The boots in which the directory was swept.
    swept: Vec<String>,
}

impl Names {
    /// Returns the addresses that have a file, in no order.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.taken.keys().copied()
    }

    /// Returns whether an address has a file.
    pub fn has(&self, address: IpAddr) -> bool {
        self.taken.contains_key(&address)
    }

    /// Returns how many files say nothing: what calls that were killed have left.
    pub fn strays(&self) -> usize {
        self.strays.len()
    }
}

/// Reads the name of an address's file. host-local looks for an address only under this spelling.
fn address(name: &str) -> Option<IpAddr> {
    let address: IpAddr = name.parse().ok()?;
    let is_spelt =
        address.is_ipv4() || address.to_canonical() == address && address.to_string() == name;
    is_spelt.then_some(address)
}

impl Directory {
    /// Returns the directory at a path.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns whether it is there.
    ///
    /// # Errors
    /// Nobody can say.
    pub fn exists(&self) -> Result<bool, Fault> {
        self.0.try_exists().map_err(Fault::at(&self.0))
    }

    /// Makes it if it is missing.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make(&self) -> Result<(), Fault> {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(&self.0);
        made.map_err(Fault::at(&self.0))
    }

    /// Takes the lock, however long others have it.
    ///
    /// # Errors
    /// The lock's file cannot be opened or locked, or nobody waits for that any more.
    pub fn lock(&self, progress: &Progress) -> Result<Locked<'_>, Fault> {
        let path = self.0.join("lock");
        let opened = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let lock = opened.map_err(Fault::at(&path))?;
        if lock.try_lock().is_err() {
            progress.awaits(&path, &lock);
            lock.lock().map_err(Fault::at(&path))?;
        }
        if !progress.has_lock() {
            return Err(Fault::at(&path)(ErrorKind::TimedOut.into()));
        }
        Ok(Locked {
            directory: self,
            _lock: lock,
        })
    }

    /// Reads the names of the files. Without the lock, what is read may be out of date.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn names(&self) -> Result<Names, Fault> {
        let fault = |errno: Errno| Fault::at(&self.0)(errno.into());
        // Not by std, which allocates twice for each name: a directory may have 100,000.
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut files = Dir::open(&self.0, flags, Mode::empty()).map_err(fault)?;
        let mut read = Names::default();
        let mut notes = Vec::new();
        for file in files.iter() {
            let file = file.map_err(fault)?;
            let Ok(name) = file.file_name().to_str() else {
                continue;
            };
            match note::read_name(name) {
                Some((address, Some(mark))) => notes.push((address, mark)),
                Some((_, None)) => read.strays.push(name.to_owned()),
                None => {
                    if let Some(address) = address(name) {
                        read.taken.insert(address, Vec::new());
                    } else if let Some(boot) = name.strip_prefix(SWEPT) {
                        read.swept.push(boot.to_owned());
                    }
                }
            }
        }
        for (address, mark) in notes {
            match read.taken.get_mut(&address) {
                Some(marks) => marks.push(mark),
                None => read.strays.push(note::name(address, mark)),
            }
        }
        Ok(read)
    }

    /// Returns who has an address according to its file, if the file says so.
    pub fn holder(&self, address: IpAddr) -> Option<Holder> {
        Holder::read(&self.read(&address.to_string())?)
    }

    /// Returns since when an address has a file.
    pub fn since(&self, address: IpAddr) -> Option<SystemTime> {
        let found = fs::metadata(self.0.join(address.to_string())).ok()?;
        found.modified().ok()
    }

    /// Returns whether the container that has an address lives, as far as the note beside it says.
    pub fn life(&self, names: &Names, address: IpAddr, host: &Host) -> Life {
        let Some(marks) = names.taken.get(&address).filter(|marks| !marks.is_empty()) else {
            return Life::Unclear;
        };
        let mark = match self.holder(address) {
            Some(holder) => note::mark_of(&holder).filter(|mark| marks.contains(mark)),
            None => only(marks),
        };
        let Some(mark) = mark else {
            return Life::Unclear;
        };
        // A namespace's path may be as long as the kernel allows.
        let text = fs::read(self.0.join(note::name(address, mark))).unwrap_or_default();
        Note::read(&String::from_utf8_lossy(&text)).life(host)
    }

    /// Reads the beginning of a small file.
    fn read(&self, name: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = File::open(self.0.join(name)).ok()?;
        file.take(MOST).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Returns the addresses of a container's interface. Of files that have a note only those are read whose note is its own,
    /// unless `each` is.
    pub(crate) fn held_by(&self, names: &Names, who: &Holder, each: bool) -> Vec<IpAddr> {
        let mark = note::mark_of(who);
        let mut own = Vec::new();
        // Before 0.8, host-local wrote no interface.
        let mut old = Vec::new();
        for (&address, marks) in &names.taken {
            if !each && !marks.is_empty() && !mark.is_some_and(|mark| marks.contains(&mark)) {
                continue;
            }
            match self.holder(address) {
                Some(holder) if holder == *who => own.push(address),
                Some(Holder {
                    container,
                    ifname: None,
                }) if container == who.container => old.push(address),
                None if mark.is_some() && mark == only(marks) => own.push(address),
                _ => {}
            }
        }
        let mut held = if own.is_empty() { old } else { own };
        held.sort();
        held
    }
}

/// Returns the name of host-local's file with the last address given of a set.
fn last_name(set: usize) -> String {
    format!("last_reserved_ip.{set}")
}

/// Returns whose an address is if its file is empty, as after a power cut, or a kill where a file system has no links.
fn only(marks: &[u64]) -> Option<u64> {
    Some(marks)
        .filter(|marks| marks.len() == 1)
        .map(|marks| marks[0])
}

impl Locked<'_> {
    /// Reads the names of the files, and removes the strays among them.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn names(&self) -> Result<Names, Fault> {
        let mut names = self.directory.names()?;
        for stray in names.strays.drain(..) {
            // The next one meets it again.
            let _ = fs::remove_file(self.path(&stray));
        }
        Ok(names)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.0.join(name)
    }

    /// Gives a container an address, unless somebody has made its file without the lock. Either way `names` has it then. Returns
    /// whether it was given.
    ///
    /// # Errors
    /// A file cannot be written; then nothing is left of it.
    pub fn take(
        &self,
        names: &mut Names,
        address: IpAddr,
        by: &Holder,
        note: &Note,
    ) -> Result<bool, Fault> {
        let beside = note::name(address, note::mark_of(by).unwrap_or_default());
        let is_given = self
            .write_note(address, by, note)
            .and_then(|()| self.link(address, by, &beside));
        if !matches!(is_given, Ok(true)) {
            let _ = fs::remove_file(self.path(&beside));
        }
        let marks = names.taken.entry(address).or_default();
        marks.extend(note::mark_of(by).filter(|_| matches!(is_given, Ok(true))));
        is_given
    }

    /// Writes an address's file under another name, and links it: it is there whole or not at all.
    fn link(&self, address: IpAddr, by: &Holder, beside: &str) -> Result<bool, Fault> {
        let name = address.to_string();
        let contents = by.contents();
        let unfinished = format!("{beside}{UNFINISHED}");
        let from = self.path(&unfinished);
        let path = self.path(&name);
        let linked = self.create(&unfinished, &contents, false).and_then(|()| {
            fs::hard_link(&from, &path).or_else(|error| match error.kind() {
                ErrorKind::AlreadyExists => Err(error),
                // Not every file system has links.
                _ => self.create(&name, &contents, true),
            })
        });
        let _ = fs::remove_file(&from);
        match linked {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            linked => linked.map(|()| true).map_err(Fault::at(&path)),
        }
    }

    /// Writes a note beside an address of a container.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_note(&self, address: IpAddr, by: &Holder, note: &Note) -> Result<(), Fault> {
        let mark = note::mark_of(by).unwrap_or_default();
        self.write(&note::name(address, mark), &note.contents())
    }

    fn write(&self, name: &str, contents: &str) -> Result<(), Fault> {
        let written = self.create(name, contents, false);
        written.map_err(Fault::at(&self.path(name)))
    }

    /// Writes a file, or leaves none. If it `is_new`, it must not be there before.
    fn create(&self, name: &str, contents: &str, is_new: bool) -> io::Result<()> {
        let path = self.path(name);
        let mut options = OpenOptions::new();
        options
            .write(true)
            .create(true)
            .truncate(false)
            .create_new(is_new)
            .mode(0o600);
        let mut file = options.open(&path)?;
        // Not emptied before, which is the dearest part of an ADD on some file systems.
        let written = file.write_all(contents.as_bytes()).and_then(|()| {
            let length = contents.len() as u64;
            if file.metadata()?.len() > length {
                file.set_len(length)
            } else {
                Ok(())
            }
        });
        written.inspect_err(|_| drop(fs::remove_file(&path)))
    }

    /// Frees an address: its file goes first, the notes after it.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub(crate) fn free(&self, names: &mut Names, address: IpAddr) -> Result<(), Fault> {
        let path = self.path(&address.to_string());
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Fault::at(&path)(error));
            }
            _ => {}
        }
        for mark in names.taken.remove(&address).unwrap_or_default() {
            // Without its address it is a stray.
            let _ = fs::remove_file(self.path(&note::name(address, mark)));
        }
        Ok(())
    }

    /// Frees all addresses of containers that are proven to be gone.
    pub(crate) fn sweep(&self, names: &mut Names, host: &Host) -> Result<(), Fault> {
        let taken: Vec<_> = names.addresses().collect();
        for address in taken {
            if self.directory.life(names, address, host) == Life::Gone {
                self.free(names, address)?;
            }
        }
        Ok(())
    }

    /// Frees what earlier boots have left, once per boot.
    pub(crate) fn sweep_after_boot(&self, names: &mut Names, host: &Host) -> Result<(), Fault> {
        if host.boot.is_empty() || names.swept.contains(&host.boot) {
            return Ok(());
        }
        self.sweep(names, host)?;
        for boot in &names.swept {
            let _ = fs::remove_file(self.path(&format!("{SWEPT}{boot}")));
        }
        // Without it, the next ADD sweeps too.
        let _ = self.write(&format!("{SWEPT}{}", host.boot), "");
        Ok(())
    }

    /// Returns the last address given of a set.
    pub(crate) fn last(&self, set: usize) -> Option<IpAddr> {
        let text = String::from_utf8(self.directory.read(&last_name(set))?).ok()?;
        Some(text.parse::<IpAddr>().ok()?.to_canonical())
    }

    pub(crate) fn set_last(&self, set: usize, address: IpAddr) -> Result<(), Fault> {
        self.write(&last_name(set), &address.to_string())
    }

    /// Makes a file and removes it again.
    pub(crate) fn try_file(&self) -> Result<(), Fault> {
        let name = format!("0.0.0.0.by.{UNFINISHED}");
        self.write(&name, "")?;
        fs::remove_file(self.path(&name)).map_err(Fault::at(&self.path(&name)))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_that_host_local_does_not_write_is_no_address() {
        for name in [
            "lock",
            "",
            ".",
            "010.0.0.2",
            "10.0.0.2~",
            "10.0.0",
            "FD00::1",
            "fd00:0::1",
            "::ffff:10.0.0.2",
            "fe80::1%eth0",
            "last_reserved_ip.0",
        ] {
            assert_eq!(super::address(name), None, "{name}");
        }
    }
}
