//! What can happen to a container's interface while it holds a lease, with the server's own view as the witness.

use netns_fixtures::model::Kind;
use netns_fixtures::server::{Dnsmasq, Grants};
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

#[test]
fn a_renamed_interface_keeps_its_lease() -> Result<(), CallError> {
    let lab = Lab::new(&sandbox!(NEEDS))?;
    let server = Dnsmasq::start(&lab.lan, Grants::default().renewed(4, 16))?;
    let member = lab.attach("c1")?;

    // As KubeVirt does. Not every kernel can rename a link that is up.
    ip(&member, "link set eth0 down")?;
    ip(&member, "link set eth0 name net1")?;
    ip(&member, "link set net1 up")?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    witness::renewal(&mut seen, &member, DEADLINE)?;
    seen.wait_for_dhcp(Kind::Ack, DEADLINE, |m| m.chaddr == member.container.mac)?;
    lab.check(&member)?;
    let found = member.container.netns.addresses("net1")?;
    assert_eq!(found, [Lan::on_lan(member.address)]);
    lab.detach(&member)?;
    witness::release(&mut seen, &member, DEADLINE)?;
    Ok(server.wait_until_free()?)
}

#[test]
fn an_interface_that_gave_away_its_mac_keeps_its_lease() -> Result<(), CallError> {
    let mut lab = Lab::new(&sandbox!(NEEDS))?;
    lab.config = Lan::bridge_config(&lab.daemon().socket());
    lab.lan.add_host_bridge()?;
    lab.lan.host.set_up(Lan::BRIDGE)?;
    let server = Dnsmasq::start(&lab.lan, Grants::default().renewed(4, 60))?;
    let member = lab.add(lab.lan.bridged_container("c1")?)?;
    member.container.configure(&member.result)?;

    // As KubeVirt does for its virtual machine, which has both addresses from here on.
    ip(
        &member,
        &format!("addr del {} dev eth0", Lan::on_lan(member.address)),
    )?;
    member
        .container
        .netns
        .set_mac("eth0", [2, 0, 0, 0, 0x99, 0x99])?;
    lab.wait_for_line("lease extended")?;
    lab.detach(&member)?;
    Ok(server.wait_until_free()?)
}
