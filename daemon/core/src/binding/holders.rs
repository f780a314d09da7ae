//! Who holds what: the one live holder of each identity, and of each address of a LAN (invariant 4).
//!
//! A server that receives a client identifier recognises the client by that alone (RFC 2131 §4.2), so the identity decides. But
//! some servers know their clients by chaddr (BusyBox's udhcpd, odhcpd), and give two identities one address; and a server that
//! has lost its leases offers addresses in use. So the holder of each address is known too. The host's own addresses count: a
//! container's ARP does not show them, because a host and its macvlans do not hear each other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use super::Binding;
use crate::identity::{AddressHolder, Attachment, Identity, IdentityKey, Lan};
use crate::link::LinkView;
use crate::record::BindingId;
use crate::time::Instant;
use crate::wire::Mac;

/// A binding's standing: how far it is, and its claim on an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) stage: Stand,
    pub(crate) claim: Option<Claim>,
}

impl Standing {
    /// Returns the address that a server has granted to a binding that is held.
    pub(super) fn held(self) -> Option<Ipv4Addr> {
        let is_held = |claim: &Claim| claim.is_granted() && self.stage == Stand::Held;
        self.claim.filter(is_held).map(|claim| claim.address)
    }
}

/// How far a binding is, as far as others must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    /// Live: an ADD waits for it.
    Acquiring,
    /// Live: its container has its address, or will get another lease.
    Held,
    /// Its address is given back, now or after a wait. It gives way to live bindings.
    Leaving,
}

impl Stand {
    pub(super) fn is_live(self) -> bool {
        matches!(self, Self::Acquiring | Self::Held)
    }
}

/// The address that a binding has, or will have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) address: Ipv4Addr,
    /// When it ends; `None`: never.
    pub(crate) ends: Option<Instant>,
    pub(crate) basis: Basis,
}

impl Claim {
    pub(crate) fn is_granted(&self) -> bool {
        self.basis == Basis::Granted
    }
}

/// What a claim rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Basis {
    /// A server is being asked for it.
    Asked,
    /// Its container already ran with it when this daemon learned about both, and a server is asked to confirm that.
    Used,
    /// A server granted it.
    Granted,
}

/// The live holder of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tenant {
    /// The binding; 0 for the host.
    pub(crate) id: BindingId,
    pub(crate) who: AddressHolder,
    pub(crate) chaddr: Mac,
}

/// What was noted about one binding.
#[derive(Debug)]
struct Noted {
    standing: Standing,
    attachment: Arc<Attachment>,
    chaddr: Mac,
}

/// All holders. [`Holders::note`] and [`Holders::remove`] keep it in step with the bindings. It is told about
/// the host's own addresses.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    known: BTreeMap<BindingId, Noted>,
    /// The live holder of each identity.
    live: BTreeMap<IdentityKey, BindingId>,
    /// The bindings that leave, by identity.
    leaving: BTreeMap<IdentityKey, BTreeSet<BindingId>>,
    /// The claims on addresses, live or not.
    addresses: BTreeMap<Lan, BTreeSet<(Ipv4Addr, BindingId)>>,
    /// The host's own addresses on each LAN's link, as last seen.
    hosts: BTreeMap<Lan, LinkView>,
    /// Identities whose live holder went, or got its address, during the current input.
    stirred: BTreeSet<IdentityKey>,
    /// Held bindings that got their address during the current input.
    settled: BTreeSet<BindingId>,
}

impl Holders {
    /// Records a binding's standing.
    pub(crate) fn note(&mut self, binding: &Binding, now: Instant) {
        let standing = binding.standing(now);
        let before = self.known.get(&binding.id).map(|known| known.standing);
        if before == Some(standing) {
            return;
        }
        let attachment = binding.attachment.clone();
        let chaddr = binding.identity.chaddr;
        self.known.insert(
            binding.id,
            Noted {
                standing,
                attachment,
                chaddr,
            },
        );
        self.move_claim(
            binding,
            before.and_then(|before| before.claim),
            standing.claim,
        );
        let was_live = before.map(|before| before.stage.is_live());
        if was_live != Some(standing.stage.is_live()) {
            match standing.stage.is_live() {
                true => self.enter(binding),
                false => self.leave(binding),
            }
        }
        if standing.held().is_some() && before.and_then(Standing::held) != standing.held() {
            self.settled.insert(binding.id);
            let key = binding.identity.key();
            if self.leaving.contains_key(&key) {
                self.stirred.insert(key);
            }
        }
    }

    /// Forgets a binding.
    pub(crate) fn remove(&mut self, binding: &Binding) {
        let Some(known) = self.known.remove(&binding.id) else {
            return;
        };
        self.move_claim(binding, known.standing.claim, None);
        let key = binding.identity.key();
        self.forget_live(&key, binding.id);
        self.forget_leaving(&key, binding.id);
        self.settled.remove(&binding.id);
    }

    pub(crate) fn of(&self, key: &IdentityKey) -> Option<BindingId> {
        self.live.get(key).copied()
    }

    /// Returns the bindings of an identity that leave, the oldest first.
    pub(crate) fn leaving(&self, key: &IdentityKey) -> Vec<BindingId> {
        self.leaving
            .get(key)
            .into_iter()
            .flatten()
            .copied()
            .collect()
    }

    pub(crate) fn standing(&self, id: BindingId) -> Option<Standing> {
        self.known.get(&id).map(|known| known.standing)
    }

