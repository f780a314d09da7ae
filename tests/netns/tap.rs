//! `leasehold capture`: the file shows a lease's whole life to tshark, and a slow reader harms nothing but its own capture.

use std::os::unix::net::UnixStream;
use std::process::Command;

use netns_fixtures::model::Config;
use netns_fixtures::server::ModelServer;
use netns_fixtures::{CallError, Lab, Lan, Need, Process, binary, sandbox, until_found};

/// Starts a capture into a file, and waits until the capture has begun.
fn capture(lab: &Lab, file: &str, whose: &str) -> Result<Process, CallError> {
    let mut command = Command::new(binary("leasehold")?);
    command
        .args(["capture", whose, "--write", file, "--socket"])
        .arg(lab.daemon().socket());
    let process = Process::start(&lab.lan.host, "leasehold capture", command)?;
    let begun = || {
        Ok(std::fs::metadata(file)
            .is_ok_and(|file| file.len() > 0)
            .then_some(()))
    };
    until_found("a capture that has begun", netns_fixtures::DEADLINE, begun)?;
    Ok(process)
}

/// Returns a field of each frame that a tshark filter lets through.
fn shown(lab: &Lab, file: &str, filter: &str, field: &str) -> Result<Vec<String>, CallError> {
    let args = ["-r", file, "-Y", filter, "-T", "fields", "-e", field];
    Ok(lab
        .lan
        .host
        .run_command("tshark", &args, "")?
        .lines()
        .map(str::to_owned)
        .collect())
}

/// Waits until a file has that many frames that a filter lets through.
fn until_shown(lab: &Lab, file: &str, filter: &str, count: usize) -> Result<(), CallError> {
    let look = || {
        let frames = shown(lab, file, filter, "frame.number").unwrap_or_default();
        Ok((frames.len() >= count).then_some(()))
    };
    Ok(until_found(
        "frames in the file",
        netns_fixtures::DEADLINE,
        look,
    )?)
}

#[test]
fn capture_writes_frames_of_one_attachment_or_of_all() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::Program("tshark")]);
    let lab = Lab::new(&sandbox)?;
    let server = ModelServer::start(&lab.lan, Config::new(Lan::SUBNET))?;
    let dir = sandbox.dir("captured")?;
    let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
    let (one, all) = (path("one.pcapng"), path("all.pcapng"));
    let of_one = capture(&lab, &one, "lan/c1/eth0")?;
    let of_all = capture(&lab, &all, "--all")?;
    // A reader that never reads, and one that sends half a request.
    let stalled = UnixStream::connect(lab.daemon().socket()).expect("the daemon listens");
    std::io::Write::write_all(
        &mut &stalled,
        b"GET /v1/capture?after=0&wait=60 HTTP/1.1\r\nHost: x\r\n\r\n",
    )
    .expect("the daemon takes it");
    let _half = UnixStream::connect(lab.daemon().socket()).expect("the daemon listens");

    let (first, second) = (lab.attach("c1")?, lab.attach("c2")?);
    lab.detach(&first)?;
    lab.detach(&second)?;
    until_shown(&lab, &all, "dhcp.option.dhcp == 7", 2)?;
    until_shown(&lab, &one, "dhcp.option.dhcp == 7", 1)?;
    of_one.kill()?;
    of_all.kill()?;

    // On a busy machine a DISCOVER is sent again before its answer comes, which comes twice then.
    let mut kinds = Vec::new();
    for kind in shown(&lab, &one, "dhcp", "dhcp.option.dhcp")? {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    // The whole life of one lease.
    assert_eq!(kinds, ["1", "2", "3", "5", "7"]);
    assert_eq!(
        shown(
            &lab,
            &all,
            "dhcp.option.dhcp == 3 or dhcp.option.dhcp == 5",
            "dhcp.option.dhcp"
        )?
        .len(),
        4
    );
    // Its probes too.
    assert!(!shown(&lab, &one, "arp", "frame.number")?.is_empty());
    let names = shown(&lab, &all, "dhcp.option.dhcp == 7", "frame.interface_name")?;
    assert_eq!(names, ["lan/c1/eth0", "lan/c2/eth0"]);
    assert!(shown(&lab, &all, "_ws.malformed", "frame.number")?.is_empty());
    assert_eq!(server.violations(), []);
    Ok(())
}
