//! A server as a process: started, stopped, restarted, and read from its lease file.

use std::fmt::Debug;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::Grants;
use crate::error::{Doing, Error};
use crate::lan::Lan;
use crate::need::Need;
use crate::netns::Netns;
use crate::process::{DEADLINE, Log, Process};
use crate::wait::{until_file, until_found};

/// A DHCP server's program: how to configure it, and how to read its lease file.
pub trait Program: Debug {
    /// What it gives out, including what only this program has.
    type Config: Clone + Debug + Default + From<Grants>;
    /// Its name.
    const NAME: &str;
    /// What it needs.
    const NEEDS: &[Need];
    /// The shortest lease that it grants.
    const SHORTEST: Duration;
    /// Whether it answers a RENEW of an address that is not the client's with a NAK, or not at all.
    const REFUSES_RENEWALS: bool;
    /// A line that it writes just before it serves.
    const READY: &str;

    /// Returns the command that serves on [`Lan::IFNAME`] in the foreground.
    fn command(config: &Self::Config, place: &Place) -> Result<Command, Error>;

    /// Reads a whole lease file: every record, oldest first. An address's last record counts.
    fn read(file: &[u8]) -> Result<Vec<Lease>, Error>;
}

/// Where a server keeps its files.
#[derive(Debug)]
pub struct Place {
    dir: PathBuf,
}

impl Place {
    /// Returns the path of its lease file, which exists.
    pub fn lease_file(&self) -> PathBuf {
        self.file("leases")
    }

    /// Returns the path of a file.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Writes a file and returns its path.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.file(name);
        fs::write(&path, text).doing(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    /// Returns a copy of a program that no AppArmor profile covers: Debian's profiles let these servers use only the system's own
    /// files.
    pub fn unconfined(&self, program: &str) -> Result<PathBuf, Error> {
        let original = Need::program(program).ok_or_else(|| Error::NotBuilt(program.into()))?;
        let copy = self.file(program);
        if !copy.exists() {
            fs::copy(&original, &copy).doing(|| format!("copy {}", original.display()))?;
        }
        Ok(copy)
    }
}

/// A record of a lease file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The address.
    pub address: Ipv4Addr,
    /// The client's hardware address, as text.
    pub mac: String,
    /// When it began, in seconds since the epoch, if the server writes it.
    pub began: Option<u64>,
    /// When it ends, in seconds since the epoch.
    pub expires: u64,
    /// Whether a client holds it: it was granted, and not released.
    pub held: bool,
}

/// A server, running or not, with its lease file.
#[derive(Debug)]
pub struct Server<P: Program> {
    netns: Netns,
    place: Place,
    config: P::Config,
    process: Option<Process>,
}

impl<P: Program> Server<P> {
    /// Starts it in the server's namespace of a LAN.
    pub fn start(lan: &Lan, config: impl Into<P::Config>) -> Result<Self, Error> {
        Self::start_in(&lan.server, config)
    }

    /// Starts it in a namespace, on its link [`Lan::IFNAME`].
    pub fn start_in(netns: &Netns, config: impl Into<P::Config>) -> Result<Self, Error> {
        let mut server = Self::new(netns, config.into())?;
        server.launch()?;
        Ok(server)
    }

    /// Starts another server in another namespace, with the same configuration and a copy of the lease file, to take over from
    /// this one.
    pub fn take_over(&self, netns: &Netns) -> Result<Self, Error> {
        let mut server = Self::new(netns, self.config.clone())?;
        fs::copy(self.place.lease_file(), server.place.lease_file())
            .doing(|| "copy the lease file".to_owned())?;
        server.launch()?;
        Ok(server)
    }

    fn new(netns: &Netns, config: P::Config) -> Result<Self, Error> {
        let place = Place {
            dir: netns.sandbox().dir(P::NAME)?,
        };
        place.write("leases", "")?;
        Ok(Self {
            netns: netns.clone(),
            place,
            config,
            process: None,
        })
    }

    /// Stops it; the lease file stays.
    pub fn stop(&mut self) -> Result<(), Error> {
        self.process
            .take()
            .map_or(Ok(()), |process| process.terminate().map(drop))
    }

    /// Starts it again, with another configuration if one is given.
    pub fn restart(&mut self, config: Option<P::Config>) -> Result<(), Error> {
        self.stop()?;
        if let Some(config) = config {
            self.config = config;
        }
        self.launch()
    }

