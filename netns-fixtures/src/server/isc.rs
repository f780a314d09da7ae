//! ISC's dhcpd. Its leases may be as short as seconds. It does not extend a lease that is renewed in the first quarter of its
//! time (`dhcp-cache-threshold`).

use std::fmt::Write;
use std::process::Command;
use std::time::Duration;

use super::{Grants, Lease, Place, Program, Server};
use crate::error::Error;
use crate::lan::Lan;
use crate::link::mac_text;
use crate::need::Need;

/// ISC dhcpd's program.
#[derive(Debug)]
pub struct IscProgram;

/// ISC dhcpd, running or not, with its lease file.
pub type IscDhcpd = Server<IscProgram>;

impl Program for IscProgram {
    type Config = Grants;
    const NAME: &str = "dhcpd";
    const NEEDS: &[Need] = &[Need::Program("dhcpd")];
    const SHORTEST: Duration = Duration::from_secs(1);
    const REFUSES_RENEWALS: bool = true;
    const READY: &str = "Server starting service.";

    fn command(config: &Grants, place: &Place) -> Result<Command, Error> {
        let mut command = Command::new(place.unconfined("dhcpd")?);
        command
            .args(["-4", "-f", "-d", "-cf"])
            .arg(place.write("dhcpd.conf", &config_text(config))?);
        command
            .arg("-lf")
            .arg(place.lease_file())
            .arg("-pf")
            .arg(place.file("pid"))
            .arg(Lan::IFNAME);
        Ok(command)
    }

    fn read(file: &[u8]) -> Result<Vec<Lease>, Error> {
        let text = String::from_utf8_lossy(file);
        let records = text
            .split("\nlease ")
            .skip(1)
            .map(|record| record.split("\n}").next().unwrap_or(record));
        // A lease that was never granted has no client.
        records
            .filter(|record| record.contains("hardware ethernet "))
            .map(parse_lease)
            .collect()
    }
}

fn config_text(grants: &Grants) -> String {
    let seconds = grants.lease_time.as_secs();
    let mut text = format!(
        "authoritative;\nping-check false;\ndb-time-format local;\n\
         option classless-routes code 121 = array of unsigned integer 8;\n\
         default-lease-time {seconds};\nmin-lease-time {seconds};\nmax-lease-time {seconds};\n\
         option routers {};\n",
        grants.router
    );
    let mut option = |name: &str, value: &str| {
        writeln!(text, "option {name} {value};").expect("a string takes all that is written to it");
    };
    if let Some((t1, t2)) = grants.timers {
        option("dhcp-renewal-time", &t1.as_secs().to_string());
        option("dhcp-rebinding-time", &t2.as_secs().to_string());
    }
    if !grants.dns.is_empty() {
        option("domain-name-servers", &grants.dns_text(", "));
    }
    if let Some(domain) = &grants.domain {
        option("domain-name", &format!("\"{domain}\""));
    }
    if let Some(mtu) = grants.mtu {
        option("interface-mtu", &mtu.to_string());
    }
    if !grants.routes.is_empty() {
        let bytes: Vec<_> = grants
            .classless_routes()
            .iter()
            .map(u8::to_string)
            .collect();
        option("classless-routes", &bytes.join(", "));
    }
    for (mac, address) in &grants.fixed {
        let name = address.to_bits();
        writeln!(
            text,
            "host h{name} {{ hardware ethernet {}; fixed-address {address}; }}",
            mac_text(*mac)
        )
        .expect("a string takes all that is written to it");
    }
    let (subnet, mask) = (Lan::SUBNET.network(), Lan::SUBNET.netmask());
    let (first, last) = (grants.pool.start(), grants.pool.end());
    text + &format!("subnet {subnet} netmask {mask} {{ range {first} {last}; }}\n")
}

/// Reads what follows `lease ` in a record of dhcpd.leases(5), its times counted from the epoch.
fn parse_lease(record: &str) -> Result<Lease, Error> {
    let bad = || Error::unreadable("a lease of dhcpd", record.to_owned());
    let value = |key: &str| {
        let found = record
            .lines()
            .find_map(|line| line.trim_start().strip_prefix(key));
        found.map(|rest| rest.split(';').next().unwrap_or(rest).trim_start())
    };
    let time = |key| value(key).and_then(|value| value.strip_prefix("epoch ")?.parse().ok());
    Ok(Lease {
        address: record
            .split(' ')
            .next()
            .and_then(|address| address.parse().ok())
            .ok_or_else(bad)?,
        mac: value("hardware ethernet ").ok_or_else(bad)?.to_owned(),
        began: time("starts "),
        expires: time("ends ").ok_or_else(bad)?,
        held: value("binding state ") == Some("active"),
    })
}
