//! Docker's networks whose containers share the Ethernet address of their parent. Docker's calls are played, because not every
//! kernel has ipvlan.

use std::net::Ipv4Addr;
use std::path::Path;

use netns_fixtures::engine::plugin::Plugin;
use netns_fixtures::model::Kind;
use netns_fixtures::server::{Dnsmasq, Grants};
use netns_fixtures::{Capture, DEADLINE, Error, Lab, Lan, Need, sandbox};
use serde_json::{Value, json};

const NEEDS: &[Need] = &[Need::Program("dnsmasq")];

/// A network, as dockerd calls its IPAM driver for it.
struct Network {
    plugin: Plugin,
    id: Value,
    gateway: Value,
}

impl Network {
    fn create(driver: &str, options: &Value) -> Result<Self, Error> {
        let plugin = Plugin::new(&Path::new("/run/docker/plugins").join(format!("{driver}.sock")));
        let request = json!({"AddressSpace": "leasehold", "Pool": Lan::SUBNET, "SubPool": "", "Options": options, "V6": false});
        let pool = plugin.call("IpamDriver.RequestPool", &request)?;
        Ok(Self {
            plugin,
            id: pool["PoolID"].clone(),
            gateway: pool["Data"]["com.docker.network.gateway"].clone(),
        })
    }

    fn request(&self, address: &str, options: &Value) -> Result<Ipv4Addr, Error> {
        let request = json!({"PoolID": self.id, "Address": address, "Options": options});
        let given = self.plugin.call("IpamDriver.RequestAddress", &request)?;
        let address = given["Address"]
            .as_str()
            .and_then(|text| text.strip_suffix("/16"));
        Ok(address
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| panic!("{given}")))
    }

    fn release(&self, address: Ipv4Addr) -> Result<(), Error> {
        let request = json!({"PoolID": self.id, "Address": address});
        self.plugin
            .call("IpamDriver.ReleaseAddress", &request)
            .map(drop)
    }
}

#[test]
fn ipvlan_endpoints_lease_by_the_mac_of_their_parent() -> Result<(), Error> {
    let lab = Lab::with_docker(&sandbox!(NEEDS))?;
    let server = Dnsmasq::start(&lab.lan, Grants::default().renewed(5, 9))?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let network = Network::create(
        "leasehold-ipvlan",
        &json!({"parent": Lan::IFNAME, "grace": "5"}),
    )?;
    assert_eq!(network.gateway, "10.7.0.1/16");

    // Up to 28 nothing distinguishes endpoints.
    let one = network.request("", &Value::Null)?;
    let two = network.request("", &Value::Null)?;
    assert_ne!(one, two);
    let acks =
        [one, two].map(|address| seen.wait_for_dhcp(Kind::Ack, DEADLINE, |m| m.yiaddr == address));
    let [first, second] = acks;
    let chaddr = first?.chaddr;
    assert_eq!(second?.chaddr, chaddr, "that of the parent");
    let reserved: Ipv4Addr = network.request("10.7.9.9", &Value::Null)?;
    assert!(
        lab.daemon()
            .operator(&["list"])?
            .contains(&format!("{reserved}\n"))
    );

    // From 29 on a name does, each time the container is recreated.
    let name = json!({"com.docker.network.endpoint.name": "web"});
    let web = network.request("", &name)?;
    network.release(web)?;
    assert_eq!(network.request("", &name)?, web);

    let renewed = |address| move |m: &netns_fixtures::Dhcp| m.yiaddr == address;
    seen.wait_for_dhcp(Kind::Ack, DEADLINE, renewed(one))?;
    [one, two, web, reserved]
        .into_iter()
        .try_for_each(|address| network.release(address))?;
    server.wait_until_free()?;
    lab.daemon().wait_until_empty()?;
    Ok(())
}
