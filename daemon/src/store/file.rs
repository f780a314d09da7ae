//! The redb file: opening, checking, setting aside, reading, and one commit.

use std::any::Any;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold_core::docker;
use leasehold_core::effect::StoreCause;
use leasehold_core::event::Event;
use leasehold_core::record::{BindingId, Change, DoorKey, DoorRecord, Record};
use leasehold_core::time::Instant as LeaseInstant;
use redb::backends::InMemoryBackend;
use redb::{
    Builder, Database, Durability, ReadTransaction, ReadableDatabase, ReadableTable,
    ReadableTableMetadata, StorageBackend, TableDefinition, WriteTransaction,
};

use super::copy::Copied;
use super::journal::{self, Reading, Runs};
use super::named;
use super::on_disk::{OnDisk, set_aside, sync_dir, unix_seconds};
use super::ranges;
use super::room::Room;
use super::{FormatOf, StoreError, Stored, VERSION};
use crate::unguessable;

/// Its name in the state directory.
const NAME: &str = "leases.redb";
/// Binding id to its record as JSON.
const LEASES: TableDefinition<u64, &[u8]> = TableDefinition::new("leases");
/// (Unix seconds, binding id) to the bytes of a record that did not parse. Never read by the daemon.
const UNREADABLE: TableDefinition<(u64, u64), &[u8]> = TableDefinition::new("unreadable");
/// Facts about the file itself.
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
/// The key in [`META`] for the format of this file.
const FORMAT_KEY: &str = "format";
/// The key in [`META`] for the file's name, which it keeps as long as it lives.
const ID_KEY: &str = "id";
/// The format that this code reads and writes.
const FORMAT: u64 = 1;
/// The release that last had the file open, whatever the format: a daemon that does not know the format names it.
const RELEASE: TableDefinition<(), &str> = TableDefinition::new("release");
/// How a redb file begins, in each of its formats so far.
const REDB_MAGIC: [u8; 9] = *b"redb\x1a\x0a\xa9\x0d\x0a";
/// Where its two commit slots have the version of their format.
const REDB_VERSIONS: [usize; 2] = [64, 192];
/// How many bytes of a file contain both.
const REDB_HEAD: usize = 193;
/// The version that our redb writes.
const REDB_FORMAT: u8 = 3;
/// redb's own default is 1 GiB. A record is half a kilobyte and is written twice an hour, but not read.
const CACHE: usize = 128 << 10;
/// The table of the record that is only written as a trial, and its name there. Nobody reads it.
const TRIAL: &str = "trial";
/// The size of that record: as much as an ADD's record, its event and the pages above them.
const TRIAL_SIZE: usize = 16 << 10;
/// The pause after a failed commit: the next one reopens the file, which reads all of it. An ADD may wait that much longer to hear
/// that the disk is full.
const PAUSE: Duration = Duration::from_millis(500);

/// Returns a trial of whether there is room for an ADD. It stays in the file: what one commit adds and removes is never written. The
/// next trial takes other pages of the file, and leaves these to ADDs.
pub(super) fn trial() -> Change {
    let key = DoorKey {
        table: TRIAL.to_owned(),
        name: TRIAL.to_owned(),
    };
    let json = " ".repeat(TRIAL_SIZE);
    Change::PutDoor(Box::new(DoorRecord { key, json }))
}

/// The file.
pub(super) struct LeaseFile {
    pub(super) path: PathBuf,
    /// `None` after a failure, until it can be opened again.
    database: Option<Database>,
    /// Keeps the file's contents in case somebody deletes it.
    on_disk: OnDisk,
    /// Room in which events can be dropped while there is none.
    room: Room,
    /// Keeps a part of them in case the file is lost while no daemon runs.
    pub(super) copy: Copied,
    /// When the next commit may be tried, if the last one failed.
    next_try: Option<Instant>,
    /// The file's name, which no other has.
    pub(super) id: u64,
    /// The number of the last event, 0 when there is none.
    pub(super) last_event: u64,
    runs: Runs,
    /// Whether it was there at the start, and every record in it was read.
    pub(super) is_whole: bool,
    /// Whether it did not exist at the start and could not be created.
    is_missing: bool,
}

