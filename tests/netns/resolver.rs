//! The name servers of leases are published in a file for each attachment.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use netns_fixtures::server::{Grants, Kea};
use netns_fixtures::{CallError, DEADLINE, Lab, Need, sandbox, until_file};

fn with_dns(last: u8) -> Grants {
    let dns = vec![Ipv4Addr::new(10, 7, 0, last)];
    let timers = Some((Duration::from_secs(3), Duration::from_secs(12)));
    Grants {
        dns,
        domain: Some("lan.example".to_owned()),
        timers,
        ..Grants::default()
    }
}

/// Where the file of container `c1` is.
fn file(lab: &Lab) -> PathBuf {
    lab.home().runtime_dir().join("resolv/lan/c1/eth0")
}

#[test]
fn published_name_servers_follow_their_lease() -> Result<(), CallError> {
    let mut lab = Lab::new(&sandbox!(&[Need::Program("kea-dhcp4")]))?;
    let mut server = Kea::start(&lab.lan, with_dns(53))?;
    let member = lab.attach("c1")?;
    lab.wait_for_line("name servers published")?;
    assert_eq!(fs::read_to_string(file(&lab)).expect("a file"), text(53));

    server.restart(Some(with_dns(54).into()))?;
    until_file(
        file(&lab).parent().expect("a directory"),
        "the other name server",
        DEADLINE,
        || Ok((fs::read_to_string(file(&lab)).expect("a file") == text(54)).then_some(())),
    )?;

    lab.kill9()?;
    fs::remove_file(file(&lab)).expect("a file");
    lab.start_daemon()?;
    lab.wait_for_line("name servers published")?;
    assert_eq!(fs::read_to_string(file(&lab)).expect("a file"), text(54));

    lab.detach(&member)?;
    until_file(
        &lab.home().runtime_dir().join("resolv"),
        "no file of c1",
        DEADLINE,
        || Ok((!file(&lab).exists()).then_some(())),
    )?;
    Ok(())
}

fn text(last: u8) -> String {
    format!("nameserver 10.7.0.{last}\ndomain lan.example\n")
}
