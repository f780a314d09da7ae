use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use leasehold_api::cni::{Env, Error, Holder};
use leasehold_range::{RangeConfig, Sets};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

/// A host with one network, and a path of a namespace for each container.
struct Rig {
    root: TempDir,
    host: Host,
    config: Value,
}

impl Rig {
    fn new(subnet: &str) -> Self {
        let root = TempDir::new().expect("a directory");
        fs::create_dir(root.path().join("netns")).expect("a directory");
        let config = json!({
            "cniVersion": "1.1.0", "name": "pods", "type": "ptp",
            "ipam": {"type": "host-local", "dataDir": root.path().join("data"), "subnet": subnet},
        });
        let host = Host {
            boot: "first".to_owned(),
            name: "here".to_owned(),
        };
        Self { root, host, config }
    }

    fn netns(&self, container: &str) -> PathBuf {
        self.root.path().join("netns").join(container)
    }

    fn call(&self, verb: &str, container: &str) -> Result<String, Error> {
        let said = |text: &str| Some(text.to_owned());
        let env = Env {
            command: said(verb),
            container_id: said(container),
            netns: said(&self.netns(container).to_string_lossy()),
            ifname: said("eth0"),
            ..Env::default()
        };
        let call = Call::parse(&env, &self.config.to_string())?;
        let host = self.host.clone();
        let (late, outcome) = mpsc::channel();
        thread::spawn(move || {
            let told = late.clone();
            let run = call.run(|| host, move |error| drop(told.send(Err(error))));
            drop(late.send(run));
        });
        outcome.recv().expect("an answer")
    }

    /// Makes the namespace of a container, and returns the addresses that it gets, or why it gets none.
    fn add(&self, container: &str) -> String {
        fs::write(self.netns(container), "").expect("a file");
        match self.call("ADD", container) {
            Ok(result) => {
                let result: Value = serde_json::from_str(&result).expect("JSON");
                let ips = result["ips"].as_array().expect("addresses");
                let addresses = ips.iter().filter_map(|ip| ip["address"].as_str());
                addresses.collect::<Vec<_>>().join(" ")
            }
            Err(error) => error.msg,
        }
    }

    /// Ends a container without a DEL.
    fn end(&self, container: &str) {
        fs::remove_file(self.netns(container)).expect("a file");
    }

    fn data(&self) -> PathBuf {
        self.root.path().join("data/pods")
    }

    fn put(&self, name: &str, contents: &str) {
        fs::create_dir_all(self.data()).expect("a directory");
        fs::write(self.data().join(name), contents).expect("a file");
    }

    /// Returns the names of all files but the lock and what is said of the whole directory.
    fn files(&self) -> Vec<String> {
        let files = fs::read_dir(self.data()).into_iter().flatten();
        let names = files.map(|file| file.expect("a file").file_name().into_string());
        let mut names: Vec<_> = names.map(|name| name.expect("a name")).collect();
        names.retain(|name| {
            let of_all = ["lock", "last_reserved_ip.", "swept."];
            !of_all.iter().any(|begin| name.starts_with(begin))
        });
        names.sort();
        names
    }

    /// Returns the holder of each address.
    fn taken(&self) -> BTreeMap<String, String> {
        let addresses = self.files().into_iter().filter(|name| !name.contains("by"));
        let held = addresses.map(|name| {
            let text = fs::read_to_string(self.data().join(&name)).expect("a file");
            let container = text.split("\r\n").next().unwrap_or_default().to_owned();
            (name, container)
        });
        held.collect()
    }
}

