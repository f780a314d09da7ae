//! The fixtures themselves, with busybox's DHCP client in place of ours.

use netns_fixtures::model::{Config, Event, Kind, Purpose};
use netns_fixtures::server::ModelServer;
use netns_fixtures::{Capture, Container, DEADLINE, Error, Lan, Need, Netns, Sandbox, sandbox};

const BUSYBOX: Need = Need::Program("busybox");

#[test]
fn the_model_server_serves_a_strange_client() -> Result<(), Error> {
    let sandbox = sandbox!(&[BUSYBOX]);
    let lan = Lan::new(&sandbox)?;
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
fn a_container_is_configured_as_its_result_says() -> Result<(), Error> {
    let sandbox = sandbox!(&[]);
    let lan = Lan::new(&sandbox)?;
    let container = lan.container("c1")?;
    assert!(!container.netns.is_up("eth0")?);
    container.configure(&serde_json::json!({
        "ips": [{ "address": "10.7.1.5/16", "gateway": "10.7.0.1" }],
        "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "192.0.2.0/24", "gw": "10.7.0.9" }],
    }))?;
    assert!(container.netns.is_up("eth0")?);
    assert_eq!(container.addresses()?, [Lan::on_lan([10, 7, 1, 5].into())]);
    let routes = container
        .netns
        .run_command("cat", &["/proc/self/net/route"], "")?;
    let hexadecimal_routes = routes
        .lines()
        .skip(1)
        .map(|line| line.split('\t').take(3).collect::<Vec<_>>());
    assert!(
        hexadecimal_routes
            .clone()
            .any(|r| r == ["eth0", "00000000", "0100070A"]),
        "{routes}"
    );
    assert!(
        hexadecimal_routes
            .clone()
            .any(|r| r == ["eth0", "000200C0", "0900070A"]),
        "{routes}"
    );
    let error = container
        .add_cluster_network()
        .expect_err("the default route is taken");
    assert!(error.to_string().contains("File exists"), "{error}");
    Ok(())
}

#[test]
fn nothing_outlives_a_sandbox() -> Result<(), Error> {
    let sandbox = sandbox!(&[]);
    let lan = Lan::new(&sandbox)?;
    let orphan = lan.host.run_command(
        "sh",
        &["-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!"],
        "",
    )?;
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
    host.run_command("sh", &["-ec", used], "")?;
    let inner = Sandbox::enter()?;
    let seen = Netns::new(&inner, "inner")?.run_command("cat", &["/proc/self/mountinfo"], "")?;
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

#[test]
fn a_need_that_is_not_met_is_named() {
    assert!(Need::Program("sh").is_met());
    assert!(!Need::StaticProgram("unshare").is_met());
    assert!(!Need::Program("no-such-program").is_met());
    assert_eq!(
        Need::Program("no-such-program").to_string(),
        "the program no-such-program"
    );
}
