//! The package for Debian, on a Debian that systemd runs.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{CallError, Capture, Container, Lan, Need, Shim, Systemd, sandbox};
use serde_json::Value;

use super::{PACKAGING, Shipped};

/// Debian's own plugin, which another package owns.
const PLUGIN: &str = "/usr/lib/cni/dhcp";

const LEASES: usize = 50;

const SERVICE: &str = "leasehold.service";

/// A container with the result of its ADD.
struct Member(Container, Value);

#[test]
fn a_package_is_installed_upgraded_removed_and_purged_under_running_containers() -> Result<(), CallError> {
    let needs = [&PACKAGING[..], &[Need::Program("systemd"), Need::Program("dnsmasq"), Need::File(PLUGIN)]].concat();
    let Some(sandbox) = sandbox(&needs) else { return Ok(()) };
    let lan = Lan::new(&sandbox)?;
    let server = Dnsmasq::start(&lan, DnsmasqConfig::default())?;
    let shipped = Shipped::new(&lan.host)?;
    let [first, second] = ["1", "2"].map(|revision| shipped.packages(revision, "deb"));
    let [first, second] = [first?, second?].map(|dir| Shipped::file(&dir, ".deb"));
    let (debian, root) = Systemd::debian(&lan.host)?;
    let list = || debian.run("leasehold", &["list"]).map(|text| text.matches("BOUND").count());

    debian.run("dpkg", &["--install", &first])?;
    let [daemon] = debian.processes(SERVICE)[..] else { panic!("no daemon, or several") };
    let incumbent = fs::read(PLUGIN).expect("it is there");
    let installed = root.join(&PLUGIN[1..]);
    let read = || fs::read(&installed).expect("it is there");
    assert_eq!(read(), incumbent, "the package itself puts nothing into CNI directories");
    let said = debian.run("leasehold", &["install"])?;
    assert!(said.contains("the file of the package containernetworking-plugins is diverted"), "{said}");
    assert_ne!(read(), incumbent);

    // As a runtime calls it: the file that is there.
    let shim = Shim::at(&lan.host, installed.clone());
    let config = Lan::cni_config(Path::new("/run/cni/dhcp.sock"));
    let add = |i| {
        let container = lan.container(&format!("c{i}"))?;
        let result = shim.add(&container, &config)?;
        container.configure(&result)?;
        Ok::<_, CallError>(Member(container, result))
    };
    let members = (0..LEASES).map(add).collect::<Result<Vec<_>, _>>()?;
    assert_eq!(list()?, LEASES);
    let check_all = || members.iter().try_for_each(|Member(container, result)| shim.check(container, &config, result));

    let mut seen = Capture::start(&lan.server, Lan::IFNAME)?;
    let upgraded = AtomicBool::new(false);
    thread::scope(|s| {
        let checks = s.spawn(|| {
            // To the end, and once after it.
            while !upgraded.load(Ordering::Relaxed) {
                check_all()?;
            }
            check_all()
        });
        let done = debian.run("dpkg", &["--install", &second]);
        upgraded.store(true, Ordering::Relaxed);
        checks.join().expect("a check does not panic")?;
        done.map_err(CallError::from)
    })?;
    assert_ne!(debian.processes(SERVICE), [daemon], "the daemon is that of the new package");
    assert_eq!(list()?, LEASES);
    let sent = seen.dhcp()?;
    assert!(sent.is_empty(), "the upgrade sent {sent:?}");

    // And back: the previous one reads the store.
    debian.run("dpkg", &["--install", &first])?;
    assert_eq!(list()?, LEASES);
    check_all()?;
    let sent = seen.dhcp()?;
    assert!(sent.is_empty(), "the downgrade sent {sent:?}");

    // Debian's own upgrades go to where the diversion leads.
    let said = debian.run("dpkg-divert", &["--truename", PLUGIN])?;
    assert_eq!(said.trim(), format!("{PLUGIN}.before-leasehold"));
    let said = debian.run("dpkg", &["--remove", "leasehold"])?;
    assert!(said.contains("running containers keep their addresses"), "{said}");
    assert_eq!((debian.processes(SERVICE), read()), (vec![], incumbent));
    assert_eq!(debian.run("dpkg-divert", &["--truename", PLUGIN])?.trim(), PLUGIN);
    for Member(container, result) in &members {
        let addresses = netns_fixtures::result_addresses(result)?;
        assert_eq!(container.addresses()?, addresses.into_iter().map(|(address, _)| address).collect::<Vec<_>>());
    }

    debian.run("dpkg", &["--install", &second])?;
    assert_eq!(list()?, LEASES, "only a purge forgets leases");
    let sent = seen.dhcp()?;
    assert!(sent.is_empty(), "removal or return sent {sent:?}");
    let said = debian.run("dpkg", &["--purge", "leasehold"])?;
    assert!(said.contains("forgetting all leases in /var/lib/leasehold"), "{said}");
    for left in
        ["var/lib/leasehold", "etc/default/leasehold", "etc/systemd/system/multi-user.target.wants/leasehold.service"]
    {
        assert!(!root.join(left).exists(), "{left}");
    }
    assert_eq!(server.leases()?.len(), LEASES);
    Ok(())
}

#[test]
fn lintian_and_rpmlint_have_nothing_against_the_packages() -> Result<(), CallError> {
    let needs = [&PACKAGING[..], &[Need::Program("lintian"), Need::Program("rpmlint")]].concat();
    let Some(sandbox) = sandbox(&needs) else { return Ok(()) };
    let lan = Lan::new(&sandbox)?;
    let shipped = Shipped::new(&lan.host)?;
    let dir = shipped.packages("1", "deb rpm")?;
    shipped.make("packages/check", &[&dir.to_string_lossy()], &[])?;
    Ok(())
}
