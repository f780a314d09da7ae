//! The directory of a network: host-local's files, and our notes beside them.
//!
//! Whatever kills a caller between two changes leaves an address that is free, with a stray beside it, or one that is taken and that
//! its DEL finds. Whoever holds the lock and meets a stray removes it.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use leasehold_api::cni::{self, Holder};

use crate::fault::Fault;
use crate::lock::Awaited;
use crate::note::{self, Host, Life, Note};

/// How the name of a file begins that says in which boot the directory was swept.
const SWEPT: &str = "swept.";
/// How the name of an unfinished file ends.
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
    taken: BTreeMap<IpAddr, Vec<u64>>,
    /// Notes without an address, and what was not finished.
    strays: Vec<String>,
    /// The boots in which the directory was swept.
    swept: Vec<String>,
}

impl Names {
    /// Returns the addresses that have a file, in order.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.taken.keys().copied()
    }

    /// Returns whether an address has a file.
    pub fn has(&self, address: IpAddr) -> bool {
        self.taken.contains_key(&address)
    }

    pub(crate) fn add(&mut self, address: IpAddr) {
        self.taken.entry(address).or_default();
    }

    /// Adds an address that a container got meanwhile, with its note.
    pub(crate) fn add_of(&mut self, address: IpAddr, by: &Holder) {
        let marks = self.taken.entry(address).or_default();
        marks.extend(note::mark_of(by));
    }

    fn read(names: impl Iterator<Item = String>) -> Self {
        let mut read = Self::default();
        let mut notes = Vec::new();
        for name in names {
            if let Some((address, mark)) = note::read_name(&name) {
                match mark {
                    Some(mark) => notes.push((address, mark, name)),
                    None => read.strays.push(name),
                }
            } else if let Some(boot) = name.strip_prefix(SWEPT) {
                read.swept.push(boot.to_owned());
            } else if let Some(address) = address(&name) {
                read.add(address);
            }
        }
        for (address, mark, name) in notes {
            match read.taken.get_mut(&address) {
                Some(marks) => marks.push(mark),
                None => read.strays.push(name),
            }
        }
        read
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
    /// Returns a network's directory below `data_dir`.
    pub fn new(data_dir: &Path, network: &str) -> Self {
        Self(data_dir.join(network))
    }

    /// Returns the directory at a path.
    pub fn of(path: PathBuf) -> Self {
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

    /// Takes the lock, however long others have it. `awaits` is told about the lock before.
    ///
    /// # Errors
    /// The lock's file cannot be opened or locked.
    pub fn lock(&self, awaits: impl FnOnce(Awaited)) -> Result<Locked<'_>, Fault> {
        let path = self.0.join("lock");
        let opened = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let lock = opened.map_err(Fault::at(&path))?;
        if lock.try_lock().is_err() {
            awaits(Awaited::new(&path, &lock));
            lock.lock().map_err(Fault::at(&path))?;
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
        let fault = || Fault::at(&self.0);
        let mut names = Vec::new();
        for file in fs::read_dir(&self.0).map_err(fault())? {
            let name = file.map_err(fault())?.file_name();
            names.extend(name.into_string());
        }
        Ok(Names::read(names.into_iter()))
    }

    /// Returns who has an address according to its file, if the file says so.
    pub fn holder(&self, address: IpAddr) -> Option<Holder> {
        let name = address.to_string();
        match cni::File::read(&name, &self.read(&name)?)? {
            cni::File::Taken { by, .. } => by,
            cni::File::Last { .. } => None,
        }
    }

    /// Returns since when an address has a file.
    pub fn since(&self, address: IpAddr) -> Option<SystemTime> {
        let found = fs::metadata(self.0.join(address.to_string())).ok()?;
        found.modified().ok()
    }

    /// Returns whether the container that has an address lives, as far as the note beside it says.
    pub fn life(&self, names: &Names, address: IpAddr, host: &Host) -> Life {
        let marks = names.taken.get(&address).map_or(&[][..], Vec::as_slice);
        let mark = match self.holder(address) {
            Some(holder) => note::mark_of(&holder).filter(|mark| marks.contains(mark)),
            // After a power cut the file may be empty.
            None => Some(marks).filter(|of| of.len() == 1).map(|of| of[0]),
        };
        mark.map_or(Life::Unclear, |mark| self.note(address, mark).life(host))
    }

    fn note(&self, address: IpAddr, mark: u64) -> Note {
        // A namespace's path may be as long as the kernel allows.
        let text = fs::read(self.0.join(note::name(address, mark))).unwrap_or_default();
        Note::read(&String::from_utf8_lossy(&text))
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
        let is_candidate =
            |marks: &Vec<u64>| each || marks.is_empty() || mark.is_some_and(|m| marks.contains(&m));
        let candidates = names.taken.iter().filter(|(_, marks)| is_candidate(marks));
        let held = candidates.filter_map(|(address, _)| Some((*address, self.holder(*address)?)));
        let (own, others): (Vec<_>, Vec<_>) = held
            .filter(|(_, holder)| holder.container == who.container)
            .partition(|(_, holder)| holder.ifname == who.ifname);
        // Before 0.8, host-local wrote no interface.
        let old = others
            .into_iter()
            .filter(|(_, holder)| holder.ifname.is_none());
        let found = if own.is_empty() { old.collect() } else { own };
        found.into_iter().map(|(address, _)| address).collect()
    }
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

    /// Gives a container an address. Returns whether nobody else has a file there.
    ///
    /// # Errors
    /// A file cannot be written; then nothing is left of it.
    pub fn take(&self, address: IpAddr, by: &Holder, note: &Note) -> Result<bool, Fault> {
        let beside = note::name(address, note::mark_of(by).unwrap_or_default());
        let taken = self
            .write(&beside, &note.contents())
            .and_then(|()| self.link(address, by, &format!("{beside}{UNFINISHED}")));
        if !matches!(taken, Ok(true)) {
            let _ = fs::remove_file(self.path(&beside));
        }
        taken
    }

    /// Writes an address's file under another name, and links it: it is there whole or not at all.
    fn link(&self, address: IpAddr, by: &Holder, unfinished: &str) -> Result<bool, Fault> {
        let file = cni::File::Taken {
            address,
            by: Some(by.clone()),
        };
        let path = self.path(&file.name());
        let contents = file.contents();
        let from = self.path(unfinished);
        let linked = self.write(unfinished, &contents).map(|()| {
            fs::hard_link(&from, &path).or_else(|error| match error.kind() {
                ErrorKind::AlreadyExists => Err(error),
                // Not every file system has links.
                _ => write_new(&path, &contents),
            })
        });
        let _ = fs::remove_file(&from);
        match linked? {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(Fault::at(&path)(error)),
        }
    }

    /// Writes a note beside an address that its container has already.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_note(&self, address: IpAddr, by: &Holder, note: &Note) -> Result<(), Fault> {
        let mark = note::mark_of(by).unwrap_or_default();
        self.write(&note::name(address, mark), &note.contents())
    }

    fn write(&self, name: &str, contents: &str) -> Result<(), Fault> {
        let path = self.path(name);
        let mut options = OpenOptions::new();
        let opened = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path);
        let written = opened.and_then(|mut file| file.write_all(contents.as_bytes()));
        written.map_err(|error| {
            let _ = fs::remove_file(&path);
            Fault::at(&path)(error)
        })
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
        let noted: Vec<_> = names
            .taken
            .iter()
            .filter(|(_, marks)| !marks.is_empty())
            .map(|(address, _)| *address)
            .collect();
        for address in noted {
            if self.directory.life(names, address, host) == Life::Gone {
                self.free(names, address)?;
            }
        }
        Ok(())
    }

    /// Returns whether the directory was swept in this boot.
    pub(crate) fn is_swept(&self, names: &Names, host: &Host) -> bool {
        host.boot.is_empty() || names.swept.contains(&host.boot)
    }

    /// Records that the directory was swept in this boot.
    pub(crate) fn was_swept(&self, names: &Names, host: &Host) {
        for boot in &names.swept {
            let _ = fs::remove_file(self.path(&format!("{SWEPT}{boot}")));
        }
        // Without it, the next ADD sweeps too.
        let _ = self.write(&format!("{SWEPT}{}", host.boot), "");
    }

    /// Returns the last address given of a set.
    pub(crate) fn last(&self, set: usize) -> Option<IpAddr> {
        let name = format!("last_reserved_ip.{set}");
        match cni::File::read(&name, &self.directory.read(&name)?)? {
            cni::File::Last { address, .. } => Some(address),
            cni::File::Taken { .. } => None,
        }
    }

    pub(crate) fn set_last(&self, set: usize, address: IpAddr) -> Result<(), Fault> {
        let file = cni::File::Last { set, address };
        self.write(&file.name(), &file.contents())
    }

    /// Makes a file and removes it again.
    pub(crate) fn try_file(&self) -> Result<(), Fault> {
        let name = format!("0.0.0.0.by.{UNFINISHED}");
        self.write(&name, "")?;
        fs::remove_file(self.path(&name)).map_err(Fault::at(&self.path(&name)))
    }
}

fn write_new(path: &Path, contents: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(contents.as_bytes()).inspect_err(|_| {
        let _ = fs::remove_file(path);
    })
}
