//! The sockets where callers find the daemon, each with its protocol: handed over by systemd, or bound here.
//!
//! A socket's mode decides who may connect, so it is 0600 from the first moment; the read-only socket's mode is then widened to a
//! group. A socket at a path where somebody listens is never touched.
//!
//! The control socket is there before the daemon is ready, so that shims wait in its backlog. Docker's sockets are not: dockerd
//! waits without a time limit at a socket that accepts, and does not start while nobody answers. If the socket is missing,
//! dockerd tries for 15 s. So the daemon binds Docker's sockets when it is ready, and never listens on one from systemd.
//!
//! The paths are checked every second and bound if they are missing ([`Place::tend`]), which costs a system call each. inotify
//! would be exact, but does not notice a directory that was replaced or mounted over.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, lchown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::sys::stat::{Mode, fchmod};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::beside;
use crate::cannot::Cannot;
use crate::owner::Owner;
use crate::small_file::make_directories;

/// How many callers may wait while the daemon starts or is busy. The kernel limits it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// What is spoken at a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protocol {
    /// What CNI's shim and operators speak.
    Control,
    /// Requests that change nothing: for monitors and people who only look.
    Read,
    /// Docker's network driver, and its IPAM driver for networks that give an endpoint an Ethernet address: macvlan, bridge.
    Docker,
    /// The same for ipvlan, which refuses an Ethernet address. A driver requires one always or never, so this is a second driver.
    DockerIpvlan,
}

impl Protocol {
    /// All protocols.
    pub(crate) const ALL: [Self; 4] = [Self::Control, Self::Read, Self::Docker, Self::DockerIpvlan];

    /// Returns its name, which is for programs and stays as it is.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Read => "read",
            Self::Docker => "docker",
            Self::DockerIpvlan => "docker_ipvlan",
        }
    }

    /// Returns whether it is Docker's.
    ///
    /// Docker does not say where interfaces are, so the daemon must find them. And each of its calls is answered before the daemon
    /// ends: if a call is cut off, dockerd repeats it without its content, but if dockerd finds no socket, it repeats the whole call.
    /// Other callers are cut off, and ask the next daemon.
    pub(crate) fn is_dockers(self) -> bool {
        match self {
            Self::Docker | Self::DockerIpvlan => true,
            Self::Control | Self::Read => false,
        }
    }

    /// Returns how long its open calls may still take when the daemon stops. Most need less. The service manager's patience
    /// (`TimeoutStopSec=`) is longer.
    pub(crate) fn grace(self) -> Duration {
        Duration::from_secs(if self.is_dockers() { 5 } else { 1 })
    }

    /// Returns what is spoken at a socket to which systemd gives this name (`FileDescriptorName=`). The control socket never had
    /// a name, so any other name means that one.
    fn of_name(name: &str) -> Self {
        if name == "read" {
            Self::Read
        } else {
            Self::Control
        }
    }

    /// Returns the flag that says where the socket is.
    fn flag(self) -> &'static str {
        match self {
            Self::Control => "--socket",
            Self::Read => "--read-socket",
            Self::Docker | Self::DockerIpvlan => "--docker-plugin-dir",
        }
    }

    /// Returns the unit by which systemd listens.
    fn unit(self) -> &'static str {
        match self {
            Self::Read => "leasehold-read.socket",
            Self::Control | Self::Docker | Self::DockerIpvlan => "leasehold.socket",
        }
    }

    /// Returns the mode of a directory that is made for the socket.
    fn directory_mode(self) -> u32 {
        match self {
            Self::Read => 0o755,
            Self::Control | Self::Docker | Self::DockerIpvlan => 0o700,
        }
    }
}

/// The read-only socket, if systemd passes none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadSocket {
    /// Its path.
    pub(crate) path: PathBuf,
    /// The group that may connect; `None`: the daemon's own group.
    pub(crate) gid: Option<u32>,
}

/// Docker's plugin directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PluginDir {
    /// Its path.
    pub(crate) path: PathBuf,
    /// Whether Docker gives the endpoints of the driver `leasehold` an Ethernet address. A plugin that Docker runs itself has one
    /// socket: without this, the socket is for ipvlan.
    pub(crate) requires_mac: bool,
}

impl PluginDir {
    /// Returns the sockets in it. A driver is named after its socket.
    fn sockets(&self) -> Vec<(Protocol, PathBuf)> {
        let at = |protocol, name: &str| (protocol, self.path.join(name));
        match self.requires_mac {
            true => vec![
                at(Protocol::Docker, "leasehold.sock"),
                at(Protocol::DockerIpvlan, "leasehold-ipvlan.sock"),
            ],
            false => vec![at(Protocol::DockerIpvlan, "leasehold.sock")],
        }
    }
}

