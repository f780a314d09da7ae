//! The commands in the documents, run as written, on a host such as the documents assume.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use netns_fixtures::server::{Dnsmasq, DnsmasqConfig, Grants};
use netns_fixtures::{DEADLINE, Dockerd, Error, Lab, Sandbox, sandbox};

use crate::docker::needs;

/// The router and DHCP server of the LAN in the documents, 192.168.1.0/24.
const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 1);

/// How long the lease of a container that can be recognised is kept.
const GRACE: Duration = Duration::from_secs(60);

/// Returns the blocks in a language under a document's heading.
fn blocks(document: &str, heading: &str, language: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(document);
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (_, section) = text
        .split_once(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("{document}: no {heading}"));
    let section = section.split("\n## ").next().unwrap_or_default();
    let opening = format!("```{language}\n");
    let blocks = section.split(&opening).skip(1);
    blocks
        .filter_map(|rest| Some(rest.split_once("```")?.0.to_owned()))
        .collect()
}

/// Returns Docker's commands and ours in the shell blocks under a document's heading, each split into words.
fn commands(document: &str, heading: &str) -> Vec<Vec<String>> {
    let lines = blocks(document, heading, "sh")
        .concat()
        .replace("\\\n", " ");
    let words = |line: &str| {
        line.split(" #")
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    };
    let ours = |words: &Vec<String>| {
        words
            .first()
            .is_some_and(|first| ["docker", "leasehold"].contains(&first.as_str()))
    };
    lines.lines().map(words).filter(ours).collect()
}

/// A host on that LAN, with Docker.
struct Host {
    lab: Lab,
    server: Dnsmasq,
    docker: Dockerd,
}

impl Host {
    fn new(sandbox: &Sandbox, reserved: Option<&str>) -> Result<Self, Error> {
        let mut lab = Lab::without_daemon(sandbox)?;
        lab.home().with_docker()?;
        lab.start_daemon()?;
        lab.lan
            .server
            .run_command("ip", &["addr", "add", "192.168.1.1/24", "dev", "eth0"], "")?;
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
            docker: Dockerd::start(&lab.lan.host)?,
            lab,
        })
    }

    /// Waits until nothing is leased.
    fn is_free(&self) -> Result<(), Error> {
        self.server.wait_until_free()?;
        self.lab.daemon().wait_until_empty()
    }
}

#[test]
fn from_nothing_to_a_container_as_the_documents_say() -> Result<(), Error> {
    let Some(sandbox) = sandbox(&needs()) else {
        return Ok(());
    };
    let host = Host::new(&sandbox, None)?;
    let Host { lab, docker, .. } = &host;

    let sections = [
        ("README.md", "## Docker"),
        ("daemon/docs/docker.md", "## From nothing to a container"),
        ("daemon/docs/docker.md", "## Docker's own drivers"),
    ];
    for (document, heading) in sections {
        let commands = commands(document, heading);
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

#[test]
fn a_container_of_compose_has_what_its_file_says_and_what_the_server_hands_out_where_it_says_less()
-> Result<(), Error> {
    let Some(sandbox) = sandbox(&[&needs()[..], &[Dockerd::COMPOSE]].concat()) else {
        return Ok(());
    };
    // As the document says, the server reserves the address of the example for it.
    let host = Host::new(&sandbox, Some("02:42:c0:a8:01:0a,192.168.1.10"))?;
    let [example] = &blocks("daemon/docs/docker.md", "## Compose", "yaml")[..] else {
        panic!("one example")
    };
    let show = ["ip", "-4", "addr", "show", "dev", "eth0"];
    let ping = ["ping", "-c", "1", "-W", "10", &ROUTER.to_string()];
    for _ in 0..2 {
        host.docker.compose(example, &["up", "--detach"])?;
        let inside = host.docker.exec("web", &show)?;
        assert!(inside.contains("inet 192.168.1.10/24 "), "{inside}");
        host.docker.exec("web", &ping)?;
        host.docker.compose(example, &["down", "--timeout", "0"])?;
    }
    // Its Ethernet address may return: the lease is kept for a minute.
    let is_free = |_: &[_]| host.server.leases().ok().filter(Vec::is_empty).map(drop);
    host.server
        .wait_for("release of a kept lease", GRACE + DEADLINE, is_free)?;
    host.is_free()?;

    // The variant that the document describes in words, for any number of containers.
    let (before, _) = example
        .split_once("    ipam:\n")
        .expect("the example names an IPAM driver");
    let own = ["container_name", "mac_address", "ipv4_address"];
    let lines = before
        .lines()
        .filter(|line| !own.iter().any(|key| line.contains(key)));
    let text = lines.map(|line| format!("{line}\n")).collect::<String>()
        + "    ipam:\n      driver: \"null\"\n";
    host.docker
        .compose(&text, &["up", "--detach", "--scale", "web=3"])?;
    let leases = host.server.leases()?;
    assert_eq!(leases.len(), 3, "{leases:?}");
    for name in ["compose_web_1", "compose_web_2", "compose_web_3"] {
        let address = host.docker.address(name, "compose_lan")?;
        assert!(
            leases.iter().any(|lease| lease.address == address),
            "{name}: {address}: {leases:?}"
        );
        host.docker.exec(name, &ping)?;
    }
    host.docker.compose(&text, &["down", "--timeout", "0"])?;
    host.is_free()
}
