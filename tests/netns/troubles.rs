//! Each kind of trouble, made: `status`, `doctor`, the page's data, the metrics and Prometheus's alerts name the same ones, and none says that all is
//! well while another does not.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

use ipnet::Ipv4Net;
use netns_fixtures::model::Config;
use netns_fixtures::server::{Dnsmasq, DnsmasqProgram, ModelServer};
use netns_fixtures::{
    CallError, DEADLINE, Error, Incumbent, Lab, Lan, Need, Process, assert_says, binary, sandbox,
    until_found,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::adopt;
use crate::exporter::{
    ALERTS, ask, ask_daemon, encoded, prometheus, start_exporter, start_prometheus, status,
};
use crate::servers::short;
use crate::store::{add_until_refused, fill};
use crate::witness;

/// A container that has lost its address asks again after a minute at most.
const PATIENCE: Duration = Duration::from_secs(90);

/// What one surface says is wrong.
type Kinds = BTreeSet<String>;

/// A lab with an exporter on the daemon's read-only socket.
struct Scene {
    // The LAN goes last.
    _prometheus: Process,
    _exporter: Process,
    lab: Lab,
}

impl Scene {
    fn new(lab: Lab) -> Result<Self, Error> {
        let exporter = start_exporter(&lab)?;
        let dir = lab.lan.host.sandbox().dir("prometheus")?;
        // What lasts a minute is not waited for.
        let rules = fs::read_to_string(ALERTS).expect("they are shipped");
        let line = |line: &str| match line.trim_start().starts_with("for: ") {
            true => "        for: 1s".to_owned(),
            false => line.to_owned(),
        };
        let rules: Vec<_> = rules.lines().map(line).collect();
        let file = dir.join("alerts.yaml");
        fs::write(&file, rules.join("\n")).expect("an empty directory takes a file");
        let prometheus = start_prometheus(&lab.lan.host, &dir, &file)?;
        Ok(Self {
            _prometheus: prometheus,
            _exporter: exporter,
            lab,
        })
    }

    /// Returns the troubles that the daemon names.
    fn troubles(&self) -> Vec<Value> {
        let (_, body) = ask_daemon(&self.lab.daemon().socket(), "GET /v1/status");
        let status: Value = serde_json::from_str(&body).expect("a status");
        status["troubles"].as_array().cloned().unwrap_or_default()
    }

    fn on_the_page(&self) -> Kinds {
        let (_, body) = ask(&self.lab.lan.host, "GET /status", "localhost");
        let status: Value = serde_json::from_str(&body).unwrap_or_default();
        kinds(status["troubles"].as_array().map_or(&[][..], Vec::as_slice))
    }

    fn measured(&self) -> Kinds {
        let (_, text) = ask(&self.lab.lan.host, "GET /metrics", "localhost");
        let lines = text.lines().filter(|line| !line.ends_with(" 0.0"));
        let kind = |line: &str| {
            let rest = line.strip_prefix("leasehold_troubles{kind=\"")?;
            Some(rest.split_once('"')?.0.to_owned())
        };
        lines.filter_map(kind).collect()
    }

    /// Returns the kinds for which Prometheus has an alert that fires. What is only counted has one for a while.
    fn alarmed(&self) -> Kinds {
        let query = "query?query=".to_owned() + &encoded("ALERTS{alertstate=\"firing\"}");
        let found = prometheus(&self.lab.lan.host, &query)["result"].take();
        let kinds =
            found.as_array().into_iter().flatten().filter_map(|alert| {
                match alert["metric"]["alertname"].as_str() {
                    Some("LeaseholdEventsDropped") => Some("events_lost"),
                    _ => alert["metric"]["kind"].as_str(),
                }
            });
        kinds
            .filter(|kind| !["lost", "expired"].contains(kind))
            .map(str::to_owned)
            .collect()
    }

    /// Waits until Prometheus has something to answer to a query.
    fn until(&self, query: &str) -> Result<(), Error> {
        let host = &self.lab.lan.host;
        let question = "query?query=".to_owned() + &encoded(query);
        let found = || !prometheus(host, &question)["result"][0].is_null();
        until_found(query, PATIENCE, || Ok(found().then_some(()))).map(drop)
    }

    /// Waits until Prometheus raises an alert.
    fn fires(&self, alert: &str) -> Result<(), Error> {
        self.until(&format!(
            "ALERTS{{alertname=\"Leasehold{alert}\", alertstate=\"firing\"}}"
        ))
    }

    /// Returns how many of the daemon's troubles `doctor` repeats, and whether it ends as if all were well.
    fn doctor(&self) -> Result<(usize, bool), Error> {
        let mut command = Command::new(binary("leasehold")?);
        command
            .args(["doctor", "--json", "--socket"])
            .arg(self.lab.daemon().socket());
        let output = self.lab.lan.host.output(command, b"")?;
        let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
        let findings = report["findings"].as_array().cloned().unwrap_or_default();
        let repeated = findings
            .iter()
            .filter(|finding| finding["check"] == "daemon");
        Ok((repeated.count(), output.status.success()))
    }

    /// Returns whether `leasehold status` says that nothing needs attention, by its words and by its exit code.
    fn status(&self) -> Result<(bool, bool), Error> {
        let mut command = Command::new(binary("leasehold")?);
        command
            .args(["status", "--socket"])
            .arg(self.lab.daemon().socket());
        let output = self.lab.lan.host.output(command, b"")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let well = text.contains("Nothing needs attention.");
        Ok((well, output.status.success()))
    }

    /// Waits until all surfaces name the same kinds of trouble, all of `there` and none of `gone` among them.
    fn agree(&self, there: &[&str], gone: &[&str]) -> Result<(), Error> {
        let what = format!("{there:?}, and none of {gone:?}, on all surfaces");
        let mut last = String::new();
        let agreed = until_found(&what, PATIENCE, || {
            let before = self.troubles();
            let (page, measured) = (self.on_the_page(), self.measured());
            let alarmed = self.alarmed();
            let ((repeated, doctor_is_well), (says_well, ends_well)) =
                (self.doctor()?, self.status()?);
            let after = self.troubles();
            let found = kinds(&before);
            last = format!(
                "{found:?}, page {page:?}, metrics {measured:?}, alerts {alarmed:?}, doctor {repeated}"
            );
            let is_well = found.is_empty();
            let agrees = found == kinds(&after)
                && found == page
                && found == measured
                && found == alarmed
                && repeated == before.len()
                && says_well == is_well
                && ends_well == is_well
                && (is_well || !doctor_is_well);
            let is_meant = there.iter().all(|kind| found.contains(*kind))
                && !gone.iter().any(|kind| found.contains(*kind));
            Ok((agrees && is_meant).then_some(()))
        });
        agreed
            .inspect_err(|_| eprintln!("the last was {last}"))
            .map(drop)
    }
}

fn kinds(troubles: &[Value]) -> Kinds {
    let kinds = troubles
        .iter()
        .filter_map(|trouble| trouble["kind"].as_str());
    kinds.map(str::to_owned).collect()
}

/// A server of leases that are extended after three seconds and end after twelve.
fn short_leases(subnet: Ipv4Net) -> Config {
    Config {
        lease: 12,
        t1: Some(3),
        t2: Some(8),
        ..Config::new(subnet)
    }
}

#[test]
fn every_surface_names_each_trouble_with_a_lan() -> Result<(), CallError> {
    let mut lab = Lab::without_daemon(&sandbox!(&[Need::Program("prometheus")]))?;
    lab.home().with_read_socket()?;
    let server = ModelServer::start(&lab.lan, short_leases(Lan::SUBNET))?;
    lab.start_daemon()?;
    let mut scene = Scene::new(lab)?;
    let _web = scene.lab.attach("web")?;
    scene.agree(&[], &["renewals_unanswered", "no_address", "adds_fail"])?;

    drop(server);
    scene.agree(&["renewals_unanswered"], &[])?;
    scene.lab.daemon().wait_for_event("server_silent")?;
    scene.lab.attach("late").expect_err("no server answers");
    scene.agree(&["adds_fail", "no_address"], &["renewals_unanswered"])?;

    let host = scene.lab.lan.host.clone();
    scene.lab.lan.unplug(&host)?;
    scene.agree(&["adds_fail", "no_address", "link_down"], &[])?;
    // Before the cable, so that the first question after it has an answer.
    let _server = ModelServer::start(&scene.lab.lan, short_leases(Lan::SUBNET))?;
    scene.lab.lan.replug(&host)?;
    scene.agree(&["adds_fail"], &["no_address", "link_down"])?;
    let _again = scene.lab.attach("again")?;
    scene.agree(&[], &["adds_fail", "no_address", "link_down"])?;

    let stray = scene.lab.lan.machine("stray", [10, 7, 0, 9].into())?;
    let mut elsewhere = short_leases("192.168.77.0/24".parse().expect("a subnet"));
    elsewhere.id = [10, 7, 0, 9].into();
    let _stray = ModelServer::start_in(&stray, elsewhere)?;
    let _more = (0..4)
        .map(|n| scene.lab.attach(&format!("more{n}")))
        .collect::<Result<Vec<_>, _>>()?;
    scene.agree(&["subnets_differ"], &["adds_fail"])?;
    scene.lab.terminate()?;
    Ok(())
}

#[test]
fn every_surface_names_what_only_broadcasts_reach() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::Program("prometheus"), Need::Program("nft")]);
    let mut lab = Lab::without_daemon(&sandbox)?;
    lab.home().with_read_socket()?;
    let _server = ModelServer::start(&lab.lan, Config::new(Lan::SUBNET))?;
    // As a virtual machine's port does it: only what is for the host itself, and for groups, comes in.
    let links = lab
        .lan
        .host
        .run_command("ip", &["-j", "link", "show", Lan::IFNAME], "")?;
    let links: Value = serde_json::from_str(&links).expect("JSON");
    let host = links[0]["address"].as_str().expect("an Ethernet address");
    let port = format!(
        "table netdev port {{\nchain out {{\ntype filter hook egress device eth0 priority 0;\n\
         ether daddr & 01:00:00:00:00:00 == 00:00:00:00:00:00 ether daddr != {host} drop\n}}\n}}\n"
    );
    lab.lan.server.run_command("nft", &["-f", "-"], &port)?;
    lab.start_daemon()?;
    let scene = Scene::new(lab)?;
    let web = scene.lab.attach("web")?;
    scene.agree(&["unreachable"], &["adds_fail"])?;
    let sentence = "only broadcasts arrive: a DHCP server answered only when asked for a broadcast";
    let troubles = serde_json::to_string(&scene.troubles()).expect("JSON");
    assert!(troubles.contains(sentence), "{troubles}");
    let mut probe = Command::new(binary("leasehold")?);
    probe.args(["probe", Lan::IFNAME, "--json"]);
    let output = scene.lab.lan.host.output(probe, b"")?;
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_says(&report["reasons"], sentence);
    scene.lab.detach(&web)?;
    Ok(scene.agree(&[], &["unreachable"])?)
}