/// Why the file cannot be used as it is.
enum Unusable {
    /// Its contents are wrong: it is set aside.
    Damaged(String),
    /// A later version of leasehold wrote it, in a later format of this kind: that release, if it can be read.
    Newer(FormatOf, u64, Option<String>),
    /// The file may be intact, but cannot be used now.
    Failed(Box<redb::Error>),
}

/// Checks that this release can read the store in `dir`. Changes nothing, whether or not a daemon uses it.
///
/// # Errors
/// [`StoreError::NewerFormat`] alone: about whatever else is wrong with it, the daemon knows what to do.
pub(crate) fn check_version(dir: &Path) -> Result<(), StoreError> {
    let path = dir.join(NAME);
    if !path.exists() {
        return Ok(());
    }
    match read_only(&path, 0, &Copied::beside(&path)) {
        Err(why @ Unusable::Newer(..)) => Err(refuse(&path, why)),
        Ok(_) | Err(Unusable::Damaged(_) | Unusable::Failed(_)) => Ok(()),
    }
}

impl LeaseFile {
    /// Opens or makes the file in `dir`, and reads its records. A new file begins with what was copied of the previous one.
    pub(super) fn open(dir: &Path, socket: &Path) -> Result<(Self, Stored), StoreError> {
        let path = dir.join(NAME);
        let copy = Copied::beside(socket);
        let new_id = unguessable();
        let opened = match open_checked(&path, new_id, &copy) {
            Err(Unusable::Damaged(reason)) => {
                let aside = set_aside(&path)?;
                tracing::error!(
                    file = %path.display(), %reason, kept = %aside.display(),
                    "lease file damaged: set aside; starting without it",
                );
                open_checked(&path, new_id, &copy)
            }
            other => other,
        };
        let (database, contents) = match opened {
            Ok((database, contents)) => {
                // A new file is durable only once its name is.
                sync_dir(&path)?;
                (Some(database), contents)
            }
            Err(Unusable::Failed(error)) if is_for_want_of_writing(&error) => {
                tracing::error!(
                    file = %path.display(), %error,
                    "lease file cannot be written: until it can be, leases are held as they stand and ADDs refused",
                );
                let (_in_memory, contents) =
                    read_only(&path, new_id, &copy).map_err(|why| refuse(&path, why))?;
                (None, contents)
            }
            Err(why) => return Err(refuse(&path, why)),
        };
        let Contents {
            stored,
            unreadable,
            is_new,
            id,
            last_event,
        } = contents;
        let is_whole = unreadable.is_empty() && !is_new;
        let is_missing = database.is_none() && !path.exists();
        let on_disk = OnDisk::of(&path);
        let room = Room::beside(&path);
        if database.is_some() {
            room.keep();
        }
        let mut file = Self {
            path,
            database,
            on_disk,
            room,
            copy,
            next_try: None,
            id,
            last_event,
            runs: Runs::default(),
            is_whole,
            is_missing,
        };
        file.keep_aside(unreadable);
        Ok((file, stored))
    }

    /// Returns how long the next commit must wait.
    pub(super) fn pause(&self) -> Duration {
        self.next_try.map_or(Duration::ZERO, |next_try| {
            next_try.saturating_duration_since(Instant::now())
        })
    }

    /// Carries out a read and answers it.
    pub(super) fn read(&mut self, reading: Reading) {
        let read = |database: &Database| guarded(|| reading.carry_out(database));
        let result = self.database().and_then(read);
        if result.is_err() {
            self.database = None;
        }
        reading.answer(result.map_err(|cause| cause.to_string()));
    }

