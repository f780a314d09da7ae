//! One call of a runtime, from its configuration to its answer.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_api::add_timeout;
use leasehold_api::cni::{
    Args, BadKey, Code, Config, Dns, Env, Error, Holder, HostLocal, Ip, Route, Success, Verb,
    Version, asked, bad_config, named, netns, network, refused,
};
use leasehold_range::{Allocator, NotGiven, RangeAddress, Sets};

use crate::directory::{Directory, Locked, Names};
use crate::fault::Fault;
use crate::lock::{Progress, watched};
use crate::note::{Host, Life, Note};
use crate::{resolv_conf, usage};

/// How long a call waits for the lock if no container waits for the call.
const PATIENCE: Duration = Duration::from_secs(10);

/// A call of a runtime for a network with local ranges.
#[derive(Debug)]
pub struct Call {
    does: Does,
    directory: Directory,
    version: Version,
    /// `ADD of lan/0123/eth0`, for errors.
    about: String,
    patience: Duration,
    warnings: Vec<String>,
}

/// What a call does.
#[derive(Debug)]
enum Does {
    Add(Box<Add>),
    Del(Holder),
    Check(Holder),
    /// Frees all but these.
    Collect(BTreeSet<(String, String)>),
    Status,
}

#[derive(Debug)]
struct Add {
    by: Holder,
    netns: PathBuf,
    sets: Sets,
    asked: Vec<IpAddr>,
    routes: Vec<Route>,
    resolv_conf: Option<PathBuf>,
}

impl Call {
    /// Reads a call of a network of type `host-local`.
    ///
    /// # Errors
    /// The first fault found, in CNI's words.
    pub fn parse(env: &Env, config: &str) -> Result<Self, Error> {
        let (verb, config, version) = Verb::parse(env, config)?;
        Self::read(verb, env, &config, version).map_err(|error| error.in_version(version))
    }

    fn read(verb: Verb, env: &Env, config: &Config, version: Version) -> Result<Self, Error> {
        let network = network(config)?;
        let read = match config.host_local(version) {
            Ok(read) => read,
            // It also follows an ADD that failed because of its configuration, and must succeed.
            Err(_) if verb == Verb::Del => HostLocal {
                data_dir: config.data_dir(),
                ..HostLocal::default()
            },
            Err(bad) => return Err(refused(bad)),
        };
        // A path that is not absolute starts at the root, where runtimes run.
        let data_dir = read.data_dir.as_deref().unwrap_or(HostLocal::DATA_DIR);
        let directory = Directory::at(Path::new("/").join(data_dir).join(network));
        let by = || named(env, config).map(|named| named.holder());
        let does = match verb {
            Verb::Add => {
                let by = by()?;
                let said = config.runtime_config().map_err(refused)?;
                Does::Add(Box::new(Add {
                    by,
                    netns: netns(env)?,
                    sets: sets(&read)?,
                    asked: asked(config, &said, &Args::parse(env.args.as_deref()))?,
                    routes: read.routes,
                    resolv_conf: read.resolv_conf.map(PathBuf::from),
                }))
            }
            Verb::Del => Does::Del(by()?),
            Verb::Check => {
                let by = by()?;
                netns(env)?;
                sets(&read)?;
                Does::Check(by)
            }
            Verb::Gc => {
                let valid = config.valid_attachments().map_err(refused)?;
                Does::Collect(valid.into_iter().collect())
            }
            Verb::Status => {
                sets(&read)?;
                Does::Status
            }
        };
        let about = match verb {
            Verb::Add | Verb::Del | Verb::Check => named(env, config)?.to_string(),
            Verb::Gc | Verb::Status => network.to_owned(),
        };
        let (patience, warnings) = match verb {
            Verb::Add => {
                let ignored = config.ignored();
                (
                    add_timeout(read.timeout),
                    ignored.iter().map(BadKey::to_string).collect(),
                )
            }
            Verb::Del | Verb::Check | Verb::Gc | Verb::Status => (PATIENCE, Vec::new()),
        };
        Ok(Self {
            does,
            directory,
            version,
            about: format!("{} of {about}", verb.as_str()),
            patience,
            warnings,
        })
    }

