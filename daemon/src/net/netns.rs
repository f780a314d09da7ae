//! Entering a network namespace, working there, and coming back.
//!
//! setns moves the calling thread; a socket stays where it was made. So a worker thread enters, opens what it needs, and comes
//! back before it reports. It keeps only the namespace's cookie: neither the namespace's file nor, after the work, a socket or a
//! thread in it, so that the namespace can die when its container does.

mod listing;

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold_core::identity::Lan;
use leasehold_core::link::{
    ByName, Cookie, Hears, Link, LinkCause, LinkView, Place, Sockets, Step, Target, directory_of,
};
use leasehold_core::wire::Mac;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::Mode;
use tracing::{debug, error};

use super::census::Census;
use super::file::{is_bare, is_proc, open_under, shows_namespace};
use super::netlink::{LinkAnswer, Netlink, Which, cookie_of, own_ns};
use super::opened::Opened;
use super::port::{self, Port};
use super::reaper::Reaper;
use super::registrar::Registrar;
use super::{failed, is_wireless};

/// What every worker knows about the namespace that the daemon runs in.
#[derive(Debug)]
pub(super) struct Host {
    ns: Arc<OwnedFd>,
    cookie: Cookie,
    /// Where the host's root directory is, if not `/`.
    prefix: Option<PathBuf>,
    pub(super) registrar: Arc<Registrar>,
    pub(super) reaper: Reaper,
    census: Census,
}

impl Host {
    /// Takes the calling thread's namespace as the host's.
    pub(super) fn here(
        prefix: PathBuf,
        registrar: Arc<Registrar>,
        reaper: Reaper,
    ) -> io::Result<Self> {
        let ns = Arc::new(own_ns()?);
        let cookie = Netlink::open()?.cookie()?;
        let prefix = Some(prefix)
            .filter(|prefix| !prefix.as_os_str().is_empty() && prefix != Path::new("/"));
        Ok(Self {
            ns,
            cookie,
            prefix,
            registrar,
            reaper,
            census: Census::default(),
        })
    }

    /// Makes the watch notice when a namespace's path disappears. Otherwise the namespace's death is noticed only when no socket
    /// is left in it.
    fn watch(&self, path: &Path) {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let watched =
            self.open_with(directory_of(path), flags)
                .and_then(|directory| match is_proc(&directory) {
                    true => Ok(()),
                    false => self.registrar.paths.watch(&directory),
                });
        if let Err(errno) = watched {
            debug!(path = %path.display(), %errno, "cannot watch for this path to go");
        }
    }

    /// Opens the file at `path`, as the host sees it.
    ///
    /// Never waits for the other end of a FIFO, and never takes a controlling terminal.
    fn open(&self, path: &Path) -> Result<OwnedFd, LinkCause> {
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
        self.open_with(path, flags).map_err(|errno| match errno {
            Errno::ENOENT | Errno::ENOTDIR | Errno::ESRCH => self.missing(path),
            // A socket's file, a device without a driver, a loop of links, an impossible name.
            Errno::ENXIO | Errno::ENODEV | Errno::ELOOP | Errno::ENAMETOOLONG => LinkCause::NotANetns(path.to_owned()),
            Errno::EACCES if self.is_bare(path) => LinkCause::NotMounted(path.to_owned()),
            Errno::EACCES if path.starts_with("/proc") => LinkCause::refused(
                "open the network namespace",
                "Permission denied: for a process of another user, or with more capabilities, this needs CAP_SYS_PTRACE",
            ),
            errno => failed("open the network namespace", &errno.into()),
        })
    }

    /// Opens what is at an absolute path, as the host sees it. At a relative path there is nothing.
    fn open_with(&self, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
        let relative = path.strip_prefix("/").map_err(|_| Errno::ENOENT)?;
        match &self.prefix {
            None => open(path, flags, Mode::empty()),
            Some(prefix) => open_under(prefix, relative, flags),
        }
    }

    /// Returns why there is nothing at `path`, which depends on whether its directory exists.
    fn missing(&self, path: &Path) -> LinkCause {
        if path.is_relative() {
            return LinkCause::NoNetns(path.to_owned());
        }
        let directory = directory_of(path);
        match self.open_with(
            directory,
            OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
        ) {
            Ok(found) if directory != Path::new("/proc") || is_proc(&found) => {
                LinkCause::NoNetns(path.to_owned())
            }
            Ok(_) | Err(Errno::ENOENT | Errno::ENOTDIR) => LinkCause::NoDirectory(path.to_owned()),
            Err(errno) => {
                LinkCause::refused("open the network namespace's directory", errno.desc())
            }
        }
    }

