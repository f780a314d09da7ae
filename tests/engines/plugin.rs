//! The daemon as a plugin that Docker itself runs, in a root file system of its own and with capabilities of its own.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use leasehold_tests::documents::{DOCKER, commands_of};
use netns_fixtures::engine::plugin::Plugin;
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{
    DEADLINE, Dockerd, Error, Lab, Lan, Registry, Sandbox, binary, sandbox, until_link,
};
use serde_json::Value;

use crate::docker::{LAN, MAC, needs, only};

/// The plugin's name.
const NAME: &str = "leasehold";
/// The name under which Docker knows its drivers.
const DRIVER: &str = "leasehold:latest";

/// A host with Docker, and what `docker plugin create` takes.
struct Host {
    docker: Dockerd,
    lab: Lab,
    server: Dnsmasq,
    dir: PathBuf,
}

impl Host {
    fn new(sandbox: &Sandbox) -> Result<Self, Error> {
        let lab = Lab::without_daemon(sandbox)?;
        let dir = sandbox.dir("plugin")?;
        let mut build = Command::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../daemon/dist/docker-plugin/build"
        ));
        build
            .arg(&dir)
            .arg("amd64")
            .env("BINARIES", binary("leasehold")?.with_file_name(""));
        let built = lab.lan.host.output(build, b"")?;
        assert!(built.status.success(), "{built:?}");
        let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
        Ok(Self {
            docker: Dockerd::start(&lab.lan.host)?,
            lab,
            server,
            dir,
        })
    }

    fn plugin(&self, args: &[&str]) -> Result<String, Error> {
        self.docker.docker(&[&["plugin"], args].concat())
    }

    /// Makes the plugin under one of Docker's names.
    fn create(&self, name: &str) -> Result<(), Error> {
        self.plugin(&["create", name, &self.dir.to_string_lossy()])
            .map(drop)
    }

    /// Makes the network `lan`, with Docker's own driver or ours.
    fn network(&self, how: &[&str]) -> Result<(), Error> {
        let parent = format!("parent={}", Lan::IFNAME);
        let network = ["network", "create", "-o", &parent];
        let ipam = ["--ipam-driver", DRIVER, "--ipam-opt", &parent];
        let lan = ["--subnet", "10.7.0.0/16", "lan"];
        self.docker
            .docker(&[&network, &ipam, how, &lan].concat())
            .map(drop)
    }

    /// Waits until the only container's lease has found its interface, as an operator on the host sees it.
    fn found(&self, name: &str) -> Result<(), Error> {
        let id = self.plugin(&["inspect", "--format", "{{.Id}}", NAME])?;
        let socket = format!("{}/{}/control.sock", Dockerd::PLUGINS, id.trim());
        let leasehold = binary("leasehold")?.display().to_string();
        let list = format!("'{leasehold}' list --json --socket {socket}");
        until_link(
            &self.docker.netns(name)?,
            "a lease inside",
            DEADLINE,
            || {
                let listed = self.lab.lan.host.sh(&list)?;
                Ok(listed.contains(Dockerd::NETNS).then_some(()))
            },
        )
    }

    /// Starts a container that keeps its address over restarts, and returns whether it reaches the server.
    fn keep(&self, name: &str) -> Result<(), Error> {
        self.docker
            .keep(name, &[&LAN[..], &["--mac-address", MAC]].concat())?;
        self.docker.ping(name, Lan::SERVER)
    }
}

#[test]
fn docker_upgrades_our_plugin_under_a_running_container() -> Result<(), Error> {
    let needs = [&needs()[..], &[Registry::NEED]].concat();
    let host = Host::new(&sandbox!(&needs))?;
    let _registry = Registry::start(&host.lab.lan.host)?;
    let [old, new] = ["1", "2"].map(|tag| format!("{}/leasehold:{tag}", Registry::ADDRESS));
    for image in [&old, &new] {
        host.create(image)?;
        host.plugin(&["push", image])?;
        host.plugin(&["rm", image])?;
    }
    host.plugin(&["install", "--grant-all-permissions", "--alias", NAME, &old])?;
    // dockerd names such a network once: if the store loses it, nobody knows it any more.
    host.network(&["-d", DRIVER])?;
    host.keep("web")?;
    let address = host.docker.address("web", "lan")?;
    only(&host.server, &[address])?;

    host.plugin(&["disable", "--force", NAME])?;
    host.plugin(&[
        "upgrade",
        "--grant-all-permissions",
        "--skip-remote-check",
        NAME,
        &new,
    ])?;
    host.plugin(&["enable", NAME])?;
    host.docker.ping("web", Lan::SERVER)?;
    only(&host.server, &[address])?;
    host.docker.docker(&["restart", "-t", "0", "web"])?;
    // By its Ethernet address.
    assert_eq!(host.docker.address("web", "lan")?, address);
    host.docker.keep("db", &LAN)?;
    only(&host.server, &[address, host.docker.address("db", "lan")?])?;

    host.docker.docker(&["rm", "--force", "web", "db"])?;
    host.docker.docker(&["network", "rm", "lan"])?;
    host.plugin(&["disable", NAME])?;
    host.plugin(&["rm", NAME])?;
    Ok(())
}

