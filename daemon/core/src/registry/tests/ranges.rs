//! Addresses from local ranges, with a shell of their own: a store, files, and namespaces that live or not.

mod lasting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::super::*;
use crate::core::Core;
use crate::effect::{
    Call, Failure, FileCause, FileChange, FoundFile, Input, RangeAdd, RangeAnswer, RangeCall,
    RequestId, StoreCause,
};
use crate::grant::policy::Detection;
use crate::identity::ClientId;
use crate::link::own::OwnLinks;
use crate::link::{Cookie, KernelMessage};
use crate::range::{NoAddress, Said, Sets};
use crate::testbed::store::Store;
use crate::time::WallTime;

/// The registry of a host whose networks have only local ranges.
struct Host {
    reg: Core,
    boot: &'static str,
    at: Duration,
    /// The namespaces that live, by path.
    live: BTreeMap<PathBuf, Cookie>,
    store: Store,
    disk_is_full: bool,
    /// Whose file each address has.
    files: BTreeMap<IpAddr, String>,
    /// File changes wait for `flush`.
    files_are_slow: bool,
    /// Writes of the store do.
    store_is_slow: bool,
    /// Looks at namespaces do.
    looks_are_slow: bool,
    slow: VecDeque<Effect>,
    answers: BTreeMap<u64, Answer>,
    requests: u64,
    /// After how many effects the daemon is killed.
    killed_after: Option<usize>,
}

impl Host {
    fn new() -> Self {
        let live = (1..20).map(|n| (path(n), Cookie(n))).collect();
        let mut host = Self {
            reg: Core::new(Config::default(), 1),
            boot: "a",
            at: Duration::from_secs(1000),
            live,
            store: Store::default(),
            disk_is_full: false,
            files: BTreeMap::new(),
            files_are_slow: false,
            store_is_slow: false,
            looks_are_slow: false,
            slow: VecDeque::new(),
            answers: BTreeMap::new(),
            requests: 0,
            killed_after: None,
        };
        host.start();
        host
    }

    fn now(&self) -> Now {
        Now {
            boot: Instant::from_boot(self.at),
            wall: WallTime::from_epoch(self.at + Duration::from_secs(1 << 30)),
        }
    }

    /// Starts a daemon on what the store holds.
    fn start(&mut self) {
        self.reg = Core::new(Config::default(), 1);
        self.slow.clear();
        let (boot, records) = (
            BootId(self.boot.into()),
            self.store.ranges.values().cloned().collect(),
        );
        self.input(Input::Ranges {
            boot: boot.clone(),
            records,
        });
        let nothing = (vec![], vec![], vec![], vec![]);
        let (records, doors, spooled, adoptees) = nothing;
        self.input(Input::Start {
            boot,
            records,
            doors,
            spooled,
            adoptees,
        });
    }

    fn input(&mut self, input: Input<'_>) {
        self.reg.handle(self.now(), input);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(effect) = self.reg.poll_effect() {
            match &mut self.killed_after {
                Some(0) => return,
                Some(left) => *left -= 1,
                None => {}
            }
            let is_slow = match effect {
                Effect::File { .. } => self.files_are_slow,
                Effect::Persist { .. } => self.store_is_slow,
                Effect::Watch { .. } => self.looks_are_slow,
                _ => false,
            };
            if is_slow {
                self.slow.push_back(effect);
            } else {
                self.carry_out(effect);
            }
        }
    }

    /// Carries out what waits.
    fn flush(&mut self) {
        (self.files_are_slow, self.store_is_slow, self.looks_are_slow) = (false, false, false);
        while let Some(effect) = self.slow.pop_front() {
            self.carry_out(effect);
        }
        self.drain();
    }

    fn carry_out(&mut self, effect: Effect) {
        let (op, outcome) = match effect {
            Effect::Persist { op, changes } => (op, Outcome::Persisted(self.persist(op, changes))),
            Effect::Watch { op, netns } => {
                let found = self.live.get(&netns).copied();
                (op, Outcome::Watched(found.ok_or(LinkCause::NoNetns(netns))))
            }
            Effect::File {
                op,
                address,
                of,
                change,
                ..
            } => {
                let result = self.file(address, of.container().unwrap_or_default(), change);
                let Some(op) = op else { return };
                (op, Outcome::Filed { address, result })
            }
            Effect::ListOwn { op } => (op, Outcome::OwnLinks(Ok(OwnLinks::default()))),
            Effect::Reply { id, answer } => {
                assert!(
                    self.answers.insert(id.0, answer).is_none(),
                    "answered twice"
                );
                return;
            }
            other => panic!("nothing else is asked for: {other:?}"),
        };
        self.reg.handle(self.now(), Input::Done { op, outcome });
    }

