//! Network namespaces as values.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

use crate::error::{Doing, Error};
use crate::sandbox::Sandbox;

/// A network namespace with a path, usually `/run/netns/NAME`, inside its sandbox. It dies with the last clone, unless
/// a process or a socket still lives in it.
#[derive(Clone, Debug)]
pub struct Netns {
    inner: Arc<Inner>,
    /// Where its processes start.
    sandbox: Sandbox,
}

#[derive(Debug)]
struct Inner {
    name: String,
    path: PathBuf,
    fd: OwnedFd,
    /// Whether we made it.
    ours: bool,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.ours {
            return;
        }
        // If that fails, the mount goes with the sandbox.
        let _ = umount2(&self.path, MntFlags::MNT_DETACH);
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Netns {
    /// Makes a namespace with its loopback up.
    pub fn new(sandbox: &Sandbox, name: &str) -> Result<Self, Error> {
        Self::at(sandbox, name, Path::new("/run/netns").join(name))
    }

    /// Makes a namespace that is mounted elsewhere.
    pub(crate) fn at(sandbox: &Sandbox, name: &str, path: PathBuf) -> Result<Self, Error> {
        let make = || -> Result<OwnedFd, Error> {
            unshare(CloneFlags::CLONE_NEWNET).doing(|| format!("make network namespace {name}"))?;
            mount_own(&path)?;
            File::open(&path)
                .map(OwnedFd::from)
                .doing(|| format!("open {}", path.display()))
        };
        let fd = thread::scope(|s| {
            s.spawn(make)
                .join()
                .expect("making a namespace does not panic")
        })?;
        let inner = Arc::new(Inner {
            name: name.to_owned(),
            path,
            fd,
            ours: true,
        });
        let netns = Self {
            inner,
            sandbox: sandbox.clone(),
        };
        netns.set_up("lo")?;
        Ok(netns)
    }

    /// Removes its path until [`Netns::show`], for the time before an engine has mounted it.
    pub(crate) fn hide(&self) -> Result<(), Error> {
        let path = self.path();
        umount2(path, MntFlags::MNT_DETACH).doing(|| format!("unmount {}", path.display()))?;
        std::fs::remove_file(path).doing(|| format!("remove {}", path.display()))
    }

    /// Mounts it at its path.
    pub(crate) fn show(&self) -> Result<(), Error> {
        self.run(|| mount_own(self.path()))
    }

    /// Opens a namespace that an engine has made. It lives on until the last clone is dropped.
    pub fn open(sandbox: &Sandbox, path: PathBuf) -> Result<Self, Error> {
        let name = path.display().to_string();
        let fd = File::open(&path)
            .map(OwnedFd::from)
            .doing(|| format!("open {name}"))?;
        Ok(Self {
            inner: Arc::new(Inner {
                name,
                path,
                fd,
                ours: false,
            }),
            sandbox: sandbox.clone(),
        })
    }

    /// Returns the same namespace for processes of another sandbox within its own.
    pub(crate) fn within(&self, sandbox: Sandbox) -> Self {
        Self {
            inner: self.inner.clone(),
            sandbox,
        }
    }

    /// Returns the sandbox that it is in.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns its path, for `CNI_NETNS`.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Calls `f` on a separate thread inside the namespace. A socket that `f` makes stays in the namespace.
    ///
    /// # Panics
    /// If `f` does.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            setns(self.inner.fd.as_fd(), CloneFlags::CLONE_NEWNET)
                .expect("its own namespace can be entered");
            f()
        };
        match thread::scope(|s| s.spawn(inside).join()) {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Starts a process inside. The caller must wait for it, because the sandbox ends when all its children have been waited for.
    pub(crate) fn spawn(&self, mut command: Command) -> Result<Child, Error> {
        let program = command.get_program().to_string_lossy().into_owned();
        self.run(|| self.sandbox.spawn_here(&mut command))
            .doing(|| format!("start {program}"))
    }

    /// Runs a command inside to its end, with `input` as its standard input.
    pub fn output(&self, mut command: Command, input: &[u8]) -> Result<Output, Error> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = self.spawn(command)?;
        feed(&mut child, input);
        child
            .wait_with_output()
            .doing(|| "wait for a command".to_owned())
    }

    /// Runs a command inside and returns what it printed.
    ///
    /// # Errors
    /// [`Error::Failed`] if it ends with a code other than 0.
    pub fn run_command(&self, program: &str, args: &[&str], input: &str) -> Result<String, Error> {
        let mut command = Command::new(program);
        command.args(args);
        let output = self.output(command, input.as_bytes())?;
        printed(program, args, &output)
    }

    /// Runs a script of the shell inside, up to its first failure, and returns what it printed.
    ///
    /// # Errors
    /// As [`Netns::run_command`].
    pub fn sh(&self, script: &str) -> Result<String, Error> {
        self.run_command("sh", &["-ec", script], "")
    }

    /// Mounts an overlay over the files of a directory, where the sandbox's processes see it.
    pub(crate) fn overlay(
        &self,
        lower: &Path,
        upper: &Path,
        work: &Path,
        place: &Path,
    ) -> Result<(), Error> {
        let [lower, upper, work, place] = [lower, upper, work, place].map(Path::display);
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        self.sh(&format!("mount -t overlay overlay -o {options} {place}"))
            .map(drop)
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.inner.fd
    }
}

/// Returns what a command has printed.
///
/// # Errors
/// [`Error::Failed`] with all its output if it ended with a code other than 0.
pub(crate) fn printed(program: &str, args: &[&str], output: &Output) -> Result<String, Error> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(Error::Failed {
            command: format!("{program} {}", args.join(" ")),
            status: output.status,
            said: text(&output.stdout) + &text(&output.stderr),
        }),
    }
}

/// Mounts the calling thread's namespace at an unused path.
fn mount_own(path: &Path) -> Result<(), Error> {
    File::create_new(path).doing(|| format!("make {}", path.display()))?;
    let none: Option<&str> = None;
    mount(
        Some("/proc/thread-self/ns/net"),
        path,
        none,
        MsFlags::MS_BIND,
        none,
    )
    .doing(|| format!("mount {}", path.display()))
}

/// Writes `input` to the child and closes the pipe. A child may stop reading early.
pub(crate) fn feed(child: &mut Child, input: &[u8]) {
    use std::io::Write;
    if let Some(mut pipe) = child.stdin.take() {
        let _ = pipe.write_all(input);
    }
}
