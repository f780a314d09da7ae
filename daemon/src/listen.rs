//! The sockets where callers find the daemon, each with its protocol: handed over by systemd, or bound here.
//!
//! A socket's mode decides who may connect, so it is 0600 from the first moment. A path has at most one daemon: a
//! live socket there is never touched, and a lock beside it, which nobody else can open, keeps two daemons apart.
//!
//! The paths are checked every second, and bound again if they are gone ([`Place::tend`]). That costs a system call each.
//! inotify would be exact, but does not notice a directory that was replaced or mounted over.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::sys::stat::{Mode, fchmod};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::lock::{Lock, LockError};
use crate::owner::Owner;

/// How many callers may wait while the daemon starts or is busy. The kernel limits it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// What is spoken at a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protocol {
    /// What CNI's shim and the operator ask.
    Control,
    /// Docker's network driver, and its IPAM driver for networks that give an endpoint an Ethernet address: macvlan, bridge.
    Docker,
    /// The same for ipvlan, which refuses an Ethernet address. A driver asks for one always or never, so this is another.
    DockerIpvlan,
}

impl Protocol {
    /// All there are.
    pub(crate) const ALL: [Self; 3] = [Self::Control, Self::Docker, Self::DockerIpvlan];

    /// Returns whether it is Docker's.
    pub(crate) fn is_docker(self) -> bool {
        match self {
            Self::Docker | Self::DockerIpvlan => true,
            Self::Control => false,
        }
    }

    /// Returns what is spoken at a socket that systemd gives this name (`FileDescriptorName=`). The control socket has had
    /// none from the beginning, so any other name is its.
    fn of_name(name: &str) -> Self {
        match name {
            "docker" => Self::Docker,
            "docker-ipvlan" => Self::DockerIpvlan,
            _ => Self::Control,
        }
    }

    /// Returns the unit of the socket.
    fn unit(self) -> &'static str {
        match self {
            Self::Control => "leasehold.socket",
            Self::Docker => "leasehold-docker.socket",
            Self::DockerIpvlan => "leasehold-docker-ipvlan.socket",
        }
    }

    /// Returns the flag that says where the socket is.
    fn flag(self) -> &'static str {
        match self {
            Self::Control => "--socket",
            Self::Docker | Self::DockerIpvlan => "--docker-plugin-dir",
        }
    }
}

/// Docker's directory of plugins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PluginDir {
    /// Its path.
    pub(crate) path: PathBuf,
    /// Whether the driver `leasehold` has Docker give endpoints an Ethernet address. A plugin that Docker runs itself has one
    /// socket: without this it is for ipvlan.
    pub(crate) requires_mac: bool,
}

