//! Stores of other releases: earlier ones are read, later ones are refused.

use leasehold_core::event::{Event, EventKind};
use redb::{ReadableDatabase, ReadableTableMetadata};

use super::copy::life;
use super::*;

/// Returns changes of every kind that a store keeps, except a removal.
fn everything() -> Vec<Change> {
    const RECORDS: &str = include_str!("../../../core/src/registry/tests/recorded.jsonl");
    let recorded = RECORDS
        .lines()
        .skip(112)
        .take(4)
        .map(|line| serde_json::from_str(line).unwrap());
    let leases =
        recorded.map(|(id, record): (BindingId, Record)| Change::Put(id, Box::new(record)));
    // As the daemons wrote it that gave addresses of local ranges.
    let range = r#"{"attachment":{"door":"cni","network":"local","container":"c","ifname":"eth0"},"lan":{"network":"local"},"given":[{"address":"198.51.100.7/24","gateway":"198.51.100.1"}],"netns":"/run/netns/c","cookie":7,"directory":"/var/lib/cni/networks/local","boot":"boot","since":1}"#;
    let range = DoorRecord {
        key: DoorKey {
            table: "ranges".to_owned(),
            name: Attachment::cni("local", "c", "eth0").to_string(),
        },
        json: range.to_owned(),
    };
    let event = Event {
        wall: WallTime::from_epoch(Duration::from_secs(1)),
        attachment: Attachment::cni("lan", "c", "eth0"),
        kind: EventKind::Renewed,
        address: "10.0.0.7/24".parse().ok(),
        server: "10.0.0.1".parse().ok(),
        cause: "renewal at T1".to_owned(),
        run: None,
    };
    let others = [
        Change::PutDoor(Box::new(range)),
        Change::Note(Box::new(event)),
    ];
    life().into_iter().chain(leases).chain(others).collect()
}

/// Makes a store with all that in a directory.
fn written(dir: &TempDir) {
    let (store, _, mut ends) = open(dir.path());
    assert_eq!(write(&store, &mut ends, everything()), Ok(()));
    store.close();
}

/// `0.1.0.redb` is what [`written`] made with that release. It is never rewritten.
#[test]
fn all_that_an_earlier_release_wrote_is_read() {
    let [earlier, today] = [(); 2].map(|()| TempDir::new().unwrap());
    written(&today);
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/tests/0.1.0.redb");
    fs::copy(kept, earlier.path().join("leases.redb")).unwrap();
    let bytes = || fs::read(earlier.path().join("leases.redb")).unwrap();
    let before = bytes();
    check_version(earlier.path()).unwrap();
    assert!(bytes() == before, "only a daemon changes it");
    let ((of_earlier, mut found), (_, expected)) = (opened(&earlier), opened(&today));
    // That release gave up on a request of Docker's a second earlier.
    for (_, record) in &mut found.records[..3] {
        let wants = &mut record.profile.wants;
        wants.patience = wants
            .patience
            .map(|patience| patience + Duration::from_secs(1));
    }
    check_version(earlier.path()).expect("a daemon has it");
    assert_eq!(found, expected);
    assert_eq!(
        (found.records.len(), found.doors.len(), found.ranges.len()),
        (7, 3, 1)
    );
    assert_eq!((of_earlier.last_event, of_earlier.is_whole), (1, true));
    assert_eq!(damaged_files(earlier.path()), [] as [PathBuf; 0]);
}

/// The plugin has the address now: the next start finds no record of it.
#[test]
fn a_range_record_that_ended_is_not_read_again() {
    let dir = TempDir::new().unwrap();
    written(&dir);
    let found = opened(&dir).1.ranges;
    let (store, _, _ends) = open(dir.path());
    let of = found.into_iter().map(|record| record.attachment);
    store.range_ends()(of.collect());
    store.close();
    assert_eq!(opened(&dir).1.ranges, []);
}

/// Makes a store as a release to come leaves it.
fn of_a_later_release(dir: &TempDir) -> PathBuf {
    written(dir);
    edit(dir, |txn| {
        let mut meta = txn
            .open_table(TableDefinition::<&str, u64>::new("meta"))
            .unwrap();
        meta.insert("format", 2).unwrap();
        let mut release = txn
            .open_table(TableDefinition::<(), &str>::new("release"))
            .unwrap();
        release.insert((), "9.8.7").unwrap();
    })
}

#[test]
fn a_store_of_a_later_format_is_refused_and_left_alone() {
    let dir = TempDir::new().unwrap();
    let path = of_a_later_release(&dir);
    for _ in 0..2 {
        let refused = Store::open(
            dir.path(),
            &dir.path().join("dhcp.sock"),
            unbounded_channel().0,
        );
        let said = format!(
            "{} is from leasehold 9.8.7 and has format 2; leasehold {VERSION} knows 1 at most: run the newer one, or move the file away",
            path.display()
        );
        assert_eq!(
            refused.err().map(|error| error.to_string()).as_ref(),
            Some(&said)
        );
        assert_eq!(
            check_version(dir.path())
                .err()
                .map(|error| error.to_string()),
            Some(said)
        );
        assert_eq!(damaged_files(dir.path()), [] as [PathBuf; 0]);
    }
    let database = Database::open(&path).unwrap();
    let leases = database
        .begin_read()
        .unwrap()
        .open_table(TableDefinition::<u64, &[u8]>::new("leases"))
        .unwrap();
    assert_eq!(leases.len().unwrap(), 7);
}

#[test]
fn a_store_of_a_later_redb_is_refused_and_left_alone() {
    let (dir, path, mut bytes) = with_one_record();
    (bytes[64], bytes[192]) = (4, 4);
    fs::write(&path, &bytes).unwrap();
    let (events, _ends) = unbounded_channel();
    let refused = Store::open(dir.path(), &dir.path().join("dhcp.sock"), events)
        .err()
        .unwrap()
        .to_string();
    assert_eq!(check_version(dir.path()).unwrap_err().to_string(), refused);
    let said = format!(
        "is from a later leasehold and has redb's format 4; leasehold {VERSION} knows 3 at most: "
    );
    assert!(refused.contains(&said), "{refused}");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}