    /// Records the host's own addresses on a LAN's link. A LAN that is tagged there is another wire.
    pub(crate) fn note_host(&mut self, lan: &Lan, view: &LinkView) {
        match view.addresses.is_empty() || lan.vlan() != 0 {
            true => _ = self.hosts.remove(lan),
            false => _ = self.hosts.insert(lan.clone(), view.clone()),
        }
    }

    /// Returns the host's own IPv4 addresses on the link of a LAN.
    pub(crate) fn hosts_on(&self, lan: &Lan) -> Vec<Ipv4Addr> {
        let own = self
            .hosts
            .get(lan)
            .into_iter()
            .flat_map(|view| &view.addresses);
        own.filter_map(|net| {
            if let IpAddr::V4(address) = net.addr() {
                Some(address)
            } else {
                None
            }
        })
        .collect()
    }

    /// Returns the host, if an address of a LAN is its own.
    fn host(&self, lan: &Lan, address: Ipv4Addr) -> Option<Tenant> {
        let view = self
            .hosts
            .get(lan)
            .filter(|view| view.has(address.into()))?;
        Some(Tenant {
            id: BindingId(0),
            who: AddressHolder::Host(view.ifname.clone()),
            chaddr: view.mac,
        })
    }

    /// Returns who has an address of a LAN, besides one binding: the host, or the first
    /// live binding that was granted it, or uses it.
    pub(crate) fn tenant(
        &self,
        lan: &Lan,
        address: Ipv4Addr,
        but: BindingId,
        now: Instant,
    ) -> Option<Tenant> {
        self.host(lan, address).or_else(|| {
            self.claims(lan, address).find_map(|(id, known, claim)| {
                let has = known.standing.stage.is_live()
                    && claim.basis != Basis::Asked
                    && claim.ends.is_none_or(|end| now < end);
                let who = || AddressHolder::Attachment(known.attachment.clone());
                let chaddr = known.chaddr;
                (has && id != but).then(|| Tenant {
                    id,
                    who: who(),
                    chaddr,
                })
            })
        })
    }

    /// Takes out an identity whose live holder went, or got its address.
    pub(crate) fn next_stirred(&mut self) -> Option<IdentityKey> {
        self.stirred.pop_first()
    }

    pub(crate) fn next_settled(&mut self) -> Option<BindingId> {
        self.settled.pop_first()
    }

    /// Returns the bindings that leave with the same address as a binding of this LAN.
    pub(crate) fn leaving_beside(&self, lan: &Lan, id: BindingId) -> Vec<BindingId> {
        let Some(claim) = self.standing(id).and_then(|standing| standing.claim) else {
            return Vec::new();
        };
        let leaves = |known: &Noted| known.standing.stage == Stand::Leaving;
        self.claims(lan, claim.address)
            .filter(|(_, known, _)| leaves(known))
            .map(|(id, ..)| id)
            .collect()
    }

    /// Returns whether a leaving binding has an address, under another identity or with another Ethernet address.
    pub(crate) fn is_left_with(&self, identity: &Identity, address: Ipv4Addr) -> bool {
        let own = self.leaving.get(&identity.key());
        self.claims(&identity.lan, address).any(|(id, known, _)| {
            let is_same =
                known.chaddr == identity.chaddr && own.is_some_and(|own| own.contains(&id));
            known.standing.stage == Stand::Leaving && !is_same
        })
    }

    fn claims(
        &self,
        lan: &Lan,
        address: Ipv4Addr,
    ) -> impl Iterator<Item = (BindingId, &Noted, Claim)> {
        let all = (address, BindingId(0))..=(address, BindingId(u64::MAX));
        let of_address = self
            .addresses
            .get(lan)
            .into_iter()
            .flat_map(move |claims| claims.range(all.clone()));
        of_address.filter_map(|(_, id)| {
            let known = self.known.get(id)?;
            Some((*id, known, known.standing.claim?))
        })
    }

    fn move_claim(&mut self, binding: &Binding, from: Option<Claim>, to: Option<Claim>) {
        let from = from.map(|claim| claim.address);
        let to = to.map(|claim| claim.address);
        if from == to {
            return;
        }
        let lan = &binding.identity.lan;
        if let (Some(address), Some(claims)) = (from, self.addresses.get_mut(lan)) {
            claims.remove(&(address, binding.id));
            if claims.is_empty() {
                self.addresses.remove(lan);
            }
        }
        if let Some(address) = to {
            let claims = self.addresses.entry(lan.clone()).or_default();
            claims.insert((address, binding.id));
        }
    }

    fn enter(&mut self, binding: &Binding) {
        let key = binding.identity.key();
        self.forget_leaving(&key, binding.id);
        self.live.insert(key, binding.id);
    }

    fn leave(&mut self, binding: &Binding) {
        let key = binding.identity.key();
        self.forget_live(&key, binding.id);
        self.leaving.entry(key).or_default().insert(binding.id);
    }

    fn forget_live(&mut self, key: &IdentityKey, id: BindingId) {
        if self.live.get(key) == Some(&id) {
            self.live.remove(key);
            self.stirred.insert(key.clone());
        }
    }

    fn forget_leaving(&mut self, key: &IdentityKey, id: BindingId) {
        if let Some(ids) = self.leaving.get_mut(key) {
            ids.remove(&id);
            if ids.is_empty() {
                self.leaving.remove(key);
            }
        }
    }
}
