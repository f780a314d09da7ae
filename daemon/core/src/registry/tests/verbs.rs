//! GC, STATUS, adoption, and the effects of a profile on the life of a lease.

use super::rig::*;

#[test]
fn a_gc_releases_what_its_network_does_not_keep() {
    let mut rig = Rig::new(8);
    for (n, who) in ["a", "b", "c"].into_iter().enumerate() {
        rig.add(who, n as u64 + 1, who);
    }
    let keep = vec![
        ("b".to_owned(), "eth0".to_owned()),
        ("x".to_owned(), "eth0".to_owned()),
    ];
    let other = rig.request(Call::Collect {
        network: "elsewhere".to_owned(),
        keep: Vec::new(),
    });
    assert_eq!(rig.answers[&other], Answer::Collected);
    assert_eq!(rig.rows().len(), 3);
    let id = rig.request(Call::Collect {
        network: "lan".to_owned(),
        keep,
    });
    assert_eq!(rig.answers[&id], Answer::Collected);
    assert_eq!(
        rig.rows()
            .into_iter()
            .map(|row| container(&row.attachment))
            .collect::<Vec<_>>(),
        ["b"]
    );
    assert_eq!(rig.sends(7), 2, "both were released");
}

#[test]
fn a_gc_goes_on_after_a_failure_and_reports_it() {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "a");
    rig.add("b", 2, "b");
    rig.disk = Disk::Full;
    let id = rig.collect();
    let Failure::NotCollected(faults) = rig.failure(id) else {
        panic!("{:?}", rig.answers[&id])
    };
    assert_eq!(
        faults,
        &["a", "b"].map(|name| format!("lan/{name}/eth0: {}", StoreCause::Full))
    );
    assert_eq!(rig.state("a"), "RELEASING", "once the store takes it");
}

#[test]
fn a_collection_that_the_store_holds_up_ends_by_itself() {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "a");
    rig.disk = Disk::Slow;
    let id = rig.collect();
    rig.run_until(1030.0);
    assert_fails!(rig, id, Failure::NotCollected(_));
    rig.disk_recovers();
    rig.run_until(1040.0);
    assert!(rig.rows().is_empty(), "the DEL went on");
}

#[test]
fn status_writes_and_looks_before_it_says_ready() {
    let mut rig = Rig::new(8);
    let id = rig.request(Call::Status {
        parent: Some("br0".to_owned()),
    });
    assert_eq!(rig.answers[&id], Answer::Ready);
    rig.disk = Disk::Full;
    let id = rig.request(Call::Status { parent: None });
    assert_eq!(
        rig.answers[&id],
        Answer::Failed(Failure::NotReady(StoreCause::Full.to_string()))
    );
    rig.disk = Disk::Slow;
    let id = rig.request(Call::Status { parent: None });
    rig.run_until(1011.0);
    assert_fails!(rig, id, Failure::NotReady(_));
    let hung_up = rig.request(Call::Status { parent: None });
    rig.input(Input::HungUp(RequestId(hung_up)));
    rig.flush();
    assert!(!rig.answers.contains_key(&hung_up));
}

#[test]
fn status_names_every_fault_whichever_is_seen_first() {
    let mut rig = Rig::new(8);
    let parent = || Call::Status {
        parent: Some("br0".to_owned()),
    };
    (rig.disk, rig.blind) = (Disk::Full, Some(LinkCause::NoLink("br0".to_owned())));
    let early = rig.request(parent());
    let Failure::NotReady(faults) = rig.failure(early) else {
        panic!("{:?}", rig.answers[&early])
    };
    assert!(
        faults.contains(&StoreCause::Full.to_string()) && faults.contains("no interface br0"),
        "{faults}"
    );
    rig.disk = Disk::Slow;
    let late = rig.request(parent());
    let (op, _) = rig.slow.pop_front().expect("the store is written to");
    rig.end(op, Outcome::Persisted(Err(StoreCause::Full)));
    assert_eq!(rig.answers[&late], rig.answers[&early]);
}

#[test]
fn a_full_disk_ends_no_lease_that_is_being_adopted() {
    let mut rig = Rig::new(8);
    rig.interface.carry([A.parse().unwrap()]);
    rig.disk = Disk::Full;
    rig.adopts(rig.running());
    assert_eq!(rig.state("a"), "BOUND", "held in memory");
    // It would be released under a live container.
    assert_eq!(rig.sends(7), 0);
    // A daemon that came now would have to adopt it.
    assert_eq!(rig.reg.adopting(), 1);
    rig.disk = Disk::Good;
    rig.run_until(1010.0);
    // Written when there is room.
    assert_eq!((rig.store.records().len(), rig.reg.adopting()), (1, 0));
}

#[test]
fn an_adoption_that_nobody_answers_releases_nothing() {
    let mut rig = Rig::new(8);
    rig.interface.carry([A.parse().unwrap()]);
    rig.server = Server::OffersOnly;
    rig.adopts(rig.running());
    rig.run_until(1060.0);
    assert_eq!(rig.not_adopted().len(), 1);
    // It would be released under a live container.
    assert_eq!(rig.sends(7), 0);
}

#[test]
fn a_failed_adoption_is_listed_with_its_reason() {
    let mut rig = Rig::new(8);
    rig.adopts(rig.running());
    // The address is not on the link: nothing is asked.
    assert!(rig.sent.is_empty());
    assert_eq!(
        rig.not_adopted(),
        ["lan/a/eth0: 192.0.2.50/24 is not on interface eth0 of lan/a/eth0"]
    );

    let mut rig = Rig::new(8);
    rig.interface.carry([A.parse().unwrap()]);
    rig.server = Server::Silent;
    rig.adopts(rig.running());
    rig.run_until(1030.5);
    assert_eq!(rig.not_adopted().len(), 1);
    assert_eq!((rig.rows().len(), rig.sends(7)), (0, 0));
}

#[test]
fn broadcasts_over_the_parent_are_in_the_lans_vlan() {
    for vlan in [0, 7] {
        let mut rig = Rig::new(8);
        rig.profile = Profile {
            on_parent: true,
            ..Profile::default()
        };
        let mut add = rig.call("a", 1, "a");
        add.lan = lan_on("br0", vlan);
        rig.request(Call::Add(add));
        assert_eq!(rig.state("a"), "BOUND");
        let [
            Link::Parent {
                vlan: over,
                port: false,
                ..
            },
        ] = rig.opened[..]
        else {
            panic!("{:?}", rig.opened)
        };
        assert_eq!(over, vlan);
    }
}
