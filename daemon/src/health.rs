//! What is wrong with the host: its store, its disk, its links. [`judge`] is pure; [`Host`] has the facts.
//!
//! Together with what the core knows about LANs and leases this is the one list that `status`, `doctor`, the page and `/metrics`
//! show (`leasehold_core::trouble`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::time::WallTime;
use leasehold_core::trouble::{Subject, Trouble, TroubleKind, listed};
use nix::sys::statvfs::statvfs;

use crate::net::LinkState;
use crate::store::Fault;

/// With less free space on the store's disk, in bytes, a commit may fail at any moment: the store grows by a megabyte at a time.
pub(crate) const TOO_LITTLE: u64 = 4 << 20;

/// For how long calls of the replaced plugin are reported after the last.
const CALLED: Duration = Duration::from_secs(600);

/// What is known about the host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Host {
    /// Why no ADD can be recorded.
    pub(crate) fault: Option<Fault>,
    /// The store's file, and its disk.
    pub(crate) store: PathBuf,
    pub(crate) disk: Disk,
    /// The links that leases or networks use, with the number of leases.
    pub(crate) links: BTreeMap<String, (LinkState, u64)>,
    /// Events that the store did not take.
    pub(crate) events_lost: u64,
    /// Calls of the replaced plugin, if there were any lately.
    pub(crate) old_plugin: Option<Calls>,
}

/// Calls of the replaced plugin, which speaks Go RPC: somebody has put it back where runtimes look for leasehold's.
#[derive(Debug, Default)]
pub(crate) struct OldPlugin(Mutex<(u64, Option<Calls>)>);

/// Calls that are not long past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Calls {
    pub(crate) count: u64,
    pub(crate) since: SystemTime,
    last: SystemTime,
}

impl OldPlugin {
    /// Counts a call. Returns whether it is the first one for long.
    pub(crate) fn called(&self, now: SystemTime) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.1.filter(|calls| !calls.are_past(now));
        let (count, since) = before.map_or((0, now), |calls| (calls.count, calls.since));
        *known = (
            known.0 + 1,
            Some(Calls {
                count: count + 1,
                since,
                last: now,
            }),
        );
        before.is_none()
    }

    /// Returns how many calls there were in all, and those that are not long past.
    pub(crate) fn calls(&self, now: SystemTime) -> (u64, Option<Calls>) {
        let (total, calls) = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (total, calls.filter(|calls| !calls.are_past(now)))
    }
}

impl Calls {
    fn are_past(&self, now: SystemTime) -> bool {
        now.duration_since(self.last).is_ok_and(|ago| ago >= CALLED)
    }
}

/// The store's disk, as far as it could be looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disk {
    /// The size of the store's file.
    pub(crate) bytes: Option<u64>,
    /// What is free.
    pub(crate) free: Option<u64>,
}

/// Looks at a store's file and its disk, which may be slow.
pub(crate) fn look_at_disk(store: &Path) -> Disk {
    let free = statvfs(store)
        .ok()
        .map(|disk| disk.blocks_available().saturating_mul(disk.fragment_size()));
    let bytes = store.metadata().ok().map(|file| file.len());
    Disk { bytes, free }
}

/// Returns what is wrong with a link: what and a remedy. A bridge without carrier matters only to the leases on it: it has none
/// before its first container.
pub(crate) fn judge_link(ifname: &str, state: LinkState, leases: u64) -> Option<(String, String)> {
    match state {
        LinkState::Missing => Some((
            format!("there is no link {ifname}"),
            "bring it back, or name another link of this host in the network's configuration"
                .to_owned(),
        )),
        LinkState::Down => Some((
            format!("{ifname} is down"),
            format!("ip link set {ifname} up"),
        )),
        LinkState::NoCarrier { bridge: true } if leases == 0 => None,
        LinkState::NoCarrier { bridge: true } => Some((
            format!("bridge {ifname} has no carrier: none of its ports has"),
            format!("`bridge link show` lists the ports of {ifname}"),
        )),
        LinkState::NoCarrier { bridge: false } => Some((
            format!("{ifname} has no carrier"),
            format!("plug {ifname} in, or see why its switch port is down"),
        )),
        LinkState::Up => None,
    }
}

