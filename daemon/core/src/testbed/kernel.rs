//! The kernel: namespaces with their links and addresses, and its messages about them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use crate::link::own::{LinkKind, LinkOwner, OwnLink, OwnLinks};
use crate::link::{
    Cookie, KernelMessage, Link, LinkCause, LinkView, Sighting, Sightings, Sought, Step, Target,
    directory_of,
};
use crate::wire::Mac;
use ipnet::Ipv4Net;

use super::link::{Did, Own, Wire};

/// Where a link is: its namespace and its index there.
pub type At = (Cookie, u32);

/// The host's own namespace. It has one link per LAN, with indices from 2 on, and `lo`.
pub const HOST: Cookie = Cookie(1);

/// Links made in the host's namespace have higher indices than this.
const FIRST_OWN: u32 = 100;

/// Where Docker's namespaces have their files.
pub const DOCKER_NETNS: &str = "/run/docker/netns";

/// Returns the Ethernet address of the host's link of a LAN.
pub fn host_mac(lan: usize) -> Mac {
    Mac([2, 0xaa, 0, 0, 0, lan as u8])
}

/// A namespace.
#[derive(Debug)]
struct Space {
    path: PathBuf,
    links: BTreeMap<u32, Wire>,
    /// Whether its path is gone: it dies as soon as no socket keeps it.
    doomed: bool,
    sockets: u32,
    /// How many links were put into it so far.
    puts: u64,
}

/// The outcome of the steps on a link.
#[derive(Debug)]
pub struct Applied {
    /// How many were taken.
    pub taken: usize,
    /// The link after them, or why one could not be taken.
    pub result: Result<LinkView, LinkCause>,
    /// Where.
    pub at: Option<At>,
    /// Whether the link came up.
    pub raised: bool,
    /// The addresses before the first step and after each.
    pub addresses: Vec<Vec<Ipv4Net>>,
    /// The kernel's messages about it.
    pub told: Vec<KernelMessage>,
}

/// What a daemon finds at a path whose namespace it does not see.
pub type Unseen = fn(PathBuf) -> LinkCause;

/// All namespaces of one boot.
#[derive(Debug)]
pub struct Kernel {
    spaces: BTreeMap<Cookie, Space>,
    paths: BTreeMap<PathBuf, Cookie>,
    /// The namespaces that the daemon hears.
    watched: BTreeSet<Cookie>,
    /// Set while the daemon sees no namespace in a directory: what it finds at their paths, and the directory.
    pub unseen: Option<(Unseen, &'static str)>,
    next: u64,
}

impl Kernel {
    /// Returns the kernel after a boot: the host's links `eth0`, `eth1`, …, bridges or not, are up.
    pub fn booted(lans: usize, bridge: bool) -> Self {
        let wire = |lan: usize| {
            let mut wire = Wire::new(&format!("eth{lan}"), host_mac(lan), 1500, lan, true);
            wire.bridge = bridge;
            wire
        };
        let loopback = (1, Wire::new("lo", Mac::default(), 65_536, 0, true));
        let links = (0..lans)
            .map(|lan| (lan as u32 + 2, wire(lan)))
            .chain([loopback])
            .collect();
        let host = Space {
            path: PathBuf::new(),
            links,
            doomed: false,
            sockets: 0,
            puts: 0,
        };
        // Cookies begin again with each boot, so those of an earlier boot come back.
        let spaces = BTreeMap::from([(HOST, host)]);
        let paths = BTreeMap::new();
        let watched = BTreeSet::new();
        Self {
            spaces,
            paths,
            watched,
            unseen: None,
            next: 2,
        }
    }

    /// Makes a namespace with one link in it, which is down.
    pub fn create(&mut self, path: &Path, ifname: &str, mac: Mac, mtu: u32, lan: usize) -> At {
        let cookie = self.create_empty(path);
        self.put(cookie, Wire::new(ifname, mac, mtu, lan, false))
            .expect("it was just made")
    }

    /// Makes a namespace without a link.
    pub fn create_empty(&mut self, path: &Path) -> Cookie {
        let cookie = Cookie(self.next);
        self.next += 1;
        self.spaces.insert(
            cookie,
            Space {
                path: path.to_owned(),
                links: BTreeMap::new(),
                doomed: false,
                sockets: 0,
                puts: 0,
            },
        );
        self.paths.insert(path.to_owned(), cookie);
        cookie
    }