/// Why there is no socket to listen on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    /// A live socket is at the path.
    #[error("{} is served by {owner}: stop it, or choose another path with {flag}", .path.display())]
    Live {
        /// The path.
        path: PathBuf,
        /// Who listens there.
        owner: Owner,
        /// The flag that says where.
        flag: &'static str,
    },
    /// Something other than a socket is at the path.
    #[error("{} exists and is not a socket: move it away, or choose another path with {flag}", .path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
        /// The flag that says where.
        flag: &'static str,
    },
    /// systemd passed two sockets of one unit.
    #[error("systemd passed more than one socket: {0} has one ListenStream=")]
    Twice(&'static str),
    /// A step failed.
    #[error(transparent)]
    Cannot(#[from] Cannot),
    /// What systemd passed cannot be used.
    #[error("the socket that systemd passed cannot be used")]
    Activation(#[source] io::Error),
}

/// Listening sockets, each with what is spoken there.
pub(crate) type Listeners = Vec<(Protocol, UnixListener)>;

/// Returns the sockets that already listen and do not block, the control socket first, and the places of all sockets in the same
/// order. Callers do not find the other sockets before [`Place::tend`] has bound them.
///
/// The control socket is the one that systemd passed (`inherited`, by name), or is bound at `socket`. The read-only one is
/// systemd's or that of `read`, if either is there. Docker's sockets are in its plugin directory, if there is one.
pub(crate) fn listen(
    socket: &Path,
    plugin_dir: Option<&PluginDir>,
    read: Option<&ReadSocket>,
    inherited: Vec<(String, OwnedFd)>,
) -> Result<(Listeners, Vec<Place>), ListenError> {
    let mut control = None;
    let mut reads = None;
    for (name, fd) in inherited {
        let protocol = Protocol::of_name(&name);
        let (listener, path) = activated(fd).map_err(ListenError::Activation)?;
        let slot = if protocol == Protocol::Read {
            &mut reads
        } else {
            &mut control
        };
        if slot
            .replace((listener, Place::of_systemd(protocol, path)))
            .is_some()
        {
            return Err(ListenError::Twice(protocol.unit()));
        }
    }
    let (listener, control) = match control {
        Some(activated) => activated,
        None => {
            let mut place = Place::new(Protocol::Control, socket.to_owned());
            (place.bind()?, place)
        }
    };
    let mut listeners = vec![(Protocol::Control, listener)];
    let mut places = vec![control];
    match (reads, read) {
        (Some((listener, place)), _) => {
            listeners.push((Protocol::Read, listener));
            places.push(place);
        }
        (None, Some(ReadSocket { path, gid })) => {
            let mut place = Place::new(Protocol::Read, path.clone());
            place.gid = *gid;
            places.push(place);
        }
        (None, None) => {}
    }
    let docker = plugin_dir.into_iter().flat_map(PluginDir::sockets);
    places.extend(docker.map(|(protocol, path)| Place::new(protocol, path)));
    Ok((listeners, places))
}

/// Where callers find a listening socket. Dropping it removes the socket from its directory, if it is still the one
/// bound here. systemd's socket stays.
#[derive(Debug)]
pub(crate) struct Place {
    protocol: Protocol,
    path: PathBuf,
    /// Device and inode of the path when it was last bound, or passed; `None` if nothing was there.
    seen: Option<(u64, u64)>,
    /// Whether systemd binds the path.
    of_systemd: bool,
    /// The group that may connect to the read-only socket, if not the daemon's own.
    gid: Option<u32>,
    /// What is wrong with the path, as logged.
    trouble: Option<String>,
}

impl Place {
    fn new(protocol: Protocol, path: PathBuf) -> Self {
        Self {
            protocol,
            path,
            seen: None,
            of_systemd: false,
            gid: None,
            trouble: None,
        }
    }

    /// Returns the place of a socket that systemd passed.
    fn of_systemd(protocol: Protocol, path: PathBuf) -> Self {
        let mut place = Self::new(protocol, path);
        place.seen = identity(&place.path).ok();
        place.of_systemd = true;
        place
    }

    /// Returns the protocol that is spoken there.
    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks whether callers find the socket. If not, binds it and returns it; systemd's is left to systemd. An obstacle is
    /// logged once, and binding is tried again at the next check.
    pub(crate) fn tend(&mut self) -> Option<UnixListener> {
        let found = identity(&self.path).ok();
        if found.is_some() && found == self.seen {
            self.trouble = None;
            return None;
        }
        let was_bound = self.seen.is_some();
        let bound = match self.of_systemd {
            // The daemon restarts with this one, and so does the read-only socket, which systemd would refuse to start again
            // under a running daemon.
            true => Err(format!(
                "{} is not the socket that systemd passed: `systemctl restart leasehold.socket`",
                self.path.display()
            )),
            false => self.bind().map_err(|error| crate::log::chain(&error)),
        };
        let path = self.path.display();
        let trouble = match bound {
            Ok(listener) => {
                match was_bound {
                    true => tracing::warn!(
                        "{path} was no longer the socket that was bound there: bound again"
                    ),
                    false => {
                        tracing::info!(socket = %path, protocol = ?self.protocol, "listening")
                    }
                }
                self.trouble = None;
                return Some(listener);
            }
            Err(why) => format!("callers cannot find this daemon: {why}"),
        };
        if self.trouble.as_ref() != Some(&trouble) {
            tracing::error!("{trouble}");
            self.trouble = Some(trouble);
        }
        None
    }

    /// Binds the socket.
    fn bind(&mut self) -> Result<UnixListener, ListenError> {
        make_dir(&self.path, self.protocol.directory_mode())?;
        clear(self.protocol, &self.path)?;
        let (listener, bound) = bind_at(&self.path)?;
        if self.protocol == Protocol::Read {
            open_to_group(&self.path, self.gid)
                .map_err(Cannot::with("give a group access to", &self.path))?;
        }
        self.seen = Some(bound);
        Ok(listener)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.of_systemd
            && self
                .seen
                .is_some_and(|bound| identity(&self.path).is_ok_and(|found| found == bound))
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(socket = %self.path.display(), %error, "cannot remove the socket");
        }
    }
}

/// Checks that systemd passed a listening Unix stream socket, and returns it with its path.
fn activated(fd: OwnedFd) -> io::Result<(UnixListener, PathBuf)> {
    let socket = Socket::from(fd);
    if socket.domain()? != Domain::UNIX
        || socket.r#type()? != Type::STREAM
        || !socket.is_listener()?
    {
        return Err(io::Error::other(
            "not a listening Unix stream socket (ListenStream=)",
        ));
    }
    socket.set_nonblocking(true)?;
    // From now on those who connect see this process behind it, not systemd's (SO_PEERCRED).
    socket.listen(BACKLOG)?;
    let listener = UnixListener::from(OwnedFd::from(socket));
    let path = listener.local_addr()?.as_pathname().map(Path::to_owned);
    path.map(|path| (listener, path))
        .ok_or_else(|| io::Error::other("the socket has no path"))
}

/// Binds a socket at `path`, which is clear, and returns it with the path's device and inode.
fn bind_at(path: &Path) -> Result<(UnixListener, (u64, u64)), ListenError> {
    let socket = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        // Linux creates the path with the mode of the socket's own inode: there is no moment with a wider mode, and no
        // need to change the umask, which other threads share.
        fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR)?;
        socket.bind(&SockAddr::unix(path)?)?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    let socket = socket().map_err(Cannot::with::<io::Error>("bind", path))?;
    let bound = identity(path).map_err(Cannot::with("look at", path))?;
    Ok((UnixListener::from(OwnedFd::from(socket)), bound))
}