    /// Returns the start of the lease that a record holds; `None` if there is none, or if the file cannot be read now.
    pub(super) fn start_of(&mut self, binding: BindingId) -> Option<LeaseInstant> {
        let read = |database: &Database| {
            guarded(|| {
                let leases = database.begin_read()?.open_table(LEASES)?;
                Ok(leases.get(binding.0)?.map(|json| json.value().to_vec()))
            })
        };
        let json = self.database().and_then(read).ok().flatten()?;
        let record: Record = serde_json::from_slice(&json).ok()?;
        Some(record.lease.start)
    }

    /// Makes changes durable, in order, all or none.
    ///
    /// A failed flush is a failure, even if the changes can be read back: the kernel keeps in memory what it could not write, as
    /// if it had written it, so reading proves nothing.
    pub(super) fn commit(&mut self, changes: &[Change]) -> Result<(), StoreCause> {
        if changes.is_empty() {
            return Ok(());
        }
        // The runs of a failed commit are forgotten.
        let mut runs = std::mem::take(&mut self.runs);
        let mut written = self
            .put_back()
            .and_then(|()| self.transact(changes, &mut runs));
        while written == Err(StoreCause::Full) && self.forgets_events() {
            runs = Runs::default();
            written = self.transact(changes, &mut runs);
        }
        match written {
            Ok(last_event) => {
                (self.next_try, self.runs) = (None, runs);
                self.last_event = last_event.unwrap_or(self.last_event);
                Ok(())
            }
            Err(cause) => {
                // After an I/O error redb refuses everything (`PreviousIo`) until it is opened again.
                self.database = None;
                self.next_try = Some(Instant::now() + PAUSE);
                Err(cause)
            }
        }
    }

    /// Makes changes durable. Returns the number of the last event, if there was one.
    fn transact(&mut self, changes: &[Change], runs: &mut Runs) -> Result<Option<u64>, StoreCause> {
        self.database()
            .and_then(|database| guarded(|| transact(database, changes, runs)))
    }

    /// Drops the older half of the events, so that leases have their room. Returns whether there were any.
    fn forgets_events(&mut self) -> bool {
        // After an I/O error redb refuses everything until it is opened again.
        self.database = None;
        self.room.give();
        let opened = self.database().map(drop);
        let forgotten = opened.and_then(|()| {
            let database = self.database.as_mut().expect("it was opened just now");
            guarded(|| {
                let events = journal::forget_half(database)?;
                // What one transaction removes, the next ones may use, but nobody else: the file becomes shorter only here.
                database.compact()?;
                Ok(events)
            })
        });
        self.room.keep();
        match forgotten {
            Ok(0) => false,
            Ok(events) => {
                tracing::warn!(file = %self.path.display(), events, "no room: dropped the oldest events to record leases");
                true
            }
            Err(cause) => {
                tracing::warn!(file = %self.path.display(), %cause, "no room, not even to drop events");
                self.database = None;
                false
            }
        }
    }

    /// Writes the file again if somebody has deleted it, moved it or put another in its place since it was opened.
    fn put_back(&mut self) -> Result<(), StoreCause> {
        if self.on_disk.is_of(&self.path) {
            return Ok(());
        }
        tracing::error!(file = %self.path.display(), "lease file was deleted or replaced while in use: writing it anew");
        // Closed first, so that what the database has in memory is in the file that lost its name.
        self.database = None;
        self.on_disk
            .put_back(&self.path)
            .map_err(|error| StoreCause::Failed(crate::log::chain(&error)))
    }

    /// Returns the database, opened again if it failed before.
    fn database(&mut self) -> Result<&Database, StoreCause> {
        let database = match self.database.take() {
            Some(database) => database,
            None if self.is_missing => {
                let database = make(&self.path, self.id, &self.copy)?;
                (self.on_disk, self.is_missing) = (OnDisk::of(&self.path), false);
                database
            }
            // Never created here: a file that vanished is a failure, not an empty store.
            None => guarded(|| Ok(Builder::new().set_cache_size(CACHE).open(&self.path)?))?,
        };
        Ok(self.database.insert(database))
    }

