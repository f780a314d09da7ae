//! Taking over: our daemon comes to a host whose running containers got their addresses from the incumbent.

use netns_fixtures::model::{Kind, code};
use netns_fixtures::server::{Dnsmasq, Program};
use netns_fixtures::{
    CallError, Capture, Container, DEADLINE, Dhcp, Incumbent, Lab, Lan, Member, Need,
    result_addresses, sandbox,
};

use crate::servers::short;
use crate::witness;

pub(crate) fn needs() -> Vec<Need> {
    [
        Incumbent::NEEDS,
        netns_fixtures::server::DnsmasqProgram::NEEDS,
    ]
    .concat()
}

#[test]
fn the_next_daemon_adopts_addresses_of_running_containers() -> Result<(), CallError> {
    let mut lab = Lab::without_daemon(&sandbox!(&needs()))?;
    let server = Dnsmasq::start(&lab.lan, short::<netns_fixtures::server::DnsmasqProgram>())?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let incumbent = Incumbent::start(&lab.lan.host, &lab.home().socket())?;
    let members = ["c1", "c2"].map(|id| attach(&lab, &incumbent, id));
    let [first, second] = members;
    let (first, second) = (first?, second?);
    let before = [&first, &second].map(|member| own(&mut seen, member, Kind::Request));
    incumbent.stop()?;
    seen.clear()?;

    lab.start_daemon()?;
    for (member, before) in [&first, &second].into_iter().zip(before) {
        // Both ask at once: either may be the first.
        let question = witness::init_reboot(seen.rewind(), member, DEADLINE)?;
        let found = question.option(code::CLIENT_ID);
        assert_eq!(found, before?.option(code::CLIENT_ID));
        lab.daemon()
            .wait_for_event(&format!("lan/{}/eth0 adopted ", member.container.id))?;
    }
    witness::holds_bound(&lab, [&first, &second])?;
    for member in [&first, &second] {
        assert_eq!(member.container.addresses()?, [Lan::on_lan(member.address)]);
        lab.check(member)?;
        witness::renewal(seen.rewind(), member, DEADLINE)?;
        seen.wait_for_dhcp(Kind::Ack, DEADLINE, |m| m.yiaddr == member.address)?;
    }
    assert_eq!(server.leases()?.len(), 2);
    assert!(
        !seen.dhcp()?.iter().any(|m| m.kind == Kind::Discover),
        "nobody looks for another address:\n{seen}"
    );
    lab.detach(&first)?;
    lab.detach(&second)?;
    server.wait_until_free()?;
    lab.daemon().wait_until_empty()?;
    Ok(())
}

/// Attaches a container as a runtime does whose IPAM plugin is the incumbent.
pub(crate) fn attach(lab: &Lab, incumbent: &Incumbent, id: &str) -> Result<Member, CallError> {
    let (container, result) = incumbent.attach(id, &lab.config, &lab.home().cni_cache())?;
    let address = result_addresses(&result)?[0].0.addr();
    Ok(Member {
        container,
        result,
        address,
    })
}

/// Waits for a member's message.
fn own(seen: &mut Capture, member: &Member, kind: Kind) -> Result<Dhcp, CallError> {
    let Container { mac, .. } = member.container;
    Ok(seen.wait_for_dhcp(kind, DEADLINE, |m| m.chaddr == mac)?)
}