#[test]
fn an_address_is_a_file_with_a_note_beside() {
    let rig = Rig::new("10.9.0.0/24");
    assert_eq!(rig.add("c1"), "10.9.0.2/24");
    let [address, beside] = &rig.files()[..] else {
        panic!("{:?}", rig.files())
    };
    assert!(beside.starts_with("10.9.0.2.by."), "{beside}");
    let path = rig.data().join(address);
    assert_eq!(fs::read_to_string(&path).expect("a file"), "c1\r\neth0");
    let mode = fs::metadata(&path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let last = fs::read_to_string(rig.data().join("last_reserved_ip.0")).expect("a file");
    assert_eq!(last, "10.9.0.2");
    assert!(rig.call("CHECK", "c1").is_ok());
    for _ in 0..2 {
        assert_eq!(rig.call("DEL", "c1"), Ok(String::new()));
        assert_eq!(rig.files(), [""; 0]);
    }
    assert_eq!(
        u32::from(rig.call("CHECK", "c1").expect_err("it has none").code),
        3
    );
    assert_eq!(rig.add("c2"), "10.9.0.3/24");
}

#[test]
fn a_living_container_gets_no_second_address() {
    let rig = Rig::new("10.9.0.0/24");
    assert_eq!(rig.add("c1"), "10.9.0.2/24");
    let again = rig.add("c1");
    assert!(
        again.contains("duplicate allocation is not allowed"),
        "{again}"
    );
    // Its path leads to another namespace now, and no DEL came.
    let other = rig.netns("other");
    fs::write(&other, "").expect("a file");
    fs::rename(other, rig.netns("c1")).expect("a file");
    assert_eq!(rig.add("c1"), "10.9.0.3/24");
    assert_eq!(rig.taken().len(), 1);
}

#[test]
fn a_full_range_is_swept_of_containers_that_are_gone() {
    let rig = Rig::new("10.9.0.0/29");
    let got: Vec<_> = ["c1", "c2", "c3", "c4", "c5"].map(|c| rig.add(c)).into();
    assert_eq!(got.last().map(String::as_str), Some("10.9.0.6/29"));
    let full = rig.add("late");
    assert!(
        full.starts_with(
            "no IP addresses available in range set: 5 of 5 addresses of range set 0 are taken, "
        ) && full.contains("5 belong to running containers"),
        "{full}"
    );
    rig.end("c3");
    assert_eq!(rig.add("late"), "10.9.0.4/29");
}

#[test]
fn without_a_note_nothing_is_swept() {
    let rig = Rig::new("10.9.0.0/30");
    rig.put("10.9.0.2", "old\r\neth0");
    let full = rig.add("c1");
    assert!(
        full.contains("nobody can say whether those of the other 1 live"),
        "{full}"
    );
    // A note of another holder, or from another host, says nothing about this one.
    let by = Holder {
        container: "old".to_owned(),
        ifname: Some("eth0".to_owned()),
    };
    let elsewhere = Host {
        boot: "other".to_owned(),
        name: "elsewhere".to_owned(),
    };
    let note = Note::of(&elsewhere, &rig.netns("old"));
    let directory = Directory::at(rig.data());
    directory
        .lock(&Progress::default())
        .and_then(|locked| locked.write_note([10, 9, 0, 2].into(), &by, &note))
        .expect("a note");
    assert!(rig.add("c1").starts_with("no IP addresses available"));
    assert_eq!(rig.call("DEL", "old"), Ok(String::new()));
    assert_eq!(rig.add("c1"), "10.9.0.2/30");
}

#[test]
fn the_first_add_after_a_boot_frees_what_was_taken_before() {
    let mut rig = Rig::new("10.9.0.0/24");
    rig.put("10.9.0.9", "of host-local\r\neth0");
    for container in ["c1", "c2"] {
        rig.add(container);
    }
    rig.host.boot = "second".to_owned();
    assert_eq!(rig.add("c3"), "10.9.0.4/24");
    let taken = || rig.taken().into_keys().collect::<Vec<_>>();
    assert_eq!(taken(), ["10.9.0.4", "10.9.0.9"]);
    // Only the first one does.
    rig.end("c3");
    assert_eq!(rig.add("c4"), "10.9.0.5/24");
    assert_eq!(taken(), ["10.9.0.4", "10.9.0.5", "10.9.0.9"]);
}

#[test]
fn an_add_that_was_killed_leaves_what_its_del_finds() {
    let whole = Rig::new("10.9.0.0/24");
    whole.add("c1");
    let [_, note] = &whole.files()[..] else {
        panic!("{:?}", whole.files())
    };
    let note = note.as_str();
    let unfinished = format!("{note}.new");
    let holder = "c1\r\neth0";
    let states: [&[(&str, &str)]; 5] = [
        &[(note, "boot f")],
        &[(note, ""), (&unfinished, "c1")],
        &[(note, ""), (&unfinished, holder), ("10.9.0.2", holder)],
        &[(note, ""), ("10.9.0.2", holder)],
        // Without hard links.
        &[(note, ""), ("10.9.0.2", "")],
    ];
    for state in states {
        let rig = Rig::new("10.9.0.0/24");
        state.iter().for_each(|(name, text)| rig.put(name, text));
        assert_eq!(rig.call("DEL", "c1"), Ok(String::new()));
        assert_eq!(rig.files(), [""; 0], "{state:?}");

        let rig = Rig::new("10.9.0.0/24");
        state.iter().for_each(|(name, text)| rig.put(name, text));
        let is_taken = state.iter().any(|(name, _)| *name == "10.9.0.2");
        let expected = if is_taken {
            "10.9.0.3/24"
        } else {
            "10.9.0.2/24"
        };
        assert_eq!(rig.add("c2"), expected, "{state:?}");
    }
}

/// A del that was killed has removed the address, and not yet its note.
#[test]
fn a_note_of_an_earlier_holder_hides_nobody() {
    let rig = Rig::new("10.9.0.0/24");
    rig.add("c1");
    // host-local has given it to another meanwhile.
    rig.put("10.9.0.2", "c2\r\neth0");
    assert!(rig.call("CHECK", "c2").is_ok());
    assert!(rig.call("CHECK", "c1").is_err());
    assert_eq!(rig.call("DEL", "c1"), Ok(String::new()));
    assert_eq!(rig.taken().len(), 1);
    assert_eq!(rig.call("DEL", "c2"), Ok(String::new()));
    assert_eq!(rig.files(), [""; 0]);
}

#[test]
fn an_add_whose_directory_stays_locked_says_by_whom() {
    let mut rig = Rig::new("10.9.0.0/24");
    rig.config["ipam"]["timeout"] = json!(0.2);
    rig.put("lock", "");
    let lock = File::open(rig.data().join("lock")).expect("a file");
    lock.lock().expect("nobody has it");
    fs::write(rig.netns("c1"), "").expect("a file");
    let error = rig.call("ADD", "c1").expect_err("it is locked");
    assert_eq!(u32::from(error.code), 11);
    let pid = format!("process {}", std::process::id());
    assert!(
        error
            .msg
            .contains("data/pods/lock has been locked for 0.2 s by")
            && error.msg.contains(&pid),
        "{error:?}"
    );
    drop(lock);
    assert_eq!(rig.add("c1"), "10.9.0.2/24");
}

#[test]
fn gc_frees_what_it_does_not_name() {
    let mut rig = Rig::new("10.9.0.0/24");
    for container in ["kept", "gone"] {
        rig.add(container);
    }
    rig.put("10.9.0.7", "stray\r\neth0");
    rig.put("10.9.0.8", "kept");
    rig.put("10.9.0.9", "");
    rig.config["cni.dev/valid-attachments"] = json!([{"containerID": "kept", "ifname": "eth0"}]);
    assert_eq!(rig.call("GC", ""), Ok(String::new()));
    let taken: Vec<_> = rig.taken().into_keys().collect();
    assert_eq!(taken, ["10.9.0.2", "10.9.0.8", "10.9.0.9"]);
}

#[test]
fn status_tries_to_lock_and_to_make_a_file() {
    let rig = Rig::new("10.9.0.0/24");
    assert_eq!(rig.call("STATUS", ""), Ok(String::new()));
    assert_eq!(rig.files(), [""; 0]);
    fs::remove_dir_all(rig.data()).expect("a directory");
    fs::write(rig.data(), "").expect("a file");
    let error = rig.call("STATUS", "").expect_err("it is no directory");
    assert_eq!(u32::from(error.code), 50);
    assert!(error.msg.contains("data/pods"), "{error:?}");
}

#[test]
fn a_del_succeeds_whatever_its_configuration_says() {
    let mut rig = Rig::new("10.9.0.0/24");
    assert_eq!(
        rig.call("DEL", "c1"),
        Ok(String::new()),
        "there is no directory"
    );
    rig.add("c1");
    rig.config["ipam"]["subnet"] = json!("ten");
    assert_eq!(rig.call("DEL", "c1"), Ok(String::new()));
    assert_eq!(rig.files(), [""; 0]);
    assert_eq!(
        u32::from(rig.call("ADD", "c1").expect_err("no subnet").code),
        7
    );
}

#[test]
fn a_resolvers_file_is_read_to_a_bound() {
    let mut rig = Rig::new("10.9.0.0/24");
    let file = rig.root.path().join("resolv.conf");
    rig.config["ipam"]["resolvConf"] = json!(file);
    fs::write(&file, "nameserver 192.0.2.53\n").expect("a file");
    fs::write(rig.netns("c1"), "").expect("a file");
    let result = rig.call("ADD", "c1").expect("an address");
    assert!(
        result.contains(r#""nameservers":["192.0.2.53"]"#),
        "{result}"
    );
    fs::write(&file, "#".repeat(100_000)).expect("a file");
    let pipe = rig.root.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|status| status.success()));
    let [file, pipe] = [&file, &pipe].map(|path| path.to_str().expect("UTF-8"));
    for path in [file, pipe, "/dev/zero", "/nowhere"] {
        rig.config["ipam"]["resolvConf"] = json!(path);
        fs::write(rig.netns("c2"), "").expect("a file");
        let error = rig.call("ADD", "c2").expect_err(path);
        assert!(error.msg.starts_with(path), "{error:?}");
        assert_eq!(u32::from(error.code), 5);
    }
    assert_eq!(rig.taken().len(), 1);
}

