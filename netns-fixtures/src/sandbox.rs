//! The place where fixtures live: private mounts, networks and processes.
//!
//! A [`Sandbox`] takes the calling thread out of the host: it has a mount namespace of its own with an empty `/run`, a network
//! namespace of its own, and a PID namespace for whatever is started. The first process of that PID namespace waits for the end
//! of its input, which comes when this process ends, however it ends. The kernel then kills the rest, and the mounts and networks
//! disappear with the last process. Nothing is left to clean up, so nothing can be forgotten.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{getgid, getuid};

use crate::error::{Doing, Error};

/// Private mounts, networks and processes, which live as long as the last clone.
#[derive(Clone, Debug)]
pub struct Sandbox(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The number of its first process, and what ends it; what is only a part of another ends with that.
    id: u32,
    _keeper: Option<Keeper>,
    /// The mount namespace of started processes: the thread's own, except for `/proc`.
    mounts: OwnedFd,
    /// The PID namespace of started processes.
    pids: OwnedFd,
    counter: Arc<AtomicU32>,
    /// The sandbox that this one is in.
    _outer: Option<Sandbox>,
}

/// The first process of the PID namespace, or its parent.
#[derive(Debug)]
struct Keeper {
    child: Child,
    input: Option<ChildStdin>,
}

/// Ends with its input. Until then it reaps orphans, as the first process should.
const KEEP: &str = "mount -t proc proc /proc; echo ready; cat; exit";

impl Keeper {
    /// Waits until it is ready.
    fn new(mut child: Child) -> Result<Self, Error> {
        let input = child.stdin.take();
        let output = child.stdout.take().expect("its output is a pipe");
        let mut keeper = Self { child, input };
        let mut line = String::new();
        BufReader::new(output)
            .read_line(&mut line)
            .doing(|| "hear from the first process".to_owned())?;
        if line.trim() == "ready" {
            return Ok(keeper);
        }
        let status = keeper
            .child
            .wait()
            .doing(|| "wait for the first process".to_owned())?;
        Err(Error::Failed {
            command: "make a sandbox".to_owned(),
            status,
            said: line,
        })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.input.take());
        // It ends with its input; nobody is left to hear about a failure to notice that.
        let _ = self.child.wait();
    }
}

impl Sandbox {
    /// Takes the calling thread, and the threads that it starts from now on, out of the host's namespaces.
    ///
    /// A process that is not root first becomes root of a user namespace of its own, which works only while it has a single
    /// thread. Otherwise the thread's mounts and network change for good: a test calls this once.
    pub fn enter() -> Result<Self, Error> {
        let own = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET;
        match unshare(own) {
            Ok(()) => {}
            Err(Errno::EPERM) => {
                become_root_of_a_user_namespace()?;
                unshare(own).map_err(|e| Error::NotAllowed(e.into()))?;
            }
            Err(errno) => return Err(Error::NotAllowed(errno.into())),
        }
        private_places()?;
        let keeper = thread::scope(|s| {
            s.spawn(start_keeper)
                .join()
                .expect("the keeper's starter does not panic")
        })?;
        let counter = Arc::new(AtomicU32::new(1));
        Self::of(keeper.child.id(), Some(keeper), counter, None)
    }

