//! The commands in the documents, run as written, on a host such as the documents assume.

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;
use leasehold_tests::documents::{DOCKER, blocks, commands_of};
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig, Grants};
use netns_fixtures::{DEADLINE, Debian13, Dockerd, Error, Lab, Lan, Netns, Sandbox, sandbox};

use crate::docker::needs;

/// The router and DHCP server of the LAN in the documents, 192.168.1.0/24.
const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 1);

/// How long the lease of a container that can be recognised is kept.
const GRACE: Duration = Duration::from_secs(60);

/// A host on that LAN, with Docker.
struct Host {
    lab: Lab,
    server: Dnsmasq,
    docker: Dockerd,
}

impl Host {
    fn new(
        sandbox: &Sandbox,
        reserved: Option<&str>,
        root: impl FnOnce(&Netns) -> Result<Netns, Error>,
    ) -> Result<Self, Error> {
        let lab = Lab::with_docker(sandbox)?;
        lab.lan.server.sh("ip addr add 192.168.1.1/24 dev eth0")?;
        let pool = Ipv4Addr::new(192, 168, 1, 100)..=Ipv4Addr::new(192, 168, 1, 199);
        let mut config = DnsmasqConfig::from(Grants {
            router: ROUTER,
            pool,
            ..Grants::default()
        });
        config
            .more
            .extend(reserved.map(|reserved| format!("--dhcp-host={reserved}")));
        let server = Dnsmasq::start(&lab.lan, config)?;
        Ok(Self {
            server,
            docker: Dockerd::start(&root(&lab.lan.host)?)?,
            lab,
        })
    }

    /// Waits until nothing is leased: a lease whose container may return is kept for a while.
    fn is_free(&self) -> Result<(), Error> {
        let is_free = |_: &[_]| self.server.leases().ok().filter(Vec::is_empty).map(drop);
        self.server
            .wait_for("release of all leases", GRACE + DEADLINE, is_free)?;
        self.lab.daemon().wait_until_empty()
    }
}

#[test]
fn from_nothing_to_a_container_as_the_documents_say() -> Result<(), Error> {
    let host = Host::new(&sandbox!(&needs()), None, |host| Ok(host.clone()))?;
    let Host { lab, docker, .. } = &host;

    let sections = [
        ("README.md", "## Docker"),
        ("daemon/docs/docker.md", "## From nothing to a container"),
        ("daemon/docs/docker.md", "## Docker's own drivers"),
    ];
    for (document, heading) in sections {
        let commands = commands_of(document, heading);
        assert!(
            commands
                .last()
                .is_some_and(|words| words[2..] == ["rm", "lan"]),
            "{document}: {commands:?}"
        );
        let mut leased = false;
        for words in &commands {
            let args: Vec<_> = words[1..].iter().map(String::as_str).collect();
            let printed = match words[0].as_str() {
                "docker" => docker.docker(&args)?,
                _ => lab.daemon().operator(&args)?,
            };
            leased |= words[0] == "leasehold"
                && printed.contains("192.168.1.1")
                && printed.contains("BOUND");
            if args[0] == "exec" {
                assert!(
                    printed.contains("inet 192.168.1.1"),
                    "{document}: {words:?}: {printed}"
                );
            }
        }
        assert!(leased, "{document}: nothing was shown as leased");
        host.is_free()?;
    }
    Ok(())
}

/// With the Docker and the Compose of Debian 13. The second file is for Docker 29, which passes the container's name too.
#[test]
fn each_compose_file_of_the_document_runs() -> Result<(), Error> {
    let sandbox = sandbox!(&[&needs()[..], &[Debian13::NEED]].concat());
    // As the document says, the server reserves the address of the last example, and the host has one on the LAN.
    let host = Host::new(
        &sandbox,
        Some("02:42:c0:a8:01:0a,192.168.1.10"),
        Debian13::host,
    )?;
    let on_lan = Ipv4Net::new_assert(Ipv4Addr::new(192, 168, 1, 5), 24);
    host.lab.lan.host.add_address(Lan::IFNAME, on_lan)?;
    let files = blocks(DOCKER, "## Compose", "yaml");
    let [by_mac, by_name, external] = &files[..] else {
        panic!("three files: {files:?}")
    };
    for (file, inet) in [
        (by_mac, "inet 192.168.1.10/"),
        (by_name, "inet 192.168.1.1"),
        (external, "inet 192.168.1.10/"),
    ] {
        if file == external {
            for words in commands_of(DOCKER, "## Compose") {
                let args: Vec<_> = words[1..].iter().map(String::as_str).collect();
                host.docker.docker(&args)?;
            }
        }
        for _ in 0..2 {
            host.docker.compose(file, &["up", "--detach"])?;
            let show = ["ip", "-4", "addr", "show", "dev", "eth0"];
            let inside = host.docker.exec("web", &show)?;
            assert!(inside.contains(inet), "{file}: {inside}");
            host.docker.ping("web", ROUTER)?;
            host.docker.compose(file, &["down", "--timeout", "0"])?;
        }
        host.is_free()?;
    }
    host.docker.docker(&["network", "rm", "lan"]).map(drop)
}
