//! The daemon dies; the leases do not.

use std::thread;

use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{CallError, Capture, DEADLINE, Lab, Lan, Need, sandbox};

use crate::witness;

#[test]
fn sigterm_gives_nothing_back() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::Program("dnsmasq")]);
    let mut lab = Lab::new(&sandbox)?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let member = lab.attach("c1")?;
    let mut seen = Capture::start(&lab.lan.host, Lan::IFNAME)?;

    let status = lab.terminate()?.expect("the daemon was up");
    assert!(status.success(), "{status}");
    assert_eq!(seen.dhcp()?.len(), 0);
    assert_eq!(server.leases()?.len(), 1);
    lab.start_daemon()?;
    lab.check(&member)?;
    lab.detach(&member)?;
    Ok(server.wait_until_free()?)
}

#[test]
fn del_while_the_daemon_is_down_is_not_forgotten() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::Program("dnsmasq")]);
    let mut lab = Lab::new(&sandbox)?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let (gone, stays) = (lab.attach("gone")?, lab.attach("stays")?);
    lab.kill9()?;

    lab.detach(&gone)?;
    assert_eq!(
        server.leases()?.len(),
        2,
        "nobody was there to send a RELEASE"
    );
    lab.start_daemon()?;
    server.wait_for("the release of one lease", DEADLINE, |leases| {
        let left: Vec<_> = leases.iter().map(|lease| lease.address).collect();
        (left == [stays.address]).then_some(())
    })?;
    lab.daemon().wait_for_event("lan/gone/eth0 released ")?;
    lab.check(&stays)?;
    lab.check(&gone).expect_err("the attachment is gone");
    witness::holds_bound(&lab, [&stays])?;
    Ok(())
}

/// Does the same for each of several, at the same time.
pub(crate) fn each<I: Send, T: Send>(
    items: impl IntoIterator<Item = I>,
    work: impl Fn(I) -> Result<T, CallError> + Sync,
) -> Result<Vec<T>, CallError> {
    thread::scope(|s| {
        let work = &work;
        let running: Vec<_> = items
            .into_iter()
            .map(|item| s.spawn(move || work(item)))
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("no thread panics"))
            .collect()
    })
}