#[test]
fn every_surface_names_each_trouble_with_the_host() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::RealRoot, Need::Program("prometheus")]);
    let mut lab = Lab::without_daemon(&sandbox)?;
    lab.home().with_read_socket()?;
    lab.home().on_a_small_disk(&lab.lan.host, "8m")?;
    let _server = ModelServer::start(&lab.lan, Config::new(Lan::SUBNET))?;
    lab.start_daemon()?;
    let socket = lab.daemon().socket();
    let scene = Scene::new(lab)?;
    scene.agree(&[], &["store_fails", "disk_full", "old_plugin"])?;

    // The replaced plugin speaks Go RPC.
    let mut old = UnixStream::connect(&socket).expect("the daemon listens");
    old.write_all(b"CONNECT /_goRPC_ HTTP/1.0\r\n\r\n")
        .expect("it reads");
    old.read_to_end(&mut Vec::new()).expect("it answers");
    scene.agree(&["old_plugin"], &["store_fails"])?;

    let ready = || status(&ask_daemon(&socket, "GET /readyz")).to_owned();
    // An old plugin does not keep ADDs from the store.
    assert_eq!(ready(), "200");
    let ballast = fill(&scene.lab.home().state_dir());
    // Events give way first, and whatever room the file itself has left is used up.
    let _lucky = add_until_refused(&scene.lab)?;
    until_found("a store that is full", DEADLINE, || {
        Ok((ready() == "503").then_some(()))
    })?;
    // `store_fails` lasts until the daemon has made room by dropping events. The disk is full all the same.
    scene.agree(&["old_plugin", "disk_full", "adds_fail"], &[])?;
    fs::remove_file(ballast).expect("the ballast is there");
    scene.agree(&["old_plugin"], &["store_fails", "disk_full"])?;
    assert_eq!(ready(), "200");
    Ok(())
}