/// As after a crash of the host: nothing is synced to disk.
#[test]
fn an_empty_file_is_freed_by_its_note() {
    let mut rig = Rig::new("10.9.0.0/24");
    rig.add("c1");
    rig.put("10.9.0.2", "");
    rig.host.boot = "second".to_owned();
    assert_eq!(rig.add("c2"), "10.9.0.3/24");
    assert_eq!(rig.taken().len(), 1);
}

#[test]
fn of_an_addresss_file_512_bytes_are_read() {
    let rig = Rig::new("10.9.0.0/24");
    for (length, is_held) in [(512, true), (511, false)] {
        rig.put("10.9.0.2", &format!("{:length$}rest", "c1\r\neth0"));
        assert_eq!(rig.call("CHECK", "c1").is_ok(), is_held, "{length}");
    }
}

/// As `leasehold doctor` does.
#[test]
fn a_look_at_the_files_counts_and_changes_nothing() {
    let rig = Rig::new("10.9.0.0/29");
    let subnet = RangeConfig {
        subnet: "10.9.0.0/29".parse().expect("a subnet"),
        start: None,
        end: None,
        gateway: None,
    };
    let sets = Sets::new(&[vec![subnet]]).expect("a good range");
    let directory = Directory::at(rig.data());
    let look = || look(&directory, &sets, Duration::from_millis(200));
    let found = look().expect("it need not be there");
    assert!(found.0.is_empty() && found.1 == 0 && !rig.data().exists());

    rig.add("c1");
    rig.put("10.9.0.6", "of host-local\r\neth0");
    rig.put("10.9.0.5.by.0123456789abcdef", "");
    let before = rig.files();
    let (usage, strays) = look().expect("a directory");
    assert_eq!((usage.len(), strays), (1, 1));
    let text = usage[0].to_string();
    assert!(
        text.starts_with("2 of 5 addresses of range set 0 are taken, "),
        "{text}"
    );
    assert!(!usage[0].is_full() && rig.files() == before);

    for address in 3..6 {
        rig.put(&format!("10.9.0.{address}"), "of host-local\r\neth0");
    }
    assert!(look().expect("a directory").0[0].is_full());
    let lock = File::open(rig.data().join("lock")).expect("a file");
    lock.lock().expect("nobody has it");
    let error = look().expect_err("it is locked");
    assert!(
        error
            .msg
            .contains("lock has been locked for 0.2 s by process "),
        "{error:?}"
    );
}

#[test]
fn keys_that_nobody_reads_are_named() {
    let mut rig = Rig::new("10.9.0.0/24");
    rig.config["ipam"]["clientId"] = json!(5);
    rig.config["ipam"]["rangeEnds"] = json!("10.9.0.9");
    let env = Env {
        command: Some("ADD".to_owned()),
        container_id: Some("c1".to_owned()),
        netns: Some("/run/netns/c1".to_owned()),
        ifname: Some("eth0".to_owned()),
        ..Env::default()
    };
    let call = Call::parse(&env, &rig.config.to_string()).expect("a call");
    assert_eq!(
        call.warnings(),
        [
            "ipam.clientId: no longer used in a network of type host-local",
            "ipam.rangeEnds: unknown key, which is ignored: did you mean rangeEnd?",
        ]
    );
}
