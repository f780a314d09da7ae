//! Bytes to values and back: Ethernet, IPv4, UDP, ARP, DHCP messages and their options.
//!
//! It knows no state and no time. Everything it reads is hostile: each decoder is bounded, never panics, and names the cause of
//! each refusal.

pub mod frame;
pub mod message;
mod name;
pub mod option;
mod read;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An Ethernet address.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(into = "String", try_from = "String")]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The broadcast address.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Returns whether it can be one station's.
    pub(crate) fn is_station(self) -> bool {
        self.0[0] & 1 == 0 && self != Self::default()
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// A text that is not six hexadecimal bytes separated by colons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an Ethernet address, such as 02:00:00:00:00:01")]
pub struct BadMac;

impl FromStr for Mac {
    type Err = BadMac;

    fn from_str(text: &str) -> Result<Self, BadMac> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|p| p.len() == 2).ok_or(BadMac)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| BadMac)?;
        }
        if parts.next().is_some() {
            return Err(BadMac);
        }
        Ok(Self(bytes))
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

impl TryFrom<String> for Mac {
    type Error = BadMac;

    fn try_from(text: String) -> Result<Self, BadMac> {
        text.parse()
    }
}
