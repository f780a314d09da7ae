//! Every server in common use, each through the same life of a lease. The witnesses are the server's lease file and a capture.

use std::time::{Duration, Instant, SystemTime};

use netns_fixtures::model::{Kind, code};
use netns_fixtures::server::{
    DnsmasqProgram, Grants, IscProgram, KeaProgram, POOL, Program, Server, UdhcpdProgram,
};
use netns_fixtures::{
    CallError, Capture, DEADLINE, Dhcp, Error, Lab, Lan, Member, Need, Sandbox, sandbox,
};
use serde_json::json;

use crate::witness;

/// T1 and T2 of a short lease.
const T1: Duration = Duration::from_secs(5);
const T2: Duration = Duration::from_secs(12);

/// Makes a test for each server and each function.
macro_rules! servers {
    ($($server:ident: $program:ty,)*) => {$(
        mod $server {
            use super::*;

            lives!($program:
                add_gives_all_that_was_granted,
                a_lease_is_renewed_at_t1_by_unicast_from_its_address,
                a_lease_is_rebound_with_the_server_that_took_over,
                a_lease_is_renewed_under_a_new_ethernet_address,
                a_lease_is_renewed_and_given_back_behind_a_firewall,
                a_server_restarts_without_its_leases,
                a_nak_after_a_carrier_loss_leads_to_a_new_lease,
                a_lease_that_another_has_now_is_given_up,
            );
        }
    )*};
}

macro_rules! lives {
    ($program:ty: $($life:ident,)*) => {$(
        #[test]
        fn $life() -> Result<(), CallError> {
            // nft is for the firewall, busybox for the other machine's client.
            let needs = [<$program>::NEEDS, &[Need::Program("nft"), Need::Program("busybox")]].concat();
            let sandbox = sandbox!(&needs);
            super::$life::<$program>(&sandbox)
        }
    )*};
}

servers! {
    dnsmasq: DnsmasqProgram,
    kea: KeaProgram,
    isc: IscProgram,
    udhcpd: UdhcpdProgram,
}

/// A lease of 20 seconds, or the shortest that the server grants.
pub(crate) fn short<P: Program>() -> Grants {
    Grants {
        lease_time: P::SHORTEST.max(Duration::from_secs(20)),
        timers: Some((T1, T2)),
        ..Grants::default()
    }
}

fn add_gives_all_that_was_granted<P: Program>(sandbox: &Sandbox) -> Result<(), CallError> {
    let lab = Lab::new(sandbox)?;
    let net = |text: &str| text.parse().expect("a network");
    let grants = Grants {
        dns: vec![[10, 7, 0, 53].into(), [10, 7, 0, 54].into()],
        domain: Some("lan.example".to_owned()),
        mtu: Some(1400),
        routes: vec![
            (net("0.0.0.0/0"), Lan::SERVER),
            (net("192.0.2.0/24"), [10, 7, 0, 9].into()),
        ],
        ..short::<P>()
    };
    let server = Server::<P>::start(&lab.lan, grants)?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let member = lab.attach("c1")?;

    assert!(POOL.contains(&member.address), "{}", member.address);
    server.wait_for_lease(&member.mac(), "the lease", DEADLINE, |lease| {
        (lease.address == member.address).then_some(())
    })?;
    let request = seen.wait_for_dhcp(Kind::Request, DEADLINE, |_| true)?;
    assert_eq!(request.option(code::CLIENT_ID), Some(&b"\0c1/lan/eth0"[..]));
    let expected = json!([{ "address": format!("{}/16", member.address), "gateway": "10.7.0.1" }]);
    assert_eq!(member.result["ips"], expected);
    let routes = json!([{ "dst": "0.0.0.0/0", "gw": "10.7.0.1" }, { "dst": "192.0.2.0/24", "gw": "10.7.0.9" }]);
    assert_eq!(member.result["routes"], routes);
    assert_eq!(
        member.result["dns"],
        json!({ "nameservers": ["10.7.0.53", "10.7.0.54"], "domain": "lan.example" })
    );
    let mtu = member
        .container
        .netns
        .sh("cat /proc/sys/net/ipv6/conf/eth0/mtu")?;
    assert_eq!(mtu.trim(), "1400");
    lab.check(&member)
}

