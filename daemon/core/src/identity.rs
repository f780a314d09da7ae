//! Who asks for a lease, and how the server recognises the asker.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::wire::Mac;

/// What a front door asks for: one interface of one container on one network, as that door names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "door", rename_all = "lowercase")]
pub enum Attachment {
    /// From the CNI shim.
    Cni {
        /// The network's name.
        network: SmolStr,
        /// The container's id.
        container: SmolStr,
        /// The interface's name inside the container, as the caller gave it.
        ifname: SmolStr,
    },
    /// From Docker's drivers, which name neither container nor interface.
    Docker {
        /// The PoolID, or its substitute.
        pool: SmolStr,
        /// The endpoint's Ethernet address, or another name of its own.
        endpoint: SmolStr,
    },
}

impl Attachment {
    /// Returns an attachment of CNI.
    pub fn cni(
        network: impl Into<SmolStr>,
        container: impl Into<SmolStr>,
        ifname: impl Into<SmolStr>,
    ) -> Self {
        Self::Cni {
            network: network.into(),
            container: container.into(),
            ifname: ifname.into(),
        }
    }

    /// Returns the name of the door.
    pub const fn door(&self) -> &'static str {
        match self {
            Self::Cni { .. } => "cni",
            Self::Docker { .. } => "docker",
        }
    }

    /// Returns the network, as the door names it.
    pub fn network(&self) -> &str {
        match self {
            Self::Cni { network, .. } => network,
            Self::Docker { pool, .. } => pool,
        }
    }

    /// Returns its id at its runtime: its container's, or its endpoint's.
    pub fn id(&self) -> &str {
        match self {
            Self::Cni { container, .. } => container,
            Self::Docker { endpoint, .. } => endpoint,
        }
    }

    /// Returns the container's id, if the door names it.
    pub fn container(&self) -> Option<&str> {
        match self {
            Self::Cni { container, .. } => Some(container),
            Self::Docker { .. } => None,
        }
    }

    /// Returns whether a client identifier is made from the container's id: such an identifier ends with that container,
    /// which its engine may start again. Only the beginning of a long id is readable.
    pub(crate) fn is_named_by(&self, id: &ClientId) -> bool {
        const HEAD: usize = 63;
        let Self::Cni {
            network,
            container,
            ifname,
        } = self
        else {
            return false;
        };
        let path = format!("{container}/{network}/{ifname}");
        let head = &path.as_bytes()[..path.len().min(HEAD)];
        id.as_bytes()
            .strip_prefix(&[0])
            .is_some_and(|text| text.starts_with(head))
    }
}

impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cni {
                network,
                container,
                ifname,
            } => write!(f, "{network}/{container}/{ifname}"),
            Self::Docker { pool, endpoint } => write!(f, "docker/{pool}/{endpoint}"),
        }
    }
}

/// A front door's name for something of its own, such as a network: 1 to 64 letters and digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct DoorId(String);

/// A text that is not such a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an id (1 to 64 letters and digits)")]
pub struct BadDoorId;

impl DoorId {
    /// How many of its characters people see, and a link's name has.
    pub const SHORT: usize = 12;

    /// Returns the part of it that people see.
    pub fn short(&self) -> &str {
        self.0.get(..Self::SHORT).unwrap_or(&self.0)
    }

    /// Returns all of it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DoorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.short())
    }
}

impl From<DoorId> for String {
    fn from(id: DoorId) -> Self {
        id.0
    }
}

impl TryFrom<String> for DoorId {
    type Error = BadDoorId;

    fn try_from(text: String) -> Result<Self, BadDoorId> {
        let is_one =
            (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if is_one {
            Ok(Self(text))
        } else {
            Err(BadDoorId)
        }
    }
}

/// Who has an address of a LAN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressHolder {
    /// An attachment has leased it.
    Attachment(Arc<Attachment>),
    /// The host itself has it, on the link of this name.
    Host(String),
    /// A station that this host does not know uses it, by its Ethernet address.
    Station(Mac),
}