    /// Returns whether the path is an empty file, of the kind that runtimes make to mount a namespace on. It need not be
    /// readable.
    fn is_bare(&self, path: &Path) -> bool {
        self.open_with(path, OFlag::O_PATH | OFlag::O_CLOEXEC)
            .is_ok_and(|file| is_bare(&file))
    }
}

/// Whether a namespace is alive, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Alive,
    /// The path does not lead there. The number still means it, or means another namespace.
    Pathless,
    Dead,
    Unclear,
}

/// A look at a link that will become a binding's place.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) place: Place,
    pub(crate) lan: Lan,
    /// The client's hardware address in answers, if that is not the link's.
    pub(crate) chaddr: Option<Mac>,
}

impl Visit {
    /// Opens the sockets of an exchange in the calling thread's namespace, if the link found there has carrier and the exchange
    /// needs no port. If they cannot be opened, a separate try finds out later why.
    fn open(&self, found: &LinkView, reaper: Reaper) -> Option<Opened> {
        let link = self.place.link(found, &self.lan);
        if !found.carrier || matches!(link, Link::Parent { port: true, .. }) {
            return None;
        }
        let want = Sockets {
            chaddr: self.chaddr.unwrap_or(link.mac()),
            arp: Hears::Answers,
            hold_port: None,
        };
        Opened::open(&link, want, reaper).ok()
    }
}

/// The state of one worker thread.
pub(super) struct Worker {
    host: Arc<Host>,
    /// A socket in the host's namespace, opened on first use.
    netlink: Option<Netlink>,
    stranded: bool,
}

impl Worker {
    pub(super) fn new(host: Arc<Host>) -> Self {
        Self {
            host,
            netlink: None,
            stranded: false,
        }
    }

    /// Returns whether the thread could not get back to the host's namespace and must end.
    pub(super) fn is_stranded(&self) -> bool {
        self.stranded
    }

    /// Opens the sockets of an exchange.
    pub(super) fn open(&mut self, link: &Link, want: Sockets) -> Result<Opened, LinkCause> {
        let reaper = self.host.reaper.clone();
        match link {
            Link::InNetns { path, cookie, .. } => {
                let opened = self.within(path, |_| {
                    let opened = Opened::new(link, want, reaper)?;
                    match cookie_of(&opened.packet).map_err(unidentified)? {
                        found if found == *cookie => opened.bind(link, want),
                        _ => Err(LinkCause::NetnsChanged(path.clone())),
                    }
                });
                opened.map_err(|cause| self.unseen(link, cause))
            }
            Link::Parent {
                ifindex,
                mac,
                vlan,
                port: true,
            } => self.open_port(*ifindex, *vlan, *mac, want),
            Link::Parent { .. } => Opened::open(link, want, reaper),
        }
    }

    /// Opens the socket of an exchange on a new port of the link `on`.
    fn open_port(
        &mut self,
        on: u32,
        vlan: u16,
        mac: Mac,
        want: Sockets,
    ) -> Result<Opened, LinkCause> {
        let news = Port::news()?;
        let netlink = opened(&mut self.netlink)?;
        unshare(CloneFlags::CLONE_NEWNET)
            .map_err(|errno| LinkCause::refused("make a network namespace", errno.desc()))?;
        let back = Back {
            host: &self.host,
            stranded: &mut self.stranded,
        };
        let place = port::Place {
            netlink,
            ns: self.host.ns.as_fd(),
        };
        let opened = Port::make(place, on, vlan, mac, news).and_then(|(port, inside)| {
            let link = Link::parent(inside, mac);
            match Opened::open(&link, want, self.host.reaper.clone()) {
                Ok(opened) => Ok(Opened {
                    port: Some(Box::new(port)),
                    ..opened
                }),
                Err(cause) => {
                    port.remove();
                    Err(cause)
                }
            }
        });
        drop(back);
        opened
    }

    /// Takes `steps` at the target while `goes_on`, which is told how many were taken, returns true; then returns what is there.
    ///
    /// The watch reports on the target's namespace from before the first step.
    pub(super) fn apply(
        &mut self,
        target: &Target,
        steps: &[Step],
        goes_on: impl FnMut(usize) -> bool,
    ) -> Result<LinkView, LinkCause> {
        match target {
            Target::Named(at) | Target::OfServer(at, _) => {
                let which = match target {
                    Target::OfServer(_, mac) => Which::Station(&at.ifname, *mac),
                    _ => Which::Name(&at.ifname),
                };
                self.apply_within(&at.netns, Expected::of(at), which, steps, goes_on)
                    .map_err(|cause| self.missing(&at.netns, cause))
            }
            Target::Known(
                link @ Link::InNetns {
                    path,
                    cookie,
                    ifindex,
                    ..
                },
            ) => {
                let view = self.apply_within(
                    path,
                    Expected::This(*cookie),
                    Which::Index(*ifindex),
                    steps,
                    goes_on,
                );
                view.map_err(|cause| self.unseen(link, cause))
            }
            Target::Known(Link::Parent { ifindex, .. }) => {
                self.apply_here(Which::Index(*ifindex), steps, goes_on)
            }
            Target::Host { ifname } => {
                let view = self.apply_here(Which::Name(ifname), steps, goes_on)?;
                Ok(LinkView {
                    wireless: is_wireless(ifname),
                    ..view
                })
            }
        }
    }

