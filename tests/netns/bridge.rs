//! Containers on a bridge: their ports may forward a moment after their interfaces have carrier.

use std::time::{Duration, Instant};

use netns_fixtures::model::{Config, Kind};
use netns_fixtures::server::ModelServer;
use netns_fixtures::{CallError, Capture, Lab, Lan, Need, sandbox};

/// Drops requests of a port's container until there has been more than one.
const FIRST_DISCOVER: &str = "table netdev port {
    chain late { type filter hook ingress device \"c1\" priority 0; udp dport 67 quota until 450 bytes drop; }
}";

#[test]
fn a_discover_that_the_bridge_drops_is_soon_repeated() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::Program("nft")]);
    let mut lab = Lab::new(&sandbox)?;
    lab.lan.add_host_bridge()?;
    lab.config = Lan::bridge_config(&lab.daemon().socket());
    let _server = ModelServer::start(&lab.lan, Config::new(Lan::SUBNET))?;
    let container = lab.lan.bridged_container("c1")?;
    lab.lan
        .host
        .run_command("nft", &["-f", "-"], FIRST_DISCOVER)?;
    let mut left = Capture::start(&lab.lan.host, "c1")?;
    let mut arrived = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let began = Instant::now();
    lab.add(container)?;
    let took = began.elapsed();
    let discovers = |seen: &mut Capture| {
        let messages = seen.dhcp()?.into_iter();
        Ok::<_, CallError>(
            messages
                .filter(|message| message.kind == Kind::Discover)
                .map(|m| m.xid)
                .collect::<Vec<_>>(),
        )
    };
    let (left, arrived) = (discovers(&mut left)?, discovers(&mut arrived)?);
    assert_eq!(
        (left.len(), arrived.len(), left[0]),
        (2, 1, left[1]),
        "the first is lost, and both are of one transaction"
    );
    // Without an answer, it would be sent again after 0.875 s at the earliest.
    assert!(took < Duration::from_millis(875), "{took:?}");
    Ok(())
}
