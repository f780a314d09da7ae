use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::panic::resume_unwind;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use leasehold_core::docker::{DockerKey, DockerRecord};
use leasehold_core::event::{Event, EventKind};
use leasehold_core::identity::{Attachment, ClientId, Identity, Lan};
use leasehold_core::link::{Cookie, Link};
use leasehold_core::pool::{PoolId, PoolRecord};
use leasehold_core::record::{DoorKey, DoorRecord, RecordState};
use leasehold_core::source::Lease;
use leasehold_core::time::{BootId, Instant, WallTime};
use leasehold_core::wire::Mac;
use nix::sched::{CloneFlags, unshare};
use redb::{Database, TableDefinition, WriteTransaction};
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::file::LeaseFile;
use super::*;
use crate::skip::skip;

mod copy;
mod release;

fn record(n: u64) -> Record {
    let mac = Mac([2, 0, 0, 0, (n >> 8) as u8, n as u8]);
    Record {
        profile: leasehold_core::profile::Profile::default(),
        attachment: Attachment::cni("lan", format!("c{n}"), "eth0"),
        identity: Identity {
            lan: Lan::Network("lan".into()),
            client_id: ClientId::new(format!("\0c{n}/lan/eth0").into_bytes()).unwrap(),
            chaddr: mac,
        },
        kept: None,
        former: None,
        taken_off: false,
        unconfirmed: false,
        elsewhere: false,
        told: None,
        link: Link::InNetns {
            path: "/run/netns/c".into(),
            cookie: Cookie(n),
            ifindex: 2,
            mac,
        },
        lease: Lease {
            server: "10.0.0.1".parse().unwrap(),
            server_mac: mac,
            ..Lease::unknown(
                "10.0.0.7/24".parse().unwrap(),
                Instant::from_boot(Duration::from_secs(n)),
            )
        },
        state: RecordState::Bound,
        boot: BootId("boot".to_owned()),
        since: WallTime::from_epoch(Duration::from_secs(1)),
    }
}

fn put(id: u64, n: u64) -> Change {
    Change::Put(BindingId(id), Box::new(record(n)))
}

fn open(
    dir: &Path,
) -> (
    Store,
    Vec<(BindingId, Record)>,
    UnboundedReceiver<Persisted>,
) {
    open_beside(dir, dir)
}

/// Opens the store in `dir`, with the socket in another directory.
fn open_beside(
    dir: &Path,
    run: &Path,
) -> (
    Store,
    Vec<(BindingId, Record)>,
    UnboundedReceiver<Persisted>,
) {
    let (events, ends) = unbounded_channel();
    let (store, stored) = Store::open(dir, &run.join("dhcp.sock"), events).unwrap();
    (store, stored.records, ends)
}

/// Has changes written, and returns the outcome.
fn write(
    store: &Store,
    ends: &mut UnboundedReceiver<Persisted>,
    changes: Vec<Change>,
) -> Result<(), StoreCause> {
    store.persist(OpId(0), changes);
    ends.blocking_recv().unwrap().result
}

/// Changes the file of a store that no daemon has, and returns its path.
fn edit(dir: &TempDir, change: impl FnOnce(&WriteTransaction)) -> PathBuf {
    let path = dir.path().join("leases.redb");
    let database = Database::open(&path).unwrap();
    let txn = database.begin_write().unwrap();
    change(&txn);
    txn.commit().unwrap();
    path
}

fn opened(dir: &TempDir) -> (LeaseFile, Stored) {
    LeaseFile::open(dir.path(), &dir.path().join("dhcp.sock")).unwrap()
}

fn ids(records: &[(BindingId, Record)]) -> Vec<u64> {
    records.iter().map(|(id, _)| id.0).collect()
}

/// The ids that a store in `dir` holds, seen by opening it.
fn held(dir: &Path) -> Vec<u64> {
    let (store, records, _ends) = open(dir);
    store.close();
    ids(&records)
}