    /// Forgets all leases of a stopped server.
    pub fn forget_leases(&mut self) -> Result<(), Error> {
        self.place.write("leases", "").map(drop)
    }

    /// Reads the lease file: every record, oldest first.
    pub fn history(&self) -> Result<Vec<Lease>, Error> {
        P::read(&self.settled_lease_file()?)
    }

    /// Returns the leases that are held, each in its latest state.
    pub fn leases(&self) -> Result<Vec<Lease>, Error> {
        Ok(held(&self.history()?))
    }

    /// Returns the lease of a client, by its hardware address.
    pub fn lease_of(&self, mac: &str) -> Result<Option<Lease>, Error> {
        Ok(self.leases()?.into_iter().find(|lease| lease.mac == mac))
    }

    /// Waits until the history fits, looking whenever the lease file changes.
    pub fn wait_for<T>(
        &self,
        awaited: &str,
        limit: Duration,
        mut fits: impl FnMut(&[Lease]) -> Option<T>,
    ) -> Result<T, Error> {
        until_file(
            &self.place.dir,
            &format!("{awaited} in {}'s lease file", P::NAME),
            limit,
            || Ok(fits(&self.history()?)),
        )
    }

    /// Waits until the lease that a client holds fits.
    pub fn wait_for_lease<T>(
        &self,
        mac: &str,
        awaited: &str,
        limit: Duration,
        mut fits: impl FnMut(&Lease) -> Option<T>,
    ) -> Result<T, Error> {
        self.wait_for(awaited, limit, |history| {
            held(history)
                .iter()
                .find(|lease| lease.mac == mac)
                .and_then(&mut fits)
        })
    }

    /// Waits until no lease is held.
    pub fn wait_until_free(&self) -> Result<(), Error> {
        self.wait_for("release of all leases", DEADLINE, |history| {
            held(history).is_empty().then_some(())
        })
    }

    /// Returns its output in the current run.
    pub fn log(&self) -> Option<&Log> {
        self.process.as_ref().map(Process::log)
    }

    /// Waits until it has written a line with `text`.
    ///
    /// # Panics
    /// While it is stopped.
    pub fn wait_for_line(&mut self, text: &str) -> Result<(), Error> {
        self.process
            .as_mut()
            .expect("the server runs")
            .wait_for_line(text)
    }

    pub(super) fn netns(&self) -> &Netns {
        &self.netns
    }

    fn launch(&mut self) -> Result<(), Error> {
        let command = P::command(&self.config, &self.place)?;
        let mut process = Process::start(&self.netns, P::NAME, command)?;
        process.wait_for_line(P::READY)?;
        // Some write it a little too early, but then go on to their first wait.
        at_rest(Some(&process), || Ok(true), |_| true)?;
        self.process = Some(process);
        Ok(())
    }

    /// Returns the lease file as it is while the server is not writing it. Some servers empty and rewrite it for every change,
    /// and what it shows meanwhile must not look like leases given back.
    fn settled_lease_file(&self) -> Result<Vec<u8>, Error> {
        let read = || read(&self.place.lease_file());
        at_rest(self.process.as_ref(), read, |before| {
            read().is_ok_and(|after| after == *before)
        })
    }
}

fn read(file: &Path) -> Result<Vec<u8>, Error> {
    fs::read(file).doing(|| format!("read {}", file.display()))
}

/// Looks while a process is at rest, as `still` confirms afterwards.
fn at_rest<T>(
    process: Option<&Process>,
    look: impl Fn() -> Result<T, Error>,
    still: impl Fn(&T) -> bool,
) -> Result<T, Error> {
    until_found("rest of a DHCP server", DEADLINE, || {
        let seen = look()?;
        Ok((process.is_none_or(Process::is_asleep) && still(&seen)).then_some(seen))
    })
}

fn held(history: &[Lease]) -> Vec<Lease> {
    let is_latest =
        |(i, lease): &(usize, &Lease)| !history[i + 1..].iter().any(|l| l.address == lease.address);
    history
        .iter()
        .enumerate()
        .filter(is_latest)
        .map(|(_, lease)| lease)
        .filter(|l| l.held)
        .cloned()
        .collect()
}
