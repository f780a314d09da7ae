//! An address of a LAN has one live holder, whatever its server believes.

use netns_fixtures::server::{Grants, Kea, KeaConfig, KeaProgram, Program, Server, UdhcpdProgram};
use netns_fixtures::{CallError, DEADLINE, Lab, Lan, Member, sandbox};
use serde_json::json;

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

#[test]
fn a_server_that_knows_only_macs_gives_no_address_twice() -> Result<(), CallError> {
    let sandbox = sandbox!(UdhcpdProgram::NEEDS);
    let mut lab = Lab::new(&sandbox)?;
    let server = Server::<UdhcpdProgram>::start(&lab.lan, Grants::default())?;
    let named = "02:00:00:00:be:ef";
    lab.config["runtimeConfig"] = json!({ "mac": named });
    let first = lab.attach("c1")?;
    let held = |first: &Member| {
        server.wait_for_lease(named, "the lease", DEADLINE, |lease| {
            (lease.address == first.address).then_some(())
        })
    };
    held(&first)?;

    let second = lab.lan.container("c2")?;
    let Err(CallError::Cni { error, .. }) = lab.shim.add(&second, &lab.config) else {
        panic!("c2 has an address")
    };
    let said = error.to_string();
    for what in [
        "lan/c1/eth0",
        named,
        &first.address.to_string(),
        "macvlan instead of ipvlan",
    ] {
        assert!(said.contains(what), "{said}");
    }
    lab.shim.del(&second, &lab.config)?;
    held(&first)?;
    lab.check(&first)?;
    lab.detach(&first)?;
    server.wait_until_free()?;
    Ok(())
}
