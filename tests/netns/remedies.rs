//! The service in its administrator's hands: stopped, restarted and without its sockets. Each remedy that it prints is tried as
//! printed.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use leasehold_tests::documents::block;
use netns_fixtures::{
    CallError, DEADLINE, Error, Lan, Need, Sandbox, Systemd, binary, installed_unit, sandbox,
    until_found,
};

use crate::exporter::ask_daemon;
use crate::unit::{UNITS, capabilities, service_for_docker, wait_for_docker};

const SOCKET: &str = "/run/cni/dhcp.sock";

/// A host whose service writes its log to a file.
struct Host {
    lan: Lan,
    systemd: Systemd,
    log: PathBuf,
}

impl Host {
    fn new(sandbox: &Sandbox, more: &[(&str, &str)]) -> Result<Self, Error> {
        let (lan, log) = (Lan::new(sandbox)?, sandbox.dir("log")?.join("log"));
        let service = service_for_docker()?.replace(
            "[Service]",
            &format!("[Service]\nStandardError=append:{}", log.display()),
        );
        let ours = [(UNITS[0], service), (UNITS[1], installed_unit(UNITS[1])?)];
        let units: Vec<_> = ours
            .into_iter()
            .chain(more.iter().map(|(name, text)| (*name, (*text).to_owned())))
            .collect();
        Ok(Self {
            systemd: Systemd::start(&lan.host, &units)?,
            lan,
            log,
        })
    }

    /// Waits until the log has a line that contains this, and returns the systemctl commands in it, each split into words.
    fn remedies(&self, line: &str) -> Result<Vec<Vec<String>>, Error> {
        let found = until_found(line, DEADLINE, || {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            Ok(log
                .lines()
                .rfind(|said| said.contains(line))
                .map(str::to_owned))
        })?;
        Ok(commands(&found))
    }

    fn control(&self, command: &[String]) -> Result<(), Error> {
        self.systemd
            .control(&command.iter().map(String::as_str).collect::<Vec<_>>())
            .map(drop)
    }

    /// Runs `leasehold list`.
    fn list(&self) -> Result<String, Error> {
        self.lan
            .host
            .run_command(&binary("leasehold")?.to_string_lossy(), &["list"], "")
    }
}

/// Returns the commands in backticks that begin with systemctl, without that word.
fn commands(text: &str) -> Vec<Vec<String>> {
    let quoted = text.split('`').skip(1).step_by(2);
    let words = quoted.filter_map(|command| command.strip_prefix("systemctl "));
    words
        .map(|words| words.split(' ').map(str::to_owned).collect())
        .collect()
}

const NEEDS: [Need; 4] = [
    Need::Program("systemd"),
    Need::Program("systemctl"),
    Need::Program("nsenter"),
    Need::RealRoot,
];

#[test]
fn a_service_leaves_no_socket_when_it_stops() -> Result<(), CallError> {
    let host = Host::new(&sandbox!(&NEEDS), &[])?;
    wait_for_docker()?;
    host.systemd.control(&["restart", UNITS[0]])?;
    capabilities("leasehold").expect("it is ready when the command ends");
    host.list()?;
    host.systemd.control(&["stop", UNITS[0], UNITS[1]])?;
    for gone in [
        "/run/docker/plugins/leasehold.sock",
        "/run/docker/plugins/leasehold-ipvlan.sock",
        SOCKET,
    ] {
        assert!(!Path::new(gone).exists(), "{gone}");
    }
    let said = host.list().expect_err("nobody is there").to_string();
    let [start] = &commands(&said)[..] else {
        panic!("{said}")
    };
    host.control(start)?;
    host.list()?;
    capabilities("leasehold").expect("it is ready when the command ends");
    Ok(())
}

#[test]
fn the_log_names_the_command_that_restores_a_socket() -> Result<(), CallError> {
    let host = Host::new(&sandbox!(&NEEDS), &[])?;
    host.list()?;
    fs::remove_file(SOCKET).expect("it was there");
    let said = host.remedies("is not the socket that systemd passed")?;
    let [remedy] = &said[..] else {
        panic!("{said:?}")
    };
    host.list().expect_err("nobody finds it");
    host.control(remedy)?;
    host.list()?;
    wait_for_docker()?;
    Ok(())
}

