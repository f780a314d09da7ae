//! One call of a runtime, from its configuration to its answer.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_api::add_timeout;
use leasehold_api::cni::{
    Args, BadKey, Code, Config, Dns, Env, Error, Holder, HostLocal, Ip, Route, Success, Verb,
    Version, asked, bad_config, named, netns, network, refused,
};
use leasehold_range::{Allocator, NotGiven, RangeAddress, Sets};

use crate::directory::{Directory, Locked, Names};
use crate::fault::Fault;
use crate::full;
use crate::lock::Awaited;
use crate::note::{Host, Life, Note};
use crate::resolv_conf;

/// How long a verb for which no container waits waits for the lock.
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

/// How far a call has come.
#[derive(Debug, Default)]
struct Progress {
    /// The lock that it waits for.
    awaits: Option<Awaited>,
    /// Nobody waits for it any more: nothing more is changed.
    is_late: bool,
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
        let directory = Directory::new(&Path::new("/").join(data_dir), network);
        let patience = match verb {
            Verb::Add => add_timeout(read.timeout),
            Verb::Del | Verb::Check | Verb::Gc | Verb::Status => PATIENCE,
        };
        let warnings = match verb {
            Verb::Add => config.ignored().iter().map(BadKey::to_string).collect(),
            Verb::Del | Verb::Check | Verb::Gc | Verb::Status => Vec::new(),
        };
        let (does, about) = match verb {
            Verb::Add => {
                let named = named(env, config)?;
                let said = config.runtime_config().map_err(refused)?;
                let add = Add {
                    by: named.holder(),
                    netns: netns(env)?,
                    sets: sets(&read)?,
                    asked: asked(config, &said, &Args::parse(env.args.as_deref()))?,
                    routes: read.routes,
                    resolv_conf: read.resolv_conf.map(PathBuf::from),
                };
                (Does::Add(Box::new(add)), named.to_string())
            }
            Verb::Del => {
                let named = named(env, config)?;
                (Does::Del(named.holder()), named.to_string())
            }
            Verb::Check => {
                let named = named(env, config)?;
                netns(env)?;
                sets(&read)?;
                (Does::Check(named.holder()), named.to_string())
            }
            Verb::Gc => {
                let valid = config.valid_attachments().map_err(refused)?;
                let valid = valid.into_iter().collect();
                (Does::Collect(valid), network.to_owned())
            }
            Verb::Status => {
                sets(&read)?;
                (Does::Status, network.to_owned())
            }
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
    /// Whatever a directory or a file does, this takes no longer than the call may.
    ///
    /// # Errors
    /// Why it cannot be carried out, in CNI's words.
    pub fn run(self, host: Host) -> Result<String, Error> {
        let call = Arc::new(self);
        let progress = Arc::new(Mutex::new(Progress::default()));
        let (done, outcome) = mpsc::channel();
        let deadline = Instant::now() + call.patience;
        let work = {
            let call = call.clone();
            let progress = progress.clone();
            move || {
                // Nobody may listen any more.
                let _ = done.send(call.carry_out(&host, &progress));
            }
        };
        let started = thread::Builder::new().name("call".to_owned()).spawn(work);
        let outcome = match started {
            Ok(_) => outcome
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
                .unwrap_or_else(|ended| Err(call.unanswered(ended, &progress))),
            Err(error) => Err(Error::new(Code::TryAgainLater, error.to_string())),
        };
        outcome.map_err(|mut error| {
            if matches!(call.does, Does::Status) {
                error.code = Code::NotAvailable;
            }
            error.in_version(call.version).with_details(&call.about)
        })
    }

    /// Returns the error for a call that is not done in time.
    fn unanswered(&self, ended: RecvTimeoutError, progress: &Mutex<Progress>) -> Error {
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.is_late = true;
        let waited = self.patience.as_secs_f64();
        let text = match (&progress.awaits, ended) {
            (Some(lock), _) => format!(
                "{} has been locked for {waited} s by {}",
                lock.path.display(),
                lock.holder()
            ),
            (None, RecvTimeoutError::Timeout) => format!(
                "{} has not been read and written within {waited} s: it may be on a device that does not answer",
                self.directory.path().display()
            ),
            (None, RecvTimeoutError::Disconnected) => {
                "the call broke off: this is a bug".to_owned()
            }
        };
        Error::new(Code::TryAgainLater, text)
    }

    fn carry_out(&self, host: &Host, progress: &Mutex<Progress>) -> Result<String, Error> {
        match &self.does {
            Does::Add(add) => {
                let dns = match &add.resolv_conf {
                    Some(path) => resolv_conf::read(path).map_err(|fault| fault.error())?,
                    None => Dns::default(),
                };
                self.directory.make().map_err(|fault| fault.error())?;
                let given = self.give(add, &self.lock(progress)?, host)?;
                Ok(add.success(&given, dns).render(self.version))
            }
            Does::Status => {
                self.directory.make().map_err(|fault| fault.error())?;
                let tried = self.lock(progress)?.try_file();
                tried.map(|()| String::new()).map_err(|fault| fault.error())
            }
            does => {
                let exists = self.directory.exists().map_err(|fault| fault.error())?;
                if exists {
                    let locked = self.lock(progress)?;
                    let mut names = locked.names().map_err(|fault| fault.error())?;
                    match does {
                        Does::Del(by) => self.give_back(by, &locked, &mut names),
                        Does::Collect(valid) => self.collect(valid, &locked, &mut names),
                        _ => Ok(()),
                    }
                    .map_err(|fault| fault.error())?;
                    if let Does::Check(by) = does {
                        return self.check(by, &names);
                    }
                } else if let Does::Check(by) = does {
                    return self.check(by, &Names::default());
                }
                Ok(String::new())
            }
        }
    }

    /// Takes the lock, unless nobody waits for that any more.
    fn lock(&self, progress: &Mutex<Progress>) -> Result<Locked<'_>, Error> {
        let progress = || progress.lock().unwrap_or_else(PoisonError::into_inner);
        let locked = self
            .directory
            .lock(|awaits| progress().awaits = Some(awaits))
            .map_err(|fault| fault.error())?;
        let mut progress = progress();
        progress.awaits = None;
        if progress.is_late {
            return Err(Error::new(Code::TryAgainLater, "too late"));
        }
        Ok(locked)
    }

