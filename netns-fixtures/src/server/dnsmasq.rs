//! dnsmasq as a DHCP server. Its shortest lease is two minutes; T1 and T2 may be set.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::process::Command;
use std::time::Duration;

use super::{Grants, Lease, Place, Program, Server};
use crate::error::Error;
use crate::lan::Lan;
use crate::need::Need;

/// What dnsmasq gives out.
#[derive(Clone, Debug)]
pub struct DnsmasqConfig {
    /// The link that it serves.
    pub ifname: String,
    /// The addresses.
    pub pool: RangeInclusive<Ipv4Addr>,
    /// The lease time, at least two minutes.
    pub lease_time: Duration,
    /// T1 and T2, if not dnsmasq's own.
    pub timers: Option<(Duration, Duration)>,
    /// Whether it behaves as by default: it pings an address for three seconds before it offers the address, and serves nobody
    /// meanwhile.
    pub ping: bool,
    /// Whether it logs every option, or only every message.
    pub verbose: bool,
    /// More arguments: `--dhcp-option=...`.
    pub more: Vec<String>,
}

impl Default for DnsmasqConfig {
    fn default() -> Self {
        Grants::default().into()
    }
}

impl From<Grants> for DnsmasqConfig {
    fn from(grants: Grants) -> Self {
        let mut more = vec![format!("--dhcp-option=option:router,{}", grants.router)];
        if !grants.dns.is_empty() {
            more.push(format!(
                "--dhcp-option=option:dns-server,{}",
                grants.dns_text(",")
            ));
        }
        more.extend(
            grants
                .domain
                .iter()
                .map(|domain| format!("--domain={domain}")),
        );
        more.extend(
            grants
                .mtu
                .map(|mtu| format!("--dhcp-option=option:mtu,{mtu}")),
        );
        if !grants.routes.is_empty() {
            let routes: Vec<_> = grants
                .routes
                .iter()
                .map(|(to, via)| format!("{to},{via}"))
                .collect();
            more.push(format!(
                "--dhcp-option=option:classless-static-route,{}",
                routes.join(",")
            ));
        }
        let Grants {
            pool,
            lease_time,
            timers,
            ..
        } = grants;
        Self {
            ifname: Lan::IFNAME.to_owned(),
            pool,
            lease_time,
            timers,
            ping: false,
            verbose: true,
            more,
        }
    }
}

/// dnsmasq's program.
#[derive(Debug)]
pub struct DnsmasqProgram;

/// dnsmasq, running or not, with its lease file.
pub type Dnsmasq = Server<DnsmasqProgram>;

impl Dnsmasq {
    /// Drops every ACK that it sends from now on, with nftables. It still grants its leases.
    pub fn lose_acks(&self) -> Result<(), Error> {
        // Its first option is the message type: 8 bytes of UDP, 240 of the message, code and length before the value.
        let rules = "table ip wall { chain out { type filter hook output priority 0; udp sport 67 @th,2000,8 5 drop; }; }";
        self.netns()
            .run_command("nft", &["-f", "-"], rules)
            .map(drop)
    }
}

impl Program for DnsmasqProgram {
    type Config = DnsmasqConfig;
    const NAME: &str = "dnsmasq";
    const NEEDS: &[Need] = &[Need::Program("dnsmasq")];
    const SHORTEST: Duration = Duration::from_secs(120);
    const REFUSES_RENEWALS: bool = true;
    const READY: &str = "sockets bound exclusively to interface";

    fn command(config: &DnsmasqConfig, place: &Place) -> Result<Command, Error> {
        let (first, last) = (config.pool.start(), config.pool.end());
        let seconds = config.lease_time.as_secs();
        let mut command = Command::new("dnsmasq");
        // In debug mode it stays in the foreground and keeps its user, as a user namespace requires.
        command
            .args(["--conf-file=/dev/null", "--no-daemon", "--log-facility=-"])
            .args(config.verbose.then_some("--log-dhcp"))
            .args((!config.ping).then_some("--no-ping"))
            .args(["--port=0", "--dhcp-authoritative", "--bind-interfaces"])
            .arg(format!("--interface={}", config.ifname))
            .arg("--except-interface=lo")
            .arg(format!("--dhcp-leasefile={}", place.lease_file().display()))
            .arg(format!("--pid-file={}", place.file("pid").display()))
            .arg(format!(
                "--dhcp-lease-max={}",
                u32::from(*last) - u32::from(*first) + 1
            ))
            .arg(format!(
                "--dhcp-range={first},{last},{},{seconds}s",
                Lan::SUBNET.netmask()
            ));
        if let Some((t1, t2)) = config.timers {
            command.arg(format!("--dhcp-option=option:T1,{}", t1.as_secs()));
            command.arg(format!("--dhcp-option=option:T2,{}", t2.as_secs()));
        }
        command.args(&config.more);
        Ok(command)
    }

    fn read(file: &[u8]) -> Result<Vec<Lease>, Error> {
        let text = String::from_utf8_lossy(file);
        // A `duid` line is the server's own DUID, for DHCPv6.
        text.lines()
            .filter(|line| !line.starts_with("duid"))
            .map(parse_lease)
            .collect()
    }
}

/// Reads `expires mac address hostname client_id`, with `*` for missing values.
fn parse_lease(line: &str) -> Result<Lease, Error> {
    let bad = || Error::unreadable("a lease of dnsmasq", line.to_owned());
    let fields: Vec<_> = line.split(' ').collect();
    let [expires, mac, address, _, _] = fields[..] else {
        return Err(bad());
    };
    Ok(Lease {
        address: address.parse().map_err(|_| bad())?,
        mac: mac.to_owned(),
        began: None,
        expires: expires.parse().map_err(|_| bad())?,
        held: true,
    })
}
