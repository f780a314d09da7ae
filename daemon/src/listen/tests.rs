use std::os::unix::net::UnixStream;

use tempfile::TempDir;

use super::*;

/// Binds the control socket at a path.
fn bind(path: &Path) -> Result<(UnixListener, Place), ListenError> {
    listen(path, None, None, Vec::new())
        .map(|(mut listeners, mut places)| (listeners.remove(0).1, places.remove(0)))
}

/// Returns a directory, and a path for a socket in it.
fn place() -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    (dir, path)
}

/// Returns a socket that systemd passes.
fn given(name: &str, path: PathBuf) -> (String, OwnedFd) {
    (name.to_owned(), UnixListener::bind(path).unwrap().into())
}

/// Returns what is wrong with a place.
fn trouble(place: &Place) -> &str {
    place.trouble.as_deref().unwrap_or_default()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn an_existing_directory_keeps_its_mode() {
    let dir = TempDir::new().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o751)).unwrap();
    let (_listener, place) = bind(&dir.path().join("s")).unwrap();
    assert_eq!(mode(dir.path()), 0o751);
    drop(place);
}

#[test]
fn a_socket_without_its_file_is_bound_again() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("cni/s");
    let (_listener, mut place) = bind(&path).unwrap();
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
    let (_dir, path) = place();
    let (_listener, mut place) = bind(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    assert!(place.tend().is_none());
    assert!(
        trouble(&place).contains("is served by process"),
        "{place:?}"
    );
    drop(other);
    assert!(place.tend().is_some());
    assert_eq!(place.trouble, None);
}

#[test]
fn a_live_socket_with_a_full_backlog_is_refused() {
    let (_dir, path) = place();
    let live = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    live.bind(&SockAddr::unix(&path).unwrap()).unwrap();
    live.listen(0).unwrap();
    let _waiting: Vec<_> = std::iter::from_fn(|| connect(&path).ok()).collect();
    assert!(matches!(bind(&path), Err(ListenError::Live { .. })));
}

#[test]
fn what_is_not_a_socket_is_left_alone() {
    let (_dir, path) = place();
    fs::write(&path, "precious").unwrap();
    assert!(matches!(bind(&path), Err(ListenError::NotASocket { .. })));
    assert_eq!(fs::read(&path).unwrap(), b"precious");
}

#[test]
fn a_socket_that_took_the_place_of_ours_is_not_removed() {
    let (_dir, path) = place();
    let (_listener, ours) = bind(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    drop(ours);
    assert!(path.exists());
}

/// Returns the place of a socket that systemd passes.
fn place_of(path: &Path) -> Place {
    let given = vec![given("leasehold.socket", path.to_owned())];
    let sockets = listen(Path::new("/elsewhere"), None, None, given);
    sockets.unwrap().1.remove(0)
}

#[test]
fn an_inherited_socket_is_checked_and_never_removed() {
    let (dir, path) = place();
    let place = place_of(&path);
    assert_eq!(place.path(), path);
    drop(place);
    assert!(path.exists());
    let mut place = place_of(&dir.path().join("t"));
    assert!(place.tend().is_none() && place.trouble.is_none());
    fs::remove_file(dir.path().join("t")).unwrap();
    assert!(place.tend().is_none());
    assert!(trouble(&place).contains("systemctl restart leasehold.socket"));

    let (wrong, _peer) = UnixStream::pair().unwrap();
    let error = listen(&path, None, None, vec![("docker".into(), wrong.into())]).unwrap_err();
    assert!(matches!(error, ListenError::Activation(_)), "{error}");
    let given = |name: &str| given(name, dir.path().join(name));
    let error = listen(&path, None, None, vec![given("one"), given("two")])
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "systemd passed more than one socket: leasehold.socket has one ListenStream="
    );
}

fn with_mac(path: &Path) -> PluginDir {
    PluginDir {
        path: path.to_owned(),
        requires_mac: true,
    }
}

/// Returns what is spoken at which path.
fn paths(places: &[Place]) -> Vec<(Protocol, PathBuf)> {
    places
        .iter()
        .map(|place| (place.protocol(), place.path().to_owned()))
        .collect()
}

#[test]
fn where_there_is_one_socket_it_may_be_for_ipvlan() {
    let dir = TempDir::new().unwrap();
    let (socket, path) = (dir.path().join("s"), dir.path().join("plugins"));
    let plugins = PluginDir {
        path: path.clone(),
        requires_mac: false,
    };
    let (_control, places) = listen(&socket, Some(&plugins), None, Vec::new()).unwrap();
    assert_eq!(
        paths(&places[1..]),
        [(Protocol::DockerIpvlan, path.join("leasehold.sock"))]
    );
}