    /// Gives a container an address of each set.
    fn give(
        &self,
        add: &Add,
        locked: &Locked<'_>,
        host: &Host,
    ) -> Result<Vec<RangeAddress>, Error> {
        let faulty = |fault: Fault| fault.error();
        let mut names = locked.names().map_err(faulty)?;
        if !locked.is_swept(&names, host) {
            locked.sweep(&mut names, host).map_err(faulty)?;
            locked.was_swept(&names, host);
        }
        let mut own = self.directory.held_by(&names, &add.by, false);
        for address in std::mem::take(&mut own) {
            // An earlier ADD of the same container, whose DEL never came.
            match self.directory.life(&names, address, host) {
                Life::Gone => locked.free(&mut names, address).map_err(faulty)?,
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
            let refusal = match allocator.allocate(&own, &add.asked, &|address| names.has(address))
            {
                Ok(given) => match self.write(add, &given, locked, &note).map_err(faulty)? {
                    None => return Ok(given),
                    // Somebody has made its file without the lock.
                    Some(taken) => {
                        names.add(taken);
                        continue;
                    }
                },
                Err(refusal) => refusal,
            };
            if matches!(refusal, NotGiven::Full(_) | NotGiven::Taken(_)) && !is_swept {
                is_swept = true;
                locked.sweep(&mut names, host).map_err(faulty)?;
                continue;
            }
            // As host-local does, the next search goes on after what this one had found.
            for (set, last) in allocator.last() {
                locked.set_last(set, last).map_err(faulty)?;
            }
            let container = &add.by.container;
            return Err(full::error(
                refusal,
                container,
                &add.sets,
                &self.directory,
                &names,
                host,
            ));
        }
    }

    /// Writes the files of what is given, or none. Returns an address that somebody else has a file of.
    fn write(
        &self,
        add: &Add,
        given: &[RangeAddress],
        locked: &Locked<'_>,
        note: &Note,
    ) -> Result<Option<IpAddr>, Fault> {
        let mut names = Names::default();
        let mut write = || {
            for (set, given) in given.iter().enumerate() {
                let address = given.address.addr();
                if !locked.take(address, &add.by, note)? {
                    return Ok(Some(address));
                }
                names.add_of(address, &add.by);
                locked.set_last(set, address)?;
            }
            Ok(None)
        };
        let written = write();
        if !matches!(written, Ok(None)) {
            let back: Vec<_> = names.addresses().collect();
            for address in back {
                locked.free(&mut names, address)?;
            }
        }
        written
    }

    fn give_back(&self, by: &Holder, locked: &Locked<'_>, names: &mut Names) -> Result<(), Fault> {
        let mut own = self.directory.held_by(names, by, false);
        if own.is_empty() {
            // A note may be of an earlier holder, if host-local has given the address meanwhile.
            own = self.directory.held_by(names, by, true);
        }
        own.into_iter()
            .try_for_each(|address| locked.free(names, address))
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
        names: &mut Names,
    ) -> Result<(), Fault> {
        let is_valid = |holder: &Holder| {
            let mut interfaces = valid
                .iter()
                .filter(|(container, _)| *container == holder.container);
            interfaces.any(|(_, ifname)| holder.ifname.as_ref().is_none_or(|of| of == ifname))
        };
        let addresses: Vec<_> = names.addresses().collect();
        for address in addresses {
            if self
                .directory
                .holder(address)
                .is_some_and(|holder| !is_valid(&holder))
            {
                locked.free(names, address)?;
            }
        }
        Ok(())
    }
}

impl Add {
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
    crate::sets(&read.sets).map_err(|bad| bad_config("ipam.ranges", bad))
}
