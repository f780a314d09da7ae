//! A host that is ready to use: a LAN, the daemon on its host, the shim, and containers with their leases.

use std::net::Ipv4Addr;
use std::process::ExitStatus;

use serde_json::{Value, json};

use crate::container::{Container, result_addresses};
use crate::daemon::{Daemon, Home, Sight};
use crate::error::Error;
use crate::incumbent::write_cache;
use crate::lan::Lan;
use crate::link::mac_text;
use crate::sandbox::Sandbox;
use crate::shim::{CallError, Shim};

/// A LAN with a daemon on its host.
#[derive(Debug)]
pub struct Lab {
    /// The LAN.
    pub lan: Lan,
    /// The shim.
    pub shim: Shim,
    /// The network's CNI configuration, which every call gets.
    pub config: Value,
    home: Home,
    daemon: Option<Daemon>,
}

/// A container with its lease.
#[derive(Debug)]
pub struct Member {
    /// The container.
    pub container: Container,
    /// The result of its ADD.
    pub result: Value,
    /// Its address.
    pub address: Ipv4Addr,
}

impl Lab {
    /// Makes a LAN and starts a daemon on its host.
    pub fn new(sandbox: &Sandbox) -> Result<Self, Error> {
        let mut lab = Self::without_daemon(sandbox)?;
        lab.start_daemon()?;
        Ok(lab)
    }

    /// Makes a LAN whose host has no daemon yet.
    pub fn without_daemon(sandbox: &Sandbox) -> Result<Self, Error> {
        let lan = Lan::new(sandbox)?;
        let home = Home::new(&lan.host)?;
        Self::at_home(lan, home)
    }

    /// Makes a LAN whose host has no daemon yet, and whose daemons are started without arguments. Call it only when an engine is
    /// ready, because the engine gives the sandbox its own `/var/lib`.
    pub fn of_the_system(sandbox: &Sandbox) -> Result<Self, Error> {
        let lan = Lan::new(sandbox)?;
        let home = Home::of_the_system(&lan.host)?;
        Self::at_home(lan, home)
    }

    /// Makes a lab whose daemon is a Docker plugin.
    pub fn with_docker(sandbox: &Sandbox) -> Result<Self, Error> {
        let mut lab = Self::without_daemon(sandbox)?;
        lab.home.with_docker()?;
        lab.start_daemon()?;
        Ok(lab)
    }

    /// Makes a lab whose daemon has its read-only socket.
    pub fn with_read_socket(sandbox: &Sandbox) -> Result<Self, Error> {
        let mut lab = Self::without_daemon(sandbox)?;
        lab.home.with_read_socket()?;
        lab.start_daemon()?;
        Ok(lab)
    }

    fn at_home(lan: Lan, home: Home) -> Result<Self, Error> {
        let (shim, config) = (Shim::new(&lan.host)?, Lan::cni_config(&home.socket()));
        Ok(Self {
            lan,
            shim,
            config,
            home,
            daemon: None,
        })
    }

    /// Returns where its daemons keep their files.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Returns the daemon.
    ///
    /// # Panics
    /// While it is down.
    pub fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("the daemon is up")
    }

    /// Waits until the daemon's log has a line with `text`.
    ///
    /// # Panics
    /// While it is down.
    pub fn wait_for_line(&mut self, text: &str) -> Result<(), Error> {
        self.daemon
            .as_mut()
            .expect("the daemon is up")
            .wait_for_line(text)
    }

    /// Starts the daemon, for the first time or again, and waits until it is ready.
    pub fn start_daemon(&mut self) -> Result<(), Error> {
        self.start_daemon_with(&Sight::Whole)
    }

    /// Does the same for a daemon that may not see the containers' namespaces.
    pub fn start_daemon_with(&mut self, sight: &Sight) -> Result<(), Error> {
        self.daemon = Some(Daemon::start_with(&self.lan.host, &self.home, sight)?);
        Ok(())
    }

    /// Ends the daemon with SIGKILL.
    pub fn kill9(&mut self) -> Result<(), Error> {
        self.daemon.take().map_or(Ok(()), Daemon::kill9)
    }

    /// Ends the daemon as a power cut does. The next one finds another boot, and the same store.
    pub fn lose_power(&mut self) -> Result<(), Error> {
        self.kill9()?;
        self.home.boot_again(&self.lan.host)
    }

    /// Ends the daemon with SIGTERM; `None` if it is already down.
    pub fn terminate(&mut self) -> Result<Option<ExitStatus>, Error> {
        self.daemon.take().map(Daemon::terminate).transpose()
    }

    /// Attaches a container as a runtime does: makes it, asks for its address, configures its interface.
    pub fn attach(&self, id: &str) -> Result<Member, CallError> {
        let member = self.add(self.lan.container(id)?)?;
        member.container.configure(&member.result)?;
        Ok(member)
    }

    /// Adds a container to libcni's cache, as a runtime does when the main plugin has made its interface.
    pub fn cache(&self, member: &Member) -> Result<(), Error> {
        let Member {
            container, result, ..
        } = member;
        let mut result = result.clone();
        result["interfaces"] = json!([{ "name": container.ifname, "mac": member.mac(), "sandbox": container.netns.path() }]);
        result["ips"]
            .as_array_mut()
            .into_iter()
            .flatten()
            .for_each(|ip| ip["interface"] = 0.into());
        write_cache(&self.home.cni_cache(), container, &self.config, &result)
    }

    /// Asks for a container's address, and leaves its interface unconfigured.
    pub fn add(&self, container: Container) -> Result<Member, CallError> {
        let result = self.shim.add(&container, &self.config)?;
        let addresses = result_addresses(&result)?;
        let (address, _) = addresses.first().ok_or_else(|| no_address(&result))?;
        Ok(Member {
            container,
            address: address.addr(),
            result,
        })
    }

    /// Asks whether a container still has what its ADD gave it.
    pub fn check(&self, member: &Member) -> Result<(), CallError> {
        self.shim
            .check(&member.container, &self.config, &member.result)
    }

    /// Gives a container's lease back.
    pub fn detach(&self, member: &Member) -> Result<(), CallError> {
        self.shim.del(&member.container, &self.config)
    }
}

impl Member {
    /// Returns the Ethernet address of its interface as text.
    pub fn mac(&self) -> String {
        mac_text(self.container.mac)
    }
}

fn no_address(result: &Value) -> Error {
    Error::unreadable("the address in a CNI result", result.to_string())
}