fn a_lease_is_renewed_at_t1_by_unicast_from_its_address<P: Program>(
    sandbox: &Sandbox,
) -> Result<(), CallError> {
    let lab = Lab::new(sandbox)?;
    let server = Server::<P>::start(&lab.lan, short::<P>())?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let member = lab.attach("c1")?;

    let mut expires = grant_in_file(&server, &member)?;
    for _ in 1..=2 {
        witness::renewal(&mut seen, &member, DEADLINE)?;
        let renewed = renewal_in_file(&server, &member, expires + 1)?;
        // A renewal goes to the server alone, so it was before T2. Servers count in whole seconds.
        let between = T1.as_secs() - 1..=T2.as_secs() + 1;
        assert!(
            between.contains(&(renewed - expires)),
            "renewed {} s after the lease began",
            renewed - expires
        );
        expires = renewed;
    }
    assert!(
        server
            .history()?
            .iter()
            .all(|lease| lease.address == member.address)
    );
    lab.check(&member)
}

fn a_lease_is_renewed_under_a_new_ethernet_address<P: Program>(
    sandbox: &Sandbox,
) -> Result<(), CallError> {
    let mut lab = Lab::new(sandbox)?;
    let server = Server::<P>::start(&lab.lan, short::<P>())?;
    let member = lab.attach("c1")?;

    // A macvlan then hears nothing that is sent to the previous address.
    member
        .container
        .netns
        .set_mac("eth0", [2, 0x6c, 0, 0, 9, 78])?;
    lab.wait_for_line("lease extended")?;
    lab.check(&member)?;
    lab.detach(&member)?;
    Ok(server.wait_until_free()?)
}

fn a_lease_is_rebound_with_the_server_that_took_over<P: Program>(
    sandbox: &Sandbox,
) -> Result<(), CallError> {
    let lab = Lab::new(sandbox)?;
    let mut first = Server::<P>::start(&lab.lan, short::<P>())?;
    let mut seen = Capture::start(&lab.lan.host, Lan::IFNAME)?;
    let member = lab.attach("c1")?;
    let expires = grant_in_file(&first, &member)?;
    let second_address = [10, 7, 0, 2].into();
    let second_machine = lab.lan.machine("second", second_address)?;
    first.stop()?;
    lab.lan.unplug(&lab.lan.server)?;
    let second = first.take_over(&second_machine)?;

    // A RENEW for which ARP finds nobody is finally sent to all on the link, and dhcpd answers it whichever server it
    // is for.
    if P::NAME != "dhcpd" {
        witness::rebinding(&mut seen, &member, T2 + DEADLINE)?;
    }
    renewal_in_file(&second, &member, expires + 1)?;
    lab.check(&member)?;
    // From now on it is the second server's client.
    let to_second = |message: &Dhcp| message.is_unicast() && message.destination == second_address;
    let renewal = seen.wait_for_dhcp(Kind::Request, DEADLINE, to_second)?;
    let found = (renewal.source, renewal.destination);
    assert_eq!(found, (member.address, second_address));
    lab.detach(&member)?;
    Ok(second.wait_until_free()?)
}

/// What else is in a container's namespace must not matter: another default route, and rules that drop everything.
fn a_lease_is_renewed_and_given_back_behind_a_firewall<P: Program>(
    sandbox: &Sandbox,
) -> Result<(), CallError> {
    let lab = Lab::new(sandbox)?;
    let server = Server::<P>::start(&lab.lan, short::<P>())?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let container = lab.lan.container("c1")?;
    let _cluster = container.add_cluster_network()?;
    container.drop_everything()?;
    let asked = Instant::now();
    let member = lab.add(container)?;
    assert!(
        asked.elapsed() < Duration::from_secs(10),
        "ADD took {:?}",
        asked.elapsed()
    );
    member.container.configure(&member.result)?;
    let expires = grant_in_file(&server, &member)?;

    witness::renewal(&mut seen, &member, DEADLINE)?;
    renewal_in_file(&server, &member, expires + 1)?;
    lab.check(&member)?;
    lab.detach(&member)?;
    witness::release(&mut seen, &member, DEADLINE)?;
    server.wait_until_free()?;
    lab.detach(&member)?;
    Ok(lab.daemon().wait_until_empty()?)
}

