//! The store is lost, but nothing that only it remembered.

use std::collections::BTreeMap;

use leasehold_core::docker::TABLES;
use leasehold_core::identity::{Attachment, DoorId};
use leasehold_core::network::{AddressSource, EndpointRecord, Mode, NetworkRecord, Wiring};
use leasehold_core::pool::wants;
use leasehold_core::profile::Profile;

use super::*;

/// A state directory, and the socket's.
struct Host {
    state: TempDir,
    run: TempDir,
}

/// Everything a store is opened with, except CNI's leases.
#[derive(Debug, PartialEq)]
struct Found {
    id: u64,
    is_whole: bool,
    leases: BTreeMap<BindingId, Record>,
    doors: Vec<DoorRecord>,
}

impl Host {
    fn new() -> Self {
        Self {
            state: TempDir::new().unwrap(),
            run: TempDir::new().unwrap(),
        }
    }

    /// Lets a daemon make changes, one transaction after the other. Returns what it found at its start.
    fn runs(&self, changes: Vec<Change>) -> Found {
        let (events, mut ends) = unbounded_channel();
        let (store, stored) = Store::open(
            self.state.path(),
            &self.run.path().join("dhcp.sock"),
            events,
        )
        .unwrap();
        let (id, is_whole) = (store.id, store.is_whole);
        for change in changes {
            assert_eq!(write(&store, &mut ends, vec![change]), Ok(()));
        }
        store.close();
        let (leases, mut doors) = (stored.records.into_iter().collect(), stored.doors);
        doors.sort_by_key(|record| TABLES.iter().position(|table| *table == record.key.table));
        Found {
            id,
            is_whole,
            leases,
            doors,
        }
    }

    fn store(&self) -> PathBuf {
        self.state.path().join("leases.redb")
    }

    fn copy(&self) -> PathBuf {
        self.run.path().join("dhcp.sock.copy")
    }

    fn loses_its_store(&self) {
        fs::remove_file(self.store()).unwrap();
    }

    /// Returns the files of the copy, in order.
    fn copied(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> = fs::read_dir(self.copy())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        files
    }
}

fn dockers(n: u64) -> Record {
    let pool = pool().id.to_string();
    let attachment = Attachment::Docker {
        pool: pool.into(),
        endpoint: format!("02:42:00:00:00:{n:02x}").into(),
    };
    let record = record(n);
    Record {
        attachment,
        profile: Profile {
            wants: wants(None),
            ..record.profile.clone()
        },
        ..record
    }
}

fn put_dockers(id: u64) -> Change {
    Change::Put(BindingId(id), Box::new(dockers(id)))
}

fn since() -> WallTime {
    WallTime::from_epoch(Duration::from_secs(1))
}

fn pool() -> PoolRecord {
    PoolRecord {
        // Longer than the name of a file.
        id: PoolId::new("a/b".repeat(200), "192.0.2.0/24".parse().unwrap(), None),
        lan: None,
        gateway: None,
        reserved: ["192.0.2.9".parse().unwrap()].into(),
        automatic: true,
        since: since(),
    }
}

fn network() -> NetworkRecord {
    NetworkRecord {
        id: DoorId::try_from("4f00".to_owned()).unwrap(),
        definition: "parent=eth0".to_owned(),
        wiring: Wiring {
            mode: Mode::Ipvlan,
            on: "eth0".to_owned(),
            vlan: 0,
            mtu: None,
        },
        gateway: None,
        pool: "0.0.0.0/0".parse().unwrap(),
        leases: false,
        since: since(),
    }
}

fn endpoint() -> EndpointRecord {
    EndpointRecord {
        id: DoorId::try_from("e000".to_owned()).unwrap(),
        network: network().id,
        mac: Mac([2, 0, 0, 0, 0, 1]),
        address: "192.0.2.7/24".parse().unwrap(),
        source: AddressSource::Leased(dockers(1).attachment),
        since: since(),
    }
}

/// Returns what Docker told, in the order of its keys.
fn told() -> Vec<DoorRecord> {
    let told = [
        DockerRecord::Pool(pool()),
        DockerRecord::Network(network()),
        DockerRecord::Endpoint(endpoint()),
    ];
    told.iter().map(DockerRecord::kept).collect()
}

/// Returns changes after which a store holds two Docker leases, one CNI lease, and what Docker said.
pub(super) fn life() -> Vec<Change> {
    let told = told()
        .into_iter()
        .map(|record| Change::PutDoor(Box::new(record)));
    [put_dockers(1), put(2, 2), put_dockers(3)]
        .into_iter()
        .chain(told)
        .collect()
}

/// Returns leases that were copied: they are to be confirmed.
fn unconfirmed(ids: &[u64]) -> BTreeMap<BindingId, Record> {
    ids.iter()
        .map(|id| {
            (
                BindingId(*id),
                Record {
                    unconfirmed: true,
                    ..dockers(*id)
                },
            )
        })
        .collect()
}

