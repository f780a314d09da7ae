//! The package for Fedora and related systems, with rpm's own checks and its scripts.

use std::fs;
use std::path::Path;

use netns_fixtures::{Error, Lan, Need, Systemd, assert_says, sandbox};

use super::{LaterStore, PACKAGING, Shipped};

#[test]
fn rpm_installs_upgrades_downgrades_and_removes() -> Result<(), Error> {
    let needs = [
        &PACKAGING[..],
        &[Need::Program("systemd"), Need::Program("rpm")],
    ]
    .concat();
    let lan = Lan::new(&sandbox!(&needs))?;
    let shipped = Shipped::new(&lan.host)?;
    let [first, second] = ["1", "2"].map(|revision| shipped.packages(revision, "rpm"));
    let [first, second] = [first?, second?].map(|dir| Shipped::file(&dir, ".rpm"));
    let (host, _, root) = Systemd::debian(&lan.host, Path::new("/"))?;
    // No package of rpm's is there, so none that this one requires.
    let rpm = |args: &[&str]| host.run("rpm", &[&["--nodeps"], args].concat());

    host.run("rpm", &["--checksig", "--nosignature", &first])?;
    rpm(&["--install", &first])?;
    rpm(&["--verify", "leasehold"])?;
    fs::create_dir_all(root.join("opt/cni/bin")).expect("a root takes a directory");
    let said = host.run(
        "leasehold",
        &["install", "--systemd", "--cni-bin-dir", "/opt/cni/bin"],
    )?;
    assert!(said.contains("/opt/cni/bin/dhcp: installed"), "{said}");
    let [daemon] = host.processes("leasehold.service")[..] else {
        panic!("no daemon, or several")
    };

    rpm(&["--upgrade", &second])?;
    let [next] = host.processes("leasehold.service")[..] else {
        panic!("no daemon, or several")
    };
    assert_ne!(daemon, next, "the daemon is that of the new package");

    let later = LaterStore::put_into(&root);
    let downgrade = "rpm --nodeps --upgrade --oldpackage \"$0\" 2>&1";
    let said = host.run("sh", &["-c", downgrade, &first])?;
    assert_says(&said, LaterStore::SAID);
    assert_says(&said, "%posttrans");
    assert_eq!(host.processes("leasehold.service"), [next]);
    later.take_back();
    host.run(
        "sh",
        &[
            "-ec",
            "leasehold install --update && systemctl restart leasehold.service",
        ],
    )?;
    assert_ne!(host.processes("leasehold.service"), [next]);
    rpm(&["--upgrade", "--oldpackage", &first]).expect_err("it is installed");
    rpm(&["--upgrade", &second])?;

    let said = rpm(&["--erase", "leasehold"])?;
    assert_says(&said, "leases are kept in /var/lib/leasehold");
    assert!(host.processes("leasehold.service").is_empty());
    // It is where runtimes look.
    assert!(!root.join("opt/cni/bin/dhcp").exists());
    assert!(root.join("var/lib/leasehold/leases.redb").exists());
    Ok(())
}