    /// Moves records that did not parse out of the way, within the file. If there is no room for that, they stay where
    /// they are.
    fn keep_aside(&mut self, unreadable: Vec<(u64, Vec<u8>)>) {
        if unreadable.is_empty() {
            return;
        }
        let seconds = unix_seconds();
        let moved = self.database().and_then(|database| {
            guarded(|| {
                let txn = database.begin_write()?;
                {
                    let mut leases = txn.open_table(LEASES)?;
                    let mut aside = txn.open_table(UNREADABLE)?;
                    for (id, bytes) in &unreadable {
                        aside.insert((seconds, *id), bytes.as_slice())?;
                        leases.remove(*id)?;
                    }
                }
                Ok(txn.commit()?)
            })
        });
        if let Err(cause) = moved {
            tracing::error!(file = %self.path.display(), %cause, "cannot move unreadable records");
            self.database = None;
        }
    }
}

/// What was read at the start.
struct Contents {
    stored: Stored,
    unreadable: Vec<(u64, Vec<u8>)>,
    /// The file was not there.
    is_new: bool,
    id: u64,
    last_event: u64,
}

/// Opens or creates, checks and reads the file. Leaves no file that could not be created whole.
fn open_checked(path: &Path, new_id: u64, copy: &Copied) -> Result<(Database, Contents), Unusable> {
    let was_there = path.exists();
    if fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == 0) {
        return Err(Unusable::Damaged("it is empty".to_owned()));
    }
    let opened = checked(path, new_id, copy, || {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path);
        let file = file.map_err(|e| Unusable::Failed(Box::new(redb::Error::Io(e))))?;
        Builder::new()
            .set_cache_size(CACHE)
            .create_file(file)
            .map_err(judge)
    });
    if opened.is_err() && !was_there {
        // It may not be there; the first error is the one to report.
        let _ = fs::remove_file(path);
    }
    opened
}

/// Returns the format of a file that a later redb wrote. Both commit slots must say so; a damaged byte is in only one.
fn later_redb(path: &Path) -> Option<u64> {
    let mut head = [0; REDB_HEAD];
    File::open(path)
        .and_then(|mut file| file.read_exact(&mut head))
        .ok()?;
    let [one, other] = REDB_VERSIONS.map(|at| head[at]);
    (head.starts_with(&REDB_MAGIC) && one == other && one > REDB_FORMAT).then_some(one.into())
}

/// Creates the file that could not be created at the start. Fails if somebody has put another there since.
fn make(path: &Path, id: u64, copy: &Copied) -> Result<Database, StoreCause> {
    let failed = |error: &dyn std::error::Error| StoreCause::Failed(crate::log::chain(error));
    match open_checked(path, id, copy).map_err(|why| refuse(path, why)) {
        Ok((_, contents)) if !contents.is_new => Err(StoreCause::Failed(format!(
            "{} appeared after the start: restart the daemon",
            path.display()
        ))),
        Ok((database, _)) => sync_dir(path)
            .map(|()| database)
            .map_err(|error| failed(&error)),
        Err(StoreError::File { source, .. }) => Err(cause(&source)),
        Err(error) => Err(failed(&error)),
    }
}

/// Reads a file that cannot be written, in memory: redb writes even when it only reads.
fn read_only(path: &Path, new_id: u64, copy: &Copied) -> Result<(Database, Contents), Unusable> {
    checked(path, new_id, copy, || {
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            read => read.map_err(|error| Unusable::Failed(Box::new(redb::Error::Io(error))))?,
        };
        let memory = InMemoryBackend::new();
        let loaded = memory
            .set_len(bytes.len() as u64)
            .and_then(|()| memory.write(0, &bytes));
        loaded.map_err(|error| Unusable::Failed(Box::new(redb::Error::Io(error))))?;
        Builder::new()
            .set_cache_size(CACHE)
            .create_with_backend(memory)
            .map_err(judge)
    })
}

/// Returns whether the only obstacle is that nothing can be written there.
fn is_for_want_of_writing(error: &redb::Error) -> bool {
    use ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let kinds = [
        ReadOnlyFilesystem,
        PermissionDenied,
        StorageFull,
        QuotaExceeded,
    ];
    matches!(error, redb::Error::Io(error) if kinds.contains(&error.kind()))
}

