//! Routes that a main plugin cannot add, and those that the kernel removes with a link.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use ipnet::Ipv4Net;
use netns_fixtures::model::{Config, Event};
use netns_fixtures::server::ModelServer;
use netns_fixtures::{
    CallError, Container, DEADLINE, Lab, Lan, Need, Netns, result_addresses, sandbox,
};
use serde_json::json;

use crate::witness;

const MACVLAN: &str = "/usr/lib/cni/macvlan";
/// A router outside every subnet.
const ROUTER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

#[test]
fn routes_beyond_the_subnet_come_with_any_main_plugin() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::File(MACVLAN), Need::Program("ip")]);
    let by = |to: &str, via| (to.parse::<Ipv4Net>().expect("a network"), via);
    let cloud = Config {
        subnet: Ipv4Net::new_assert(Lan::SERVER, 32),
        routers: vec![ROUTER],
        ..Config::new(Lan::SUBNET)
    };
    let on_link = Config {
        routes: vec![
            by("0.0.0.0/0", Lan::SERVER),
            by("198.51.100.0/24", Ipv4Addr::UNSPECIFIED),
            by("192.0.2.0/24", Lan::SERVER),
            by("192.0.2.0/24", Lan::SERVER),
        ],
        ..Config::new(Lan::SUBNET)
    };
    let expected: [(Config, &[&str]); 2] = [
        (
            cloud,
            &[
                "default via 203.0.113.1 dev eth0",
                "203.0.113.1 dev eth0 scope link",
            ],
        ),
        (
            on_link,
            &[
                "default via 10.7.0.1 dev eth0",
                "198.51.100.0/24 dev eth0 scope link",
                "192.0.2.0/24 via 10.7.0.1",
            ],
        ),
    ];
    let mut lab = Lab::new(&sandbox)?;
    lab.lan
        .server
        .add_address(Lan::IFNAME, Ipv4Net::new_assert(ROUTER, 32))?;
    let plugin = lab.shim.under(PathBuf::from(MACVLAN));
    for (config, routes) in expected {
        let server = ModelServer::start(&lab.lan, config)?;
        for version in ["0.4.0", "1.0.0"] {
            lab.config["cniVersion"] = version.into();
            // The plugin makes the interface.
            let container = Container::new("c1", Netns::new(&sandbox, "c1")?, "eth0", [0; 6]);
            let result = plugin.add(&container, &lab.config)?;
            witness::routes(&container, routes, &[], DEADLINE)?;
            // For a /32 it wants a route to the subnet, which the kernel does not add.
            if result_addresses(&result)?[0].0.prefix_len() < 32 {
                plugin.check(&container, &lab.config, &result)?;
            }
            let from = server.events().len();
            plugin.del(&container, &lab.config)?;
            let released = |event: &Event| matches!(event, Event::Released(_)).then_some(());
            server.wait_for("a RELEASE", from, DEADLINE, released)?;
        }
        assert_eq!(server.violations(), []);
    }
    Ok(())
}

#[test]
fn a_second_network_before_cni_1_1_gets_whole_routes() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::File(MACVLAN), Need::Program("ip")]);
    let mut lab = Lab::new(&sandbox)?;
    let _server = ModelServer::start(&lab.lan, Config::new(Lan::SUBNET))?;
    lab.config["cniVersion"] = "1.0.0".into();
    lab.config["ipam"]["priority"] = 500.into();
    lab.config["ipam"]["routes"] = json!([
        { "dst": "203.0.113.0/24", "mtu": 1300, "advmss": 1200, "priority": 7 },
        { "dst": "198.51.100.0/24", "table": 100 },
    ]);
    let plugin = lab.shim.under(PathBuf::from(MACVLAN));
    let container = Container::new("c1", Netns::new(&sandbox, "c1")?, "net1", [0; 6]);
    let _cluster = container.add_cluster_network()?;
    let result = plugin.add(&container, &lab.config)?;
    let whole = [
        "default via 172.31.0.1 dev cluster0",
        "default via 10.7.0.1 dev net1 metric 500",
        "203.0.113.0/24 via 10.7.0.1 dev net1 metric 7 mtu 1300 advmss 1200",
    ];
    witness::routes(
        &container,
        &whole,
        &["default via 10.7.0.1 dev net1 \n"],
        DEADLINE,
    )?;
    let ip = |arguments: &str| {
        let arguments: Vec<_> = arguments.split(' ').collect();
        container.netns.run_command("ip", &arguments, "")
    };
    let found = ip("route show table 100")?;
    assert_eq!(
        found.trim(),
        "198.51.100.0/24 via 10.7.0.1 dev net1 metric 500"
    );
    plugin.check(&container, &lab.config, &result)?;

    // Multus takes the default route off if another network should have it.
    ip("route del default dev net1")?;
    plugin.check(&container, &lab.config, &result)?;
    // What another plugin puts in its place is no fault either.
    ip("route append default via 10.7.0.1 dev net1")?;
    plugin.check(&container, &lab.config, &result)?;
    // The same route with another MTU is one.
    ip("route change 203.0.113.0/24 via 10.7.0.1 dev net1 metric 7 mtu 1200")?;
    let error = plugin
        .check(&container, &lab.config, &result)
        .expect_err("it has another MTU")
        .cni();
    let lacks =
        "route 203.0.113.0/24 via 10.7.0.1 metric 7 mtu 1300 advmss 1200 is not on interface net1";
    assert!(error.msg.contains(lacks), "{error}");
    plugin.del(&container, &lab.config)
}

#[test]
fn what_the_kernel_takes_with_a_link_comes_back_with_it() -> Result<(), CallError> {
    let lab = Lab::new(&sandbox!(&[Need::Program("ip")]))?;
    let _server = ModelServer::start(&lab.lan, Config::new(Lan::SUBNET))?;
    let member = lab.attach("c1")?;
    let default = ["default via 10.7.0.1 dev eth0"];
    witness::routes(&member.container, &default, &[], DEADLINE)?;
    member.container.netns.set_down("eth0")?;
    witness::routes(&member.container, &[], &["default"], DEADLINE)?;
    member.container.netns.set_up("eth0")?;
    witness::routes(&member.container, &default, &[], DEADLINE)?;
    lab.detach(&member)
}
