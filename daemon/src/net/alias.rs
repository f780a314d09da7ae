//! The aliases that identify links made by daemons with one store.

use std::fmt;

use leasehold_core::identity::DoorId;
use leasehold_core::link::own::LinkOwner;

/// The name of a store: links of a daemon with another store are not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoreId(pub(crate) u64);

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What our alias says about its link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) owner: LinkOwner,
    /// Whether it is the bridge's end of the owner's veth.
    pub(super) port: bool,
}

impl Mark {
    pub(super) fn of(owner: &LinkOwner, port: bool) -> Self {
        let owner = owner.clone();
        Self { owner, port }
    }

    /// Returns the alias, which an operator reads too.
    pub(super) fn alias(&self, store: StoreId) -> String {
        let port = if self.port { " port" } else { "" };
        match &self.owner {
            LinkOwner::Endpoint(id) => format!("leasehold {store} endpoint {}{port}", id.as_str()),
            LinkOwner::Vlan { on, vlan } => format!("leasehold {store} vlan {on} {vlan}{port}"),
        }
    }

    /// Reads an alias; `None` if it is not this store's.
    pub(super) fn read(alias: &str, store: StoreId) -> Option<Self> {
        Self::of_any(alias)
            .filter(|(of, _)| *of == store)
            .map(|(_, mark)| mark)
    }

    /// Reads an alias from a daemon with any store; `None` if it is not one.
    pub(super) fn of_any(alias: &str) -> Option<(StoreId, Self)> {
        let (store, own) = alias.strip_prefix("leasehold ")?.split_once(' ')?;
        let store = StoreId(
            u64::from_str_radix(store, 16)
                .ok()
                .filter(|_| store.len() == 16)?,
        );
        let (own, port) = own
            .strip_suffix(" port")
            .map_or((own, false), |own| (own, true));
        let owner = match own.split_once(' ')? {
            ("endpoint", id) => LinkOwner::Endpoint(DoorId::try_from(id.to_owned()).ok()?),
            ("vlan", of) => {
                let (on, vlan) = of.rsplit_once(' ')?;
                LinkOwner::Vlan {
                    on: on.to_owned(),
                    vlan: vlan.parse().ok()?,
                }
            }
            _ => return None,
        };
        Some((store, Self { owner, port }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: StoreId = StoreId(0x1f);

    #[test]
    fn an_alias_is_read_only_by_the_store_that_wrote_it() {
        let endpoint = LinkOwner::Endpoint(DoorId::try_from("4f00".to_owned()).unwrap());
        let vlan = LinkOwner::Vlan {
            on: "eth0".to_owned(),
            vlan: 10,
        };
        for (mark, alias) in [
            (
                Mark::of(&endpoint, false),
                "leasehold 000000000000001f endpoint 4f00",
            ),
            (
                Mark::of(&endpoint, true),
                "leasehold 000000000000001f endpoint 4f00 port",
            ),
            (
                Mark::of(&vlan, false),
                "leasehold 000000000000001f vlan eth0 10",
            ),
        ] {
            assert_eq!(mark.alias(STORE), alias);
            assert_eq!(Mark::read(alias, STORE), Some(mark));
            assert_eq!(Mark::read(alias, StoreId(0x2f)), None, "{alias}");
            assert_eq!(Mark::of_any(alias).map(|(store, _)| store), Some(STORE));
        }
    }

    #[test]
    fn what_is_no_alias_of_ours_has_no_owner() {
        for rest in [
            "",
            "endpoint",
            "endpoint a-b",
            "vlan eth0",
            "vlan eth0 70000",
            "vlan 10",
            "bridge br0",
            "endpoint  ",
        ] {
            let alias = format!("leasehold {STORE} {rest}");
            assert_eq!(Mark::read(&alias, STORE), None, "{alias}");
        }
        for other in [
            "uplink to rack 7",
            "leasehold 1f endpoint 4f00",
            "leasehold: gives a lease back",
        ] {
            assert_eq!(Mark::of_any(other), None, "{other}");
        }
    }
}