    /// Puts a link into a namespace.
    pub fn put(&mut self, cookie: Cookie, wire: Wire) -> Option<At> {
        // An index that is unrelated to the namespace, as with macvlan links moved in from the host.
        let space = self.spaces.get_mut(&cookie)?;
        let ifindex = 2 + ((cookie.0 + 1 + space.puts) % 5) as u32;
        space.puts += 1;
        space.links.insert(ifindex, wire);
        Some((cookie, ifindex))
    }

    /// Returns what the kernel reports about a link that came into a namespace.
    pub fn arrival(&self, at: At) -> Option<KernelMessage> {
        let mac = self.link(at)?.mac;
        Some(match self.is_watched(at.0) {
            true => KernelMessage::Ethernet(at, mac),
            false => KernelMessage::Appeared {
                number: at.0.0 as i32,
                mac,
            },
        })
    }

    /// Looks through Docker's namespaces, or only the one with this number.
    pub fn seek(
        &mut self,
        sought: &[(Sought, usize)],
        number: Option<i32>,
    ) -> Result<Sightings, LinkCause> {
        if self.hides(Path::new(DOCKER_NETNS)).is_some() {
            return Err(LinkCause::NoDirectory(DOCKER_NETNS.into()));
        }
        let is_one = |cookie: &Cookie| number.is_none_or(|number| cookie.0 as i32 == number);
        let spaces = self
            .spaces
            .iter()
            .filter(|(_, space)| !space.doomed && space.path.starts_with(DOCKER_NETNS));
        let spaces = spaces.filter(|(cookie, _)| is_one(cookie));
        let mut sightings = Sightings {
            whole: number.is_none(),
            ..Sightings::default()
        };
        let mut found = Vec::new();
        for (cookie, space) in spaces {
            sightings.seen += 1;
            for (ifindex, wire) in &space.links {
                let wanted = sought
                    .iter()
                    .find(|(sought, lan)| sought.mac == wire.mac && *lan == wire.lan);
                found.extend(
                    wanted.map(|(sought, _)| {
                        (sought.clone(), space.path.clone(), (*cookie, *ifindex))
                    }),
                );
            }
        }
        for (sought, netns, at) in found {
            let link = Link::InNetns {
                path: netns.clone(),
                cookie: at.0,
                ifindex: at.1,
                mac: sought.mac,
            };
            if let Ok(view) = self.inspect(&Target::Known(link)) {
                sightings.found.push(Sighting {
                    sought,
                    netns,
                    view,
                });
            }
        }
        Ok(sightings)
    }

    /// Returns a link.
    pub fn link(&self, (cookie, ifindex): At) -> Option<&Wire> {
        self.spaces.get(&cookie)?.links.get(&ifindex)
    }

    fn link_mut(&mut self, (cookie, ifindex): At) -> Option<&mut Wire> {
        self.spaces.get_mut(&cookie)?.links.get_mut(&ifindex)
    }

    /// Returns the container's link that is up on a LAN and has an address, except the one with this Ethernet address.
    pub fn owner(&self, lan: usize, address: Ipv4Addr, but: Option<Mac>) -> Option<&Wire> {
        let mut wires = self.spaces.values().flat_map(|space| space.links.values());
        wires.find(|wire| wire.lan == lan && wire.up && Some(wire.mac) != but && wire.has(address))
    }

    /// Returns whether a container's link on a LAN is up and has this Ethernet address: no other can have it then.
    pub fn is_taken(&self, lan: usize, mac: Mac) -> bool {
        let mut wires = self.spaces.values().flat_map(|space| space.links.values());
        wires.any(|wire| wire.lan == lan && wire.up && wire.mac == mac)
    }

    /// Returns where a link is, as sockets on it would be.
    pub fn locate(&self, link: &Link) -> Result<At, LinkCause> {
        match link {
            Link::InNetns { .. } => self.find(&Target::Known(link.clone())),
            Link::Parent { ifindex, .. } => {
                let at = (HOST, *ifindex);
                self.link(at)
                    .map(|_| at)
                    .ok_or(LinkCause::NoLink(ifindex.to_string()))
            }
        }
    }