/// Returns what is wrong with the host.
pub(crate) fn judge(host: &Host) -> Vec<Trouble> {
    let mut found: Vec<_> = store(host)
        .into_iter()
        .chain(old_plugin(host))
        .chain(events(host))
        .collect();
    let links = host.links.iter().filter_map(|(ifname, (state, leases))| {
        let (sentence, remedy) = judge_link(ifname, *state, *leases)?;
        let sentence = match leases {
            0 => sentence,
            1 => format!("{sentence}; 1 lease is on it"),
            _ => format!("{sentence}; {leases} leases are on it"),
        };
        Some(Trouble {
            kind: TroubleKind::LinkDown,
            subject: Subject::Link(ifname.into()),
            since: None,
            count: (*leases).max(1),
            sentence,
            remedy,
        })
    });
    found.extend(links);
    found
}

fn of_host(kind: TroubleKind, sentence: String, remedy: String) -> Trouble {
    Trouble::new(kind, Subject::Host, 1, sentence, remedy)
}

fn store(host: &Host) -> Option<Trouble> {
    let directory = host.store.parent().unwrap_or(&host.store).display();
    if let Some(Fault {
        cause,
        since,
        failed,
    }) = &host.fault
    {
        return Some(Trouble {
            since: Some(wall(*since)),
            count: *failed,
            ..of_host(
                TroubleKind::StoreFails,
                format!("no ADD can be recorded: {cause}"),
                format!(
                    "make room on the disk of {directory}, and see that it can be written; leasehold then goes on by itself: do \
                     not restart it, for it has in memory what it could not write"
                ),
            )
        });
    }
    let free = host.disk.free.filter(|free| *free < TOO_LITTLE)?;
    Some(of_host(
        TroubleKind::DiskFull,
        format!(
            "the disk of {directory} has only {} KiB free, and ADDs fail when it is full",
            free >> 10
        ),
        "make room there".to_owned(),
    ))
}

fn old_plugin(host: &Host) -> Option<Trouble> {
    let Calls { count, since, .. } = host.old_plugin?;
    let times = if count == 1 {
        "once".to_owned()
    } else {
        format!("{count} times")
    };
    Some(Trouble {
        since: Some(wall(since)),
        count,
        ..of_host(
            TroubleKind::OldPlugin,
            format!(
                "the plugin dhcp of containernetworking was called {times} instead of leasehold's, so ADDs and DELs failed: another \
                 installer has overwritten the file"
            ),
            "`leasehold install --force` puts leasehold's back, and in a cluster a restart of its DaemonSet; have the other \
             installer run before it, or leave out dhcp (kubernetes.md)"
                .to_owned(),
        )
    })
}

fn events(host: &Host) -> Option<Trouble> {
    let lost = host.events_lost;
    (lost > 0).then(|| Trouble {
        count: lost,
        ..of_host(
            TroubleKind::EventsLost,
            format!("events were lost, because the store did not take them: {lost}"),
            "make room for the store; the count begins anew when the daemon is restarted"
                .to_owned(),
        )
    })
}

/// When each trouble was first seen, for those whose beginning nobody knows.
#[derive(Debug, Default)]
pub(crate) struct FirstSeen(BTreeMap<(TroubleKind, String), WallTime>);

impl FirstSeen {
    /// Puts together what the core and [`judge`] found, and says since when.
    pub(crate) fn account(&mut self, troubles: Vec<Trouble>, now: SystemTime) -> Vec<Trouble> {
        let mut list = listed(troubles);
        let mut seen = BTreeMap::new();
        for trouble in &mut list {
            let key = (trouble.kind, trouble.subject.to_string());
            let first = self.0.get(&key).copied().unwrap_or_else(|| wall(now));
            let since = *trouble.since.get_or_insert(first);
            seen.insert(key, since);
        }
        self.0 = seen;
        list
    }
}

