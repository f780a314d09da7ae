//! What an operator orders: leases are extended, or given back, before their time.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

use super::row::{BindingState, Row};
use crate::failure::Failure;
use crate::identity::Attachment;

/// An order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// What to do.
    pub verb: Verb,
    /// With which leases.
    pub which: Which,
}

/// What an operator wants done with leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// They are extended now.
    Renew,
    /// They are given back.
    Release {
        /// Whether leases of living containers are too.
        force: bool,
    },
}

/// Which leases are meant. A field that is `None` excludes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Which {
    /// The lease's attachment, address, pod (`shop/web-0`) or host name, or the beginning of its container's id. An exact
    /// match excludes leases that only begin with it.
    pub name: Option<String>,
    /// Its network, as its door names it.
    pub network: Option<String>,
    /// The beginning of its container's id.
    pub container: Option<String>,
    /// Its address, or a subnet that has it.
    pub address: Option<IpNet>,
    /// The name of its state, in any case.
    pub state: Option<String>,
    /// Its door.
    pub door: Option<String>,
}

/// The outcome of an order for one lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obeyed {
    /// Whose lease.
    pub attachment: Attachment,
    /// Its address; `None`: there is none.
    pub address: Option<IpNet>,
    /// The outcome.
    pub upshot: Upshot,
}

/// The outcome of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upshot {
    /// The lease was extended.
    Extended {
        /// By this server.
        server: IpAddr,
        /// For this long from now; `None`: for ever.
        ends: Option<Duration>,
    },
    /// It was extended only this long ago: nobody was asked.
    Fresh(Duration),
    /// It could not be extended, and is held as before. For a person: why, if that is known.
    Unanswered(Option<String>),
    /// A server extended it, but the store has not recorded that. It is held as extended.
    Unrecorded,
    /// It was lost, as an event says; the daemon looks for another, unless it was given back.
    Lost,
    /// There is nothing to extend or to give back in this state.
    Nothing(BindingState),
    /// It never ends, and no server gave it: it comes from a local range.
    Local,
    /// It is being given back.
    Leaves,
    /// It is not given back, because its container lives, as far as is known. `interface`: its address would be taken off the
    /// container's interface first.
    Lives {
        /// Whether its interface is known.
        interface: bool,
    },
    /// It is one of several that match the name: nothing was done.
    Ambiguous,
    /// It could not be done.
    Failed(Failure),
}

impl Obeyed {
    /// Returns the outcome of an order for a row's lease.
    pub(crate) fn of(row: &Row, upshot: Upshot) -> Self {
        Self::new(row.attachment.clone(), row.addresses().next(), upshot)
    }

    pub(crate) fn new(attachment: Attachment, address: Option<IpNet>, upshot: Upshot) -> Self {
        Self {
            attachment,
            address,
            upshot,
        }
    }
}

impl Which {
    /// Returns those of `all` that are meant.
    pub fn of<T>(&self, all: impl IntoIterator<Item = (T, Row)>) -> Vec<(T, Row)> {
        let ranked = |(key, row): (T, Row)| {
            let rank = self
                .name
                .as_deref()
                .map_or(Some(Rank::Exact), |name| rank(&row, name))?;
            self.admits(&row).then_some((rank, key, row))
        };
        let mut found: Vec<_> = all.into_iter().filter_map(ranked).collect();
        let best = found.iter().map(|(rank, ..)| *rank).min();
        found.retain(|(rank, ..)| Some(*rank) == best);
        if self.name.is_some() {
            // An attachment has one lease, besides those that are still being given back.
            found.sort_by(|(.., a), (.., b)| a.by_attachment(b));
            found.dedup_by(|(.., later), (.., first)| later.attachment == first.attachment);
        }
        found.into_iter().map(|(_, key, row)| (key, row)).collect()
    }

    /// Returns whether a lease is meant, apart from its name.
    fn admits(&self, row: &Row) -> bool {
        let Self {
            name: _,
            network,
            container,
            address,
            state,
            door,
        } = self;
        let of = &row.attachment;
        network
            .as_ref()
            .is_none_or(|network| of.network() == network)
            && container
                .as_ref()
                .is_none_or(|id| of.container().is_some_and(|of| of.starts_with(id.as_str())))
            && address.is_none_or(|net| row.addresses().any(|own| net.contains(&own.addr())))
            && state
                .as_ref()
                .is_none_or(|state| row.state.as_str().eq_ignore_ascii_case(state))
            && door.as_ref().is_none_or(|door| of.door() == door)
    }
}

/// How well a name fits a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Exact,
    Begins,
}