    fn find(&self, target: &Target) -> Result<At, LinkCause> {
        let by_name = |cookie: Cookie, ifname: &String| {
            let links = self.spaces.get(&cookie).map(|space| &space.links);
            let found =
                links.and_then(|links| links.iter().find(|(_, wire)| wire.ifname == *ifname));
            found
                .map(|(ifindex, _)| (cookie, *ifindex))
                .ok_or(LinkCause::NoLink(ifname.clone()))
        };
        let at_path = |path: &PathBuf| match self.hides(path) {
            Some(cause) => Err(cause),
            None => self
                .paths
                .get(path)
                .copied()
                .ok_or(LinkCause::NoNetns(path.clone())),
        };
        match target {
            Target::Named(named) | Target::OfServer(named, _) => {
                by_name(at_path(&named.netns)?, &named.ifname)
            }
            Target::Host { ifname } => by_name(HOST, ifname),
            Target::Known(Link::Parent { ifindex, .. }) => Ok((HOST, *ifindex)),
            Target::Known(Link::InNetns {
                path,
                cookie,
                ifindex,
                ..
            }) => {
                let at = (*cookie, *ifindex);
                let there = at_path(path).and_then(|found| match found == *cookie {
                    true => Ok(()),
                    false => Err(LinkCause::NetnsChanged(path.clone())),
                });
                match (there, self.link(at)) {
                    (Ok(()), Some(_)) => Ok(at),
                    (Ok(()), None) => Err(LinkCause::NoLink(ifindex.to_string())),
                    (Err(_), Some(_)) => Err(LinkCause::NoPath(path.clone())),
                    (Err(LinkCause::NoNetns(_)), None) if self.shows_beside(path) => {
                        Err(LinkCause::NetnsRemoved(path.clone()))
                    }
                    (Err(cause), None) => Err(cause),
                }
            }
        }
    }

    /// Returns whether the daemon sees a namespace in the directory of a path.
    fn shows_beside(&self, path: &Path) -> bool {
        let is_beside = |other: &PathBuf| directory_of(other) == directory_of(path);
        let mut others = self.paths.keys().filter(|other| is_beside(other));
        others.any(|other| self.hides(other).is_none())
    }

    /// Returns what the daemon finds at the path of a namespace that it does not see.
    fn hides(&self, path: &Path) -> Option<LinkCause> {
        let (cause, directory) = self.unseen?;
        path.starts_with(directory).then(|| cause(path.to_owned()))
    }

    /// Looks whether a namespace is there. From then on the daemon hears about its end.
    pub fn watch(&mut self, path: &Path) -> Result<Cookie, LinkCause> {
        if let Some(cause) = self.hides(path) {
            return Err(cause);
        }
        let cookie = self
            .paths
            .get(path)
            .copied()
            .ok_or_else(|| LinkCause::NoNetns(path.to_owned()))?;
        self.watched.insert(cookie);
        Ok(cookie)
    }

    /// Looks at a link. From then on the daemon hears about its namespace.
    pub fn inspect(&mut self, target: &Target) -> Result<LinkView, LinkCause> {
        let at = self.find(target)?;
        self.watched.insert(at.0);
        let wire = self.link(at).ok_or(LinkCause::NoLink(at.1.to_string()))?;
        Ok(LinkView {
            cookie: at.0,
            ifindex: at.1,
            ifname: wire.ifname.clone(),
            mac: wire.mac,
            mtu: wire.mtu,
            up: wire.up,
            carrier: wire.carrier,
            was_down: false,
            addresses: wire.addresses().into_iter().map(Into::into).collect(),
            routes: Some(wire.routes.clone()),
            bridge: wire.bridge,
            macvlan: false,
            // A macvlan in every other container.
            lower: (at.0 != HOST && at.0.0 % 2 == 0).then_some(at.1),
            wire: None,
            wireless: false,
            received: 0,
        })
    }

    /// Lists the Ethernet addresses of all links in a container's namespace.
    pub fn macs_inside(&self, link: &Link) -> Result<Vec<Mac>, LinkCause> {
        let at = self.find(&Target::Known(link.clone()))?;
        let space = self.spaces.get(&at.0);
        let wires = space.into_iter().flat_map(|space| space.links.values());
        Ok(wires.map(|wire| wire.mac).collect())
    }

    /// Takes the first `most` steps on a link, up to the first that the kernel refuses.
    pub fn apply(&mut self, target: &Target, steps: &[Step], most: usize) -> Applied {
        let (at, result) = match self.find(target) {
            Ok(at) => {
                let doing = steps.get(most).map_or("look at the link", Step::doing);
                (Some(at), Err(LinkCause::refused(doing, "simulated")))
            }
            Err(cause) => (None, Err(cause)),
        };
        let mut done = Applied {
            taken: 0,
            result,
            at,
            raised: false,
            addresses: Vec::new(),
            told: Vec::new(),
        };
        let Some((at, wire)) = at.and_then(|at| Some((at, self.link_mut(at)?))) else {
            return done;
        };
        done.addresses.push(wire.addresses());
        for step in steps.iter().take(most) {
            match wire.step(step) {
                Ok(did) => {
                    done.raised |= did.raised;
                    done.addresses.push(wire.addresses());
                    done.told.extend(told(at, &did));
                }
                Err(reason) => {
                    done.result = Err(LinkCause::refused(step.doing(), reason));
                    break;
                }
            }
            done.taken += 1;
        }
        if done.taken == steps.len() {
            let was_down = done.raised;
            done.result = self
                .inspect(target)
                .map(|view| LinkView { was_down, ..view });
        }
        done
    }