/// Checks and reads a file that `open` opens. redb's own check comes first, because a damaged file can make redb panic or read
/// wrong data.
fn checked(
    path: &Path,
    new_id: u64,
    copy: &Copied,
    open: impl FnOnce() -> Result<Database, Unusable>,
) -> Result<(Database, Contents), Unusable> {
    if let Some(format) = later_redb(path) {
        return Err(Unusable::Newer(FormatOf::Redb, format, None));
    }
    let work = || -> Result<_, Unusable> {
        let mut database = open()?;
        if !database.check_integrity().map_err(judge)? {
            tracing::warn!(file = %path.display(), "lease file repaired");
        }
        let (format, release) = agree_on_format(&database).map_err(judge)?;
        if format > FORMAT {
            return Err(Unusable::Newer(FormatOf::Leasehold, format, release));
        }
        let (id, is_new) = agree_on_id(&database, new_id, copy).map_err(judge)?;
        let contents = read(&database, id, is_new).map_err(judge)?;
        Ok((database, contents))
    };
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(Unusable::Damaged(said(&panic))))
}

/// Returns the format of the file, and the release that last had it open if the file says so. From here on it is this release's
/// file, unless its format is a later one.
fn agree_on_format(database: &Database) -> Result<(u64, Option<String>), redb::Error> {
    let txn = database.begin_write()?;
    let found = txn
        .open_table(META)?
        .get(FORMAT_KEY)?
        .map(|format| format.value());
    let release = txn
        .open_table(RELEASE)?
        .get(())?
        .map(|release| release.value().to_owned());
    if found > Some(FORMAT) || (found == Some(FORMAT) && release.as_deref() == Some(VERSION)) {
        txn.abort()?;
    } else {
        txn.open_table(META)?.insert(FORMAT_KEY, FORMAT)?;
        txn.open_table(RELEASE)?.insert((), VERSION)?;
        txn.open_table(LEASES)?;
        txn.commit()?;
    }
    Ok((found.unwrap_or(FORMAT), release))
}

/// Returns the name of the file, and whether it is new. A file without a name gets `new_id`. A new file gets the name in the copy
/// instead, if there is a copy, and in the same transaction the records that were copied.
fn agree_on_id(
    database: &Database,
    new_id: u64,
    copy: &Copied,
) -> Result<(u64, bool), redb::Error> {
    let txn = database.begin_write()?;
    let found = txn.open_table(META)?.get(ID_KEY)?.map(|id| id.value());
    if let Some(id) = found {
        txn.abort()?;
        return Ok((id, false));
    }
    // A file from the first daemons has leases but no name.
    let is_new = txn.open_table(LEASES)?.is_empty()?;
    let (id, changes) = if is_new { copy.read() } else { None }.unwrap_or((new_id, Vec::new()));
    make_all(&txn, &changes)?;
    txn.open_table(META)?.insert(ID_KEY, id)?;
    txn.commit()?;
    Ok((id, is_new))
}

fn read(database: &Database, id: u64, is_new: bool) -> Result<Contents, redb::Error> {
    let txn = database.begin_read()?;
    let mut records = Vec::new();
    let mut unreadable = Vec::new();
    for row in txn.open_table(LEASES)?.iter()? {
        let (id, bytes) = row?;
        match serde_json::from_slice(bytes.value()) {
            Ok(record) => records.push((BindingId(id.value()), record)),
            Err(error) => {
                tracing::warn!(binding = id.value(), %error, "record does not parse: kept in table `unreadable`");
                unreadable.push((id.value(), bytes.value().to_vec()));
            }
        }
    }
    let stored = Stored {
        records,
        doors: doors(&txn)?,
        ranges: ranges::read(&txn)?,
    };
    Ok(Contents {
        stored,
        unreadable,
        is_new,
        id,
        last_event: journal::last(database)?,
    })
}

