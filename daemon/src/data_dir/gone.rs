//! Which containers of a network have ended although their files are still there.
//!
//! A container about which nothing is known counts as running: an unused address does less harm than one given twice.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use leasehold_api::cni::Holder;
use leasehold_core::link::directory_of;
use nix::sys::statfs::{NSFS_MAGIC, PROC_SUPER_MAGIC, statfs};

use crate::clock::Clock;
use crate::cni_cache::{self, Attached, on_host};

/// How long a runtime may take from the file of an address to its own cache: a whole ADD with its retries.
const SETTLED: Duration = Duration::from_secs(600);

/// Where to find out what runs.
pub(super) struct Gone {
    host_prefix: PathBuf,
    caches: Vec<PathBuf>,
}

/// What is known about a network's containers.
pub(super) struct Known {
    /// Whether the namespace of each attachment in the runtime's cache lives, if that is clear.
    cached: HashMap<(String, String), Option<bool>>,
    boot: SystemTime,
    now: SystemTime,
}

impl Gone {
    pub(super) fn new(host_prefix: &Path, caches: &[PathBuf]) -> Self {
        Self {
            host_prefix: host_prefix.to_owned(),
            caches: caches.to_vec(),
        }
    }

    /// Returns what is known about a network's containers.
    pub(super) fn of(&self, network: &str) -> Known {
        let look = |attached: Attached| {
            let lives = attached
                .netns
                .as_deref()
                .and_then(|netns| is_there(&self.host_prefix, netns));
            (attached, lives)
        };
        let looked: Vec<_> = cni_cache::attached(&self.caches, &self.host_prefix, network)
            .map(look)
            .collect();
        let directory = |attached: &Attached| {
            attached
                .netns
                .as_deref()
                .map(|netns| directory_of(netns).to_owned())
        };
        let seen = looked.iter().filter(|(_, lives)| *lives == Some(true));
        let seen: HashSet<_> = seen.map(|(attached, _)| directory(attached)).collect();
        // If no namespace in its directory is seen, this process may be unable to see any.
        let believed = |(attached, lives): (Attached, Option<bool>)| {
            let lives = lives.filter(|_| seen.contains(&directory(&attached)));
            ((attached.container, attached.ifname), lives)
        };
        let cached = looked.into_iter().map(believed).collect();
        let now = SystemTime::now();
        Known {
            cached,
            boot: now - Clock::now().boot.since_boot(),
            now,
        }
    }
}

impl Known {
    /// Returns whether a file's holder is gone.
    pub(super) fn is_gone(&self, by: Option<&Holder>, written: SystemTime) -> bool {
        // If a file names no interface, any interface of its container counts.
        let is_of = |(container, ifname): &(String, String), by: &Holder| {
            *container == by.container && by.ifname.as_ref().is_none_or(|of_file| of_file == ifname)
        };
        let of_holder: Vec<_> = match by {
            Some(by) => self
                .cached
                .iter()
                .filter(|(key, _)| is_of(key, by))
                .map(|(_, lives)| *lives)
                .collect(),
            None => Vec::new(),
        };
        let is_older_than_boot = written < self.boot;
        let is_forgotten = !self.cached.is_empty()
            && self
                .now
                .duration_since(written)
                .is_ok_and(|age| age > SETTLED);
        match &of_holder[..] {
            [] => is_older_than_boot || (is_forgotten && by.is_some()),
            all if all.contains(&Some(true)) => false,
            all if all.contains(&None) => is_older_than_boot,
            _ => true,
        }
    }
}

