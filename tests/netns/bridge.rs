//! Containers on a bridge whose host is busy: the kernel lets their ports forward late.

use std::process::Command;
use std::time::{Duration, Instant};

use netns_fixtures::model::Config;
use netns_fixtures::server::ModelServer;
use netns_fixtures::{CallError, Lab, Lan, Process, sandbox};

/// Containers that are attached, one after the other.
const CONTAINERS: usize = 30;
/// Processes that do nothing but keep a processor busy.
const BUSY: usize = 8;

#[test]
fn on_a_busy_host_the_first_discover_of_a_bridged_container_is_not_lost() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(&[]) else { return Ok(()) };
    let mut lab = Lab::new(&sandbox)?;
    lab.lan.add_host_bridge()?;
    lab.config = Lan::bridge_config(&lab.daemon().socket());
    let _server = ModelServer::start(&lab.lan, Config::new(Lan::SUBNET))?;
    let containers: Vec<_> =
        (0..CONTAINERS).map(|number| lab.lan.bridged_container(&format!("c{number}"))).collect::<Result<_, _>>()?;
    let spin = |number: usize| {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        Process::start(&lab.lan.host, &format!("spinner {number}"), command)
    };
    let spinners: Vec<_> = (0..BUSY).map(spin).collect::<Result<_, _>>()?;
    let mut slow = Vec::new();
    for container in containers {
        let began = Instant::now();
        lab.add(container)?;
        // The second DISCOVER leaves after 0.875 s at the earliest.
        slow.extend(Some(began.elapsed()).filter(|took| *took >= Duration::from_millis(875)));
    }
    for spinner in spinners {
        spinner.kill()?;
    }
    assert!(slow.len() <= CONTAINERS / 10, "{} of {CONTAINERS} ADDs asked twice: {slow:?}", slow.len());
    Ok(())
}
