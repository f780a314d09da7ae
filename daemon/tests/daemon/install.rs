//! `leasehold install` and `leasehold uninstall` on hosts that are directories.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use leasehold_api::SHIM_MARK;
use tempfile::TempDir;

use super::home::*;

/// A directory that stands for a host's root, and the daemon's program with a plugin beside it.
struct Host {
    dir: TempDir,
}

impl Host {
    /// `None` if this is not root and namespaces cannot be made.
    fn new() -> Option<Self> {
        // It says so itself.
        Home::new()?;
        let host = Self {
            dir: TempDir::new().unwrap(),
        };
        fs::create_dir_all(host.dir.path().join("shipped")).unwrap();
        fs::copy(LEASEHOLD, host.dir.path().join("shipped/leasehold")).unwrap();
        host.ship("0.1.0");
        Some(host)
    }

    /// Puts a plugin of this version next to the program.
    fn ship(&self, version: &str) {
        fs::write(self.dir.path().join("shipped/dhcp"), shim(version)).unwrap();
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join("root").join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    fn names(&self, directory: &str) -> Vec<String> {
        let names = fs::read_dir(self.path(directory))
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command
            .args(["--map-root-user"])
            .arg(self.dir.path().join("shipped/leasehold"))
            .args(args)
            .arg("--root")
            .arg(self.path(""));
        command
    }

    fn try_run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command that succeeds, and returns what it printed.
    fn run(&self, args: &[&str]) -> String {
        let output = self.try_run(args);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that fails, and returns why.
    fn refused(&self, args: &[&str]) -> String {
        let output = self.try_run(args);
        assert!(!output.status.success(), "{output:?}");
        assert_eq!(output.stdout, b"");
        String::from_utf8(output.stderr).unwrap()
    }
}

/// Returns the stand-in for the plugin's program of a version.
fn shim(version: &str) -> String {
    format!("\x7fELF {SHIM_MARK}of another kind {SHIM_MARK}{version}\nmore")
}

#[test]
fn the_plugin_is_installed_where_runtimes_look() {
    let Some(host) = Host::new() else { return };
    host.write("opt/cni/bin/macvlan", "");
    host.write("usr/libexec/cni/macvlan", "");
    host.write("data/plugins/macvlan", "");
    host.write(
        "etc/containerd/config.toml",
        "[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = '/data/plugins'",
    );
    host.write(
        "var/lib/rancher/rke2/agent/etc/containerd/config.toml",
        "[plugins.cri.cni]\nbin_dir = '/rke2/bin'",
    );
    host.write("rke2/bin/macvlan", "");
    host.write("var/lib/rancher/k3s/data/cni/macvlan", "");
    host.write("var/snap/microk8s/current/opt/cni/bin/macvlan", "");
    // Two names of one directory.
    host.write(
        "etc/crio/crio.conf.d/10-x.conf",
        "[crio.network]\nplugin_dirs = ['/var/lib/cni/bin', '/not/there']",
    );
    fs::create_dir_all(host.path("var/lib/cni")).unwrap();
    symlink("/opt/cni/bin", host.path("var/lib/cni/bin")).unwrap();

    let printed = host.run(&["install"]);
    let directories = [
        "data/plugins",
        "rke2/bin",
        "opt/cni/bin",
        "usr/libexec/cni",
        "var/lib/rancher/k3s/data/cni",
        "var/snap/microk8s/current/opt/cni/bin",
    ];
    // Of two names, the one that is found first.
    let named = |path| {
        if path == "opt/cni/bin" {
            "var/lib/cni/bin"
        } else {
            path
        }
    };
    let lines = directories.map(|path| format!("/{}/dhcp", named(path)));
    assert_eq!(
        printed,
        lines
            .each_ref()
            .map(|path| format!("{path}: installed, version 0.1.0\n"))
            .concat()
    );
    for directory in directories {
        assert_eq!(host.names(directory), ["dhcp", "macvlan"]);
        assert_eq!(host.read(&format!("{directory}/dhcp")), shim("0.1.0"));
        let mode = fs::metadata(host.path(directory).join("dhcp"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o755);
    }
    let printed = host.run(&["install"]);
    assert_eq!(
        printed,
        lines
            .each_ref()
            .map(|path| format!("{path}: is version 0.1.0 already\n"))
            .concat()
    );

    let printed = host.run(&["uninstall"]);
    assert_eq!(
        printed,
        lines.map(|path| format!("{path}: removed\n")).concat()
    );
    assert_eq!(host.names("opt/cni/bin"), ["macvlan"]);
    assert_eq!(host.run(&["uninstall"]), "");
}

#[test]
fn a_file_of_others_is_replaced_only_by_force() {
    let Some(host) = Host::new() else { return };
    host.write("opt/cni/bin/dhcp", "the incumbent");
    host.write("usr/lib/cni/macvlan", "");
    fs::set_permissions(
        host.path("opt/cni/bin/dhcp"),
        fs::Permissions::from_mode(0o700),
    )
    .unwrap();

    let said = host.refused(&["install"]);
    has(
        &said,
        "/opt/cni/bin/dhcp: not leasehold's. --force replaces it",
    );
    assert_eq!(host.names("usr/lib/cni"), ["macvlan"], "all or nothing");

    let printed = host.run(&["install", "--force"]);
    has(
        &printed,
        "the previous file is kept as /opt/cni/bin/dhcp.before-leasehold\n",
    );
    assert_eq!(host.names("opt/cni/bin"), ["dhcp", "dhcp.before-leasehold"]);
    host.ship("0.2.0");
    let printed = host.run(&["install"]);
    has(
        &printed,
        "/opt/cni/bin/dhcp: version 0.1.0 replaced by 0.2.0\n",
    );

    let printed = host.run(&["uninstall"]);
    has(
        &printed,
        "/opt/cni/bin/dhcp: removed, and the previous file is back\n",
    );
    assert_eq!(host.read("opt/cni/bin/dhcp"), "the incumbent");
    assert_eq!(host.names("opt/cni/bin"), ["dhcp"]);
    assert_eq!(
        fs::metadata(host.path("opt/cni/bin/dhcp"))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777,
        0o700
    );
    assert_eq!(host.run(&["uninstall"]), "", "it is not ours");
}

#[test]
fn a_link_is_replaced_not_what_it_leads_to() {
    let Some(host) = Host::new() else { return };
    host.write("data/k3s", "all plugins in one");
    fs::create_dir_all(host.path("opt/cni/bin")).unwrap();
    symlink("/data/k3s", host.path("opt/cni/bin/dhcp")).unwrap();
    symlink("nowhere", host.path("opt/cni/bin/host-local")).unwrap();
    host.refused(&["install"]);
    host.run(&["install", "--force", "--host-local"]);
    assert_eq!(host.read("data/k3s"), "all plugins in one");
    assert_eq!(
        host.read("opt/cni/bin/dhcp"),
        host.read("opt/cni/bin/host-local")
    );
    host.run(&["uninstall"]);
    for (name, to) in [("dhcp", "/data/k3s"), ("host-local", "nowhere")] {
        assert_eq!(
            fs::read_link(host.path("opt/cni/bin").join(name)).unwrap(),
            Path::new(to)
        );
    }
}

#[test]
fn host_local_is_installed_only_when_asked() {
    let Some(host) = Host::new() else { return };
    host.write("opt/cni/bin/macvlan", "");
    host.write(
        "etc/cni/net.d/10-slip.conf",
        r#"{"cniVersion": "1.0.0", "name": "slip", "type": "bridge", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/31"}]]}}"#,
    );
    let said = host.run(&["install"]);
    assert!(!said.contains("network slip"), "{said}");
    assert_eq!(host.names("opt/cni/bin"), ["dhcp", "macvlan"]);
    let said = host.run(&["install", "--host-local"]);
    has(
        &said,
        "10-slip.conf: correct network slip: leasehold refuses its containers, because",
    );
    assert_eq!(host.names("opt/cni/bin"), ["dhcp", "host-local", "macvlan"]);
    host.run(&["uninstall"]);
    assert_eq!(host.names("opt/cni/bin"), ["macvlan"]);
}

#[test]
fn an_update_touches_only_what_was_installed() {
    let Some(host) = Host::new() else { return };
    host.write("opt/cni/bin/dhcp", &shim("0.0.9"));
    host.write("usr/lib/cni/dhcp", "the incumbent");
    host.write("usr/libexec/cni/macvlan", "");
    assert_eq!(
        host.run(&["install", "--update"]),
        "/opt/cni/bin/dhcp: version 0.0.9 replaced by 0.1.0\n"
    );
    assert_eq!(host.read("usr/lib/cni/dhcp"), "the incumbent");
    assert_eq!(host.names("usr/libexec/cni"), ["macvlan"]);
}

#[test]
fn only_the_named_directories_are_installed_into() {
    let Some(host) = Host::new() else { return };
    host.write("opt/cni/bin/macvlan", "");
    let named = ["--cni-bin-dir", "/a/b,/c"];
    host.run(&[&["install"], &named[..]].concat());
    assert_eq!(
        (host.names("a/b"), host.names("c")),
        (vec!["dhcp".to_owned()], vec!["dhcp".to_owned()])
    );
    assert_eq!(host.names("opt/cni/bin"), ["macvlan"]);
    host.run(&[&["uninstall"], &named[..]].concat());
    assert_eq!(host.names("a/b"), [""; 0]);
}

#[test]
fn what_stops_it_is_named_with_the_way_out() {
    let Some(host) = Host::new() else { return };
    fs::create_dir_all(host.path("etc")).unwrap();
    // There is nothing to update.
    assert_eq!(host.run(&["install", "--update"]), "");
    let said = host.refused(&["install"]);
    has(
        &said,
        "no runtime on this host has a directory for CNI plugins",
    );
    has(&said, "--cni-bin-dir");
    host.write("etc/containerd/config.toml", "[plugins");
    let said = host.refused(&["install"]);
    has(
        &said,
        "/etc/containerd/config.toml cannot be parsed: correct it, or say",
    );
    host.write("a/dhcp.leasehold-new/x", "");
    let said = host.refused(&["install", "--cni-bin-dir", "/a"]);
    has(&said, "cannot remove /a/dhcp.leasehold-new");
    fs::write(host.dir.path().join("shipped/dhcp"), "another's").unwrap();
    let said = host.refused(&["install"]);
    has(&said, "the plugin `dhcp` is not beside this program");
}

#[test]
fn only_the_files_that_a_runtime_reads_are_read() {
    let Some(host) = Host::new() else { return };
    for directory in ["drop-in", "crio", "podman", "opt/cni/bin"] {
        host.write(&format!("{directory}/macvlan"), "");
    }
    host.write(
        "etc/containerd/config.toml",
        "imports = ['certs/*.toml', '/etc/containerd/one']",
    );
    host.write(
        "etc/containerd/certs/a.toml",
        "imports = ['../config.toml']\n[plugins.cri.cni]\nbin_dir = '/drop-in'",
    );
    host.write(
        "etc/crio/crio.conf.d/any",
        "[crio.network]\nplugin_dirs = ['/crio']",
    );
    host.write(
        "etc/containers/containers.conf.d/a.conf",
        "[network]\ncni_plugin_dirs = ['/podman']",
    );
    for others in [
        "etc/containerd/certs/README",
        "etc/containerd/config.toml.rpmsave",
        "etc/containers/containers.conf.d/a.conf.rpmsave",
    ] {
        host.write(others, "no configuration");
    }
    let made = Command::new("mkfifo")
        .arg(host.path("etc/containerd/one"))
        .arg(host.path("etc/crio/crio.conf.d/pipe"))
        .arg(host.path("podman/dhcp"))
        .status();
    assert!(made.unwrap().success());
    let said = host.refused(&["install"]);
    has(&said, "/podman/dhcp: not leasehold's");
    fs::remove_file(host.path("podman/dhcp")).unwrap();
    let lines = ["crio", "podman", "drop-in", "opt/cni/bin"]
        .map(|directory| format!("/{directory}/dhcp: installed, version 0.1.0\n"));
    assert_eq!(host.run(&["install"]), lines.concat());
}

#[test]
fn what_does_not_parse_stops_nobody_who_cannot_correct_it() {
    let Some(host) = Host::new() else { return };
    host.write("opt/cni/bin/dhcp", &shim("0.0.9"));
    for (broken, text) in [
        ("etc/crio/crio.conf.d/README", &b"Put files here."[..]),
        ("etc/containerd/config.toml", b"\xff\xfe"),
    ] {
        host.write(broken, "");
        fs::write(host.path(broken), text).unwrap();
        let said = host.refused(&["install"]);
        has(&said, &format!("/{broken} cannot be parsed: correct it"));
        let warning = format!("/{broken}: cannot be parsed: if it names directories");
        let printed = host.run(&["install", "--update"]);
        has(&printed, &warning);
        has(&printed, "/opt/cni/bin/dhcp: ");
        let printed = host.run(&["uninstall"]);
        has(&printed, &warning);
        has(&printed, "/opt/cni/bin/dhcp: removed");
        host.write("opt/cni/bin/dhcp", &shim("0.0.9"));
        fs::remove_file(host.path(broken)).unwrap();
    }
}

#[test]
fn two_who_install_take_turns() {
    let Some(host) = Host::new() else { return };
    host.write("opt/cni/bin/dhcp", "the incumbent");
    let other = fs::File::open(host.path("opt/cni/bin")).unwrap();
    other.lock().unwrap();
    let mut waits = host
        .command(&["install", "--force"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(waits.stdout.take().unwrap()).lines();
    let line = said.next().unwrap().unwrap();
    assert_eq!(
        line,
        "/opt/cni/bin: another install is at work here: waiting for it"
    );
    // What the other does meanwhile.
    host.write("opt/cni/bin/dhcp.before-leasehold", "the incumbent");
    host.write("opt/cni/bin/dhcp", &shim("0.0.9"));
    drop(other);
    let line = said.next().unwrap().unwrap();
    assert_eq!(line, "/opt/cni/bin/dhcp: version 0.0.9 replaced by 0.1.0");
    assert!(waits.wait().unwrap().success());
    host.run(&["uninstall"]);
    assert_eq!(host.read("opt/cni/bin/dhcp"), "the incumbent");
}

#[test]
fn a_full_disk_leaves_the_host_as_it_was() {
    let Some(host) = Host::new() else { return };
    host.write("opt/cni/bin/macvlan", "");
    let large = shim("0.1.0") + &"x".repeat(1 << 20);
    fs::write(host.dir.path().join("shipped/dhcp"), large).unwrap();
    let script = r#"
        mount -t tmpfs -o size=256k none "$2/opt/cni/bin"
        echo incumbent >"$2/opt/cni/bin/dhcp"
        ! "$1" install --force --root "$2" || exit 1
        ls "$2/opt/cni/bin"; cat "$2/opt/cni/bin/dhcp""#;
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-ec", script, "sh"])
        .arg(host.dir.path().join("shipped/leasehold"))
        .arg(host.path(""))
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), "dhcp\nincumbent\n", "{output:?}");
}

#[test]
fn without_systemd_its_units_are_not_even_begun() {
    let Some(host) = Host::new() else { return };
    let script = r#"
        for place in /run /usr/local/bin /etc/systemd/system; do
            [ ! -d $place ] || mount -t tmpfs none $place
        done
        ! "$1" install --systemd --cni-bin-dir "$2" || exit 1
        find /usr/local/bin /etc/systemd/system -type f"#;
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-ec", script, "sh"])
        .arg(host.dir.path().join("shipped/leasehold"))
        .arg(host.path("plugins"))
        .output()
        .unwrap();
    let said = text(&output.stderr);
    has(said, "systemd does not run this host");
    assert_eq!(text(&output.stdout), "");
    assert!(!host.path("plugins").exists());
}

#[test]
fn a_host_of_docker_alone_is_told_how_to_serve_it() {
    let Some(host) = Host::new() else { return };
    fs::create_dir_all(host.path("run")).unwrap();
    let _docker = UnixListener::bind(host.path("run/docker.sock")).unwrap();
    let printed = host.run(&["install"]);
    has(
        &printed,
        "dhcp: left out, because no runtime on this host has a directory",
    );
    has(&printed, "`leasehold install --cni-bin-dir DIR`");
    let way = "echo LEASEHOLD_DOCKER_PLUGIN_DIR=/run/docker/plugins >> /etc/default/leasehold";
    has(&printed, way);
    let printed = host.run(&["install", "--systemd"]);
    has(&printed, "/usr/local/bin/leasehold: installed");
    has(&printed, "left out");
    assert_eq!(host.names("etc/systemd/system"), UNITS);

    host.write(
        "etc/default/leasehold",
        "LEASEHOLD_DOCKER_PLUGIN_DIR=/run/docker/plugins\n",
    );
    host.write("opt/cni/bin/macvlan", "");
    let printed = host.run(&["install"]);
    // It is served.
    assert_eq!(printed, "/opt/cni/bin/dhcp: installed, version 0.1.0\n");
}

#[test]
fn an_install_stops_at_a_store_of_a_later_release() {
    let Some(host) = Host::new() else { return };
    host.write("opt/cni/bin/dhcp", &shim("9.8.7"));
    fs::create_dir_all(host.path("var/lib/leasehold")).unwrap();
    as_a_later_release_has_it(&host.path("var/lib/leasehold/leases.redb"));
    let kept = fs::read(host.path("var/lib/leasehold/leases.redb")).unwrap();
    for how in [
        &["install", "--update"][..],
        &["install", "--systemd", "--force"],
    ] {
        let output = host.try_run(how);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), output.stdout.len()),
            (Some(3), 0),
            "{said}"
        );
        has(
            &said,
            "/var/lib/leasehold/leases.redb is from leasehold 9.8.7 and has format 2; leasehold 0.1.0 knows 1",
        );
    }
    assert_eq!(host.read("opt/cni/bin/dhcp"), shim("9.8.7"));
    assert!(!host.path("etc").exists());
    assert_eq!(
        fs::read(host.path("var/lib/leasehold/leases.redb")).unwrap(),
        kept
    );
    host.run(&["install", "--state-dir", "/elsewhere"]);
}

