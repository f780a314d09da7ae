//! Real engines, which call us in ways that nobody imagined.

mod docker;
mod documents;
mod fallback;
mod hang;
mod journeys;
mod network;
mod network_faults;
mod network_restarts;
mod plugin;
mod restarts;
mod two_lans;
mod without;

use std::path::Path;

use netns_fixtures::model::Kind;
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig, Grants, Kea, KeaConfig};
use netns_fixtures::{
    CallError, Capture, Containerd, DEADLINE, Engine, Incumbent, Lab, Lan, Need, Podman, Sandbox,
    assert_says, binary, install_plugin, sandbox, until_found,
};
use serde_json::json;

/// Makes a test for each engine and each network.
macro_rules! engines {
    ($($name:ident: $engine:ty,)*) => {$(
        mod $name {
            use super::*;

            networks!($engine: macvlan_gives_an_address_and_takes_it_back, bridge_gives_an_address_and_takes_it_back,
                ptp_is_refused_with_the_reason, ranges_give_an_address_and_take_it_back,);
        }
    )*};
}

macro_rules! networks {
    ($engine:ty: $($network:ident,)*) => {$(
        #[test]
        fn $network() -> Result<(), CallError> {
            let needs = [<$engine>::NEEDS, &[Need::Program("dnsmasq")]].concat();
            let sandbox = sandbox!(&needs);
            super::$network::<$engine>(&sandbox)
        }
    )*};
}

engines! {
    containerd: Containerd,
    podman: Podman,
}

fn macvlan_gives_an_address_and_takes_it_back<E: Engine>(
    sandbox: &Sandbox,
) -> Result<(), CallError> {
    gives_and_takes_back::<E>(&Lab::new(sandbox)?)
}

fn bridge_gives_an_address_and_takes_it_back<E: Engine>(
    sandbox: &Sandbox,
) -> Result<(), CallError> {
    let mut lab = Lab::new(sandbox)?;
    lab.lan.add_host_bridge()?;
    lab.config = Lan::bridge_config(&lab.daemon().socket());
    gives_and_takes_back::<E>(&lab)
}

fn gives_and_takes_back<E: Engine>(lab: &Lab) -> Result<(), CallError> {
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let engine = E::start(&lab.lan.host, &lab.config, &binary("dhcp")?)?;

    let look = "/bin/busybox ip -4 addr show dev eth0; /bin/busybox ip route";
    let printed = engine.run("c1", &["sh", "-c", look])?;
    let address = seen.wait_for_dhcp(Kind::Ack, DEADLINE, |_| true)?.yiaddr;
    assert_says(&printed, &format!("inet {address}/16 "));
    assert_says(&printed, "default via 10.7.0.1 dev eth0");
    // The container has ended, and its namespace with it.
    seen.wait_for_release(address, DEADLINE)?;
    server.wait_until_free()?;
    lab.daemon().wait_until_empty()?;
    Ok(())
}

/// The ptp plugin makes its veth pair only when it has the address, so there is nothing yet through which to ask a server.
fn ptp_is_refused_with_the_reason<E: Engine>(sandbox: &Sandbox) -> Result<(), CallError> {
    let mut lab = Lab::new(sandbox)?;
    lab.config = Lan::ptp_config(&lab.daemon().socket());
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let engine = E::start(&lab.lan.host, &lab.config, &binary("dhcp")?)?;

    let error = engine
        .run("c1", &["true"])
        .expect_err("ptp has no interface to ask through")
        .to_string();
    assert_says(&error, "no interface eth0");
    assert_says(&error, "ptp, for example, creates it afterwards");
    lab.daemon().wait_until_empty()?;
    assert_eq!(server.leases()?, []);
    Ok(())
}

