use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::time::SystemTime;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;

const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
const WRITE: FileChange = FileChange::Write { set: 0 };
const SOON: Duration = Duration::from_millis(1);

/// The thread, and the directory of the network `lan`.
struct Rig {
    root: tempfile::TempDir,
    dirs: DataDirs,
    looks: Looks,
    events: UnboundedReceiver<FileReport>,
    ops: u64,
}

impl Rig {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let (sender, events) = unbounded_channel();
        let (dirs, looks) =
            DataDirs::start_with(root.path(), &["/cache".into()], sender, SOON).unwrap();
        Self {
            root,
            dirs,
            looks,
            events,
            ops: 0,
        }
    }

    fn named(&self) -> PathBuf {
        "/networks/lan".into()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.root.path().join("networks/lan").join(name)
    }

    fn put(&self, name: &str, contents: &str) -> PathBuf {
        fs::create_dir_all(self.file("")).unwrap();
        fs::write(self.file(name), contents).unwrap();
        self.file(name)
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.file(name)).ok()
    }

    fn order(&mut self, container: &str, change: FileChange) {
        self.ops += 1;
        let of = Attachment::cni("lan", container, "eth0");
        self.dirs
            .change(Some(OpId(self.ops)), self.named(), A, &of, change);
    }

    /// Orders a change, and waits for its end.
    fn change(&mut self, container: &str, change: FileChange) -> Result<(), FileCause> {
        self.order(container, change);
        let Some(FileReport::Filed(filed)) = self.events.blocking_recv() else {
            panic!("it is answered")
        };
        let (op, outcome) = self.dirs.filed(filed).unwrap();
        let Outcome::Filed { address: A, result } = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(op, OpId(self.ops));
        result
    }

    fn found(&mut self) -> Found {
        loop {
            match self.events.blocking_recv().expect("the thread lives") {
                FileReport::Found(found) => return self.dirs.without_removed(found),
                FileReport::Filed(filed) => drop(self.dirs.filed(filed)),
            }
        }
    }

    fn look(&mut self) -> Found {
        let (known, _) = watch::channel(());
        self.dirs
            .jobs
            .send(Job::Look {
                network: "lan".to_owned(),
                directory: self.named(),
                known,
            })
            .unwrap();
        self.found()
    }

    /// Waits until the thread has caught up.
    fn until(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !done(self) {
            assert!(began.elapsed() < Duration::from_secs(10), "{what}");
            thread::yield_now();
        }
    }
}

fn later(result: &Result<(), FileCause>) -> bool {
    matches!(result, Err(FileCause::Later(_)))
}

#[test]
fn an_address_has_its_file_as_host_local_writes_it() {
    let mut rig = Rig::new();
    assert_eq!(rig.change("c1", WRITE), Ok(()));
    assert_eq!(rig.read("10.0.0.2").unwrap(), "c1\r\neth0");
    assert_eq!(rig.read("last_reserved_ip.0").unwrap(), "10.0.0.2");
    assert_eq!(
        rig.file("10.0.0.2").metadata().unwrap().mode() & 0o777,
        0o600
    );
    assert_eq!(rig.file("").metadata().unwrap().mode() & 0o777, 0o755);
    assert_eq!(rig.change("c1", WRITE), Ok(()));
    assert_eq!(rig.change("c1", FileChange::Remove), Ok(()));
    assert_eq!(rig.change("c1", FileChange::Remove), Ok(()));
    assert_eq!(rig.read("10.0.0.2"), None);
    assert_eq!(rig.read("last_reserved_ip.0").unwrap(), "10.0.0.2");
}

#[test]
fn a_file_of_somebody_else_is_left_alone() {
    let mut rig = Rig::new();
    rig.put("10.0.0.2", "x\r\neth0");
    assert_eq!(
        rig.change("c1", WRITE),
        Err(FileCause::Taken("x".to_owned()))
    );
    assert_eq!(rig.change("c1", FileChange::Remove), Ok(()));
    assert_eq!(rig.read("10.0.0.2").unwrap(), "x\r\neth0");
    assert_eq!(rig.read("last_reserved_ip.0"), None);
}

#[test]
fn what_others_have_locked_is_done_all_the_same() {
    let mut rig = Rig::new();
    rig.put("lock", "");
    let theirs = fs::File::open(rig.file("lock")).unwrap();
    theirs.lock().unwrap();
    assert_eq!(rig.change("c1", WRITE), Ok(()));
    assert_eq!(rig.change("c1", FileChange::Remove), Ok(()));
    assert_eq!(rig.change("c2", WRITE), Ok(()));
    assert_eq!(rig.read("10.0.0.2").unwrap(), "c2\r\neth0");
}

#[test]
fn a_file_that_could_not_be_removed_is_in_nobody_s_way() {
    let mut rig = Rig::new();
    assert_eq!(rig.change("c1", WRITE), Ok(()));
    let (place, away) = (
        rig.root.path().join("networks/lan"),
        rig.root.path().join("networks/away"),
    );
    fs::rename(&place, &away).unwrap();
    fs::write(&place, "").unwrap();
    assert!(later(&rig.change("c1", FileChange::Remove)));
    assert!(later(&rig.change("c2", WRITE)));
    assert!(later(&rig.change("c2", FileChange::Remove)));
    assert!(later(&rig.change("c3", WRITE)));
    fs::remove_file(&place).unwrap();
    fs::rename(&away, &place).unwrap();
    rig.until("the file follows", |rig| {
        rig.read("10.0.0.2").as_deref() == Some("c3\r\neth0")
    });
    // Nothing is owed any more.
    assert_eq!(rig.change("c3", FileChange::Remove), Ok(()));
    assert_eq!(rig.read("10.0.0.2"), None);
}

