//! Kea's DHCPv4 server. Its leases may last seconds, and its lease file gets a line for every change.

use std::fs;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::POOL;
use crate::error::{Doing, Error};
use crate::lan::Lan;
use crate::link::{Mac, mac_text};
use crate::netns::Netns;
use crate::process::{DEADLINE, Log, Process};
use crate::wait::until_file;

/// What Kea gives out.
#[derive(Clone, Debug)]
pub struct KeaConfig {
    /// The addresses.
    pub pool: RangeInclusive<Ipv4Addr>,
    /// The lease time.
    pub lease_time: Duration,
    /// T1 and T2, where the server is to name them.
    pub timers: Option<(Duration, Duration)>,
    /// Options, as Kea's configuration has them: `{"name": "routers", "data": "10.7.0.1"}`.
    pub options: Vec<Value>,
    /// Addresses kept for one hardware address each.
    pub reservations: Vec<(Mac, Ipv4Addr)>,
}

impl Default for KeaConfig {
    fn default() -> Self {
        let options = vec![json!({ "name": "routers", "data": Lan::SERVER })];
        Self { pool: POOL, lease_time: Duration::from_secs(3600), timers: None, options, reservations: Vec::new() }
    }
}

/// Kea, running or not, with its lease file.
#[derive(Debug)]
pub struct Kea {
    netns: Netns,
    dir: PathBuf,
    config: KeaConfig,
    process: Option<Process>,
}

/// A line of the lease file: a lease as it became. The last line of an address is what holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeaLease {
    /// The address.
    pub address: Ipv4Addr,
    /// The client's hardware address, as text.
    pub mac: String,
    /// The client identifier, as text (`01:02:...`), empty when there is none.
    pub client_id: String,
    /// The lease time in seconds; 0 once it is released.
    pub valid_lifetime: u64,
    /// When it ends, in seconds since the epoch.
    pub expires: u64,
    /// 0 when it is given out, 1 declined, 2 expired and taken back.
    pub state: u32,
}

impl KeaLease {
    /// Tells whether somebody holds the address: it is given out, and was not released.
    pub fn is_held(&self) -> bool {
        self.state == 0 && self.valid_lifetime > 0
    }
}

impl Kea {
    /// Starts it in the server's namespace of a LAN.
    pub fn start(lan: &Lan, config: KeaConfig) -> Result<Self, Error> {
        Self::start_in(&lan.server, config)
    }

    /// Starts it in a namespace, on its link [`Lan::IFNAME`].
    pub fn start_in(netns: &Netns, config: KeaConfig) -> Result<Self, Error> {
        let dir = netns.sandbox().dir("kea")?;
        let mut server = Self { netns: netns.clone(), dir, config, process: None };
        server.launch()?;
        Ok(server)
    }

    /// Starts another server in another namespace, with the same configuration and a copy of the lease file, as one
    /// does that takes over.
    pub fn take_over(&self, netns: &Netns) -> Result<Self, Error> {
        let dir = netns.sandbox().dir("kea")?;
        let mut server = Self { netns: netns.clone(), dir, config: self.config.clone(), process: None };
        fs::copy(self.lease_file(), server.lease_file()).doing(|| "copy the lease file".to_owned())?;
        server.launch()?;
        Ok(server)
    }

    /// Stops it; the lease file stays.
    pub fn stop(&mut self) -> Result<(), Error> {
        self.process.take().map_or(Ok(()), |process| process.terminate().map(drop))
    }

    /// Starts it again, with another configuration if one is given.
    pub fn restart(&mut self, config: Option<KeaConfig>) -> Result<(), Error> {
        self.stop()?;
        if let Some(config) = config {
            self.config = config;
        }
        self.launch()
    }

    /// Forgets all leases of a server that is stopped.
    pub fn forget_leases(&mut self) -> Result<(), Error> {
        fs::remove_file(self.lease_file()).doing(|| "remove the lease file".to_owned())
    }

    /// Reads the lease file: every change of every lease, oldest first.
    pub fn history(&self) -> Result<Vec<KeaLease>, Error> {
        let text = fs::read_to_string(self.lease_file()).doing(|| "read the lease file".to_owned())?;
        // A line without its end is still being written.
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        whole.map(str::trim_end).filter(|line| !line.starts_with("address,")).map(parse_lease).collect()
    }

