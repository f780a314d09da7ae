//! A server that answers a renewal late.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{CallError, Container, Lab, Need, sandbox};

#[test]
fn a_renewal_hears_a_dnsmasq_that_pings_for_others() -> Result<(), CallError> {
    let mut lab = Lab::new(&sandbox!(&[Need::Program("dnsmasq")]))?;
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
