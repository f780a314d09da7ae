//! Servers that answer a renewal late or under another identifier.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use netns_fixtures::model::{Config, Event, Purpose};
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig, ModelServer};
use netns_fixtures::{CallError, Container, DEADLINE, Lab, Lan, Need, sandbox};

/// The identifier of a server's other half.
const PEER: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 3);

/// Returns which REQUESTs extended a lease.
fn extended(server: &ModelServer) -> Vec<Purpose> {
    let granted = |event: &Event| match event {
        Event::Granted(_, purpose @ (Purpose::Renew | Purpose::Rebind)) => Some(*purpose),
        _ => None,
    };
    server.events().iter().filter_map(granted).collect()
}

#[test]
fn a_renewal_hears_answers_after_its_first_window() -> Result<(), CallError> {
    let sandbox = sandbox!(&[]);
    let mut lab = Lab::new(&sandbox)?;
    // RENEW leaves 4, 12 and 16 s after the ADD, REBIND would 20 s after it.
    let times = Config::new(Lan::SUBNET).lasting(40).renewed(4, Some(20));
    let server = ModelServer::start(
        &lab.lan,
        Config {
            extend_delay: Duration::from_secs(5),
            ..times
        },
    )?;
    let member = lab.attach("c1")?;
    lab.wait_for_line("lease extended")?;
    let extended = extended(&server);
    assert!(
        extended.len() > 1 && !extended.contains(&Purpose::Rebind),
        "{extended:?}"
    );
    lab.check(&member)?;
    lab.detach(&member)?;
    assert_eq!(server.violations(), []);
    Ok(())
}

#[test]
fn a_renewal_hears_a_dnsmasq_that_pings_for_others() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::Program("dnsmasq")]);
    let mut lab = Lab::new(&sandbox)?;
    let timers = Some((Duration::from_secs(6), Duration::from_secs(60)));
    let config = DnsmasqConfig {
        timers,
        ping: true,
        ..DnsmasqConfig::default()
    };
    let _server = Dnsmasq::start(&lab.lan, config)?;
    let member = lab.attach("c1")?;
    // The server pings for each of them for three seconds, and there always is one. T2 comes after everything that the test
    // waits for.
    let (shim, config, over) = (lab.shim.clone(), lab.config.clone(), AtomicBool::new(false));
    let others = (2..22)
        .map(|n| lab.lan.container(&format!("c{n}")))
        .collect::<Result<Vec<_>, _>>()?;
    let attached = |containers: &[Container]| {
        let mut to_come = containers
            .iter()
            .take_while(|_| !over.load(Ordering::Relaxed));
        to_come.try_for_each(|container| shim.add(container, &config).map(drop))
    };
    thread::scope(|scope| {
        let threads: Vec<_> = others
            .chunks(10)
            .map(|chunk| scope.spawn(|| attached(chunk)))
            .collect();
        let extended = lab.wait_for_line("lease extended attachment=lan/c1/eth0");
        over.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("no caller panics"))?;
        extended.map_err(CallError::from)
    })?;
    lab.check(&member)?;
    Ok(())
}

#[test]
fn either_server_of_a_pair_may_answer_a_renewal() -> Result<(), CallError> {
    let sandbox = sandbox!(&[]);
    let mut lab = Lab::new(&sandbox)?;
    let config = Config::new(Lan::SUBNET).lasting(20).renewed(3, Some(15));
    let server = ModelServer::start(&lab.lan, config)?;
    let member = lab.attach("c1")?;
    lab.lan.server.add_address(Lan::IFNAME, Lan::on_lan(PEER))?;
    server.with(|server| server.config_mut().id = PEER);
    lab.wait_for_line("lease extended")?;
    assert_eq!(extended(&server), [Purpose::Renew], "at the first try");
    let mut renewals = 0;
    server.wait_for("a RENEW to the other server", 0, DEADLINE, |event| {
        renewals += usize::from(matches!(event, Event::Granted(_, Purpose::Renew)));
        (renewals == 2).then_some(())
    })?;
    lab.detach(&member)?;
    server.wait_for("RELEASE", 0, DEADLINE, |event| {
        matches!(event, Event::Released(_)).then_some(())
    })?;
    assert_eq!(server.violations(), []);
    Ok(())
}