    /// Returns what the caller should know about its configuration.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Carries the call out, and returns what the plugin prints: a result, or nothing.
    ///
    /// A directory or a file may hold this thread up for ever. When the call's time is over, another thread passes the reason to
    /// `late`, which answers the caller.
    ///
    /// # Errors
    /// Why it cannot be carried out, in CNI's words.
    pub fn run(
        &self,
        host: impl FnOnce() -> Host,
        late: impl FnOnce(Error) + Send + 'static,
    ) -> Result<String, Error> {
        let about = self.about.clone();
        let version = self.version;
        let is_status = matches!(self.does, Does::Status);
        let in_full = move |mut error: Error| {
            if is_status {
                error.code = Code::NotAvailable;
            }
            error.in_version(version).with_details(&about)
        };
        let late_in_full = {
            let in_full = in_full.clone();
            move |error| late(in_full(error))
        };
        watched(
            self.patience,
            self.directory.path(),
            late_in_full,
            |progress| self.carry_out(host, progress),
        )
        .map_err(in_full)
    }

    fn carry_out(&self, host: impl FnOnce() -> Host, progress: &Progress) -> Result<String, Error> {
        let resolv_conf = match &self.does {
            Does::Add(add) => add.resolv_conf.as_deref(),
            _ => None,
        };
        let dns = resolv_conf.map_or(Ok(Dns::default()), resolv_conf::read)?;
        match &self.does {
            Does::Add(_) | Does::Status => self.directory.make()?,
            Does::Del(_) | Does::Collect(_) if !self.directory.exists()? => {
                return Ok(String::new());
            }
            Does::Check(by) if !self.directory.exists()? => {
                return self.check(by, &Names::default());
            }
            _ => {}
        }
        let locked = self.directory.lock(progress)?;
        match &self.does {
            Does::Add(add) => {
                let given = self.give(add, &locked, &host())?;
                return Ok(add.success(&given, dns).render(self.version));
            }
            Does::Del(by) => self.give_back(by, &locked)?,
            Does::Check(by) => return self.check(by, &locked.names()?),
            Does::Collect(valid) => self.collect(valid, &locked)?,
            Does::Status => locked.try_file()?,
        }
        Ok(String::new())
    }

    /// Gives a container an address of each set.
    fn give(
        &self,
        add: &Add,
        locked: &Locked<'_>,
        host: &Host,
    ) -> Result<Vec<RangeAddress>, Error> {
        let mut names = locked.names()?;
        locked.sweep_after_boot(&mut names, host)?;
        let mut own = self.directory.held_by(&names, &add.by, false);
        for address in std::mem::take(&mut own) {
            // An earlier ADD of the same container, whose DEL never came.
            match self.directory.life(&names, address, host) {
                Life::Gone => locked.free(&mut names, address)?,
                Life::Lives | Life::Unclear => own.push(address),
            }
        }
        let note = Note::of(host, &add.netns);
        let mut is_swept = false;
        loop {
            let mut allocator = Allocator::new(add.sets.clone(), 0);
            for set in 0..add.sets.count() {
                if let Some(last) = locked.last(set) {
                    allocator.begin_after(set, last);
                }
            }
            match allocator.allocate(&own, &add.asked, &|address| names.has(address)) {
                Ok(given) => {
                    if add.write(&given, locked, &mut names, &note)? {
                        return Ok(given);
                    }
                }
                Err(NotGiven::Full(_) | NotGiven::Taken(_)) if !is_swept => {
                    is_swept = true;
                    locked.sweep(&mut names, host)?;
                }
                Err(refusal) => {
                    // As host-local does, the next search goes on after what this one had found.
                    for (set, last) in allocator.last() {
                        locked.set_last(set, last)?;
                    }
                    let container = &add.by.container;
                    let directory = &self.directory;
                    return Err(usage::refused(
                        refusal, container, &add.sets, directory, &names, host,
                    ));
                }
            }
        }
    }