/// Each of its steps leaves what the next try needs.
#[test]
fn an_install_goes_on_from_one_that_was_cut_short() {
    let Some(host) = Host::new() else { return };
    host.write("opt/cni/bin/dhcp", "the incumbent");
    for left in [
        "dhcp.leasehold-new",
        "dhcp.before-leasehold.new",
        "dhcp.before-leasehold",
    ] {
        host.write(&format!("opt/cni/bin/{left}"), "half of");
    }
    host.run(&["install", "--force"]);
    assert_eq!(host.read("opt/cni/bin/dhcp"), shim("0.1.0"));
    host.run(&["uninstall"]);
    assert_eq!(host.read("opt/cni/bin/dhcp"), "the incumbent");
    assert_eq!(host.names("opt/cni/bin"), ["dhcp"]);
}

const UNITS: [&str; 4] = [
    "leasehold-exporter@.service",
    "leasehold-read.socket",
    "leasehold.service",
    "leasehold.socket",
];

#[test]
fn units_are_installed_with_the_program_that_they_start() {
    let Some(host) = Host::new() else { return };
    host.write("opt/cni/bin/macvlan", "");
    let printed = host.run(&["install", "--systemd"]);
    has(&printed, "there is no systemctl");
    assert_eq!(host.names("etc/systemd/system"), UNITS);
    let unit = host.read("etc/systemd/system/leasehold.service");
    has(&unit, "ExecStart=/usr/local/bin/leasehold daemon\n");
    assert_eq!(
        fs::read(host.path("usr/local/bin/leasehold")).unwrap(),
        fs::read(LEASEHOLD).unwrap()
    );
    host.run(&["uninstall", "--systemd"]);
    assert_eq!(host.names("etc/systemd/system"), [""; 0]);
    assert_eq!(host.names("usr/local/bin"), [""; 0]);

    // A package's units work as well.
    host.write(
        "usr/lib/systemd/system/leasehold.service",
        "ExecStart=/usr/bin/leasehold daemon",
    );
    host.run(&["install", "--systemd"]);
    assert_eq!(host.names("etc/systemd/system"), [""; 0]);
}