    fn persist(&mut self, op: OpId, changes: Vec<Change>) -> Result<(), StoreCause> {
        if self.disk_is_full {
            return Err(StoreCause::Full);
        }
        let is_expected = |change: &Change| matches!(change, Change::Range(_) | Change::Note(_));
        assert!(
            changes.iter().all(is_expected),
            "nothing else is written: {changes:?}"
        );
        self.store.commit(op, changes);
        Ok(())
    }

    fn file(
        &mut self,
        address: IpAddr,
        container: &str,
        change: FileChange,
    ) -> Result<(), FileCause> {
        let there = self.files.get(&address).cloned();
        match (change, there) {
            (FileChange::Write { .. }, Some(other)) if other != container => {
                Err(FileCause::Taken(other))
            }
            (FileChange::Write { .. }, _) => {
                self.files.insert(address, container.to_owned());
                Ok(())
            }
            (FileChange::Remove, there) => {
                if there.as_deref() == Some(container) {
                    self.files.remove(&address);
                }
                Ok(())
            }
        }
    }

    fn request(&mut self, call: Call) -> u64 {
        self.requests += 1;
        self.input(Input::Request {
            id: RequestId(self.requests),
            call,
        });
        self.requests
    }

    fn ask(&mut self, add: RangeAdd) -> u64 {
        self.request(Call::Ranges(RangeCall::Add(Box::new(add))))
    }

    /// Requests an address, and returns it, or why there is none.
    fn given(&mut self, add: RangeAdd) -> Result<String, Failure> {
        let id = self.ask(add);
        self.answer(id)
    }

    fn answer(&self, id: u64) -> Result<String, Failure> {
        match self.answers.get(&id) {
            Some(Answer::Ranges(RangeAnswer::Given(given))) => Ok(given
                .iter()
                .map(|given| given.address.to_string())
                .collect::<Vec<_>>()
                .join(" ")),
            Some(Answer::Failed(failure)) => Err(failure.clone()),
            other => panic!("{other:?}"),
        }
    }

    fn ask_del(&mut self, container: &str) -> u64 {
        self.request(Call::Del {
            attachment: attachment("pods", container),
            grace: None,
        })
    }

    fn del(&mut self, container: &str) {
        let id = self.ask_del(container);
        assert_eq!(self.answers[&id], Answer::Deleted);
    }

    fn check(&mut self, container: &str) -> bool {
        let id = self.request(Call::Check {
            attachment: attachment("pods", container),
            expected: vec![],
        });
        self.answers[&id] == Answer::Checked
    }

    fn dies(&mut self, netns: u64) {
        self.live.remove(&path(netns));
        self.input(Input::Kernel(KernelMessage::NetnsDied {
            cookie: Cookie(netns),
        }));
    }

    fn found(&mut self, found: Vec<FoundFile>, last: Vec<(usize, IpAddr)>) {
        self.input(Input::Files {
            network: "pods".into(),
            directory: "/data/pods".into(),
            found,
            last,
        });
    }

    /// The containers of which there are files, by address.
    fn filed(&self) -> Vec<String> {
        self.files
            .iter()
            .map(|(address, container)| format!("{address} {container}"))
            .collect()
    }

    fn run_for(&mut self, milliseconds: u64) {
        self.at += Duration::from_millis(milliseconds);
        self.reg.handle_timeout(self.now());
        self.drain();
    }
}

fn path(netns: u64) -> PathBuf {
    format!("/ns/{netns}").into()
}

fn attachment(network: &str, container: &str) -> Attachment {
    Attachment::cni(network, container, "eth0")
}

fn sets(subnets: &[&str]) -> Sets {
    let said = |subnet: &&str| {
        vec![Said {
            subnet: subnet.parse().expect("a subnet"),
            start: None,
            end: None,
            gateway: None,
        }]
    };
    Sets::new(&subnets.iter().map(said).collect::<Vec<_>>()).expect("good ranges")
}

