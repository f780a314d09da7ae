//! The package for Debian, on a Debian that systemd runs, under containers of its own containerd and podman.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use leasehold_tests::documents::block;
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{
    CallError, Capture, Container, Containerd, DEADLINE, Debian13, Engine, Error, Lan, Need, Netns,
    Podman, Shim, Systemd, assert_says, sandbox, until_found,
};
use serde_json::{Value, json};

use super::{DIST, LaterStore, PACKAGING, Shipped};

/// Debian's own plugin, which another package owns.
const PLUGIN: &str = "/usr/lib/cni/dhcp";

/// A main plugin, which runtimes call, and which calls Debian's `dhcp`.
const MAIN: &str = "/usr/lib/cni/macvlan";

/// The containers beside those of the engines.
const LEASES: usize = 50;

const SERVICE: &str = "leasehold.service";

/// A container with the result of its ADD.
struct Member(Container, Value);

/// A Debian with containers that get their addresses through the package's plugin.
struct Debian {
    systemd: Systemd,
    /// Where its processes run.
    host: Netns,
    root: PathBuf,
    network: Value,
    members: Vec<Member>,
    /// How many leases the engines' containers have.
    of_engines: usize,
}

impl Debian {
    /// Boots it from these files, without the package.
    fn new(lan: &Lan, files: &Path) -> Result<Self, CallError> {
        let (systemd, host, root) = Systemd::debian(&lan.host, files)?;
        let mut network = Lan::cni_config(Path::new(""));
        network["ipam"] = json!({ "type": "dhcp" });
        Ok(Self {
            systemd,
            host,
            root,
            network,
            members: Vec::new(),
            of_engines: 0,
        })
    }

    /// Runs a dpkg command on one thing, and returns what it printed.
    fn dpkg(&self, what: &str, of: &str) -> Result<String, CallError> {
        Ok(self.systemd.run("dpkg", &[what, of])?)
    }

    /// Returns the plugin that runtimes find.
    fn plugin(&self) -> Vec<u8> {
        fs::read(self.root.join(&PLUGIN[1..])).expect("it is there")
    }

    fn daemon(&self) -> u32 {
        let [daemon] = self.systemd.processes(SERVICE)[..] else {
            panic!("no daemon, or several")
        };
        daemon
    }

    /// Returns how many leases are held.
    fn held(&self) -> Result<usize, CallError> {
        Ok(self
            .systemd
            .run("leasehold", &["list"])?
            .matches("BOUND")
            .count())
    }

    /// Adds containers as a runtime does.
    fn add_members(&mut self, lan: &Lan) -> Result<(), CallError> {
        let shim = Shim::at(&self.host, PLUGIN.into());
        for i in 0..LEASES {
            let container = lan.container(&format!("c{i}"))?;
            let result = shim.add(&container, &self.network)?;
            container.configure(&result)?;
            self.members.push(Member(container, result));
        }
        Ok(())
    }

    /// Has every container checked, those of the engines with what the engines remember of them, as a runtime would.
    fn check_all(&self) -> Result<(), CallError> {
        let shim = Shim::at(&self.host, PLUGIN.into());
        self.members
            .iter()
            .try_for_each(|Member(container, result)| {
                shim.check(container, &self.network, result)
            })?;
        let cache =
            fs::read_dir(self.root.join("var/lib/cni/results")).expect("libcni has made it");
        let mut checked = 0;
        for entry in cache {
            let text =
                fs::read_to_string(entry.expect("it can be read").path()).expect("it is a text");
            let cached: Value = serde_json::from_str(&text).expect("it is JSON");
            let text = |value: &Value| value.as_str().expect("a text").to_owned();
            let mut network = self.network.clone();
            network["prevResult"] = cached["result"].clone();
            let [id, ifname, netns] = [
                &cached["containerId"],
                &cached["ifName"],
                &cached["result"]["interfaces"][0]["sandbox"],
            ]
            .map(text);
            let env = [
                ("CNI_CONTAINERID", &*id),
                ("CNI_IFNAME", &*ifname),
                ("CNI_NETNS", &*netns),
            ];
            let main = Shim::at(&self.host, MAIN.into());
            main.start_with("CHECK", &env, network.to_string().as_bytes())?
                .wait()?;
            checked += 1;
        }
        assert_eq!(checked, self.of_engines);
        Ok(())
    }

    /// Replaces the installed package with another while all containers are being checked. The daemon must then be that of the
    /// new package, hold all leases, and have sent nothing.
    fn change_to(&self, package: &str, seen: &mut Capture) -> Result<(), CallError> {
        let before = self.daemon();
        let changed = AtomicBool::new(false);
        thread::scope(|s| {
            let checks = s.spawn(|| {
                // To the end, and once after it.
                while !changed.load(Ordering::Relaxed) {
                    self.check_all()?;
                }
                self.check_all()
            });
            let done = self.dpkg("--install", package);
            changed.store(true, Ordering::Relaxed);
            checks.join().expect("a check does not panic")?;
            done
        })?;
        assert_ne!(self.daemon(), before);
        assert_eq!(self.held()?, LEASES + self.of_engines);
        let sent = seen.dhcp()?;
        assert!(sent.is_empty(), "{package} sent {sent:?}");
        Ok(())
    }
}