/// Some servers grant the lease again when asked to renew it. Others stay silent: then the lease ends, and the client asks for
/// the same address again.
fn a_server_restarts_without_its_leases<P: Program>(sandbox: &Sandbox) -> Result<(), CallError> {
    let lab = Lab::new(sandbox)?;
    let mut server = Server::<P>::start(&lab.lan, short::<P>())?;
    let member = lab.attach("c1")?;
    server.stop()?;
    server.forget_leases()?;
    server.restart(None)?;
    let mut follower = lab.daemon().follow()?;
    if P::NAME == "kea-dhcp4" {
        // It begins with its first address again, which it does not know to be in use.
        let other = lab.attach("c2")?;
        assert_ne!(other.address, member.address);
        lab.detach(&other)?;
    }

    server.wait_for_lease(&member.mac(), "the lease anew", DEADLINE, |lease| {
        (lease.address == member.address).then_some(())
    })?;
    // If it had ended, its address comes back a moment after the server's answer; then it is renewed.
    follower.wait_for_line("lan/c1/eth0 renewed ")?;
    lab.check(&member)?;
    lab.detach(&member)?;
    server.wait_until_free()?;
    lab.daemon().wait_until_empty()?;
    Ok(())
}

/// The client asks whether it is still in the right place (INIT-REBOOT), and it is not.
fn a_nak_after_a_carrier_loss_leads_to_a_new_lease<P: Program>(
    sandbox: &Sandbox,
) -> Result<(), CallError> {
    let lab = Lab::new(sandbox)?;
    let mut server = Server::<P>::start(&lab.lan, Grants::default())?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let member = lab.attach("c1")?;
    lab.lan.unplug(&lab.lan.host)?;
    give_to_another(&lab, &mut server, &member)?;
    lab.lan.interrupt(&lab.lan.host, Lan::LONG)?;

    witness::init_reboot(&mut seen, &member, DEADLINE)?;
    let next = witness::new_lease_after_nak(&mut seen, &member, DEADLINE)?;
    assert_ne!(next, member.address);
    is_elsewhere_now(&lab, &server, &member)
}

/// If a server does not refuse a RENEW, the lease ends.
fn a_lease_that_another_has_now_is_given_up<P: Program>(
    sandbox: &Sandbox,
) -> Result<(), CallError> {
    let lab = Lab::new(sandbox)?;
    // T1 leaves time to give it to another.
    let timers = Some((Duration::from_secs(12), Duration::from_secs(20)));
    let grants = Grants {
        lease_time: P::SHORTEST.max(Duration::from_secs(28)),
        timers,
        ..Grants::default()
    };
    let mut server = Server::<P>::start(&lab.lan, grants)?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let member = lab.attach("c1")?;
    give_to_another(&lab, &mut server, &member)?;

    witness::renewal(&mut seen, &member, DEADLINE)?;
    let own = |m: &Dhcp| m.chaddr == member.container.mac;
    if P::REFUSES_RENEWALS {
        let next = witness::new_lease_after_nak(&mut seen, &member, DEADLINE)?;
        assert_ne!(next, member.address);
    } else {
        witness::rebinding(&mut seen, &member, DEADLINE)?;
        seen.wait_for_dhcp(Kind::Discover, DEADLINE, own)?;
        seen.wait_for_dhcp(Kind::Ack, DEADLINE, |m| {
            own(m) && m.yiaddr != member.address
        })?;
    }
    is_elsewhere_now(&lab, &server, &member)
}

