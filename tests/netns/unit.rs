//! The systemd units, as systemd itself judges them.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{
    CallError, DEADLINE, Error, Lan, Need, Sandbox, Shim, Systemd, binary, installed_unit, sandbox,
    until_found,
};

use crate::exporter::{ask_daemon, status, until_measured};

/// The highest allowed exposure of the service, in tenths (see systemd-analyze(1)).
const MOST_EXPOSED: u32 = 43;

/// The highest allowed exposure of the exporter.
const EXPORTER_EXPOSED: u32 = 15;

pub(crate) const UNITS: [&str; 4] = [
    "leasehold.service",
    "leasehold.socket",
    "leasehold-read.socket",
    "leasehold-exporter@.service",
];

/// Returns the text of a unit as it is installed.
fn unit(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../daemon/dist")
        .join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the text of the service for the daemon that is built here, with Docker's plugins.
pub(crate) fn service_for_docker() -> Result<String, Error> {
    let setting = "[Service]\nEnvironment=LEASEHOLD_DOCKER_PLUGIN_DIR=/run/docker/plugins";
    Ok(installed_unit(UNITS[0])?.replace("[Service]", setting))
}

/// Writes the units into a directory of their own, for the daemon built here.
fn installed(sandbox: &Sandbox) -> Result<PathBuf, CallError> {
    let dir = sandbox.dir("units")?;
    for name in UNITS {
        fs::write(dir.join(name), installed_unit(name)?).expect("an empty directory takes a file");
    }
    Ok(dir)
}

#[test]
fn the_service_starts_before_docker() {
    assert!(
        unit(UNITS[0])
            .lines()
            .any(|line| line == "Before=docker.service")
    );
}

/// What root can do but the daemon cannot. Each is a bash command.
const DENIED: [&str; 9] = [
    "mount -t tmpfs none /run/denied/mount",
    "unshare --mount true",
    "unshare --user true",
    "chown 1:1 /run/denied/file",
    "cat /run/denied/others",
    "mknod /run/denied/$$ c 1 3",
    ": < /dev/kmsg",
    "echo > /dev/udp/127.0.0.1/9",
    "chroot / true",
];

/// Returns a service that writes to `/run/denied/NAME` which of those commands succeed. It is confined as `confined` is.
fn tries(name: &str, confined: &str) -> String {
    let is_one = |line: &&str| {
        ![
            "Type=",
            "Exec",
            "Restart",
            "Watchdog",
            "Requires=",
            "Conflicts=",
        ]
        .iter()
        .any(|key| line.starts_with(key))
    };
    let unit: Vec<_> = confined.lines().filter(is_one).collect();
    let run = format!(
        "Type=oneshot\nExecStart=/bin/bash /run/denied/script\nStandardOutput=file:/run/denied/{name}\n"
    );
    unit.join("\n")
        .replace("[Service]", &format!("[Service]\n{run}"))
}

/// Prepares what those services need.
fn prepare_tries(dir: &Path) -> std::io::Result<()> {
    fs::create_dir_all(dir.join("mount"))?;
    fs::write(dir.join("file"), "")?;
    fs::write(dir.join("others"), "")?;
    // Neither owned by root nor readable for root by its mode.
    std::os::unix::fs::chown(dir.join("others"), Some(1), Some(1))?;
    fs::set_permissions(
        dir.join("others"),
        std::os::unix::fs::PermissionsExt::from_mode(0o600),
    )?;
    let tried = DENIED
        .map(|command| format!("if ( {command} ) >/dev/null 2>&1; then echo '{command}'; fi\n"));
    fs::write(
        dir.join("script"),
        tried.concat() + "unshare --net true && echo end\n",
    )
}

/// Asks a Docker plugin what it is. Fails if there is no socket, or nobody behind it; panics if kept waiting, because that would
/// keep dockerd from starting.
pub(crate) fn capabilities(plugin: &str) -> io::Result<String> {
    let mut caller = UnixStream::connect(format!("/run/docker/plugins/{plugin}.sock"))?;
    caller.set_read_timeout(Some(DEADLINE))?;
    caller.write_all(
        b"POST /IpamDriver.GetCapabilities HTTP/1.1\r\nHost: \r\nContent-Length: 0\r\n\r\n",
    )?;
    let mut answer = String::new();
    match caller.read_to_string(&mut answer) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            panic!("dockerd would hang at {plugin}")
        }
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        read => read.map(|_| answer),
    }
}

/// Waits until the plugin answers.
pub(crate) fn wait_for_docker() -> Result<(), Error> {
    until_found("answer to Docker", DEADLINE, || {
        Ok(capabilities("leasehold").ok())
    })
    .map(drop)
}

fn analyze(args: &[&str], units: &[PathBuf]) -> Output {
    Command::new("systemd-analyze")
        .args(args)
        .args(units)
        .output()
        .expect("systemd-analyze was looked for")
}