    /// Changes a link as somebody else would, as far as the kernel allows.
    pub fn change(&mut self, at: At, step: &Step) -> Vec<KernelMessage> {
        let did = self.link_mut(at).and_then(|wire| wire.step(step).ok());
        did.map(|did| told(at, &did)).unwrap_or_default()
    }

    /// Gives a link carrier, or takes it away.
    pub fn set_carrier(&mut self, at: At, carrier: bool) -> Option<KernelMessage> {
        let wire = self.link_mut(at).filter(|wire| wire.up)?;
        wire.carrier = carrier;
        Some(KernelMessage::Carrier(at, carrier))
    }

    /// Makes a link's port forward nothing until this time.
    pub fn block(&mut self, at: At, until: u64) {
        self.link_mut(at)
            .into_iter()
            .for_each(|wire| wire.blocked = until);
    }

    /// Sets a link down.
    pub fn lower(&mut self, at: At) -> Vec<KernelMessage> {
        let Some(wire) = self.link_mut(at) else {
            return Vec::new();
        };
        wire.lower();
        let (cookie, ifindex) = at;
        vec![
            KernelMessage::Down((cookie, ifindex)),
            KernelMessage::Carrier((cookie, ifindex), false),
        ]
    }

    /// Sets a link up. Carrier comes later.
    pub fn raise(&mut self, at: At) {
        if let Some(wire) = self.link_mut(at) {
            wire.up = true;
        }
    }

    /// Deletes a link.
    pub fn delete_link(&mut self, at: At) -> Option<KernelMessage> {
        self.spaces.get_mut(&at.0)?.links.remove(&at.1)?;
        Some(KernelMessage::LinkGone(at))
    }

    /// Makes a link in the host's namespace for a daemon with this store. Returns whether there was none before.
    pub fn make(&mut self, link: &OwnLink, store: u32, now: u64) -> Result<bool, LinkCause> {
        let name = link.owner.ifname();
        let host = self
            .spaces
            .get_mut(&HOST)
            .ok_or(LinkCause::NoLink(link.on.clone()))?;
        let on = host.links.values().find(|wire| wire.ifname == link.on);
        let on = on.cloned().ok_or(LinkCause::NoLink(link.on.clone()))?;
        let own = Own {
            owner: link.owner.clone(),
            store,
            on: link.on.clone(),
            came: now,
            moved: false,
        };
        if let Some(there) = host.links.values().find(|wire| wire.ifname == name) {
            let is_own = there
                .own
                .as_ref()
                .is_some_and(|there| (&there.owner, there.store) == (&own.owner, store));
            // A VLAN's link of another store serves too, though somebody else made it.
            let will_do = is_own || matches!(link.owner, LinkOwner::Vlan { .. });
            return if will_do {
                Ok(false)
            } else {
                Err(LinkCause::refused("make a link", "it is another's name"))
            };
        }
        let mtu = link.mtu.map_or(on.mtu, |mtu| mtu.min(on.mtu));
        // Docker sets its own up, inside.
        let up = matches!(link.kind, LinkKind::Vlan(_));
        let mut wire = Wire::new(&name, link.mac.unwrap_or(on.mac), mtu, on.lan, up);
        wire.own = Some(own);
        host.puts += 1;
        host.links.insert(FIRST_OWN + host.puts as u32, wire);
        Ok(true)
    }

    /// Deletes the link with this owner and store from the host's namespace, and with it all links made on it, wherever they
    /// are. Returns all of them, the first one first.
    pub fn unmake(&mut self, owner: &LinkOwner, store: u32) -> Vec<(At, Wire)> {
        let is_it = |wire: &Wire| {
            wire.own
                .as_ref()
                .is_some_and(|own| (&own.owner, own.store) == (owner, store))
        };
        let Some(host) = self.spaces.get_mut(&HOST) else {
            return Vec::new();
        };
        let Some(at) = host
            .links
            .iter()
            .find(|(_, wire)| is_it(wire))
            .map(|(at, _)| *at)
        else {
            return Vec::new();
        };
        let mut gone: Vec<_> = host
            .links
            .remove(&at)
            .map(|wire| ((HOST, at), wire))
            .into_iter()
            .collect();
        let name = owner.ifname();
        for (cookie, space) in &mut self.spaces {
            let on_it = |wire: &mut Wire| wire.own.as_ref().is_some_and(|own| own.on == name);
            gone.extend(
                space
                    .links
                    .extract_if(.., |_, wire| on_it(wire))
                    .map(|(at, wire)| ((*cookie, at), wire)),
            );
        }
        gone
    }

