//! What outlasts a daemon, a full store, or somebody else's file.

use super::*;

/// An ADD of another network that has the same range on the same LAN.
fn other(container: &str, netns: u64) -> RangeAdd {
    RangeAdd {
        attachment: attachment("other", container),
        directory: "/data/other".into(),
        ..add(container, netns, &SMALL)
    }
}

#[test]
fn an_identity_gets_its_address_again_after_a_restart_and_a_reboot() {
    for boot in ["a", "b"] {
        let mut host = Host::new();
        let pod = |container: &str, netns| RangeAdd {
            returns_as: Some(ClientId::new(b"\0db-0".to_vec()).expect("an identifier")),
            ..add(container, netns, &SMALL)
        };
        assert_eq!(host.given(pod("a", 1)), Ok("10.0.0.2/29".into()));
        host.del("a");
        (host.boot, host.at) = (boot, host.at + Duration::from_secs(1));
        host.start();
        assert_eq!(
            host.given(add("x", 2, &SMALL)),
            Ok("10.0.0.2/29".into()),
            "nobody has it"
        );
        host.del("x");
        assert_eq!(host.given(add("y", 2, &SMALL)), Ok("10.0.0.3/29".into()));
        assert_eq!(host.given(pod("b", 3)), Ok("10.0.0.2/29".into()), "{boot}");
        host.del("b");
        host.del("y");
        host.run_for(10_000);
        // One record says so, the latest.
        let past: Vec<_> = host
            .store
            .ranges
            .values()
            .map(|record| record.attachment.id().to_owned())
            .collect();
        assert_eq!(past, ["b"]);
    }
}

#[test]
fn what_a_full_store_could_not_forget_it_forgets_when_it_has_room() {
    let mut host = Host::new();
    host.given(add("a", 1, &SMALL)).expect("an address");
    host.given(add("b", 2, &SMALL)).expect("an address");
    host.disk_is_full = true;
    host.del("a");
    host.del("b");
    assert_eq!(host.store.ranges.len(), 2);
    // The next ADD of one fails, and loses nothing of what is owed.
    assert!(matches!(
        host.given(add("c", 3, &SMALL)),
        Err(Failure::Store(_))
    ));
    host.run_for(30_000);
    host.disk_is_full = false;
    assert_eq!(host.given(add("b", 2, &SMALL)), Ok("10.0.0.5/29".into()));
    for _ in 0..4 {
        host.run_for(10_000);
    }
    assert_eq!(
        host.store
            .ranges
            .keys()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["pods/b/eth0"]
    );
    assert_eq!(host.reg.poll_timeout(), None);
}

#[test]
fn who_got_an_address_that_a_full_store_could_not_forget_keeps_it_when_the_one_before_is_found_dead()
 {
    let mut host = Host::new();
    host.given(add("b", 1, &SMALL)).expect("an address");
    let left = host.store.ranges.clone();
    host.del("b");
    let wants = |who: &str, netns| RangeAdd {
        asked: vec![ip("10.0.0.2")],
        ..add(who, netns, &SMALL)
    };
    assert_eq!(host.given(wants("a", 2)), Ok("10.0.0.2/29".into()));
    host.store.ranges.extend(left);
    host.live.remove(&path(1));
    host.looks_are_slow = true;
    host.start();
    host.found(vec![file("10.0.0.2", "a", false)], vec![]);
    host.flush();
    assert_eq!(host.store.ranges.len(), 1, "b is gone");
    assert_eq!(host.given(add("c", 3, &SMALL)), Ok("10.0.0.3/29".into()));
    host.found(vec![file("10.0.0.2", "a", false)], vec![]);
    host.files.clear();
    assert!(
        matches!(host.given(wants("d", 4)), Err(Failure::NoAddress { .. })),
        "a has it"
    );
}

#[test]
fn a_namespace_that_dies_during_its_add_gets_no_address() {
    let mut host = Host::new();
    host.files_are_slow = true;
    let id = host.ask(add("a", 1, &SMALL));
    host.dies(1);
    assert!(matches!(
        host.answer(id),
        Err(Failure::Link {
            cause: LinkCause::NoNetns(_),
            ..
        })
    ));
    host.flush();
    assert_eq!((host.store.ranges.len(), host.filed()), (0, vec![]));
}

#[test]
fn who_sees_no_namespace_takes_no_container_for_dead() {
    let mut host = Host::new();
    host.given(add("a", 1, &SMALL)).expect("an address");
    host.live.clear();
    for netns in [1, 2] {
        let failure = host.given(add("a", netns, &SMALL)).expect_err("it has one");
        assert!(
            matches!(
                failure,
                Failure::NoAddress {
                    none: NoAddress::Duplicate { .. },
                    ..
                }
            ),
            "{failure:?}"
        );
    }
}

