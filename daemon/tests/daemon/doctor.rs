//! `leasehold doctor` on a host with each of its faults made on purpose.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::{Command, Output};

use serde_json::Value;

use super::home::*;

/// Returns what doctor says against a fault, found by these words.
fn way_out(home: &Home, faults: &str, flags: &[&str], fault: &str) -> Option<String> {
    let output = doctor(home, faults, &[flags, &["--json"]].concat());
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let findings = report["findings"].as_array().unwrap();
    let finding = findings.iter().find(|finding| {
        let found = finding["found"].as_str().unwrap_or_default();
        found.contains(fault)
    })?;
    finding["way_out"].as_str().map(str::to_owned)
}

/// Runs `leasehold doctor` in private namespaces, after `faults` of a shell's, with a home's places and these flags.
fn doctor(home: &Home, faults: &str, flags: &[&str]) -> Output {
    let mut shell = Command::new("unshare");
    let script =
        format!("mount -t sysfs none /sys; ip link set lo up\n{faults}\nexec \"$0\" doctor \"$@\"");
    // With the first of its processes the others end.
    shell.args([
        "--map-root-user",
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]);
    shell.args(["sh", "-ec", &script, LEASEHOLD]);
    let dir = |name: &str| home.dir.path().join(name);
    shell
        .args(flags)
        .env("DIR", home.dir.path())
        .env("LEASEHOLD_SOCKET", home.socket())
        .env("LEASEHOLD_STATE_DIR", home.state());
    shell
        .env("LEASEHOLD_RUNTIME_DIR", dir("run"))
        .env("LEASEHOLD_CNI_BIN_DIR", dir("bin"));
    shell
        .env("LEASEHOLD_CNI_CONF_DIR", dir("net.d"))
        .output()
        .unwrap()
}

/// Returns what is found in these words, as level, check and sentence.
fn found(home: &Home, faults: &str, flags: &[&str]) -> Vec<(String, String, String)> {
    let output = doctor(home, faults, &[flags, &["--json"]].concat());
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let word = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    let findings = report["findings"].as_array().unwrap();
    let rows = findings
        .iter()
        .map(|it| (word(it, "level"), word(it, "check"), word(it, "found")));
    let rows: Vec<_> = rows.collect();
    let code = match report["worst"].as_str() {
        Some("ok") => 0,
        Some("warning") => 3,
        _ => 4,
    };
    assert_eq!(output.status.code(), Some(code));
    for finding in findings {
        assert_eq!(
            finding["level"] == "ok",
            finding["way_out"].is_null(),
            "{finding}"
        );
    }
    rows
}

/// Checks that doctor finds this, after `faults` of a shell's.
#[track_caller]
fn told(home: &Home, faults: &str, level: &str, text: &str) {
    has(&found(home, faults, &[]), level, text);
}

