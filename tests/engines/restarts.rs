//! dockerd and our daemon end in all ways and start again: a container keeps its address, and nobody else gets it.

use std::thread;

use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{DEADLINE, Error, sandbox, until_link};

use crate::docker::{Host, LAN, MAC, needs, only};

/// A container that Docker restarts and that has its own identity.
const STAYS: [&str; 6] = [
    "--network",
    "lan",
    "--restart",
    "always",
    "--mac-address",
    MAC,
];

#[test]
fn containers_keep_their_leases_while_dockerd_restarts() -> Result<(), Error> {
    let sandbox = sandbox!(&needs());
    let mut host = Host::new(&sandbox)?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    host.docker.stop()?;
    host.docker.launch(&["--live-restore"])?;
    host.create(&[])?;
    host.docker.keep("web", &LAN)?;
    let address = host.address("web")?;
    host.seen.clear()?;
    host.docker.stop()?;
    host.docker.launch(&["--live-restore"])?;
    assert_eq!(host.address("web")?, address);
    host.docker.kill9()?;
    host.docker.launch(&["--live-restore"])?;
    assert_eq!(host.address("web")?, address);
    host.pings("web")?;
    host.only_renewals()?;
    only(&server, &[address])?;
    // The network goes on, too.
    host.docker.keep("db", &LAN)?;
    only(&server, &[address, host.address("db")?])?;
    host.docker.docker(&["rm", "--force", "web", "db"])?;
    server.wait_until_free()
}

#[test]
fn containers_restarted_by_dockerd_keep_their_addresses() -> Result<(), Error> {
    let sandbox = sandbox!(&needs());
    let mut host = Host::new(&sandbox)?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    host.create_with_grace("20", &[])?;
    host.docker.keep("web", &STAYS)?;
    let address = host.address("web")?;
    host.docker.stop()?;
    host.docker.launch(&[])?;
    assert_eq!(host.address("web")?, address, "after its end");
    host.docker.kill9()?;
    host.docker.launch(&[])?;
    assert_eq!(host.address("web")?, address, "after SIGKILL");
    only(&server, &[address])?;
    host.docker.docker(&["rm", "--force", "web"])?;
    server.wait_until_free()
}

#[test]
fn containers_go_on_and_end_while_our_daemon_is_away() -> Result<(), Error> {
    let sandbox = sandbox!(&needs());
    let mut host = Host::new(&sandbox)?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    host.create(&[])?;
    host.docker.keep("web", &LAN)?;
    host.docker.keep("db", &LAN)?;
    let (web, db) = (host.address("web")?, host.address("db")?);
    host.lab.kill9()?;
    // It ends unheard: dockerd asks again until somebody answers.
    let inside = host.docker.netns("web")?;
    thread::scope(|scope| {
        let kill = scope.spawn(|| host.docker.docker(&["kill", "web"]));
        until_link(&inside, "end of the interface", DEADLINE, || {
            Ok(inside.index("eth0").err().map(drop))
        })?;
        host.lab.start_daemon()?;
        kill.join().expect("a caller does not panic").map(drop)
    })?;
    drop(inside);
    only(&server, &[db])?;
    assert_eq!(host.address("db")?, db);
    host.docker.docker(&["start", "web"])?;
    let next = host.address("web")?;
    only(&server, &[db, next])?;
    assert!(
        server
            .leases()?
            .iter()
            .all(|lease| lease.address != web || next == web)
    );
    host.docker.docker(&["rm", "--force", "web", "db"])?;
    server.wait_until_free()?;
    host.lab.daemon().wait_until_empty()
}
