//! What can happen to a container's interface while it holds a lease, with the server's own view as the witness.

use std::time::Duration;

use netns_fixtures::model::Kind;
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{CallError, Capture, DEADLINE, Error, Lab, Lan, Member, Need, sandbox};

use crate::witness;

const NEEDS: &[Need] = &[Need::Program("dnsmasq"), Need::Program("ip")];

fn ip(member: &Member, arguments: &str) -> Result<(), Error> {
    let arguments: Vec<_> = arguments.split(' ').collect();
    member
        .container
        .netns
        .run_command("ip", &arguments, "")
        .map(drop)
}

/// Waits until the server has confirmed a member's lease in INIT-REBOOT.
fn is_confirmed(seen: &mut Capture, member: &Member) -> Result<(), Error> {
    witness::init_reboot(seen, member, DEADLINE)?;
    let ack = seen.wait_for_dhcp(Kind::Ack, DEADLINE, |m| m.chaddr == member.container.mac)?;
    assert_eq!(ack.yiaddr, member.address);
    Ok(())
}

#[test]
fn a_renamed_interface_keeps_its_lease() -> Result<(), CallError> {
    let sandbox = sandbox!(NEEDS);
    let lab = Lab::new(&sandbox)?;
    let timers = Some((Duration::from_secs(4), Duration::from_secs(16)));
    let server = Dnsmasq::start(
        &lab.lan,
        DnsmasqConfig {
            timers,
            ..DnsmasqConfig::default()
        },
    )?;
    let member = lab.attach("c1")?;

    // As KubeVirt does. Not every kernel can rename a link that is up.
    ip(&member, "link set eth0 down")?;
    ip(&member, "link set eth0 name net1")?;
    ip(&member, "link set net1 up")?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    witness::renewal(&mut seen, &member, DEADLINE)?;
    seen.wait_for_dhcp(Kind::Ack, DEADLINE, |m| m.chaddr == member.container.mac)?;
    lab.check(&member)?;
    assert_eq!(
        member.container.netns.addresses("net1")?,
        [Lan::on_lan(member.address)]
    );
    lab.detach(&member)?;
    witness::release(&mut seen, &member, DEADLINE)?;
    Ok(server.wait_until_free()?)
}

#[test]
fn a_lease_is_confirmed_after_a_long_loss_of_carrier() -> Result<(), CallError> {
    let sandbox = sandbox!(NEEDS);
    let lab = Lab::new(&sandbox)?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let member = lab.attach("c1")?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;

    lab.lan.interrupt(&lab.lan.host, Lan::LONG)?;
    is_confirmed(&mut seen, &member)?;
    lab.check(&member)?;
    assert_eq!(member.container.addresses()?, [Lan::on_lan(member.address)]);
    lab.detach(&member)?;
    Ok(server.wait_until_free()?)
}