#[test]
fn what_a_full_store_could_not_forget_is_owed_though_an_add_in_its_place_failed_meanwhile() {
    let mut host = Host::new();
    host.given(add("a", 1, &SMALL)).expect("an address");
    (host.disk_is_full, host.store_is_slow) = (true, true);
    host.dies(1);
    host.live.insert(path(1), Cookie(50));
    let impossible = RangeAdd {
        asked: vec![ip("10.9.9.9")],
        ..add("a", 1, &SMALL)
    };
    assert!(matches!(
        host.given(impossible),
        Err(Failure::NoAddress { .. })
    ));
    host.flush();
    assert_eq!(host.store.ranges.len(), 1);
    host.disk_is_full = false;
    host.run_for(10_000);
    assert!(host.store.ranges.is_empty());
}

#[test]
fn what_a_file_of_one_network_says_is_taken_on_its_whole_lan_until_nobody_has_it() {
    let mut host = Host::new();
    host.given(add("a", 1, &SMALL)).expect("an address");
    host.given(other("b", 2)).expect("an address");
    host.found(vec![file("10.0.0.4", "stray", false)], vec![]);
    assert_eq!(host.given(other("c", 3)), Ok("10.0.0.5/29".into()));
    // A file that is late says the same of an address that another has by now: that it goes frees nothing.
    host.found(vec![file("10.0.0.5", "late", false)], vec![]);
    host.found(vec![], vec![]);
    assert_eq!(host.given(add("d", 4, &SMALL)), Ok("10.0.0.4/29".into()));
    assert_eq!(host.given(add("e", 5, &SMALL)), Ok("10.0.0.6/29".into()));
}

#[test]
fn what_files_say_of_a_network_is_taken_on_its_lan_once_an_add_names_that() {
    let mut host = Host::new();
    host.found(vec![file("10.0.0.3", "stray", false)], vec![]);
    assert_eq!(host.given(other("a", 1)), Ok("10.0.0.2/29".into()));
    assert_eq!(host.given(add("b", 2, &SMALL)), Ok("10.0.0.4/29".into()));
    assert_eq!(host.given(other("c", 3)), Ok("10.0.0.5/29".into()));
}

#[test]
fn an_address_that_an_earlier_daemon_gave_without_looking_at_its_file_is_not_given_again_if_others_have_it()
 {
    let mut host = Host::new();
    host.files_are_slow = true;
    host.ask(add("a", 1, &SMALL));
    assert_eq!(host.store.ranges.len(), 1);
    host.files_are_slow = false;
    host.files.insert(ip("10.0.0.2"), "x".into());
    host.start();
    host.found(vec![file("10.0.0.2", "x", false)], vec![]);
    // It may have answered nevertheless, and the container runs.
    for _ in 0..2 {
        let failure = host.given(add("a", 1, &SMALL)).unwrap_err().to_string();
        assert!(failure.contains("10.0.0.2 is taken by pods/x"), "{failure}");
        assert_eq!(
            (host.store.ranges.len(), host.filed()),
            (1, vec!["10.0.0.2 x".to_owned()])
        );
    }
    host.del("a");
    assert_eq!(host.given(add("a", 1, &SMALL)), Ok("10.0.0.3/29".into()));
}

#[test]
fn a_file_that_is_found_during_an_add_and_when_files_are_read_is_one() {
    let mut host = Host::new();
    host.files.insert(ip("10.0.0.2"), "x".into());
    host.files_are_slow = true;
    let a = host.ask(add("a", 1, &SMALL));
    host.found(vec![file("10.0.0.2", "x", false)], vec![]);
    host.flush();
    assert_eq!(host.answer(a), Ok("10.0.0.3/29".into()));
    host.found(vec![file("10.0.0.3", "a", false)], vec![]);
    let wants = RangeAdd {
        asked: vec![ip("10.0.0.2")],
        ..add("b", 2, &SMALL)
    };
    host.files.remove(&ip("10.0.0.2"));
    assert_eq!(
        host.given(wants),
        Ok("10.0.0.2/29".into()),
        "nobody has it any more"
    );
}

#[test]
fn a_file_of_another_at_an_address_of_ours_goes_with_its_container() {
    let mut host = Host::new();
    host.given(add("a", 1, &SMALL)).expect("an address");
    host.files.insert(ip("10.0.0.2"), "x".into());
    host.found(vec![file("10.0.0.2", "x", false)], vec![]);
    host.request(Call::Collect {
        network: "pods".into(),
        keep: vec![("a".to_owned(), "eth0".to_owned())],
    });
    assert!(host.filed().is_empty());
    host.found(vec![], vec![]);
    assert_eq!(host.filed(), ["10.0.0.2 a"]);
}

#[test]
fn a_namespace_that_dies_during_its_second_add_gets_no_address() {
    let mut host = Host::new();
    host.given(add("a", 1, &SMALL)).expect("an address");
    host.looks_are_slow = true;
    let id = host.ask(add("a", 1, &SMALL));
    host.dies(1);
    host.flush();
    assert!(matches!(
        host.answer(id),
        Err(Failure::Link {
            cause: LinkCause::NoNetns(_),
            ..
        })
    ));
    assert_eq!((host.store.ranges.len(), host.filed()), (0, vec![]));
}

