//! Docker's containers while no server answers.

use std::net::Ipv4Addr;

use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{Error, sandbox};

use crate::docker::{Host, LAN, needs};
use crate::network::FORMS;

/// The fallback's addresses, outside the server's pool.
const RANGE: &str = "fallback=10.7.200.1-10.7.200.9";

fn is_local(address: Ipv4Addr) -> bool {
    address.octets()[..3] == [10, 7, 200]
}

/// Starts a container while the server is away, and another once it is back.
fn starts_without_a_server(host: &Host, server: &mut Dnsmasq) -> Result<(), Error> {
    server.stop()?;
    host.docker.keep("web", &LAN)?;
    let address = host.address("web")?;
    assert!(is_local(address), "{address}");
    server.restart(None)?;
    host.docker.keep("db", &LAN)?;
    host.lab.daemon().wait_for_event("server_back")?;
    assert!(!is_local(host.address("db")?), "the next one is served");
    host.pings("web")?;
    assert_eq!(host.address("web")?, address, "it keeps its address");
    host.docker.docker(&["rm", "--force", "web", "db"])?;
    server.wait_until_free()?;
    host.docker.docker(&["network", "rm", "lan"])?;
    host.lab.daemon().wait_until_empty()
}

#[test]
fn containers_of_both_drivers_start_without_a_server() -> Result<(), Error> {
    let host = Host::new(&sandbox!(&needs()))?;
    let mut server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    host.create(&["--ipam-opt", RANGE])?;
    starts_without_a_server(&host, &mut server)?;
    let own = FORMS
        .iter()
        .find(|form| **form == "leasehold")
        .expect("it is one");
    host.wire_as(own, "lan", &["grace=0", RANGE])?;
    starts_without_a_server(&host, &mut server)
}
