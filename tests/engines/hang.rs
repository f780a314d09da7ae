//! A daemon of ours that cannot start, dies or hangs, run by systemd on a host with Docker: dockerd starts, and answers.

use std::fs;
use std::path::Path;
use std::time::Duration;

use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{
    DEADLINE, Dockerd, Error, Lan, Need, Sandbox, Systemd, installed_unit, sandbox, until_found,
};

use crate::docker::{LAN, needs};

const SERVICE: &str = "leasehold.service";
const SOCKET: &str = "leasehold.socket";
/// Where the driver's socket is while somebody answers there.
const PLUGIN: &str = "/run/docker/plugins/leasehold.sock";
/// How long dockerd looks for a missing driver in all, for everything that one network of ours makes it ask.
const LOOKED_FOR: Duration = Duration::from_secs(60);

/// A host whose service keeps its store in a directory of its own.
struct Host {
    lan: Lan,
    /// The service in working order.
    service: String,
    state_dir: String,
}

impl Host {
    fn new(sandbox: &Sandbox) -> Result<Self, Error> {
        let state_dir = sandbox.dir("state")?.display().to_string();
        let run = format!(
            "leasehold daemon --docker-plugin-dir /run/docker/plugins --state-dir {state_dir}"
        );
        let service = installed_unit(SERVICE)?.replace("leasehold daemon", &run);
        Ok(Self {
            lan: Lan::new(sandbox)?,
            service,
            state_dir,
        })
    }

    /// Starts systemd with a service in which `from` is replaced by `to`.
    fn with(&self, from: &str, to: &str) -> Result<Systemd, Error> {
        assert!(self.service.contains(from), "{from}: {}", self.service);
        let units = [
            (SERVICE, self.service.replace(from, to)),
            (SOCKET, installed_unit(SOCKET)?),
        ];
        Systemd::start(&self.lan.host, &units)
    }

    /// Starts systemd with a service that hangs, and that systemd should end for that.
    fn with_a_hanging_one(&self) -> Result<Systemd, Error> {
        let systemd = self.with("WatchdogSec=30s", "WatchdogSec=3s")?;
        wait_for_plugin()?;
        systemd.freeze(SERVICE)?;
        Ok(systemd)
    }

    /// Starts systemd with a service that is killed again and again, soon after it is ready.
    fn with_a_dying_one(&self) -> Result<Systemd, Error> {
        self.with(
            "[Service]\n",
            "[Service]\nExecStartPost=/bin/sh -c 'sleep 0.3; kill -KILL $$MAINPID'\n",
        )
    }
}

fn wait_for_plugin() -> Result<(), Error> {
    until_found("the driver's socket", DEADLINE, || {
        Ok(Path::new(PLUGIN).exists().then_some(()))
    })
}

/// Asks Docker for something that makes it look at its plugins, and for a container that needs none of ours.
fn answers(docker: &Dockerd) -> Result<(), Error> {
    docker.docker(&["volume", "ls"])?;
    docker.docker(&["network", "ls"])?;
    docker.run(&["--network", "none"], &["true"]).map(drop)
}

#[test]
fn dockerd_without_our_networks_ignores_our_service() -> Result<(), Error> {
    let sandbox = sandbox!(&[needs(), vec![Need::Program("systemd")]].concat());
    let host = Host::new(&sandbox)?;
    let mut docker = Dockerd::start(&host.lan.host)?;
    let mut lives = |systemd: Systemd| {
        // Those that dockerd knows since its start, and those of a new one.
        answers(&docker)?;
        docker.stop()?;
        docker.launch(&[])?;
        answers(&docker)?;
        drop(systemd);
        Ok::<_, Error>(())
    };
    let file = sandbox.dir("file")?.join("file");
    fs::write(&file, "").expect("an empty directory takes a file");
    let unreadable = format!("{}/state", file.display());
    for (from, to) in [
        ("leasehold daemon", "leasehold daemon --no-such-flag"),
        (&*host.state_dir, &*unreadable),
    ] {
        let systemd = host.with(from, to)?;
        assert!(!Path::new(PLUGIN).exists(), "{to}");
        lives(systemd)?;
    }
    lives(host.with_a_dying_one()?)?;
    lives(host.with_a_hanging_one()?)
}

/// Checks that a dockerd that has a network of ours starts while `fails` runs a service that does not work, and that once there
/// is one that does, its container has an address.
fn starts_with_a_network(fails: impl FnOnce(&Host) -> Result<Systemd, Error>) -> Result<(), Error> {
    let sandbox = sandbox!(&[needs(), vec![Need::Program("systemd")]].concat());
    let host = Host::new(&sandbox)?;
    let _server = Dnsmasq::start(&host.lan, DnsmasqConfig::default())?;
    let works = host.with("", "")?;
    wait_for_plugin()?;
    let mut docker = Dockerd::start(&host.lan.host)?;
    let parent = format!("parent={}", Lan::IFNAME);
    let create = [
        "network",
        "create",
        "-d",
        "leasehold",
        "-o",
        &parent,
        "--ipam-driver",
        "leasehold",
        "--ipam-opt",
        &parent,
    ];
    docker.docker(&[&create[..], &["--subnet", "10.7.0.0/16", "lan"]].concat())?;
    docker.run(&LAN, &["true"])?;
    docker.stop()?;
    drop(works);

    let fails = fails(&host)?;
    docker.launch_within(LOOKED_FOR + DEADLINE, &[])?;
    answers(&docker)?;
    drop(fails);
    let _works = host.with("", "")?;
    wait_for_plugin()?;
    docker
        .run(
            &LAN,
            &["ping", "-c", "1", "-W", "10", &Lan::SERVER.to_string()],
        )
        .map(drop)
}

#[test]
fn dockerd_starts_though_our_service_cannot_start() -> Result<(), Error> {
    starts_with_a_network(|host| host.with("leasehold daemon", "leasehold daemon --no-such-flag"))
}

#[test]
fn dockerd_starts_though_our_service_keeps_dying() -> Result<(), Error> {
    starts_with_a_network(Host::with_a_dying_one)
}

#[test]
fn dockerd_starts_once_our_hanging_service_is_ended() -> Result<(), Error> {
    starts_with_a_network(Host::with_a_hanging_one)
}
