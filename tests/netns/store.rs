//! The store fails; the leases do not.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use netns_fixtures::model::Kind;
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig, Grants, Kea, KeaConfig, Lease};
use netns_fixtures::{
    CallError, Capture, CniError, DEADLINE, Lab, Lan, Member, Need, assert_says, sandbox,
    until_found,
};

use crate::exporter::{ask_daemon, status};
use crate::witness;

#[test]
fn a_full_disk_refuses_new_leases_and_loses_none() -> Result<(), CallError> {
    let mut lab = Lab::without_daemon(&sandbox!(&[Need::Program("kea-dhcp4")]))?;
    lab.home().on_a_small_disk(&lab.lan.host, "3m")?;
    let config = Grants::lasting(12).renewed(3, 8);
    let server = Kea::start(&lab.lan, config)?;
    lab.start_daemon()?;
    let members = [lab.attach("c1")?, lab.attach("c2")?];
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;

    let ballast = fill(&lab.home().state_dir());
    let (refused, lucky) = add_until_refused(&lab)?;
    assert_eq!(refused.code, 11);
    assert_says(&refused.msg, "is full, so nothing can be recorded");
    // A restart for this would lose what the daemon holds in memory.
    let asked = |path: &str| ask_daemon(&lab.daemon().socket(), &format!("GET {path}"));
    assert_eq!(status(&asked("/healthz")), "200");
    // By then both leases have ended as far as the store knows; in fact they have not.
    let history = server.history()?;
    for member in &members {
        let end = last_grant(&history, member).expires;
        server.wait_for("an extension on a full disk", DEADLINE, |history| {
            last_grant(history, member)
                .began
                .filter(|began| *began >= end)
        })?;
        lab.check(member)?;
    }

    fs::remove_file(ballast).expect("the ballast is there");
    until_found("a daemon that is ready", DEADLINE, || {
        Ok((status(&asked("/readyz")) == "200").then_some(()))
    })?;
    let mut follower = lab.daemon().follow()?;
    let late = lab.attach("late")?;
    for id in members
        .iter()
        .chain(&lucky)
        .map(|member| &member.container.id)
    {
        // An event and the record that it is about are written together.
        follower.wait_for_line(&format!("lan/{id}/eth0 renewed "))?;
    }
    seen.clear()?;
    lab.kill9()?;
    lab.start_daemon()?;
    witness::holds(&lab, members.iter().chain(&lucky).chain([&late]))?;
    for member in &members {
        let renewed = last_grant(&server.history()?, member).began;
        server.wait_for("a renewal after the restart", DEADLINE, |history| {
            (last_grant(history, member).began > renewed).then_some(())
        })?;
        lab.check(member)?;
    }
    assert!(
        !seen.dhcp()?.iter().any(|m| m.kind == Kind::Discover),
        "no lease was lost:\n{seen}"
    );
    lab.detach(&late)?;
    follower.wait_for_line("lan/late/eth0 released ")?;
    Ok(())
}

#[test]
fn a_damaged_store_is_set_aside_and_what_runs_is_adopted() -> Result<(), CallError> {
    let mut lab = Lab::new(&sandbox!(&[Need::Program("dnsmasq")]))?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let members = [lab.attach("c1")?, lab.attach("c2")?];
    for member in &members {
        lab.cache(member)?;
    }
    lab.kill9()?;
    let file = lab.home().state_dir().join("leases.redb");
    let mut bytes = fs::read(&file).expect("the store is there");
    bytes[4096..].fill(0xa5);
    fs::write(&file, &bytes).expect("the store can be written");

    lab.start_daemon()?;
    lab.wait_for_line("lease file damaged: set aside")?;
    let said = lab.daemon().log().lines();
    let line = said
        .iter()
        .find(|line| line.contains("lease file damaged"))
        .expect("it was waited for");
    let kept = line
        .split("kept=")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .expect("the error names the copy");
    assert_eq!(fs::read(kept).expect("the copy is there"), bytes);
    for member in &members {
        lab.daemon()
            .wait_for_event(&format!("lan/{}/eth0 adopted ", member.container.id))?;
    }
    let adopted = lab
        .daemon()
        .events()?
        .iter()
        .filter(|line| line.contains("/eth0 adopted "))
        .count();
    assert_eq!(adopted, 2);
    witness::holds(&lab, &members)?;
    for member in &members {
        assert_eq!(member.container.addresses()?, [Lan::on_lan(member.address)]);
        lab.check(member)?;
    }
    for member in &members {
        lab.detach(member)?;
    }
    Ok(server.wait_until_free()?)
}