/// An ADD of a container in the namespace of this number.
fn add(container: &str, netns: u64, subnets: &[&str]) -> RangeAdd {
    RangeAdd {
        attachment: attachment("pods", container),
        netns: path(netns),
        lan: Lan::Network("pods".into()),
        returns_as: None,
        sets: sets(subnets),
        asked: vec![],
        directory: "/data/pods".into(),
        detection: Detection::Off,
        timeout: Duration::from_secs(30),
    }
}

fn file(address: &str, container: &str, gone: bool) -> FoundFile {
    FoundFile {
        address: ip(address),
        container: Some(container.into()),
        ifname: Some("eth0".into()),
        gone,
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

const BOTH: [&str; 2] = ["10.0.0.0/29", "fd00::/125"];
const SMALL: [&str; 1] = ["10.0.0.0/29"];

#[test]
fn a_container_has_an_address_of_each_set_until_its_del() {
    let mut host = Host::new();
    assert_eq!(
        host.given(add("a", 1, &BOTH)),
        Ok("10.0.0.2/29 fd00::2/125".into())
    );
    assert_eq!(
        host.given(add("b", 2, &BOTH)),
        Ok("10.0.0.3/29 fd00::3/125".into())
    );
    assert_eq!(
        host.filed(),
        ["10.0.0.2 a", "10.0.0.3 b", "fd00::2 a", "fd00::3 b"]
    );
    assert_eq!(host.store.ranges.len(), 2);
    assert!(host.check("a") && host.check("b"));
    host.del("a");
    host.del("a");
    assert!(!host.check("a"));
    assert_eq!(
        (host.filed(), host.store.ranges.len()),
        (vec!["10.0.0.3 b".to_owned(), "fd00::3 b".to_owned()], 1)
    );
    assert_eq!(
        host.given(add("c", 3, &BOTH)),
        Ok("10.0.0.4/29 fd00::4/125".into()),
        "round robin"
    );
}

#[test]
fn events_bear_an_address_of_either_family() {
    for (subnets, address) in [
        (&SMALL[..], "10.0.0.2/29"),
        (&["fd00::/125"], "fd00::2/125"),
        (&BOTH, "10.0.0.2/29"),
    ] {
        let mut host = Host::new();
        host.given(add("a", 1, subnets)).expect("there are some");
        host.del("a");
        let told: Vec<_> = host
            .store
            .events
            .iter()
            .map(|event| (event.kind.name(), event.address))
            .collect();
        let address = Some(address.parse().expect("an address"));
        assert_eq!(told, [("acquired", address), ("released", address)]);
    }
}

#[test]
fn a_second_add_fails_while_the_namespace_of_the_first_lives() {
    let mut host = Host::new();
    assert_eq!(host.given(add("a", 1, &SMALL)), Ok("10.0.0.2/29".into()));
    for netns in [1, 2] {
        let again = host.given(add("a", netns, &SMALL));
        assert!(
            matches!(
                again,
                Err(Failure::NoAddress {
                    none: NoAddress::Duplicate { .. },
                    ..
                })
            ),
            "{again:?}"
        );
        assert!(host.check("a"));
    }
    // Its path is gone, and the kernel has not reported that yet.
    host.live.remove(&path(1));
    assert_eq!(host.given(add("a", 2, &SMALL)), Ok("10.0.0.3/29".into()));
    assert_eq!(host.filed(), ["10.0.0.3 a"]);
    // Another namespace is at its path.
    host.live.insert(path(2), Cookie(99));
    assert_eq!(host.given(add("a", 2, &SMALL)), Ok("10.0.0.4/29".into()));
    assert_eq!(
        (host.filed(), host.store.ranges.len()),
        (vec!["10.0.0.4 a".to_owned()], 1)
    );
}

#[test]
fn an_address_is_free_when_its_namespace_dies() {
    let mut host = Host::new();
    for netns in 1..=5 {
        host.given(add(&format!("c{netns}"), netns, &SMALL))
            .expect("there are five");
    }
    let full = host
        .given(add("late", 6, &SMALL))
        .expect_err("there are five");
    assert!(
        matches!(
            full,
            Failure::NoAddress {
                none: NoAddress::Full { taken: 5, .. },
                running: 5
            }
        ),
        "{full}"
    );
    assert!(full.to_string().contains("pods/c1/eth0"), "{full}");
    host.dies(3);
    assert_eq!(host.given(add("late", 6, &SMALL)), Ok("10.0.0.4/29".into()));
    assert_eq!((host.files.len(), host.store.ranges.len()), (5, 5));
}

#[test]
fn what_others_gave_is_not_given_again() {
    let mut host = Host::new();
    host.found(
        vec![file("10.0.0.3", "x", false), file("10.0.0.6", "old", true)],
        vec![(0, ip("10.0.0.2"))],
    );
    assert_eq!(
        host.given(add("a", 1, &SMALL)),
        Ok("10.0.0.4/29".into()),
        "after the last, not what is taken"
    );
    // A stray takes the next one, which nobody has seen.
    host.files.insert(ip("10.0.0.5"), "stray".into());
    assert_eq!(host.given(add("b", 2, &SMALL)), Ok("10.0.0.6/29".into()));
    assert_eq!(host.filed(), ["10.0.0.4 a", "10.0.0.5 stray", "10.0.0.6 b"]);
    assert_eq!(host.store.ranges.len(), 2);
    // x is known by its file alone.
    assert!(host.check("x"));
    host.files.insert(ip("10.0.0.3"), "x".into());
    host.del("x");
    assert!(!host.check("x") && !host.files.contains_key(&ip("10.0.0.3")));
}

#[test]
fn what_lacks_its_file_gets_it_again_and_what_is_gone_loses_it() {
    let mut host = Host::new();
    host.given(add("a", 1, &SMALL)).expect("an address");
    host.files = [(ip("10.0.0.3"), "old".to_owned())].into();
    host.found(vec![file("10.0.0.3", "old", true)], vec![]);
    assert_eq!(host.filed(), ["10.0.0.2 a"]);
    assert_eq!(host.given(add("b", 2, &SMALL)), Ok("10.0.0.3/29".into()));
}

#[test]
fn nobody_gets_an_address_that_is_not_durable_and_everybody_gets_rid_of_one() {
    let mut host = Host::new();
    host.given(add("a", 1, &SMALL)).expect("an address");
    host.disk_is_full = true;
    assert_eq!(
        host.given(add("b", 2, &SMALL)),
        Err(Failure::Store(StoreCause::Full))
    );
    assert_eq!(host.filed(), ["10.0.0.2 a"]);
    host.del("a");
    assert_eq!((host.filed(), host.store.ranges.len()), (vec![], 1));
    host.disk_is_full = false;
    host.given(add("c", 3, &SMALL)).expect("an address");
    host.run_for(10_000);
    assert_eq!(
        host.store.ranges.keys().collect::<Vec<_>>(),
        [&attachment("pods", "c")],
        "the store catches up"
    );
}

#[test]
fn a_restart_keeps_what_lives_and_a_reboot_nothing() {
    let mut host = Host::new();
    for netns in 1..=3 {
        host.given(add(&format!("c{netns}"), netns, &SMALL))
            .expect("an address");
    }
    host.live.remove(&path(2));
    host.at += Duration::from_secs(100);
    host.start();
    assert!(host.check("c1") && !host.check("c2") && host.check("c3"));
    assert_eq!((host.files.len(), host.store.ranges.len()), (2, 2));
    let again = host.given(add("c1", 1, &SMALL));
    assert!(
        matches!(
            again,
            Err(Failure::NoAddress {
                none: NoAddress::Duplicate { .. },
                ..
            })
        ),
        "{again:?}"
    );
    (host.boot, host.at) = ("b", Duration::from_secs(10));
    host.live.clear();
    host.start();
    assert_eq!((host.filed(), host.store.ranges.len()), (vec![], 0));
}

/// The daemon sees none of the containers' namespaces: it may be looking in the wrong place.
#[test]
fn a_daemon_that_sees_no_namespace_gives_nothing_back() {
    let mut host = Host::new();
    host.given(add("a", 1, &SMALL)).expect("an address");
    host.given(add("b", 2, &SMALL)).expect("an address");
    let live = std::mem::take(&mut host.live);
    host.start();
    assert!(host.check("a") && host.check("b"));
    host.live = live;
    host.live.remove(&path(2));
    host.given(add("c", 3, &SMALL)).expect("an address");
    assert_eq!(
        ["a", "b"].map(|container| host.check(container)),
        [true, false],
        "where one is seen, what is missing is gone"
    );
}

/// Somebody unmounts the directory of the namespaces under a daemon that has seen them: nothing shows that one ended.
#[test]
fn a_daemon_that_sees_no_namespace_any_more_gives_nothing_back() {
    let mut host = Host::new();
    host.given(add("a", 1, &SMALL)).expect("an address");
    host.given(add("b", 2, &SMALL)).expect("an address");
    let live = std::mem::take(&mut host.live);
    host.input(Input::Kernel(KernelMessage::Missed));
    assert!(
        host.check("a") && host.check("b"),
        "it saw them before, but sees nothing now"
    );
    host.live = live;
    host.input(Input::Kernel(KernelMessage::Missed));
    host.live.remove(&path(2));
    host.input(Input::Kernel(KernelMessage::Missed));
    assert_eq!(
        ["a", "b"].map(|container| host.check(container)),
        [true, false]
    );
}

/// A shim asks the next daemon again if the previous one was killed before its answer.
#[test]
fn an_add_that_was_not_answered_is_answered_by_the_next_daemon() {
    let mut host = Host::new();
    host.given(add("a", 1, &BOTH)).expect("an address");
    host.at += Duration::from_secs(2);
    host.start();
    assert_eq!(
        host.given(add("a", 1, &BOTH)),
        Ok("10.0.0.2/29 fd00::2/125".into())
    );
}

#[test]
fn two_networks_on_one_lan_give_no_address_twice() {
    let mut host = Host::new();
    let lan = Lan::Link {
        parent: "eth0".into(),
        vlan: 0,
    };
    let on = |network: &str, container: &str, netns| RangeAdd {
        attachment: attachment(network, container),
        lan: lan.clone(),
        directory: format!("/data/{network}").into(),
        ..add(container, netns, &SMALL)
    };
    let mut seen = BTreeSet::new();
    for (netns, network) in [(1, "one"), (2, "two"), (3, "one"), (4, "two"), (5, "one")] {
        let container = format!("c{netns}");
        seen.insert(
            host.given(on(network, &container, netns))
                .expect("there are five"),
        );
    }
    assert_eq!(seen.len(), 5);
    assert!(host.given(on("two", "c6", 6)).is_err());
    host.dies(1);
    assert_eq!(host.given(on("two", "c6", 6)), Ok("10.0.0.2/29".into()));
    host.files.clear();
    let other = RangeAdd {
        lan: Lan::Network("far".into()),
        attachment: attachment("far", "c7"),
        ..on("far", "c7", 7)
    };
    assert_eq!(host.given(other), Ok("10.0.0.2/29".into()), "another LAN");
}

#[test]
fn an_identity_gets_its_address_again() {
    let mut host = Host::new();
    let pod = |container: &str, netns, name: &[u8]| RangeAdd {
        returns_as: Some(ClientId::new(name.to_vec()).expect("an identifier")),
        ..add(container, netns, &BOTH)
    };
    assert_eq!(
        host.given(pod("a", 1, b"\0db-0")),
        Ok("10.0.0.2/29 fd00::2/125".into())
    );
    host.del("a");
    assert_eq!(
        host.given(pod("b", 2, b"\0web")),
        Ok("10.0.0.3/29 fd00::3/125".into())
    );
    assert_eq!(
        host.given(pod("c", 3, b"\0db-0")),
        Ok("10.0.0.2/29 fd00::2/125".into())
    );
    assert_eq!(
        host.given(pod("d", 4, b"\0db-0")),
        Ok("10.0.0.4/29 fd00::4/125".into()),
        "it is in use"
    );
}

#[test]
fn a_del_or_a_caller_that_hangs_up_takes_its_add_with_it() {
    for hangs_up in [false, true] {
        let mut host = Host::new();
        host.files_are_slow = true;
        let id = host.ask(add("a", 1, &SMALL));
        if hangs_up {
            host.input(Input::HungUp(RequestId(id)));
        } else {
            host.del("a");
            assert_eq!(
                host.answer(id),
                Err(Failure::Cancelled(attachment("pods", "a")))
            );
        }
        host.flush();
        assert_eq!(
            (host.filed(), host.store.ranges.len(), host.check("a")),
            (vec![], 0, false),
            "{hangs_up}"
        );
    }
}

#[test]
fn gc_gives_back_what_it_does_not_name() {
    let mut host = Host::new();
    host.found(vec![file("10.0.0.5", "x", false)], vec![]);
    host.files.insert(ip("10.0.0.5"), "x".into());
    for (container, netns) in [("a", 1), ("b", 2)] {
        host.given(add(container, netns, &SMALL))
            .expect("an address");
    }
    let keep = vec![("a".to_owned(), "eth0".to_owned())];
    let id = host.request(Call::Collect {
        network: "pods".into(),
        keep,
    });
    assert_eq!(host.answers[&id], Answer::Collected);
    assert_eq!(
        (host.filed(), host.store.ranges.len()),
        (vec!["10.0.0.2 a".to_owned()], 1)
    );
}

#[test]
fn what_is_taken_is_listed_by_range() {
    let mut host = Host::new();
    host.found(vec![file("10.0.0.4", "x", false)], vec![]);
    host.given(add("a", 1, &BOTH)).expect("an address");
    let id = host.request(Call::Ranges(RangeCall::List));
    let Answer::Ranges(RangeAnswer::Rows(rows)) = &host.answers[&id] else {
        panic!("{:?}", host.answers[&id])
    };
    let row = |row: &crate::effect::RangeRow| {
        let taken = row
            .taken
            .iter()
            .map(|taken| format!("{} {} {}", taken.address, taken.by, taken.since.is_some()));
        (row.size, taken.collect::<Vec<_>>())
    };
    let expected = [
        (
            5,
            vec![
                "10.0.0.2 pods/a/eth0 true".to_owned(),
                "10.0.0.4 pods/x/eth0 false".to_owned(),
            ],
        ),
        (6, vec!["fd00::2 pods/a/eth0 true".to_owned()]),
    ];
    assert_eq!(rows.iter().map(row).collect::<Vec<_>>(), expected);
}

#[test]
fn only_so_many_networks_with_ranges_are_told_apart() {
    let mut host = Host::new();
    for n in 1..=150 {
        let network = format!("net{n:03}");
        host.live.insert(path(n), Cookie(n));
        let mut add = add("a", n, &SMALL);
        add.attachment = attachment(&network, "a");
        (add.directory, add.lan) = (
            format!("/data/{network}").into(),
            Lan::Network(network.into()),
        );
        host.given(add).expect("there are some");
    }
    let sizes = host.reg.holdings(host.now().boot).ranges;
    assert_eq!(
        (sizes.len(), sizes["net100"], sizes[OTHER_NETWORKS]),
        (101, (5, 1), (250, 50))
    );
}

#[test]
fn a_daemon_that_is_killed_at_any_effect_leaves_nothing_amiss() {
    let steps = ["+a 1", "+b 2", "-a", "+c 3", "-b", "+a 4", "-c", "+b 5"];
    for killed_after in 0.. {
        let mut host = Host::new();
        host.killed_after = Some(killed_after);
        let mut was_killed = false;
        for step in steps {
            let call = |step: &str| match step.split_once(' ') {
                Some((add_of, netns)) => {
                    let netns = netns.parse().expect("a number");
                    Call::Ranges(RangeCall::Add(Box::new(add(&add_of[1..], netns, &BOTH))))
                }
                None => Call::Del {
                    attachment: attachment("pods", &step[1..]),
                    grace: None,
                },
            };
            let mut id = host.request(call(step));
            if host.killed_after == Some(0) && !was_killed {
                // The next daemon looks at the files, and the shim asks it again if it has had no answer.
                (host.killed_after, was_killed) = (None, true);
                host.at += Duration::from_secs(1);
                host.start();
                let files: Vec<_> = host
                    .files
                    .iter()
                    .map(|(address, by)| file(&address.to_string(), by, false))
                    .collect();
                host.found(files, vec![]);
                if !host.answers.contains_key(&id) {
                    id = host.request(call(step));
                }
            }
            match &host.answers[&id] {
                Answer::Ranges(RangeAnswer::Given(given)) => assert_eq!(given.len(), 2),
                answer => assert_eq!(
                    *answer,
                    Answer::Deleted,
                    "{step}, killed after {killed_after}"
                ),
            }
            let recorded = host.store.ranges.iter().flat_map(|(by, record)| {
                let container = by.container().unwrap_or_default();
                record
                    .given
                    .iter()
                    .map(move |given| (given.address.addr(), container.to_owned()))
            });
            assert_eq!(
                recorded.collect::<BTreeMap<_, _>>(),
                host.files,
                "{step}, killed after {killed_after}"
            );
        }
        assert_eq!(host.store.ranges.len(), 2);
        if !was_killed {
            return;
        }
    }
}
