//! One lease, as `list` shows it.

use std::cmp::Ordering;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};

use crate::identity::{Attachment, ClientId, Identity};
use crate::link::Link;
use crate::source::StateName;
use crate::tenure::Tenure;

/// The state of a binding, as `list` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingState {
    /// It has a lease or looks for one: the state of its client.
    Client(StateName),
    /// Its lease is kept in case its container returns.
    Kept,
    /// Its lease is being given back.
    Releasing,
}

impl BindingState {
    /// Returns its name: that of RFC 2131, `KEPT` or `RELEASING`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Client(state) => state.name(),
            Self::Kept => "KEPT",
            Self::Releasing => "RELEASING",
        }
    }
}

/// One binding as `list` shows it. Durations count from the time of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Who holds the lease.
    pub attachment: Attachment,
    /// How a server recognises it; `None`: its source asks no server.
    pub identity: Option<Identity>,
    /// Its state.
    pub state: BindingState,
    /// The host name that is sent to servers.
    pub hostname: Option<String>,
    /// Whether its container runs on although its lease was lost.
    pub lost: bool,
    /// The requests to extend or confirm the lease that nobody answered, and how long ago the first was sent, if that is known.
    pub in_vain: Option<(u32, Option<Duration>)>,
    /// The address that Docker was told.
    pub told: Option<Ipv4Net>,
    /// What it holds; `None` while the first lease is being acquired, or after it was lost.
    pub tenure: Option<Tenure>,
    /// How long ago it was granted or extended.
    pub age: Duration,
    /// The time until its grantor is asked to extend it (T1); zero when past, `None`: never.
    pub extended: Option<Duration>,
    /// The time until any other server may extend it too (T2); zero when past, `None`: never.
    pub rebound: Option<Duration>,
    /// The time until it ends; zero when past, `None`: never.
    pub ends: Option<Duration>,
    /// The time until a lease that is kept for its container is given back.
    pub kept: Option<Duration>,
    /// Whether its interface's namespace lives, but no path leads there any more.
    pub pathless: bool,
    /// What delays the RELEASE of a RELEASING binding, and for how long.
    pub held_up: Option<(Duration, String)>,
    /// Where its packets go; `None`: its source needs no interface.
    pub link: Option<Link>,
}

impl Row {
    /// Compares it with another in listing order: by attachment, with leases that are being given back last.
    pub(crate) fn by_attachment(&self, other: &Self) -> Ordering {
        let leaves = |row: &Self| row.state == BindingState::Releasing;
        self.attachment
            .cmp(&other.attachment)
            .then(leaves(self).cmp(&leaves(other)))
    }

    /// Returns its addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpNet> {
        self.tenure
            .iter()
            .flat_map(|tenure| &tenure.addresses)
            .map(|address| address.net)
    }

    /// Returns its pod's namespace and name, if a server recognises it by these.
    pub fn pod(&self) -> Option<(String, String)> {
        pod(&self.attachment, &self.identity.as_ref()?.client_id)
    }

    /// Returns whether a server recognises it by its container.
    pub fn is_named_by_container(&self) -> bool {
        self.identity
            .as_ref()
            .is_some_and(|identity| self.attachment.is_named_by(&identity.client_id))
    }

    /// Returns the shortest name by which a person knows it: its pod, the host name that is sent to servers, or the beginning
    /// of its container's id. Others may have the same name.
    pub fn name(&self) -> String {
        const HEAD: usize = 12;
        if let Some((namespace, pod)) = self.pod() {
            return format!("{namespace}/{pod}");
        }
        if let Some(hostname) = &self.hostname {
            return hostname.clone();
        }
        let id = self.attachment.id();
        // An Ethernet address is short enough.
        if id.contains(':') {
            id.to_owned()
        } else {
            id.chars().take(HEAD).collect()
        }
    }
}

/// Returns the pod that a client identifier is made from: its namespace, its name and the interface.
fn pod(attachment: &Attachment, id: &ClientId) -> Option<(String, String)> {
    let Attachment::Cni { ifname, .. } = attachment else {
        return None;
    };
    let text = str::from_utf8(id.as_bytes().strip_prefix(&[0])?).ok()?;
    let [namespace, pod, of] = text.split('/').collect::<Vec<_>>()[..] else {
        return None;
    };
    (of == ifname && !attachment.is_named_by(id)).then(|| (namespace.to_owned(), pod.to_owned()))
}