fn damaged_files(dir: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    names
        .filter(|path| path.to_string_lossy().contains(".damaged-"))
        .collect()
}

#[test]
fn what_was_persisted_is_there_after_a_clean_stop() {
    let dir = TempDir::new().unwrap();
    let (store, records, mut ends) = open(dir.path());
    assert_eq!(records, []);
    store.persist(OpId(1), vec![put(1, 1), put(2, 2)]);
    store.persist(OpId(2), vec![Change::Remove(BindingId(1))]);
    store.close();
    for op in [1, 2] {
        let end = ends.blocking_recv().unwrap();
        assert_eq!((end.op, end.result), (OpId(op), Ok(())));
    }
    let (store, records, _ends) = open(dir.path());
    assert_eq!(records, [(BindingId(2), record(2))]);
    store.close();
}

#[test]
fn transactions_that_wait_together_happen_in_their_order() {
    let dir = TempDir::new().unwrap();
    let (store, _, mut ends) = open(dir.path());
    for n in 0..2_000 {
        store.persist(
            OpId(n),
            vec![put(n % 7, n), Change::Remove(BindingId((n + 1) % 7))],
        );
    }
    store.close();
    for n in 0..2_000 {
        assert_eq!(ends.blocking_recv().unwrap().op, OpId(n));
    }
    let (store, records, _ends) = open(dir.path());
    // 1999 % 7 is 4: number 5 was removed last; each other one was put again after its removal, by one of the last seven.
    let expected = [
        (0, 1995),
        (1, 1996),
        (2, 1997),
        (3, 1998),
        (4, 1999),
        (6, 1994),
    ];
    assert_eq!(records, expected.map(|(id, n)| (BindingId(id), record(n))));
    store.close();
}

#[test]
fn an_empty_transaction_is_answered_and_leaves_nothing() {
    let dir = TempDir::new().unwrap();
    let (store, _, mut ends) = open(dir.path());
    assert_eq!(write(&store, &mut ends, Vec::new()), Ok(()));
    store.close();
    assert_eq!(held(dir.path()), [] as [u64; 0]);
}

#[test]
fn a_copy_of_a_running_store_has_all_that_was_answered() {
    let (dir, copy) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (store, _, mut ends) = open(dir.path());
    for n in 0..50 {
        assert_eq!(write(&store, &mut ends, vec![put(n, n)]), Ok(()));
        // No clean close went before: the copy is what a power failure would leave.
        fs::copy(
            dir.path().join("leases.redb"),
            copy.path().join("leases.redb"),
        )
        .unwrap();
        if n % 10 == 0 {
            assert_eq!(held(copy.path()), (0..=n).collect::<Vec<_>>());
        }
    }
    store.close();
}

#[tokio::test]
async fn store_files_are_private_but_an_old_directory_is_kept() {
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let outer = TempDir::new().unwrap();
    let (made, given) = (outer.path().join("a/b"), outer.path().join("given"));
    fs::create_dir(&given).unwrap();
    fs::set_permissions(&given, Permissions::from_mode(0o755)).unwrap();
    for dir in [&made, &given] {
        let _ours = DirLock::take(dir, Path::new("/s"), None).await.unwrap();
        open(dir).0.close();
        assert_eq!(mode(&dir.join("leases.redb")), 0o600);
        assert_eq!(mode(&dir.join("leases.lock")), 0o600);
    }
    assert_eq!((mode(&made), mode(&given)), (0o700, 0o755));
}

