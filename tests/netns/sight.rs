//! A daemon that does not see the namespaces of running containers.

use std::process::Command;

use netns_fixtures::model::Kind;
use netns_fixtures::server::Dnsmasq;
use netns_fixtures::{
    CallError, Capture, DEADLINE, Lab, Lan, Need, Process, Sight, assert_says, sandbox,
};

use crate::servers::short;

#[test]
fn a_daemon_that_sees_no_namespace_gives_nothing_back() -> Result<(), CallError> {
    let needs = [
        Need::Program("dnsmasq"),
        Need::Program("mount"),
        Need::Program("unshare"),
    ];
    let mut lab = Lab::new(&sandbox!(&needs))?;
    let server = Dnsmasq::start(&lab.lan, short::<netns_fixtures::server::DnsmasqProgram>())?;
    let members = [lab.attach("c1")?, lab.attach("c2")?, lab.attach("c3")?];
    let mut seen = Capture::start(&lab.lan.host, Lan::IFNAME)?;

    let nowhere = lab.home().socket().with_file_name("nowhere");
    lab.kill9()?;
    let refusal = lab
        .start_daemon_with(&Sight::Under(nowhere))
        .expect_err("no host's root is there")
        .to_string();
    assert_says(&refusal, "--host-prefix");
    assert_says(&refusal, "is not a directory");

    // A directory that is not the host's root, and a mount namespace that has another /run/netns.
    for sight in [Sight::Under(lab.home().state_dir()), Sight::Hidden] {
        lab.start_daemon_with(&sight)?;
        lab.wait_for_line("a network namespace with a lease is out of sight")?;
        // The kernel knows them all.
        for member in &members {
            seen.wait_for_dhcp(Kind::Ack, DEADLINE, |message| {
                message.yiaddr == member.address
            })?;
            seen.rewind();
        }
        assert!(
            lab.daemon()
                .list()?
                .iter()
                .filter(|row| row["pathless"] == true)
                .count()
                == 3
        );
        lab.kill9()?;
    }
    assert!(
        !seen
            .dhcp()?
            .iter()
            .any(|message| message.kind == Kind::Release),
        "{seen}"
    );
    assert_eq!(server.leases()?.len(), 3);

    lab.start_daemon()?;
    for member in &members {
        seen.rewind()
            .wait_for_dhcp(Kind::Ack, DEADLINE, |m| m.yiaddr == member.address)?;
        lab.check(member)?;
        lab.detach(member)?;
    }
    Ok(server.wait_until_free()?)
}

#[test]
fn a_container_without_a_namespace_path_keeps_its_lease() -> Result<(), CallError> {
    let needs = [Need::Program("dnsmasq"), Need::Program("umount")];
    let mut lab = Lab::new(&sandbox!(&needs))?;
    let server = Dnsmasq::start(&lab.lan, short::<netns_fixtures::server::DnsmasqProgram>())?;
    let (pathless, other) = (lab.attach("c1")?, lab.attach("c2")?);
    let address = pathless.address;
    let mut sleep = Command::new("sleep");
    sleep.arg("600");
    let inside = Process::start(&pathless.container.netns, "a process inside", sleep)?;
    let mut seen = Capture::start(&lab.lan.host, Lan::IFNAME)?;

    let path = pathless
        .container
        .netns
        .path()
        .to_string_lossy()
        .into_owned();
    lab.lan.host.run_command("umount", &["-l", &path], "")?;
    for is_new in [false, true] {
        if is_new {
            lab.kill9()?;
            lab.start_daemon()?;
        }
        lab.wait_for_line("extending the lease from the host's link")?;
        for _ in 0..2 {
            seen.wait_for_dhcp(Kind::Ack, DEADLINE, |message| message.yiaddr == address)?;
        }
    }
    // Only the process keeps the namespace, and its file goes too.
    drop(pathless);
    for _ in 0..2 {
        seen.wait_for_dhcp(Kind::Ack, DEADLINE, |message| message.yiaddr == address)?;
    }
    let said = lab.daemon().operator(&["list"])?;
    assert_says(&said, "No path leads to these any more");
    assert_says(&said, &format!("c1/eth0: was at {path}"));
    assert!(
        !seen
            .dhcp()?
            .iter()
            .any(|message| message.kind == Kind::Release),
        "{seen}"
    );

    inside.kill()?;
    seen.wait_for_release(address, DEADLINE)?;
    lab.check(&other)?;
    lab.detach(&other)?;
    Ok(server.wait_until_free()?)
}