/// Returns what systemd finds wrong with our units in `dir`. It also reads the units that they name, first from `others`, and
/// reports what is wrong with those.
fn faults(dir: &Path, others: &Path) -> Vec<String> {
    let paths = UNITS.map(|name| dir.join(name));
    let mut verify = Command::new("systemd-analyze");
    verify
        .args(["verify", "--man=no", "--recursive-errors=no"])
        .args(&paths);
    let found = verify
        .env("SYSTEMD_UNIT_PATH", format!("{}:", others.display()))
        .output();
    let found = found.expect("systemd-analyze was looked for");
    let is_ours = |line: &&str| {
        let names = |name: &str| {
            line.starts_with(name) || line.starts_with(&*dir.join(name).to_string_lossy())
        };
        UNITS.into_iter().any(names)
    };
    // About an unknown key it only prints a warning.
    let said = String::from_utf8_lossy(&found.stderr);
    let failed = (!found.status.success()).then(|| format!("{}: {said}", found.status));
    said.lines()
        .filter(is_ours)
        .map(str::to_owned)
        .chain(failed)
        .collect()
}

#[test]
fn systemd_finds_no_fault_with_the_units() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::Program("systemd-analyze")]);
    let (dir, others) = (installed(&sandbox)?, sandbox.dir("others")?);
    let write =
        |path: PathBuf, text: &str| fs::write(path, text).expect("a directory takes a file");
    write(
        others.join("docker.service"),
        "[Service]\nType=simpel\nExecStart=/nowhere\n",
    );
    assert_eq!(faults(&dir, &others), Vec::<String>::new());
    let service = installed_unit(UNITS[0])?;
    for fault in ["ExecStart=/nowhere\n", "Unheard=of\n"] {
        write(
            dir.join(UNITS[0]),
            &service.replace("[Service]\n", &format!("[Service]\n{fault}")),
        );
        assert!(!faults(&dir, &others).is_empty(), "{fault}");
    }
    Ok(())
}

#[test]
fn the_unit_gives_a_reason_for_each_exposure() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::Program("systemd-analyze")]);
    let service = [installed(&sandbox)?.join("leasehold.service")];
    let threshold = format!("--threshold={MOST_EXPOSED}");
    let found = analyze(
        &["security", "--offline=true", "--no-pager", &threshold],
        &service,
    );
    let table = String::from_utf8_lossy(&found.stdout);
    let exposed: Vec<_> = table
        .lines()
        .filter_map(|line| line.strip_prefix("✗ "))
        .collect();
    assert!(
        found.status.success(),
        "exposed by more than {MOST_EXPOSED} tenths: {exposed:#?}"
    );
    assert!(exposed.len() > 10, "a table that cannot be read: {table}");
    let text = unit("leasehold.service");
    let reasons: String = text.lines().filter(|line| line.starts_with('#')).collect();
    // `ProtectHome=`, `CapabilityBoundingSet=~CAP_(A|B)`: the last word is the one that counts.
    let name = |line: &&str| {
        let point = line
            .split_whitespace()
            .next()
            .unwrap_or_default()
            .to_owned();
        let mut words = point
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .filter(|word| !word.is_empty());
        words
            .next_back()
            .unwrap_or_default()
            .trim_start_matches("CAP_")
            .to_owned()
    };
    let unsaid: Vec<_> = exposed
        .iter()
        .map(name)
        .filter(|name| !reasons.contains(name.as_str()))
        .collect();
    assert!(unsaid.is_empty(), "no reason is given for {unsaid:?}");
    Ok(())
}

#[test]
fn the_exporter_can_do_next_to_nothing() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::Program("systemd-analyze")]);
    let service = [installed(&sandbox)?.join("leasehold-exporter@.service")];
    let threshold = format!("--threshold={EXPORTER_EXPOSED}");
    let found = analyze(
        &["security", "--offline=true", "--no-pager", &threshold],
        &service,
    );
    assert!(
        found.status.success(),
        "{}",
        String::from_utf8_lossy(&found.stdout)
    );
    Ok(())
}