#[test]
fn what_is_missing_to_build_is_said_in_one_sentence() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::RealRoot, Debian13::NEED]);
    let host = Debian13::host(&Netns::new(&sandbox, "host")?)?;
    let tree = sandbox.dir("tree")?;
    let script = tree.join("daemon/dist/can-build");
    fs::create_dir_all(script.with_file_name("")).expect("an empty directory takes more");
    fs::copy(format!("{DIST}/can-build"), &script).expect("there is room");
    let says = |needed: &str, path: &str| {
        let manifest = format!("rust-version = \"{needed}\"\n");
        fs::write(tree.join("Cargo.toml"), manifest).expect("there is room");
        host.run_command(
            "env",
            &[&format!("PATH={path}"), &script.to_string_lossy()],
            "",
        )
    };
    let said = says("1.95", "/usr/bin:/bin").expect_err("1.85 is too old");
    assert_says(&said, "leasehold needs Rust 1.95 or later, and finds 1.85.");
    // Nor is a tool built before that is said.
    let build = tree.join("daemon/dist/packages/build");
    fs::create_dir_all(build.with_file_name("")).expect("the directory takes more");
    fs::copy(format!("{DIST}/packages/build"), &build).expect("there is room");
    let packages = tree.join("packages");
    let said = host
        .run_command(
            &build.to_string_lossy(),
            &[&packages.to_string_lossy(), "amd64"],
            "",
        )
        .expect_err("1.85 is too old for that too");
    assert!(
        said.to_string()
            .contains("status: 1: leasehold needs Rust 1.95 or later, and finds 1.85."),
        "{said}"
    );
    says("1.85", "/usr/bin:/bin")?;
    // All that the script uses, and no linker.
    let bin = tree.join("bin");
    fs::create_dir(&bin).expect("there is room");
    for tool in [
        "sh", "sed", "dirname", "cut", "printf", "sort", "head", "rustc",
    ] {
        std::os::unix::fs::symlink(format!("/usr/bin/{tool}"), bin.join(tool)).expect("a name");
    }
    let said = says("1.85", &bin.to_string_lossy()).expect_err("there is no cc");
    assert_says(&said, "and finds no `cc`: install gcc");
    Ok(())
}

#[test]
fn a_package_is_upgraded_and_removed_under_containers() -> Result<(), CallError> {
    let needs = [Podman::NEEDS, &[Need::File(PLUGIN)]].concat();
    comes_changes_and_goes(&needs, || Ok("/".into()), true)
}

/// Its podman has no CNI.
#[test]
fn a_package_comes_changes_and_goes_on_debian_13_too() -> Result<(), CallError> {
    comes_changes_and_goes(&[Debian13::NEED], Debian13::root, false)
}