#[tokio::test]
async fn a_daemon_with_another_socket_has_a_store_of_its_own() {
    let dir = TempDir::new().unwrap();
    let (default, other) = (dir.path().join("default"), dir.path().join("other"));
    let take = |socket: &'static str, other| DirLock::take(&default, Path::new(socket), other);
    let first = take("/run/first.sock", None).await.unwrap();
    assert_eq!(first.dir(), default);
    // Whoever replaces the first waits for it, with or without a place for another store.
    for waits in [None, Some(&*other)] {
        let next = take("/run/first.sock", waits);
        let patience = Duration::from_millis(300);
        assert!(tokio::time::timeout(patience, next).await.is_err());
    }
    let plain = tokio::time::timeout(Duration::from_millis(300), take("/run/second.sock", None));
    assert!(plain.await.is_err(), "nobody else's store moves");
    assert!(!other.exists());
    let second = take("/run/second.sock", Some(&other)).await.unwrap();
    assert_eq!(second.dir(), other);
    // It stays there.
    drop((first, second));
    let again = take("/run/second.sock", Some(&other)).await.unwrap();
    assert_eq!(again.dir(), other);
}

/// `written.redb` is never rewritten. Its records are the first of the core's `recorded.jsonl`, each with an event.
#[test]
fn a_store_of_an_earlier_daemon_is_read_whole() {
    const RECORDS: &str = include_str!("../../core/src/registry/tests/recorded.jsonl");
    let dir = TempDir::new().unwrap();
    fs::write(
        dir.path().join("leases.redb"),
        include_bytes!("written.redb"),
    )
    .unwrap();
    let written = RECORDS
        .lines()
        .take(112)
        .map(|line| serde_json::from_str(line).unwrap());
    let mut written: Vec<(BindingId, Record)> = written.collect();
    written.sort_by_key(|(id, _)| *id);
    let (file, Stored { records, doors, .. }) = opened(&dir);
    assert_eq!((records, doors), (written, Vec::new()));
    assert_eq!((file.last_event, file.is_whole), (112, true));
    assert!(damaged_files(dir.path()).is_empty());
}

/// A file with leases from an earlier daemon has no table of pools.
#[test]
fn pools_are_stored_beside_an_earlier_daemons_leases() {
    let dir = TempDir::new().unwrap();
    fs::write(
        dir.path().join("leases.redb"),
        include_bytes!("written.redb"),
    )
    .unwrap();
    let pool = |definition: &str| PoolRecord {
        id: PoolId::new(definition, "192.0.2.0/24".parse().unwrap(), None),
        lan: None,
        gateway: Some("192.0.2.1".parse().unwrap()),
        reserved: ["192.0.2.9".parse().unwrap()].into(),
        automatic: true,
        since: WallTime::from_epoch(Duration::from_secs(1)),
    };
    let put = |definition: &str| DockerRecord::Pool(pool(definition)).put();
    let (store, _, _ends) = open(dir.path());
    store.persist(OpId(1), vec![put("a"), put("b")]);
    store.persist(OpId(2), vec![DockerKey::Pool(pool("a").id).remove()]);
    store.close();
    let (_, Stored { records, doors, .. }) = opened(&dir);
    assert_eq!(
        (records.len(), doors),
        (112, vec![DockerRecord::Pool(pool("b")).kept()])
    );
}

/// The links that a daemon makes bear its store's name.
#[test]
fn a_file_keeps_its_name_and_no_other_has_it() {
    let [new, other, earlier] = [(); 3].map(|()| TempDir::new().unwrap());
    fs::write(
        earlier.path().join("leases.redb"),
        include_bytes!("written.redb"),
    )
    .unwrap();
    let id = |dir: &TempDir| {
        let (store, _, _ends) = open(dir.path());
        let id = store.id;
        store.close();
        id
    };
    let first = [&new, &other, &earlier].map(id);
    assert_eq!([&new, &other, &earlier].map(id), first);
    assert!(first[0] != first[1] && first[1] != first[2], "{first:?}");
}

