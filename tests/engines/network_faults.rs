//! A call fails, or dockerd is killed during it. Neither a link nor a lease is left, and the network still works.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use netns_fixtures::engine::between::{Between, Fate, REFUSAL};
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{DEADLINE, Dockerd, Error, Lan, Netns, Sandbox, sandbox, until_link};

use crate::docker::{Host, LAN, kill_in, needs};
use crate::network::{links, of_form};
use crate::network_restarts::UNSAID;

/// Docker's name for our drivers here, and the drivers that may give out addresses.
const FAULTY: &str = "faulty";
const FORMS: [&str; 2] = ["null", FAULTY];

/// The calls in the life of a network and of a container in it, in order, each with the command that fails when it does.
const CALLS: [(&str, Option<Command>); 13] = [
    ("IpamDriver.RequestPool", Some(Command::Create)),
    ("NetworkDriver.CreateNetwork", Some(Command::Create)),
    ("IpamDriver.RequestAddress", Some(Command::Run)),
    ("NetworkDriver.CreateEndpoint", Some(Command::Run)),
    ("NetworkDriver.Join", Some(Command::Run)),
    (
        "NetworkDriver.ProgramExternalConnectivity",
        Some(Command::Run),
    ),
    ("NetworkDriver.EndpointOperInfo", Some(Command::Run)),
    ("NetworkDriver.RevokeExternalConnectivity", None),
    ("NetworkDriver.Leave", None),
    ("NetworkDriver.DeleteEndpoint", None),
    ("IpamDriver.ReleaseAddress", None),
    ("NetworkDriver.DeleteNetwork", None),
    ("IpamDriver.ReleasePool", None),
];

/// A user's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Create,
    Run,
}

/// Returns whether our drivers get a call in this form.
fn is_ours(form: &str, call: &str) -> bool {
    form == FAULTY || call.starts_with("NetworkDriver.")
}

/// Returns the files of a directory on which something is mounted.
fn mounted_in(dir: &str) -> impl Iterator<Item = PathBuf> {
    let device = |path: &Path| path.metadata().map(|found| found.dev()).ok();
    let own = device(dir.as_ref());
    let paths = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    paths.filter(move |path| device(path) != own)
}

/// A host whose plugin has faults.
struct Faulty {
    host: Host,
    between: Between,
    server: Dnsmasq,
    /// Its links, without those of containers.
    links: BTreeSet<String>,
}

impl Faulty {
    fn new(sandbox: &Sandbox) -> Result<Self, Error> {
        let host = Host::new(sandbox)?;
        let between = Between::start(FAULTY, "leasehold")?;
        let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
        Ok(Self {
            links: host.links()?,
            host,
            between,
            server,
        })
    }

    fn create(&self, form: &str) -> Result<(), Error> {
        let parent = format!("parent={}", Lan::IFNAME);
        let how = ["network", "create", "-d", FAULTY, "-o", &parent];
        self.docker(&[&how[..], &of_form(form, &parent, &["grace=0"]), &["lan"]].concat())
    }

    fn run(&self, name: &str) -> Result<(), Error> {
        self.host.docker.keep(name, &LAN)
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        self.docker(&["rm", "--force", name])
    }

    fn docker(&self, args: &[&str]) -> Result<(), Error> {
        self.host.docker.docker(args).map(drop)
    }

    /// Runs a container on the LAN, and removes it.
    fn is_usable(&self, name: &str) -> Result<(), Error> {
        self.run(name)?;
        self.host.address(name)?;
        self.host.pings(name)?;
        self.remove(name)
    }