#[test]
fn every_surface_names_a_store_that_cannot_be_written() -> Result<(), CallError> {
    let more = ["mount", "prometheus"].map(Need::Program);
    let mut lab = Lab::without_daemon(&sandbox!(&[&[Need::RealRoot][..], &more].concat()))?;
    lab.home().with_read_socket()?;
    lab.home().on_a_small_disk(&lab.lan.host, "8m")?;
    let often = Config::new(Lan::SUBNET).lasting(600).renewed(3, None);
    let server = ModelServer::start(&lab.lan, often)?;
    lab.start_daemon()?;
    let members: Vec<_> = (0..90)
        .map(|n| lab.attach(&format!("c{n}")))
        .collect::<Result<_, _>>()?;
    // As a kernel does it whose disk has errors.
    lab.terminate()?;
    let (host, dir) = (lab.lan.host.clone(), lab.home().state_dir());
    let remount = |how: &str| {
        let how = format!("remount,{how}");
        host.run_command("mount", &["-o", &how, &dir.to_string_lossy()], "")
    };
    remount("ro")?;
    lab.start_daemon()?;
    let scene = Scene::new(lab)?;
    let refused = scene.lab.attach("late");
    refused.expect_err("it could not be recorded");
    let readyz = || status(&ask_daemon(&scene.lab.daemon().socket(), "GET /readyz")).to_owned();
    scene.agree(&["store_fails"], &["events_lost", "disk_full"])?;
    assert_eq!(readyz(), "503");

    // Each renewal grants something new, and a thousand events wait at most.
    let mut told = 0_u8;
    until_found("more events than wait", PATIENCE, || {
        told = told.wrapping_add(1);
        server.with(|server| server.config_mut().dns = vec![[10, 7, 0, told].into()]);
        let there = kinds(&scene.troubles()).contains("events_lost");
        Ok(there.then_some(()))
    })?;
    scene.agree(&["store_fails", "events_lost"], &[])?;
    remount("rw")?;
    scene.agree(&["events_lost"], &["store_fails"])?;
    assert_eq!(readyz(), "200");
    witness::holds(&scene.lab, &members)?;
    Ok(())
}

