use std::os::unix::fs::MetadataExt;

use super::*;

fn attachment(container: &str) -> Arc<Attachment> {
    Arc::new(Attachment::cni("lan", container, "eth0"))
}

fn dns(domain: &str) -> Option<Dns> {
    let servers = vec![[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
    let search = vec!["a.example".to_owned(), "b.example".to_owned()];
    Some(Dns {
        servers,
        domain: Some(domain.to_owned()),
        search,
    })
}

fn files(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for path in entries(&dir).unwrap() {
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if path.is_dir() {
                dirs.push(path)
            } else {
                found.push(name)
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_lease_has_its_file_until_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let publisher = Publisher::start(dir.path()).unwrap();
    publisher.publish(attachment("c1"), dns("old.example"));
    publisher.publish(attachment("c1"), dns("site.example"));
    publisher.publish(attachment("c2"), dns("site.example"));
    drop(publisher);
    let file = dir.path().join("resolv/lan/c1/eth0");
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        "nameserver 192.0.2.1\nnameserver 192.0.2.2\ndomain site.example\nsearch a.example b.example\n"
    );
    assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o644);
    assert_eq!(
        file.parent().unwrap().metadata().unwrap().mode() & 0o777,
        0o755
    );
    assert_eq!(
        files(dir.path()),
        ["resolv/lan/c1/eth0", "resolv/lan/c2/eth0"]
    );

    let publisher = Publisher::start(dir.path()).unwrap();
    publisher.publish(attachment("c1"), None);
    publisher.publish(attachment("c3"), None);
    drop(publisher);
    assert_eq!(files(dir.path()), ["resolv/lan/c2/eth0"]);
    assert!(!dir.path().join("resolv/lan/c1").exists());
}

#[test]
fn a_file_that_cannot_be_written_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    // A directory is where the file should be: the file can be written, but not put there.
    let (late, gone) = (
        dir.path().join("resolv/lan/late/eth0"),
        dir.path().join("resolv/lan/gone/eth0"),
    );
    for path in [&late, &gone] {
        fs::create_dir_all(path.join("full")).unwrap();
    }
    let publish = |pause| {
        let publisher = Publisher::with_pause(dir.path(), pause).unwrap();
        publisher.publish(attachment("late"), dns("old.example"));
        publisher.publish(attachment("gone"), dns("old.example"));
        publisher.publish(attachment("late"), dns("site.example"));
        publisher.publish(attachment("gone"), None);
        publisher.publish(attachment("good"), dns("site.example"));
        publisher
    };
    drop(publish(Duration::from_secs(3600)));
    assert_eq!(files(dir.path()), ["resolv/lan/good/eth0"], "no .new");

    let publisher = publish(Duration::from_millis(1));
    for path in [&late, &gone] {
        fs::remove_dir(path.join("full")).unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while !fs::read_to_string(&late).is_ok_and(|text| text.contains("site.example")) {
        assert!(Instant::now() < deadline, "{:?}", files(dir.path()));
        thread::yield_now();
    }
    drop(publisher);
    assert_eq!(
        files(dir.path()),
        ["resolv/lan/good/eth0", "resolv/lan/late/eth0"]
    );
}

#[test]
fn a_start_removes_only_stale_files() {
    let dir = tempfile::tempdir().unwrap();
    let publisher = Publisher::start(dir.path()).unwrap();
    for container in ["kept", "gone", "other"] {
        publisher.publish(attachment(container), dns("site.example"));
    }
    drop(publisher);
    let kept = dir.path().join("resolv/lan/kept/eth0");
    let before = kept.metadata().unwrap().ino();
    fs::write(dir.path().join("resolv/lan/other/.new-eth0"), "half").unwrap();

    let publisher = Publisher::start(dir.path()).unwrap();
    publisher.publish(attachment("kept"), dns("site.example"));
    publisher.sweep();
    publisher.publish(attachment("new"), dns("site.example"));
    drop(publisher);
    assert_eq!(
        files(dir.path()),
        ["resolv/lan/kept/eth0", "resolv/lan/new/eth0"]
    );
    assert_eq!(kept.metadata().unwrap().ino(), before);
}

#[test]
fn no_name_leads_out_of_its_directory_or_to_anothers_file() {
    let dir = tempfile::tempdir().unwrap();
    let long = "x".repeat(300);
    let longer = "x".repeat(301);
    let names = [
        "..",
        ".",
        "",
        "a/b",
        "a%2fb",
        "../../../etc/passwd",
        ".new",
        "a\nb",
        "ü",
        &long,
        &longer,
    ];
    let publisher = Publisher::start(dir.path()).unwrap();
    for name in names {
        publisher.publish(attachment(name), dns("site.example"));
    }
    drop(publisher);
    let found = files(&dir.path().join("resolv/lan"));
    assert_eq!(found.len(), names.len(), "{found:?}");
    assert!(
        found
            .iter()
            .all(|path| path.matches('/').count() == 1 && !path.starts_with('.')),
        "{found:?}"
    );
    assert_eq!(file_name("a1-b_c.d"), "a1-b_c.d");
    assert_eq!(file_name("../x"), "%2e.%2fx");
}

#[test]
fn dockers_endpoints_have_files_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let docker = |pool: &str, endpoint: &str| {
        Arc::new(Attachment::Docker {
            pool: pool.into(),
            endpoint: endpoint.into(),
        })
    };
    let publisher = Publisher::start(dir.path()).unwrap();
    let of_cni = |network: &str| Arc::new(Attachment::cni(network, "lan", "eth0"));
    for attachment in [
        docker("lan", "eth0"),
        docker("../lan", "02:42:c0:a8:01:05"),
        of_cni("docker"),
        of_cni("%docker"),
    ] {
        publisher.publish(attachment, dns("site.example"));
    }
    drop(publisher);
    assert_eq!(
        files(&dir.path().join("resolv")),
        [
            "%25docker/lan/eth0",
            "%docker/%2e.%2flan/02%3a42%3ac0%3aa8%3a01%3a05",
            "%docker/lan/eth0",
            "docker/lan/eth0"
        ]
    );

    let publisher = Publisher::start(dir.path()).unwrap();
    publisher.publish(docker("lan", "eth0"), dns("site.example"));
    publisher.sweep();
    drop(publisher);
    assert_eq!(files(&dir.path().join("resolv")), ["%docker/lan/eth0"]);
}

/// Docker makes a directory in place of a missing mount source.
#[test]
fn an_empty_directory_gives_way_to_a_published_file() {
    let dir = tempfile::tempdir().unwrap();
    let at = |container: &str| dir.path().join("resolv/lan").join(container).join("eth0");
    ["c1", "c2", "c3"]
        .iter()
        .for_each(|container| fs::create_dir_all(at(container)).unwrap());
    let publisher = Publisher::start(dir.path()).unwrap();
    publisher.publish(attachment("c1"), dns("site.example"));
    publisher.publish(attachment("c2"), None);
    publisher.sweep();
    drop(publisher);
    assert_eq!(files(dir.path()), ["resolv/lan/c1/eth0"]);
    assert!(!at("c2").exists() && !at("c3").exists());
}
