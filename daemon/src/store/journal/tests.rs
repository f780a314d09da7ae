use std::path::Path;
use std::time::Duration;

use leasehold_core::effect::OpId;
use leasehold_core::event::EventKind;
use leasehold_core::identity::Attachment;
use leasehold_core::record::Change;
use leasehold_core::time::WallTime;
use redb::Database;
use tempfile::TempDir;
use tokio::sync::mpsc::unbounded_channel;

use super::super::Store;
use super::*;

fn event(cause: u64) -> Event {
    Event {
        wall: WallTime::from_epoch(Duration::from_secs(cause)),
        attachment: Attachment::cni("lan", "c", "eth0"),
        kind: EventKind::Renewed,
        address: Some("10.0.0.7/24".parse().unwrap()),
        server: None,
        cause: cause.to_string(),
        run: None,
    }
}

fn notes(causes: impl IntoIterator<Item = u64>) -> Vec<Change> {
    causes
        .into_iter()
        .map(|cause| Change::Note(Box::new(event(cause))))
        .collect()
}

fn open(dir: &Path) -> Store {
    Store::open(dir, &dir.join("dhcp.sock"), unbounded_channel().0)
        .unwrap()
        .0
}

fn on_loop<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(future)
}

fn read(store: &Store, after: u64, limit: usize) -> Read {
    on_loop(store.journal().read(after, limit)).unwrap()
}

fn numbers(read: &Read) -> Vec<u64> {
    read.events.iter().map(|numbered| numbered.number).collect()
}

#[test]
fn events_come_back_as_they_were_in_order() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    assert_eq!(read(&store, 0, 10), Read::default());
    store.persist(OpId(1), notes([7, 8, 9]));
    let all = read(&store, 0, 10);
    assert_eq!((numbers(&all), all.next_after), (vec![1, 2, 3], 3));
    assert_eq!(all.events[1].event, event(8));
    let one = read(&store, 1, 1);
    assert_eq!((numbers(&one), one.next_after), (vec![2], 2));
    assert_eq!(
        read(&store, 3, 10),
        Read {
            events: Vec::new(),
            next_after: 3
        }
    );
    store.close();
}

#[test]
fn numbers_go_on_over_restarts() {
    let dir = TempDir::new().unwrap();
    for round in 0..3 {
        let store = open(dir.path());
        store.persist(OpId(1), notes([round]));
        assert_eq!(numbers(&read(&store, round, 10)), [round + 1]);
        store.close();
    }
}

#[test]
fn the_latest_ten_thousand_are_kept_and_no_more() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    for _ in 0..11 {
        store.persist(OpId(1), notes(0..1_000));
    }
    let first = read(&store, 0, 1);
    assert_eq!(numbers(&first), [1_001]);
    store.persist(OpId(1), notes([5]));
    assert_eq!(numbers(&read(&store, 0, 1)), [1_002]);
    assert_eq!(numbers(&read(&store, 11_000, 10)), [11_001]);
    // As many as may be read at once.
    assert_eq!(read(&store, 0, usize::MAX).events.len(), MOST);
    store.close();
}

/// A renewal like any other of this container, at this second.
fn renewal(container: &str, second: u64) -> Change {
    let attachment = Attachment::cni("lan", container, "eth0");
    Change::Note(Box::new(Event {
        attachment,
        cause: "renewal at T1".to_owned(),
        ..event(second)
    }))
}

/// What is in the journal: number, container, and how often it happened.
fn runs(store: &Store) -> Vec<(u64, String, u64)> {
    let all = read(store, 0, usize::MAX).events.into_iter();
    all.map(|Numbered { number, event }| {
        (
            number,
            event.attachment.container().expect("CNI's").to_owned(),
            event.run.map_or(1, |run| run.times),
        )
    })
    .collect()
}

#[test]
fn renewals_replace_only_earlier_ones_of_the_same_lease() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    store.persist(OpId(1), notes([1]));
    for second in 0..300 {
        store.persist(
            OpId(1),
            ["a", "b"]
                .map(|container| renewal(container, second))
                .into(),
        );
    }
    let text = |text: &str| text.to_owned();
    assert_eq!(
        runs(&store),
        [
            (1, text("c"), 1),
            (600, text("a"), 300),
            (601, text("b"), 300)
        ]
    );
    let last = read(&store, 600, 1).events.remove(0).event;
    assert_eq!(last.wall, WallTime::from_epoch(Duration::from_secs(299)));
    assert_eq!(
        last.run.unwrap().since,
        WallTime::from_epoch(Duration::ZERO)
    );
    // A reader that follows sees each, though the one before it is gone.
    store.persist(OpId(1), vec![renewal("a", 300)]);
    assert_eq!(
        read(&store, 601, 10),
        Read {
            events: read(&store, 0, 10).events.split_off(2),
            next_after: 602
        }
    );
    store.close();
}

