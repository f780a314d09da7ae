//! `leasehold install` and `leasehold uninstall`: the shim where the host's runtimes look for CNI plugins, and systemd's units.
//!
//! Nothing is remembered between the two: our files identify themselves, and what they replaced is beside them. So each may run
//! again after any interruption.

mod directories;
pub(super) mod docker;
mod dpkg;
mod place;
mod turn;
mod units;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use leasehold_api::SHIM_MARK;
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access, chroot};

use super::args::{InstallArgs, UninstallArgs};
use super::networks;
use crate::store;
pub(crate) use directories::OfTheHost;
use place::{Found, Place};

/// The plugins that the shim serves, by the names under which runtimes look for them.
const DHCP: &str = "dhcp";
const HOST_LOCAL: &str = "host-local";

/// Where packages and the image keep the shim, relative to the directory of the daemon's program.
const BESIDE: [&str; 2] = ["dhcp", "../libexec/leasehold/dhcp"];

/// What is said when there is no place for the plugin.
const NO_DIRECTORY: &str = "no runtime on this host has a directory for CNI plugins";

/// Where runtimes keep their networks.
const NETWORKS: &str = "/etc/cni/net.d";

/// What is said of a runtime's configuration.
const UNREAD: &str = "cannot be parsed";

/// The directory that a running systemd makes (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";

/// Says what was tried with which file.
fn cannot(doing: &str, path: &Path) -> String {
    format!("cannot {doing} {}", path.display())
}

