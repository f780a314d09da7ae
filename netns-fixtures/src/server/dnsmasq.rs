//! dnsmasq as a DHCP server. Its shortest lease is two minutes; T1 and T2 may be set.

use std::fs;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::POOL;
use crate::error::{Doing, Error};
use crate::lan::Lan;
use crate::netns::Netns;
use crate::process::{DEADLINE, Log, Process};
use crate::wait::until_file;

/// What dnsmasq gives out.
#[derive(Clone, Debug)]
pub struct DnsmasqConfig {
    /// The addresses.
    pub pool: RangeInclusive<Ipv4Addr>,
    /// The lease time; two minutes at least.
    pub lease_time: Duration,
    /// T1 and T2, where they are not to be dnsmasq's own.
    pub timers: Option<(Duration, Duration)>,
    /// Whether it tells of every option, or of every message alone.
    pub verbose: bool,
    /// More arguments: `--dhcp-option=...`.
    pub more: Vec<String>,
}

impl Default for DnsmasqConfig {
    fn default() -> Self {
        Self { pool: POOL, lease_time: Duration::from_secs(3600), timers: None, verbose: true, more: Vec::new() }
    }
}

/// dnsmasq, running or not, with its lease file.
#[derive(Debug)]
pub struct Dnsmasq {
    netns: Netns,
    dir: PathBuf,
    config: DnsmasqConfig,
    process: Option<Process>,
}

/// A line of the lease file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsmasqLease {
    /// When it ends, in seconds since the epoch; 0 is never.
    pub expires: u64,
    /// The client's hardware address, as text.
    pub mac: String,
    /// The address.
    pub address: Ipv4Addr,
    /// The host name, `*` when there is none.
    pub hostname: String,
    /// The client identifier, as text (`01:02:...`), `*` when there is none.
    pub client_id: String,
}

impl Dnsmasq {
    /// Starts it in the server's namespace of a LAN.
    pub fn start(lan: &Lan, config: DnsmasqConfig) -> Result<Self, Error> {
        Self::start_in(&lan.server, config)
    }

    /// Starts it in a namespace of its own choice, on its link [`Lan::IFNAME`].
    pub fn start_in(netns: &Netns, config: DnsmasqConfig) -> Result<Self, Error> {
        let dir = netns.sandbox().dir("dnsmasq")?;
        let mut server = Self { netns: netns.clone(), dir, config, process: None };
        server.launch()?;
        Ok(server)
    }

    /// Starts another server in another namespace, with the same configuration and a copy of the lease file, as one
    /// does that takes over.
    pub fn take_over(&self, netns: &Netns) -> Result<Self, Error> {
        let dir = netns.sandbox().dir("dnsmasq")?;
        let mut server = Self { netns: netns.clone(), dir, config: self.config.clone(), process: None };
        fs::copy(self.lease_file(), server.lease_file()).doing(|| "copy the lease file".to_owned())?;
        server.launch()?;
        Ok(server)
    }

    /// Drops every ACK that it sends from now on, with nftables. It gives its leases out all the same.
    pub fn lose_acks(&self) -> Result<(), Error> {
        // Its first option is the message type: 8 bytes of UDP, 240 of the message, code and length before the value.
        let rules =
            "table ip wall { chain out { type filter hook output priority 0; udp sport 67 @th,2000,8 5 drop; }; }";
        self.netns.run_command("nft", &["-f", "-"], rules).map(drop)
    }

    /// Stops it; the lease file stays.
    pub fn stop(&mut self) -> Result<(), Error> {
        self.process.take().map_or(Ok(()), |process| process.terminate().map(drop))
    }

    /// Starts it again, with another configuration if one is given.
    pub fn restart(&mut self, config: Option<DnsmasqConfig>) -> Result<(), Error> {
        self.stop()?;
        if let Some(config) = config {
            self.config = config;
        }
        self.launch()
    }

    /// Forgets all leases of a server that is stopped.
    pub fn forget_leases(&mut self) -> Result<(), Error> {
        fs::write(self.lease_file(), "").doing(|| "empty the lease file".to_owned())
    }

