//! Our daemon ends under containers of Docker's own driver and starts again: an address is leased as long as its container runs.

use std::thread;

use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{DEADLINE, Error, sandbox, until_link};

use crate::docker::{Host, LAN, needs, only};

#[test]
fn containers_go_on_and_end_while_our_daemon_is_away() -> Result<(), Error> {
    let mut host = Host::new(&sandbox!(&needs()))?;
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
