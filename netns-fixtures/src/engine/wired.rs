//! dockerd 25, 27, 28 and 29 as a network driver sees them: their calls in their order, and the links that they move.
//!
//! The driver makes the links. Each call is one method, so that a test can leave one out, repeat it, or kill a process before it.

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::played::{EngineVersion, Played};
use crate::container::Container;
use crate::error::Error;
use crate::link::{Mac, mac, mac_text};

/// A network of the plugin's own driver.
#[derive(Clone, Debug)]
pub struct WiredNetwork {
    /// Its name to the driver.
    pub id: String,
    /// The PoolID, if the plugin is the IPAM driver too.
    pub pool_id: Option<String>,
}

/// An endpoint, in whatever state it has reached.
#[derive(Debug)]
pub struct WiredContainer {
    /// Its namespace and its interface. The interface's Ethernet address only counts once the endpoint exists.
    pub container: Container,
    /// Its name to the driver.
    pub id: String,
    /// Its network's name.
    pub network: String,
    /// Its address, from either driver; `None`: it has none yet.
    pub address: Option<Ipv4Net>,
    pool_id: Option<String>,
    chosen: Option<Mac>,
}

impl Played {
    /// Makes a network with these `-o`, with the null IPAM driver or, given these `--ipam-opt`, with the plugin's.
    pub fn wire(&self, options: Value, ipam: Option<Value>) -> Result<WiredNetwork, Error> {
        self.plugin
            .call("NetworkDriver.GetCapabilities", &Value::Null)?;
        let is_new = self.is_at_least(EngineVersion::V28);
        if is_new {
            self.plugin.call(
                "NetworkDriver.GwAllocCheck",
                &json!({ "Options": { GENERIC: options } }),
            )?;
        }
        let (pool_id, data) = match ipam {
            None if is_new => (None, json!({ "AddressSpace": "null", "Pool": "0.0.0.0/0" })),
            None => (
                None,
                json!({ "AddressSpace": "null", "Pool": "0.0.0.0/0", "Gateway": "0.0.0.0/0" }),
            ),
            Some(options) => {
                let ask = json!({ "AddressSpace": "leasehold", "Pool": "", "SubPool": "", "Options": options, "V6": false });
                let answer = self.plugin.call("IpamDriver.RequestPool", &ask)?;
                let pool_id = answer["PoolID"].as_str().map(str::to_owned);
                let gateway = &answer["Data"]["com.docker.network.gateway"];
                (
                    pool_id,
                    json!({ "AddressSpace": "leasehold", "Pool": answer["Pool"], "Gateway": gateway }),
                )
            }
        };
        let id = self.wire_id();
        let mut options = json!({ "com.docker.network.enable_ipv6": false, GENERIC: options });
        if is_new {
            options["com.docker.network.enable_ipv4"] = true.into();
        }
        let body =
            json!({ "NetworkID": id, "Options": options, "IPv4Data": [data], "IPv6Data": [] });
        self.plugin.call("NetworkDriver.CreateNetwork", &body)?;
        Ok(WiredNetwork { id, pool_id })
    }

    /// Removes a network.
    pub fn unwire(&self, network: &WiredNetwork) -> Result<(), Error> {
        self.plugin.call(
            "NetworkDriver.DeleteNetwork",
            &json!({ "NetworkID": network.id }),
        )?;
        match &network.pool_id {
            Some(pool_id) => self
                .plugin
                .call("IpamDriver.ReleasePool", &json!({ "PoolID": pool_id }))
                .map(drop),
            None => Ok(()),
        }
    }

    /// Runs a container in a network. After a failure it undoes what was done.
    pub fn run_wired(
        &self,
        network: &WiredNetwork,
        name: &str,
        mac: Option<Mac>,
    ) -> Result<WiredContainer, Error> {
        let mut endpoint = self.prepare_wired(network, name, mac)?;
        let done = self.request_wired(&mut endpoint).and_then(|()| {
            self.create_endpoint(&mut endpoint)?;
            self.join_wired(&endpoint)
                .inspect_err(|_| drop(self.delete_endpoint(&endpoint)))
        });
        match done {
            Ok(()) => Ok(endpoint),
            Err(error) => {
                self.release_wired(&endpoint)?;
                Err(error)
            }
        }
    }

