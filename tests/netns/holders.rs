//! An address of a LAN has one live holder, whatever its server believes.

use netns_fixtures::server::{Kea, KeaConfig, KeaProgram, Program};
use netns_fixtures::{CallError, Lab, Lan, sandbox};

use crate::crash::each;

#[test]
fn kea_without_its_lease_file_gives_no_address_twice() -> Result<(), CallError> {
    let sandbox = sandbox!(KeaProgram::NEEDS);
    let lab = Lab::new(&sandbox)?;
    let mut server = Kea::start(&lab.lan, KeaConfig::default())?;
    let members = each(0..6, |n| lab.attach(&format!("c{n}")))?;
    server.stop()?;
    server.forget_leases()?;
    server.restart(None)?;

    // Without its leases the server starts with the address of the first holder.
    let newcomer = lab.attach("newcomer")?;
    assert!(
        members
            .iter()
            .all(|member| member.address != newcomer.address),
        "{}",
        newcomer.address
    );
    lab.daemon()
        .wait_for_event("lan/newcomer/eth0 address_held")?;
    each(&members, |member| lab.check(member))?;
    for member in &members {
        assert_eq!(member.container.addresses()?, [Lan::on_lan(member.address)]);
    }
    let lost = lab
        .daemon()
        .events()?
        .into_iter()
        .find(|event| event.contains(" lost ") || event.contains(" declined "));
    assert_eq!(lost, None);
    each(members.iter().chain([&newcomer]), |member| {
        lab.detach(member)
    })?;
    server.wait_until_free()?;
    Ok(())
}
