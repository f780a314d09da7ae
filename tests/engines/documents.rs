//! The commands of the documents, run as they are written there, on a host as they suppose it.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use netns_fixtures::server::{Dnsmasq, DnsmasqConfig, Grants};
use netns_fixtures::{Dockerd, Error, Lab, Need, sandbox};

/// The router and DHCP server of the LAN that the documents speak of, 192.168.1.0/24.
const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 1);

/// Returns the commands in the shell blocks under a document's heading that are Docker's or ours, each in its words.
fn commands(document: &str, heading: &str) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(document);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (_, section) = text.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("{document}: no {heading}"));
    let section = section.split("\n## ").next().unwrap_or_default();
    let blocks = section.split("```sh\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0));
    let lines = blocks.map(|block| block.replace("\\\n", " ")).collect::<String>();
    let words =
        |line: &str| line.split(" #").next().unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    let ours =
        |words: &Vec<String>| words.first().is_some_and(|first| ["docker", "leasehold"].contains(&first.as_str()));
    lines.lines().map(words).filter(ours).collect()
}

#[test]
fn from_nothing_to_a_container_as_the_documents_say() -> Result<(), Error> {
    let needs = [Dockerd::NEEDS, &[Need::Program("dnsmasq")]].concat();
    let Some(sandbox) = sandbox(&needs) else { return Ok(()) };
    let mut lab = Lab::without_daemon(&sandbox)?;
    lab.home().with_docker()?;
    lab.start_daemon()?;
    lab.lan.server.run_command("ip", &["addr", "add", "192.168.1.1/24", "dev", "eth0"], "")?;
    let pool = Ipv4Addr::new(192, 168, 1, 100)..=Ipv4Addr::new(192, 168, 1, 199);
    let grants = Grants { router: ROUTER, pool, ..Grants::default() };
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::from(grants))?;
    let docker = Dockerd::start(&lab.lan.host)?;

    let sections = [
        ("README.md", "## Docker"),
        ("daemon/docs/docker.md", "## From nothing to a container"),
        ("daemon/docs/docker.md", "## Docker's own drivers"),
    ];
    for (document, heading) in sections {
        let commands = commands(document, heading);
        assert!(commands.last().is_some_and(|words| words[2..] == ["rm", "lan"]), "{document}: {commands:?}");
        let mut leased = false;
        for words in &commands {
            let args: Vec<_> = words[1..].iter().map(String::as_str).collect();
            let printed = match words[0].as_str() {
                "docker" => docker.docker(&args)?,
                _ => lab.daemon().operator(&args)?,
            };
            leased |= words[0] == "leasehold" && printed.contains("192.168.1.1") && printed.contains("BOUND");
            if args[0] == "exec" {
                assert!(printed.contains("inet 192.168.1.1"), "{document}: {words:?}: {printed}");
            }
        }
        assert!(leased, "{document}: nothing was shown as leased");
        server.wait_until_free()?;
        lab.daemon().wait_until_empty()?;
    }
    Ok(())
}
