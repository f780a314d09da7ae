use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use leasehold_api::cni::Request;
use leasehold_api::{MAX_BODY, spool};
use leasehold_core::effect::{Answer, Call, Failure, StoreCause};

use super::super::spool::Spool as Calls;
use super::request;

struct Spool {
    _directory: tempfile::TempDir,
    socket: PathBuf,
}

impl Spool {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("dhcp.sock");
        Self {
            _directory: directory,
            socket,
        }
    }

    /// What a starting daemon knows about it.
    fn calls(&self) -> Calls {
        Calls::new(self.socket.clone())
    }

    fn file(&self, rest: &str) -> PathBuf {
        self.socket.with_file_name(format!("dhcp.sock{rest}"))
    }

    fn put(&self, request: &Request) -> PathBuf {
        let path = spool::path(&self.socket, request);
        fs::write(&path, serde_json::to_vec(request).unwrap()).unwrap();
        path
    }

    fn others(&self) -> Vec<String> {
        let entries = fs::read_dir(self.socket.parent().unwrap()).unwrap();
        let mut names: Vec<_> = entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn container(call: &Call) -> &str {
    match call {
        Call::Del { attachment, .. } => attachment.container().expect("CNI's"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn spooled_dels_are_found_with_their_files() {
    let spool = Spool::new();
    let mut paths = Vec::new();
    for id in ["a", "b", "c"] {
        let mut request = request("DEL");
        request.env.container_id = Some(id.into());
        paths.push(spool.put(&request));
    }
    paths.sort();
    let found = spool.calls().take_up();
    assert_eq!(
        found
            .iter()
            .map(|(path, _)| path.clone())
            .collect::<Vec<_>>(),
        paths
    );
    let mut ids: Vec<_> = found.iter().map(|(_, call)| container(call)).collect();
    ids.sort();
    assert_eq!(ids, ["a", "b", "c"]);
    assert!(paths.iter().all(|path| path.exists()));
}

#[test]
fn a_call_is_taken_up_once_and_what_failed_is_kept() {
    let spool = Spool::new();
    let mut calls = spool.calls();
    let file = spool.put(&request("DEL"));
    assert_eq!(calls.take_up().len(), 1);
    assert!(calls.take_up().is_empty(), "it is under way");
    calls.done(
        file.clone(),
        &Answer::Failed(Failure::Store(StoreCause::Full)),
    );
    assert!(file.exists() && calls.take_up().is_empty(), "it rests");
    let mut calls = spool.calls();
    assert_eq!(calls.take_up().len(), 1, "the next daemon takes it up");
    calls.done(file.clone(), &Answer::Deleted);
    assert!(!file.exists() && calls.take_up().is_empty());
    spool.put(&request("DEL"));
    // A new file of the same name is another call.
    assert_eq!(calls.take_up().len(), 1);
}

#[test]
fn a_missing_directory_is_an_empty_spool() {
    assert!(
        Calls::new("/nonexistent/leasehold/dhcp.sock".into())
            .take_up()
            .is_empty()
    );
}

#[test]
fn what_is_no_del_is_removed_or_left_alone() {
    let spool = Spool::new();
    let good = spool.put(&request("DEL"));
    fs::write(spool.file(".del-empty"), "").unwrap();
    fs::write(
        spool.file(".del-add"),
        serde_json::to_vec(&request("ADD")).unwrap(),
    )
    .unwrap();
    fs::write(
        spool.file(".del-config"),
        serde_json::to_vec(&Request {
            config: "{".into(),
            ..request("DEL")
        })
        .unwrap(),
    )
    .unwrap();
    fs::write(spool.file(".del-large"), vec![b' '; MAX_BODY + 1]).unwrap();
    fs::create_dir(spool.file(".del-directory")).unwrap();
    symlink("/dev/zero", spool.file(".del-link")).unwrap();
    nix::sys::stat::mknod(
        &spool.file(".del-fifo"),
        nix::sys::stat::SFlag::S_IFIFO,
        nix::sys::stat::Mode::S_IRUSR,
        0,
    )
    .unwrap();
    let found = spool.calls().take_up();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, good);
    let left = ["directory", "fifo", "large", "link"];
    let mut expected = Vec::from(left.map(|rest| format!("dhcp.sock.del-{rest}")));
    expected.push(good.file_name().unwrap().to_str().unwrap().to_owned());
    expected.sort();
    assert_eq!(spool.others(), expected);
    assert_eq!(spool.calls().take_up().len(), 1);
}

#[test]
fn files_of_others_are_not_touched() {
    let spool = Spool::new();
    for name in ["dhcp.sock", "dhcp.sock.lock", "other.sock.del-1"] {
        fs::write(spool.socket.with_file_name(name), "").unwrap();
    }
    assert!(spool.calls().take_up().is_empty());
    assert_eq!(
        spool.others(),
        ["dhcp.sock", "dhcp.sock.lock", "other.sock.del-1"]
    );
}

#[test]
fn a_del_that_anybody_may_have_left_is_not_believed() {
    let spool = Spool::new();
    let path = spool.put(&request("DEL"));
    let mode = |mode| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(spool.socket.parent().unwrap(), permissions).unwrap();
    };
    let mut calls = spool.calls();
    for others in [0o777, 0o1777, 0o770] {
        mode(others);
        assert!(calls.take_up().is_empty(), "{others:o}");
    }
    assert!(path.exists());
    mode(0o755);
    assert_eq!(calls.take_up().len(), 1);
}