fn wall(at: SystemTime) -> WallTime {
    WallTime::from_epoch(at.duration_since(UNIX_EPOCH).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use leasehold_core::effect::StoreCause;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn well() -> Host {
        Host {
            store: "/var/lib/leasehold/leases.redb".into(),
            disk: Disk {
                bytes: Some(1 << 20),
                free: Some(TOO_LITTLE),
            },
            links: [("eth0".to_owned(), (LinkState::Up, 2))].into(),
            ..Host::default()
        }
    }

    fn found(host: &Host) -> Vec<(TroubleKind, String)> {
        let all = judge(host).into_iter();
        all.map(|trouble| (trouble.kind, trouble.sentence))
            .collect()
    }

    #[test]
    fn a_host_that_is_well_has_no_trouble() {
        assert_eq!(found(&well()), []);
        // What could not be looked at is not claimed.
        let unseen = Host {
            disk: Disk::default(),
            ..well()
        };
        assert_eq!(found(&unseen), []);
    }

    #[test]
    fn a_store_that_fails_is_named_before_its_disk() {
        let nearly = Host {
            disk: Disk {
                free: Some(TOO_LITTLE - 1),
                ..Disk::default()
            },
            ..well()
        };
        assert_eq!(found(&nearly)[0].0, TroubleKind::DiskFull);
        let fault = Fault {
            cause: StoreCause::Full,
            since: at(60),
            failed: 7,
        };
        let full = Host {
            fault: Some(fault),
            ..nearly
        };
        let [trouble] = &judge(&full)[..] else {
            panic!("one trouble")
        };
        assert_eq!(
            (trouble.kind, trouble.count, trouble.since),
            (TroubleKind::StoreFails, 7, Some(wall(at(60))))
        );
    }

    #[test]
    fn a_link_is_judged_by_who_uses_it() {
        let bare = LinkState::NoCarrier { bridge: false };
        let bridge = LinkState::NoCarrier { bridge: true };
        for (state, leases, expected) in [
            (LinkState::Missing, 0, Some("there is no link x")),
            (LinkState::Down, 0, Some("x is down")),
            (LinkState::Down, 1, Some("x is down; 1 lease is on it")),
            (bare, 0, Some("x has no carrier")),
            (bare, 2, Some("x has no carrier; 2 leases are on it")),
            (bridge, 0, None),
            (
                bridge,
                2,
                Some("bridge x has no carrier: none of its ports has; 2 leases are on it"),
            ),
            (LinkState::Up, 2, None),
        ] {
            let links = [("x".to_owned(), (state, leases))].into();
            let found = found(&Host { links, ..well() });
            let expected = expected.map(|text| (TroubleKind::LinkDown, text.to_owned()));
            assert_eq!(found, Vec::from_iter(expected), "{state:?}");
        }
    }

    #[test]
    fn an_old_plugin_is_reported_for_ten_minutes() {
        let old = OldPlugin::default();
        let told = [100, 160, 220].map(|seconds| old.called(at(seconds)));
        assert_eq!(told, [true, false, false]);
        let lately = |seconds| {
            let (total, calls) = old.calls(at(seconds));
            (total, calls.map(|calls| (calls.count, calls.since)))
        };
        assert_eq!(lately(819), (3, Some((3, at(100)))));
        assert_eq!(lately(820), (3, None));
        assert!(old.called(at(900)));
        let host = Host {
            old_plugin: old.calls(at(900)).1,
            ..well()
        };
        let [trouble] = &judge(&host)[..] else {
            panic!("one trouble")
        };
        assert!(
            trouble.sentence.contains("was called once instead")
                && trouble.since == Some(wall(at(900))),
            "{trouble:?}"
        );
    }

    #[test]
    fn a_trouble_lasts_from_when_it_was_first_seen() {
        let down = Host {
            links: [("x".to_owned(), (LinkState::Down, 0))].into(),
            ..well()
        };
        let mut seen = FirstSeen::default();
        let since = |seen: &mut FirstSeen, host: &Host, seconds| {
            let list = seen.account(judge(host), at(seconds));
            list.first().and_then(|trouble| trouble.since)
        };
        assert_eq!(since(&mut seen, &down, 5), Some(wall(at(5))));
        assert_eq!(since(&mut seen, &down, 9), Some(wall(at(5))));
        assert_eq!(since(&mut seen, &well(), 10), None);
        assert_eq!(since(&mut seen, &down, 11), Some(wall(at(11))));
    }
}