/// Puts the shim into the host's CNI directories, and says what it did, with a line for each file.
///
/// Nothing is changed anywhere if somebody else's file is in the way, or if a later release wrote the store.
pub(crate) fn install(args: &InstallArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let shim = shim()?;
    let program = own_program()?;
    enter(&args.root)?;
    if args.systemd && args.root == Path::new("/") && !Path::new(BOOTED).is_dir() {
        bail!(
            "systemd does not run this host: without --systemd, run `leasehold daemon` in its place"
        );
    }
    store::check_version(&args.state_dir)?;
    let names: &[&str] = if args.host_local {
        &[DHCP, HOST_LOCAL]
    } else {
        &[DHCP]
    };
    // What a package cannot read does not keep it from being upgraded.
    let directories = directories(&args.cni_bin_dir, args.update, out)?;
    let mut places = Vec::new();
    for directory in writable(directories, out)? {
        places.extend(names.iter().map(|name| plugin(directory.join(name), &shim)));
    }
    let unserved = docker::is_unserved();
    let nowhere = places.is_empty() && !args.update;
    if nowhere && !args.systemd && !unserved {
        bail!("{NO_DIRECTORY}: say which it is with --cni-bin-dir");
    }
    if args.systemd {
        places.extend(units::places(&program));
    }
    let _turn = turn::take(&places, out)?;
    let mut found = places
        .into_iter()
        .map(|place| Ok((place.look()?, place)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    if args.update {
        found.retain(|(found, _)| matches!(found, Found::Same(_) | Found::Ours(_)));
    }
    let in_the_way = |(found, place): &(Found, Place)| {
        matches!(found, Found::Foreign { package: None }).then(|| place.path.display().to_string())
    };
    let in_the_way: Vec<_> = found.iter().filter_map(in_the_way).collect();
    if !in_the_way.is_empty() && !args.force {
        bail!(
            "{}: not leasehold's. --force replaces it, and `leasehold uninstall` puts it back",
            in_the_way.join(", ")
        );
    }
    for (found, place) in found {
        say(out, &place.path, &place.put(&found)?)?;
    }
    if args.systemd {
        units::start(out)?;
    }
    if nowhere {
        let left_out = format!(
            "left out, because {NO_DIRECTORY}. Once there is one: `leasehold install`, or `leasehold install --cni-bin-dir DIR`"
        );
        say(out, Path::new(DHCP), &left_out)?;
    }
    if unserved && !args.update {
        say(out, Path::new("Docker"), docker::WAY)?;
    }
    of_networks(args, out)
}

/// Says what is to be corrected in the networks of the host, which may have worked with the replaced plugins.
fn of_networks(args: &InstallArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    // A host without such a directory has no networks that could be wrong.
    let found = networks::networks(Path::new(NETWORKS), &networks::site()).unwrap_or_default();
    let mut refused = Vec::new();
    for network in found.ours {
        for warning in &network.warnings {
            say(out, &network.file, warning)?;
        }
        refused.extend(
            network
                .add
                .err()
                .map(|error| (network.file, network.name, error.msg)),
        );
    }
    if args.host_local {
        refused.extend(found.refused_host_local);
    }
    for (file, name, why) in refused {
        say(
            out,
            &file,
            &format!("correct network {name}: leasehold refuses its containers, because {why}"),
        )?;
    }
    Ok(())
}

/// Removes the shim, puts back what it replaced, and says what it did. Leases and running containers stay.
pub(crate) fn uninstall(args: &UninstallArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    enter(&args.root)?;
    if args.systemd {
        units::stop(out)?;
    }
    let plugins = directories(&args.cni_bin_dir, true, out)?
        .into_iter()
        .flat_map(|directory| [DHCP, HOST_LOCAL].map(|name| plugin(directory.join(name), &[])));
    let units = args
        .systemd
        .then(|| units::places(&units::Program::default()));
    let places: Vec<_> = plugins.chain(units.into_iter().flatten()).collect();
    let _turn = turn::take(&places, out)?;
    for place in places {
        if let Found::Same(_) | Found::Ours(_) = place.look()? {
            say(out, &place.path, &place.take()?)?;
        }
    }
    if args.systemd {
        units::forget()
    } else {
        Ok(())
    }
}

/// Returns the place of a plugin in a CNI directory.
fn plugin(path: PathBuf, contents: &[u8]) -> Place {
    Place {
        path,
        contents: contents.to_owned(),
        mode: 0o755,
        version: shim_version,
    }
}

/// Returns the version of the shim whose program file this is; `None` for any other file.
pub(crate) fn shim_version(file: &[u8]) -> Option<String> {
    // The daemon's own program has the mark too, without a version.
    let mark = SHIM_MARK.as_bytes();
    let mut windows = file.windows(mark.len()).enumerate();
    windows.find_map(|(at, window)| {
        if window != mark {
            return None;
        }
        let line = file[at + mark.len()..]
            .iter()
            .take(32)
            .take_while(|byte| **byte != b'\n');
        let version: String = line.map(|byte| char::from(*byte)).collect();
        let is_version = version.starts_with(|c: char| c.is_ascii_digit())
            && version.chars().all(|c| c.is_ascii_graphic());
        is_version.then_some(version)
    })
}

/// Returns the contents of the shim that came with this program.
fn shim() -> anyhow::Result<Vec<u8>> {
    let own = env::current_exe().with_context(|| cannot("find", Path::new("/proc/self/exe")))?;
    let beside = own.parent().unwrap_or(Path::new("/"));
    let found = BESIDE
        .iter()
        .filter_map(|path| fs::read(beside.join(path)).ok());
    let is_ours = |file: &Vec<u8>| shim_version(file).is_some();
    found.into_iter().find(is_ours).with_context(|| {
        let packaged = beside.join(BESIDE[1]);
        format!(
            "the plugin `dhcp` is not beside this program, nor in {}: build or unpack both",
            packaged.display()
        )
    })
}

/// Returns this program: its path, and its file's contents.
fn own_program() -> anyhow::Result<units::Program> {
    let exe = Path::new("/proc/self/exe");
    let path = env::current_exe().with_context(|| cannot("find", exe))?;
    Ok(units::Program {
        path,
        contents: fs::read(exe).with_context(|| cannot("read", exe))?,
    })
}

/// Makes the host's root directory this process's own, so that links and programs in it mean the same as they do to the host.
fn enter(root: &Path) -> anyhow::Result<()> {
    if root == Path::new("/") {
        return Ok(());
    }
    chroot(root)
        .map_err(io::Error::from)
        .with_context(|| cannot("change the root directory to", root))?;
    env::set_current_dir("/").with_context(|| cannot("enter", Path::new("/")))
}

/// Returns the directories that are named, or if none are, those of the host's runtimes. Configuration that cannot be read may
/// name more: that is an error, or a warning if there is nobody who could correct it.
fn directories(
    named: &[PathBuf],
    only_warn: bool,
    out: &mut dyn Write,
) -> anyhow::Result<Vec<PathBuf>> {
    if !named.is_empty() {
        return Ok(named.to_owned());
    }
    let OfTheHost {
        directories,
        unread,
    } = OfTheHost::look();
    for (path, source) in unread {
        if !only_warn {
            let path = path.display();
            let why =
                format!("{path} {UNREAD}: correct it, or say where plugins are with --cni-bin-dir");
            return Err(source.context(why));
        }
        say(
            out,
            &path,
            &format!("{UNREAD}: if it names directories for plugins, they are left out"),
        )?;
    }
    Ok(directories)
}

/// Returns the directories without those on read-only file systems, such as the `/usr` of an image.
fn writable(directories: Vec<PathBuf>, out: &mut dyn Write) -> anyhow::Result<Vec<PathBuf>> {
    let mut writable = Vec::new();
    for directory in directories {
        match access(&directory, AccessFlags::W_OK) {
            Err(Errno::EROFS) => say(out, &directory, "left out: the file system is read-only")?,
            _ => writable.push(directory),
        }
    }
    Ok(writable)
}

fn say(out: &mut dyn Write, path: &Path, what: &str) -> anyhow::Result<()> {
    match writeln!(out, "{}: {what}", path.display()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot print"),
        _ => Ok(()),
    }
}

/// Returns the identity of a file, whatever its name.
fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Runs a program of the host, and returns what it printed; `None` if there is no such program.
fn run(program: &str, args: &[&OsStr]) -> anyhow::Result<Option<String>> {
    let output = match std::process::Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .output()
    {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        ran => ran.with_context(|| cannot("run", Path::new(program)))?,
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(Some(text(&output.stdout)));
    }
    let command = args.iter().fold(program.to_owned(), |all, arg| {
        all + " " + &arg.to_string_lossy()
    });
    bail!("`{command}` failed: {}", text(&output.stderr))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_plugin_is_known_by_what_its_file_says() {
        let file = |version: &str| format!("x{SHIM_MARK}y{SHIM_MARK}{version}\nz").into_bytes();
        assert_eq!(shim_version(&file("1.2.3")).as_deref(), Some("1.2.3"));
        assert_eq!(shim_version(&file("")), None);
        assert_eq!(shim_version(b"another"), None);
    }
}