#[test]
fn records_of_docker_outlive_a_lost_store() {
    for damage in [None, Some("no database"), Some("")] {
        let host = Host::new();
        let first = host.runs(life());
        // What runs is to be looked for.
        assert_eq!((first.is_whole, first.leases.len()), (false, 0));
        match damage {
            None => host.loses_its_store(),
            Some(bytes) => fs::write(host.store(), bytes).unwrap(),
        }
        let found = host.runs(vec![]);
        // Links bear the store's name.
        let expected = Found {
            id: first.id,
            is_whole: false,
            leases: unconfirmed(&[1, 3]),
            doors: told(),
        };
        assert_eq!(found, expected);
        // It is in the new store, too.
        fs::remove_dir_all(host.copy()).unwrap();
        assert_eq!(
            host.runs(vec![]),
            Found {
                is_whole: true,
                ..expected
            }
        );
    }
}

#[test]
fn the_copy_follows_each_change_of_the_store() {
    let host = Host::new();
    host.runs(life());
    let changed = Record {
        state: RecordState::Past,
        ..dockers(3)
    };
    let endpoint = DockerKey::Endpoint(endpoint().id).remove();
    host.runs(vec![
        Change::Remove(BindingId(1)),
        Change::Remove(BindingId(2)),
        Change::Put(BindingId(3), Box::new(changed.clone())),
        DockerKey::Pool(pool().id).remove(),
        endpoint,
        put_dockers(4),
    ]);
    host.loses_its_store();
    let found = host.runs(vec![]);
    let mut leases = unconfirmed(&[4]);
    leases.insert(
        BindingId(3),
        Record {
            unconfirmed: true,
            ..changed
        },
    );
    assert_eq!(
        (found.leases, found.doors),
        (leases, vec![DockerRecord::Network(network()).kept()])
    );
}

#[test]
fn a_whole_store_overwrites_a_foreign_copy() {
    let (host, other) = (Host::new(), Host::new());
    let id = host.runs(vec![put_dockers(1)]).id;
    other.runs(vec![put_dockers(1), put_dockers(5)]);
    other
        .copied()
        .iter()
        .for_each(|file| _ = fs::copy(file, host.copy().join(file.file_name().unwrap())).unwrap());
    let leases = BTreeMap::from([(BindingId(1), dockers(1))]);
    assert_eq!(
        host.runs(vec![]),
        Found {
            id,
            is_whole: true,
            leases,
            doors: vec![]
        }
    );
    host.loses_its_store();
    assert_eq!(
        host.runs(vec![]),
        Found {
            id,
            is_whole: false,
            leases: unconfirmed(&[1]),
            doors: vec![]
        }
    );
}

#[test]
fn only_records_of_docker_are_copied() {
    let host = Host::new();
    host.runs(vec![put(1, 1), Change::Remove(BindingId(1))]);
    assert!(!host.copy().exists());
    let id = host.runs(life()).id;
    fs::remove_dir_all(host.copy()).unwrap();
    host.loses_its_store();
    let found = host.runs(vec![]);
    assert!(
        found.id != id && found.leases.is_empty() && found.doors.is_empty(),
        "{found:?}"
    );
}

#[test]
fn a_file_of_the_copy_that_cannot_be_read_is_left_out() {
    let host = Host::new();
    host.runs(life());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let files = host.copied();
    assert!(mode(&host.copy()) == 0o700 && files.iter().all(|file| mode(file) == 0o600));
    assert_eq!(files.len(), 5);
    fs::write(host.copy().join("lease-1"), "{\"half\":").unwrap();
    // A daemon was killed over this one.
    fs::write(host.copy().join(".new-lease-9"), "{").unwrap();
    host.loses_its_store();
    let found = host.runs(vec![]);
    assert_eq!((found.leases, found.doors), (unconfirmed(&[3]), told()));
    assert_eq!(host.copied().len(), 4);
}

#[test]
fn a_copy_that_fails_harms_nothing_and_is_begun_again() {
    let host = Host::new();
    fs::write(host.copy(), "in the way").unwrap();
    host.runs(life());
    assert_eq!(host.runs(vec![]).leases.len(), 3);
    fs::remove_file(host.copy()).unwrap();
    host.runs(vec![put_dockers(4)]);
    host.loses_its_store();
    assert_eq!(host.runs(vec![]).leases, unconfirmed(&[1, 3, 4]));
}

#[test]
fn copied_records_are_held_while_no_store_can_be_written() {
    on_a_tmpfs(without_a_store);
}

fn without_a_store(state: &Path) {
    let run = TempDir::new().unwrap();
    let (store, _, _ends) = open_beside(state, run.path());
    life()
        .into_iter()
        .for_each(|change| store.persist(OpId(1), vec![change]));
    store.close();
    fs::remove_file(state.join("leases.redb")).unwrap();
    mount("-o remount,ro", state);
    let (store, records, mut ends) = open_beside(state, run.path());
    assert_eq!(ids(&records), [1, 3]);
    // What ends now goes with what is written later.
    assert_eq!(
        write(&store, &mut ends, vec![Change::Remove(BindingId(3))]),
        Ok(())
    );
    mount("-o remount,rw", state);
    assert_eq!(write(&store, &mut ends, vec![put_dockers(4)]), Ok(()));
    store.close();
    fs::remove_dir_all(run.path().join("dhcp.sock.copy")).unwrap();
    let (store, records, _ends) = open_beside(state, run.path());
    assert_eq!(ids(&records), [1, 4]);
    store.close();
}