/// Returns whether a namespace is there; `None` if its directory cannot be seen.
fn is_there(host_prefix: &Path, netns: &Path) -> Option<bool> {
    let path = on_host(host_prefix, netns);
    match statfs(&path) {
        Ok(found) => Some([NSFS_MAGIC, PROC_SUPER_MAGIC].contains(&found.filesystem_type())),
        Err(_) => path.parent().is_some_and(Path::is_dir).then_some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_gone_if_its_runtime_or_the_boot_says_so() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let (boot, now) = (at(10_000), at(20_000));
        let key = |container: &str| (container.to_owned(), "eth0".to_owned());
        let cached: HashMap<_, _> = [
            (key("runs"), Some(true)),
            (key("ended"), Some(false)),
            (key("unclear"), None),
        ]
        .into();
        let some = Known { cached, boot, now };
        let none = Known {
            cached: HashMap::new(),
            boot,
            now,
        };
        let (before, long_ago, lately) = (at(9_999), at(19_399), at(19_401));
        let table = [
            (&some, Some("runs"), before, false),
            (&some, Some("ended"), lately, true),
            (&some, Some("unclear"), long_ago, false),
            (&some, Some("unclear"), before, true),
            (&some, Some("forgotten"), long_ago, true),
            (&some, Some("forgotten"), lately, false),
            (&some, None, long_ago, false),
            (&some, None, before, true),
            (&none, Some("forgotten"), long_ago, false),
            (&none, Some("forgotten"), before, true),
            (&none, None, before, true),
        ];
        for (known, container, written, gone) in table {
            for ifname in [Some("eth0".to_owned()), None] {
                let by = container.map(|container| Holder {
                    container: container.to_owned(),
                    ifname,
                });
                assert_eq!(
                    known.is_gone(by.as_ref(), written),
                    gone,
                    "{by:?} {written:?}"
                );
            }
        }
    }

    /// As in a container of its own to which the host's namespaces are not shown.
    #[test]
    fn where_no_namespace_is_seen_a_missing_one_is_not_gone() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("results");
        std::fs::create_dir(&cache).unwrap();
        let attached = |container: &str, netns: &str| {
            let file = serde_json::json!({
                "containerId": container, "ifName": "eth0", "networkName": "lan", "netns": netns,
            });
            std::fs::write(cache.join(container), file.to_string()).unwrap();
        };
        let missing = dir.path().join("none");
        attached("ended", missing.to_str().unwrap());
        let gone = Gone::new(Path::new("/"), std::slice::from_ref(&cache));
        let by = Holder {
            container: "ended".to_owned(),
            ifname: None,
        };
        assert!(
            !gone.of("lan").is_gone(Some(&by), SystemTime::now()),
            "nothing is seen there"
        );
        assert!(
            gone.of("lan").is_gone(Some(&by), SystemTime::UNIX_EPOCH),
            "it is from before the boot"
        );
        let runs = dir.path().join("runs");
        std::os::unix::fs::symlink("/proc/self/ns/net", &runs).unwrap();
        attached("runs", runs.to_str().unwrap());
        assert!(
            gone.of("lan").is_gone(Some(&by), SystemTime::now()),
            "another is seen in the same directory"
        );
    }

    #[test]
    fn another_interface_of_a_container_says_nothing() {
        let now = SystemTime::now();
        let cached = [(("c1".to_owned(), "eth0".to_owned()), Some(false))].into();
        let known = Known {
            cached,
            boot: SystemTime::UNIX_EPOCH,
            now,
        };
        let by = Holder {
            container: "c1".to_owned(),
            ifname: Some("net1".to_owned()),
        };
        assert!(!known.is_gone(Some(&by), now));
    }

    #[test]
    fn a_namespace_is_there_while_something_is_mounted() {
        let dir = tempfile::tempdir().unwrap();
        let empty = dir.path().join("empty");
        std::fs::write(&empty, "").unwrap();
        let root = Path::new("/");
        assert_eq!(is_there(root, Path::new("/proc/self/ns/net")), Some(true));
        assert_eq!(is_there(root, &empty), Some(false));
        assert_eq!(is_there(root, &dir.path().join("none")), Some(false));
        assert_eq!(is_there(root, &dir.path().join("none/none")), None);
    }
}