#[test]
fn a_setting_turns_the_plugin_into_one_for_ipvlan() -> Result<(), Error> {
    let host = Host::new(&sandbox!(&needs()))?;
    host.create(NAME)?;
    let id = host.plugin(&["inspect", "--format", "{{.Id}}", NAME])?;
    let socket = format!("{}/{}/leasehold.sock", Dockerd::PLUGINS, id.trim());
    for requires in [true, false] {
        host.plugin(&[
            "set",
            NAME,
            &format!("LEASEHOLD_DOCKER_REQUIRES_MAC={requires}"),
        ])?;
        host.plugin(&["enable", NAME])?;
        let said = Plugin::new(socket.as_ref()).call("IpamDriver.GetCapabilities", &Value::Null)?;
        assert_eq!(said["RequiresMACAddress"], requires, "{said}");
        host.plugin(&["disable", NAME])?;
    }
    Ok(())
}

/// The plugin's capabilities, each with the message that appears if it is missing.
const CAPABILITIES: [(&str, &str); 3] = [
    ("CAP_SYS_ADMIN", "not looked through"),
    ("CAP_NET_ADMIN", "make a macvlan"),
    (
        "CAP_NET_BROADCAST",
        "hearing about them needs CAP_NET_BROADCAST",
    ),
];

#[test]
fn each_capability_of_the_plugin_is_needed_and_no_other() -> Result<(), Error> {
    let mut host = Host::new(&sandbox!(&needs()))?;
    let path = host.dir.join("config.json");
    let mut config: Value =
        serde_json::from_slice(&fs::read(&path).expect("it was built")).expect("it is JSON");
    assert_eq!(
        config["linux"]["capabilities"],
        CAPABILITIES
            .map(|(name, _)| name)
            .into_iter()
            .collect::<Value>()
    );
    config["env"][1]["value"] = "debug".into();
    for without in [None, Some(0), Some(1), Some(2)] {
        let with = CAPABILITIES
            .iter()
            .enumerate()
            .filter(|(at, _)| Some(*at) != without)
            .map(|(_, (name, _))| *name);
        config["linux"]["capabilities"] = with.collect();
        fs::write(&path, config.to_string()).expect("it can be written");
        host.create(NAME)?;
        host.plugin(&["enable", NAME])?;
        host.network(&["-d", DRIVER])?;
        let kept = host.keep("web");
        match without.map(|at| CAPABILITIES[at]) {
            None => {
                kept?;
                host.found("web")?;
                let said = host.docker.log().lines().join("\n");
                assert!(
                    !CAPABILITIES
                        .iter()
                        .any(|(_, missing)| said.contains(missing)),
                    "{said}"
                );
            }
            Some((_, missing)) => host.docker.wait_for_line(missing)?,
        }
        for args in [&["rm", "--force", "web"][..], &["network", "rm", "lan"]] {
            host.docker.docker(args)?;
        }
        host.plugin(&["rm", "--force", NAME])?;
    }
    Ok(())
}

#[test]
fn the_documents_plugin_serves_a_swarms_services_too() -> Result<(), Error> {
    let host = Host::new(&sandbox!(&needs()))?;
    let printed = commands_of(DOCKER, "## The managed plugin");
    let [create, enable, network, config, from, _] = &printed[..] else {
        panic!("six commands: {printed:?}")
    };
    let run = |words: &[String]| {
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        host.docker.docker(&words[1..])
    };
    // The last word is the directory, which is elsewhere.
    let dir = host.dir.to_string_lossy().into_owned();
    run(&[&create[..create.len() - 1], &[dir]].concat())?;
    run(enable)?;
    run(network)?;
    host.docker.run(&LAN, &["ip", "addr"])?;
    host.docker.docker(&["network", "rm", "lan"])?;
    host.docker
        .docker(&["swarm", "init", "--advertise-addr", "127.0.0.1"])?;
    run(config)?;
    run(from)?;
    let service = [
        "service",
        "create",
        "--detach",
        "--no-resolve-image",
        "--name",
        "web",
        "--network",
        "lan",
    ];
    host.docker.docker(
        &[
            &service[..],
            &["busybox", "/bin/busybox", "sleep", "1000000"],
        ]
        .concat(),
    )?;
    let task = until_link(
        &host.lab.lan.host,
        "the service's container",
        DEADLINE,
        || {
            let listed = host
                .docker
                .docker(&["ps", "--quiet", "--filter", "name=web"])?;
            Ok(Some(listed.trim().to_owned()).filter(|id| !id.is_empty()))
        },
    )?;
    host.docker.ping(&task, Lan::SERVER)?;
    only(&host.server, &[host.docker.address(&task, "lan")?])?;
    host.docker.docker(&["service", "rm", "web"])?;
    host.server.wait_until_free()?;
    host.docker.docker(&["swarm", "leave", "--force"]).map(drop)
}
