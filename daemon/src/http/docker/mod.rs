//! libnetwork's words to the core's and back: Docker's IPAM driver.
//!
//! Pure: no socket, no file, no state. A call that comes to nothing is a success to HTTP (200), because whatever else a
//! driver answers is final to dockerd, which then shows the answer's bare text.

use leasehold_api::docker::{self as wire, Activated, AddressSpaces, Capabilities};
use leasehold_api::to_json;

/// The name of both address spaces. Where they have one, dockerd (27 and later) does not ask again for a pool whose subnet
/// overlaps a route of the host, as a LAN's always does.
const ADDRESS_SPACE: &str = "leasehold";

/// What dockerd may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Activate,
    Capabilities,
    AddressSpaces,
}

impl Method {
    /// Returns the method with this URL.
    pub(crate) fn at(path: &str) -> Option<Self> {
        Some(match path {
            wire::ACTIVATE => Self::Activate,
            wire::CAPABILITIES => Self::Capabilities,
            wire::ADDRESS_SPACES => Self::AddressSpaces,
            _ => return None,
        })
    }
}

/// Returns the answer to a call. `ipvlan`: it came by the socket for networks whose endpoints have no Ethernet address of
/// their own.
pub(crate) fn answer(method: Method, ipvlan: bool) -> String {
    match method {
        Method::Activate => to_json(&Activated { implements: vec!["IpamDriver".to_owned()] }),
        // Replay would ask for live addresses without their Ethernet addresses: the store knows better.
        Method::Capabilities => {
            to_json(&Capabilities { requires_mac_address: !ipvlan, requires_request_replay: false })
        }
        Method::AddressSpaces => to_json(&AddressSpaces {
            local_default_address_space: ADDRESS_SPACE.to_owned(),
            global_default_address_space: ADDRESS_SPACE.to_owned(),
        }),
    }
}