    /// Makes a sandbox within this one, for an engine that is killed with everything that it started. It has the same networks,
    /// but its own mounts, except for those under `/run`. `prepare` is a shell script that runs in it first.
    pub(crate) fn nested(&self, prepare: &str) -> Result<Self, Error> {
        let mut command = Command::new("unshare");
        command.args("--mount --propagation unchanged --pid --fork --kill-child --".split(' '));
        command
            .args(["sh", "-ec", &format!("{prepare}\n{KEEP}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let child = self
            .spawn_here(&mut command)
            .doing(|| "start unshare".to_owned())?;
        let keeper = Keeper::new(child)?;
        let (counter, outer) = (self.0.counter.clone(), Some(self.clone()));
        Self::of(keeper.child.id(), Some(keeper), counter, outer)
    }

    /// Returns the part of this sandbox that has the mounts and processes of one of its processes, such as a systemd.
    pub(crate) fn beside(&self, process: u32) -> Result<Self, Error> {
        Self::of(process, None, self.0.counter.clone(), Some(self.clone()))
    }

    fn of(
        id: u32,
        keeper: Option<Keeper>,
        counter: Arc<AtomicU32>,
        outer: Option<Self>,
    ) -> Result<Self, Error> {
        let of_process = |kind: &str| {
            let path = format!("/proc/{id}/ns/{kind}");
            File::open(&path)
                .map(OwnedFd::from)
                .doing(|| format!("open {path}"))
        };
        let (mounts, pids) = (of_process("mnt")?, of_process("pid_for_children")?);
        Ok(Self(Arc::new(Inner {
            id,
            _keeper: keeper,
            mounts,
            pids,
            counter,
            _outer: outer,
        })))
    }

    /// Makes an empty directory, `/run/NAME-N`, that nobody outside can see.
    pub fn dir(&self, name: &str) -> Result<PathBuf, Error> {
        let path = PathBuf::from(format!("/run/{name}-{}", self.number()));
        fs::create_dir_all(&path).doing(|| format!("make {}", path.display()))?;
        Ok(path)
    }

    /// Returns 1, 2, 3 and so on, for names and addresses.
    pub(crate) fn number(&self) -> u32 {
        self.0.counter.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the process id of the sandbox's first process, as seen from outside the sandbox.
    pub fn keeper(&self) -> u32 {
        self.0.id
    }

    /// Starts a process inside the sandbox, in the network namespace of the calling thread.
    pub(crate) fn spawn_here(&self, command: &mut Command) -> io::Result<Child> {
        // A thread whose children belong to another PID namespace can no longer start threads: use one that ends.
        thread::scope(|s| {
            let spawn = || {
                unshare(CloneFlags::CLONE_FS)?;
                setns(&self.0.mounts, CloneFlags::CLONE_NEWNS)?;
                setns(&self.0.pids, CloneFlags::CLONE_NEWPID)?;
                command.spawn()
            };
            s.spawn(spawn).join().expect("spawning does not panic")
        })
    }
}

/// Makes a user namespace in which this process is root (user_namespaces(7)).
fn become_root_of_a_user_namespace() -> Result<(), Error> {
    let (uid, gid) = (getuid(), getgid());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|e| Error::NotAllowed(e.into()))?;
    let write = |file: &str, text: String| fs::write(file, text).map_err(Error::NotAllowed);
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// Puts empty directories over `/run` and `/dev/shm`, because servers and engines keep their pid files, locks and sockets there.
fn private_places() -> Result<(), Error> {
    let none: Option<&str> = None;
    let set = |what: &str, from, fs, flags, data| {
        mount(from, Path::new(what), fs, flags, data).doing(|| format!("mount {what}"))
    };
    set("/", none, none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    // What is mounted there would be covered, and still be found in the list of mounts: containerd takes a covered /run/netns,
    // which `ip netns` leaves, for that of this place.
    unmount_under(&[Path::new("/run"), Path::new("/dev/shm")]);
    let (memory, plain) = (Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV);
    set("/run", memory, memory, plain, Some("mode=0755"))?;
    set("/dev/shm", memory, memory, plain, Some("mode=1777"))?;
    // Names of network namespaces are mounts below it, and must be visible to processes started earlier.
    set("/run", none, none, MsFlags::MS_SHARED, none)?;
    fs::create_dir("/run/netns").doing(|| "make /run/netns".to_owned())
}

/// Starts the first process of a new PID namespace, with a `/proc` that shows this namespace.
fn start_keeper() -> Result<Keeper, Error> {
    unshare(CloneFlags::CLONE_NEWPID).map_err(|e| Error::NotAllowed(e.into()))?;
    let mut command = Command::new("unshare");
    command.args("--mount --propagation unchanged -- sh -ec".split(' '));
    command
        .arg(KEEP)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    Keeper::new(command.spawn().doing(|| "start unshare".to_owned())?)
}

/// Unmounts whatever is mounted at or below these directories, as far as possible.
pub(crate) fn unmount_under(dirs: &[&Path]) {
    let mounts = fs::read_to_string("/proc/thread-self/mounts").unwrap_or_default();
    let places = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .map(Path::new);
    let below: Vec<_> = places
        .filter(|place| dirs.iter().any(|dir| place.starts_with(dir)))
        .collect();
    // What was mounted last is on top.
    for place in below.into_iter().rev() {
        let _ = umount2(place, MntFlags::MNT_DETACH);
    }
}