/// A host on which everything is as it should be.
fn host(home: &Home) -> Daemon {
    let at = |name: &str| home.dir.path().join(name);
    fs::create_dir(at("bin")).unwrap();
    fs::create_dir(at("net.d")).unwrap();
    let shim = format!(
        "…{}{}\n…",
        leasehold_api::SHIM_MARK,
        env!("CARGO_PKG_VERSION")
    );
    fs::write(at("bin/dhcp"), shim).unwrap();
    network(home, r#""master": "lo""#);
    home.start()
}

fn network(home: &Home, more: &str) {
    let config = format!(
        r#"{{"cniVersion": "1.0.0", "name": "lan", "type": "macvlan", {more}, "ipam": {{"type": "dhcp"}}}}"#
    );
    fs::write(home.dir.path().join("net.d/10-lan.conf"), config).unwrap();
}

#[track_caller]
fn has(found: &[(String, String, String)], level: &str, text: &str) {
    let is_it = |(its, check, said): &(String, String, String)| {
        its == level && format!("{check}: {said}").contains(text)
    };
    assert!(
        found.iter().any(is_it),
        "no {level} with {text:?} in {found:#?}"
    );
}

#[test]
fn a_host_in_order_has_no_fault() {
    let Some(home) = Home::new() else { return };
    let _daemon = host(&home);
    let found = found(&home, "", &[]);
    for check in [
        "kernel: Linux",
        "socket: the daemon at",
        "state directory:",
        "CNI plugin:",
        "network: lan",
    ] {
        has(&found, "ok", check);
    }
    assert!(
        !found.iter().any(|(level, ..)| level == "failure"),
        "{found:#?}"
    );
    let text = text(&doctor(&home, "", &[]).stdout).to_owned();
    assert!(text.starts_with("ok       kernel: Linux "), "{text}");
    assert!(
        !text.contains('\u{1b}')
            && text
                .lines()
                .all(|line| line.chars().count() <= 80 || !line.contains(' ')),
        "{text}"
    );
}

#[test]
fn a_daemon_that_is_not_there_or_does_not_answer_is_told() {
    let Some(home) = Home::new() else { return };
    told(&home, "", "failure", "socket: there is none at");
    fs::create_dir(home.dir.path().join("cni")).unwrap();
    fs::set_permissions(
        home.dir.path().join("cni"),
        fs::Permissions::from_mode(0o777),
    )
    .unwrap();
    let listener = UnixListener::bind(home.socket()).unwrap();
    fs::set_permissions(home.socket(), fs::Permissions::from_mode(0o666)).unwrap();
    let silent = found(&home, "", &[]);
    has(&silent, "failure", "accepts calls, but does not answer");
    has(&silent, "failure", "socket: users other than root may use");
    has(
        &silent,
        "failure",
        "socket: users other than root may write to",
    );
    drop(listener);
    told(&home, "", "failure", "socket: nobody listens at");
}

#[test]
fn faults_of_directories_are_told() {
    let Some(home) = Home::new() else { return };
    told(&home, "", "warning", "state directory: there is no");
    fs::create_dir(home.state()).unwrap();
    let state = home.state().display().to_string();
    let small = format!("mount -t tmpfs -o size=1m,mode=0700 none {state}");
    told(&home, &small, "failure", "1 MiB free");
    has(
        &found(&home, &format!("{small}; mount -o remount,ro {state}"), &[]),
        "failure",
        "is read-only",
    );
    fs::set_permissions(home.state(), fs::Permissions::from_mode(0o777)).unwrap();
    told(
        &home,
        "",
        "failure",
        "state directory: users other than root may write to",
    );
}

#[test]
fn doctor_names_the_release_of_a_later_store() {
    let Some(home) = Home::new() else { return };
    fs::create_dir(home.state()).unwrap();
    let path = home.state().join("leases.redb");
    as_a_later_release_has_it(&path);
    let before = fs::read(&path).unwrap();
    let said = format!(
        "store: {} is from leasehold 9.8.7 and has format 2; leasehold {} knows 1 at most",
        path.display(),
        env!("CARGO_PKG_VERSION")
    );
    told(&home, "", "failure", &said);
    let json = doctor(&home, "", &["--json"]).stdout;
    let moved = format!("&& mv {0} {0}.kept &&", path.display());
    assert!(text(&json).contains(&moved), "{}", text(&json));
    assert_eq!(fs::read(&path).unwrap(), before, "doctor changes nothing");
}

#[test]
fn faults_of_plugins_and_networks_are_told() {
    let Some(home) = Home::new() else { return };
    let _daemon = host(&home);
    let bin = home.dir.path().join("bin/dhcp");
    fs::write(&bin, format!("{}0.0.1\n", leasehold_api::SHIM_MARK)).unwrap();
    told(&home, "", "warning", "is leasehold's, version 0.0.1");
    fs::write(&bin, "another").unwrap();
    told(&home, "", "failure", "is not leasehold's");
    fs::remove_file(&bin).unwrap();
    told(&home, "", "failure", "CNI plugin: there is no");

    network(&home, r#""master": "eth9""#);
    told(&home, "", "failure", "there is no link eth9");
    network(&home, r#""master": "eth0""#);
    let unplugged = "ip link add eth0 type veth peer name far; ip link set eth0 up";
    told(&home, unplugged, "failure", "eth0 has no carrier");
    network(&home, r#""master": "lo", "runtimeConfig": {"mac": 7}"#);
    told(&home, "", "failure", "runtimeConfig.mac");
    fs::write(home.dir.path().join("net.d/20-bad.conf"), "{").unwrap();
    told(&home, "", "warning", "20-bad.conf cannot be read");
    fs::remove_dir_all(home.dir.path().join("net.d")).unwrap();
    told(&home, "", "warning", "networks: ");
}

#[test]
fn faults_that_docker_meets_are_told() {
    let Some(home) = Home::new() else { return };
    let unserved = "Docker runs here, and leasehold does not serve it";
    told(&home, &runs("dockerd", "script"), "warning", unserved);
    let plugins = home.dir.path().join("plugins");
    fs::create_dir(&plugins).unwrap();
    let flag = format!("--docker-plugin-dir={}", plugins.display());
    has(
        &found(&home, "", &[&flag]),
        "failure",
        "Docker plugin: there is no",
    );
    let silent = UnixListener::bind(plugins.join("leasehold.sock")).unwrap();
    has(
        &found(&home, "", &[&flag]),
        "failure",
        "accepts calls, but nobody answers",
    );
    drop(silent);
    has(&found(&home, "", &[&flag]), "warning", "nobody listens at");

    let with_root = runs("dockerd", "script --exec-root=/mnt/run");
    let elsewhere = found(&home, &with_root, &[&flag]);
    has(
        &elsewhere,
        "failure",
        "dockerd keeps them in /mnt/run/netns, and the daemon looks in /run/docker/netns",
    );
    let told = [&flag, "--docker-netns-dir=/mnt/run/netns"];
    has(
        &found(&home, &with_root, &told),
        "ok",
        "Docker's namespaces: dockerd keeps them in /mnt/run/netns",
    );
}

/// Each remedy that is a command is run as printed, up to the first explanation.
#[test]
fn what_doctor_says_mends_what_it_found() {
    let Some(home) = Home::new() else { return };
    let _daemon = host(&home);
    network(&home, r#""master": "eth0""#);
    let plugins = home.dir.path().join("plugins");
    fs::create_dir(&plugins).unwrap();
    drop(UnixListener::bind(plugins.join("other.sock")).unwrap());
    let flag = format!("--docker-plugin-dir={}", plugins.display());
    let link = "ip link add eth0 type veth peer name far; ip link set far up";
    let (socket, cni) = (home.socket(), home.dir.path().join("cni"));
    let chmod = |mode: u32, path: &std::path::Path| format!("chmod {mode} {}", path.display());
    for (fault, found) in [
        (link.to_owned(), "eth0 is down"),
        (chmod(666, &socket), "users other than root may use"),
        (chmod(777, &cni), "DELs are not kept there"),
        (
            chmod(777, &home.state()),
            "users other than root may write to",
        ),
        (":".to_owned(), "nobody listens at"),
    ] {
        let said = way_out(&home, &fault, &[&flag], found);
        let said = said.unwrap_or_else(|| panic!("not found: {found}"));
        let command = said.rsplit(", or ").next().unwrap_or_default();
        let command = command.split(": dockerd").next().unwrap_or_default();
        let mended = format!("{fault}\n{command}");
        assert_eq!(way_out(&home, &mended, &[&flag], found), None, "{command}");
    }
}

#[test]
fn faults_of_the_host_are_told() {
    let Some(home) = Home::new() else { return };
    let no_id = "echo uninitialized > $DIR/id; mount --bind $DIR/id /etc/machine-id";
    told(
        &home,
        no_id,
        "warning",
        "machine id: /etc/machine-id holds none",
    );
    let incumbent = runs("dhcp", "daemon");
    told(
        &home,
        &incumbent,
        "warning",
        "`dhcp daemon` of the replaced plugin runs (process",
    );
    told(
        &home,
        "",
        "ok",
        "replaced plugin: no other daemon of it runs",
    );
    let weak = found(
        &home,
        "exec setpriv --bounding-set -net_raw --inh-caps -net_raw \"$0\" doctor \"$@\"",
        &[],
    );
    has(&weak, "warning", "capabilities: this process lacks NET_RAW");
}

/// Returns what starts a process with this command line: a shell of that name, with a script that goes on.
fn runs(name: &str, args: &str) -> String {
    let script = args.split(' ').next().unwrap();
    format!(
        "cd $DIR; cp /bin/sh {name}; echo 'sleep 60; :' > {script}\n\
         ./{name} {args} >/dev/null & until grep -qx {name} /proc/$!/comm; do :; done"
    )
}

/// Where the plugin serves host-local's networks; elsewhere doctor has nothing to say of them.
#[test]
fn the_files_of_local_ranges_are_looked_at() {
    let Some(home) = Home::new() else { return };
    let _daemon = host(&home);
    let at = |name: &str| home.dir.path().join(name);
    let pods = at("data/pods");
    let config = format!(
        r#"{{"cniVersion": "1.0.0", "name": "pods", "type": "ptp",
            "ipam": {{"type": "host-local", "dataDir": {:?}, "subnet": "10.9.0.0/30"}}}}"#,
        at("data")
    );
    fs::write(at("net.d/20-pods.conf"), config).unwrap();
    let found = || found(&home, "", &[]);
    assert!(!found().iter().any(|(_, check, _)| check == "local ranges"));
    fs::copy(at("bin/dhcp"), at("bin/host-local")).unwrap();
    let none = format!(
        "local ranges: pods: its first container will make {}",
        pods.display()
    );
    has(&found(), "ok", &none);
    fs::create_dir_all(&pods).unwrap();
    fs::write(pods.join("10.9.0.2"), "c1\r\neth0").unwrap();
    let full = "local ranges: pods: 1 of 1 addresses of range set 0 are taken, 10.9.0.2 the longest, by c1; 0 belong to";
    has(&found(), "failure", full);
    let lock = fs::File::open(pods.join("lock")).unwrap();
    lock.lock().unwrap();
    has(
        &found(),
        "failure",
        "data/pods/lock has been locked for 3 s by",
    );
}
