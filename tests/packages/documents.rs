//! The documents' procedures for a host without a package, as printed, on a Debian that systemd runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use leasehold_tests::documents::{DOCKER, block, command};
use netns_fixtures::engine::plugin::Plugin;
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{
    CallError, Containerd, DEADLINE, Engine, Error, Lan, Need, Sandbox, Systemd, binary, sandbox,
    until_found,
};
use serde_json::{Value, json};

use super::DIST;

const README: &str = "README.md";
const METRICS: &str = "daemon/docs/metrics.md";

const SERVICE: &str = "leasehold.service";

/// The replaced plugin.
const PLUGIN: &str = "/usr/lib/cni/dhcp";

/// The units that come with it.
const REPLACED: [(&str, &str); 2] = [
    (
        "cni-dhcp.service",
        "[Unit]\nAfter=network.target cni-dhcp.socket\nRequires=cni-dhcp.socket\n\
         [Service]\nExecStart=/usr/lib/cni/dhcp daemon\n[Install]\nWantedBy=multi-user.target\n",
    ),
    (
        "cni-dhcp.socket",
        "[Unit]\nPartOf=cni-dhcp.service\n[Socket]\nListenStream=/run/cni/dhcp.sock\nSocketMode=0660\nRemoveOnStop=true\n\
         [Install]\nWantedBy=sockets.target\n",
    ),
];

/// A Debian, and a clone of this repository in which the programs have been built.
struct Host {
    systemd: Systemd,
    root: PathBuf,
    clone: PathBuf,
}

impl Host {
    /// Runs commands as printed, in the clone.
    fn run(&self, commands: &str) -> Result<String, Error> {
        let clone = self.clone.display();
        let script = format!("cd {clone}; PATH={clone}/bin:$PATH\n{commands}");
        self.systemd.run("sh", &["-ec", &script])
    }

    /// Installs units beside the administrator's, and starts them.
    fn add_units<'a>(&self, units: impl Iterator<Item = (&'a str, String)>) -> Result<(), Error> {
        let names: Vec<_> = units
            .map(|(name, text)| {
                let path = self.root.join("etc/systemd/system").join(name);
                fs::write(path, text).expect("a root takes a file");
                name
            })
            .collect();
        self.systemd.control(&["daemon-reload"])?;
        let enable = [&["enable", "--now"], &names[..]].concat();
        self.systemd.control(&enable)?;
        Ok(())
    }

    /// Returns whether systemd starts a unit at the next boot.
    fn is_enabled(&self, unit: &str) -> bool {
        self.systemd.control(&["is-enabled", unit]).is_ok()
    }

    fn plugin(&self) -> Vec<u8> {
        fs::read(self.root.join(&PLUGIN[1..])).expect("it is there")
    }

    /// Waits until one lease is held, and returns its line in the list.
    fn is_held(&self) -> Result<String, Error> {
        until_found("one lease that is held", DEADLINE, || {
            let listed = self.run("leasehold list")?;
            let held: Vec<_> = listed
                .lines()
                .filter(|line| line.contains("BOUND"))
                // Before the store has the lease it has no address.
                .filter(|line| line.split_whitespace().nth(2) != Some("-"))
                .collect();
            Ok((held.len() == 1).then(|| held.concat()))
        })
    }
}

/// Returns such a clone. Its Cargo has built the programs before: a release takes minutes to build.
fn clone(sandbox: &Sandbox) -> Result<PathBuf, Error> {
    let clone = sandbox.dir("clone")?;
    let built = binary("leasehold")?;
    let built = built.parent().expect("a directory");
    // target/TRIPLE/debug
    let triple = built.parent().and_then(Path::file_name).expect("a target");
    let release = clone.join("target").join(triple).join("release");
    let dirs = [&release, &clone.join("bin"), &clone.join("daemon/dist")];
    for dir in dirs {
        fs::create_dir_all(dir).expect("there is room");
    }
    let copy = |from: &Path, to: &str| fs::copy(from, clone.join(to)).expect("there is room");
    copy(&Path::new(DIST).join("can-build"), "daemon/dist/can-build");
    copy(&Path::new(DIST).join("../../Cargo.toml"), "Cargo.toml");
    for name in ["leasehold", "dhcp"] {
        fs::copy(built.join(name), release.join(name)).expect("there is room");
    }
    let cargo = clone.join("bin/cargo");
    fs::write(
        &cargo,
        "#!/bin/sh\n[ \"$*\" = \"build --release\" ] && touch built\n",
    )
    .expect("there is room");
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).expect("it is there");
    Ok(clone)
}