    fn give_back(&self, by: &Holder, locked: &Locked<'_>) -> Result<(), Fault> {
        let mut names = locked.names()?;
        let mut own = self.directory.held_by(&names, by, false);
        if own.is_empty() {
            // A note may be of an earlier holder, if host-local has given the address meanwhile.
            own = self.directory.held_by(&names, by, true);
        }
        own.into_iter()
            .try_for_each(|address| locked.free(&mut names, address))
    }

    fn check(&self, by: &Holder, names: &Names) -> Result<String, Error> {
        let has = |each| !self.directory.held_by(names, by, each).is_empty();
        if has(false) || has(true) {
            return Ok(String::new());
        }
        let text = format!(
            "Failed to find address added by container {}: run ADD again",
            by.container
        );
        Err(Error::new(Code::UnknownContainer, text))
    }

    /// Frees each address whose file names a container that is not there any more.
    fn collect(
        &self,
        valid: &BTreeSet<(String, String)>,
        locked: &Locked<'_>,
    ) -> Result<(), Fault> {
        let mut names = locked.names()?;
        let is_valid = |holder: &Holder| {
            valid.iter().any(|(container, ifname)| {
                *container == holder.container
                    && holder.ifname.as_ref().is_none_or(|of| of == ifname)
            })
        };
        let taken: Vec<_> = names.addresses().collect();
        for address in taken {
            if self
                .directory
                .holder(address)
                .is_some_and(|holder| !is_valid(&holder))
            {
                locked.free(&mut names, address)?;
            }
        }
        Ok(())
    }
}

impl Add {
    /// Writes the files of what is given, or none. Returns whether nobody else had made one of them.
    fn write(
        &self,
        given: &[RangeAddress],
        locked: &Locked<'_>,
        names: &mut Names,
        note: &Note,
    ) -> Result<bool, Fault> {
        let mut taken = Vec::new();
        let mut write = || {
            for (set, given) in given.iter().enumerate() {
                let address = given.address.addr();
                if !locked.take(names, address, &self.by, note)? {
                    return Ok(false);
                }
                taken.push(address);
                locked.set_last(set, address)?;
            }
            Ok(true)
        };
        let written = write();
        if !matches!(written, Ok(true)) {
            for address in taken {
                locked.free(names, address)?;
            }
        }
        written
    }

    /// Returns host-local's result: an address from each set, and what the configuration adds.
    fn success(&self, given: &[RangeAddress], dns: Dns) -> Success {
        let ips = given.iter().map(|given| Ip {
            address: given.address,
            gateway: Some(given.gateway),
        });
        Success {
            ips: ips.collect(),
            routes: self.routes.clone(),
            dns,
        }
    }
}

fn sets(read: &HostLocal) -> Result<Sets, Error> {
    Sets::new(&read.sets).map_err(|bad| bad_config("ipam.ranges", bad))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_add_waits_as_long_as_it_may_and_others_for_10_s() {
        let waits = |verb: &str, timeout: &str| {
            let said = |text: &str| Some(text.to_owned());
            let env = Env {
                command: said(verb),
                container_id: said("c1"),
                netns: said("/run/netns/c1"),
                ifname: said("eth0"),
                ..Env::default()
            };
            let config = format!(
                r#"{{"cniVersion": "1.1.0", "name": "pods", "cni.dev/valid-attachments": [],
                    "ipam": {{"type": "host-local", "subnet": "10.9.0.0/24", "timeout": {timeout}}}}}"#
            );
            Call::parse(&env, &config)
                .expect("a call")
                .patience
                .as_secs()
        };
        for (timeout, seconds) in [("5", 5), ("null", 30), ("1e9", 600)] {
            assert_eq!(waits("ADD", timeout), seconds, "{timeout}");
        }
        for verb in ["DEL", "CHECK", "GC", "STATUS"] {
            assert_eq!(waits(verb, "90"), 10, "{verb}");
        }
    }
}