    /// Returns the leases that are held, each as it last became.
    pub fn leases(&self) -> Result<Vec<KeaLease>, Error> {
        Ok(held(&self.history()?))
    }

    /// Waits until the history fits, looking whenever the lease file changes.
    pub fn wait_for<T>(
        &self,
        awaited: &str,
        limit: Duration,
        mut fits: impl FnMut(&[KeaLease]) -> Option<T>,
    ) -> Result<T, Error> {
        until_file(&self.dir, awaited, limit, || Ok(fits(&self.history()?)))
    }

    /// Waits until no lease is held.
    pub fn wait_until_free(&self) -> Result<(), Error> {
        self.wait_for("release of all leases of Kea", DEADLINE, |history| held(history).is_empty().then_some(()))
    }

    /// Returns what it says, all runs but the present one forgotten.
    pub fn log(&self) -> Option<&Log> {
        self.process.as_ref().map(Process::log)
    }

    fn lease_file(&self) -> PathBuf {
        self.dir.join("leases.csv")
    }

    fn launch(&mut self) -> Result<(), Error> {
        let file = self.dir.join("kea.json");
        fs::write(&file, self.config_json().to_string()).doing(|| "write Kea's configuration".to_owned())?;
        let mut command = Command::new("kea-dhcp4");
        command.arg("-c").arg(&file);
        for variable in ["KEA_PIDFILE_DIR", "KEA_LOCKFILE_DIR", "KEA_DHCP_DATA_DIR"] {
            command.env(variable, &self.dir);
        }
        let mut process = Process::start(&self.netns, "kea-dhcp4", command)?;
        process.wait_for_line("DHCP4_STARTED")?;
        self.process = Some(process);
        Ok(())
    }

    fn config_json(&self) -> Value {
        let KeaConfig { pool, lease_time, timers, options, reservations } = &self.config;
        let reserve = |(mac, address): &(Mac, Ipv4Addr)| json!({ "hw-address": mac_text(*mac), "ip-address": address });
        let mut dhcp4 = json!({
            "interfaces-config": { "interfaces": [Lan::IFNAME], "dhcp-socket-type": "raw" },
            "lease-database": { "type": "memfile", "persist": true, "name": self.lease_file(), "lfc-interval": 0 },
            "valid-lifetime": lease_time.as_secs(),
            "authoritative": true,
            "option-data": options,
            "subnet4": [{
                "id": 1,
                "subnet": Lan::SUBNET,
                "pools": [{ "pool": format!("{} - {}", pool.start(), pool.end()) }],
                "reservations": reservations.iter().map(reserve).collect::<Vec<_>>(),
            }],
            "loggers": [{
                "name": "kea-dhcp4",
                "severity": "INFO",
                "output_options": [{ "output": "stdout", "flush": true }],
            }],
        });
        if let Some((t1, t2)) = timers {
            dhcp4["renew-timer"] = t1.as_secs().into();
            dhcp4["rebind-timer"] = t2.as_secs().into();
        }
        json!({ "Dhcp4": dhcp4 })
    }
}

fn held(history: &[KeaLease]) -> Vec<KeaLease> {
    let is_latest = |(i, lease): &(usize, &KeaLease)| !history[i + 1..].iter().any(|l| l.address == lease.address);
    history.iter().enumerate().filter(is_latest).map(|(_, lease)| lease).filter(|l| l.is_held()).cloned().collect()
}

/// Reads `address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,user_context`.
fn parse_lease(line: &str) -> Result<KeaLease, Error> {
    let bad = || Error::Unreadable { what: "a lease of Kea", text: line.to_owned() };
    let fields: Vec<_> = line.split(',').collect();
    let field = |i: usize| fields.get(i).copied().ok_or_else(bad);
    Ok(KeaLease {
        address: field(0)?.parse().map_err(|_| bad())?,
        mac: field(1)?.to_owned(),
        client_id: field(2)?.to_owned(),
        valid_lifetime: field(3)?.parse().map_err(|_| bad())?,
        expires: field(4)?.parse().map_err(|_| bad())?,
        state: field(9)?.parse().map_err(|_| bad())?,
    })
}