#[test]
fn a_record_that_does_not_parse_is_kept_aside() {
    let dir = TempDir::new().unwrap();
    let (store, _, _ends) = open(dir.path());
    store.persist(OpId(1), vec![put(1, 1), put(2, 2)]);
    store.close();
    let leases = TableDefinition::<u64, &[u8]>::new("leases");
    let aside = TableDefinition::<(u64, u64), &[u8]>::new("unreadable");
    let path = edit(&dir, |txn| {
        let mut table = txn.open_table(leases).unwrap();
        table.insert(1, b"{\"half\":".as_slice()).unwrap();
    });

    assert_eq!(held(dir.path()), [2]);
    let database = Database::open(&path).unwrap();
    let txn = redb::ReadableDatabase::begin_read(&database).unwrap();
    let kept: Vec<_> = redb::ReadableTable::iter(&txn.open_table(aside).unwrap())
        .unwrap()
        .map(|row| {
            row.map(|(key, bytes)| (key.value().1, bytes.value().to_vec()))
                .unwrap()
        })
        .collect();
    assert_eq!(kept, [(1, b"{\"half\":".to_vec())]);
}

#[test]
fn what_a_door_keeps_is_not_read_here_and_stays() {
    let dir = TempDir::new().unwrap();
    let (store, _, _ends) = open(dir.path());
    store.close();
    let networks = TableDefinition::<&str, &[u8]>::new("networks");
    edit(&dir, |txn| {
        let mut table = txn.open_table(networks).unwrap();
        table.insert("4f00", b"{\"half\":".as_slice()).unwrap();
    });
    let key = DoorKey {
        table: "networks".to_owned(),
        name: "4f00".to_owned(),
    };
    for _ in 0..2 {
        let (file, Stored { doors, .. }) = opened(&dir);
        assert_eq!(
            doors,
            [DoorRecord {
                key: key.clone(),
                json: "{\"half\":".to_owned()
            }]
        );
        drop(file);
    }
    let (store, _, _ends) = open(dir.path());
    store.persist(OpId(1), vec![Change::RemoveDoor(key)]);
    store.close();
    assert_eq!(opened(&dir).1.doors, []);
}

#[test]
fn a_damaged_file_is_set_aside_wherever_the_damage_is() {
    let dir = TempDir::new().unwrap();
    let (store, _, _ends) = open(dir.path());
    store.persist(OpId(1), (0..200).map(|n| put(n, n)).collect());
    store.close();
    let path = dir.path().join("leases.redb");
    let whole = fs::read(&path).unwrap();
    let (mut set_aside, mut survived) = (0, 0);
    // The header closely, then a sample of the pages, at places in them that move.
    let places: Vec<usize> = (0..4096)
        .step_by(320)
        .chain((4096..whole.len()).step_by(7 * 4096 + 832))
        .collect();
    for &at in &places {
        let mut bytes = whole.clone();
        let end = (at + 64).min(bytes.len());
        bytes[at..end].iter_mut().for_each(|byte| *byte ^= 0xa5);
        fs::write(&path, &bytes).unwrap();
        let records = held(dir.path());
        let aside = damaged_files(dir.path());
        match aside.as_slice() {
            // The damage hit what redb does not use, or what it can rebuild.
            [] => survived += usize::from(records.len() == 200),
            [aside] => {
                assert_eq!(records, [] as [u64; 0]);
                fs::remove_file(aside).unwrap();
                set_aside += 1;
            }
            more => panic!("{more:?}"),
        }
        assert_eq!(held(dir.path()), records, "what was left opens again");
    }
    assert!(set_aside > 3, "{set_aside} set aside, {survived} survived");
    assert_eq!(set_aside + survived, places.len(), "half a store was read");
}

#[test]
fn a_file_that_is_no_database_is_set_aside() {
    for bytes in ["not a database", ""] {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("leases.redb"), bytes).unwrap();
        assert_eq!(held(dir.path()), [] as [u64; 0]);
        let aside = &damaged_files(dir.path())[0];
        assert_eq!(fs::read_to_string(aside).unwrap(), bytes);
    }
}

/// Returns a directory with a store that holds one record, and its file's path and bytes.
fn with_one_record() -> (TempDir, PathBuf, Vec<u8>) {
    let dir = TempDir::new().unwrap();
    let (store, ..) = open(dir.path());
    store.persist(OpId(1), vec![put(7, 7)]);
    store.close();
    let path = dir.path().join("leases.redb");
    let bytes = fs::read(&path).unwrap();
    (dir, path, bytes)
}

