//! The fixtures themselves, with busybox's DHCP client in place of ours.

use netns_fixtures::model::{Config, Event, Kind, Purpose};
use netns_fixtures::server::ModelServer;
use netns_fixtures::{Capture, Container, DEADLINE, Error, Lan, Need, Netns, Sandbox, sandbox};

const BUSYBOX: Need = Need::Program("busybox");

#[test]
fn the_model_server_serves_a_strange_client() -> Result<(), Error> {
    let lan = Lan::new(&sandbox!(&[BUSYBOX]))?;
    let server = ModelServer::start(&lan, Config::new(Lan::SUBNET))?;
    let mut witness = Capture::start(&lan.server, Lan::IFNAME)?;
    let container = lan.container("c1")?;
    udhcpc(&container)?;

    let granted = |event: &Event| match event {
        Event::Granted(address, Purpose::Select) => Some(*address),
        _ => None,
    };
    let address = server.wait_for("grant", 0, DEADLINE, granted)?;
    assert_eq!(server.leases()[&address].hardware, container.mac);
    let ack = witness.wait_for_dhcp(Kind::Ack, DEADLINE, |m| m.yiaddr == address)?;
    assert!(ack.is_unicast(), "udhcpc asks for no broadcast: {ack:?}");
    Ok(())
}

#[test]
fn nothing_outlives_a_sandbox() -> Result<(), Error> {
    let sandbox = sandbox!(&[]);
    let lan = Lan::new(&sandbox)?;
    let orphan = lan.host.sh("setsid sleep 1000 >/dev/null 2>&1 & echo $!")?;
    assert_ne!(orphan, "");
    let keeper = sandbox.keeper();
    drop((lan, sandbox));
    assert!(!std::path::Path::new(&format!("/proc/{keeper}")).exists());
    Ok(())
}

/// `ip netns add` makes `/run/netns` a mount, until the next boot.
#[test]
fn mounts_of_the_host_in_run_are_not_even_covered() -> Result<(), Error> {
    let outer = sandbox!(&[]);
    let host = Netns::new(&outer, "host")?;
    let used = "mount --bind /run/netns /run/netns; mount --make-shared /run/netns";
    host.sh(used)?;
    let inner = Sandbox::enter()?;
    let seen = Netns::new(&inner, "inner")?.sh("cat /proc/self/mountinfo")?;
    assert!(!seen.contains(" /run/netns "), "{seen}");
    Ok(())
}

fn udhcpc(container: &Container) -> Result<(), Error> {
    container.netns.set_up(&container.ifname)?;
    let args = [
        "udhcpc",
        "-n",
        "-q",
        "-f",
        "-i",
        &container.ifname,
        "-s",
        "/bin/true",
    ];
    container.netns.run_command("busybox", &args, "").map(drop)
}