#[test]
fn the_service_works_under_systemd_and_is_confined() -> Result<(), CallError> {
    let needs = ["systemd", "bash", "dnsmasq"].map(Need::Program);
    let sandbox = sandbox!(&[&needs[..], &[Need::RealRoot]].concat());
    let dir = PathBuf::from("/run/denied");
    prepare_tries(&dir).expect("an empty /run takes files");
    let lan = Lan::new(&sandbox)?;
    let server = Dnsmasq::start(&lan, DnsmasqConfig::default())?;
    let service = service_for_docker()?;
    let units = [
        ("confined.service", tries("confined", &service)),
        ("free.service", tries("free", "[Service]\n")),
        (UNITS[0], service),
        (UNITS[1], installed_unit(UNITS[1])?),
    ];
    let systemd = Systemd::start(&lan.host, &units)?;
    let [daemon] = systemd.processes(UNITS[0])[..] else {
        panic!("no daemon, or several")
    };
    for (plugin, requires_mac) in [("leasehold", true), ("leasehold-ipvlan", false)] {
        assert!(
            capabilities(plugin)
                .expect("it is ready")
                .contains(&format!(r#""RequiresMACAddress":{requires_mac}"#)),
            "{plugin}"
        );
    }

    // One of their namespaces, which are younger than the daemon, dies with its lease: that goes back from a namespace that the
    // daemon makes.
    let shim = Shim::new(&lan.host)?;
    let config = Lan::cni_config(Path::new("/run/cni/dhcp.sock"));
    let (stays, dies) = (lan.container("stays")?, lan.container("dies")?);
    for container in [&stays, &dies] {
        let result = shim.add(container, &config)?;
        container.configure(&result)?;
        shim.check(container, &config, &result)?;
    }
    drop(dies);
    shim.del(&stays, &config)?;
    server.wait_until_free()?;
    // It was killed for something.
    assert_eq!(systemd.processes(UNITS[0]), [daemon]);

    let read = |name: &str| fs::read_to_string(dir.join(name)).expect("what a service wrote");
    assert_eq!(
        read("free").lines().collect::<Vec<_>>(),
        [&DENIED[..], &["end"]].concat(),
        "without the unit's filters"
    );
    assert_eq!(read("confined"), "end\n");
    Ok(())
}

#[test]
fn an_exporter_without_privileges_reads_a_groups_socket() -> Result<(), CallError> {
    let needs = [Need::Program("systemd"), Need::RealRoot];
    let sandbox = sandbox!(&needs);
    let lan = Lan::new(&sandbox)?;
    const EXPORTER: &str = "leasehold-exporter@127.0.0.1:9467.service";
    // What is built may lie in /tmp, which is hidden from it; and not each machine lets a service have its own /dev.
    let built = binary("leasehold")?;
    let program = sandbox.dir("program")?.join("leasehold");
    fs::copy(&built, &program).expect("an empty directory takes a file");
    let exporter = installed_unit(UNITS[3])?.replace("PrivateDevices=yes\n", "");
    let exporter = exporter.replace(&*built.to_string_lossy(), &program.to_string_lossy());
    let daemon =
        [UNITS[0], UNITS[1], UNITS[2]].map(|name| installed_unit(name).map(|text| (name, text)));
    let units = daemon
        .into_iter()
        .chain([Ok((EXPORTER, exporter))])
        .collect::<Result<Vec<_>, Error>>()?;
    let systemd = Systemd::start(&lan.host, &units)?;
    let path = Path::new("/run/leasehold-read/leasehold.sock");
    let found = fs::metadata(path).expect("systemd listens there");
    let groups = fs::read_to_string("/etc/group").expect("there are groups");
    let group = groups.lines().find_map(|line| {
        line.strip_prefix("systemd-journal:x:")?
            .split(':')
            .next()?
            .parse()
            .ok()
    });
    let seen = (found.permissions().mode() & 0o7777, Some(found.gid()));
    assert_eq!(seen, (0o660, group));
    for line in ["GET /healthz", "GET /readyz", "GET /v1/bindings"] {
        assert_eq!(status(&ask_daemon(path, line)), "200", "{line}");
    }
    assert_eq!(status(&ask_daemon(path, "GET /v1/log")), "404");
    assert_eq!(
        status(&ask_daemon(Path::new("/run/cni/dhcp.sock"), "GET /v1/log")),
        "200"
    );

    let reached = || {
        lan.host
            .run(|| TcpStream::connect("127.0.0.1:9467"))
            .ok()
            .map(drop)
    };
    until_found("the exporter", DEADLINE, || Ok(reached()))?;
    let [exporter] =
        systemd.processes(&format!("system-leasehold\\x2dexporter.slice/{EXPORTER}"))[..]
    else {
        panic!("{:?}", systemd.control(&["status", EXPORTER]))
    };
    let proc = fs::read_to_string(format!("/proc/{exporter}/status")).expect("it runs");
    let said = |key: &str| {
        proc.lines()
            .find_map(|line| line.strip_prefix(key))
            .expect("each process has it")
            .trim()
    };
    assert!(
        !said("Uid:").split_whitespace().any(|uid| uid == "0"),
        "{proc}"
    );
    assert!(
        ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:"]
            .iter()
            .all(|set| said(set) == "0000000000000000"),
        "{proc}"
    );
    until_measured(&lan.host, "leasehold_up 1")?;
    systemd.control(&["stop", UNITS[0], UNITS[1], UNITS[2]])?;
    assert!(!path.exists());
    Ok(until_measured(&lan.host, "leasehold_up 0")?)
}