    /// Looks at a link, and with `routes` at those over it too, if it is a container's.
    pub(super) fn look(&mut self, target: &Target, routes: bool) -> Result<LinkView, LinkCause> {
        match target {
            Target::Known(
                link @ Link::InNetns {
                    path,
                    cookie,
                    ifindex,
                    ..
                },
            ) if routes => {
                let view = self.visit(path, Expected::This(*cookie), |netlink, cookie| {
                    netlink.view_with_routes(Which::Index(*ifindex), cookie)
                });
                view.map_err(|cause| self.unseen(link, cause))
            }
            target => self.apply(target, &[], |_| true),
        }
    }

    /// Sets a link up while `goes_on` returns true, unless it is the host's. Then returns what is there and, if `opens` is set,
    /// the requested sockets.
    pub(super) fn prepare(
        &mut self,
        visit: &Visit,
        opens: bool,
        goes_on: impl FnMut(usize) -> bool,
    ) -> Result<(LinkView, Option<Opened>), LinkCause> {
        let reaper = self.host.reaper.clone();
        match &visit.place {
            Place::InNetns(at) => self.visit(&at.netns, Expected::of(at), |netlink, cookie| {
                let view = netlink.apply(Which::Name(&at.ifname), cookie, &[Step::Up], goes_on)?;
                let opened = opens.then(|| visit.open(&view, reaper)).flatten();
                Ok((view, opened))
            }),
            Place::Parent { ifname, .. } => {
                let view = self.apply_here(Which::Name(ifname), &[], goes_on)?;
                let opened = opens.then(|| visit.open(&view, reaper)).flatten();
                Ok((view, opened))
            }
        }
    }

    /// Lists the files of a directory of namespaces.
    pub(super) fn list(&self, directory: &Path) -> Result<Vec<PathBuf>, LinkCause> {
        let unread =
            |errno: Errno| failed("list the directory of network namespaces", &errno.into());
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let opened = self
            .host
            .open_with(directory, flags)
            .map_err(|errno| match errno {
                Errno::ENOENT | Errno::ENOTDIR => LinkCause::NoDirectory(directory.to_owned()),
                errno => unread(errno),
            })?;
        let entries = Dir::from_fd(opened)
            .map_err(unread)?
            .into_iter()
            .collect::<nix::Result<Vec<_>>>();
        let names = entries
            .map_err(unread)?
            .into_iter()
            .map(|entry| OsStr::from_bytes(entry.file_name().to_bytes()).to_owned());
        Ok(names
            .filter(|name| name != "." && name != "..")
            .map(|name| directory.join(name))
            .collect())
    }

    /// Returns the number that the host's namespace has given to the one at `path`, if any.
    pub(super) fn number_of(&mut self, path: &Path) -> Result<Option<i32>, LinkCause> {
        let ns = self.host.open(path)?;
        let number = self.here()?.number_of(&ns);
        number.map_err(|error| LinkCause::refused("ask for the namespace's number", error))
    }

    /// Lists the links on a wire that are in the namespace at `path`.
    pub(super) fn wired(&mut self, path: &Path) -> Result<Vec<LinkAnswer>, LinkCause> {
        let host = Arc::clone(&self.host);
        self.within(path, |_| {
            let mut netlink = Netlink::open().map_err(unopened)?;
            check(&host, &netlink, path, Expected::NotHost)?;
            netlink
                .wired(None)
                .map_err(|error| LinkCause::refused("list the links", error))
        })
    }

    /// Lists the numbers that the host's namespace has given to others, without the one that it may have for itself.
    pub(super) fn numbers(&mut self) -> Result<Vec<i32>, LinkCause> {
        let host = Arc::clone(&self.host);
        let netlink = self.here()?;
        let numbers = netlink.number_of(&host.ns).and_then(|own| {
            Ok(netlink
                .numbers()?
                .into_iter()
                .filter(|number| Some(*number) != own)
                .collect())
        });
        numbers.map_err(|error| LinkCause::refused("list the namespaces' numbers", error))
    }

