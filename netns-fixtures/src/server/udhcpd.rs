//! busybox's udhcpd, the server of small devices. It recognises clients only by their hardware address, and does not
//! answer a RENEW or REBIND of an unknown lease.

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

use super::{Grants, Lease, Place, Program, Server};
use crate::error::Error;
use crate::lan::Lan;
use crate::link::{Mac, mac_text};
use crate::need::Need;

/// udhcpd's program.
#[derive(Debug)]
pub struct UdhcpdProgram;

/// udhcpd, running or not, with its lease file, which it writes once a second.
pub type Udhcpd = Server<UdhcpdProgram>;

impl Program for UdhcpdProgram {
    type Config = Grants;
    const NAME: &str = "udhcpd";
    const NEEDS: &[Need] = &[Need::Program("busybox")];
    const SHORTEST: Duration = Duration::from_secs(1);
    const REFUSES_RENEWALS: bool = false;
    const READY: &str = "started, v";

    fn command(config: &Grants, place: &Place) -> Result<Command, Error> {
        let mut command = Command::new("busybox");
        // It asks by ARP before it offers, and waits a millisecond for an answer.
        command
            .args(["udhcpd", "-f", "-a", "1"])
            .arg(place.write("udhcpd.conf", &config_text(config, place))?);
        Ok(command)
    }

    fn read(file: &[u8]) -> Result<Vec<Lease>, Error> {
        let Some((written, records)) = file.split_first_chunk() else {
            return Ok(Vec::new());
        };
        let written = u64::from_be_bytes(*written);
        let (records, rest) = records.as_chunks::<RECORD>();
        if rest.is_empty() {
            return Ok(records
                .iter()
                .map(|record| parse_lease(written, record))
                .collect());
        }
        Err(Error::unreadable(
            "a lease file of udhcpd",
            format!("{file:02x?}"),
        ))
    }
}

fn config_text(grants: &Grants, place: &Place) -> String {
    let (first, last) = (grants.pool.start(), grants.pool.end());
    let mut text = format!(
        "interface {}\nstart {first}\nend {last}\nmax_leases {}\nauto_time 1\noffer_time 1\nmin_lease 1\n\
         lease_file {}\npidfile {}\nopt subnet {}\nopt lease {}\nopt router {}\n",
        Lan::IFNAME,
        u32::from(*last) - u32::from(*first) + 1,
        place.lease_file().display(),
        place.file("pid").display(),
        Lan::SUBNET.netmask(),
        grants.lease_time.as_secs(),
        grants.router,
    );
    let mut option = |name: &str, value: &str| {
        writeln!(text, "opt {name} {value}").expect("a string takes all that is written to it");
    };
    if let Some((t1, t2)) = grants.timers {
        option("58", &format!("{:08x}", t1.as_secs()));
        option("59", &format!("{:08x}", t2.as_secs()));
    }
    if !grants.dns.is_empty() {
        option("dns", &grants.dns_text(" "));
    }
    if let Some(domain) = &grants.domain {
        option("domain", domain);
    }
    if let Some(mtu) = grants.mtu {
        option("mtu", &mtu.to_string());
    }
    if !grants.routes.is_empty() {
        let routes: Vec<_> = grants
            .routes
            .iter()
            .map(|(to, via)| format!("{to} {via}"))
            .collect();
        option("staticroutes", &routes.join(", "));
    }
    text
}

/// `struct dyn_lease`: seconds left, address, hardware address, host name of 20 bytes, two bytes of padding.
const RECORD: usize = 36;

fn parse_lease(written: u64, record: &[u8; RECORD]) -> Lease {
    let [l0, l1, l2, l3, a, b, c, d, m0, m1, m2, m3, m4, m5, ..] = *record;
    let (left, mac): (u32, Mac) = (
        u32::from_be_bytes([l0, l1, l2, l3]),
        [m0, m1, m2, m3, m4, m5],
    );
    Lease {
        address: Ipv4Addr::new(a, b, c, d),
        mac: mac_text(mac),
        began: None,
        expires: written + u64::from(left),
        held: left > 0,
    }
}
