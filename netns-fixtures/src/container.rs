//! A container as a CNI plugin sees it: an id, a namespace, an interface.

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;
use serde_json::Value;

use crate::error::Error;
use crate::link::{Mac, mac};
use crate::netns::Netns;
use crate::wait::until_link;

/// A network namespace with an interface that is still without an address.
#[derive(Debug)]
pub struct Container {
    /// Its id, `CNI_CONTAINERID`.
    pub id: String,
    /// Its namespace, `CNI_NETNS` by its path.
    pub netns: Netns,
    /// Its interface, `CNI_IFNAME`.
    pub ifname: String,
    /// The interface's Ethernet address.
    pub mac: Mac,
}

impl Container {
    /// Returns a container whose interface is already in `netns`.
    pub fn new(id: &str, netns: Netns, ifname: &str, mac: Mac) -> Self {
        Self {
            id: id.to_owned(),
            netns,
            ifname: ifname.to_owned(),
            mac,
        }
    }

    /// Applies the result of an ADD as a main plugin does: sets the interface up, then adds the addresses and the
    /// routes. An existing route stays as it is: the first one wins.
    pub fn configure(&self, result: &Value) -> Result<(), Error> {
        self.netns.set_up(&self.ifname)?;
        let (addresses, routes) = (result_addresses(result)?, result_routes(result)?);
        for (address, _) in &addresses {
            self.netns.add_address(&self.ifname, *address)?;
        }
        let gateway = addresses.first().and_then(|(_, gateway)| *gateway);
        for (to, via) in routes {
            match self.netns.add_route(&self.ifname, to, via.or(gateway)) {
                Err(error) if error.is_exists() => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Adds a second interface, `cluster0`, that owns the default route, as with Multus. Returns its router's namespace; dropping
    /// that ends the network.
    pub fn add_cluster_network(&self) -> Result<Netns, Error> {
        const ROUTER: Ipv4Addr = Ipv4Addr::new(172, 31, 0, 1);
        let sandbox = self.netns.sandbox();
        let router = Netns::new(sandbox, &format!("{}-cluster", self.id))?;
        self.netns
            .add_veth("cluster0", mac(sandbox.number()), &router, "eth0")?;
        router.add_address("eth0", Ipv4Net::new_assert(ROUTER, 24))?;
        router.set_up("eth0")?;
        self.netns.set_up("cluster0")?;
        self.netns.add_address(
            "cluster0",
            Ipv4Net::new_assert(Ipv4Addr::new(172, 31, 0, 2), 24),
        )?;
        self.netns
            .add_route("cluster0", Ipv4Net::default(), Some(ROUTER))?;
        Ok(router)
    }

    /// Loads nftables rules that drop every packet that the namespace's IP stack sends, receives or forwards.
    pub fn drop_everything(&self) -> Result<(), Error> {
        let chain =
            |hook| format!("chain {hook} {{ type filter hook {hook} priority 0; policy drop; }}\n");
        let chains: String = ["input", "output", "forward"].map(chain).concat();
        self.netns
            .run_command(
                "nft",
                &["-f", "-"],
                &format!("table inet wall {{\n{chains}}}\n"),
            )
            .map(drop)
    }

    /// Waits until exactly these addresses are on the interface.
    pub fn wait_for_addresses(&self, addresses: &[Ipv4Net], limit: Duration) -> Result<(), Error> {
        let awaited = format!("{addresses:?} on {} of {}", self.ifname, self.id);
        until_link(&self.netns, &awaited, limit, || {
            Ok((self.addresses()? == addresses).then_some(()))
        })
    }

    /// Returns the addresses on the interface.
    pub fn addresses(&self) -> Result<Vec<Ipv4Net>, Error> {
        self.netns.addresses(&self.ifname)
    }
}

/// Returns the IPv4 addresses of a CNI result, each with its gateway.
pub fn result_addresses(result: &Value) -> Result<Vec<(Ipv4Net, Option<Ipv4Addr>)>, Error> {
    let bad = || Error::unreadable("ips of a CNI result", result.to_string());
    let entries = result["ips"].as_array().ok_or_else(bad)?;
    let one = |entry: &Value| {
        let address = entry["address"]
            .as_str()
            .and_then(|a| a.parse().ok())
            .ok_or_else(bad)?;
        let gateway = match &entry["gateway"] {
            Value::Null => None,
            text => Some(text.as_str().and_then(|g| g.parse().ok()).ok_or_else(bad)?),
        };
        Ok((address, gateway))
    };
    entries.iter().map(one).collect()
}

fn result_routes(result: &Value) -> Result<Vec<(Ipv4Net, Option<Ipv4Addr>)>, Error> {
    let bad = || Error::unreadable("routes of a CNI result", result.to_string());
    let one = |route: &Value| {
        let to = route["dst"]
            .as_str()
            .and_then(|d| d.parse().ok())
            .ok_or_else(bad)?;
        let via = match &route["gw"] {
            Value::Null => None,
            text => Some(text.as_str().and_then(|g| g.parse().ok()).ok_or_else(bad)?),
        };
        Ok((to, via))
    };
    result["routes"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
        .map(one)
        .collect()
}