    /// Lists the links on a wire in the namespace with this number; none if that namespace has died.
    pub(super) fn wired_at(&mut self, number: i32) -> Result<Vec<LinkAnswer>, LinkCause> {
        let host = self.here()?;
        match host.wired(Some(number)) {
            Err(_) if !host.has_number(number) => Ok(Vec::new()),
            links => links.map_err(|error| LinkCause::refused("list a namespace's links", error)),
        }
    }

    /// Lists the links on a wire in all namespaces that have a number.
    fn all_wired(&mut self) -> Result<Vec<(i32, LinkAnswer)>, LinkCause> {
        let mut all = Vec::new();
        for number in self.numbers()? {
            all.extend(
                self.wired_at(number)?
                    .into_iter()
                    .map(|link| (number, link)),
            );
        }
        Ok(all)
    }

    /// Looks at a link of the host, without its addresses.
    pub(super) fn host_link(&mut self, which: Which<'_>) -> Result<LinkAnswer, LinkCause> {
        self.here()?.link(which)
    }

    /// Looks at a link by its index in the namespace at `path`, on which the watch reports from then on.
    pub(super) fn look_within(&mut self, path: &Path, ifindex: u32) -> Result<LinkView, LinkCause> {
        self.apply_within(path, Expected::NotHost, Which::Index(ifindex), &[], |_| {
            true
        })
    }

    /// Returns why a link that was seen before cannot be reached. If its path does not lead there, the kernel is asked whether
    /// the link is still where it was.
    fn unseen(&mut self, link: &Link, cause: LinkCause) -> LinkCause {
        let Link::InNetns { path, .. } = link else {
            return cause;
        };
        match cause.is_unseen().then(|| self.is_numbered(link)) {
            Some(Ok(true)) => LinkCause::NoPath(path.clone()),
            Some(Ok(false)) => self.missing(path, cause),
            None => cause,
            Some(Err(unclear)) => unclear,
        }
    }

    /// Returns why nothing can be reached at a path: if no namespace is there, and its directory shows others, this daemon sees
    /// what is there.
    fn missing(&self, path: &Path, cause: LinkCause) -> LinkCause {
        let files = match cause {
            LinkCause::NoNetns(_) => self.list(directory_of(path)).unwrap_or_default(),
            _ => Vec::new(),
        };
        match shows_namespace(&files, |file, flags| self.host.open_with(file, flags)) {
            true => LinkCause::NetnsRemoved(path.to_owned()),
            false => cause,
        }
    }