#[test]
fn no_flipped_bit_of_the_header_keeps_the_daemon_down() {
    let (dir, path, whole) = with_one_record();
    // Which of its two commit slots counts, and the versions of both.
    let places = [9, 64, 192];
    for bit in places.into_iter().flat_map(|at| at * 8..at * 8 + 8) {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &bytes).unwrap();
        let records = held(dir.path());
        let aside = damaged_files(dir.path());
        assert!(
            records == [7] || !aside.is_empty(),
            "bit {bit}: lost without a word"
        );
        aside
            .iter()
            .for_each(|aside| fs::remove_file(aside).unwrap());
    }
}

#[test]
fn a_file_that_goes_while_the_daemon_runs_is_written_anew() {
    let dir = TempDir::new().unwrap();
    let state = dir.path().join("state");
    fs::create_dir(&state).unwrap();
    let path = state.join("leases.redb");
    let (store, _, mut ends) = open(&state);
    let mut written = |id| {
        assert_eq!(write(&store, &mut ends, vec![put(id, id)]), Ok(()), "{id}");
    };
    written(1);
    fs::remove_file(&path).unwrap();
    written(2);
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    fs::remove_dir_all(&state).unwrap();
    written(3);
    fs::remove_file(&path).unwrap();
    fs::write(&path, "another").unwrap();
    written(4);
    assert_eq!(fs::read(&damaged_files(&state)[0]).unwrap(), b"another");
    store.close();
    assert_eq!(held(&state), [1, 2, 3, 4]);
}

#[test]
#[ignore = "the child of killing_the_daemon_loses_nothing_that_was_answered"]
fn child_that_persists_until_it_is_killed() {
    let (store, _, mut ends) = open(Path::new(&std::env::var("LEASEHOLD_TEST_DIR").unwrap()));
    let mut out = std::io::stdout().lock();
    for n in 0.. {
        assert_eq!(write(&store, &mut ends, vec![put(n, n)]), Ok(()));
        writeln!(out, "persisted {n}").unwrap();
    }
}

#[test]
fn killing_the_daemon_loses_nothing_that_was_answered() {
    let dir = TempDir::new().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "store::tests::child_that_persists_until_it_is_killed",
            "--exact",
            "--ignored",
            "--nocapture",
        ])
        .env("LEASEHOLD_TEST_DIR", dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let answered = |line: std::io::Result<String>| {
        line.unwrap()
            .strip_prefix("persisted ")
            .map(|n| n.parse().unwrap())
    };
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut last: u64 = lines
        .by_ref()
        .filter_map(answered)
        .find(|n| *n >= 100)
        .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    // What it had still said when it died counts too.
    last = lines.filter_map(answered).last().unwrap_or(last);
    let held = held(dir.path());
    assert!(
        held.len() as u64 > last,
        "{} records, {last} was answered",
        held.len()
    );
    assert_eq!(held, (0..held.len() as u64).collect::<Vec<_>>());
}

/// Runs a test on a small tmpfs, in a mount namespace of its own.
fn on_a_tmpfs(test: impl FnOnce(&Path) + Send) {
    let dir = TempDir::new().unwrap();
    let on_it = || {
        if let Err(errno) = unshare(CloneFlags::CLONE_NEWNS) {
            return skip(format_args!(
                "a mount namespace takes root, or a user namespace: {errno}"
            ));
        }
        mount("--make-rprivate", Path::new("/"));
        mount("-t tmpfs -o size=3m,mode=700 none", dir.path());
        test(dir.path());
    };
    thread::scope(|scope| scope.spawn(on_it).join()).unwrap_or_else(|panic| resume_unwind(panic));
}

fn mount(how: &str, dir: &Path) {
    let mut mount = Command::new("mount");
    let mounted = mount.args(how.split(' ')).arg(dir).status();
    assert!(mounted.unwrap().success(), "{how}");
}

#[test]
fn a_full_disk_is_named_and_passes() {
    on_a_tmpfs(full_and_passes);
}