#[test]
fn an_add_fails_if_its_namespace_turns_out_to_be_missing_while_it_waits_for_its_files() {
    let mut host = Host::new();
    host.given(add("c", 2, &SMALL)).expect("an address");
    // Nobody hears of its end.
    host.live.remove(&path(2));
    host.files_are_slow = true;
    let id = host.ask(add("a", 30, &SMALL));
    host.given(add("c", 2, &SMALL)).expect_err("it has one");
    host.ask(add("b", 4, &SMALL));
    assert!(matches!(
        host.answer(id),
        Err(Failure::Link {
            cause: LinkCause::NoNetns(_),
            ..
        })
    ));
    host.flush();
    assert_eq!(host.filed(), ["10.0.0.4 b"]);
}

#[test]
fn a_container_in_the_place_of_one_that_dies_meanwhile_gets_an_address() {
    let mut host = Host::new();
    host.given(add("a", 1, &SMALL)).expect("an address");
    host.live.insert(path(1), Cookie(50));
    host.looks_are_slow = true;
    let id = host.ask(add("a", 1, &SMALL));
    host.input(Input::Kernel(KernelMessage::NetnsDied {
        cookie: Cookie(1),
    }));
    host.flush();
    assert_eq!(host.answer(id), Ok("10.0.0.3/29".into()));
}

#[test]
fn after_a_restart_no_network_of_a_lan_gives_what_another_has() {
    let mut host = Host::new();
    assert_eq!(host.given(other("a", 1)), Ok("10.0.0.2/29".into()));
    host.start();
    // No ADD has named the other network since.
    assert_eq!(host.given(add("b", 2, &SMALL)), Ok("10.0.0.3/29".into()));
}

#[test]
fn a_pod_whose_identity_has_another_address_gets_no_second_one() {
    let mut host = Host::new();
    let pod = |container: &str, netns| RangeAdd {
        returns_as: Some(ClientId::new(b"\0db-0".to_vec()).expect("an identifier")),
        ..add(container, netns, &SMALL)
    };
    host.given(pod("a", 1)).expect("an address");
    host.del("a");
    host.given(add("x", 2, &SMALL)).expect("the next address");
    host.given(pod("b", 3)).expect("the first address");
    host.del("b");
    host.given(add("y", 4, &SMALL)).expect("another");
    assert_eq!(host.given(pod("c", 5)), Ok("10.0.0.2/29".into()));
    host.dies(2);
    let again = host.given(pod("c", 5));
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
}

#[test]
fn a_failed_add_after_a_del_that_the_store_could_not_take_leaves_nothing_there() {
    let mut host = Host::new();
    host.given(add("a", 1, &SMALL)).expect("an address");
    host.disk_is_full = true;
    host.del("a");
    assert!(matches!(
        host.given(add("a", 1, &SMALL)),
        Err(Failure::Store(_))
    ));
    host.disk_is_full = false;
    host.run_for(10_000);
    assert!(host.store.ranges.is_empty(), "{:?}", host.store.ranges);
}

#[test]
fn a_gc_that_does_not_name_an_add_under_way_takes_it_back() {
    let mut host = Host::new();
    host.files_are_slow = true;
    let id = host.ask(add("a", 1, &SMALL));
    host.request(Call::Collect {
        network: "pods".into(),
        keep: vec![],
    });
    assert_eq!(
        host.answer(id),
        Err(Failure::Cancelled(attachment("pods", "a")))
    );
    host.flush();
    assert_eq!((host.filed(), host.store.ranges.len()), (vec![], 0));
}

#[test]
fn slow_files_delay_an_add_and_a_del_by_a_moment() {
    let mut host = Host::new();
    host.files_are_slow = true;
    let id = host.ask(add("a", 1, &SMALL));
    host.run_for(249);
    assert!(!host.answers.contains_key(&id));
    host.run_for(1);
    assert_eq!(host.answer(id), Ok("10.0.0.2/29".into()));
    host.flush();
    host.given(add("b", 2, &SMALL)).expect("an address");
    assert_eq!(host.filed(), ["10.0.0.2 a", "10.0.0.3 b"]);

    for (container, over) in [
        ("a", Host::flush as fn(&mut Host)),
        ("b", |host| host.run_for(1)),
    ] {
        host.files_are_slow = true;
        let id = host.ask_del(container);
        host.run_for(249);
        assert!(
            !host.answers.contains_key(&id),
            "a daemon killed now would leave the file"
        );
        over(&mut host);
        assert_eq!(host.answers.get(&id), Some(&Answer::Deleted));
        host.flush();
    }
    assert!(host.filed().is_empty());
}