    /// Stops a container.
    pub fn stop_wired(&self, endpoint: &WiredContainer) -> Result<(), Error> {
        self.leave_wired(endpoint)?;
        self.delete_endpoint(endpoint)?;
        self.release_wired(endpoint)
    }

    /// Makes a container's namespace, and mounts it if this version does so now.
    pub fn prepare_wired(
        &self,
        network: &WiredNetwork,
        name: &str,
        chosen: Option<Mac>,
    ) -> Result<WiredContainer, Error> {
        let number = self.host().sandbox().number();
        let netns = self.sandbox(name, number)?;
        let own = chosen.or(network.pool_id.is_some().then(|| mac(number)));
        Ok(WiredContainer {
            container: Container::new(name, netns, "eth0", own.unwrap_or_default()),
            id: self.wire_id(),
            network: network.id.clone(),
            address: None,
            pool_id: network.pool_id.clone(),
            chosen,
        })
    }

    /// Asks for a container's address if the plugin is the IPAM driver.
    pub fn request_wired(&self, endpoint: &mut WiredContainer) -> Result<(), Error> {
        let Some(pool_id) = &endpoint.pool_id else {
            return Ok(());
        };
        let mut options = json!({ MAC: mac_text(endpoint.container.mac) });
        if self.says_names() {
            options["com.docker.network.endpoint.name"] = endpoint.container.id.clone().into();
        }
        let ask = json!({ "PoolID": pool_id, "Address": "", "Options": options });
        let answer = self.plugin.call("IpamDriver.RequestAddress", &ask)?;
        endpoint.address = Some(parsed("an address", &answer["Address"], &answer)?);
        Ok(())
    }

    /// Makes the driver create an endpoint.
    pub fn create_endpoint(&self, endpoint: &mut WiredContainer) -> Result<(), Error> {
        let answer = self
            .plugin
            .call("NetworkDriver.CreateEndpoint", &endpoint.making())?;
        let said = &answer["Interface"];
        if said["Address"].is_string() {
            endpoint.address = Some(parsed("an endpoint", &said["Address"], &answer)?);
        }
        if let Some(text) = said["MacAddress"].as_str() {
            assert_eq!(
                endpoint.own_mac(),
                "",
                "Docker takes no Ethernet address in the place of one that it has"
            );
            endpoint.container.mac = mac_of(text).ok_or_else(|| bad("an endpoint", &answer))?;
        }
        Ok(())
    }

    /// Joins an endpoint to its container: asks for the link, moves it in and configures it.
    pub fn join_wired(&self, endpoint: &WiredContainer) -> Result<(), Error> {
        let answer = self.ask_join(endpoint)?;
        let name = answer["InterfaceName"]["SrcName"]
            .as_str()
            .ok_or_else(|| bad("a link", &answer))?;
        let Container {
            netns, ifname, mac, ..
        } = &endpoint.container;
        if self.mounts_late() {
            self.tell_joined(endpoint)?;
            netns.show()?;
        }
        self.host().move_link(name, netns)?;
        netns.rename(name, ifname)?;
        netns.set_mac_of_down(ifname, *mac)?;
        let address = endpoint
            .address
            .ok_or_else(|| bad("an endpoint without an address", &answer))?;
        netns.add_address(ifname, address)?;
        netns.set_up(ifname)?;
        let routes = answer["StaticRoutes"].as_array().into_iter().flatten();
        for route in routes {
            let to = parsed("a route", &route["Destination"], &answer)?;
            if route["RouteType"] != 1 {
                return Err(bad("a route onto the link", &answer));
            }
            netns.add_route(ifname, to, None)?;
        }
        if answer["Gateway"] != "" {
            netns.add_default_route(parsed("a router", &answer["Gateway"], &answer)?)?;
        }
        if self.mounts_late() {
            Ok(())
        } else {
            self.tell_joined(endpoint)
        }
    }

    /// Tells the driver what dockerd tells it about a joined endpoint.
    fn tell_joined(&self, endpoint: &WiredContainer) -> Result<(), Error> {
        let named = endpoint.named();
        self.plugin
            .call("NetworkDriver.ProgramExternalConnectivity", &named)?;
        self.plugin
            .call("NetworkDriver.EndpointOperInfo", &named)
            .map(drop)
    }