/// Reads what front doors keep, each record by its name. Only the core reads them.
fn doors(txn: &ReadTransaction) -> Result<Vec<DoorRecord>, redb::Error> {
    let mut records = Vec::new();
    for table in docker::TABLES {
        named::read(txn, named::table(table), |name, json| {
            let (table, name) = (table.to_owned(), name.to_owned());
            let key = DoorKey { table, name };
            let json = String::from_utf8_lossy(json).into_owned();
            records.push(DoorRecord { key, json });
        })?;
    }
    Ok(records)
}

fn transact(
    database: &Database,
    changes: &[Change],
    runs: &mut Runs,
) -> Result<Option<u64>, redb::Error> {
    let mut txn = database.begin_write()?;
    txn.set_durability(Durability::Immediate)?;
    make_all(&txn, changes)?;
    let notes = changes.iter().filter_map(|change| match change {
        Change::Note(event) => Some(&**event),
        _ => None,
    });
    let events: Vec<&Event> = notes.collect();
    let last_event = if events.is_empty() {
        None
    } else {
        Some(journal::append(&txn, &events, runs)?)
    };
    txn.commit()?;
    Ok(last_event)
}

/// Makes all changes but events.
fn make_all(txn: &WriteTransaction, changes: &[Change]) -> Result<(), redb::Error> {
    let mut leases = txn.open_table(LEASES)?;
    for change in changes {
        match change {
            Change::Put(id, record) => {
                // It fails for a path that is not UTF-8, which no caller and no engine gives.
                let json = serde_json::to_vec(record).map_err(|e| redb::Error::Io(e.into()))?;
                leases.insert(id.0, json.as_slice())?;
            }
            Change::Remove(id) => drop(leases.remove(id.0)?),
            Change::PutDoor(record) => {
                let DoorRecord { key, json } = &**record;
                let mut table = txn.open_table(named::table(&key.table))?;
                table.insert(key.name.as_str(), json.as_bytes())?;
            }
            Change::RemoveDoor(DoorKey { table, name }) => {
                txn.open_table(named::table(table))?.remove(name.as_str())?;
            }
            Change::Note(_) => {}
        }
    }
    Ok(())
}

/// Runs work on the database. A panic counts as any other failure: the database is reopened after it.
fn guarded<T>(work: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, StoreCause> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(redb::Error::Corrupted(said(&panic))))
        .map_err(|error| cause(&error))
}

/// Distinguishes wrong contents from an unusable device.
fn judge(error: impl Into<redb::Error>) -> Unusable {
    let error = error.into();
    match &error {
        redb::Error::Io(e)
            if !matches!(e.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) =>
        {
            Unusable::Failed(Box::new(error))
        }
        // Somebody else has it open, or the device failed before.
        redb::Error::DatabaseAlreadyOpen | redb::Error::PreviousIo => {
            Unusable::Failed(Box::new(error))
        }
        // This includes an earlier redb format (`UpgradeRequired`), which no leasehold ever wrote.
        _ => Unusable::Damaged(error.to_string()),
    }
}

fn refuse(path: &Path, why: Unusable) -> StoreError {
    let path = path.to_owned();
    match why {
        Unusable::Newer(of, found, release) => {
            let known = match of {
                FormatOf::Leasehold => FORMAT,
                FormatOf::Redb => REDB_FORMAT.into(),
            };
            let by = release.map_or("a later leasehold".to_owned(), |release| {
                format!("leasehold {release}")
            });
            StoreError::NewerFormat {
                path,
                by,
                of,
                found,
                known,
            }
        }
        Unusable::Failed(source) => StoreError::File { path, source },
        Unusable::Damaged(reason) => StoreError::File {
            path,
            source: Box::new(redb::Error::Corrupted(reason)),
        },
    }
}

fn cause(error: &redb::Error) -> StoreCause {
    match error {
        redb::Error::Io(e)
            if matches!(e.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
        {
            StoreCause::Full
        }
        other => StoreCause::Failed(other.to_string()),
    }
}

fn said(panic: &Box<dyn Any + Send>) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("panic without a message").to_owned()
}