impl fmt::Display for AddressHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attachment(attachment) => attachment.fmt(f),
            Self::Host(ifname) => write!(f, "this host itself ({ifname})"),
            Self::Station(mac) => write!(f, "another station ({mac})"),
        }
    }
}

/// One broadcast domain, as far as this host can tell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lan {
    /// The wire behind a host link (`master`, `bridge`, `parent`), in one of its VLANs (0: untagged).
    Link {
        /// The host link's name.
        parent: SmolStr,
        /// The VLAN, 0 when untagged.
        vlan: u16,
    },
    /// A network whose configuration names no host link.
    Network(SmolStr),
}

impl Lan {
    /// Returns the VLAN on that link; 0 when untagged, or unknown.
    pub fn vlan(&self) -> u16 {
        match self {
            Self::Link { vlan, .. } => *vlan,
            Self::Network(_) => 0,
        }
    }

    /// Returns whether both are one LAN. VLAN 10 of `eth0` may have been named by its link, `eth0.10`.
    pub fn is(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }

    /// Returns the host's link, if the LAN is known by one.
    pub fn parent(&self) -> Option<&str> {
        match self {
            Self::Link { parent, .. } => Some(parent),
            Self::Network(_) => None,
        }
    }
}

impl fmt::Display for Lan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link { parent, vlan: 0 } => f.write_str(parent),
            Self::Link { parent, vlan } => write!(f, "{parent}.{vlan}"),
            Self::Network(name) => write!(f, "network {name}"),
        }
    }
}

/// A client identifier: the value of option 61, type byte first (RFC 2132 §9.14). Shown as hexadecimal. Clones share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ClientId(Arc<[u8]>);

/// Bytes that cannot be a client identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadClientId {
    /// RFC 2132 §9.14 wants two bytes at least.
    #[error("a client identifier has at least 2 bytes, this one has {0}")]
    TooShort(usize),
    /// One option holds 255 bytes; the incumbent cuts at 254.
    #[error("a client identifier has at most 255 bytes, this one has {0}")]
    TooLong(usize),
    /// Not an even number of hexadecimal digits.
    #[error("a client identifier is an even number of hexadecimal digits")]
    NotHex,
}

impl ClientId {
    /// Returns the identifier with these bytes, 2 to 255 of them.
    pub fn new(bytes: Vec<u8>) -> Result<Self, BadClientId> {
        match bytes.len() {
            n @ 0..=1 => Err(BadClientId::TooShort(n)),
            2..=255 => Ok(Self(bytes.into())),
            n => Err(BadClientId::TooLong(n)),
        }
    }

    /// Returns the identifier made from a hardware address: its type, then the address (RFC 2132 §9.14).
    pub fn ethernet(mac: Mac) -> Self {
        Self(std::iter::once(1).chain(mac.0).collect())
    }

    /// Returns it for a person. An identifier of type 0 (RFC 4361: no hardware type) is usually text and shown as
    /// such, `00:c1/lan/eth0`; any other stays hexadecimal.
    pub fn readable(&self) -> String {
        match &*self.0 {
            [0, text @ ..] if text.iter().all(u8::is_ascii_graphic) => {
                format!("00:{}", String::from_utf8_lossy(text))
            }
            _ => self.to_string(),
        }
    }

    /// Returns the bytes of option 61.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl From<ClientId> for String {
    fn from(id: ClientId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for ClientId {
    type Error = BadClientId;

    fn try_from(text: String) -> Result<Self, BadClientId> {
        if !text.len().is_multiple_of(2) || !text.is_ascii() {
            return Err(BadClientId::NotHex);
        }
        let byte = |i| u8::from_str_radix(&text[i..i + 2], 16).map_err(|_| BadClientId::NotHex);
        Self::new(
            (0..text.len())
                .step_by(2)
                .map(byte)
                .collect::<Result<_, _>>()?,
        )
    }
}

/// How a server recognises a client.
///
/// A server that receives a client identifier recognises the client by that alone (RFC 2131 §4.2), so two identities belong to
/// one holder if LAN and client identifier agree: see [`Identity::key`]. The chaddr is there because every message bears it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The wire that the server is on.
    pub lan: Lan,
    /// Option 61.
    pub client_id: ClientId,
    /// The client's hardware address.
    pub chaddr: Mac,
}

/// The part of an identity that decides whose lease it is.
pub type IdentityKey = (Lan, ClientId);

impl Identity {
    /// Returns the part that decides whose lease it is.
    pub fn key(&self) -> IdentityKey {
        (self.lan.clone(), self.client_id.clone())
    }
}

/// How an attachment's client identifier is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientIdRule {
    /// These bytes.
    Bytes(ClientId),
    /// 1 and the hardware address (RFC 2132 §9.14).
    Mac,
    /// A name that is too long for some servers.
    Hashed {
        /// The identifier that is sent instead.
        sent: ClientId,
        /// The whole name: the identifier of clients that this daemon already knows by it, and of those that ran before the
        /// daemon did.
        known: Option<ClientId>,
    },
}