/// Installs, upgrades, downgrades, removes and purges a package on a Debian with these files, under containers of its containerd,
/// and of its podman if that speaks CNI.
fn comes_changes_and_goes(
    needs: &[Need],
    files: impl FnOnce() -> Result<PathBuf, Error>,
    with_podman: bool,
) -> Result<(), CallError> {
    let own = [Need::Program("systemd"), Need::Program("dnsmasq")];
    let needs = [&PACKAGING[..], Containerd::NEEDS, &own, needs].concat();
    let sandbox = sandbox!(&needs);
    let files = files()?;
    let lan = Lan::new(&sandbox)?;
    let server = Dnsmasq::start(&lan, DnsmasqConfig::default())?;
    let shipped = Shipped::new(&lan.host)?;
    let [first, second] = ["1", "2"].map(|revision| shipped.packages(revision, "deb"));
    let [first, second] = [first?, second?].map(|dir| Shipped::file(&dir, ".deb"));
    let mut debian = Debian::new(&lan, &files)?;

    // As README has it.
    let install = block("README.md", "\nOn Debian and Ubuntu");
    let both = install.lines().find(|line| line.starts_with("apt "));
    let (apt, install) = both.and_then(|line| line.split_once(" && ")).expect("both");
    let packages = sandbox.dir("clone")?.join("packages");
    fs::create_dir(&packages).expect("an empty directory takes more");
    fs::copy(&first, packages.join("leasehold.deb")).expect("there is room");
    let apt = format!("cd {}/..; {apt}", packages.display());
    debian.systemd.run("sh", &["-ec", &apt])?;
    debian.daemon();
    let incumbent = fs::read(files.join(&PLUGIN[1..])).expect("it is there");
    // The package itself puts nothing into CNI directories.
    assert_eq!(debian.plugin(), incumbent);
    let said = debian.systemd.run("sh", &["-ec", install])?;
    assert!(
        said.contains("the file of the package containernetworking-plugins is diverted"),
        "{said}"
    );
    assert_ne!(debian.plugin(), incumbent);

    let containerd = Containerd::start_on(&debian.host, &debian.network)?;
    containerd.keep("web")?;
    let podman = if with_podman {
        let podman = Podman::start_on(&debian.host, &debian.network)?;
        podman.keep("web")?;
        Some(podman)
    } else {
        None
    };
    debian.of_engines = 1 + usize::from(with_podman);
    debian.add_members(&lan)?;
    let listed = debian.systemd.run("leasehold", &["list"])?;
    let shown = ["ip", "-4", "addr", "show", "dev", Lan::IFNAME];
    let addresses = || {
        let mut addresses = vec![containerd.exec("web", &shown)?];
        if let Some(podman) = &podman {
            addresses.push(podman.exec("web", &shown)?);
        }
        Ok::<_, CallError>(addresses)
    };
    let of_engines = addresses()?;
    for printed in &of_engines {
        let address = printed
            .split_once("inet ")
            .and_then(|(_, rest)| rest.split_once(' '))
            .unwrap_or_default()
            .0;
        assert!(
            listed.contains(&format!(" {address} ")),
            "{printed}: {listed}"
        );
    }

    let mut seen = Capture::start(&lan.server, Lan::IFNAME)?;
    debian.change_to(&second, &mut seen)?;
    debian.change_to(&first, &mut seen)?;

    // As a later release would leave it, while its daemon runs.
    let later = LaterStore::put_into(&debian.root);
    let (daemon, plugin) = (debian.daemon(), debian.plugin());
    let said = debian
        .dpkg("--install", &second)
        .expect_err("it cannot take over")
        .to_string();
    assert_says(&said, LaterStore::SAID);
    assert_says(&said, "dpkg --configure leasehold");
    assert_eq!((debian.daemon(), debian.plugin()), (daemon, plugin));
    debian.check_all()?;
    later.take_back();
    debian.dpkg("--configure", "leasehold")?;
    assert_ne!(debian.daemon(), daemon);

    // Debian's own upgrades go to where the diversion leads.
    let truename = || debian.systemd.run("dpkg-divert", &["--truename", PLUGIN]);
    assert_eq!(truename()?.trim(), format!("{PLUGIN}.before-leasehold"));
    // Beside a runtime's configuration, and none itself.
    let readme = debian.root.join("etc/crio/crio.conf.d");
    fs::create_dir_all(&readme).expect("a root takes a directory");
    fs::write(readme.join("README"), "Put files here.").expect("it takes a file");
    let said = debian.dpkg("--remove", "leasehold")?;
    assert_says(&said, "running containers keep their addresses");
    let found = (debian.systemd.processes(SERVICE), debian.plugin());
    assert_eq!(found, (vec![], incumbent));
    assert_eq!(truename()?.trim(), PLUGIN);
    for Member(container, result) in &debian.members {
        let addresses = netns_fixtures::result_addresses(result)?;
        assert_eq!(
            container.addresses()?,
            addresses
                .into_iter()
                .map(|(address, _)| address)
                .collect::<Vec<_>>()
        );
    }
    assert_eq!(addresses()?, of_engines);

    debian.dpkg("--install", &second)?;
    // Only a purge forgets leases.
    assert_eq!(debian.held()?, LEASES + debian.of_engines);
    let sent = seen.dhcp()?;
    assert!(sent.is_empty(), "removal or return sent {sent:?}");
    fs::remove_file(readme.join("README")).expect("it was written");
    debian.systemd.run("leasehold", &["install"])?;
    let Member(last, _) = debian.members.last().expect("there are some");
    Shim::at(&debian.host, PLUGIN.into()).del(last, &debian.network)?;
    assert_eq!(debian.held()?, LEASES + debian.of_engines - 1);

    // Without the later release's leases, as the document says.
    let _later = LaterStore::put_into(&debian.root);
    debian
        .dpkg("--install", &first)
        .expect_err("it cannot take over");
    let way_out = block(
        "daemon/docs/reference.md",
        "wrote in a format that it does not",
    );
    debian.systemd.run("sh", &["-ec", &way_out])?;
    let web = of_engines[0]
        .split_once("inet ")
        .expect("it has an address")
        .1;
    let web = format!(" {} ", web.split(' ').next().unwrap_or_default());
    until_found("adoption of what runs", DEADLINE, || {
        let listed = debian.systemd.run("leasehold", &["list"])?;
        Ok(listed
            .lines()
            .any(|line| line.contains("BOUND") && line.contains(&web))
            .then_some(()))
    })?;
    assert!(
        debian
            .root
            .join("var/lib/leasehold/leases.redb.kept")
            .exists()
    );

    // Where the store is copied to once Docker was served.
    let copy = "/run/cni/dhcp.sock.copy";
    debian
        .systemd
        .run("mkdir", &["-p", &format!("{copy}/records")])?;
    let said = debian.dpkg("--purge", "leasehold")?;
    assert_says(&said, "forgetting all leases in /var/lib/leasehold");
    for left in [
        "var/lib/leasehold",
        "etc/default/leasehold",
        "etc/systemd/system/multi-user.target.wants/leasehold.service",
    ] {
        assert!(!debian.root.join(left).exists(), "{left}");
    }
    assert!(!Path::new(copy).exists(), "it goes too");
    assert_eq!(server.leases()?.len(), LEASES + debian.of_engines - 1);
    Ok(())
}