#[test]
fn another_event_of_the_lease_ends_a_run() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    let Change::Note(other) = renewal("a", 3) else {
        unreachable!()
    };
    let other = Change::Note(Box::new(Event {
        kind: EventKind::Changed,
        ..*other
    }));
    store.persist(
        OpId(1),
        vec![
            renewal("a", 1),
            renewal("a", 2),
            other,
            renewal("a", 4),
            renewal("a", 5),
        ],
    );
    let times: Vec<_> = runs(&store)
        .into_iter()
        .map(|(number, _, times)| (number, times))
        .collect();
    assert_eq!(times, [(2, 2), (3, 1), (5, 2)]);
    store.close();
    // So does a restart: what was written before it stays as it was.
    let store = open(dir.path());
    store.persist(OpId(1), vec![renewal("a", 6), renewal("a", 7)]);
    let times: Vec<_> = runs(&store)
        .into_iter()
        .map(|(number, _, times)| (number, times))
        .collect();
    assert_eq!(times, [(2, 2), (3, 1), (5, 2), (7, 2)]);
    store.close();
}

#[test]
fn who_knows_of_later_events_than_there_are_gets_all() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    assert_eq!(read(&store, 57, 10).next_after, 0);
    store.persist(OpId(1), notes([1]));
    assert_eq!(numbers(&read(&store, 57, 10)), [1]);
    store.close();
}

#[test]
fn a_reader_waits_for_the_next_event_and_for_the_end() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    let mut journal = store.journal();
    store.persist(OpId(1), notes([1]));
    on_loop(journal.wait(0)).unwrap();
    let waiting = std::thread::spawn(move || on_loop(journal.wait(1)));
    store.close();
    assert_eq!(waiting.join().unwrap(), Err(JournalError::Closed));
}

#[test]
fn an_event_of_a_later_leasehold_is_left_out() {
    let dir = TempDir::new().unwrap();
    open(dir.path()).close();
    let database = Database::open(dir.path().join("leases.redb")).unwrap();
    let txn = database.begin_write().unwrap();
    {
        let mut table = txn.open_table(EVENTS).unwrap();
        table
            .insert(1, br#"{"kind":"of a later leasehold"}"#.as_slice())
            .unwrap();
    }
    txn.commit().unwrap();
    drop(database);
    let store = open(dir.path());
    assert_eq!(
        read(&store, 0, 10),
        Read {
            events: Vec::new(),
            next_after: 1
        }
    );
    store.persist(OpId(1), notes([2]));
    assert_eq!(numbers(&read(&store, 0, 10)), [2]);
    store.close();
}

/// A question that nobody waits for any more.
fn hung_up(store: &Store) {
    let (answer, _) = oneshot::channel();
    ask(store, answer);
}

fn ask(store: &Store, answer: oneshot::Sender<Result<Read, String>>) {
    let reading = Reading {
        after: 0,
        limit: MOST,
        answer,
    };
    store.journal().jobs.send(Job::Read(reading)).unwrap();
}

#[test]
fn a_question_whose_caller_hung_up_is_not_read() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    store.persist(OpId(1), notes(0..MOST as u64));
    // Reading for all of them would take minutes.
    (0..30_000).for_each(|_| hung_up(&store));
    let journal = store.journal();
    let patience = Duration::from_secs(10);
    let read = on_loop(async { tokio::time::timeout(patience, journal.read(0, 1)).await });
    assert_eq!(read.expect("in time").unwrap().next_after, 1);
    store.close();
}

#[test]
fn a_write_waits_for_no_more_than_one_read() {
    let dir = TempDir::new().unwrap();
    let (reports, mut written) = unbounded_channel();
    let (store, _) = Store::open(dir.path(), &dir.path().join("dhcp.sock"), reports).unwrap();
    store.persist(OpId(1), notes(0..MOST as u64));
    written.blocking_recv().unwrap();
    let asked = (0..2_000).map(|_| {
        let (answer, read) = oneshot::channel();
        ask(&store, answer);
        read
    });
    let mut asked: Vec<_> = asked.collect();
    store.persist(OpId(2), notes([1]));
    written.blocking_recv().unwrap();
    let answered = asked.iter_mut().filter_map(|read| read.try_recv().ok());
    let answered = answered.count();
    assert!(answered < 100, "{answered} of 2000 were read before");
    drop(asked);
    store.close();
}
