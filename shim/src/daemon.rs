//! `dhcp daemon`: the command that starts the incumbent's daemon, with all its flags, starts ours instead.
//!
//! Flags are passed on in the environment, not as arguments: the `leasehold` that is found may be this plugin again under its
//! other name. It then looks further, and nothing is lost.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use leasehold_api::DEFAULT_SOCKET;

use crate::flags::{self, Fault, Flags};

/// The daemon's program.
const PROGRAM: &str = "leasehold";

/// Comma-separated `device:inode`s of the plugins that have looked for the daemon so far.
const PASSED: &str = "LEASEHOLD_SHIMS";

/// Becomes the daemon. Returns only when that fails.
pub(crate) fn start(args: impl Iterator<Item = OsString>) -> ExitCode {
    let flags = match flags::parse(args) {
        Ok(flags) => flags,
        // As Go's flag package does: asking for help succeeds.
        Err(Fault::Help) => {
            eprint!("{}", flags::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(Fault::Wrong(what)) => {
            eprint!("{what}\n{}", flags::USAGE);
            return ExitCode::from(2);
        }
    };
    if flags.resend_max.is_some() {
        eprintln!(
            "dhcp: -resendmax is not needed: leasehold asks again within 8 s while a container waits, and within a \
             minute otherwise"
        );
    }
    let me = env::current_exe().unwrap_or_default();
    let passed = passed(&me, env::var(PASSED).ok());
    let Some(program) = find(&me, env::var_os("PATH").as_deref(), &passed) else {
        eprintln!(
            "dhcp: there is no program {PROGRAM} in {}, nor in PATH: install it there, or start it yourself as \
             `{PROGRAM} daemon`",
            me.parent().unwrap_or(&me).display()
        );
        return ExitCode::FAILURE;
    };
    let set = settings(&flags, env::var_os("LEASEHOLD_STATE_DIR").is_some());
    let error = Command::new(&program)
        .arg("daemon")
        .envs(set)
        .env(PASSED, passed.join(","))
        .exec();
    eprintln!("dhcp: cannot start {}: {error}", program.display());
    ExitCode::FAILURE
}

/// Returns the plugins that must not be started: those that have passed this on, and this one.
fn passed(me: &Path, before: Option<String>) -> Vec<String> {
    let mut passed: Vec<_> = before
        .iter()
        .flat_map(|list| list.split(','))
        .map(str::to_owned)
        .collect();
    // Not by the path, which may lead to another file by now.
    let me = fs::metadata("/proc/self/exe").or_else(|_| fs::metadata(me));
    passed.extend(me.ok().as_ref().map(identity));
    passed
}

fn identity(file: &Metadata) -> String {
    format!("{}:{}", file.dev(), file.ino())
}

/// Returns the daemon's program: in the directory of `me`, else in the first of PATH that has one.
fn find(me: &Path, path: Option<&OsStr>, passed: &[String]) -> Option<PathBuf> {
    let elsewhere = path
        .into_iter()
        .flat_map(env::split_paths)
        .filter(|directory| directory.is_absolute());
    let programs = me
        .parent()
        .map(Path::to_owned)
        .into_iter()
        .chain(elsewhere)
        .map(|dir| dir.join(PROGRAM));
    programs.into_iter().find(|program| {
        let runs = |file: &Metadata| file.is_file() && file.mode() & 0o111 != 0;
        fs::metadata(program).is_ok_and(|file| runs(&file) && !passed.contains(&identity(&file)))
    })
}

/// Returns the daemon's environment variables for the flags. Variables of flags that are not given stay as they are.
fn settings(flags: &Flags, has_state_dir: bool) -> Vec<(&'static str, OsString)> {
    let mut set: Vec<(&str, OsString)> = Vec::new();
    let prefix = flags.host_prefix.as_deref().unwrap_or_default();
    let socket = flags
        .socket_path
        .as_deref()
        .filter(|path| !path.is_empty())
        .unwrap_or(DEFAULT_SOCKET);
    // The incumbent's own rule: the socket is below the host's root too.
    let socket = format!("{prefix}{socket}");
    if socket != DEFAULT_SOCKET {
        set.push(("LEASEHOLD_SOCKET", socket.clone().into()));
    }
    let mut state = PathBuf::from("/var/lib/leasehold");
    if !prefix.is_empty() {
        set.push(("LEASEHOLD_HOST_PREFIX", prefix.into()));
        if !has_state_dir {
            state = state_dir(prefix, Path::new(&socket));
            set.push(("LEASEHOLD_STATE_DIR", state.clone().into()));
        }
    }
    // Several daemons on one host have a socket each.
    if let Some(chosen) = flags.socket_path.as_deref()
        && !has_state_dir
        && !matches!(chosen, "" | DEFAULT_SOCKET)
    {
        let own = state.join(escaped(chosen));
        set.push(("LEASEHOLD_OTHER_STATE_DIR", own.into()));
    }
    if let Some(file) = flags.pid_file.as_deref().filter(|path| !path.is_empty()) {
        set.push(("LEASEHOLD_PID_FILE", file.into()));
    }
    if let Some(whole) = flags.add_timeout() {
        set.push((
            "LEASEHOLD_TIMEOUT",
            format!("{}.{:03}", whole.as_secs(), whole.subsec_millis()).into(),
        ));
    }
    if let Some(broadcast) = flags.broadcast {
        set.push(("LEASEHOLD_BROADCAST", broadcast.to_string().into()));
    }
    set
}

/// Returns a socket's path as the name of a directory, as `systemd-escape --path` does.
fn escaped(path: &str) -> String {
    let path = path.trim_matches('/');
    let mut name = String::new();
    for byte in path.bytes() {
        match byte {
            b'/' => name.push('-'),
            b'.' if name.is_empty() => name.push_str("\\x2e"),
            b'.' | b'_' | b':' => name.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => name.push(byte.into()),
            _ => name.push_str(&format!("\\x{byte:02x}")),
        }
    }
    name
}

/// Returns where a daemon in a short-lived container, which sees the host's root at `prefix`, keeps its leases.
///
/// A manifest for the incumbent often mounts only the socket's directory and those of namespaces, which is all that the incumbent
/// needs. The store is then beside the socket and is lost at the next boot, as the containers are.
fn state_dir(prefix: &str, socket: &Path) -> PathBuf {
    let hosts = PathBuf::from(format!("{prefix}/var/lib/leasehold"));
    match DirBuilder::new().mode(0o700).create(&hosts) {
        Ok(()) => hosts,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => hosts,
        Err(_) => socket.with_file_name("leasehold"),
    }
}