    /// Returns whether the kernel knows a link's namespace by a number, and the link is in it. A daemon that has not heard of the
    /// namespace since it started, or since messages were lost, searches all namespaces that have numbers.
    fn is_numbered(&mut self, link: &Link) -> Result<bool, LinkCause> {
        let Link::InNetns {
            path,
            cookie,
            ifindex,
            mac,
        } = link
        else {
            return Ok(false);
        };
        let host = Arc::clone(&self.host);
        let known = host.registrar.book().number_of(*cookie);
        let numbers = match known {
            Some(number) => vec![number],
            None => host.census.of((*ifindex, *mac), || self.all_wired())?,
        };
        for number in numbers {
            let is_anothers = host
                .registrar
                .book()
                .cookie(Some(number))
                .is_some_and(|other| other != *cookie);
            let is_it = |there: &LinkAnswer| {
                there.index == *ifindex && (known.is_some() || there.mac == Some(*mac))
            };
            if !is_anothers && self.wired_at(number)?.iter().any(is_it) {
                host.registrar.book().found(number, *cookie, path);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Finds out whether a namespace is alive: whether it still has its number, and whether the path leads to it.
    ///
    /// The number alone is no proof of life: the next namespace may already have it.
    pub(super) fn find(&mut self, number: i32, path: &Path, cookie: Cookie) -> Found {
        if let Ok(false) = self.here().map(|netlink| netlink.has_number(number)) {
            return Found::Dead;
        }
        let host = Arc::clone(&self.host);
        let there = self.within(path, |_| {
            let netlink = Netlink::open().map_err(unopened)?;
            check(&host, &netlink, path, Expected::This(cookie))
        });
        match there {
            Ok(_) => Found::Alive,
            Err(cause) if cause.is_gone() => Found::Pathless,
            Err(cause) => {
                debug!(?cookie, %cause, "cannot find out whether a namespace is alive");
                Found::Unclear
            }
        }
    }

    fn apply_within(
        &mut self,
        path: &Path,
        expected: Expected,
        which: Which<'_>,
        steps: &[Step],
        goes_on: impl FnMut(usize) -> bool,
    ) -> Result<LinkView, LinkCause> {
        self.visit(path, expected, |netlink, cookie| {
            netlink.apply(which, cookie, steps, goes_on)
        })
    }

    /// Works on the links of the namespace at `path`, on which the watch reports from then on.
    fn visit<T>(
        &mut self,
        path: &Path,
        expected: Expected,
        work: impl FnOnce(&mut Netlink, Cookie) -> Result<T, LinkCause>,
    ) -> Result<T, LinkCause> {
        let host = Arc::clone(&self.host);
        // First, so that a path that disappears after it was seen is not missed.
        host.watch(path);
        self.within(path, |ns| {
            let mut netlink = Netlink::open().map_err(unopened)?.on(&host.ns);
            let cookie = check(&host, &netlink, path, expected)?;
            match cookie == host.cookie {
                true => host.registrar.register_own(cookie),
                false => host.registrar.register(cookie, path, ns),
            }
            work(&mut netlink, cookie)
        })
    }

    fn apply_here(
        &mut self,
        which: Which<'_>,
        steps: &[Step],
        goes_on: impl FnMut(usize) -> bool,
    ) -> Result<LinkView, LinkCause> {
        let cookie = self.host.cookie;
        self.here()?.apply(which, cookie, steps, goes_on)
    }

    pub(super) fn here(&mut self) -> Result<&mut Netlink, LinkCause> {
        opened(&mut self.netlink)
    }

    /// Runs `work` inside the namespace at `path`, and passes it the namespace's file.
    ///
    /// setns itself checks that it is a network namespace: for anything else it returns EINVAL.
    fn within<T>(
        &mut self,
        path: &Path,
        work: impl FnOnce(&OwnedFd) -> Result<T, LinkCause>,
    ) -> Result<T, LinkCause> {
        let ns = self.host.open(path)?;
        setns(&ns, CloneFlags::CLONE_NEWNET).map_err(|errno| match errno {
            Errno::EINVAL if is_bare(&ns) => LinkCause::NotMounted(path.to_owned()),
            Errno::EINVAL => LinkCause::NotANetns(path.to_owned()),
            Errno::EPERM => LinkCause::refused(
                "enter the network namespace",
                "Operation not permitted: this needs CAP_SYS_ADMIN",
            ),
            errno => LinkCause::refused("enter the network namespace", errno.desc()),
        })?;
        let back = Back {
            host: &self.host,
            stranded: &mut self.stranded,
        };
        let result = work(&ns);
        drop(back);
        result
    }
}

/// Brings the thread back to the host's namespace, even from a panic.
struct Back<'a> {
    host: &'a Host,
    stranded: &'a mut bool,
}

impl Drop for Back<'_> {
    fn drop(&mut self) {
        if let Err(errno) = setns(&self.host.ns, CloneFlags::CLONE_NEWNET) {
            error!(%errno, "a worker thread cannot get back to the host's namespace and is replaced");
            *self.stranded = true;
        }
    }
}

/// Which namespace a path may lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Any,
    NotHost,
    /// A namespace that was seen and allowed before.
    This(Cookie),
}

impl Expected {
    /// Returns what is allowed when an interface is sought by name.
    fn of(at: &ByName) -> Self {
        if at.host_too {
            Self::Any
        } else {
            Self::NotHost
        }
    }
}

fn check(
    host: &Host,
    netlink: &Netlink,
    path: &Path,
    expected: Expected,
) -> Result<Cookie, LinkCause> {
    let cookie = netlink.cookie().map_err(unidentified)?;
    match expected {
        Expected::This(seen) if seen != cookie => {
            debug!(path = %path.display(), ?seen, ?cookie, "another namespace is at the path");
            Err(LinkCause::NetnsChanged(path.to_owned()))
        }
        Expected::NotHost if cookie == host.cookie => Err(LinkCause::HostNetns(path.to_owned())),
        Expected::Any | Expected::NotHost | Expected::This(_) => Ok(cookie),
    }
}

/// Returns the socket, opening it first if there is none, in the calling thread's namespace.
fn opened(netlink: &mut Option<Netlink>) -> Result<&mut Netlink, LinkCause> {
    match netlink {
        Some(netlink) => Ok(netlink),
        none => Ok(none.insert(Netlink::open().map_err(unopened)?)),
    }
}

fn unopened(error: io::Error) -> LinkCause {
    failed("open a netlink socket", &error)
}

fn unidentified(error: io::Error) -> LinkCause {
    LinkCause::refused(
        "identify the network namespace (this needs Linux 5.14)",
        error,
    )
}