#[test]
fn a_del_on_a_full_disk_gives_the_lease_back_for_good() -> Result<(), CallError> {
    let mut lab = Lab::without_daemon(&sandbox!(&[Need::Program("kea-dhcp4")]))?;
    lab.home().on_a_small_disk(&lab.lan.host, "3m")?;
    let server = Kea::start(&lab.lan, KeaConfig::default())?;
    lab.start_daemon()?;
    let members = [lab.attach("c1")?, lab.attach("c2")?, lab.attach("c3")?];
    let ballast = fill(&lab.home().state_dir());
    let (_, lucky) = add_until_refused(&lab)?;
    let released = |member: &Member| {
        let mac = member.mac();
        server.wait_for("the RELEASE", DEADLINE, |history| {
            let last = history.iter().rfind(|lease| lease.mac == mac);
            last.is_some_and(|lease| !lease.held).then_some(())
        })
    };
    for member in &members[..2] {
        lab.detach(member)?;
        released(member)?;
    }
    lab.wait_for_line("this end is kept beside the socket")?;
    let is_held = |lab: &Lab, member: &Member| -> Result<bool, CallError> {
        Ok(lab
            .daemon()
            .list()?
            .iter()
            .any(|row| row["attachment"]["container"] == *member.container.id))
    };
    // The disk is still full: the next daemon reads the ends beside its socket.
    lab.kill9()?;
    lab.start_daemon()?;
    until_found("what the ends beside the socket say", DEADLINE, || {
        let held = [0, 1, 2].map(|n| is_held(&lab, &members[n]).unwrap_or(true));
        Ok((held == [false, false, true]).then_some(()))
    })?;
    fs::remove_file(ballast).expect("the ballast is there");
    for member in members[2..].iter().chain(&lucky) {
        lab.detach(member)?;
    }
    let left = lab.attach("again")?;
    let run = lab
        .home()
        .socket()
        .parent()
        .expect("it has a directory")
        .to_owned();
    let names = fs::read_dir(run)
        .expect("the directory is there")
        .map(|entry| entry.expect("it is").file_name());
    let ends: Vec<_> = names
        .filter(|name| name.to_string_lossy().contains(".end-"))
        .collect();
    assert!(ends.is_empty(), "the store has recorded them: {ends:?}");
    lab.detach(&left)?;
    Ok(())
}

/// Fills the disk of a directory.
pub(crate) fn fill(dir: &Path) -> PathBuf {
    let ballast = dir.join("ballast");
    let error = fs::write(&ballast, vec![1; 64 << 20]).expect_err("the disk is small");
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    ballast
}

/// Adds containers until one is refused; the store's file has room for some. Returns the reason, and the containers that were
/// added.
pub(crate) fn add_until_refused(lab: &Lab) -> Result<(CniError, Vec<Member>), CallError> {
    let mut lucky = Vec::new();
    for n in 0..300 {
        match lab.attach(&format!("more{n}")) {
            Ok(member) => lucky.push(member),
            Err(error @ CallError::Cni { .. }) => return Ok((error.cni(), lucky)),
            Err(error) => return Err(error),
        }
    }
    panic!("300 containers fit on a full disk");
}

/// Returns the last grant to a member.
fn last_grant(history: &[Lease], member: &Member) -> Lease {
    let mac = member.mac();
    let last = history.iter().rfind(|lease| lease.mac == mac && lease.held);
    last.expect("the member was granted its address").clone()
}