#[test]
fn the_read_only_socket_stops_with_the_other_one() -> Result<(), CallError> {
    let sandbox = sandbox!(&NEEDS);
    const READ: &str = "/run/leasehold-read/leasehold.sock";
    let host = Host::new(&sandbox, &[(UNITS[2], &installed_unit(UNITS[2])?)])?;
    host.list()?;
    let asks = || UnixStream::connect(READ);
    asks().expect("systemd listens");
    fs::remove_file(READ).expect("it was there");
    let said = host.remedies(&format!("{READ} is not the socket that systemd passed"))?;
    let [remedy] = &said[..] else {
        panic!("{said:?}")
    };
    host.control(remedy)?;
    assert!(
        ask_daemon(Path::new(READ), "GET /healthz")
            .0
            .contains(" 200 ")
    );

    // As the documents have it stopped, under a monitor that goes on asking.
    let ends = AtomicBool::new(false);
    thread::scope(|s| {
        s.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                let _ = asks();
            }
        });
        let stopped = host.systemd.control(&["stop", UNITS[1], UNITS[0]]);
        ends.store(true, Ordering::Relaxed);
        stopped
    })?;
    asks().expect_err("nobody listens");
    assert!(host.systemd.processes(UNITS[0]).is_empty());
    host.systemd.control(&["start", UNITS[1], UNITS[0]])?;

    // All of it, as printed.
    let anew = block("daemon/docs/operations.md", "\n## Starting anew\n");
    let store = || {
        let args = ["-c", "%i", "/var/lib/leasehold/leases.redb"];
        host.systemd.run("stat", &args)
    };
    let before = store()?;
    host.systemd.run("sh", &["-ec", &anew])?;
    assert_ne!(store()?, before);
    assert!(
        ask_daemon(Path::new(READ), "GET /healthz")
            .0
            .contains(" 200 ")
    );
    Ok(())
}

#[test]
fn doctor_names_the_command_that_starts_the_service() -> Result<(), CallError> {
    let host = Host::new(&sandbox!(&NEEDS), &[])?;
    host.list()?;
    host.systemd.control(&["stop", UNITS[1], UNITS[0]])?;
    let look = |args: &[&str]| {
        let mut doctor = std::process::Command::new(binary("leasehold")?);
        doctor.arg("doctor").args(args);
        let output = host.lan.host.output(doctor, b"")?;
        Ok::<_, Error>(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let report: serde_json::Value = serde_json::from_str(&look(&["--json"])?).expect("JSON");
    let findings = report["findings"].as_array().expect("a list");
    let of_socket = findings.iter().find(|finding| finding["check"] == "socket");
    let said = of_socket.expect("there is none")["way_out"].as_str();
    let command = said.and_then(|said| said.split(',').next()).expect("a way");
    // No unit can be enabled here: /etc is read-only.
    let command = command.replace("enable --now", "start");
    host.systemd.run("sh", &["-ec", &command])?;
    host.list()?;
    let said = look(&[])?;
    assert!(said.contains("ok       socket: the daemon at"), "{said}");
    Ok(())
}

/// The service is killed and not started again. It uses another plugin directory than dockerd's first one.
#[test]
fn what_a_crash_leaves_of_dockers_sockets_goes() -> Result<(), CallError> {
    let dir = "/run/elsewhere/plugins";
    let lan = Lan::new(&sandbox!(&NEEDS))?;
    let service = service_for_docker()?.replace("/run/docker/plugins\n", &format!("{dir}\n"));
    let units = [
        (UNITS[0], service.replace("Restart=always", "Restart=no")),
        (UNITS[1], installed_unit(UNITS[1])?),
    ];
    let systemd = Systemd::start(&lan.host, &units)?;
    let sockets = ["leasehold.sock", "leasehold-ipvlan.sock"].map(|name| Path::new(dir).join(name));
    until_found("Docker's sockets", DEADLINE, || {
        Ok(sockets.iter().all(|path| path.exists()).then_some(()))
    })?;
    systemd.kill(UNITS[0])?;
    until_found("their end", DEADLINE, || {
        Ok(sockets.iter().all(|path| !path.exists()).then_some(()))
    })?;
    Ok(())
}