/// The plugin is in host-local's place, on a bridge that the main plugin makes.
fn ranges_give_an_address_and_take_it_back<E: Engine>(sandbox: &Sandbox) -> Result<(), CallError> {
    let mut lab = Lab::without_daemon(sandbox)?;
    let data_dir = sandbox.dir("data")?;
    lab.config = json!({
        "cniVersion": "1.0.0", "name": "pods", "type": "bridge", "bridge": "cni1", "isGateway": true,
        "ipam": {
            "type": "host-local", "dataDir": data_dir,
            "ranges": [[{"subnet": "10.9.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}],
        },
    });
    let engine = E::start(&lab.lan.host, &lab.config, &binary("dhcp")?)?;
    for (id, address) in [("c1", "10.9.0.2"), ("c2", "10.9.0.3")] {
        let printed = engine.run(
            id,
            &[
                "sh",
                "-c",
                "/bin/busybox ip -4 addr show dev eth0; /bin/busybox ip route",
            ],
        )?;
        assert_says(&printed, &format!("inet {address}/24 "));
        assert_says(&printed, "default via 10.9.0.1 dev eth0");
        // The container has ended.
        let file = data_dir.join("pods").join(address);
        until_found("the address to be free", DEADLINE, || {
            Ok((!file.exists()).then_some(()))
        })?;
    }
    Ok(())
}

/// Podman wrote its cache itself. The administrator replaces the plugin and the daemon under a running container.
#[test]
fn a_podman_container_moves_from_the_incumbent_to_us() -> Result<(), CallError> {
    let needs = [Podman::NEEDS, Incumbent::NEEDS, &[Need::Program("dnsmasq")]].concat();
    let mut lab = Lab::of_the_system(&sandbox!(&needs))?;
    let server = Dnsmasq::start(&lab.lan, Grants::default().renewed(5, 9))?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let incumbent = Incumbent::start(&lab.lan.host, &lab.home().socket())?;
    // As in the field: the network does not say where the daemon listens.
    let mut network = lab.config.clone();
    network["ipam"] = json!({ "type": "dhcp" });
    let engine = Podman::start(&lab.lan.host, &network, Path::new(Incumbent::PLUGIN))?;
    let id = engine.keep("c1")?;
    let address = seen.wait_for_dhcp(Kind::Ack, DEADLINE, |_| true)?.yiaddr;

    install_plugin(&lab.lan.host, "dhcp", &binary("dhcp")?)?;
    incumbent.stop()?;
    lab.start_daemon()?;
    lab.daemon()
        .wait_for_event(&format!("lan/{id}/eth0 adopted "))?;
    let rows = lab.daemon().list()?;
    let found = rows.iter().map(|row| &row["address"]).collect::<Vec<_>>();
    assert_eq!(found, [&json!(format!("{address}/16"))]);
    let renewal =
        |m: &netns_fixtures::Dhcp| m.ciaddr == address && m.source == address && m.is_unicast();
    seen.wait_for_dhcp(Kind::Request, DEADLINE, renewal)?;
    let printed = engine.exec("c1", &["ip", "-4", "addr", "show", "dev", "eth0"])?;
    assert_says(&printed, &format!("inet {address}/16 "));

    engine.remove("c1")?;
    seen.wait_for_release(address, DEADLINE)?;
    server.wait_until_free()?;
    lab.daemon().wait_until_empty()?;
    Ok(())
}

/// Kea gives a client that released its lease another address, unless the client asks for the same one.
#[test]
fn a_restarted_podman_container_has_its_address_again() -> Result<(), CallError> {
    let needs = [Podman::NEEDS, &[Need::Program("kea-dhcp4")]].concat();
    let lab = Lab::new(&sandbox!(&needs))?;
    let server = Kea::start(&lab.lan, KeaConfig::default())?;
    let engine = Podman::start(&lab.lan.host, &lab.config, &binary("dhcp")?)?;
    let id = engine.keep("c1")?;
    let address = || Ok::<_, CallError>(lab.daemon().list()?[0]["address"].clone());
    let first = address()?;
    engine.restart("c1")?;
    lab.daemon()
        .wait_for_event(&format!("lan/{id}/eth0 released"))?;
    assert_eq!(address()?, first);
    engine.remove("c1")?;
    server.wait_until_free()?;
    Ok(())
}