#[test]
fn a_host_that_is_too_slow_raises_alerts() -> Result<(), CallError> {
    let sandbox = sandbox!(&["prometheus", "ip"].map(Need::Program));
    let lab = Lab::with_read_socket(&sandbox)?;
    let scene = Scene::new(lab)?;
    scene.until("leasehold_kernel_messages_lost_total == 0")?;
    let daemon = Pid::from_raw(scene.lab.daemon().id() as i32);
    // Twice as many changes as the daemon has room for.
    let flood: String = (0..20_000)
        .map(|n| format!("link set dev lo alias a{n}\n"))
        .collect();
    for round in 1..=5 {
        kill(daemon, Signal::SIGSTOP).expect("it runs");
        let host = &scene.lab.lan.host;
        let flooded = host.run_command("ip", &["-batch", "-"], &flood);
        // As long as the loop lags.
        thread::sleep(Duration::from_secs(2));
        kill(daemon, Signal::SIGCONT).expect("it runs");
        flooded?;
        scene.until(&format!("leasehold_kernel_messages_lost_total >= {round}"))?;
        // The kernel does not tell of another loss before everything is read.
        until_found("an empty socket", PATIENCE, || {
            let sockets = fs::read_to_string(format!("/proc/{daemon}/net/netlink"));
            let sockets = sockets.unwrap_or_default();
            let held = |line: &str| line.split_whitespace().nth(4) != Some("0");
            Ok((!sockets.lines().skip(1).any(held)).then_some(()))
        })?;
    }
    scene.fires("KernelMessagesLost")?;
    scene.fires("LoopLags")?;
    Ok(())
}

#[test]
fn every_surface_names_each_trouble_with_a_container() -> Result<(), CallError> {
    let more = ["umount", "prometheus"].map(Need::Program);
    let mut lab = Lab::without_daemon(&sandbox!(&[&adopt::needs()[..], &more].concat()))?;
    lab.home().with_read_socket()?;
    let _server = Dnsmasq::start(&lab.lan, short::<DnsmasqProgram>())?;
    let incumbent = Incumbent::start(&lab.lan.host, &lab.home().socket())?;
    let changed = adopt::attach(&lab, &incumbent, "changed")?;
    incumbent.stop()?;
    changed.container.netns.delete_link("eth0")?;
    lab.start_daemon()?;
    let scene = Scene::new(lab)?;
    scene.agree(&["not_adopted"], &["pathless", "held_up"])?;
    scene.lab.detach(&changed)?;
    scene.agree(&[], &["not_adopted"])?;

    let web = scene.lab.attach("web")?;
    let mut sleep = Command::new("sleep");
    sleep.arg("600");
    let inside = Process::start(&web.container.netns, "a process inside", sleep)?;
    let path = web.container.netns.path().to_string_lossy().into_owned();
    let host = scene.lab.lan.host.clone();
    host.run_command("umount", &["-l", &path], "")?;
    scene.agree(&["pathless"], &["held_up"])?;
    drop(web);
    drop(inside);
    scene.agree(&[], &["pathless"])?;

    let held = scene.lab.attach("held")?;
    scene.lab.lan.unplug(&host)?;
    // Without a DEL the host gives it back, which has no carrier.
    drop(held);
    scene.agree(&["held_up"], &[])?;
    scene.lab.lan.replug(&host)?;
    scene.agree(&[], &["held_up"])?;
    Ok(())
}