    /// Asks which link Docker should move, and moves none.
    pub fn ask_join(&self, endpoint: &WiredContainer) -> Result<Value, Error> {
        self.plugin.call("NetworkDriver.Join", &endpoint.joining())
    }

    /// Takes a container's interface away, as when its last process has ended.
    pub fn leave_wired(&self, endpoint: &WiredContainer) -> Result<(), Error> {
        let named = endpoint.named();
        self.plugin
            .call("NetworkDriver.RevokeExternalConnectivity", &named)?;
        self.plugin.call("NetworkDriver.Leave", &named)?;
        let Container { netns, ifname, .. } = &endpoint.container;
        let name = endpoint.link_name();
        netns.set_down(ifname)?;
        netns.rename(ifname, &name)?;
        netns.move_link(&name, self.host())
    }

    /// Makes the driver delete an endpoint.
    pub fn delete_endpoint(&self, endpoint: &WiredContainer) -> Result<(), Error> {
        self.plugin
            .call("NetworkDriver.DeleteEndpoint", &endpoint.named())
            .map(drop)
    }

    /// Gives a container's address back if the plugin is the IPAM driver.
    pub fn release_wired(&self, endpoint: &WiredContainer) -> Result<(), Error> {
        match (&endpoint.pool_id, endpoint.address) {
            (Some(pool_id), Some(address)) => {
                let ask = json!({ "PoolID": pool_id, "Address": address.addr().to_string() });
                self.plugin
                    .call("IpamDriver.ReleaseAddress", &ask)
                    .map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Returns an id like Docker's whose first letters are unique.
    fn wire_id(&self) -> String {
        format!("{:012x}{:052x}", self.host().sandbox().number(), 0)
    }
}

impl WiredContainer {
    /// Returns the body of a call that only names the endpoint.
    pub fn named(&self) -> Value {
        json!({ "NetworkID": self.network, "EndpointID": self.id })
    }

    /// Returns the body of its CreateEndpoint.
    pub fn making(&self) -> Value {
        let address = self
            .address
            .map_or(String::new(), |address| address.to_string());
        let mut options = json!({ "com.docker.network.endpoint.exposedports": [], "com.docker.network.portmap": [] });
        if let Some(chosen) = self.chosen {
            options[MAC] = base64(chosen).into();
        }
        let mut body = self.named();
        body["Interface"] =
            json!({ "Address": address, "AddressIPv6": "", "MacAddress": self.own_mac() });
        body["Options"] = options;
        body
    }

    /// Returns the body of its Join.
    pub fn joining(&self) -> Value {
        let mut body = self.named();
        body["SandboxKey"] = self.container.netns.path().to_string_lossy().into();
        body["Options"] = json!({ "com.docker.network.endpoint.exposedports": [] });
        body
    }

    /// Returns the Ethernet address that Docker knows for it; empty if there is none.
    fn own_mac(&self) -> String {
        let mac = self.container.mac;
        if mac == Mac::default() {
            String::new()
        } else {
            mac_text(mac)
        }
    }

    /// Returns the name of its link in the host's namespace.
    pub fn link_name(&self) -> String {
        format!("lh{}", &self.id[..12])
    }
}

const GENERIC: &str = "com.docker.network.generic";
const MAC: &str = "com.docker.network.endpoint.macaddress";

fn bad(what: &'static str, answer: &Value) -> Error {
    Error::unreadable(what, answer.to_string())
}

fn parsed<T: std::str::FromStr>(
    what: &'static str,
    value: &Value,
    answer: &Value,
) -> Result<T, Error> {
    value
        .as_str()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| bad(what, answer))
}

fn mac_of(text: &str) -> Option<Mac> {
    let bytes: Vec<u8> = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).ok())
        .collect::<Option<_>>()?;
    bytes.try_into().ok()
}

/// Returns six bytes in Base64 (RFC 4648 §4), as Go spells them in JSON.
fn base64(mac: Mac) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits = mac
        .iter()
        .fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
    (0..8)
        .rev()
        .map(|at| char::from(ALPHABET[(bits >> (6 * at) & 63) as usize]))
        .collect()
}