    /// Reads the lease file.
    pub fn leases(&self) -> Result<Vec<DnsmasqLease>, Error> {
        let text = self.settled_lease_file()?;
        // A `duid` line is the server's own, for DHCPv6.
        text.lines().filter(|line| !line.starts_with("duid")).map(parse_lease).collect()
    }

    /// Returns the lease file's text as it is while dnsmasq is not writing it. For every change dnsmasq empties the file and
    /// writes it anew, and what is seen of it meanwhile must not pass for leases given back.
    fn settled_lease_file(&self) -> Result<String, Error> {
        let read = || fs::read_to_string(self.lease_file()).doing(|| "read the lease file".to_owned());
        let deadline = Instant::now() + DEADLINE;
        while Instant::now() < deadline {
            let before = read()?;
            let at_rest = self.process.as_ref().is_none_or(Process::is_asleep);
            if at_rest && read()? == before {
                return Ok(before);
            }
            thread::yield_now();
        }
        Err(Error::timed_out("rest of dnsmasq", DEADLINE, String::new()))
    }

    /// Returns the lease of a client, by its hardware address.
    pub fn lease_of(&self, mac: &str) -> Result<Option<DnsmasqLease>, Error> {
        Ok(self.leases()?.into_iter().find(|lease| lease.mac == mac))
    }

    /// Waits until the leases fit, looking whenever the lease file changes.
    pub fn wait_for<T>(
        &self,
        awaited: &str,
        limit: Duration,
        mut fits: impl FnMut(&[DnsmasqLease]) -> Option<T>,
    ) -> Result<T, Error> {
        until_file(&self.dir, awaited, limit, || Ok(fits(&self.leases()?)))
    }

    /// Waits until it has no lease left.
    pub fn wait_until_free(&self) -> Result<(), Error> {
        self.wait_for("empty lease file of dnsmasq", DEADLINE, |leases| leases.is_empty().then_some(()))
    }

    /// Returns what it says, all runs but the present one forgotten.
    pub fn log(&self) -> Option<&Log> {
        self.process.as_ref().map(Process::log)
    }

    fn lease_file(&self) -> PathBuf {
        self.dir.join("leases")
    }

    fn launch(&mut self) -> Result<(), Error> {
        let (first, last) = (self.config.pool.start(), self.config.pool.end());
        let seconds = self.config.lease_time.as_secs();
        let mut command = Command::new("dnsmasq");
        // Debug mode stays in the foreground and as the user that it is, which a user namespace wants.
        command
            .args(["--conf-file=/dev/null", "--no-daemon", "--log-facility=-"])
            .args(self.config.verbose.then_some("--log-dhcp"))
            .args(["--port=0", "--no-ping", "--dhcp-authoritative", "--bind-interfaces"])
            .arg(format!("--interface={}", Lan::IFNAME))
            .arg("--except-interface=lo")
            .arg(format!("--dhcp-leasefile={}", self.lease_file().display()))
            .arg(format!("--pid-file={}", self.dir.join("pid").display()))
            .arg(format!("--dhcp-lease-max={}", u32::from(*last) - u32::from(*first) + 1))
            .arg(format!("--dhcp-range={first},{last},{},{seconds}s", Lan::SUBNET.netmask()));
        if let Some((t1, t2)) = self.config.timers {
            command.arg(format!("--dhcp-option=option:T1,{}", t1.as_secs()));
            command.arg(format!("--dhcp-option=option:T2,{}", t2.as_secs()));
        }
        command.args(&self.config.more);
        let mut process = Process::start(&self.netns, "dnsmasq", command)?;
        process.wait_for_line("sockets bound exclusively to interface")?;
        self.process = Some(process);
        Ok(())
    }
}

fn parse_lease(line: &str) -> Result<DnsmasqLease, Error> {
    let bad = || Error::Unreadable { what: "a lease of dnsmasq", text: line.to_owned() };
    let fields: Vec<_> = line.split(' ').collect();
    let [expires, mac, address, hostname, client_id] = fields[..] else {
        return Err(bad());
    };
    Ok(DnsmasqLease {
        expires: expires.parse().map_err(|_| bad())?,
        mac: mac.to_owned(),
        address: address.parse().map_err(|_| bad())?,
        hostname: hostname.to_owned(),
        client_id: client_id.to_owned(),
    })
}