fn rank(row: &Row, name: &str) -> Option<Rank> {
    let id = row.attachment.id();
    let address: Option<IpAddr> = name.parse().ok();
    let pod = row.pod();
    let is_exact = id == name
        || row.attachment.to_string() == name
        || row.hostname.as_deref() == Some(name)
        || address.is_some_and(|address| row.addresses().any(|own| own.addr() == address))
        || pod.is_some_and(|(namespace, pod)| pod == name || format!("{namespace}/{pod}") == name);
    match is_exact {
        true => Some(Rank::Exact),
        false => (!name.is_empty() && id.starts_with(name)).then_some(Rank::Begins),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grant::policy::Policy;
    use crate::identity::{ClientId, Identity, Lan};
    use crate::link::Link;
    use crate::source::{Lease, StateName};
    use crate::time::Instant;
    use crate::wire::Mac;

    fn row(container: &str, client_id: &str, address: &str) -> Row {
        let mac = Mac([2, 0, 0, 0, 0, 9]);
        let lan = Lan::Link {
            parent: "eth0".into(),
            vlan: 0,
        };
        let lease = Lease::unknown(
            address.parse().expect("an address"),
            Instant::from_boot(Duration::ZERO),
        );
        let attachment = Attachment::cni("lan", container, "net1");
        let client_id = ClientId::new(client_id.into()).expect("two bytes");
        Row {
            identity: Some(Identity {
                lan,
                client_id,
                chaddr: mac,
            }),
            state: BindingState::Client(StateName::Bound),
            tenure: Some(lease.tenure(&Policy::default())),
            link: Some(Link::parent(2, mac)),
            attachment,
            hostname: None,
            lost: false,
            in_vain: None,
            told: None,
            age: Duration::ZERO,
            extended: None,
            rebound: None,
            ends: None,
            kept: None,
            pathless: false,
            held_up: None,
        }
    }

    fn rows() -> Vec<Row> {
        vec![
            row("c0ffee", "\0shop/web-0/net1", "10.0.0.7/24"),
            row("c0ffee11", "\0c0ffee11/lan/net1", "10.0.0.8/24"),
            Row {
                hostname: Some("web-0".to_owned()),
                ..row("d00d", "\0x", "10.0.1.7/24")
            },
        ]
    }

    fn found(which: &Which) -> Vec<String> {
        which
            .of(rows().into_iter().map(|row| ((), row)))
            .into_iter()
            .map(|(_, row)| row.name())
            .collect()
    }

    #[test]
    fn a_lease_is_called_by_whatever_a_person_knows_of_it() {
        let table: [(&str, &[&str]); 10] = [
            ("shop/web-0", &["shop/web-0"]),
            ("web-0", &["shop/web-0", "web-0"]),
            ("lan/d00d/net1", &["web-0"]),
            ("10.0.0.8", &["c0ffee11"]),
            ("c0ffee", &["shop/web-0"]),
            ("c0f", &["shop/web-0", "c0ffee11"]),
            ("c0ffee1", &["c0ffee11"]),
            ("lan", &[]),
            ("", &[]),
            ("10.0.0.80", &[]),
        ];
        for (name, expected) in table {
            let which = Which {
                name: Some(name.to_owned()),
                ..Which::default()
            };
            assert_eq!(found(&which), expected, "{name}");
        }
    }

    #[test]
    fn a_name_means_the_lease_that_is_not_on_its_way_back() {
        let leaving = Row {
            state: BindingState::Releasing,
            ..row("c0ffee", "\0x", "10.0.0.9/24")
        };
        let both =
            || [leaving.clone(), row("c0ffee", "\0x", "10.0.0.7/24")].map(|row| (row.state, row));
        let states = |name: Option<&str>| -> Vec<_> {
            let which = Which {
                name: name.map(str::to_owned),
                ..Which::default()
            };
            which
                .of(both())
                .into_iter()
                .map(|(state, _)| state)
                .collect()
        };
        assert_eq!(
            states(Some("c0ffee")),
            [BindingState::Client(StateName::Bound)]
        );
        assert_eq!(states(Some("10.0.0.9")), [BindingState::Releasing]);
        assert_eq!(states(None).len(), 2);
    }

    #[test]
    fn a_filter_leaves_out_what_does_not_meet_all_of_it() {
        let some = |text: &str| Some(text.to_owned());
        let net = |text: &str| Some(text.parse().expect("a subnet"));
        let with = |set: &dyn Fn(&mut Which)| {
            let mut which = Which::default();
            set(&mut which);
            found(&which)
        };
        assert_eq!(with(&|_| {}).len(), 3);
        let both = with(&|which| (which.network, which.door) = (some("lan"), some("cni")));
        assert_eq!(both.len(), 3);
        assert!(with(&|which| which.network = some("la")).is_empty());
        assert!(with(&|which| which.door = some("docker")).is_empty());
        assert_eq!(with(&|which| which.container = some("c0")).len(), 2);
        let in_subnet = with(&|which| which.address = net("10.0.1.0/24"));
        assert_eq!(in_subnet, ["web-0"]);
        let exact = with(&|which| which.address = net("10.0.0.7/32"));
        assert_eq!(exact, ["shop/web-0"]);
        let bound = with(&|which| (which.state, which.container) = (some("bound"), some("d")));
        assert_eq!(bound, ["web-0"]);
        assert!(with(&|which| which.state = some("KEPT")).is_empty());
    }
}
