//! The commands in the documents that need no service manager: each is run as printed, beside a container with that name.

use std::fs;
use std::path::Path;
use std::process::Command;

use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{CallError, Lab, Need, binary, sandbox};

/// Returns the lines of a document's first block of shell commands after a text.
fn block(document: &str, after: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(document);
    let text = fs::read_to_string(path).expect("it is there");
    let (_, text) = text.split_once(after).expect("the text before it");
    let block = text
        .split("```sh\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    block.expect("a block").lines().map(str::to_owned).collect()
}

#[test]
fn each_command_of_the_documents_does_as_they_say() -> Result<(), CallError> {
    let programs = ["dnsmasq", "tshark", "curl", "timeout"].map(Need::Program);
    let Some(sandbox) = sandbox(&programs) else {
        return Ok(());
    };
    let mut lab = Lab::without_daemon(&sandbox)?;
    lab.home().with_read_socket()?;
    lab.start_daemon()?;
    let _server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let _web = lab.attach("web")?;
    let lines = [
        block("README.md", "\n## Day to day\n"),
        block("daemon/docs/operations.md", "\n### Frames\n"),
        block("daemon/docs/metrics.md", "\n"),
    ]
    .concat();
    let (leasehold, here) = (binary("leasehold")?, sandbox.dir("here")?);
    let path = format!(
        "{}:{}",
        leasehold.parent().expect("a folder").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    for line in &lines {
        let command = line.split('#').next().unwrap_or_default();
        let command = command.replace("NAME", "web").replace("10m", "1s");
        let command = command.replace("/run/cni/dhcp.sock", &lab.home().socket().to_string_lossy());
        // The journal is the host's.
        if command.starts_with("journalctl") {
            continue;
        }
        let is_endless = command.contains("--follow") || command.contains("exporter");
        let mut shell = Command::new("timeout");
        shell.args([if is_endless { "1" } else { "60" }, "sh", "-ec", &command]);
        shell.current_dir(&here).env("PATH", &path);
        shell.env("LEASEHOLD_SOCKET", lab.home().socket());
        shell.env("LEASEHOLD_READ_SOCKET", lab.home().read_socket());
        let output = lab.lan.host.output(shell, b"")?;
        // What doctor and status find here is theirs to say: 1, 3 and 4.
        let looks = command.contains("doctor") || command.contains("status");
        let code = output.status.code();
        let expected = match (is_endless, looks) {
            (true, _) => [124].as_slice(),
            (_, true) => &[0, 1, 3, 4],
            _ => &[0],
        };
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(
            code.is_some_and(|code| expected.contains(&code)),
            "{line}: {code:?}: {said}"
        );
        assert!(!said.contains("error:"), "{line}: {said}");
    }
    assert!(lines.len() > 10, "{lines:?}");
    Ok(())
}