/// Makes the server forget its leases and give a member's address to another machine.
fn give_to_another<P: Program>(
    lab: &Lab,
    server: &mut Server<P>,
    member: &Member,
) -> Result<(), Error> {
    server.stop()?;
    server.forget_leases()?;
    server.restart(None)?;
    let other = lab.lan.machine("other", [10, 7, 0, 3].into())?;
    let wanted = member.address.to_string();
    let patience = ["-T", "1", "-t", "20"];
    let args = [
        &[
            "udhcpc",
            "-n",
            "-q",
            "-f",
            "-i",
            Lan::IFNAME,
            "-s",
            "/bin/true",
            "-r",
            &wanted,
        ],
        &patience[..],
    ]
    .concat();
    other.run_command("busybox", &args, "")?;
    server.wait_for("the lease of another", DEADLINE, |history| {
        history
            .iter()
            .any(|lease| lease.address == member.address && lease.mac != member.mac())
            .then_some(())
    })
}

/// Checks that a member has a new lease, and its interface the new address, that CHECK says that this is not the ADD's result,
/// and that DEL gives the new lease back.
fn is_elsewhere_now<P: Program>(
    lab: &Lab,
    server: &Server<P>,
    member: &Member,
) -> Result<(), CallError> {
    let next = server.wait_for_lease(&member.mac(), "the new lease", DEADLINE, |lease| {
        Some(lease.address)
    })?;
    member
        .container
        .wait_for_addresses(&[Lan::on_lan(next)], DEADLINE)?;
    let error = lab
        .check(member)
        .expect_err("the runtime believes in the previous address")
        .cni();
    assert!(error.msg.contains(&member.address.to_string()), "{error}");
    lab.detach(member)?;
    server.wait_for("the release", DEADLINE, |history| {
        history
            .iter()
            .rfind(|lease| lease.mac == member.mac())
            .is_none_or(|lease| !lease.held)
            .then_some(())
    })?;
    Ok(())
}

/// An answer to that address would not reach the interface, so the client asks for it by broadcast.
#[test]
fn a_server_knows_the_mac_that_the_runtime_names() -> Result<(), CallError> {
    let mut lab = Lab::new(&sandbox!(DnsmasqProgram::NEEDS))?;
    let server = Server::<DnsmasqProgram>::start(&lab.lan, short::<DnsmasqProgram>())?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let named = "02:00:00:00:be:ef";
    lab.config["runtimeConfig"] = json!({ "mac": named });
    let member = lab.attach("c1")?;
    assert_ne!(member.mac(), named);

    let held = |lease: &netns_fixtures::server::Lease| {
        (lease.address == member.address && lease.held).then_some(())
    };
    server.wait_for_lease(named, "the lease", DEADLINE, held)?;
    seen.wait_for_dhcp(Kind::Request, DEADLINE, |m| {
        m.is_unicast() && m.ciaddr == member.address
    })?;
    lab.check(&member)?;
    lab.detach(&member)?;
    Ok(server.wait_until_free()?)
}

/// Waits until the server has the lease of a new member, and returns when it ends.
fn grant_in_file<P: Program>(server: &Server<P>, member: &Member) -> Result<u64, Error> {
    // udhcpd also writes what it has merely offered, for a few seconds.
    let now = || {
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .expect("it is past 1970")
            .as_secs()
    };
    server.wait_for_lease(&member.mac(), "the lease", DEADLINE, |lease| {
        (lease.address == member.address && lease.expires > now() + 4).then_some(lease.expires)
    })
}

/// Waits until the server's lease of a member ends at `least` or later, and returns when.
fn renewal_in_file<P: Program>(
    server: &Server<P>,
    member: &Member,
    least: u64,
) -> Result<u64, Error> {
    server.wait_for_lease(&member.mac(), "renewal", DEADLINE, |lease| {
        (lease.address == member.address && lease.expires >= least).then_some(lease.expires)
    })
}