fn full_and_passes(dir: &Path) {
    let (store, _, mut ends) = open(dir);
    assert_eq!(write(&store, &mut ends, vec![put(1, 1)]), Ok(()));
    let ballast = dir.join("ballast");
    let full = fs::write(&ballast, vec![1; 64 << 20]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    let mut tries = 2..;
    let mut failed = None;
    // The file has free pages: it fills up only after some records.
    while failed.is_none() {
        let n = tries.next().unwrap();
        store.persist(OpId(n), vec![put(n, n)]);
        failed = ends.blocking_recv().unwrap().result.err();
    }
    assert_eq!(failed, Some(StoreCause::Full));
    let full_at = tries.next().unwrap();
    // The second time as well.
    assert_eq!(
        write(&store, &mut ends, vec![put(full_at, 1)]),
        Err(StoreCause::Full),
    );
    // Nor is it said to have room.
    assert_eq!(write(&store, &mut ends, Vec::new()), Err(StoreCause::Full));
    store.close();
    let (store, records, mut ends) = open(dir);
    // A start needs no room.
    assert_eq!(ids(&records), (1..full_at - 1).collect::<Vec<_>>());
    fs::remove_file(&ballast).unwrap();
    // With room again.
    assert_eq!(write(&store, &mut ends, vec![put(full_at, 1)]), Ok(()));
    store.close();
    let expected: Vec<u64> = (1..full_at - 1).chain([full_at]).collect();
    assert_eq!(held(dir), expected);
}

#[test]
fn events_give_way_to_leases() {
    on_a_tmpfs(many_events);
}

fn many_events(dir: &Path) {
    let note = |n| {
        Change::Note(Box::new(Event {
            wall: WallTime::from_epoch(Duration::from_secs(n)),
            attachment: record(n).attachment,
            kind: EventKind::Acquired,
            address: Some("10.0.0.7/24".parse().unwrap()),
            server: None,
            cause: "x".repeat(500),
            run: None,
        }))
    };
    let mut last = 0;
    for start in 0..2 {
        let (store, records, mut ends) = open(dir);
        assert_eq!(records.len(), 50 * start);
        // As many leases stay as a small host has.
        for n in (0..50).map(|n| 10_000 * start as u64 + n) {
            assert_eq!(
                write(&store, &mut ends, vec![put(n, n), note(n)]),
                Ok(()),
                "{n}"
            );
        }
        for n in 1_000..2_500 {
            let n = 10_000 * start as u64 + n;
            store.persist(OpId(n), vec![put(n, n), note(n)]);
            store.persist(OpId(n), vec![Change::Remove(BindingId(n)), note(n)]);
            for _ in 0..2 {
                assert_eq!(ends.blocking_recv().unwrap().result, Ok(()), "{n}");
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let journal = store.journal();
        let read = runtime.unwrap().block_on(journal.read(0, 1_000)).unwrap();
        let first = read.events[0].number;
        assert!(first > last && read.events.len() > 10, "{first}");
        last = first;
        store.close();
    }
    // As many as reference.md says have room there.
    let (store, _, mut ends) = open(dir);
    for n in 50_000..50_500 {
        assert_eq!(
            write(&store, &mut ends, vec![put(n, n), note(n)]),
            Ok(()),
            "{n}"
        );
    }
    store.close();
}

#[test]
fn a_full_disk_keeps_ends_of_leases_beside_the_socket() {
    on_a_tmpfs(ends_beside);
}

fn ends_beside(dir: &Path) {
    let next = 5;
    let (store, ..) = open(dir);
    store.persist(OpId(0), (1..next).map(|n| put(n, n)).collect());
    store.close();
    mount("-o remount,ro", dir);
    let (store, _, mut ends) = open(dir);
    store.persist(OpId(0), vec![Change::Remove(BindingId(1))]);
    // Nor can the socket's directory be written.
    assert!(ends.blocking_recv().unwrap().result.is_err());
    store.close();
    let run = TempDir::new().unwrap();
    let beside = || fs::read_dir(run.path()).unwrap().count();
    let (store, _, mut ends) = open_beside(dir, run.path());
    let released = Record {
        state: RecordState::Releasing,
        ..record(1)
    };
    let leaves = |id| {
        Change::Put(
            BindingId(id),
            Box::new(Record {
                state: RecordState::Releasing,
                ..record(id)
            }),
        )
    };
    store.persist(OpId(1), vec![leaves(1)]);
    store.persist(OpId(2), vec![leaves(2)]);
    store.persist(OpId(3), vec![Change::Remove(BindingId(2))]);
    store.persist(OpId(4), vec![put(next, 1), Change::Remove(BindingId(1))]);
    let results = [0; 4].map(|_| ends.blocking_recv().unwrap().result.is_ok());
    // One that takes a record's place is no end.
    assert_eq!(results, [true, true, true, false]);
    let failed = store.commits().failed;
    store.persist(OpId(5), Vec::new());
    assert!(ends.blocking_recv().unwrap().result.is_err());
    // What is tried in vain is tried once.
    assert_eq!(store.commits().failed, failed + 1);
    store.close();
    assert_eq!(beside(), 2);
    let (store, records, _ends) = open_beside(dir, run.path());
    assert_eq!(
        ids(&records),
        [1].into_iter().chain(3..next).collect::<Vec<_>>()
    );
    assert_eq!(records[0].1, released);
    store.close();
    // A daemon with another store is told nothing, and takes nothing away.
    let other = TempDir::new().unwrap();
    let (store, records, _ends) = open_beside(other.path(), run.path());
    assert_eq!((records, beside()), (vec![], 2));
    store.close();
    mount("-o remount,rw", dir);
    let paths = fs::read_dir(run.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let entries: Vec<_> = paths
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    let (store, _, mut ends) = open_beside(dir, run.path());
    store.persist(OpId(5), vec![put(next, 1)]);
    // The file records them with the next.
    assert_eq!(
        (ends.blocking_recv().unwrap().result, beside()),
        (Ok(()), 0),
    );
    store.close();
    assert_eq!(
        held(dir),
        [1].into_iter().chain(3..=next).collect::<Vec<_>>()
    );
    // Of a daemon that was killed before it removed them the next one does: another binding may get such a number.
    entries
        .iter()
        .for_each(|(path, entry)| fs::write(path, entry).unwrap());
    let (store, _, mut ends) = open_beside(dir, run.path());
    store.persist(OpId(6), vec![put(2, 2)]);
    assert_eq!(
        (ends.blocking_recv().unwrap().result, beside()),
        (Ok(()), 0)
    );
    store.close();
    let (store, records, _ends) = open_beside(dir, run.path());
    assert_eq!(ids(&records), (1..=next).collect::<Vec<_>>());
    store.close();
}

#[test]
fn an_end_of_an_earlier_lease_ends_no_later_one() {
    let dir = TempDir::new().unwrap();
    let (store, ..) = open(dir.path());
    store.persist(OpId(1), vec![put(1, 1), put(2, 2)]);
    let id = store.id;
    store.close();
    let socket = dir.path().join("dhcp.sock");
    let leave = |binding: u64, start: u64| {
        let start = Instant::from_boot(Duration::from_secs(start));
        let entry = serde_json::json!({"record": null, "events": [], "start": start});
        let path = leasehold_api::spool::end(&socket, id, binding);
        fs::write(&path, entry.to_string()).unwrap();
        path
    };
    // The lease of a record begins at its number.
    let (stale, due) = (leave(1, 7), leave(2, 2));
    fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    let (store, records, _ends) = open(dir.path());
    store.close();
    assert_eq!(ids(&records), [1, 2], "anybody may have left them");
    fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
    let (store, records, _ends) = open(dir.path());
    assert_eq!(ids(&records), [1]);
    assert!(!stale.exists() && due.exists());
    store.close();
}