    /// Lets a network and a container live, with a fault in one call.
    fn lives_with(
        &self,
        form: &str,
        call: &str,
        fails: Option<Command>,
        fate: Fate,
    ) -> Result<(), Error> {
        self.between.next(call, fate);
        let expected = |result: Result<(), Error>, command| match (result, fails == Some(command)) {
            (Err(error), true) if fate == Fate::Refused => {
                assert!(error.to_string().contains(REFUSAL), "{call}: {error}");
                Ok(false)
            }
            (Err(_), true) => Ok(false),
            (Ok(()), false) => Ok(true),
            (Ok(()), true) => panic!("{form}: {call}: {fate:?}: nobody was told"),
            (Err(error), false) => Err(error),
        };
        if !expected(self.create(form), Command::Create)? {
            self.create(form)?;
        }
        expected(self.run("web"), Command::Run)?;
        self.remove("web")?;
        self.is_usable("db")?;
        self.docker(&["network", "rm", "lan"])?;
        assert!(self.between.has_met(), "{form}: there was no {call}");
        Ok(())
    }

    /// Ends dockerd during a call about a container that comes or goes, and lets the next dockerd go on.
    fn dies_in(&mut self, call: &str, fate: Fate) -> Result<(), Error> {
        let comes = CALLS
            .iter()
            .any(|(known, fails)| *known == call && *fails == Some(Command::Run));
        if !comes {
            self.run("web")?;
        }
        self.between.next(call, fate);
        let command = || {
            if comes {
                self.run("web")
            } else {
                self.remove("web")
            }
        };
        kill_in(&self.host.docker, command, || self.between.wait_until_met())?;
        self.host.docker.kill9()?;
        self.host.docker.launch(&[])?;
        // It may know of the container or not.
        let _ = self.remove("web");
        self.is_usable("db")
    }

    /// Waits until nothing of any container is left, which may take as long as Docker may stay silent.
    fn is_as_before(&self) -> Result<(), Error> {
        let within = UNSAID + DEADLINE;
        let as_before = || Ok((self.host.links()? == self.links).then_some(()));
        until_link(
            &self.host.lab.lan.host,
            "the links of the host as they were",
            within,
            as_before,
        )?;
        let none = |leases: &[_]| leases.is_empty().then_some(());
        self.server
            .wait_for("the end of every lease", within, none)?;
        for path in mounted_in(Dockerd::NETNS) {
            let netns = Netns::open(self.host.lab.lan.host.sandbox(), path)?;
            assert_eq!(links(&netns)?, BTreeSet::from(["lo".to_owned()]));
        }
        self.host.lab.daemon().wait_until_empty()
    }
}

#[test]
fn an_error_in_any_call_leaves_a_clean_network() -> Result<(), Error> {
    let mut faulty = Faulty::new(&sandbox!(&needs()))?;
    for form in FORMS {
        for fate in [Fate::Refused, Fate::Garbled] {
            for (call, fails) in CALLS.into_iter().filter(|(call, _)| is_ours(form, call)) {
                faulty.lives_with(form, call, fails, fate)?;
            }
        }
    }
    // A link whose container may still be starting stays for ten minutes, or for one after dockerd has restarted.
    faulty.host.docker.kill9()?;
    faulty.host.docker.launch(&[])?;
    faulty.docker(&["volume", "ls"])?;
    faulty.is_as_before()
}

/// The calls from the request for an address until it is given back.
const OF_A_CONTAINER: [&str; 6] = [
    "IpamDriver.RequestAddress",
    "NetworkDriver.CreateEndpoint",
    "NetworkDriver.Join",
    "NetworkDriver.Leave",
    "NetworkDriver.DeleteEndpoint",
    "IpamDriver.ReleaseAddress",
];

#[test]
fn a_dockerd_killed_in_any_call_leaves_a_clean_network() -> Result<(), Error> {
    let mut faulty = Faulty::new(&sandbox!(&needs()))?;
    for form in FORMS {
        faulty.create(form)?;
        for fate in [Fate::HungUp, Fate::Unheard] {
            for call in OF_A_CONTAINER
                .into_iter()
                .filter(|call| is_ours(form, call))
            {
                faulty.dies_in(call, fate)?;
            }
        }
        faulty.docker(&["network", "rm", "lan"])?;
    }
    faulty.is_as_before()
}
