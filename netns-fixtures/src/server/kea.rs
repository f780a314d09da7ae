//! Kea's DHCPv4 server. Its leases may be as short as seconds, and its lease file, if it has one, gets a line for every change.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Grants, Lease, Place, Program, Server};
use crate::error::Error;
use crate::lan::Lan;
use crate::link::{Mac, mac_text};
use crate::need::Need;

/// What Kea gives out.
#[derive(Clone, Debug)]
pub struct KeaConfig {
    /// The addresses.
    pub pool: RangeInclusive<Ipv4Addr>,
    /// The lease time.
    pub lease_time: Duration,
    /// T1 and T2, if the server should send them.
    pub timers: Option<(Duration, Duration)>,
    /// Options, as Kea's configuration has them: `{"name": "routers", "data": "10.7.0.1"}`.
    pub options: Vec<Value>,
    /// Addresses, each reserved for one hardware address.
    pub reservations: Vec<(Mac, Ipv4Addr)>,
    /// Whether leases go into the lease file; otherwise they live in memory only, and the file stays empty.
    pub persist: bool,
}

impl Default for KeaConfig {
    fn default() -> Self {
        Grants::default().into()
    }
}

impl From<Grants> for KeaConfig {
    fn from(grants: Grants) -> Self {
        let mut options = vec![json!({ "name": "routers", "data": grants.router })];
        if !grants.dns.is_empty() {
            options.push(json!({ "name": "domain-name-servers", "data": grants.dns_text(", ") }));
        }
        options.extend(
            grants
                .domain
                .iter()
                .map(|domain| json!({ "name": "domain-name", "data": domain })),
        );
        options.extend(
            grants
                .mtu
                .map(|mtu| json!({ "name": "interface-mtu", "data": mtu.to_string() })),
        );
        if !grants.routes.is_empty() {
            let bytes: String = grants
                .classless_routes()
                .iter()
                .map(|byte| format!("{byte:02X}"))
                .collect();
            options
                .push(json!({ "code": 121, "space": "dhcp4", "csv-format": false, "data": bytes }));
        }
        let Grants {
            pool,
            lease_time,
            timers,
            ..
        } = grants;
        Self {
            pool,
            lease_time,
            timers,
            options,
            reservations: Vec::new(),
            persist: true,
        }
    }
}

/// Kea's program.
#[derive(Debug)]
pub struct KeaProgram;

/// Kea, running or not, with its lease file.
pub type Kea = Server<KeaProgram>;

impl Program for KeaProgram {
    type Config = KeaConfig;
    const NAME: &str = "kea-dhcp4";
    const NEEDS: &[Need] = &[Need::Program("kea-dhcp4")];
    const SHORTEST: Duration = Duration::from_secs(1);
    const REFUSES_RENEWALS: bool = true;
    const READY: &str = "DHCP4_STARTED";

    fn command(config: &KeaConfig, place: &Place) -> Result<Command, Error> {
        let file = place.write("kea.json", &config_json(config, place).to_string())?;
        let mut command = Command::new(place.unconfined("kea-dhcp4")?);
        command.arg("-c").arg(file);
        for variable in ["KEA_PIDFILE_DIR", "KEA_LOCKFILE_DIR", "KEA_DHCP_DATA_DIR"] {
            command.env(variable, place.file(""));
        }
        Ok(command)
    }

    fn read(file: &[u8]) -> Result<Vec<Lease>, Error> {
        let text = String::from_utf8_lossy(file);
        text.lines()
            .filter(|line| !line.starts_with("address,"))
            .map(parse_lease)
            .collect()
    }
}

fn config_json(config: &KeaConfig, place: &Place) -> Value {
    let KeaConfig {
        pool,
        lease_time,
        timers,
        options,
        reservations,
        persist,
    } = config;
    let reserve = |(mac, address): &(Mac, Ipv4Addr)| json!({ "hw-address": mac_text(*mac), "ip-address": address });
    let mut dhcp4 = json!({
        "interfaces-config": { "interfaces": [Lan::IFNAME], "dhcp-socket-type": "raw" },
        "lease-database": { "type": "memfile", "persist": persist, "name": place.lease_file(), "lfc-interval": 0 },
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

/// Reads `address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,user_context`. A
/// lease that is released is written again with a lifetime of 0.
fn parse_lease(line: &str) -> Result<Lease, Error> {
    let bad = || Error::unreadable("a lease of Kea", line.to_owned());
    let fields: Vec<_> = line.split(',').collect();
    let number = |i: usize| {
        fields
            .get(i)
            .and_then(|field| field.parse::<u64>().ok())
            .ok_or_else(bad)
    };
    let (lifetime, expires, state) = (number(3)?, number(4)?, number(9)?);
    Ok(Lease {
        address: fields[0].parse().map_err(|_| bad())?,
        mac: fields[1].to_owned(),
        began: Some(expires.saturating_sub(lifetime)),
        expires,
        // 1 is declined, 2 is expired and reclaimed.
        held: state == 0 && lifetime > 0,
    })
}