    /// Returns the links in the host's namespace that were made for Docker, where they are.
    pub fn own(&self) -> impl Iterator<Item = (&Own, &Wire)> {
        let wires = self
            .spaces
            .get(&HOST)
            .into_iter()
            .flat_map(|host| host.links.values());
        wires.filter_map(|wire| Some((wire.own.as_ref()?, wire)))
    }

    /// Lists them as a daemon with this store does.
    pub fn list_own(&self, store: u32) -> OwnLinks {
        let (own, others): (Vec<_>, Vec<_>) = self.own().partition(|(own, _)| own.store == store);
        let owners = own.into_iter().map(|(own, _)| own.owner.clone()).collect();
        OwnLinks {
            owners,
            strangers: others
                .into_iter()
                .map(|(_, wire)| wire.ifname.clone())
                .collect(),
        }
    }

    /// Moves an endpoint's link from the host's namespace into another. Returns where it is then, and what it is.
    pub fn move_in(&mut self, owner: &LinkOwner, to: Cookie, now: u64) -> Option<(At, Own)> {
        self.spaces.get(&to)?;
        let host = self.spaces.get_mut(&HOST)?;
        let is_it = |wire: &Wire| wire.own.as_ref().is_some_and(|own| own.owner == *owner);
        let at = host
            .links
            .iter()
            .find(|(_, wire)| is_it(wire))
            .map(|(at, _)| *at)?;
        let wire = host.links.remove(&at)?.moved("eth0", now);
        let own = wire.own.clone()?;
        Some((self.put(to, wire)?, own))
    }

    /// Moves an endpoint's link back into the host's namespace. Returns what it is; `None` if it is no such link.
    pub fn move_back(&mut self, (cookie, ifindex): At, now: u64) -> Option<Own> {
        let own = self.link((cookie, ifindex))?.own.clone()?;
        let wire = self
            .spaces
            .get_mut(&cookie)?
            .links
            .remove(&ifindex)?
            .moved(&own.owner.ifname(), now);
        let host = self.spaces.get_mut(&HOST)?;
        host.puts += 1;
        host.links.insert(FIRST_OWN + host.puts as u32, wire);
        Some(own)
    }

    /// Takes a namespace's path away. It dies now, or with the last socket in it.
    pub fn doom(&mut self, cookie: Cookie) -> Option<KernelMessage> {
        let space = self.spaces.get_mut(&cookie)?;
        if !std::mem::replace(&mut space.doomed, true)
            && self.paths.get(&space.path) == Some(&cookie)
        {
            self.paths.remove(&space.path);
        }
        self.bury(cookie)
    }

    /// Counts a socket in a namespace.
    pub fn hold(&mut self, cookie: Cookie) {
        if let Some(space) = self.spaces.get_mut(&cookie) {
            space.sockets += 1;
        }
    }

    /// Counts one socket fewer in a namespace, which may then die.
    pub fn let_go(&mut self, cookie: Cookie) -> Option<KernelMessage> {
        let space = self.spaces.get_mut(&cookie)?;
        space.sockets -= 1;
        self.bury(cookie)
    }

    fn bury(&mut self, cookie: Cookie) -> Option<KernelMessage> {
        let space = self.spaces.get(&cookie)?;
        if !space.doomed || space.sockets > 0 {
            return None;
        }
        self.spaces.remove(&cookie);
        Some(KernelMessage::NetnsDied(cookie))
    }

    /// Returns whether only sockets keep a namespace.
    pub fn is_pinned(&self, cookie: Cookie) -> bool {
        self.spaces.get(&cookie).is_some_and(|space| space.doomed)
    }

    /// Returns whether the daemon hears about a namespace.
    pub fn is_watched(&self, cookie: Cookie) -> bool {
        self.watched.contains(&cookie)
    }

    /// Forgets what the daemon watched: it ended, or messages were lost. It hears nothing until it looks again.
    pub fn forget_watched(&mut self) {
        self.watched.clear();
    }
}

/// Returns what the kernel reports about a step.
fn told((cookie, ifindex): At, did: &Did) -> Vec<KernelMessage> {
    let came = did
        .came
        .iter()
        .map(|address| KernelMessage::AddressAdded((cookie, ifindex), (*address).into()));
    let went = did
        .went
        .iter()
        .map(|address| KernelMessage::AddressGone((cookie, ifindex), (*address).into()));
    came.chain(went).collect()
}