impl PluginDir {
    /// Returns the sockets in it. A driver is named after its socket.
    fn sockets(&self) -> Vec<(Protocol, PathBuf)> {
        let at = |protocol, name: &str| (protocol, self.path.join(name));
        match self.requires_mac {
            true => vec![at(Protocol::Docker, "leasehold.sock"), at(Protocol::DockerIpvlan, "leasehold-ipvlan.sock")],
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
    /// systemd passed two for one protocol.
    #[error("systemd passed more than one socket: {0} has one ListenStream=")]
    Twice(&'static str),
    /// A step failed.
    #[error("cannot {doing} {}", .path.display())]
    Failed {
        /// What was tried: `bind`, `remove`.
        doing: &'static str,
        /// At what.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Another daemon serves the path, or is just ending.
    #[error("cannot lock {}", .path.display())]
    Lock {
        /// The lock's file.
        path: PathBuf,
        /// Why.
        source: LockError,
    },
    /// What systemd passed cannot be used.
    #[error("the socket that systemd passed cannot be used")]
    Activation(#[source] io::Error),
}

/// Returns the sockets to serve, non-blocking, each with the place where callers find it.
///
/// What systemd passed (`inherited`, by name) comes first; what it did not is bound at `socket`, and, if there is one, in
/// Docker's directory of plugins.
pub(crate) fn listen(
    socket: &Path,
    plugin_dir: Option<&PluginDir>,
    inherited: Vec<(String, OwnedFd)>,
) -> Result<Vec<(UnixListener, Place)>, ListenError> {
    let mut sockets = BTreeMap::new();
    for (name, fd) in inherited {
        let protocol = Protocol::of_name(&name);
        let activated = activated(protocol, fd).map_err(ListenError::Activation)?;
        if sockets.insert(protocol, activated).is_some() {
            return Err(ListenError::Twice(protocol.unit()));
        }
    }
    let plugins = plugin_dir.map(PluginDir::sockets).unwrap_or_default();
    for (protocol, path) in [(Protocol::Control, socket.to_owned())].into_iter().chain(plugins) {
        if let Entry::Vacant(missing) = sockets.entry(protocol) {
            missing.insert(bind(protocol, &path)?);
        }
    }
    Ok(sockets.into_values().collect())
}

/// Where callers find a listening socket. Dropping it removes the socket from its directory, if it is still the one
/// bound here. systemd's socket stays.
#[derive(Debug)]
pub(crate) struct Place {
    protocol: Protocol,
    path: PathBuf,
    /// Device and inode of the path; `None` if nothing was there.
    seen: Option<(u64, u64)>,
    /// The lock, if the path was bound here; `None` if it is systemd's.
    lock: Option<Lock>,
    /// What is wrong with the path, as logged.
    trouble: Option<String>,
}

impl Place {
    /// Returns what is spoken there.
    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Returns the socket's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks whether callers still find the socket. If not, binds it again and returns it; systemd's is left to
    /// systemd. What stands in the way is logged once.
    pub(crate) fn tend(&mut self) -> Option<UnixListener> {
        let (path, found) = (self.path.display(), identity(&self.path).ok());
        if found.is_some() && found == self.seen {
            self.trouble = None;
            return None;
        }
        let trouble = match self.lock.as_ref().map(|_ours| bind_at(self.protocol, &self.path)) {
            Some(Ok((listener, bound))) => {
                tracing::warn!("{path} was no longer the socket that was bound there: bound again");
                self.seen = Some(bound);
                self.trouble = None;
                return Some(listener);
            }
            Some(Err(error)) => format!("callers cannot find this daemon: {}", crate::log::chain(&error)),
            None => format!(
                "callers cannot find this daemon: {path} is not the socket that systemd passed: \
                 `systemctl restart {}`",
                self.protocol.unit()
            ),
        };
        if self.trouble.as_ref() != Some(&trouble) {
            tracing::error!("{trouble}");
            self.trouble = Some(trouble);
        }
        None
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.lock.is_some()
            && self.seen.is_some_and(|bound| identity(&self.path).is_ok_and(|found| found == bound))
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(socket = %self.path.display(), %error, "cannot remove the socket");
        }
    }
}

/// Checks that systemd passed a listening Unix stream socket with a path.
fn activated(protocol: Protocol, fd: OwnedFd) -> io::Result<(UnixListener, Place)> {
    let socket = Socket::from(fd);
    if socket.domain()? != Domain::UNIX || socket.r#type()? != Type::STREAM || !socket.is_listener()? {
        return Err(io::Error::other("not a listening Unix stream socket (ListenStream=)"));
    }
    socket.set_nonblocking(true)?;
    let listener = UnixListener::from(OwnedFd::from(socket));
    let path = listener.local_addr()?.as_pathname().map(Path::to_owned);
    let path = path.ok_or_else(|| io::Error::other("the socket has no path"))?;
    let seen = identity(&path).ok();
    Ok((listener, Place { protocol, path, seen, lock: None, trouble: None }))
}

fn bind(protocol: Protocol, path: &Path) -> Result<(UnixListener, Place), ListenError> {
    make_dir(path)?;
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    let lock = PathBuf::from(lock);
    let lock = match Lock::try_take(&lock) {
        // Another daemon, with another store.
        Err(LockError::Held(owner)) => {
            return Err(ListenError::Live { path: path.to_owned(), owner, flag: protocol.flag() });
        }
        taken => taken.map_err(|source| ListenError::Lock { path: lock, source })?,
    };
    let (listener, bound) = bind_at(protocol, path)?;
    Ok((listener, Place { protocol, path: path.to_owned(), seen: Some(bound), lock: Some(lock), trouble: None }))
}

/// Binds a socket at `path`, which is locked, and returns it with the path's device and inode.
fn bind_at(protocol: Protocol, path: &Path) -> Result<(UnixListener, (u64, u64)), ListenError> {
    make_dir(path)?;
    clear(protocol, path)?;
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
    let socket = socket().map_err(|e: io::Error| failed("bind", path, e))?;
    let bound = identity(path).map_err(|e| failed("look at", path, e))?;
    Ok((UnixListener::from(OwnedFd::from(socket)), bound))
}

/// Clears `path`: removes a socket that nobody listens on, and refuses anything else.
fn clear(protocol: Protocol, path: &Path) -> Result<(), ListenError> {
    let flag = protocol.flag();
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(failed("look at", path, e)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ListenError::NotASocket { path: path.to_owned(), flag });
        }
        Ok(_) => {}
    }
    match connect(path) {
        Ok(peer) => {
            let credentials = getsockopt(&peer, PeerCredentials).ok();
            let owner = Owner::of(credentials.and_then(|c| u32::try_from(c.pid()).ok()));
            Err(ListenError::Live { path: path.to_owned(), owner, flag })
        }
        Err(e) if e.kind() == ErrorKind::ConnectionRefused => {
            tracing::info!(socket = %path.display(), "replaced a stale socket");
            fs::remove_file(path).map_err(|e| failed("remove", path, e))
        }
        // Its backlog is full, or it is a socket of another type: in any case somebody's.
        Err(_) => Err(ListenError::Live { path: path.to_owned(), owner: Owner::of(None), flag }),
    }
}

/// Connects without waiting for a place in the backlog.
fn connect(path: &Path) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)?;
    Ok(socket)
}