/// Lets a group, or the daemon's own, connect to a socket.
fn open_to_group(path: &Path, gid: Option<u32>) -> io::Result<()> {
    if gid.is_some() {
        lchown(path, None, gid)?;
    }
    fs::set_permissions(path, Permissions::from_mode(0o660))
}

/// Clears `path`: removes a socket that nobody listens on, and refuses anything else.
fn clear(protocol: Protocol, path: &Path) -> Result<(), ListenError> {
    let flag = protocol.flag();
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Cannot::with("look at", path)(e).into()),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ListenError::NotASocket {
                path: path.to_owned(),
                flag,
            });
        }
        Ok(_) => {}
    }
    match connect(path) {
        Ok(peer) => {
            let credentials = getsockopt(&peer, PeerCredentials).ok();
            let owner = Owner::of(credentials.and_then(|c| u32::try_from(c.pid()).ok()));
            Err(ListenError::Live {
                path: path.to_owned(),
                owner,
                flag,
            })
        }
        Err(e) if e.kind() == ErrorKind::ConnectionRefused => {
            tracing::info!(socket = %path.display(), "replaced a stale socket");
            Ok(fs::remove_file(path).map_err(Cannot::with("remove", path))?)
        }
        // Its backlog is full, or it is a socket of another type: in any case it is in use.
        Err(_) => Err(ListenError::Live {
            path: path.to_owned(),
            owner: Owner::of(None),
            flag,
        }),
    }
}

/// Connects without waiting for a place in the backlog.
fn connect(path: &Path) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)?;
    Ok(socket)
}

fn make_dir(path: &Path, mode: u32) -> Result<(), Cannot> {
    let dir = beside::directory(path);
    make_directories(dir, mode).map_err(Cannot::with("create", dir))
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests;
