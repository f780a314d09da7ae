//! One call of a CNI plugin, as a runtime makes it, and how long it takes.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use netns_fixtures::Container;

use crate::sample::Sample;

/// A failed call.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

/// Calls `verb` for a container and returns how long it took, from the start of the process until its end was seen.
pub(crate) fn call(
    plugin: &Path,
    verb: &str,
    container: &Container,
    config: &[u8],
) -> io::Result<Result<Duration, Failure>> {
    let mut command = Command::new(plugin);
    command
        .env("CNI_CONTAINERID", &container.id)
        .env("CNI_NETNS", container.netns.path())
        .env("CNI_IFNAME", &container.ifname);
    run(command, verb, config)
}

/// Calls VERSION.
pub(crate) fn version(plugin: &Path) -> io::Result<Result<Duration, Failure>> {
    run(
        Command::new(plugin),
        "VERSION",
        br#"{"cniVersion":"1.0.0"}"#,
    )
}

fn run(mut command: Command, verb: &str, config: &[u8]) -> io::Result<Result<Duration, Failure>> {
    command
        .env("CNI_COMMAND", verb)
        .env("CNI_PATH", "/opt/cni/bin");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let began = Instant::now();
    let mut child = command.spawn()?;
    if let Some(mut pipe) = child.stdin.take() {
        // A plugin that does not read everything says why in its answer.
        let _ = pipe.write_all(config);
    }
    let output = child.wait_with_output()?;
    let took = began.elapsed();
    Ok(if output.status.success() {
        Ok(took)
    } else {
        Err(Failure(
            String::from_utf8_lossy(&output.stdout).into_owned(),
        ))
    })
}

/// Counts a call.
pub(crate) fn note(sample: &mut Sample, result: Result<Duration, Failure>) {
    match result {
        Ok(took) => sample.add(took),
        Err(Failure(said)) => sample.failures.push(said),
    }
}
