//! `dhcp daemon`: which program it becomes, and with what settings.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

const DHCP: &str = env!("CARGO_BIN_EXE_dhcp");

/// The stand-in for the daemon. Never written by a test: the kernel runs no file that anyone has open for writing.
const DAEMON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/leasehold.sh");

/// A directory of programs, on the file system of the plugin so that it can be linked there.
struct Programs {
    directory: TempDir,
}

impl Programs {
    fn new() -> Self {
        Self {
            directory: TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Puts the plugin here under `name`: the same file as everywhere.
    fn plugin(self, name: &str) -> Self {
        fs::hard_link(DHCP, self.path(name)).unwrap();
        self
    }

    /// Puts a copy of the plugin here under `name`.
    fn copy(self, name: &str) -> Self {
        assert!(
            Command::new("cp")
                .arg(DHCP)
                .arg(self.path(name))
                .status()
                .unwrap()
                .success()
        );
        assert_ne!(
            fs::metadata(DHCP).unwrap().ino(),
            fs::metadata(self.path(name)).unwrap().ino()
        );
        self
    }

    /// Puts the daemon here under `name`.
    fn daemon(self, name: &str) -> Self {
        symlink(DAEMON, self.path(name)).unwrap();
        self
    }
}

fn command(program: impl AsRef<Path>, args: &[&str]) -> Command {
    let mut command = Command::new(program.as_ref());
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .arg("daemon")
        .args(args)
        .stdin(Stdio::null());
    command
}

/// The started program and its arguments, then its settings.
fn started(output: &Output) -> (String, Vec<String>) {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let mut lines = text.lines().map(str::to_owned);
    let what = lines.next().unwrap();
    (
        what,
        lines.filter(|line| !line.starts_with("pid ")).collect(),
    )
}

fn settings(args: &[&str]) -> Vec<String> {
    let programs = Programs::new().plugin("dhcp").daemon("leasehold");
    let (what, settings) = started(&command(programs.path("dhcp"), args).output().unwrap());
    assert_eq!(
        what,
        format!("{} daemon", programs.path("leasehold").display())
    );
    settings
}

#[test]
fn the_daemon_beside_the_plugin_comes_before_that_in_path() {
    let beside = Programs::new().plugin("dhcp").daemon("leasehold");
    let elsewhere = Programs::new().daemon("leasehold");
    let mut command = command(beside.path("dhcp"), &[]);
    command.env(
        "PATH",
        format!("{}:/usr/bin:/bin", elsewhere.directory.path().display()),
    );
    let (what, settings) = started(&command.output().unwrap());
    assert_eq!(
        what,
        format!("{} daemon", beside.path("leasehold").display())
    );
    assert!(settings.is_empty(), "{settings:?}");
}

#[test]
fn the_daemon_is_looked_for_in_path() {
    let alone = Programs::new().plugin("dhcp");
    let (useless, elsewhere) = (Programs::new(), Programs::new().daemon("leasehold"));
    fs::write(useless.path("leasehold"), "no program").unwrap();
    let mut command = command(alone.path("dhcp"), &[]);
    let [useless, there] =
        [&useless, &elsewhere].map(|programs| programs.directory.path().display());
    command.env("PATH", format!("relative::{useless}:{there}:/usr/bin:/bin"));
    assert_eq!(
        started(&command.output().unwrap()).0,
        format!("{} daemon", elsewhere.path("leasehold").display())
    );
}

#[test]
fn the_plugin_keeps_its_process() {
    let programs = Programs::new().plugin("dhcp").daemon("leasehold");
    let child = command(programs.path("dhcp"), &[])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    // What systemd passes, and a pid file, refer to this very process.
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .contains(&format!("pid {pid}\n"))
    );
}

#[test]
fn a_plugin_is_not_started_in_place_of_the_daemon() {
    let daemon = Programs::new().daemon("leasehold");
    let cases = [
        Programs::new().plugin("dhcp").plugin("leasehold"),
        Programs::new().copy("dhcp").copy("leasehold"),
        Programs::new().plugin("dhcp").copy("leasehold"),
    ];
    for programs in cases {
        for name in ["dhcp", "leasehold"] {
            let mut command = command(programs.path(name), &["-socketpath", "/s"]);
            let [here, there] =
                [&programs, &daemon].map(|programs| programs.directory.path().display());
            command.env("PATH", format!("{here}:{there}:/usr/bin:/bin"));
            let (what, settings) = started(&command.output().unwrap());
            assert_eq!(
                what,
                format!("{} daemon", daemon.path("leasehold").display())
            );
            let expected = [
                "LEASEHOLD_OTHER_STATE_DIR=/var/lib/leasehold/s",
                "LEASEHOLD_SOCKET=/s",
            ];
            assert_eq!(settings, expected);
        }
    }
}

#[test]
fn plugins_that_find_only_each_other_give_up() {
    let (one, two) = (
        Programs::new().copy("dhcp").copy("leasehold"),
        Programs::new().copy("leasehold"),
    );
    let mut command = command(one.path("dhcp"), &[]);
    let [one, two] = [&one, &two].map(|programs| programs.directory.path().display());
    let output = command
        .env("PATH", format!("{two}:{one}"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("there is no program leasehold in")
    );
}

#[test]
fn without_a_daemon_the_way_out_is_named() {
    let alone = Programs::new().plugin("dhcp");
    let output = command(alone.path("dhcp"), &[]).output().unwrap();
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(1), b"".as_slice())
    );
    let said = String::from_utf8(output.stderr).unwrap();
    let directory = alone.directory.path().display().to_string();
    for part in [directory.as_str(), "PATH", "install it", "leasehold daemon"] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn the_error_says_why_the_daemon_cannot_be_started() {
    let programs = Programs::new().plugin("dhcp");
    fs::write(programs.path("leasehold"), "#!/nowhere").unwrap();
    fs::set_permissions(
        programs.path("leasehold"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    let output = command(programs.path("dhcp"), &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains(&format!(
            "cannot start {}: ",
            programs.path("leasehold").display()
        )),
        "{said}"
    );
}

#[test]
fn every_flag_of_the_incumbent_becomes_a_setting() {
    let all = settings(&[
        "-socketpath",
        "/s/d.sock",
        "--pidfile=/run/p",
        "-timeout",
        "10s",
        "-resendmax=62s",
        "--resendtimeout",
        "1m30s",
        "-broadcast",
    ]);
    let expected = [
        "LEASEHOLD_BROADCAST=true",
        "LEASEHOLD_OTHER_STATE_DIR=/var/lib/leasehold/s-d.sock",
        "LEASEHOLD_PID_FILE=/run/p",
        "LEASEHOLD_SOCKET=/s/d.sock",
        "LEASEHOLD_TIMEOUT=90.000",
    ];
    assert_eq!(all, expected);
    assert_eq!(
        settings(&["-broadcast=false"]),
        ["LEASEHOLD_BROADCAST=false"]
    );
    assert_eq!(
        settings(&["-socketpath=", "-hostprefix=", "-pidfile="]),
        [""; 0]
    );
}

#[test]
fn a_flag_comes_before_a_variable() {
    let programs = Programs::new().plugin("dhcp").daemon("leasehold");
    let mut command = command(programs.path("dhcp"), &["-socketpath=/flag"]);
    command
        .env("LEASEHOLD_SOCKET", "/variable")
        .env("LEASEHOLD_LOG", "debug");
    assert_eq!(
        started(&command.output().unwrap()).1,
        [
            "LEASEHOLD_LOG=debug",
            "LEASEHOLD_OTHER_STATE_DIR=/var/lib/leasehold/flag",
            "LEASEHOLD_SOCKET=/flag"
        ]
    );
}

#[test]
fn a_host_prefix_is_for_the_socket_and_the_store_too() {
    let host = TempDir::new().unwrap();
    let prefix = host.path().display().to_string();
    let flags = format!("-hostprefix={prefix}");
    // Only what a manifest for the incumbent mounts.
    let few = settings(&[&flags]);
    let expected = |state: &str| {
        [
            format!("LEASEHOLD_HOST_PREFIX={prefix}"),
            format!("LEASEHOLD_SOCKET={prefix}/run/cni/dhcp.sock"),
            format!("LEASEHOLD_STATE_DIR={prefix}/{state}"),
        ]
    };
    assert_eq!(few, expected("run/cni/leasehold"));
    fs::create_dir_all(host.path().join("var/lib")).unwrap();
    for _ in 0..2 {
        assert_eq!(settings(&[&flags]), expected("var/lib/leasehold"));
        let made = fs::metadata(host.path().join("var/lib/leasehold")).unwrap();
        assert_eq!(made.permissions().mode() & 0o7777, 0o700);
    }
}

#[test]
fn a_daemon_with_another_socket_has_another_store() {
    let other = |flags: &[&str]| {
        let settings = settings(flags);
        let of = |setting: &String| {
            setting
                .strip_prefix("LEASEHOLD_OTHER_STATE_DIR=")
                .map(str::to_owned)
        };
        settings.iter().find_map(of)
    };
    let named = other(&["-socketpath=/run/user/1000/a-b.sock"]);
    assert_eq!(
        named.as_deref(),
        Some(r"/var/lib/leasehold/run-user-1000-a\x2db.sock")
    );
    for default in [
        "-broadcast",
        "-socketpath=",
        "-socketpath=/run/cni/dhcp.sock",
    ] {
        assert_eq!(other(&[default]), None, "{default}");
    }
}

#[test]
fn a_store_that_was_chosen_stays_chosen() {
    let programs = Programs::new().plugin("dhcp").daemon("leasehold");
    let mut command = command(programs.path("dhcp"), &["-hostprefix", "/nowhere"]);
    let (_, settings) = started(
        &command
            .env("LEASEHOLD_STATE_DIR", "/chosen")
            .output()
            .unwrap(),
    );
    assert!(
        settings.contains(&"LEASEHOLD_STATE_DIR=/chosen".to_owned()),
        "{settings:?}"
    );
}

#[test]
fn a_wrong_flag_ends_it_as_go_would() {
    let output = command(DHCP, &["-foo"]).output().unwrap();
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(2), b"".as_slice())
    );
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.starts_with("flag provided but not defined: -foo\nUsage of daemon:\n  -broadcast\n"),
        "{said}"
    );
    for flag in [
        "hostprefix",
        "pidfile",
        "resendmax",
        "resendtimeout",
        "socketpath",
        "timeout",
    ] {
        assert!(said.contains(&format!("\n  -{flag} ")), "{said}");
    }
    let help = command(DHCP, &["--help"]).output().unwrap();
    assert_eq!(help.status.code(), Some(0));
    assert!(help.stderr.starts_with(b"Usage of daemon:\n"));
}