impl ClientIdRule {
    /// Returns the client identifier of a client with this hardware address.
    pub fn resolve(&self, chaddr: Mac) -> ClientId {
        match self {
            Self::Bytes(id) | Self::Hashed { sent: id, .. } => id.clone(),
            Self::Mac => ClientId::ethernet(chaddr),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attachment_names_its_door_beside_what_that_calls_it() {
        let docker = Attachment::Docker {
            pool: "lan".into(),
            endpoint: "02:42:c0:a8:01:05".into(),
        };
        let table = [
            (
                Attachment::cni("lan", "c1", "eth0"),
                r#"{"door":"cni","network":"lan","container":"c1","ifname":"eth0"}"#,
                "lan/c1/eth0",
            ),
            (
                docker,
                r#"{"door":"docker","pool":"lan","endpoint":"02:42:c0:a8:01:05"}"#,
                "docker/lan/02:42:c0:a8:01:05",
            ),
        ];
        for (attachment, json, text) in table {
            assert_eq!(serde_json::to_string(&attachment).unwrap(), json);
            assert_eq!(
                serde_json::from_str::<Attachment>(json).unwrap(),
                attachment
            );
            assert_eq!(attachment.to_string(), text);
        }
    }

    #[test]
    fn an_identifier_with_the_containers_path_is_its_own() {
        let c1 = Attachment::cni("lan", "c1", "eth0");
        let long = Attachment::cni("lan", "c".repeat(64), "eth0");
        let hashed = format!("\0{}{}", "c".repeat(63), "0".repeat(64));
        let docker = Attachment::Docker {
            pool: "lan".into(),
            endpoint: "c1".into(),
        };
        let table = [
            (&c1, "\0c1/lan/eth0", true),
            (&c1, "\0c1/lan/eth1", false),
            (&c1, "\x01c1/lan/eth0", false),
            (&c1, "\0shop/web-0/eth0", false),
            (&long, hashed.as_str(), true),
            (&docker, "\0c1/lan/eth0", false),
        ];
        for (attachment, id, named) in table {
            let id = ClientId::new(id.as_bytes().to_vec()).unwrap();
            assert_eq!(
                attachment.is_named_by(&id),
                named,
                "{attachment} {}",
                id.readable()
            );
        }
    }

    #[test]
    fn an_identifier_of_type_0_is_shown_as_text() {
        let readable = |bytes: &[u8]| {
            ClientId::new(bytes.to_vec())
                .expect("an identifier")
                .readable()
        };
        assert_eq!(readable(b"\0c1/lan/eth0"), "00:c1/lan/eth0");
        assert_eq!(readable(b"\0a b"), "00612062");
        assert_eq!(readable(&[1, 2, 0, 0, 0, 1, 1]), "01020000000101");
    }

    #[test]
    fn what_could_be_a_path_or_a_line_is_no_id() {
        for bad in ["", "a/b", "a b", "a\n", "..", &"f".repeat(65)] {
            assert_eq!(DoorId::try_from(bad.to_owned()), Err(BadDoorId), "{bad:?}");
        }
        let id = |text: &str| DoorId::try_from(text.to_owned()).expect("an id");
        assert_eq!(id(&"f".repeat(64)).short(), "f".repeat(12));
        assert_eq!(id("ab").short(), "ab");
    }
}