/// Waits until the daemon itself answers Docker, and not a unit of an earlier version.
fn answers_docker() -> Result<Value, Error> {
    let plugin = Plugin::new(Path::new("/run/docker/plugins/leasehold.sock"));
    plugin.call("Plugin.Activate", &Value::Null)
}

#[test]
fn a_host_moves_in_and_out_as_the_documents_say() -> Result<(), CallError> {
    let programs = ["systemd", "dnsmasq", "curl", "rustc", "cc"].map(Need::Program);
    let needs = [Containerd::NEEDS, &programs, &[Need::File(PLUGIN)]].concat();
    let sandbox = sandbox!(&needs);
    let lan = Lan::new(&sandbox)?;
    let _server = Dnsmasq::start(&lan, DnsmasqConfig::default())?;
    let (systemd, inside, root) = Systemd::debian(&lan.host, Path::new("/"))?;
    let host = Host {
        systemd,
        root,
        clone: clone(&sandbox)?,
    };
    let (replaced, mut network) = (host.plugin(), Lan::cni_config(Path::new("")));
    network["ipam"] = json!({ "type": "dhcp" });

    // Moving in, under a container.
    host.add_units(
        REPLACED
            .into_iter()
            .map(|(name, text)| (name, text.to_owned())),
    )?;
    let containerd = Containerd::start_on(&inside, &network)?;
    containerd.keep("web")?;
    let shown = ["ip", "-4", "addr", "show", "dev", Lan::IFNAME];
    let before = containerd.exec("web", &shown)?;
    host.run(&block(README, "\n## Moving in\n"))?;
    assert_ne!(host.plugin(), replaced);
    let held = host.is_held()?;
    let address = before.split_once("inet ").expect("it has an address").1;
    let address = address.split(' ').next().unwrap_or_default();
    assert!(held.contains(address), "{held}: {before}");
    for (name, _) in REPLACED {
        assert!(!host.is_enabled(name), "{name} would come back");
    }

    // Docker.
    host.run(&block(README, "\n## Docker\n"))?;
    answers_docker()?;

    // Not every machine lets a service have a `/dev` of its own.
    let drop_in = host
        .root
        .join("etc/systemd/system/leasehold-exporter@.service.d");
    fs::create_dir(&drop_in).expect("a root takes a directory");
    fs::write(drop_in.join("dev.conf"), "[Service]\nPrivateDevices=no\n").expect("it takes a file");
    host.systemd.control(&["daemon-reload"])?;
    let exporter = block(METRICS, "\n## The exporter\n");
    let (enable, ask) = exporter.split_once('\n').expect("two commands");
    host.run(enable)?;
    // It starts while the command ends.
    let measured = until_found("the exporter", DEADLINE, || Ok(host.run(ask).ok()))?;
    assert!(measured.contains("leasehold_up 1"), "{measured}");
    let read = host.run(&block(METRICS, "\n"))?;
    assert!(read.contains("leasehold_leases{"), "{read}");
    host.systemd
        .control(&["stop", "leasehold-exporter@127.0.0.1:9467"])?;

    // Out. No network of Docker's is there.
    let uninstall = block(DOCKER, "\n## Uninstalling\n");
    let ours = uninstall.lines().filter(|line| !line.starts_with("docker"));
    host.run(&ours.collect::<Vec<_>>().join("\n"))?;
    assert_eq!(host.plugin(), replaced);
    assert!(host.systemd.processes(SERVICE).is_empty());
    assert!(!host.root.join("var/lib/leasehold").exists());
    assert_eq!(containerd.exec("web", &shown)?, before);

    // As on any other distribution.
    host.run(&block(README, "\nOn any other distribution"))?;
    assert!(host.clone.join("built").exists());
    host.is_held()?;

    // An image's copies.
    let id = || fs::read_to_string(host.root.join("etc/machine-id")).expect("it is there");
    let old = id();
    host.run(&block(DOCKER, "Give each host its own id"))?;
    assert_ne!(id(), old);
    host.run(&command(
        DOCKER,
        "needs one before the plugin can be enabled",
    ))?;
    assert_eq!(id().trim().len(), 32);
    Ok(())
}