#[test]
fn docker_finds_no_socket_before_the_daemon_is_ready() {
    let dir = TempDir::new().unwrap();
    let (socket, plugins) = (dir.path().join("s"), dir.path().join("docker/plugins"));
    let (_control, mut places) =
        listen(&socket, Some(&with_mac(&plugins)), None, Vec::new()).unwrap();
    let expected = [
        (Protocol::Control, socket.clone()),
        (Protocol::Docker, plugins.join("leasehold.sock")),
        (
            Protocol::DockerIpvlan,
            plugins.join("leasehold-ipvlan.sock"),
        ),
    ];
    assert_eq!(paths(&places), expected);
    UnixStream::connect(&socket).unwrap();
    assert!(!plugins.exists());
    let bound: Vec<_> = places.iter_mut().map(Place::tend).collect();
    assert!(bound[0].is_none());
    for (_, path) in expected {
        assert_eq!(mode(&path), 0o600);
        UnixStream::connect(path).unwrap();
    }
    drop(places);
    assert!(!plugins.join("leasehold.sock").exists());
    let (_control, places) = listen(&socket, None, None, Vec::new()).unwrap();
    assert_eq!(places.len(), 1);
}

#[test]
fn a_missing_plugin_directory_is_tried_again() {
    let dir = TempDir::new().unwrap();
    let (socket, plugins) = (dir.path().join("s"), dir.path().join("plugins"));
    let path = plugins.join("leasehold.sock");
    fs::write(&plugins, "").unwrap();
    let (_control, mut places) =
        listen(&socket, Some(&with_mac(&plugins)), None, Vec::new()).unwrap();
    let place = &mut places[1];
    let mut trouble = |what: &str| {
        assert!(place.tend().is_none(), "{what}");
        let said = place.trouble.clone().unwrap();
        assert!(said.contains(what), "{said}");
    };
    trouble(&format!("cannot create {}: ", plugins.display()));
    fs::remove_file(&plugins).unwrap();
    fs::create_dir_all(&path).unwrap();
    trouble(&format!(
        "{} exists and is not a socket: move it away",
        path.display()
    ));
    fs::remove_dir(&path).unwrap();
    let live = UnixListener::bind(&path).unwrap();
    trouble("stop it, or choose another path with --docker-plugin-dir");
    drop(live);
    let _ours = place.tend().unwrap();
    UnixStream::connect(&path).unwrap();
    assert_eq!(place.trouble, None);
}

#[test]
fn the_read_socket_belongs_to_a_group_and_may_fail() {
    let dir = TempDir::new().unwrap();
    let (socket, path) = (dir.path().join("s"), dir.path().join("read/leasehold.sock"));
    let gid = fs::metadata(dir.path()).unwrap().gid();
    let read = ReadSocket {
        path: path.clone(),
        gid: Some(gid),
    };
    fs::write(dir.path().join("read"), "").unwrap();
    let (listeners, mut places) = listen(&socket, None, Some(&read), Vec::new()).unwrap();
    assert_eq!(
        (listeners.len(), paths(&places[1..])),
        (1, vec![(Protocol::Read, path.clone())])
    );
    assert!(places[1].tend().is_none());
    assert!(trouble(&places[1]).contains("cannot create"), "{places:?}");
    fs::remove_file(dir.path().join("read")).unwrap();
    let _ours = places[1].tend().unwrap();
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o660, 0o755));
    assert_eq!(fs::metadata(&path).unwrap().gid(), gid);
    UnixStream::connect(&path).unwrap();
}

#[test]
fn systemd_passes_both_sockets_in_any_order() {
    let dir = TempDir::new().unwrap();
    let given = |name: &str, file: &str| given(name, dir.path().join(file));
    let both = vec![given("read", "r"), given("leasehold.socket", "s")];
    let (listeners, places) = listen(Path::new("/elsewhere"), None, None, both).unwrap();
    assert_eq!(
        listeners
            .iter()
            .map(|(protocol, _)| *protocol)
            .collect::<Vec<_>>(),
        [Protocol::Control, Protocol::Read]
    );
    assert_eq!(
        paths(&places),
        [
            (Protocol::Control, dir.path().join("s")),
            (Protocol::Read, dir.path().join("r"))
        ]
    );
    let twice = vec![given("read", "a"), given("read", "b")];
    let error = listen(&dir.path().join("t"), None, None, twice)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "systemd passed more than one socket: leasehold-read.socket has one ListenStream="
    );
}
