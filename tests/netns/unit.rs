//! The systemd units, as systemd itself judges them.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{CallError, Error, Lan, Need, Sandbox, Shim, Systemd, binary, sandbox};

/// The highest allowed exposure of the service, in tenths: see systemd-analyze(1).
const MOST_EXPOSED: u32 = 43;

const UNITS: [&str; 4] =
    ["leasehold.service", "leasehold.socket", "leasehold-docker.socket", "leasehold-docker-ipvlan.socket"];

/// Returns the text of a unit as it is installed.
fn unit(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../daemon/dist").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns its text for the daemon that is built here.
fn unit_here(name: &str) -> Result<String, Error> {
    Ok(unit(name).replace("/usr/local/bin/leasehold", &binary("leasehold")?.to_string_lossy()))
}

/// Writes the units into their own directory, for the daemon built here.
fn installed(sandbox: &Sandbox) -> Result<PathBuf, CallError> {
    let dir = sandbox.dir("units")?;
    for name in UNITS {
        fs::write(dir.join(name), unit_here(name)?).expect("an empty directory takes a file");
    }
    Ok(dir)
}

#[test]
fn docker_finds_its_drivers_when_it_starts() {
    for name in UNITS.into_iter().filter(|name| *name != "leasehold.socket") {
        assert!(unit(name).lines().any(|line| line == "Before=docker.service"), "{name}");
    }
}

/// What root can do, and the daemon cannot. Each is a command of bash.
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

/// Returns a service that writes into `/run/denied/NAME` which of those commands succeed, confined as `confined` is.
fn tries(name: &str, confined: &str) -> String {
    let is_one = |line: &&str| {
        !["Type=", "Exec", "Restart", "Watchdog", "Requires=", "Conflicts="].iter().any(|key| line.starts_with(key))
    };
    let unit: Vec<_> = confined.lines().filter(is_one).collect();
    let run = format!("Type=oneshot\nExecStart=/bin/bash /run/denied/script\nStandardOutput=file:/run/denied/{name}\n");
    unit.join("\n").replace("[Service]", &format!("[Service]\n{run}"))
}

/// Prepares what those services want.
fn prepare_tries(dir: &Path) -> std::io::Result<()> {
    fs::create_dir_all(dir.join("mount"))?;
    fs::write(dir.join("file"), "")?;
    fs::write(dir.join("others"), "")?;
    // Neither root's nor readable for root by its mode.
    std::os::unix::fs::chown(dir.join("others"), Some(1), Some(1))?;
    fs::set_permissions(dir.join("others"), std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let tried = DENIED.map(|command| format!("if ( {command} ) >/dev/null 2>&1; then echo '{command}'; fi\n"));
    fs::write(dir.join("script"), tried.concat() + "unshare --net true && echo end\n")
}

/// Returns what a plugin of Docker's says of itself.
fn capabilities(plugin: &str) -> String {
    let mut caller = UnixStream::connect(format!("/run/docker/plugins/{plugin}.sock")).expect("systemd listens");
    let said = "POST /IpamDriver.GetCapabilities HTTP/1.1\r\nHost: \r\nContent-Length: 0\r\n\r\n";
    caller.write_all(said.as_bytes()).expect("a call fits");
    let mut answer = String::new();
    caller.read_to_string(&mut answer).expect("the daemon answers");
    answer
}

fn analyze(args: &[&str], units: &[PathBuf]) -> Output {
    Command::new("systemd-analyze").args(args).args(units).output().expect("systemd-analyze was looked for")
}

#[test]
fn systemd_finds_no_fault_with_the_units() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(&[Need::Program("systemd-analyze")]) else { return Ok(()) };
    let dir = installed(&sandbox)?;
    let found = analyze(&["verify", "--man=no"], &UNITS.map(|name| dir.join(name)));
    // About an unknown key it only prints a warning.
    let said = String::from_utf8_lossy(&found.stderr);
    assert!(found.status.success() && said.is_empty(), "{said}");
    Ok(())
}

#[test]
fn the_service_is_exposed_no_more_than_it_has_to_be_and_says_why() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(&[Need::Program("systemd-analyze")]) else { return Ok(()) };
    let service = [installed(&sandbox)?.join("leasehold.service")];
    let threshold = format!("--threshold={MOST_EXPOSED}");
    let found = analyze(&["security", "--offline=true", "--no-pager", &threshold], &service);
    let table = String::from_utf8_lossy(&found.stdout);
    let exposed: Vec<_> = table.lines().filter_map(|line| line.strip_prefix("✗ ")).collect();
    assert!(found.status.success(), "exposed by more than {MOST_EXPOSED} tenths: {exposed:#?}");
    assert!(exposed.len() > 10, "a table that cannot be read: {table}");
    let text = unit("leasehold.service");
    let reasons: String = text.lines().filter(|line| line.starts_with('#')).collect();
    // `ProtectHome=`, `CapabilityBoundingSet=~CAP_(A|B)`: the last word is the one that counts.
    let name = |line: &&str| {
        let point = line.split_whitespace().next().unwrap_or_default().to_owned();
        let mut words = point.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        words.next_back().unwrap_or_default().trim_start_matches("CAP_").to_owned()
    };
    let unsaid: Vec<_> = exposed.iter().map(name).filter(|name| !reasons.contains(name.as_str())).collect();
    assert!(unsaid.is_empty(), "no reason is given for {unsaid:?}");
    Ok(())
}

#[test]
fn the_service_does_its_work_under_systemd_and_can_do_nothing_else() -> Result<(), CallError> {
    let needs = ["systemd", "bash", "dnsmasq"].map(Need::Program);
    let Some(sandbox) = sandbox(&[&needs[..], &[Need::RealRoot]].concat()) else { return Ok(()) };
    let dir = PathBuf::from("/run/denied");
    prepare_tries(&dir).expect("an empty /run takes files");
    let lan = Lan::new(&sandbox)?;
    let server = Dnsmasq::start(&lan, DnsmasqConfig::default())?;
    let service = unit_here(UNITS[0])?;
    let mut units =
        vec![("confined.service", tries("confined", &service)), ("free.service", tries("free", "[Service]\n"))];
    for name in UNITS {
        units.push((name, unit_here(name)?));
    }
    let systemd = Systemd::start(&lan.host, &units)?;
    let [daemon] = systemd.processes(UNITS[0])[..] else { panic!("no daemon, or several") };
    for (plugin, requires_mac) in [("leasehold", true), ("leasehold-ipvlan", false)] {
        assert!(capabilities(plugin).contains(&format!(r#""RequiresMACAddress":{requires_mac}"#)), "{plugin}");
    }

    // Of their namespaces, which are younger than it, one dies with its lease: that goes back from a namespace that it makes.
    let (shim, config) = (Shim::new(&lan.host)?, Lan::cni_config(Path::new("/run/cni/dhcp.sock")));
    let (stays, dies) = (lan.container("stays")?, lan.container("dies")?);
    for container in [&stays, &dies] {
        let result = shim.add(container, &config)?;
        container.configure(&result)?;
        shim.check(container, &config, &result)?;
    }
    drop(dies);
    shim.del(&stays, &config)?;
    server.wait_until_free()?;
    assert_eq!(systemd.processes(UNITS[0]), [daemon], "it was killed for something");

    let read = |name: &str| fs::read_to_string(dir.join(name)).expect("what a service wrote");
    assert_eq!(
        read("free").lines().collect::<Vec<_>>(),
        [&DENIED[..], &["end"]].concat(),
        "without the unit's filters"
    );
    assert_eq!(read("confined"), "end\n");
    Ok(())
}