#[test]
fn a_directory_that_cannot_be_made_is_made_later() {
    let mut rig = Rig::new();
    let in_the_way = rig.root.path().join("networks");
    fs::write(&in_the_way, "").unwrap();
    assert!(later(&rig.change("c1", WRITE)));
    fs::remove_file(in_the_way).unwrap();
    rig.until("the file follows", |rig| rig.read("10.0.0.2").is_some());
}

#[test]
fn what_lies_there_is_found_whatever_it_is() {
    let mut rig = Rig::new();
    for (name, contents) in [
        ("10.0.0.2", "c1\r\neth0"),
        ("10.0.0.3", "c2"),
        ("10.0.0.4", ""),
        ("fd00::2", "c1\r\neth0"),
        ("last_reserved_ip.0", "10.0.0.9"),
        ("notes", "10.0.0.5"),
    ] {
        rig.put(name, contents);
    }
    fs::write(rig.file("10.0.0.5"), vec![b'c'; 1 << 20]).unwrap();
    mkfifo(&rig.file("10.0.0.6"), Mode::S_IRWXU).unwrap();
    symlink("/etc/passwd", rig.file("10.0.0.7")).unwrap();
    fs::create_dir(rig.file("10.0.0.8")).unwrap();
    let mut found = rig.look();
    found.files.sort_by_key(|file| file.address);
    let files = found.files.iter().map(|file| {
        (
            file.address.to_string(),
            file.container.clone().unwrap_or_default(),
            file.ifname.clone(),
            file.gone,
        )
    });
    let eth0 = Some("eth0".to_owned());
    let expected = [
        ("10.0.0.2", "c1", eth0.clone()),
        ("10.0.0.3", "c2", None),
        ("10.0.0.4", "", None),
        ("10.0.0.5", "", None),
        ("10.0.0.6", "", None),
        ("10.0.0.7", "", None),
        ("10.0.0.8", "", None),
        ("fd00::2", "c1", eth0),
    ];
    let expected = expected.map(|(address, container, ifname)| {
        // The link's own age is that of this test.
        (address.to_owned(), container.to_owned(), ifname, false)
    });
    assert_eq!(files.collect::<Vec<_>>(), expected);
    assert_eq!(found.last, [(0, [10, 0, 0, 9].into())]);
}

#[test]
fn a_missing_directory_holds_nothing_and_is_not_made() {
    let mut rig = Rig::new();
    let found = rig.look();
    assert_eq!((found.files, found.last), (Vec::new(), Vec::new()));
    assert_eq!(rig.change("c1", FileChange::Remove), Ok(()));
    assert!(!rig.root.path().join("networks").exists());
}

#[test]
fn files_from_before_the_boot_are_gone_at_the_first_look_alone() {
    let mut rig = Rig::new();
    let path = rig.put("10.0.0.2", "c1\r\neth0");
    fs::File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(SystemTime::UNIX_EPOCH)
        .unwrap();
    let gone = |found: Found| found.files.iter().map(|file| file.gone).collect::<Vec<_>>();
    assert_eq!(gone(rig.look()), [true]);
    assert_eq!(gone(rig.look()), [false]);
}

#[test]
fn a_file_whose_removal_is_under_way_was_not_found() {
    let mut rig = Rig::new();
    rig.put("10.0.0.2", "c1\r\neth0");
    let (known, _) = watch::channel(());
    let look = Job::Look {
        network: "lan".to_owned(),
        directory: rig.named(),
        known,
    };
    rig.dirs.jobs.send(look).unwrap();
    // The core gives the address back before it hears about the look.
    rig.order("c1", FileChange::Remove);
    assert_eq!(rig.found().files, []);
    rig.until("the file is gone", |rig| rig.read("10.0.0.2").is_none());
}

#[test]
fn calls_wait_for_the_first_look_and_for_no_other() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let (jobs, queue) = channel();
    let looks = Looks::new(jobs);
    let directory = Path::new("/networks/lan");
    runtime.block_on(async {
        let began = tokio::time::Instant::now();
        let waits = tokio::spawn({
            let looks = looks.clone();
            async move { looks.before_call("lan", directory).await }
        });
        tokio::task::yield_now().await;
        let Ok(Job::Look { network, known, .. }) = queue.try_recv() else {
            panic!("it is looked at")
        };
        assert_eq!(network, "lan");
        drop(known);
        waits.await.unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO);

        tokio::time::advance(Duration::from_secs(9)).await;
        looks.before_call("lan", directory).await;
        assert!(queue.try_recv().is_err(), "the look is young");
        tokio::time::advance(Duration::from_secs(1)).await;
        let before = tokio::time::Instant::now();
        looks.before_call("lan", directory).await;
        assert_eq!(
            before.elapsed(),
            Duration::ZERO,
            "nobody waits for another look"
        );
        let held = queue.try_recv().expect("another look");
        tokio::time::advance(Duration::from_secs(60)).await;
        looks.before_call("lan", directory).await;
        assert!(queue.try_recv().is_err(), "one look at a time");
        drop(held);

        let before = tokio::time::Instant::now();
        looks.before_call("slow", Path::new("/networks/slow")).await;
        assert_eq!(before.elapsed(), Duration::from_millis(250), "a moment");
    });
}

#[test]
fn the_end_is_not_held_up() {
    let mut rig = Rig::new();
    fs::write(rig.root.path().join("networks"), "").unwrap();
    assert!(later(&rig.change("c1", WRITE)));
    // Front doors may live longer.
    let Rig {
        dirs,
        looks: _looks,
        ..
    } = rig;
    drop(dirs);
}