fn make_dir(path: &Path) -> Result<(), ListenError> {
    let dir = parent(path);
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| failed("create", dir, e))
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

fn failed(doing: &'static str, path: &Path, source: io::Error) -> ListenError {
    ListenError::Failed { doing, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    use tempfile::TempDir;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn the_socket_is_private_and_a_missing_directory_is_made_private() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("cni/dhcp.sock");
        let (_listener, place) = bind(Protocol::Control, &path).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        UnixStream::connect(&path).unwrap();
        drop(place);
        assert!(!path.exists());
    }

    #[test]
    fn an_existing_directory_keeps_its_mode() {
        let dir = TempDir::new().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o751)).unwrap();
        let (_listener, place) = bind(Protocol::Control, &dir.path().join("s")).unwrap();
        assert_eq!(mode(dir.path()), 0o751);
        drop(place);
    }

    #[test]
    fn another_user_s_lock_on_the_directory_holds_nothing_up() {
        let dir = TempDir::new().unwrap();
        let theirs = fs::File::open(dir.path()).unwrap();
        theirs.lock_shared().unwrap();
        let (_listener, place) = bind(Protocol::Control, &dir.path().join("s")).unwrap();
        drop(place);
        assert!(!dir.path().join("s").exists());
    }

    #[test]
    fn a_socket_whose_file_is_gone_is_bound_again_and_removed_at_the_end() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("cni/s");
        let (_listener, mut place) = bind(Protocol::Control, &path).unwrap();
        assert!(place.tend().is_none());
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
        let _again = place.tend().unwrap();
        UnixStream::connect(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert!(place.tend().is_none());
        drop(place);
        assert!(!path.exists());
    }

    #[test]
    fn what_took_the_socket_s_place_stays_until_it_is_dead() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("s");
        let (_listener, mut place) = bind(Protocol::Control, &path).unwrap();
        fs::remove_file(&path).unwrap();
        let other = UnixListener::bind(&path).unwrap();
        assert!(place.tend().is_none());
        assert!(place.trouble.as_ref().unwrap().contains("is served by process"), "{place:?}");
        drop(other);
        assert!(place.tend().is_some());
        assert_eq!(place.trouble, None);
    }

    #[test]
    fn a_stale_socket_is_replaced() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("s");
        drop(UnixListener::bind(&path).unwrap());
        assert_eq!(connect(&path).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let _listening = bind(Protocol::Control, &path).unwrap();
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn a_live_socket_is_refused_with_its_owner() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("s");
        let _live = UnixListener::bind(&path).unwrap();
        let error = bind(Protocol::Control, &path).unwrap_err();
        let me = format!("is served by process {} (", std::process::id());
        assert!(error.to_string().contains(&me), "{error}");
    }

    #[test]
    fn a_live_socket_with_a_full_backlog_is_refused() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("s");
        let live = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        live.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        live.listen(0).unwrap();
        let _waiting: Vec<_> = std::iter::from_fn(|| connect(&path).ok()).collect();
        assert!(matches!(bind(Protocol::Control, &path), Err(ListenError::Live { .. })));
    }

    #[test]
    fn what_is_not_a_socket_is_left_alone() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("s");
        fs::write(&path, "precious").unwrap();
        assert!(matches!(bind(Protocol::Control, &path), Err(ListenError::NotASocket { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_socket_that_took_the_place_of_ours_is_not_removed() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("s");
        let (_listener, ours) = bind(Protocol::Control, &path).unwrap();
        fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(ours);
        assert!(path.exists());
    }

    #[test]
    fn of_many_daemons_that_start_at_once_one_listens() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("s");
        for _ in 0..50 {
            // A stale socket to compete for.
            drop(UnixListener::bind(&path).unwrap());
            let started: Vec<_> = std::thread::scope(|scope| {
                let starts: Vec<_> = (0..4).map(|_| scope.spawn(|| bind(Protocol::Control, &path))).collect();
                starts.into_iter().map(|start| start.join().unwrap()).collect()
            });
            assert_eq!(started.iter().filter(|start| start.is_ok()).count(), 1);
            assert!(started.iter().all(|s| matches!(s, Ok(_) | Err(ListenError::Live { .. }))), "{started:?}");
            started.into_iter().flatten().for_each(|(_listener, place)| drop(place));
        }
    }

    /// Returns the place of a socket that systemd passes.
    fn place_of(path: &Path) -> Place {
        let given = UnixListener::bind(path).unwrap();
        let sockets = listen(Path::new("/elsewhere"), None, vec![("leasehold.socket".into(), given.into())]);
        sockets.unwrap().pop().unwrap().1
    }

    #[test]
    fn an_inherited_socket_is_checked_and_never_removed() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("s");
        let place = place_of(&path);
        assert_eq!(place.path(), path);
        drop(place);
        assert!(path.exists());
        let mut place = place_of(&dir.path().join("t"));
        assert!(place.tend().is_none() && place.trouble.is_none());
        fs::remove_file(dir.path().join("t")).unwrap();
        assert!(place.tend().is_none());
        assert!(place.trouble.as_ref().unwrap().contains("systemctl restart leasehold.socket"));

        let (wrong, _peer) = UnixStream::pair().unwrap();
        let error = listen(&path, None, vec![("docker".into(), wrong.into())]).unwrap_err();
        assert!(matches!(error, ListenError::Activation(_)), "{error}");
    }

    fn with_mac(path: &Path) -> PluginDir {
        PluginDir { path: path.to_owned(), requires_mac: true }
    }

    #[test]
    fn where_there_is_one_socket_it_may_be_for_ipvlan() {
        let dir = TempDir::new().unwrap();
        let plugins = PluginDir { path: dir.path().join("plugins"), requires_mac: false };
        let sockets = listen(&dir.path().join("s"), Some(&plugins), Vec::new()).unwrap();
        let docker = sockets.iter().map(|(_, place)| place).filter(|place| place.protocol().is_docker());
        let found: Vec<_> = docker.map(|place| (place.protocol(), place.path().to_owned())).collect();
        assert_eq!(found, [(Protocol::DockerIpvlan, plugins.path.join("leasehold.sock"))]);
    }

    #[test]
    fn docker_finds_a_plugin_for_each_way_of_addressing_only_where_a_directory_is_named() {
        let dir = TempDir::new().unwrap();
        let (socket, plugins) = (dir.path().join("s"), dir.path().join("docker/plugins"));
        let sockets = listen(&socket, Some(&with_mac(&plugins)), Vec::new()).unwrap();
        let found = |(_, place): &(UnixListener, Place)| (place.protocol(), place.path().to_owned());
        let expected = [
            (Protocol::Control, socket.clone()),
            (Protocol::Docker, plugins.join("leasehold.sock")),
            (Protocol::DockerIpvlan, plugins.join("leasehold-ipvlan.sock")),
        ];
        assert_eq!(sockets.iter().map(found).collect::<Vec<_>>(), expected);
        for (_, path) in expected {
            assert_eq!(mode(&path), 0o600);
            UnixStream::connect(path).unwrap();
        }
        drop(sockets);
        assert!(!plugins.join("leasehold.sock").exists());
        let control = listen(&socket, None, Vec::new()).unwrap();
        assert_eq!(control.len(), 1);
    }

    #[test]
    fn what_systemd_passes_is_told_apart_by_its_name_and_the_rest_is_bound() {
        let dir = TempDir::new().unwrap();
        let given = |name: &str| {
            let path = dir.path().join(name);
            let _ = fs::remove_file(&path);
            UnixListener::bind(path).unwrap().into()
        };
        let named = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), given(name))).collect();
        let plugins = dir.path().join("plugins");
        let sockets =
            listen(&dir.path().join("s"), Some(&with_mac(&plugins)), named(&["docker-ipvlan", "unknown"])).unwrap();
        let paths: Vec<_> = sockets.iter().map(|(_, place)| (place.protocol(), place.path().to_owned())).collect();
        let expected = [
            (Protocol::Control, dir.path().join("unknown")),
            (Protocol::Docker, plugins.join("leasehold.sock")),
            (Protocol::DockerIpvlan, dir.path().join("docker-ipvlan")),
        ];
        assert_eq!(paths, expected);
        drop(sockets);
        let mut twice: Vec<(String, OwnedFd)> = named(&["docker"]);
        twice.extend(named(&["docker"]));
        let error = listen(&dir.path().join("s"), None, twice).unwrap_err();
        assert_eq!(
            error.to_string(),
            "systemd passed more than one socket: leasehold-docker.socket has one ListenStream="
        );
    }

    #[test]
    fn a_directory_of_plugins_that_cannot_be_had_is_named_with_the_flag_or_the_reason() {
        let dir = TempDir::new().unwrap();
        let (socket, plugins) = (dir.path().join("s"), dir.path().join("plugins"));
        fs::write(&plugins, "").unwrap();
        let error = listen(&socket, Some(&with_mac(&plugins)), Vec::new()).unwrap_err();
        let said = crate::log::chain(&error);
        assert!(said.starts_with(&format!("cannot create {}: ", plugins.display())), "{said}");
        assert!(!socket.exists(), "what was bound before is removed");
        fs::remove_file(&plugins).unwrap();
        fs::create_dir(&plugins).unwrap();
        let _live = UnixListener::bind(plugins.join("leasehold.sock")).unwrap();
        let error = listen(&socket, Some(&with_mac(&plugins)), Vec::new()).unwrap_err().to_string();
        assert!(error.ends_with("stop it, or choose another path with --docker-plugin-dir"), "{error}");
    }
}
